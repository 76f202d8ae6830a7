//! What names paths of this host, and the page's door: for whoever opens the socket, and for no holder
//! of a token.

use std::path::PathBuf;

use axum::{Json, extract::State};
use mayfly_orchestrator::backup::{BackupView, inspect::LayersView};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::routes;

use super::{
    Api,
    body::Body,
    document::{
        Routes,
        refusals::{Conflict, Unavailable},
    },
    problem::Problem,
    wire::EmptyBody,
};
use crate::page::LinkView;

/// `POST /v1/backup`.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BackupBody {
    /// A new folder.
    #[schema(value_type = String)]
    pub into: PathBuf,
    #[serde(default)]
    pub with_images: bool,
}

/// `POST /v1/layers`.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LayersBody {
    /// The folder of a backup.
    #[schema(value_type = Option<String>)]
    pub against: Option<PathBuf>,
}

pub(super) fn described() -> Routes {
    Routes::new()
        .with(routes!(backup))
        .with(routes!(layers))
        .with(routes!(page_link))
}

/// Takes a backup of the whole installation while it runs.
#[utoipa::path(
    post,
    path = "/v1/backup",
    tag = "owner",
    request_body = BackupBody,
    responses((status = 200, description = "Taken.", body = BackupView), Conflict, Unavailable)
)]
async fn backup(
    State(api): State<Api>,
    Body(asked): Body<BackupBody>,
) -> Result<Json<BackupView>, Problem> {
    let taken = api
        .commands
        .backup(&asked.into, asked.with_images, &api.stopping);
    Ok(Json(taken.await?))
}

/// Looks at every layer, and compares it with a backup's where one is named.
#[utoipa::path(
    post,
    path = "/v1/layers",
    tag = "owner",
    request_body = LayersBody,
    responses((status = 200, description = "What was found.", body = LayersView), Unavailable)
)]
async fn layers(
    State(api): State<Api>,
    Body(asked): Body<LayersBody>,
) -> Result<Json<LayersView>, Problem> {
    let looked = api.commands.layers(asked.against.as_deref(), &api.stopping);
    Ok(Json(looked.await?))
}

/// A link that signs a browser on this machine in to the page.
#[utoipa::path(
    post,
    path = "/v1/page-link",
    tag = "owner",
    request_body = EmptyBody,
    responses((status = 200, description = "To be opened once.", body = LinkView), Conflict)
)]
async fn page_link(
    State(api): State<Api>,
    Body(EmptyBody {}): Body<EmptyBody>,
) -> Result<Json<LinkView>, Problem> {
    let off = "http.listen is off, so there is no page: set it in mayfly.toml, then start mayfly serve anew";
    let links = api.links.ok_or_else(|| Problem::new("conflict", off))?;
    Ok(Json(links.make()))
}
