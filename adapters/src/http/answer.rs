//! What a response says about the call: whether it happened decides whether it may be repeated.

use std::time::Duration;

use serde_json::Value;

use super::wait;
use crate::json::{at, id, text};

/// A response, as far as it matters. The body is capped by whoever read it.
#[derive(Debug, Clone, Copy)]
pub struct Response<'a> {
    /// HTTP status.
    pub status: u16,
    /// The value of `Retry-After`, if there is one.
    pub retry_after: Option<&'a str>,
    /// The body.
    pub body: &'a [u8],
}

/// Why a call has no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// It certainly did not happen: repeat it after the wait, or after a pause of our own.
    #[error("not done: {why}")]
    NotDone {
        /// In the platform's words.
        why: String,
        /// How long the platform wants silence.
        wait: Option<Duration>,
    },
    /// It may have happened: find out before repeating it.
    #[error("the outcome is not known: {why}")]
    Unknown {
        /// What was seen.
        why: String,
    },
    /// It will not happen however often it is repeated.
    #[error("refused: {reason}")]
    Permanent {
        /// In the platform's words.
        reason: String,
    },
    /// The chat has another id (Telegram): repeat it there.
    #[error("the chat has moved to {to}")]
    Moved {
        /// The id.
        to: String,
    },
}

fn unknown(why: impl Into<String>) -> Failure {
    Failure::Unknown { why: why.into() }
}

fn permanent(reason: impl Into<String>) -> Failure {
    Failure::Permanent {
        reason: reason.into(),
    }
}

impl Response<'_> {
    fn json(&self) -> Option<Value> {
        serde_json::from_slice(self.body).ok()
    }

    fn header_wait(&self) -> Option<Duration> {
        self.retry_after.and_then(wait::seconds)
    }

    /// Judged by the status alone.
    fn by_status(&self) -> Failure {
        match self.status {
            429 => Failure::NotDone {
                why: "too many requests".to_owned(),
                wait: self.header_wait(),
            },
            400..=499 if self.status != 408 => permanent(format!("HTTP status {}", self.status)),
            status => unknown(format!("HTTP status {status}")),
        }
    }
}

/// Slack: errors come with status 200.
pub fn slack(response: &Response<'_>) -> Result<Value, Failure> {
    if response.status != 200 {
        return Err(response.by_status());
    }
    let Some(body) = response.json() else {
        return Err(unknown("the answer is no JSON"));
    };
    if at(&body, &["ok"]) == Some(&Value::Bool(true)) {
        return Ok(body);
    }
    match text(&body, &["error"]) {
        Some(error @ ("ratelimited" | "rate_limited")) => Err(Failure::NotDone {
            why: error.to_owned(),
            wait: response.header_wait(),
        }),
        Some(
            error @ ("fatal_error" | "internal_error" | "service_unavailable" | "request_timeout"),
        ) => Err(unknown(error)),
        Some(error) => Err(permanent(match text(&body, &["needed"]) {
            Some(scope) => format!("{error}: the scope {scope} is missing"),
            None => error.to_owned(),
        })),
        None => Err(unknown("the answer says neither ok nor an error")),
    }
}

/// Discord. An answer without content is null.
pub fn discord(response: &Response<'_>) -> Result<Value, Failure> {
    let body = response.json();
    match response.status {
        204 => Ok(Value::Null),
        200..=299 => body.ok_or_else(|| unknown("the answer is no JSON")),
        429 => {
            let told = body
                .as_ref()
                .and_then(|body| at(body, &["retry_after"])?.as_f64())
                .and_then(wait::of_seconds);
            Err(Failure::NotDone {
                why: "too many requests".to_owned(),
                wait: told.max(response.header_wait()),
            })
        }
        400..=499 => match body.as_ref().and_then(|body| text(body, &["message"])) {
            Some(message) if response.status != 408 => {
                let code = body.as_ref().and_then(|body| id(body, &["code"]));
                Err(permanent(format!(
                    "{message} (code {})",
                    code.unwrap_or_default()
                )))
            }
            _ => Err(response.by_status()),
        },
        _ => Err(response.by_status()),
    }
}

/// Telegram. An edit that changes nothing is done: its result is null.
pub fn telegram(response: &Response<'_>) -> Result<Value, Failure> {
    let Some(body) = response.json() else {
        return Err(match response.status {
            200..=299 => unknown("the answer is no JSON"),
            _ => response.by_status(),
        });
    };
    if at(&body, &["ok"]) == Some(&Value::Bool(true)) {
        return Ok(at(&body, &["result"]).cloned().unwrap_or(Value::Null));
    }
    if let Some(to) = id(&body, &["parameters", "migrate_to_chat_id"]) {
        return Err(Failure::Moved { to });
    }
    let why = text(&body, &["description"])
        .unwrap_or("no description")
        .to_owned();
    let code = at(&body, &["error_code"]).and_then(Value::as_u64);
    match code.unwrap_or(u64::from(response.status)) {
        429 => {
            let told = at(&body, &["parameters", "retry_after"]).and_then(Value::as_f64);
            let wait = told.and_then(wait::of_seconds).max(response.header_wait());
            Err(Failure::NotDone { why, wait })
        }
        400 if why.contains("message is not modified") => Ok(Value::Null),
        400..=499 => Err(Failure::Permanent { reason: why }),
        _ => Err(Failure::Unknown { why }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(status: u16, body: &str) -> Response<'_> {
        Response {
            status,
            retry_after: None,
            body: body.as_bytes(),
        }
    }

    fn waits(result: Result<Value, Failure>) -> Option<u128> {
        match result {
            Err(Failure::NotDone { wait, .. }) => wait.map(|wait| wait.as_millis()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn rc_01_every_platforms_waiting_time_is_read() {
        let header = |body| Response {
            status: 429,
            retry_after: Some("30"),
            body,
        };
        assert_eq!(waits(slack(&header(b""))), Some(30_000));
        assert_eq!(
            waits(discord(&header(br#"{"retry_after":0.75}"#))),
            Some(30_000)
        );
        assert_eq!(
            waits(discord(&of(429, r#"{"retry_after":64.57,"global":false}"#))),
            Some(64_570)
        );
        let body = r#"{"ok":false,"error_code":429,"description":"Too Many Requests: retry after 33","parameters":{"retry_after":33}}"#;
        assert_eq!(waits(telegram(&of(429, body))), Some(33_000));
        assert_eq!(
            waits(slack(&of(200, r#"{"ok":false,"error":"ratelimited"}"#))),
            None
        );
    }

    #[test]
    fn fm_03_an_error_with_status_200_is_no_success() {
        let refused = slack(&of(200, r#"{"ok":false,"error":"msg_too_long"}"#));
        assert_eq!(refused, Err(permanent("msg_too_long")));
        let scope = slack(&of(
            200,
            r#"{"ok":false,"error":"missing_scope","needed":"files:read"}"#,
        ));
        assert_eq!(
            scope,
            Err(permanent("missing_scope: the scope files:read is missing"))
        );
        assert!(slack(&of(200, r#"{"ok":true,"ts":"1.2"}"#)).is_ok());
    }

    #[test]
    fn what_may_have_happened_is_never_called_not_done() {
        for status in [500, 502, 503, 504, 408] {
            for judge in [slack, discord, telegram] {
                assert!(
                    matches!(judge(&of(status, "<html>")), Err(Failure::Unknown { .. })),
                    "{status}"
                );
            }
        }
        for error in ["fatal_error", "internal_error", "service_unavailable"] {
            let body = format!(r#"{{"ok":false,"error":"{error}"}}"#);
            assert!(matches!(
                slack(&of(200, &body)),
                Err(Failure::Unknown { .. })
            ));
        }
        for judge in [slack, discord, telegram] {
            for body in ["", "<html>", "{\"ok\":"] {
                assert!(
                    matches!(judge(&of(200, body)), Err(Failure::Unknown { .. })),
                    "{body}"
                );
            }
        }
    }

    #[test]
    fn fm_08_what_will_never_work_is_permanent_with_its_reason() {
        let blocked = r#"{"ok":false,"error_code":403,"description":"Forbidden: bot was blocked by the user"}"#;
        assert_eq!(
            telegram(&of(403, blocked)),
            Err(permanent("Forbidden: bot was blocked by the user"))
        );
        let gone = r#"{"message":"Unknown Channel","code":10003}"#;
        assert_eq!(
            discord(&of(404, gone)),
            Err(permanent("Unknown Channel (code 10003)"))
        );
        assert_eq!(
            slack(&of(200, r#"{"ok":false,"error":"is_archived"}"#)),
            Err(permanent("is_archived"))
        );
    }

    #[test]
    fn telegrams_own_cases() {
        let same = r#"{"ok":false,"error_code":400,"description":"Bad Request: message is not modified: specified new message content and reply markup are exactly the same"}"#;
        assert_eq!(telegram(&of(400, same)), Ok(Value::Null));
        let moved = r#"{"ok":false,"error_code":400,"description":"Bad Request: group chat was upgraded","parameters":{"migrate_to_chat_id":-1001234567890}}"#;
        let to = "-1001234567890".to_owned();
        assert_eq!(telegram(&of(400, moved)), Err(Failure::Moved { to }));
        assert_eq!(discord(&of(204, "")), Ok(Value::Null));
    }
}
