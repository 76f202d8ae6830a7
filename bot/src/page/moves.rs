//! What changes where an agent stands: asked for once more before it is done, told truly after.

use axum::{
    Extension,
    extract::{Path, State},
    response::{IntoResponse as _, Redirect, Response},
};
use maud::{Markup, html};
use mayfly_domain::{AgentId, TickId};
use mayfly_orchestrator::{command::StopScope, view::AgentView};
use serde::Deserialize;

use super::{
    Pages, agents,
    form::Form,
    layout::{Refused, Sheet, key},
    sign_in::Session,
    tick,
};
use crate::render;

/// A question with one button that does it.
struct Question<'a> {
    title: String,
    told: Markup,
    to: String,
    field: Option<(&'a str, TickId)>,
    yes: &'a str,
    back: String,
}

impl Question<'_> {
    fn ask(&self, session: &Session) -> Markup {
        let sheet = Sheet {
            title: &self.title,
            session,
            busy: false,
            told: None,
        };
        sheet.with(html! {
            section.alone {
                h1 { (self.title) }
                (self.told)
                form.row method="post" action=(self.to) {
                    (key(session))
                    @if let Some((name, tick)) = &self.field {
                        input type="hidden" name=(name) value=(tick);
                    }
                    button.primary #yes { (self.yes) }
                    a.button href=(self.back) { "No, go back" }
                }
            }
        })
    }
}

/// `GET /agents/ID/rollback`: to the state before the last tick.
pub(super) async fn ask_undo(
    State(pages): State<Pages>,
    Extension(session): Extension<Session>,
    Path(id): Path<String>,
) -> Result<Markup, Refused> {
    let id = pages.commands.find_agent(&id).await?;
    let agent = pages.commands.agent(id).await?;
    let question = Question {
        title: format!("Undo the last tick of {}?", agent.short),
        told: html! {
            p { "Its files and its conversation go back to where they were before "
                @match agent.head_tick {
                    Some(last) => { "tick " (last.short()) },
                    None => { "its last tick" },
                }
                "." }
            (going_back(&agent))
        },
        to: format!("{}/rollback", agents::address(id)),
        field: None,
        yes: "Undo it",
        back: agents::address(id),
    };
    Ok(question.ask(&session))
}

/// `GET /ticks/ID/rollback`.
pub(super) async fn ask_rollback_to(
    State(pages): State<Pages>,
    Extension(session): Extension<Session>,
    Path(id): Path<String>,
) -> Result<Markup, Refused> {
    let id = pages.commands.find_tick(&id).await?;
    let tick = pages.commands.tick_alone(id).await?;
    let agent = pages.commands.agent(tick.agent).await?;
    let question = Question {
        title: format!("Roll {} back to tick {}?", agent.short, id.short()),
        told: html! {
            p { "Its files and its conversation become what they were after tick "
                a href=(tick::address(id)) { (id.short()) } ", "
                q { (render::one_line(&tick.title, 60)) } "." }
            (going_back(&agent))
        },
        to: format!("{}/rollback", agents::address(agent.id)),
        field: Some(("to", id)),
        yes: "Roll back",
        back: agents::address(agent.id),
    };
    Ok(question.ask(&session))
}

fn going_back(agent: &AgentView) -> Markup {
    html! {
        p { "What it leaves stays: you can go forward again. Transcripts, and what was done outside of \
             its files, are not undone." }
        @if agent.waiting > 0 {
            p { "The " (agent.waiting) " waiting will run on the older state." }
        }
        @if agent.running.is_some() {
            p.refused { "A tick runs: as long as it does, this is refused." }
        }
    }
}

/// `GET /agents/ID/fork`.
pub(super) async fn ask_fork(
    State(pages): State<Pages>,
    Extension(session): Extension<Session>,
    Path(id): Path<String>,
) -> Result<Markup, Refused> {
    let agent = pages.commands.find_agent(&id).await?;
    let told = html! { p { "A new agent begins with the files and the conversation that this one has now." } };
    Ok(fork_question(agent, None, told).ask(&session))
}

/// `GET /ticks/ID/fork`.
pub(super) async fn ask_fork_at(
    State(pages): State<Pages>,
    Extension(session): Extension<Session>,
    Path(id): Path<String>,
) -> Result<Markup, Refused> {
    let id = pages.commands.find_tick(&id).await?;
    let tick = pages.commands.tick_alone(id).await?;
    let told = html! {
        p { "A new agent begins with the files and the conversation as they were after tick "
            a href=(tick::address(id)) { (id.short()) } ", "
            q { (render::one_line(&tick.title, 60)) } "." }
    };
    Ok(fork_question(tick.agent, Some(id), told).ask(&session))
}

fn fork_question(agent: AgentId, at: Option<TickId>, told: Markup) -> Question<'static> {
    let place = at.map_or_else(String::new, |at| format!(" at tick {}", at.short()));
    Question {
        title: format!("Fork {}{place}?", agent.short()),
        told: html! {
            (told)
            p { "Both go on by themselves from there; what they share is kept once." }
        },
        to: format!("{}/fork", agents::address(agent)),
        field: at.map(|at| ("at", at)),
        yes: "Fork",
        back: agents::address(agent),
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct To {
    #[serde(default)]
    to: Option<String>,
}

/// `POST /agents/ID/rollback`.
pub(super) async fn rollback(
    State(pages): State<Pages>,
    Extension(session): Extension<Session>,
    Path(id): Path<String>,
    Form(To { to }): Form<To>,
) -> Result<Response, Refused> {
    let id = pages.commands.agent_to_change(&id).await?;
    let to = pages.tick(id, to.as_deref()).await?;
    let done = pages.commands.rollback(id, to).await;
    let view = done.map_err(|error| Refused::from(error).back(agents::address(id)))?;
    Ok(pages.told(&session, id, render::rollback(&view)))
}

#[derive(Debug, Deserialize)]
pub(super) struct ForkAt {
    #[serde(default)]
    at: Option<String>,
}

/// `POST /agents/ID/fork`.
pub(super) async fn fork(
    State(pages): State<Pages>,
    Extension(session): Extension<Session>,
    Path(id): Path<String>,
    Form(ForkAt { at }): Form<ForkAt>,
) -> Result<Response, Refused> {
    let id = pages.commands.agent_to_change(&id).await?;
    let at = pages.tick(id, at.as_deref()).await?;
    let done = pages.commands.fork(id, at).await;
    let made = done.map_err(|error| Refused::from(error).back(agents::address(id)))?;
    let place = at.map_or_else(String::new, |at| format!(" as of tick {}", at.short()));
    let told = format!(
        "this is agent {}, a fork of {}{place}",
        made.short,
        id.short()
    );
    Ok(pages.told(&session, made.id, told))
}

#[derive(Debug, Deserialize)]
pub(super) struct Scope {
    #[serde(default)]
    all: Option<String>,
}

/// `POST /agents/ID/stop`.
pub(super) async fn stop(
    State(pages): State<Pages>,
    Extension(session): Extension<Session>,
    Path(id): Path<String>,
    Form(Scope { all }): Form<Scope>,
) -> Result<Response, Refused> {
    let id = pages.commands.agent_to_change(&id).await?;
    let scope = match all {
        Some(_) => StopScope::All,
        None => StopScope::Running,
    };
    let done = pages.commands.stop(id, scope).await;
    let view = done.map_err(|error| Refused::from(error).back(agents::address(id)))?;
    Ok(pages.told(&session, id, render::stop(&view)))
}

#[derive(Debug, Deserialize)]
pub(super) struct Nothing {}

/// `POST /messages/ID/retry`.
pub(super) async fn retry(
    State(pages): State<Pages>,
    Extension(session): Extension<Session>,
    Path(id): Path<String>,
    Form(Nothing {}): Form<Nothing>,
) -> Result<Response, Refused> {
    let view = pages.commands.retry(&id).await?;
    let told = "the message is in its lane again".to_owned();
    Ok(pages.told(&session, view.agent, told))
}

impl Pages {
    async fn tick(&self, agent: AgentId, text: Option<&str>) -> Result<Option<TickId>, Refused> {
        let found = match text {
            None | Some("") => return Ok(None),
            Some(text) => self.commands.tick_to_go_to(text).await,
        };
        let back = |error| Refused::from(error).back(agents::address(agent));
        found.map(Some).map_err(back)
    }

    /// To the agent's page, which says what was done. A reload does nothing again.
    fn told(&self, session: &Session, agent: AgentId, sentence: String) -> Response {
        let name = self.sign_in.tell(session, sentence);
        let to = format!("{}?told={name}", agents::address(agent));
        Redirect::to(&to).into_response()
    }
}
