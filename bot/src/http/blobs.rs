//! Files up and down: uploaded before a message names them, read back by the message. Nothing is held
//! whole. What people and agents wrote is handed out as a file to save.

use std::{fmt, time::Duration};

use axum::{
    Json,
    body::Body,
    extract::{FromRequestParts, Path, Request, State},
    http::{HeaderMap, StatusCode, header, request::Parts},
    response::Response,
};
use futures_util::{Stream, StreamExt as _};
use mayfly_domain::MessageId;
use mayfly_orchestrator::{
    command::attachments::{Fetched, Upload},
    view::UploadView,
};
use tokio::time::Instant;
use tokio_util::{bytes::Bytes, sync::CancellationToken};

use utoipa::IntoParams;
use utoipa_axum::routes;

use super::{
    Api,
    document::{
        Routes,
        ids::OfMessage,
        refusals::{Conflict, Unavailable},
    },
    files::download,
    problem::Problem,
    serve::BODY,
};

/// Bytes a second below which an upload is given up.
pub(super) const SLOWEST: u64 = 16 << 10;

pub(super) fn described() -> Routes {
    Routes::new()
        .with(routes!(upload))
        .with(routes!(reply_file))
        .with(routes!(attachment))
}

/// The place of a file in the message's list, from 0.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[allow(dead_code)]
struct Place {
    /// Its place in the message's list, from 0.
    #[param(minimum = 0)]
    n: u32,
}

/// Stores a file that a message may name then. The body is the file.
#[utoipa::path(
    post,
    path = "/v1/blobs",
    tag = "messages",
    request_body(content((Vec<u8> = "application/octet-stream"))),
    responses((status = 201, description = "Stored.", body = UploadView), Conflict, Unavailable)
)]
async fn upload(
    State(api): State<Api>,
    request: Request,
) -> Result<(StatusCode, Json<UploadView>), Problem> {
    let (parts, body) = request.into_parts();
    // No browser sends this type across origins without asking first.
    let kind = parts.headers.get(header::CONTENT_TYPE);
    if !kind.is_some_and(|kind| {
        kind.as_bytes()
            .eq_ignore_ascii_case(b"application/octet-stream")
    }) {
        return Err(Problem::new(
            "media-type",
            "an upload is bytes: send the header Content-Type: application/octet-stream",
        ));
    }
    let mut upload = api.commands.begin_upload(length(&parts.headers)).await?;
    receive(&mut upload, body.into_data_stream(), &api.stopping).await?;
    Ok((StatusCode::CREATED, Json(upload.finish().await?)))
}

/// Puts all content into an upload. Content that comes too slowly ends it, since others wait for its
/// turn, and so does a server that stops.
pub(crate) async fn receive<E: fmt::Display>(
    upload: &mut Upload,
    mut content: impl Stream<Item = Result<Bytes, E>> + Unpin,
    stopping: &CancellationToken,
) -> Result<(), Problem> {
    let (began, mut size) = (Instant::now(), 0u64);
    loop {
        let until = began + BODY + Duration::from_secs(size / SLOWEST);
        let piece = tokio::select! {
            piece = tokio::time::timeout_at(until, content.next()) => piece,
            () = stopping.cancelled() => {
                return Err(Problem::new("unavailable", "the server is stopping: send it again"));
            }
        };
        let piece = piece.map_err(|_| {
            let told = "the file comes too slowly, or stands still: send it again";
            Problem::new("timeout", told)
        })?;
        let Some(piece) = piece else { return Ok(()) };
        let piece = piece.map_err(|error| {
            Problem::new("invalid", format!("the file did not come whole: {error}"))
        })?;
        size += piece.len() as u64;
        upload.push(&piece).await?;
    }
}

fn length(headers: &HeaderMap) -> Option<u64> {
    headers
        .get(header::CONTENT_LENGTH)?
        .to_str()
        .ok()?
        .parse()
        .ok()
}

/// A file that was sent in reply.
#[utoipa::path(
    get,
    path = "/v1/messages/{id}/files/{n}",
    tag = "messages",
    params(OfMessage, Place),
    responses(
        (status = 200, description = "Its bytes.", content(("application/octet-stream"))),
        Unavailable,
    )
)]
async fn reply_file(
    State(api): State<Api>,
    Numbered(id, n): Numbered,
) -> Result<Response, Problem> {
    Ok(fetched(api.commands.reply_file(id, n).await?))
}

/// A file that came with the message.
#[utoipa::path(
    get,
    path = "/v1/messages/{id}/received/{n}",
    tag = "messages",
    params(OfMessage, Place),
    responses(
        (status = 200, description = "Its bytes.", content(("application/octet-stream"))),
        Unavailable,
    )
)]
async fn attachment(
    State(api): State<Api>,
    Numbered(id, n): Numbered,
) -> Result<Response, Problem> {
    Ok(fetched(api.commands.attachment(id, n).await?))
}

/// As a file to save.
pub(crate) fn fetched(Fetched { file, content }: Fetched) -> Response {
    let body = Body::from_stream(content.content());
    download(body, file.name.as_bytes(), file.size)
}

/// A message and the place of a file in its list.
pub(crate) struct Numbered(pub(crate) MessageId, pub(crate) usize);

impl<S: Send + Sync> FromRequestParts<S> for Numbered {
    type Rejection = Problem;
    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let Path((id, n)) = Path::<(String, String)>::from_request_parts(parts, state)
            .await
            .map_err(|error| Problem::new("invalid", error.body_text()))?;
        let id = id
            .parse()
            .map_err(|error| Problem::new("not-found", error))?;
        let n = n.parse().map_err(|_| {
            Problem::new(
                "not-found",
                "a file is named by its place in the message's list, from 0",
            )
        })?;
        Ok(Numbered(id, n))
    }
}
