//! Bodies of writes: JSON, of limited size, without unknown fields.

use std::time::Duration;

use axum::{
    body::{Bytes, to_bytes},
    extract::{FromRequest, Request},
    http::{HeaderMap, header},
};
use mayfly_domain::{MAX_TEXT, TextError};
use serde::de::DeserializeOwned;

use super::{problem::Problem, serve::BODY};

/// A legal text fits even where JSON escapes each of its bytes to six.
pub(crate) const LIMIT: usize = 6 * MAX_TEXT + 64 * 1024;

/// A body; an empty one counts as `{}`.
pub(super) struct Body<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        let (parts, body) = request.into_parts();
        let kind = parts.headers.get(header::CONTENT_TYPE);
        if !kind.is_some_and(|kind| is_json(kind.as_bytes())) {
            return Err(Problem::new(
                "media-type",
                "writes are JSON: send the header Content-Type: application/json",
            ));
        }
        let bytes = whole(&parts.headers, body, LIMIT, BODY, too_large).await?;
        parse(&bytes).map(Body)
    }
}

/// All of a body that has at most `most` bytes and comes within `time`.
pub(crate) async fn whole(
    headers: &HeaderMap,
    body: axum::body::Body,
    most: usize,
    time: Duration,
    too_large: impl Fn() -> Problem,
) -> Result<Bytes, Problem> {
    let told = |length: &str| length.parse::<usize>().ok();
    let length = headers.get(header::CONTENT_LENGTH);
    let length = length
        .and_then(|length| length.to_str().ok())
        .and_then(told);
    if length.is_some_and(|length| length > most) {
        return Err(too_large());
    }
    let read = tokio::time::timeout(time, to_bytes(body, most)).await;
    let read = read.map_err(|_| {
        let seconds = time.as_secs();
        let told = format!("the body did not come within {seconds} s: send it again");
        Problem::new("timeout", told)
    })?;
    read.map_err(|error| {
        let source = std::error::Error::source(&error);
        match source.is_some_and(|source| source.is::<http_body_util::LengthLimitError>()) {
            true => too_large(),
            false => Problem::new("invalid", format!("the body could not be read: {error}")),
        }
    })
}

fn too_large() -> Problem {
    Problem::new(
        "too-large",
        format!(
            "the body has more than {LIMIT} bytes: a message holds at most {MAX_TEXT}, send long content as a file"
        ),
    )
}

fn is_json(kind: &[u8]) -> bool {
    let kind = kind.split(|byte| *byte == b';').next().unwrap_or_default();
    kind.trim_ascii().eq_ignore_ascii_case(b"application/json")
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    let text = std::str::from_utf8(bytes)
        .map_err(|error| Problem::from(TextError::NotUtf8(error.valid_up_to())))?;
    let text = if text.trim().is_empty() { "{}" } else { text };
    // serde would also take the values alone, in order.
    if text.trim_start().starts_with('[') {
        let told = "the body is an array: an object is wanted, with names";
        return Err(Problem::new("invalid", told));
    }
    serde_json::from_str(text).map_err(|error| {
        Problem::new(
            "invalid",
            format!("the body is not what is wanted: {error}"),
        )
    })
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Wanted {
        #[allow(dead_code)]
        text: Option<String>,
    }

    #[test]
    fn a_bad_body_is_refused_by_name() {
        let fault = |bytes: &[u8]| parse::<Wanted>(bytes).unwrap_err().detail;
        assert!(fault(b"{\"text\":\"a\xff\"}").contains("not valid UTF-8 at offset 10"));
        assert!(fault(b"{\"txt\":1}").contains("unknown field `txt`"));
        assert!(fault(b"{").contains("EOF"));
        assert!(fault(b" [null]").contains("an object is wanted"));
        assert!(parse::<Wanted>(b"").is_ok());
    }

    #[test]
    fn content_types_with_parameters_count() {
        assert!(is_json(b"application/json; charset=utf-8"));
        assert!(!is_json(b"text/plain"));
        assert!(!is_json(b"application/jsonp"));
    }
}
