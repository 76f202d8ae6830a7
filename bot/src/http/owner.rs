//! What names paths of this host, and the page's door: for whoever opens the socket, and for no holder
//! of a token.

use std::path::PathBuf;

use axum::{Json, Router, extract::State, routing::post};
use mayfly_orchestrator::backup::{BackupView, inspect::LayersView};
use serde::{Deserialize, Serialize};

use super::{Api, body::Body, problem::Problem, wire::EmptyBody};
use crate::page::LinkView;

/// `POST /v1/backup`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BackupBody {
    /// A new folder.
    pub into: PathBuf,
    #[serde(default)]
    pub with_images: bool,
}

/// `POST /v1/layers`.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LayersBody {
    /// The folder of a backup.
    pub against: Option<PathBuf>,
}

pub(super) fn router(api: Api) -> Router {
    Router::new()
        .route("/v1/backup", post(backup))
        .route("/v1/layers", post(layers))
        .route("/v1/page-link", post(page_link))
        .with_state(api)
}

async fn backup(
    State(api): State<Api>,
    Body(asked): Body<BackupBody>,
) -> Result<Json<BackupView>, Problem> {
    let taken = api
        .commands
        .backup(&asked.into, asked.with_images, &api.stopping);
    Ok(Json(taken.await?))
}

async fn layers(
    State(api): State<Api>,
    Body(asked): Body<LayersBody>,
) -> Result<Json<LayersView>, Problem> {
    let looked = api.commands.layers(asked.against.as_deref(), &api.stopping);
    Ok(Json(looked.await?))
}

async fn page_link(
    State(api): State<Api>,
    Body(EmptyBody {}): Body<EmptyBody>,
) -> Result<Json<LinkView>, Problem> {
    let off = "http.listen is off, so there is no page: set it in mayfly.toml, then start mayfly serve anew";
    let links = api.links.ok_or_else(|| Problem::new("conflict", off))?;
    Ok(Json(links.make()))
}
