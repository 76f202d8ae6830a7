//! Content of files: where it is sent to, and where it is fetched from.

use http_body_util::Full;
use hyper::{Method, Response};

use super::{BOT_TOKEN, FakeSlack};
use crate::fake::{self, Answer, Call};

const LOGIN: &str = "<!DOCTYPE html><html lang=\"en\"><head><title>Slack</title></head>\
                     <body>Sign in to your workspace</body></html>";

impl FakeSlack {
    /// Takes an upload: the body, or the one part of a form.
    pub(super) async fn uploaded(&self, id: &str, call: &Call) -> Answer {
        let kind = call.headers().get("content-type");
        let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let content = match kind.starts_with("multipart/form-data") {
            true => part(kind, call).await,
            false => call.body().to_vec(),
        };
        let mut state = self.state.lock();
        let Some(file) = state
            .files
            .get_mut(id)
            .filter(|_| call.method() == Method::POST)
        else {
            return fake::json(404, "{}");
        };
        if content.len() != file.length {
            return fake::json(400, r#"{"error":"length"}"#);
        }
        let said = format!("OK - {}", content.len());
        file.content = Some(content);
        Response::new(Full::new(said.into()))
    }

    /// Whoever may not see it gets the login page, with status 200.
    pub(super) fn private(&self, rest: &str, call: &Call) -> Answer {
        let state = self.state.lock();
        if let Some(to) = &state.files_moved_to {
            let moved = Response::builder().status(302).header("location", to);
            return moved.body(Full::default()).expect("a place");
        }
        let id = rest.split('/').next().unwrap_or_default();
        let id = id.split('-').nth(1).unwrap_or_default();
        let bearer = call.headers().get("authorization");
        let ours = bearer.is_some_and(|value| value == format!("Bearer {BOT_TOKEN}").as_str());
        let may = ours && state.scopes.iter().any(|scope| scope == "files:read");
        let (kind, body) = match state.files.get(id) {
            Some(file) if may => (
                file.media_type.clone(),
                file.content.clone().unwrap_or_default(),
            ),
            None if may => return fake::json(404, "{}"),
            _ => ("text/html; charset=utf-8".to_owned(), LOGIN.into()),
        };
        Response::builder()
            .header("content-type", kind)
            .body(Full::new(body.into()))
            .expect("a body")
    }
}

async fn part(kind: &str, call: &Call) -> Vec<u8> {
    let Ok(boundary) = multer::parse_boundary(kind) else {
        return Vec::new();
    };
    let body = call.body().clone();
    let stream = futures_util::stream::once(async move { Ok::<_, std::io::Error>(body) });
    let mut parts = multer::Multipart::new(stream, boundary);
    match parts.next_field().await {
        Ok(Some(part)) => part
            .bytes()
            .await
            .map(|bytes| bytes.to_vec())
            .unwrap_or_default(),
        _ => Vec::new(),
    }
}
