//! slack-morphism's client over an HTTP client whose answers are judged here: every call has its
//! time-out, no answer is read without end, and an error is a [`Failure`].

use futures_util::future::{BoxFuture, FutureExt as _};
use reqwest::{Method, RequestBuilder, Url, header};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use slack_morphism::{
    ClientResult, SlackClientApiCallContext, SlackClientHttpConnector, SlackClientId,
    SlackClientSecret,
    errors::{SlackClientError, SlackClientSystemError},
    multipart_form::FileMultipartData,
};

use crate::http::{
    answer::{self, Failure, Response},
    call,
};

/// See the module.
#[derive(Debug)]
pub(super) struct Connector {
    /// Without redirects, with the time-out of a call.
    pub(super) http: reqwest::Client,
    /// Without a slash at its end.
    pub(super) api_url: String,
}

/// What a call gave, with what its headers say about the token.
pub(super) struct Told {
    /// The answer.
    pub(super) value: Value,
    /// Scopes of the token.
    pub(super) scopes: Option<String>,
}

impl Connector {
    pub(super) async fn send(&self, request: RequestBuilder) -> Result<Told, Failure> {
        let response = request.send().await.map_err(call::broken)?;
        let status = response.status().as_u16();
        let header = |name: &str| {
            let value = response.headers().get(name)?;
            Some(value.to_str().ok()?.to_owned())
        };
        let retry_after = header("retry-after");
        let scopes = header("x-oauth-scopes");
        let body = call::body(response, call::MOST).await?;
        let value = answer::slack(&Response {
            status,
            retry_after: retry_after.as_deref(),
            body: &body,
        })?;
        Ok(Told { value, scopes })
    }

    fn request(
        &self,
        method: Method,
        url: Url,
        context: &SlackClientApiCallContext<'_>,
    ) -> RequestBuilder {
        let request = self.http.request(method, url);
        match context.token {
            Some(token) => request.bearer_auth(&token.token_value.0),
            None => request,
        }
    }

    async fn decoded<RS: DeserializeOwned>(&self, request: RequestBuilder) -> ClientResult<RS> {
        let told = self.send(request).await.map_err(wrapped)?;
        serde_json::from_value(told.value).map_err(|error| {
            wrapped(Failure::Unknown {
                why: format!("the answer is not as documented: {error}"),
            })
        })
    }
}

/// A failure on its way through slack-morphism.
fn wrapped(failure: Failure) -> SlackClientError {
    SlackClientError::SystemError(SlackClientSystemError::new().with_cause(Box::new(failure)))
}

/// And out of it.
pub(super) fn unwrapped(error: SlackClientError) -> Failure {
    let cause = match error {
        SlackClientError::SystemError(SlackClientSystemError {
            cause: Some(cause), ..
        }) => cause,
        other => Box::new(other),
    };
    match cause.downcast::<Failure>() {
        Ok(failure) => *failure,
        Err(other) => Failure::Permanent {
            reason: crate::http::redact::redact(&other.to_string(), &[]),
        },
    }
}

fn not_ours<'a, RS: Send + 'a>() -> BoxFuture<'a, ClientResult<RS>> {
    let failure = Failure::Permanent {
        reason: "this way of calling Slack is not used".to_owned(),
    };
    std::future::ready(Err(wrapped(failure))).boxed()
}

impl SlackClientHttpConnector for Connector {
    fn http_get_uri<'a, RS>(
        &'a self,
        full_uri: Url,
        context: SlackClientApiCallContext<'a>,
    ) -> BoxFuture<'a, ClientResult<RS>>
    where
        RS: for<'de> serde::de::Deserialize<'de> + Send + 'a,
    {
        let request = self.request(Method::GET, full_uri, &context);
        self.decoded(request).boxed()
    }

    fn http_get_with_client_secret<'a, RS>(
        &'a self,
        _: Url,
        _: &'a SlackClientId,
        _: &'a SlackClientSecret,
    ) -> BoxFuture<'a, ClientResult<RS>>
    where
        RS: for<'de> serde::de::Deserialize<'de> + Send + 'a,
    {
        not_ours()
    }

    fn http_post_uri<'a, RQ, RS>(
        &'a self,
        full_uri: Url,
        request_body: &'a RQ,
        context: SlackClientApiCallContext<'a>,
    ) -> BoxFuture<'a, ClientResult<RS>>
    where
        RQ: Serialize + Send + Sync,
        RS: for<'de> serde::de::Deserialize<'de> + Send + 'a,
    {
        let body = match serde_json::to_vec(request_body) {
            Ok(body) => body,
            Err(error) => {
                let reason = format!("the call cannot be written: {error}");
                return std::future::ready(Err(wrapped(Failure::Permanent { reason }))).boxed();
            }
        };
        let request = self.request(Method::POST, full_uri, &context);
        let kind = "application/json; charset=utf-8";
        let request = request.header(header::CONTENT_TYPE, kind).body(body);
        self.decoded(request).boxed()
    }

    fn http_post_uri_multipart_form<'a, 'p, RS, PT, TS>(
        &'a self,
        _: Url,
        _: Option<FileMultipartData<'p>>,
        _: &'p PT,
        _: SlackClientApiCallContext<'a>,
    ) -> BoxFuture<'a, ClientResult<RS>>
    where
        RS: for<'de> serde::de::Deserialize<'de> + Send + 'a,
        PT: IntoIterator<Item = (&'p str, Option<TS>)> + Clone,
        TS: AsRef<str> + 'p + Send,
    {
        not_ours()
    }

    fn http_post_uri_binary<'a, 'p, RS>(
        &'a self,
        _: Url,
        _: String,
        _: &'a [u8],
        _: SlackClientApiCallContext<'a>,
    ) -> BoxFuture<'a, ClientResult<RS>>
    where
        RS: for<'de> serde::de::Deserialize<'de> + Send + 'a,
    {
        not_ours()
    }

    fn create_method_uri_path(&self, method_relative_uri: &str) -> ClientResult<Url> {
        Ok(format!("{}/{method_relative_uri}", self.api_url).parse()?)
    }
}
