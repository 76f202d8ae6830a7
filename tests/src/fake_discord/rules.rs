//! What Discord refuses.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::state::State;
use crate::fake::{self, Answer};

/// Why a call was not done.
pub(super) struct Refusal {
    status: u16,
    code: i64,
    message: String,
    wait: Option<Duration>,
}

impl Refusal {
    pub(super) fn new(status: u16, code: i64, message: &str) -> Refusal {
        Refusal {
            status,
            code,
            message: message.to_owned(),
            wait: None,
        }
    }

    /// A body that breaks a rule.
    pub(super) fn form(why: &str) -> Refusal {
        Refusal::new(400, 50_035, &format!("Invalid Form Body: {why}"))
    }

    pub(super) fn answer(&self) -> Answer {
        let Some(wait) = self.wait else {
            let body = json!({"message": self.message, "code": self.code});
            return fake::json(self.status, body.to_string());
        };
        let seconds = wait.as_secs_f64();
        let body = json!({"message": "You are being rate limited.", "retry_after": seconds, "global": false});
        let mut answer = fake::json(429, body.to_string());
        let headers = answer.headers_mut();
        headers.insert(
            "retry-after",
            format!("{seconds:.3}").parse().expect("a value"),
        );
        headers.insert("x-ratelimit-scope", "user".parse().expect("a value"));
        answer
    }
}

/// Calls of one bucket in a window, and the window.
const LIMIT: u32 = 5;
const WINDOW: Duration = Duration::from_millis(500);

/// Counts a call; gives what is left of its bucket and when that is full again.
pub(super) fn count(state: &mut State, bucket: String) -> Result<(u32, Duration), Refusal> {
    let window = state.windows.entry(bucket).or_insert((Instant::now(), 0));
    if window.0.elapsed() >= WINDOW {
        *window = (Instant::now(), 0);
    }
    let reset = WINDOW.saturating_sub(window.0.elapsed());
    if window.1 >= LIMIT {
        let mut refusal = Refusal::new(429, 0, "");
        refusal.wait = Some(reset);
        return Err(refusal);
    }
    window.1 += 1;
    Ok((LIMIT - window.1, reset))
}

/// The headers that tell of a bucket.
pub(super) fn headers(answer: &mut Answer, left: u32, reset: Duration) {
    let headers = answer.headers_mut();
    headers.insert("x-ratelimit-limit", LIMIT.into());
    headers.insert("x-ratelimit-remaining", left.into());
    let reset = format!("{}", (reset.as_millis() as f64 + 1.0) / 1000.0);
    headers.insert("x-ratelimit-reset-after", reset.parse().expect("a value"));
    headers.insert("x-ratelimit-bucket", "fake".parse().expect("a value"));
}

/// A message's text and buttons; `files` hang on it.
pub(super) fn message(body: &Value, files: usize) -> Result<(), Refusal> {
    let content = body["content"].as_str().unwrap_or_default();
    let rows = body["components"].as_array().cloned().unwrap_or_default();
    if content.chars().count() > 2000 {
        return Err(Refusal::form("content: Must be 2000 or fewer in length."));
    }
    if content.trim().is_empty() && files == 0 && rows.is_empty() {
        return Err(Refusal::new(400, 50_006, "Cannot send an empty message"));
    }
    if rows.len() > 5 {
        return Err(Refusal::form("components: Must be 5 or fewer in length."));
    }
    let mut ids = Vec::new();
    for row in &rows {
        let buttons = row["components"].as_array().cloned().unwrap_or_default();
        if row["type"] != 1 || buttons.is_empty() || buttons.len() > 5 {
            return Err(Refusal::form("components: a row has 1 to 5 buttons"));
        }
        for button in &buttons {
            let id = button["custom_id"].as_str().unwrap_or_default();
            let label = button["label"].as_str().unwrap_or_default();
            let good = button["type"] == 2
                && (1..=100).contains(&id.chars().count())
                && (1..=80).contains(&label.chars().count())
                && (1..=4).contains(&button["style"].as_i64().unwrap_or(0))
                && !ids.contains(&id.to_owned());
            if !good {
                return Err(Refusal::form("components: a button breaks a rule"));
            }
            ids.push(id.to_owned());
        }
    }
    Ok(())
}

/// A nonce's length.
pub(super) fn nonce(body: &Value) -> Result<Option<String>, Refusal> {
    let nonce = match &body["nonce"] {
        Value::String(nonce) => nonce.clone(),
        Value::Number(nonce) => nonce.to_string(),
        _ => return Ok(None),
    };
    if nonce.chars().count() > 25 {
        return Err(Refusal::form("nonce: Must be 25 or fewer in length."));
    }
    Ok(Some(nonce))
}

/// Whether a message may notify people.
pub(super) fn pings(body: &Value) -> bool {
    let allowed = &body["allowed_mentions"];
    let list = |name: &str| allowed[name].as_array().is_some_and(Vec::is_empty);
    let none = allowed.is_object()
        && list("parse")
        && allowed["users"].is_null()
        && allowed["roles"].is_null();
    let text = body["content"].as_str().unwrap_or_default();
    let named = text.contains("<@") || text.contains("@everyone") || text.contains("@here");
    let quoted = body["message_reference"].is_object() && allowed["replied_user"] != json!(false);
    (named && !none) || quoted
}
