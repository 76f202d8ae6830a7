//! Paths and what they call. Each is one call of [`Commands`]; ids may be unique suffixes.
//!
//! [`Commands`]: mayfly_orchestrator::command::Commands

use std::{str::FromStr, time::Duration};

use axum::{
    Json, Router,
    extract::{FromRequestParts, Path, Query, State},
    http::{HeaderMap, StatusCode, request::Parts},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use mayfly_domain::{Author, MessageId, TickId, check_text};
use mayfly_orchestrator::{
    command::{NewAgent, Send, StopScope},
    retention::Ask,
    view::{
        AgentView, GcView, GraphView, MessageView, Page, ReadyView, RollbackView, StopView,
        TickDetail, TickView, Wanted,
    },
};
use serde::{Deserialize, de::DeserializeOwned};

use super::{
    Api,
    body::Body,
    files,
    problem::Problem,
    wire::{CreateBody, EmptyBody, ForkBody, GcBody, RollbackBody, SendBody, StopBody},
};

/// Longest `wait`; a client asks again.
const MAX_WAIT: Duration = Duration::from_secs(600);

type Answer<T> = Result<Json<T>, Problem>;
type Made<T> = Result<(StatusCode, Json<T>), Problem>;

pub(super) fn router(api: Api) -> Router {
    Router::new()
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(ready))
        .route("/v1/agents", get(agents).post(create))
        .route("/v1/agents/{id}", get(agent).delete(remove))
        .route("/v1/agents/{id}/messages", post(send))
        .route("/v1/agents/{id}/ticks", get(ticks))
        .route("/v1/agents/{id}/graph", get(graph))
        .route("/v1/agents/{id}/diff", get(files::diff))
        .route("/v1/agents/{id}/files", get(files::files))
        .route("/v1/agents/{id}/files/", get(files::files))
        .route("/v1/agents/{id}/files/{*path}", get(files::files))
        .route("/v1/agents/{id}/rollback", post(rollback))
        .route("/v1/agents/{id}/fork", post(fork))
        .route("/v1/agents/{id}/stop", post(stop))
        .route("/v1/messages/{id}", get(message))
        .route("/v1/messages/{id}/retry", post(retry))
        .route("/v1/ticks/{id}", get(tick))
        .route("/v1/parked", get(parked))
        .route("/v1/gc", post(gc))
        .with_state(api)
}

/// A router that also answers what no route takes; to be called after the last merge.
pub(super) fn finished(router: Router) -> Router {
    router
        .fallback(async || Problem::new("not-found", "there is no such path: see the README"))
        .method_not_allowed_fallback(async || {
            Problem::new("no-method", "this path does not take this method")
        })
}

/// The one name in a path; problems are [`Problem`]s.
pub(super) struct Named(pub(super) String);

impl<S: std::marker::Send + Sync> FromRequestParts<S> for Named {
    type Rejection = Problem;
    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        Path::<String>::from_request_parts(parts, state)
            .await
            .map(|Path(name)| Named(name))
            .map_err(|error| Problem::new("invalid", error.body_text()))
    }
}

/// A query without unknown names; problems are [`Problem`]s.
pub(crate) struct Asked<T>(pub(crate) T);

impl<S: std::marker::Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Asked<T> {
    type Rejection = Problem;
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        Query::try_from_uri(&parts.uri)
            .map(|Query(asked)| Asked(asked))
            .map_err(|error| Problem::new("invalid", error.body_text()))
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Wait {
    wait: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Force {
    force: bool,
}

/// Items of a page where the request names no number.
const PAGE: u32 = 100;
/// Items of the longest page.
const MAX_PAGE: u32 = 1000;

/// A page, by the `next` of the one before.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Paging {
    limit: Option<u32>,
    after: Option<String>,
}

/// Items of the longest page that was asked for.
pub(super) fn most(limit: Option<u32>) -> Result<u32, Problem> {
    match limit.unwrap_or(PAGE) {
        most @ 1..=MAX_PAGE => Ok(most),
        other => Err(Problem::new(
            "invalid",
            format!("limit={other} is not 1 to {MAX_PAGE}"),
        )),
    }
}

impl Paging {
    fn wanted<Id: FromStr>(self) -> Result<Wanted<Id>, Problem> {
        let most = most(self.limit)?;
        let after = self.after.as_deref().map(str::parse).transpose();
        let after = after.map_err(|_| {
            let told = "after is not the \"next\" of a page: leave it out for the first page";
            Problem::new("invalid", told)
        })?;
        Ok(Wanted { after, most })
    }
}

impl Api {
    /// An outcome, or what is known when the time is over or the server stops.
    async fn wait(&self, id: MessageId, wait: u64) -> Result<MessageView, Problem> {
        let patience = Duration::from_secs(wait).min(MAX_WAIT);
        if patience.is_zero() {
            return Ok(self.commands.message(id).await?);
        }
        tokio::select! {
            outcome = self.commands.wait(id, patience) => Ok(outcome?),
            () = self.stopping.cancelled() => Ok(self.commands.message(id).await?),
        }
    }

    pub(super) async fn tick_id(&self, text: Option<&str>) -> Result<Option<TickId>, Problem> {
        Ok(match text {
            Some(text) => Some(self.commands.find_tick(text).await?),
            None => None,
        })
    }
}

async fn ready(State(api): State<Api>) -> Response {
    let ready: ReadyView = api.commands.ready().await;
    let status = match ready.ready {
        true => StatusCode::OK,
        false => StatusCode::SERVICE_UNAVAILABLE,
    };
    (status, Json(ready)).into_response()
}

async fn agents(State(api): State<Api>, Asked(asked): Asked<Paging>) -> Answer<Page<AgentView>> {
    Ok(Json(api.commands.agents(asked.wanted()?).await?))
}

async fn create(State(api): State<Api>, Body(asked): Body<CreateBody>) -> Made<AgentView> {
    let CreateBody { profile, sandbox } = asked;
    let made = api
        .commands
        .create_agent(NewAgent { profile, sandbox })
        .await?;
    Ok((StatusCode::CREATED, Json(made)))
}

async fn agent(State(api): State<Api>, Named(id): Named) -> Answer<AgentView> {
    let agent = api.commands.find_agent(&id).await?;
    Ok(Json(api.commands.agent_with_disk(agent).await?))
}

async fn remove(
    State(api): State<Api>,
    Named(id): Named,
    Asked(asked): Asked<Force>,
) -> Result<StatusCode, Problem> {
    let agent = api.commands.find_agent(&id).await?;
    api.commands.remove_agent(agent, asked.force).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn send(
    State(api): State<Api>,
    Named(id): Named,
    Asked(asked): Asked<Wait>,
    headers: HeaderMap,
    Body(body): Body<SendBody>,
) -> Made<MessageView> {
    check_text(body.text.as_bytes())?;
    let agent = api.commands.find_agent(&id).await?;
    let send = Send {
        text: body.text,
        author: Author::local(body.author.unwrap_or_else(|| "api".to_owned())),
        idempotency_key: idempotency_key(&headers)?,
        sandbox: body.sandbox,
    };
    let accepted = api.commands.send(agent, send).await?;
    let view = match asked.wait {
        0 => accepted,
        wait => api.wait(accepted.id, wait).await?,
    };
    let status = match view.outcome {
        Some(_) => StatusCode::OK,
        None => StatusCode::ACCEPTED,
    };
    Ok((status, Json(view)))
}

fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let Some(value) = headers.get("idempotency-key") else {
        return Ok(None);
    };
    match value.to_str() {
        Ok(text) if (1..=255).contains(&text.len()) => Ok(Some(text.to_owned())),
        _ => Err(Problem::new(
            "invalid",
            "Idempotency-Key is not 1 to 255 visible ASCII characters",
        )),
    }
}

async fn ticks(
    State(api): State<Api>,
    Named(id): Named,
    Asked(asked): Asked<Paging>,
) -> Answer<Page<TickView>> {
    let agent = api.commands.find_agent(&id).await?;
    let page = api.commands.ticks_page(agent, asked.wanted()?).await?;
    Ok(Json(page))
}

async fn graph(State(api): State<Api>, Named(id): Named) -> Answer<GraphView> {
    let agent = api.commands.find_agent(&id).await?;
    Ok(Json(api.commands.graph(agent).await?))
}

async fn rollback(
    State(api): State<Api>,
    Named(id): Named,
    Body(body): Body<RollbackBody>,
) -> Answer<RollbackView> {
    let agent = api.commands.find_agent(&id).await?;
    let to = api.tick_id(body.to.as_deref()).await?;
    Ok(Json(api.commands.rollback(agent, to).await?))
}

async fn fork(
    State(api): State<Api>,
    Named(id): Named,
    Body(body): Body<ForkBody>,
) -> Made<AgentView> {
    let agent = api.commands.find_agent(&id).await?;
    let at = api.tick_id(body.at.as_deref()).await?;
    let forked = api.commands.fork(agent, at).await?;
    Ok((StatusCode::CREATED, Json(forked)))
}

async fn stop(
    State(api): State<Api>,
    Named(id): Named,
    Body(body): Body<StopBody>,
) -> Answer<StopView> {
    let agent = api.commands.find_agent(&id).await?;
    let scope = match body.all {
        true => StopScope::All,
        false => StopScope::Running,
    };
    Ok(Json(api.commands.stop(agent, scope).await?))
}

async fn message(
    State(api): State<Api>,
    Named(id): Named,
    Asked(asked): Asked<Wait>,
) -> Answer<MessageView> {
    let id = id
        .parse::<MessageId>()
        .map_err(|error| Problem::new("not-found", error))?;
    Ok(Json(api.wait(id, asked.wait).await?))
}

async fn retry(
    State(api): State<Api>,
    Named(id): Named,
    Body(EmptyBody {}): Body<EmptyBody>,
) -> Answer<MessageView> {
    Ok(Json(api.commands.retry(&id).await?))
}

async fn tick(State(api): State<Api>, Named(id): Named) -> Answer<TickDetail> {
    let tick = api.commands.find_tick(&id).await?;
    Ok(Json(api.commands.tick(tick).await?))
}

async fn gc(State(api): State<Api>, Body(body): Body<GcBody>) -> Answer<GcView> {
    let GcBody {
        dry_run,
        trust_clock,
    } = body;
    let ask = Ask {
        dry_run,
        trust_clock,
    };
    Ok(Json(api.commands.gc(ask).await?))
}

async fn parked(State(api): State<Api>) -> Answer<Vec<MessageView>> {
    Ok(Json(api.commands.parked().await?))
}
