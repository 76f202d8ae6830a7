//! Events by HTTP: whether Slack sent the request, and the raw event in it.

use reqwest::header::HeaderMap;
use serde_json::{Map, Value};

use crate::{
    json::text,
    signature::{self, Refused},
};

const SIGNATURE: &str = "x-slack-signature";
const TIMESTAMP: &str = "x-slack-request-timestamp";

/// What a request of Slack wants; but for the last each is answered with status 200.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HttpAnswer {
    /// Slack asks whether we are there: answer with this text.
    Challenge(String),
    /// An event for `Slack::incoming`: answer when the inbox has it, without a body.
    Event(Vec<u8>),
    /// Slack signed it, and it is no event: answer with status 400.
    Unreadable,
}

/// Whether a request may be of Slack, as far as its headers tell.
pub(super) fn http_head(headers: &HeaderMap, now: i64) -> Result<(), Refused> {
    let (signatures, timestamps) = (all(headers, SIGNATURE), all(headers, TIMESTAMP));
    signature::slack_head(signatures, timestamps, now).map(drop)
}

fn all<'a>(headers: &'a HeaderMap, name: &str) -> impl Iterator<Item = &'a [u8]> {
    let values = headers.get_all(name).into_iter();
    values.map(|value| value.as_bytes())
}

/// Reads a request. `now` is unix seconds. A repeated delivery is an event like any other: the inbox
/// knows whether it had it.
pub fn http_event(
    headers: &HeaderMap,
    body: &[u8],
    secret: &[u8],
    now: i64,
) -> Result<HttpAnswer, Refused> {
    let (signatures, timestamps) = (all(headers, SIGNATURE), all(headers, TIMESTAMP));
    signature::slack(secret, signatures, timestamps, body, now)?;
    let kind = headers.get(reqwest::header::CONTENT_TYPE);
    let kind = kind.map_or(b"".as_slice(), |kind| kind.as_bytes());
    if kind.starts_with(b"application/x-www-form-urlencoded") {
        return Ok(match form(body) {
            payload if is_object(&payload) => HttpAnswer::Event(payload),
            _ => HttpAnswer::Unreadable,
        });
    }
    let value = serde_json::from_slice::<Value>(body).unwrap_or(Value::Null);
    if !value.is_object() {
        return Ok(HttpAnswer::Unreadable);
    }
    match (text(&value, &["type"]), text(&value, &["challenge"])) {
        (Some("url_verification"), Some(challenge)) => {
            Ok(HttpAnswer::Challenge(challenge.to_owned()))
        }
        _ => Ok(HttpAnswer::Event(body.to_vec())),
    }
}

fn is_object(payload: &[u8]) -> bool {
    serde_json::from_slice::<Map<String, Value>>(payload).is_ok()
}

/// A press comes as one field of JSON, a command as fields.
fn form(body: &[u8]) -> Vec<u8> {
    let mut fields = Map::new();
    for (name, value) in form_urlencoded::parse(body) {
        if name == "payload" {
            return value.into_owned().into_bytes();
        }
        fields.insert(name.into_owned(), Value::String(value.into_owned()));
    }
    Value::Object(fields).to_string().into_bytes()
}
