//! Agents that travel. By paths of this host: for whoever opens the socket. As a stream of bytes:
//! for every holder of a token.

use std::{
    io::{self, Read, Write},
    path::PathBuf,
    time::Duration,
};

use axum::{
    Json,
    body::{Body, Bytes},
    extract::{Request, State},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use futures_util::{StreamExt, stream};
use mayfly_orchestrator::{
    command::portable::{ExportAs, ExportTo, ImportFrom},
    snapshot::oci::{Compress, Exported},
    view::ImportView,
};
use serde::{Deserialize, Serialize};
use tokio::{sync::mpsc, time::Instant};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::routes;

use super::{
    Api,
    blobs::SLOWEST,
    body,
    document::{
        Routes,
        ids::OfAgent,
        refusals::{Ambiguous, Conflict, NotFound, Unavailable},
    },
    problem::Problem,
    routes::{Asked, Named},
    serve::BODY,
};

const TAR: &str = "application/x-tar";
/// Pieces of a stream that wait for a slow reader.
const WAITING: usize = 16;

/// `POST /v1/export`.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ExportBody {
    pub agent: String,
    #[serde(default)]
    pub tick: Option<String>,
    /// What does not exist yet: a file if its name ends in `.tar`, else a folder.
    #[schema(value_type = String)]
    pub into: PathBuf,
    #[serde(default)]
    pub compress: Compress,
    #[serde(default)]
    pub without_base: bool,
}

/// `POST /v1/import`.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ImportBody {
    #[schema(value_type = String)]
    pub from: PathBuf,
}

/// `GET /v1/agents/{id}/export`.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(default, deny_unknown_fields)]
struct Wanted {
    /// The tick whose state it is; the agent's present one where it is left out.
    #[param(pattern = "^-*([0-9A-Fa-f]-*){1,32}$")]
    tick: Option<String>,
    #[param(inline)]
    compress: Compress,
    /// Without the image's own files.
    without_base: bool,
}

/// What names paths of this host.
pub(super) fn owner() -> Routes {
    Routes::new().with(routes!(export)).with(routes!(import))
}

pub(super) fn described() -> Routes {
    Routes::new().with(routes!(download)).with(routes!(receive))
}

/// Writes an agent as an OCI image layout to a path of this host.
#[utoipa::path(
    post,
    path = "/v1/export",
    tag = "owner",
    request_body = ExportBody,
    responses(
        (status = 200, description = "Written.", body = Exported),
        NotFound,
        Ambiguous,
        Conflict,
        Unavailable,
    )
)]
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

/// Makes an agent of an exported one that lies on this host.
#[utoipa::path(
    post,
    path = "/v1/import",
    tag = "owner",
    request_body = ImportBody,
    responses(
        (status = 200, description = "Made.", body = ImportView),
        NotFound,
        Conflict,
        Unavailable,
    )
)]
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

/// An agent as an OCI image layout: its files and history.
#[utoipa::path(
    get,
    path = "/v1/agents/{id}/export",
    tag = "states",
    params(OfAgent, Wanted),
    responses(
        (status = 200, description = "A tar archive.", content(("application/x-tar"))),
        Conflict,
        Unavailable,
    )
)]
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
    let kind = [(header::CONTENT_TYPE, TAR)];
    Ok((kind, Body::from_stream(all)).into_response())
}

/// Makes an agent of an exported one. The body is a tar file of a layout.
#[utoipa::path(
    post,
    path = "/v1/agents/import",
    tag = "states",
    request_body(content((Vec<u8> = "application/x-tar"))),
    responses((status = 201, description = "Made.", body = ImportView), Conflict, Unavailable)
)]
async fn receive(
    State(api): State<Api>,
    headers: HeaderMap,
    request: Request,
) -> Result<(StatusCode, Json<ImportView>), Problem> {
    let told = |name| headers.get(name)?.to_str().ok();
    if told(header::CONTENT_TYPE) != Some(TAR) {
        return Err(Problem::new(
            "media-type",
            "an agent comes as a tar file: send the header Content-Type: application/x-tar",
        ));
    }
    let length = told(header::CONTENT_LENGTH).and_then(|length| length.parse().ok());
    let (to, from) = mpsc::channel(WAITING);
    let from = Box::new(Uploaded {
        from,
        piece: Bytes::new(),
        whole: false,
    });
    let import = api.commands.import(ImportFrom::Tar { from, length });
    let sent = async {
        tokio::select! {
            sent = pass(request.into_body(), to) => sent,
            // The import ends and cleans up, since its sender is gone.
            () = api.stopping.cancelled() => {
                Err(Problem::new("unavailable", "the server is stopping: send it again"))
            }
        }
    };
    tokio::pin!(import);
    let (sent, view) = tokio::select! {
        // What is refused already is not waited for.
        view = &mut import => (Ok(()), view),
        sent = sent => (sent, import.await),
    };
    sent?;
    Ok((StatusCode::CREATED, Json(view?)))
}

/// Hands a body on, piece by piece. Where the import wants no more, that is the import's to tell.
async fn pass(body: Body, to: mpsc::Sender<Option<Bytes>>) -> Result<(), Problem> {
    let mut body = body.into_data_stream();
    // Only the sender's own slowness counts, not the import's.
    let (mut waited, mut size) = (Duration::ZERO, 0u64);
    loop {
        let left = (BODY + Duration::from_secs(size / SLOWEST)).saturating_sub(waited);
        let since = Instant::now();
        let piece = tokio::time::timeout(left.min(BODY), body.next()).await;
        waited += since.elapsed();
        let piece = piece.map_err(|_| {
            let told = "the archive comes too slowly, or stands still: send it again";
            Problem::new("timeout", told)
        })?;
        let piece = piece.transpose().map_err(|error| {
            Problem::new("invalid", format!("the archive could not be read: {error}"))
        })?;
        let last = piece.is_none();
        size += piece.as_ref().map_or(0, |piece| piece.len() as u64);
        if to.send(piece).await.is_err() || last {
            return Ok(());
        }
    }
}

/// The other end; a sender that goes away without an end is an error.
struct Uploaded {
    from: mpsc::Receiver<Option<Bytes>>,
    piece: Bytes,
    whole: bool,
}

impl Read for Uploaded {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() && !self.whole {
            match self.from.blocking_recv() {
                Some(Some(piece)) => self.piece = piece,
                Some(None) => self.whole = true,
                None => return Err(io::ErrorKind::UnexpectedEof.into()),
            }
        }
        let taken = self.piece.split_to(self.piece.len().min(into.len()));
        into[..taken.len()].copy_from_slice(&taken);
        Ok(taken.len())
    }
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
