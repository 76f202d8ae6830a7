//! Telegram's Bot API, as far as Mayfly uses it: chats, topics, messages, buttons, files, the queue
//! of updates with its offsets, and the rules that bite (limits, HTML entities, flood control, one
//! poller per token).
//!
//! Trusted only because bots that others wrote work against it: `tests/tests/telegram_client.rs`.

mod form;
mod html;
mod methods;
mod people;
mod requests;
mod state;

use std::sync::Arc;

use hyper::http::request::Parts;
use serde_json::{Value, json};
use tokio_util::sync::DropGuard;

pub use people::Person;
pub use state::{Shown, Update};

use crate::fake::{self, Answer, Call, Platform, Served};

/// The token its one bot has; of the right form, and nobody's.
pub const TOKEN: &str = "4200000001:AAFake-token_of_nobody_0123456789abcdefg";
/// The bot's id.
pub const BOT: i64 = 4_200_000_001;
/// The bot's name, without `@`.
pub const BOT_NAME: &str = "mayfly_test_bot";

/// See the module.
pub struct FakeTelegram {
    state: Arc<state::Kept>,
    _requests: DropGuard,
}

impl FakeTelegram {
    /// A server with no chats.
    pub fn start() -> Served<FakeTelegram> {
        let state = Arc::<state::Kept>::default();
        let requests = fake::background(requests::send(state.clone()));
        Served::start(FakeTelegram {
            state,
            _requests: requests,
        })
    }
}

impl Platform for FakeTelegram {
    /// The method in small letters; `file` for a download.
    fn name_of(&self, parts: &Parts) -> String {
        let path = parts.uri.path();
        if path.starts_with("/file/") {
            return "file".to_owned();
        }
        let method = path.rsplit('/').next().unwrap_or_default();
        method.to_ascii_lowercase()
    }

    async fn act(self: Arc<Self>, call: Call) -> Answer {
        let path = decoded(call.uri().path());
        if let Some(rest) = path.strip_prefix("/file/bot") {
            return self.download(rest);
        }
        let method = path
            .strip_prefix("/bot")
            .and_then(|rest| rest.split_once('/'));
        let Some((token, method)) = method else {
            return refused(404, "Not Found");
        };
        if token != TOKEN {
            return refused(401, "Unauthorized");
        }
        let form = match form::read(&call).await {
            Ok(form) => form,
            Err(error) => return refused(400, &format!("Bad Request: {error}")),
        };
        match self.method(&method.to_ascii_lowercase(), &form).await {
            Ok(result) => fake::json(200, json!({"ok": true, "result": result}).to_string()),
            Err(refusal) => refusal.answer(),
        }
    }

    fn too_many(&self, seconds: u32) -> Answer {
        Refusal {
            status: 429,
            description: format!("Too Many Requests: retry after {seconds}"),
            parameters: json!({"retry_after": seconds}),
        }
        .answer()
    }
}

/// A path as it was before it was escaped for the wire.
fn decoded(path: &str) -> String {
    // In a query a plus is a space, in a path it is not.
    let pair = format!("{}=", path.replace('+', "%2B"));
    let mut pairs = form_urlencoded::parse(pair.as_bytes());
    pairs
        .next()
        .map_or(String::new(), |(path, _)| path.into_owned())
}

/// Why a method was not done.
#[derive(Debug, Clone, PartialEq)]
struct Refusal {
    status: u16,
    description: String,
    parameters: Value,
}

impl Refusal {
    /// 400, as most.
    fn bad(description: impl std::fmt::Display) -> Refusal {
        Refusal {
            status: 400,
            description: format!("Bad Request: {description}"),
            parameters: Value::Null,
        }
    }

    fn answer(&self) -> Answer {
        let mut body = json!({
            "ok": false, "error_code": self.status, "description": self.description,
        });
        if !self.parameters.is_null() {
            body["parameters"] = self.parameters.clone();
        }
        fake::json(self.status, body.to_string())
    }
}

fn refused(status: u16, description: &str) -> Answer {
    Refusal {
        status,
        description: description.to_owned(),
        parameters: Value::Null,
    }
    .answer()
}
