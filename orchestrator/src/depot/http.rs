//! The layer store is spoken to by the HTTP client that everything else here uses, so that no second
//! one comes along with `object_store`.

use std::{error::Error as _, io, time::Duration};

use async_trait::async_trait;
use http_body_util::BodyExt as _;
use object_store::{
    ClientOptions,
    client::{
        HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
        HttpResponseBody, HttpService,
    },
};

const CONNECT: Duration = Duration::from_secs(5);
/// Between two bytes of an answer.
const SILENCE: Duration = Duration::from_secs(15);

#[derive(Debug)]
pub(super) struct Connector;

impl HttpConnector for Connector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        let client = reqwest::Client::builder()
            .connect_timeout(CONNECT)
            .read_timeout(SILENCE)
            .redirect(reqwest::redirect::Policy::none())
            .build();
        let client = client.map_err(|error| object_store::Error::Generic {
            store: "S3",
            source: Box::new(error),
        })?;
        Ok(HttpClient::new(Client(client)))
    }
}

#[derive(Debug)]
struct Client(reqwest::Client);

#[async_trait]
impl HttpService for Client {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let (parts, body) = request.into_parts();
        let url = parts.uri.to_string().parse();
        let url = url.map_err(|error| HttpError::new(HttpErrorKind::Unknown, Unusable(error)))?;
        let mut request = reqwest::Request::new(parts.method, url);
        *request.headers_mut() = parts.headers;
        *request.body_mut() = Some(reqwest::Body::wrap(body));
        let answer = self.0.execute(request).await.map_err(told)?;
        let (status, headers) = (answer.status(), answer.headers().clone());
        let body = reqwest::Body::from(answer).map_err(told);
        let mut answer = HttpResponse::new(HttpResponseBody::new(body));
        *answer.status_mut() = status;
        *answer.headers_mut() = headers;
        Ok(answer)
    }
}

#[derive(Debug, thiserror::Error)]
#[error("an address that cannot be used: {0}")]
struct Unusable(url::ParseError);

/// Which of them may be tried again is `object_store`'s to decide, by the kind.
fn told(error: reqwest::Error) -> HttpError {
    let kind = if error.is_timeout() {
        HttpErrorKind::Timeout
    } else if error.is_connect() {
        HttpErrorKind::Connect
    } else if is_cut(&error) {
        HttpErrorKind::Interrupted
    } else {
        HttpErrorKind::Unknown
    };
    HttpError::new(kind, error.without_url())
}

fn is_cut(error: &reqwest::Error) -> bool {
    let mut cause = error.source();
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            return matches!(
                error.kind(),
                io::ErrorKind::ConnectionAborted
                    | io::ErrorKind::ConnectionReset
                    | io::ErrorKind::BrokenPipe
                    | io::ErrorKind::UnexpectedEof
            );
        }
        cause = error.source();
    }
    false
}
