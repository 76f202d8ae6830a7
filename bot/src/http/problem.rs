//! Errors as RFC 9457 `application/problem+json`.

use std::fmt;

use axum::{
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use mayfly_domain::TextError;
use mayfly_orchestrator::command::RequestError;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::exit::Exit;

/// One refused request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// `urn:mayfly:` and what kind it is; programs decide by this.
    #[serde(rename = "type")]
    pub kind: String,
    /// The kind for people.
    pub title: String,
    pub status: u16,
    /// One sentence: the thing, and the way out.
    pub detail: String,
}

/// Kind, title, status and exit code of every problem.
pub(super) const KINDS: [(&str, &str, StatusCode, Exit); 12] = [
    (
        "not-found",
        "Not found",
        StatusCode::NOT_FOUND,
        Exit::NotFound,
    ),
    (
        "ambiguous",
        "Several fit",
        StatusCode::CONFLICT,
        Exit::NotFound,
    ),
    (
        "invalid",
        "Invalid request",
        StatusCode::BAD_REQUEST,
        Exit::Refused,
    ),
    ("conflict", "Not now", StatusCode::CONFLICT, Exit::Refused),
    (
        "unavailable",
        "Unavailable",
        StatusCode::SERVICE_UNAVAILABLE,
        Exit::Unavailable,
    ),
    (
        "internal",
        "Internal error",
        StatusCode::INTERNAL_SERVER_ERROR,
        Exit::Internal,
    ),
    (
        "too-large",
        "Too large",
        StatusCode::PAYLOAD_TOO_LARGE,
        Exit::Refused,
    ),
    (
        "timeout",
        "Too slow",
        StatusCode::REQUEST_TIMEOUT,
        Exit::Unavailable,
    ),
    (
        "media-type",
        "Wrong content type",
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        Exit::Internal,
    ),
    (
        "unauthorized",
        "Token wanted",
        StatusCode::UNAUTHORIZED,
        Exit::Refused,
    ),
    (
        "forbidden",
        "Forbidden",
        StatusCode::FORBIDDEN,
        Exit::Refused,
    ),
    (
        "no-method",
        "No such method",
        StatusCode::METHOD_NOT_ALLOWED,
        Exit::Internal,
    ),
];

impl Problem {
    /// `kind` is one of [`KINDS`].
    pub(crate) fn new(kind: &str, detail: impl fmt::Display) -> Self {
        let known = KINDS.iter().find(|(name, ..)| *name == kind);
        let (_, title, status, _) = known.expect("a listed kind");
        Problem {
            kind: format!("urn:mayfly:{kind}"),
            title: (*title).to_owned(),
            status: status.as_u16(),
            detail: detail.to_string(),
        }
    }

    /// The exit code of a command that met it.
    pub fn exit(&self) -> Exit {
        let known = KINDS
            .iter()
            .find(|(name, ..)| self.kind.strip_prefix("urn:mayfly:") == Some(name));
        known.map_or(Exit::Internal, |(.., exit)| *exit)
    }
}

impl From<RequestError> for Problem {
    fn from(error: RequestError) -> Self {
        let kind = match &error {
            RequestError::NotFound { .. } => "not-found",
            RequestError::Ambiguous { .. } => "ambiguous",
            RequestError::Invalid(_) => "invalid",
            RequestError::TooLarge(_) => "too-large",
            RequestError::Conflict(_) => "conflict",
            RequestError::Unavailable(_) | RequestError::Unanswered(_) => "unavailable",
            RequestError::Internal(_) => "internal",
        };
        Problem::new(kind, error)
    }
}

impl From<TextError> for Problem {
    fn from(error: TextError) -> Self {
        let kind = match &error {
            TextError::TooLong(_) => "too-large",
            TextError::Empty | TextError::Nul(_) | TextError::NotUtf8(_) => "invalid",
        };
        Problem::new(kind, error)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = serde_json::to_vec(&self).expect("plain data");
        let mut response = (status, body).into_response();
        let headers = response.headers_mut();
        let kind = HeaderValue::from_static("application/problem+json");
        headers.insert(header::CONTENT_TYPE, kind);
        if status == StatusCode::REQUEST_TIMEOUT {
            // Its rest may still come and must not be read as the next request.
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_error_keeps_its_exit_code_over_the_wire() {
        let text = || "x".to_owned();
        let errors = [
            RequestError::NotFound {
                kind: "agent",
                text: text(),
                hint: String::new(),
            },
            RequestError::Ambiguous {
                kind: "tick",
                text: text(),
            },
            RequestError::Invalid(text()),
            RequestError::TooLarge(text()),
            RequestError::Conflict(text()),
            RequestError::Unavailable(text()),
            RequestError::Unanswered(text()),
            RequestError::Internal(text()),
        ];
        for error in errors {
            let wanted = Exit::from(&error);
            let sent = serde_json::to_string(&Problem::from(error)).unwrap();
            let got: Problem = serde_json::from_str(&sent).unwrap();
            assert_eq!(got.exit(), wanted, "{sent}");
        }
    }
}
