//! What names paths of this host, and the page's door: for whoever opens the socket, and for no holder
//! of a token.

use std::path::PathBuf;

use axum::{Json, extract::State};
use mayfly_orchestrator::{
    backup::{BackupView, inspect::LayersView},
    view::{PairedView, PairingView},
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::routes;

use super::{
    Api,
    body::Body,
    document::{
        Routes,
        refusals::{Conflict, NotFound, Unavailable},
    },
    problem::Problem,
    wire::{EmptyBody, PairBody, UnpairBody},
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
        .with(routes!(paired, pair))
        .with(routes!(unpair))
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

/// Makes a link that signs a browser in to the page, once.
#[utoipa::path(
    post,
    path = "/v1/page-link",
    tag = "owner",
    request_body = EmptyBody,
    responses((status = 200, description = "Made.", body = LinkView), Conflict)
)]
async fn page_link(
    State(api): State<Api>,
    Body(EmptyBody {}): Body<EmptyBody>,
) -> Result<Json<LinkView>, Problem> {
    let off = "http.listen is off, so there is no page: set it in mayfly.toml, then start mayfly serve anew";
    let links = api.links.ok_or_else(|| Problem::new("conflict", off))?;
    Ok(Json(links.make()))
}

/// Makes a code by which one person is let in; the one before is void.
#[utoipa::path(
    post,
    path = "/v1/pairings",
    tag = "owner",
    request_body = PairBody,
    responses((status = 200, description = "Made.", body = PairingView), Conflict)
)]
async fn pair(
    State(api): State<Api>,
    Body(asked): Body<PairBody>,
) -> Result<Json<PairingView>, Problem> {
    Ok(Json(api.commands.pair(&asked.platform).await?))
}

/// Everybody who was let in by a code.
#[utoipa::path(
    get,
    path = "/v1/pairings",
    tag = "owner",
    responses((status = 200, description = "All of them.", body = Vec<PairedView>))
)]
async fn paired(State(api): State<Api>) -> Result<Json<Vec<PairedView>>, Problem> {
    Ok(Json(api.commands.paired().await?))
}

/// Takes the right to speak back from somebody who was let in.
#[utoipa::path(
    post,
    path = "/v1/pairings/remove",
    tag = "owner",
    request_body = UnpairBody,
    responses((status = 200, description = "Whose it was.", body = PairedView), NotFound)
)]
async fn unpair(
    State(api): State<Api>,
    Body(asked): Body<UnpairBody>,
) -> Result<Json<PairedView>, Problem> {
    let gone = api.commands.unpair(&asked.platform, &asked.person);
    Ok(Json(gone.await?))
}
