//! Paths and what they call. Each is one call of [`Commands`]; ids may be unique suffixes.
//!
//! [`Commands`]: mayfly_orchestrator::command::Commands

use std::{str::FromStr, time::Duration};

use axum::{
    Json, Router,
    extract::{FromRequestParts, Path, Query, State},
    http::{HeaderMap, StatusCode, request::Parts},
    response::{IntoResponse, Response},
};
use mayfly_domain::{Author, MessageId, TickId, check_caption, check_text};
use mayfly_orchestrator::{
    command::{NewAgent, Send, StopScope},
    retention::Ask,
    view::{
        AgentView, GcView, GraphView, MessageView, Page, ReadyView, RollbackView, StopView,
        TickDetail, TickView, Wanted,
    },
};
use serde::{Deserialize, de::DeserializeOwned};
use utoipa::IntoParams;
use utoipa_axum::routes;

use super::{
    Api,
    body::Body,
    document::{
        Routes,
        ids::{OfAgent, OfAgentToChange, OfMessage, OfParked, OfTick},
        refusals::{Conflict, NotFound, Unavailable},
    },
    files,
    problem::Problem,
    wire::{CreateBody, EmptyBody, ForkBody, GcBody, RollbackBody, SendBody, StopBody},
};

/// Longest `wait`; a client asks again.
const MAX_WAIT: Duration = Duration::from_secs(600);

type Answer<T> = Result<Json<T>, Problem>;
type Made<T> = Result<(StatusCode, Json<T>), Problem>;

pub(super) fn described() -> Routes {
    Routes::new()
        .with(routes!(health))
        .with(routes!(ready))
        .with(routes!(agents, create))
        .with(routes!(agent, remove))
        .with(routes!(send))
        .with(routes!(ticks))
        .with(routes!(graph))
        .with(routes!(files::diff))
        .with(routes!(files::root))
        .with_rest(routes!(files::files))
        .with(routes!(rollback))
        .with(routes!(fork))
        .with(routes!(stop))
        .with(routes!(message))
        .with(routes!(retry))
        .with(routes!(tick))
        .with(routes!(parked))
        .with(routes!(gc))
}

/// A router that also answers what no route takes; to be called after the last merge.
pub(super) fn finished(router: Router) -> Router {
    router
        .fallback(async || {
            Problem::new(
                "not-found",
                "there is no such path: GET /v1/openapi.json tells all",
            )
        })
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

#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(default, deny_unknown_fields)]
struct Wait {
    /// Seconds to wait for the outcome, at most 600 of them.
    #[param(format = "uint64", minimum = 0, maximum = 18446744073709551615_usize)]
    wait: u64,
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(default, deny_unknown_fields)]
struct Force {
    /// Also while forks stand on its state; they keep what they share.
    force: bool,
}

/// Items of a page where the request names no number.
const PAGE: u32 = 100;
/// Items of the longest page.
const MAX_PAGE: u32 = 1000;

/// A page, by the `next` of the one before.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(default, deny_unknown_fields)]
struct Paging {
    /// Items of the page; 100 where it is left out.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// The `next` of the page before; left out for the first.
    #[param(format = "uuid")]
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

    /// As [`Api::tick_id`], for a state that is gone to.
    async fn tick_to_go_to(&self, text: Option<&str>) -> Result<Option<TickId>, Problem> {
        Ok(match text {
            Some(text) => Some(self.commands.tick_to_go_to(text).await?),
            None => None,
        })
    }
}

/// Whether the server answers.
#[utoipa::path(
    get,
    path = "/healthz",
    tag = "service",
    responses((status = 200, description = "It does.", body = String, content_type = "text/plain"))
)]
async fn health() -> &'static str {
    "ok\n"
}

/// Whether messages would be run.
#[utoipa::path(
    get,
    path = "/readyz",
    tag = "service",
    responses(
        (status = 200, description = "They would.", body = ReadyView),
        (status = 503, description = "They would not, and why.", body = ReadyView),
    )
)]
async fn ready(State(api): State<Api>) -> Response {
    let ready: ReadyView = api.commands.ready().await;
    let status = match ready.ready {
        true => StatusCode::OK,
        false => StatusCode::SERVICE_UNAVAILABLE,
    };
    (status, Json(ready)).into_response()
}

/// Agents, newest first.
#[utoipa::path(
    get,
    path = "/v1/agents",
    tag = "agents",
    params(Paging),
    responses((status = 200, description = "A page.", body = Page<AgentView>))
)]
async fn agents(State(api): State<Api>, Asked(asked): Asked<Paging>) -> Answer<Page<AgentView>> {
    Ok(Json(api.commands.agents(asked.wanted()?).await?))
}

/// A new agent.
#[utoipa::path(
    post,
    path = "/v1/agents",
    tag = "agents",
    request_body = CreateBody,
    responses((status = 201, description = "Made.", body = AgentView), NotFound, Conflict, Unavailable)
)]
async fn create(State(api): State<Api>, Body(asked): Body<CreateBody>) -> Made<AgentView> {
    let CreateBody { profile, sandbox } = asked;
    let made = api
        .commands
        .create_agent(NewAgent { profile, sandbox })
        .await?;
    Ok((StatusCode::CREATED, Json(made)))
}

/// One agent, with what its states take on disk.
#[utoipa::path(
    get,
    path = "/v1/agents/{id}",
    tag = "agents",
    params(OfAgent),
    responses((status = 200, description = "The agent.", body = AgentView))
)]
async fn agent(State(api): State<Api>, Named(id): Named) -> Answer<AgentView> {
    let agent = api.commands.find_agent(&id).await?;
    Ok(Json(api.commands.agent_with_disk(agent).await?))
}

/// Removes an agent and what only it needs.
///
/// Refused while a tick runs, and while forks stand on its state unless forced.
#[utoipa::path(
    delete,
    path = "/v1/agents/{id}",
    tag = "agents",
    params(OfAgentToChange, Force),
    responses((status = 204, description = "Removed."), Conflict, Unavailable)
)]
async fn remove(
    State(api): State<Api>,
    Named(id): Named,
    Asked(asked): Asked<Force>,
) -> Result<StatusCode, Problem> {
    let agent = api.commands.agent_to_change(&id).await?;
    api.commands.remove_agent(agent, asked.force).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Sends a message, which runs as one tick.
///
/// It is durable when this answers, also without an outcome.
#[utoipa::path(
    post,
    path = "/v1/agents/{id}/messages",
    tag = "messages",
    params(
        OfAgentToChange,
        Wait,
        (
            "Idempotency-Key" = Option<String>, Header, pattern = "^[!-~]{1,255}$",
            description = "A second message with the same key is the first one again."
        ),
    ),
    request_body = SendBody,
    responses(
        (status = 200, description = "It has its outcome.", body = MessageView, links(
            ("tick" = (operation_id = "tick", parameters(("id" = "$response.body#/tick")))),
            ("events" = (operation_id = "events", parameters(("id" = "$response.body#/tick")))),
        )),
        (status = 202, description = "It waits or runs.", body = MessageView, links(
            ("message" = (operation_id = "message", parameters(("id" = "$response.body#/id")))),
        )),
        Conflict,
        Unavailable,
    )
)]
async fn send(
    State(api): State<Api>,
    Named(id): Named,
    Asked(asked): Asked<Wait>,
    headers: HeaderMap,
    Body(body): Body<SendBody>,
) -> Made<MessageView> {
    match body.files.is_empty() {
        true => check_text(body.text.as_bytes())?,
        false => check_caption(body.text.as_bytes())?,
    };
    let agent = api.commands.agent_to_change(&id).await?;
    let send = Send {
        text: body.text,
        files: body.files,
        author: author(body.author)?,
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

/// Most characters in an author's name.
const MAX_NAME: usize = 200;

fn author(name: Option<String>) -> Result<Author, Problem> {
    let Some(name) = name else {
        return Ok(Author::local("api"));
    };
    match (1..=MAX_NAME).contains(&name.chars().count()) && !name.contains(char::is_control) {
        true => Ok(Author::local(name)),
        false => {
            let told =
                format!("author is not 1 to {MAX_NAME} characters without control characters");
            Err(Problem::new("invalid", told))
        }
    }
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

/// Ticks of an agent, newest first.
#[utoipa::path(
    get,
    path = "/v1/agents/{id}/ticks",
    tag = "ticks",
    params(OfAgent, Paging),
    responses((status = 200, description = "A page.", body = Page<TickView>, links(
        ("tick" = (operation_id = "tick", parameters(("id" = "$response.body#/items/0/id")))),
    )))
)]
async fn ticks(
    State(api): State<Api>,
    Named(id): Named,
    Asked(asked): Asked<Paging>,
) -> Answer<Page<TickView>> {
    let agent = api.commands.find_agent(&id).await?;
    let page = api.commands.ticks_page(agent, asked.wanted()?).await?;
    Ok(Json(page))
}

/// All states of an agent as a tree, and where its head is.
#[utoipa::path(
    get,
    path = "/v1/agents/{id}/graph",
    tag = "states",
    params(OfAgent),
    responses((status = 200, description = "The tree.", body = GraphView))
)]
async fn graph(State(api): State<Api>, Named(id): Named) -> Answer<GraphView> {
    let agent = api.commands.find_agent(&id).await?;
    Ok(Json(api.commands.graph(agent).await?))
}

/// Moves an agent's head to another state of its own.
#[utoipa::path(
    post,
    path = "/v1/agents/{id}/rollback",
    tag = "states",
    params(OfAgentToChange),
    request_body = RollbackBody,
    responses((status = 200, description = "Moved.", body = RollbackView), Conflict, Unavailable)
)]
async fn rollback(
    State(api): State<Api>,
    Named(id): Named,
    Body(body): Body<RollbackBody>,
) -> Answer<RollbackView> {
    let agent = api.commands.agent_to_change(&id).await?;
    let to = api.tick_to_go_to(body.to.as_deref()).await?;
    Ok(Json(api.commands.rollback(agent, to).await?))
}

/// A second agent on the same state.
#[utoipa::path(
    post,
    path = "/v1/agents/{id}/fork",
    tag = "states",
    params(OfAgentToChange),
    request_body = ForkBody,
    responses((status = 201, description = "Made.", body = AgentView), Conflict, Unavailable)
)]
async fn fork(
    State(api): State<Api>,
    Named(id): Named,
    Body(body): Body<ForkBody>,
) -> Made<AgentView> {
    let agent = api.commands.agent_to_change(&id).await?;
    let at = api.tick_to_go_to(body.at.as_deref()).await?;
    let forked = api.commands.fork(agent, at).await?;
    Ok((StatusCode::CREATED, Json(forked)))
}

/// Ends the running tick; messages that wait stay, or are withdrawn.
#[utoipa::path(
    post,
    path = "/v1/agents/{id}/stop",
    tag = "messages",
    params(OfAgentToChange),
    request_body = StopBody,
    responses((status = 200, description = "What was stopped.", body = StopView), Unavailable)
)]
async fn stop(
    State(api): State<Api>,
    Named(id): Named,
    Body(body): Body<StopBody>,
) -> Answer<StopView> {
    let agent = api.commands.agent_to_change(&id).await?;
    let scope = match body.all {
        true => StopScope::All,
        false => StopScope::Running,
    };
    Ok(Json(api.commands.stop(agent, scope).await?))
}

/// One message and what became of it.
#[utoipa::path(
    get,
    path = "/v1/messages/{id}",
    tag = "messages",
    params(OfMessage, Wait),
    responses((status = 200, description = "The message.", body = MessageView))
)]
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

/// Puts a parked message back into its lane; sends again what could not be delivered of another.
#[utoipa::path(
    post,
    path = "/v1/messages/{id}/retry",
    tag = "messages",
    params(OfParked),
    request_body = EmptyBody,
    responses((status = 200, description = "It waits again, or its reply is on its way again.", body = MessageView), Conflict, Unavailable)
)]
async fn retry(
    State(api): State<Api>,
    Named(id): Named,
    Body(EmptyBody {}): Body<EmptyBody>,
) -> Answer<MessageView> {
    Ok(Json(api.commands.retry(&id).await?))
}

/// One tick with its transcript.
#[utoipa::path(
    get,
    path = "/v1/ticks/{id}",
    tag = "ticks",
    params(OfTick),
    responses((status = 200, description = "The tick.", body = TickDetail))
)]
async fn tick(State(api): State<Api>, Named(id): Named) -> Answer<TickDetail> {
    let tick = api.commands.find_tick(&id).await?;
    Ok(Json(api.commands.tick(tick).await?))
}

/// Removes what nothing needs any more, or says what would go.
#[utoipa::path(
    post,
    path = "/v1/gc",
    tag = "service",
    request_body = GcBody,
    responses((status = 200, description = "What went, or would go.", body = GcView), Unavailable)
)]
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

/// Messages that wait for a person, or whose reply does, oldest first.
#[utoipa::path(
    get,
    path = "/v1/parked",
    tag = "messages",
    responses((status = 200, description = "All of them.", body = Vec<MessageView>, links(
        ("retry" = (operation_id = "retry", parameters(("id" = "$response.body#/0/id")))),
    )))
)]
async fn parked(State(api): State<Api>) -> Answer<Vec<MessageView>> {
    Ok(Json(api.commands.parked().await?))
}
