//! `/`: the agents, and a form for a new one.

use axum::{
    Extension,
    extract::State,
    response::{IntoResponse as _, Redirect, Response},
};
use maud::{Markup, html};
use mayfly_domain::AgentId;
use mayfly_orchestrator::{
    command::NewAgent,
    view::{AgentView, Page, Wanted},
};
use serde::Deserialize;

use super::{
    Pages,
    form::Form,
    layout::{Refused, Sheet, key},
    sign_in::Session,
};
use crate::{
    http::{Asked, Problem},
    render,
};

/// Agents on one page.
const MOST: u32 = 50;

/// Where in a long list.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Older {
    older: Option<String>,
}

impl Older {
    pub(super) fn wanted<Id: std::str::FromStr>(&self, most: u32) -> Result<Wanted<Id>, Problem> {
        let after = self.older.as_deref().map(str::parse).transpose();
        let after = after
            .map_err(|_| Problem::new("invalid", "this is no place in the list: begin at /"))?;
        Ok(Wanted { after, most })
    }
}

/// `GET /`.
pub(super) async fn list(
    State(pages): State<Pages>,
    Extension(session): Extension<Session>,
    Asked(older): Asked<Older>,
) -> Result<Markup, Refused> {
    let page = pages.commands.agents(older.wanted(MOST)?).await?;
    let sheet = Sheet {
        title: "Agents",
        session: &session,
        busy: page.items.iter().any(is_busy),
        told: None,
    };
    let profiles = pages.commands.profiles();
    Ok(sheet.with(html! {
        div.heading {
            h1 { "Agents" }
            (new(&session, &profiles))
        }
        (agents(&page))
    }))
}

pub(super) fn is_busy(agent: &AgentView) -> bool {
    agent.running.is_some() || agent.waiting > 0
}

fn new(session: &Session, profiles: &[String]) -> Markup {
    html! {
        form.row method="post" action="/agents" {
            (key(session))
            label for="profile" { "Profile" }
            select #profile name="profile" {
                @for name in profiles {
                    option value=(name) selected[name == "shell"] { (name) }
                }
            }
            button.primary #new { "New agent" }
        }
    }
}

fn agents(page: &Page<AgentView>) -> Markup {
    html! {
        @if page.items.is_empty() {
            p.empty #agents data-live { "No agents yet. Each has files and a conversation of its own, \
                and no process while it rests." }
        } @else {
            ul.cards #agents data-live data-parts {
                @for agent in &page.items { (card(agent)) }
            }
        }
        @if let Some(next) = &page.next {
            p { a href={ "/?older=" (next) } { "Older agents" } }
        }
    }
}

fn card(agent: &AgentView) -> Markup {
    html! {
        li #{ "a-" (agent.id) } {
            a href={ "/agents/" (agent.id) } {
                strong { (agent.short) }
                " " span.mute { (agent.profile) }
                @if let Some(origin) = agent.forked_from {
                    " " span.mute { "fork of " (origin.short()) }
                }
                span.end { (state(agent)) }
                span.line.mute {
                    (agent.sandbox) " · "
                    (agent.ticks) @if agent.ticks == 1 { " tick" } @else { " ticks" }
                    " · made " (render::time(agent.created_at))
                }
            }
        }
    }
}

/// What it does now.
pub(super) fn state(agent: &AgentView) -> Markup {
    html! {
        @match agent.running {
            Some(_) => span.badge.run { "running" },
            None if agent.waiting == 0 => span.badge { "at rest" },
            None => {},
        }
        @if agent.waiting > 0 { span.badge.run { (agent.waiting) " waiting" } }
        @if agent.parked > 0 { span.badge.bad { (agent.parked) " parked" } }
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct New {
    profile: String,
}

/// `POST /agents`.
pub(super) async fn create(
    State(pages): State<Pages>,
    Form(New { profile }): Form<New>,
) -> Result<Response, Refused> {
    let asked = NewAgent {
        profile: Some(profile),
        sandbox: None,
    };
    let made = pages.commands.create_agent(asked).await?;
    Ok(Redirect::to(&address(made.id)).into_response())
}

/// An agent's own page.
pub(super) fn address(agent: AgentId) -> String {
    format!("/agents/{agent}")
}
