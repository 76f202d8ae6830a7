//! Slack, as far as Mayfly uses it: channels with threads, messages with their edits, buttons, files,
//! reactions; the Web API with its errors in answers of status 200; Socket Mode with tickets that are
//! good once, redelivery of what is not acknowledged, and sockets that end in every way; or signed
//! requests with their repetitions.
//!
//! Trusted only because the official client works against it: `tests/tests/slack_official.rs`.

mod args;
mod files;
mod methods;
mod people;
mod requests;
mod signature;
mod socket;
mod state;

use std::{ops::Deref, sync::Arc};

use http_body_util::Full;
use hyper::{Response, http::request::Parts};
use serde_json::{Value, json};
use tokio_util::sync::DropGuard;

pub use people::Shown;
pub use signature::signed;
pub use socket::{Ending, Mishap};

use crate::fake::{self, Answer, Call, Fault, Platform, Served, socket::Sockets};

/// The bot's token; of the right form, and nobody's.
pub const BOT_TOKEN: &str = "xoxb-4200000001-4200000002-FakeTokenOfNobody0123456789";
/// The app's token.
pub const APP_TOKEN: &str = "xapp-1-A0APP-4200000003-faketokenofnobody0123456789";
/// What signs HTTP requests.
pub const SIGNING_SECRET: &str = "0123456789abcdef0123456789abcdef";
/// The workspace.
pub const TEAM: &str = "T1";
/// The bot's user.
pub const BOT: &str = "U0BOT";
/// The app.
pub const APP: &str = "A0APP";

/// See the module.
pub struct FakeSlack {
    state: state::Kept,
}

/// The server of both sides.
pub struct Running {
    http: Served<FakeSlack>,
    sockets: Sockets,
    _requests: DropGuard,
}

impl FakeSlack {
    /// A workspace with no channels.
    pub fn start() -> Running {
        let http = Served::start(FakeSlack {
            state: state::Kept::default(),
        });
        let sockets = Sockets::start(http.platform.clone());
        let requests = fake::background(requests::send(http.platform.clone()));
        let mut state = http.platform.state.lock();
        state.url = http.url();
        state.socket_url = sockets.url();
        drop(state);
        Running {
            http,
            sockets,
            _requests: requests,
        }
    }
}

impl Running {
    /// Of the Web API.
    pub fn api_url(&self) -> String {
        format!("{}/api", self.http.url())
    }

    /// Of private files.
    pub fn files_url(&self) -> String {
        self.http.url()
    }

    /// Of the sockets.
    pub fn socket_url(&self) -> String {
        self.sockets.url()
    }

    /// The next calls of this method go wrong so; `upload` and `file` are the content's way.
    pub fn fault(&self, method: &str, faults: impl IntoIterator<Item = Fault>) {
        self.http.fault(method, faults);
    }

    /// Answers and events, each by its name.
    pub fn said(&self) -> Vec<(String, Value)> {
        [self.http.answered(), self.told()].concat()
    }

    /// How often this method was called.
    pub fn calls(&self, method: &str) -> usize {
        self.http.calls(method).len()
    }
}

impl Deref for Running {
    type Target = FakeSlack;
    fn deref(&self) -> &FakeSlack {
        &self.http.platform
    }
}

impl Platform for FakeSlack {
    fn name_of(&self, parts: &Parts) -> String {
        let path = parts.uri.path();
        if path.starts_with("/upload/") {
            return "upload".to_owned();
        }
        if path.starts_with("/files-pri/") || path.starts_with("/elsewhere/") {
            return "file".to_owned();
        }
        path.rsplit('/').next().unwrap_or_default().to_owned()
    }

    async fn act(self: Arc<Self>, call: Call) -> Answer {
        let path = call.uri().path().to_owned();
        if let Some(id) = path.strip_prefix("/upload/") {
            return self.uploaded(id, &call).await;
        }
        if let Some(rest) = path.strip_prefix("/files-pri/") {
            return self.private(rest, &call);
        }
        let Some(method) = path.strip_prefix("/api/") else {
            return fake::json(404, "{}");
        };
        let args = args::read(&call);
        let mut state = self.state.lock();
        let scopes = state.scopes.join(",");
        let mut answer = match self.method(&mut state, method, &args) {
            Ok(result) => answered(result),
            Err(refusal) => refusal.answer(),
        };
        drop(state);
        self.state.news.notify_waiters();
        if args.token.as_deref() == Some(BOT_TOKEN) {
            let value = scopes.parse().expect("scopes are a header");
            answer.headers_mut().insert("x-oauth-scopes", value);
        }
        answer
    }

    fn too_many(&self, seconds: u32) -> Answer {
        Response::builder()
            .status(429)
            .header("retry-after", seconds.to_string())
            .header("content-type", "application/json")
            .body(Full::new(r#"{"ok":false,"error":"ratelimited"}"#.into()))
            .expect("a status and a body")
    }
}

fn answered(mut result: Value) -> Answer {
    result["ok"] = json!(true);
    fake::json(200, result.to_string())
}

/// Why a method was not done.
#[derive(Debug, Clone, PartialEq)]
struct Refusal {
    error: &'static str,
    more: Value,
}

impl Refusal {
    fn answer(&self) -> Answer {
        let mut body = json!({"ok": false, "error": self.error});
        if let (Some(body), Some(more)) = (body.as_object_mut(), self.more.as_object()) {
            body.extend(more.clone());
        }
        fake::json(200, body.to_string())
    }
}

impl From<&'static str> for Refusal {
    fn from(error: &'static str) -> Self {
        Refusal {
            error,
            more: Value::Null,
        }
    }
}
