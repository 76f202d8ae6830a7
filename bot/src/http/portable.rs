//! Agents that travel. By paths of this host: for whoever opens the socket. As a stream of bytes:
//! for every holder of a token.

use std::{
    io::{self, Write},
    path::PathBuf,
};

use axum::{
    Json, Router,
    body::{Body, Bytes},
    extract::State,
    http::header,
    response::{IntoResponse, Response},
    routing::{get, post},
};
use futures_util::{StreamExt, stream};
use mayfly_orchestrator::{
    command::portable::{ExportAs, ExportTo, ImportFrom},
    snapshot::oci::{Compress, Exported},
    view::ImportView,
};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use super::{
    Api, body,
    problem::Problem,
    routes::{Asked, Named},
};

/// Pieces of a stream that wait for a slow reader.
const WAITING: usize = 16;

/// `POST /v1/export`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExportBody {
    pub agent: String,
    #[serde(default)]
    pub tick: Option<String>,
    /// What does not exist yet: a file if its name ends in `.tar`, else a folder.
    pub into: PathBuf,
    #[serde(default)]
    pub compress: Compress,
    #[serde(default)]
    pub without_base: bool,
}

/// `POST /v1/import`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImportBody {
    pub from: PathBuf,
}

/// `GET /v1/agents/{id}/export`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Wanted {
    tick: Option<String>,
    compress: Compress,
    without_base: bool,
}

/// What names paths of this host.
pub(super) fn owner(api: Api) -> Router {
    Router::new()
        .route("/v1/export", post(export))
        .route("/v1/import", post(import))
        .with_state(api)
}

pub(super) fn router(api: Api) -> Router {
    Router::new()
        .route("/v1/agents/{id}/export", get(download))
        .with_state(api)
}

async fn export(
    State(api): State<Api>,
    body::Body(asked): body::Body<ExportBody>,
) -> Result<Json<Exported>, Problem> {
    let agent = api.commands.find_agent(&asked.agent).await?;
    let tick = api.tick_id(asked.tick.as_deref()).await?;
    let how = ExportAs {
        compress: asked.compress,
        with_base: !asked.without_base,
    };
    if asked.into.symlink_metadata().is_ok() {
        let told = format!("{:?} is there already: name another", asked.into);
        return Err(Problem::new("conflict", told));
    }
    let to = match asked.into.extension().is_some_and(|end| end == "tar") {
        true => ExportTo::File(asked.into),
        false => ExportTo::Folder(asked.into),
    };
    let prepared = api.commands.prepare_export(agent, tick, how).await?;
    Ok(Json(prepared.write(to).await?))
}

async fn import(
    State(api): State<Api>,
    body::Body(asked): body::Body<ImportBody>,
) -> Result<Json<ImportView>, Problem> {
    if !asked.from.exists() {
        let told = format!("there is no {:?}", asked.from);
        return Err(Problem::new("not-found", told));
    }
    let from = ImportFrom::Path(asked.from);
    Ok(Json(api.commands.import(from).await?))
}

async fn download(
    State(api): State<Api>,
    Named(id): Named,
    Asked(asked): Asked<Wanted>,
) -> Result<Response, Problem> {
    let agent = api.commands.find_agent(&id).await?;
    let tick = api.tick_id(asked.tick.as_deref()).await?;
    let how = ExportAs {
        compress: asked.compress,
        with_base: !asked.without_base,
    };
    let prepared = api.commands.prepare_export(agent, tick, how).await?;
    let (to, from) = mpsc::channel(WAITING);
    let written = prepared.write(ExportTo::Tar(Box::new(Pieces(to))));
    // A stream that ends early must not look whole: it ends with an error.
    let end = stream::once(written).filter_map(async |done| done.err().map(io::Error::other));
    let pieces = stream::unfold(from, async |mut from| Some((from.recv().await?, from)));
    let all = stream::select(pieces.map(Ok), end.map(Err));
    let kind = [(header::CONTENT_TYPE, "application/x-tar")];
    Ok((kind, Body::from_stream(all)).into_response())
}

struct Pieces(mpsc::Sender<Bytes>);

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let sent = self.0.blocking_send(Bytes::copy_from_slice(bytes));
        sent.map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
