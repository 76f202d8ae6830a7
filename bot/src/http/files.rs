//! Differences between states and files of a state. What an agent wrote is handed out as a file to
//! save, never as something a browser would run.

use axum::{
    Json,
    body::Body,
    extract::State,
    http::{HeaderName, HeaderValue, Uri, header},
    response::{IntoResponse, Response},
};
use mayfly_orchestrator::{
    snapshot::{DiffWanted, FileEntry, Listed, Looked},
    view::{DiffView, ListingView},
};
use serde::Deserialize;
use tokio::io::AsyncReadExt as _;
use tokio_util::io::ReaderStream;
use utoipa::{IntoParams, ToSchema};

use super::{
    Api,
    document::{
        ids::OfAgent,
        refusals::{Conflict, Unavailable},
    },
    problem::Problem,
    routes::{Asked, Named, most},
};
use crate::{render, screen::Screen};

/// Changes that one answer lists; the others are counted.
const CHANGES: usize = 10_000;
/// How much of a file is read at once.
const CHUNK: usize = 64 << 10;

#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Span {
    /// The tick whose state it starts at; the one before `to` where it is left out.
    #[param(pattern = "^-*([0-9A-Fa-f]-*){1,32}$")]
    from: Option<String>,
    /// The tick whose state it ends at; the agent's present state where it is left out.
    #[param(pattern = "^-*([0-9A-Fa-f]-*){1,32}$")]
    to: Option<String>,
    #[param(inline)]
    format: Format,
    /// JSON with the changed lines.
    text: bool,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum Format {
    #[default]
    Json,
    Stat,
    Names,
    Unified,
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(default, deny_unknown_fields)]
pub(super) struct At {
    /// The tick after which it is looked at; now where it is left out.
    #[param(pattern = "^-*([0-9A-Fa-f]-*){1,32}$")]
    tick: Option<String>,
    /// All below a folder.
    recursive: bool,
    /// Tell about a file in place of sending it.
    list: bool,
    /// Entries of the page; 100 where it is left out.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// The `next` of the page before; left out for the first.
    #[param(pattern = "^/")]
    after: Option<String>,
}

/// What lies between two states of an agent.
#[utoipa::path(
    get,
    path = "/v1/agents/{id}/diff",
    tag = "states",
    params(OfAgent, Span),
    responses(
        (status = 200, description = "The difference.", content(
            (DiffView = "application/json"),
            (String = "text/plain"),
        )),
        Conflict,
        Unavailable,
    )
)]
pub(super) async fn diff(
    State(api): State<Api>,
    Named(id): Named,
    Asked(span): Asked<Span>,
) -> Result<Response, Problem> {
    let agent = api.commands.find_agent(&id).await?;
    let from = api.tick_id(span.from.as_deref()).await?;
    let to = api.tick_id(span.to.as_deref()).await?;
    let wanted = DiffWanted {
        most: CHANGES,
        renames: true,
        text: span.text || span.format == Format::Unified,
    };
    let diff = api.commands.diff(agent, from, to, wanted).await?;
    let plain = Screen {
        json: false,
        colour: false,
    };
    Ok(match span.format {
        Format::Json => Json(DiffView::from(&diff)).into_response(),
        Format::Stat => text(render::diff(&DiffView::from(&diff), plain).into_bytes()),
        Format::Names => text(render::names(&DiffView::from(&diff)).into_bytes()),
        Format::Unified => text(render::patch(&diff)),
    })
}

/// The folders that are an agent's state.
#[utoipa::path(
    get,
    path = "/v1/agents/{id}/files",
    tag = "states",
    params(OfAgent, At),
    responses(
        (status = 200, description = "What is in the root.", body = ListingView),
        Conflict,
        Unavailable,
    )
)]
pub(super) async fn root(api: State<Api>, at: Asked<At>, uri: Uri) -> Result<Response, Problem> {
    files(api, at, uri).await
}

/// A folder or link as JSON, a file as its bytes.
#[utoipa::path(
    get,
    path = "/v1/agents/{id}/files/{path}",
    tag = "states",
    params(
        OfAgent,
        (
            "path" = String, Path, pattern = r"^(?!([^\u0000]*/)?\.\.(/|$))[^\u0000]*$",
            description = "From the root, without the first slash; it may be any bytes."
        ),
        At,
    ),
    responses(
        (status = 200, description = "What is there.", content(
            (ListingView = "application/json"),
            ("application/octet-stream"),
        )),
        Conflict,
        Unavailable,
    )
)]
pub(super) async fn files(
    State(api): State<Api>,
    Asked(at): Asked<At>,
    uri: Uri,
) -> Result<Response, Problem> {
    let (id, path) = named(&uri);
    let agent = api.commands.find_agent(&id).await?;
    let tick = api.tick_id(at.tick.as_deref()).await?;
    let listed = Listed {
        recursive: at.recursive,
        most: most(at.limit)? as usize,
        after: at.after.as_deref().map(after).transpose()?,
    };
    let looked = api.commands.look(agent, tick, path, listed).await?;
    match looked {
        Looked::File(entry, file) if !at.list => Ok(bytes(&entry, file)),
        other => Ok(Json(ListingView::from(&other)).into_response()),
    }
}

fn after(next: &str) -> Result<Vec<u8>, Problem> {
    match next.starts_with('/') {
        true => Ok(unescaped(next)),
        false => Err(Problem::new(
            "invalid",
            "after is not the \"next\" of a page: leave it out for the first page",
        )),
    }
}

/// The agent of `/v1/agents/ID/files/PATH` and the path, which need not be UTF-8.
fn named(uri: &Uri) -> (String, Vec<u8>) {
    let mut parts = uri.path().splitn(6, '/').skip(3);
    let id = unescaped(parts.next().unwrap_or_default());
    let path = unescaped(parts.nth(1).unwrap_or_default());
    let id = String::from_utf8_lossy(&id).into_owned();
    (id, [&b"/"[..], &path].concat())
}

/// Percent-encoding undone; what is none stays.
pub(crate) fn unescaped(text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let code = after.get(..2).and_then(|code| hex::decode(code).ok());
        match (first, code) {
            (b'%', Some(code)) => {
                out.extend(code);
                rest = &after[2..];
            }
            _ => {
                out.push(*first);
                rest = after;
            }
        }
    }
    out
}

fn bytes(entry: &FileEntry, file: std::fs::File) -> Response {
    let file = tokio::fs::File::from_std(file).take(entry.size);
    let body = Body::from_stream(ReaderStream::with_capacity(file, CHUNK));
    let name = entry.path.rsplit(|byte| *byte == b'/').next();
    download(body, name.unwrap_or_default(), entry.size)
}

/// A file to save.
pub(super) fn download(body: Body, name: &[u8], size: u64) -> Response {
    let escape = |byte: &u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => {
            char::from(*byte).to_string()
        }
        _ => format!("%{byte:02X}"),
    };
    let name: String = name.iter().map(escape).collect();
    // RFC 6266.
    let disposition = format!("attachment; filename*=UTF-8''{name}");
    let mut response = body.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_LENGTH, size.into());
    if let Ok(disposition) = HeaderValue::from_str(&disposition) {
        headers.insert(header::CONTENT_DISPOSITION, disposition);
    }
    guarded(response, "application/octet-stream")
}

fn text(text: Vec<u8>) -> Response {
    guarded(text.into_response(), "text/plain; charset=utf-8")
}

/// No browser guesses a type, and none runs it.
fn guarded(mut response: Response, kind: &'static str) -> Response {
    const GUARDS: [(HeaderName, &str); 3] = [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (
            header::CONTENT_SECURITY_POLICY,
            "default-src 'none'; sandbox",
        ),
        (header::CACHE_CONTROL, "no-store"),
    ];
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    for (name, value) in GUARDS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_any_bytes() {
        let of = |text: &str| named(&text.parse().unwrap());
        let id = || "1a".to_owned();
        assert_eq!(of("/v1/agents/1a/files"), (id(), b"/".to_vec()));
        assert_eq!(of("/v1/agents/1a/files/"), (id(), b"/".to_vec()));
        let odd = of("/v1/agents/1%61/files/work/a%0Ab?tick=1");
        assert_eq!(odd, ("1a".to_owned(), b"/work/a\nb".to_vec()));
        let bytes = of("/v1/agents/1a/files/work/%ff%2");
        assert_eq!(bytes, (id(), b"/work/\xff%2".to_vec()));
    }
}
