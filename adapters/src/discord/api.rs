//! One call of Discord's REST API: at most one attempt, with an end, judged.
//!
//! Buckets that Discord wants left alone are not called: a short wait is waited out before the
//! attempt, a longer one is said to the caller.

use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use mayfly_domain::chat::CallError;
use reqwest::{Method, multipart::Form, redirect};
use serde_json::Value;
use serenity::all::Route;

use super::{config::Config, refusal};
use crate::{
    http::{
        answer::{self, Failure, Response},
        call, redact,
        wait::{self, Silence},
    },
    json,
    secret::Secret,
};

/// How long one request may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
/// How long one with a file may take.
pub(crate) const UPLOAD_PATIENCE: Duration = Duration::from_secs(100);
/// Waits up to this are waited out.
const SHORT: Duration = Duration::from_secs(3);
/// Discord shuts a network out for 10,000 answers 401, 403 and 429 in this time.
const INVALID_WINDOW: Duration = Duration::from_secs(600);
/// So many of them are ours.
const INVALID_MOST: u32 = 2000;

/// Why a call has no result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Error {
    /// Discord refuses it with a code of its own.
    Code(i64, String),
    /// Everything else.
    Call(CallError),
}

impl Error {
    /// For the outbox; `needs` names the permissions that the call wants.
    pub(crate) fn told(self, needs: &str) -> CallError {
        match self {
            Error::Code(code, message) => refusal::told(code, &message, needs),
            Error::Call(error) => error,
        }
    }

    pub(crate) fn is(&self, wanted: i64) -> bool {
        matches!(self, Error::Code(code, _) if *code == wanted)
    }
}

/// What is asked.
pub(crate) struct Ask<'a> {
    method: Method,
    route: Route<'a>,
    query: String,
    body: Option<Value>,
    form: Option<Form>,
    patience: Duration,
}

impl<'a> Ask<'a> {
    pub(crate) fn new(method: Method, route: Route<'a>) -> Ask<'a> {
        Ask {
            method,
            route,
            query: String::new(),
            body: None,
            form: None,
            patience: PATIENCE,
        }
    }

    pub(crate) fn query(mut self, query: String) -> Self {
        self.query = format!("?{query}");
        self
    }

    pub(crate) fn body(mut self, body: Value) -> Self {
        self.body = Some(body);
        self
    }

    pub(crate) fn form(mut self, form: Form) -> Self {
        self.form = Some(form);
        self.patience = UPLOAD_PATIENCE;
        self
    }

    pub(crate) fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Calls about an interaction are authorised by its token, and limited apart from all others.
    fn of_interaction(&self) -> bool {
        matches!(
            self.route,
            Route::InteractionResponse { .. }
                | Route::WebhookFollowupMessages { .. }
                | Route::WebhookOriginalInteractionResponse { .. }
        )
    }

    fn bucket(&self) -> String {
        format!("{} {:?}", self.method, self.route.ratelimiting_bucket())
    }
}

/// See the module.
pub(crate) struct Api {
    client: reqwest::Client,
    base: String,
    token: Secret,
    began: Instant,
    silence: Mutex<Silence>,
    invalid: Mutex<(Instant, u32)>,
    /// The token was not accepted; it does not become better by asking again.
    locked_out: AtomicBool,
}

const EVERYTHING: &str = "everything";

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Api {
    pub(crate) fn new(config: &Config) -> Result<Api, String> {
        let client = reqwest::Client::builder()
            .user_agent(serenity::constants::USER_AGENT)
            .connect_timeout(PATIENCE)
            .redirect(redirect::Policy::none())
            .build()
            .map_err(|error| format!("no HTTP client: {}", error.without_url()))?;
        Ok(Api {
            client,
            base: config.api_url.trim_end_matches('/').to_owned(),
            token: config.token.clone(),
            began: Instant::now(),
            silence: Mutex::default(),
            invalid: Mutex::new((Instant::now(), 0)),
            locked_out: AtomicBool::new(false),
        })
    }

    pub(crate) fn token(&self) -> &str {
        self.token.expose()
    }

    /// Text without our token.
    pub(crate) fn clean(&self, text: &str) -> String {
        redact::redact(text, &[self.token.expose()])
    }

    /// Whether the API is reached without TLS, as fakes and local proxies are.
    pub(crate) fn plain(&self) -> bool {
        self.base.starts_with("http:")
    }

    pub(crate) async fn call(&self, ask: Ask<'_>) -> Result<Value, Error> {
        if self.locked_out.load(Ordering::Relaxed) {
            return Err(Error::Call(CallError::Refused(refusal::TOKEN.to_owned())));
        }
        let bucket = ask.bucket();
        let own = ask.of_interaction();
        self.wait_for(&bucket, own).await.map_err(Error::Call)?;
        let request = self.request(ask);
        let response = match request.send().await {
            Ok(response) => response,
            Err(error) => return Err(self.judged(call::broken(error))),
        };
        self.note(&bucket, &response);
        let status = response.status().as_u16();
        let retry_after = header(&response, "retry-after");
        let global = header(&response, "x-ratelimit-global").is_some();
        let body = call::body(response, call::MOST)
            .await
            .map_err(|failure| self.judged(failure))?;
        self.count(status);
        let answer = Response {
            status,
            retry_after: retry_after.as_deref(),
            body: &body,
        };
        let failure = match answer::discord(&answer) {
            Ok(value) => return Ok(value),
            Err(failure) => failure,
        };
        if status == 401 && !own {
            self.locked_out.store(true, Ordering::Relaxed);
            return Err(Error::Call(CallError::Refused(refusal::TOKEN.to_owned())));
        }
        if let Failure::NotDone {
            wait: Some(wait), ..
        } = &failure
        {
            let now = self.now();
            held(&self.silence).hold(if global { EVERYTHING } else { &bucket }, now, *wait);
        }
        Err(match code(&failure, &body) {
            Some((code, message)) => Error::Code(code, self.clean(&message)),
            // Not Discord's own word, but somebody's in front of it.
            None if status == 403 => Error::Call(CallError::NotDone(
                "HTTP status 403 without a reason".to_owned(),
            )),
            None => self.judged(failure),
        })
    }

    fn judged(&self, failure: Failure) -> Error {
        Error::Call(call::told(failure, |said| self.clean(said)))
    }

    fn request(&self, ask: Ask<'_>) -> reqwest::RequestBuilder {
        let own = ask.of_interaction();
        let path = ask.route.path();
        let path = path.strip_prefix(super::config::API).unwrap_or(&path);
        let address = format!("{}{path}{}", self.base, ask.query);
        let mut request = self
            .client
            .request(ask.method, address)
            .timeout(ask.patience);
        if !own {
            request = request.header("authorization", format!("Bot {}", self.token.expose()));
        }
        match (ask.form, ask.body) {
            (Some(form), _) => request.multipart(form),
            (None, Some(body)) => request.json(&body),
            (None, None) => request.header("content-length", 0),
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    async fn wait_for(&self, bucket: &str, own: bool) -> Result<(), CallError> {
        let now = self.now();
        let left = {
            let silence = held(&self.silence);
            let all = if own {
                Duration::ZERO
            } else {
                silence.left(EVERYTHING, now)
            };
            silence.left(bucket, now).max(all)
        };
        if left > SHORT {
            return Err(CallError::Limited {
                reason: "its rate limit is used up".to_owned(),
                after: left,
            });
        }
        if !left.is_zero() {
            tokio::time::sleep(left).await;
        }
        Ok(())
    }

    /// What the headers say of the next call: a bucket that is empty is left alone.
    fn note(&self, bucket: &str, response: &reqwest::Response) {
        let empty = header(response, "x-ratelimit-remaining").as_deref() == Some("0");
        let reset =
            header(response, "x-ratelimit-reset-after").and_then(|value| wait::seconds(&value));
        if let (true, Some(reset)) = (empty, reset) {
            let now = self.now();
            held(&self.silence).hold(bucket, now, reset);
        }
    }

    /// The brake before Discord shuts the network out.
    fn count(&self, status: u16) {
        if !matches!(status, 401 | 403 | 429) {
            return;
        }
        let mut invalid = held(&self.invalid);
        if invalid.0.elapsed() > INVALID_WINDOW {
            *invalid = (Instant::now(), 0);
        }
        invalid.1 += 1;
        if invalid.1 >= INVALID_MOST {
            let left = INVALID_WINDOW.saturating_sub(invalid.0.elapsed());
            let now = self.now();
            held(&self.silence).hold(EVERYTHING, now, left);
        }
    }
}

fn header(response: &reqwest::Response, name: &str) -> Option<String> {
    let value = response.headers().get(name)?;
    value.to_str().ok().map(str::to_owned)
}

/// Discord's own code for a refusal.
fn code(failure: &Failure, body: &[u8]) -> Option<(i64, String)> {
    if !matches!(failure, Failure::Permanent { .. }) {
        return None;
    }
    let body: Value = serde_json::from_slice(body).ok()?;
    let code = json::number(&body, &["code"])?;
    let mut message = json::text(&body, &["message"])
        .unwrap_or_default()
        .to_owned();
    if let Some(errors) = json::at(&body, &["errors"]) {
        let errors: String = errors.to_string().chars().take(300).collect();
        message = format!("{message} {errors}");
    }
    Some((code, message))
}
