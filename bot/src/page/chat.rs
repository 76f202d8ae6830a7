//! One agent: what was said, a form to say more, and its ticks beside.

use axum::{
    Extension,
    extract::{Path, Request, State},
    response::{IntoResponse as _, Redirect, Response},
};
use maud::{Markup, html};
use mayfly_domain::{Author, MessageId, MessageOutcome, check_caption, check_text};
use mayfly_orchestrator::{
    command::Send,
    view::{AgentView, MessageView, Page, TickView, Wanted},
};
use serde::Deserialize;

use super::{
    Pages,
    agents::{Older, address, is_busy, state},
    layout::{Refused, Sheet, key},
    said::{self, Said},
    sign_in::Session,
    text::{beginning, said},
    tick,
};
use crate::{
    http::{Asked, Numbered, Problem, fetched},
    render,
};

/// Messages on one page.
const MESSAGES: u32 = 40;
/// Ticks beside them.
const TICKS: u32 = 40;
/// Bytes shown of one text; a message may have a MiB.
const TEXT: usize = 16 << 10;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct At {
    #[serde(flatten)]
    older: Older,
    /// The name of a sentence.
    told: Option<String>,
}

/// `GET /agents/ID`.
pub(super) async fn show(
    State(pages): State<Pages>,
    Extension(session): Extension<Session>,
    Path(id): Path<String>,
    Asked(at): Asked<At>,
) -> Result<Markup, Refused> {
    let id = pages.commands.find_agent(&id).await?;
    let agent = pages.commands.agent(id).await?;
    let wanted = at.older.wanted(MESSAGES)?;
    let is_newest = wanted.after.is_none();
    let messages = pages.commands.newest_messages(id, wanted).await?;
    let ticks = Wanted {
        after: None,
        most: TICKS,
    };
    let ticks = pages.commands.newest_ticks(id, ticks).await?;
    let sheet = Sheet {
        title: &agent.short,
        session: &session,
        busy: is_busy(&agent),
        told: at.told.and_then(|name| pages.sign_in.told(&session, &name)),
    };
    Ok(sheet.with(html! {
        (heading(&agent, &session))
        div.columns {
            section.talk aria-labelledby="talk-title" {
                h2.hidden #talk-title { "Conversation" }
                (talk(&agent, &messages, &session, is_newest))
                @if is_newest { (say(&agent, &session, "")) }
            }
            aside aria-labelledby="ticks-title" {
                h2 #ticks-title { "Ticks" }
                (beside(&agent, &ticks))
            }
        }
    }))
}

fn heading(agent: &AgentView, session: &Session) -> Markup {
    let at = address(agent.id);
    html! {
        div.heading #agent data-live data-parts {
            h1 #agent-name { "Agent " (agent.short) }
            p.mute #agent-about {
                (agent.profile) " · " (agent.sandbox)
                @if let Some(origin) = agent.forked_from {
                    " · fork of " a href=(address(origin)) { (origin.short()) }
                }
            }
            p #agent-state { (state(agent)) }
            div.row #agent-moves {
                @if agent.running.is_some() {
                    (press(session, &format!("{at}/stop"), "stop", "Stop", &[]))
                }
                @if agent.waiting > 0 {
                    (press(session, &format!("{at}/stop"), "stop-all", "Stop all, take back what waits", &[("all", "yes")]))
                }
                @if agent.ticks > 0 { a.button #undo href={ (at) "/rollback" } { "Undo last tick" } }
                a.button #fork href={ (at) "/fork" } { "Fork" }
            }
        }
    }
}

/// A button that does something at once.
fn press(session: &Session, to: &str, id: &str, name: &str, fields: &[(&str, &str)]) -> Markup {
    html! {
        form method="post" action=(to) {
            (key(session))
            @for (field, value) in fields { input type="hidden" name=(field) value=(value); }
            button id=(id) { (name) }
        }
    }
}

fn talk(
    agent: &AgentView,
    messages: &Page<MessageView>,
    session: &Session,
    is_newest: bool,
) -> Markup {
    let mut items: Vec<&MessageView> = messages.items.iter().collect();
    items.sort_by_key(|message| (message.seq, message.id));
    html! {
        @if let Some(next) = &messages.next {
            p { a href={ (address(agent.id)) "?older=" (next) } { "Earlier messages" } }
        }
        @if !is_newest { p { a href=(address(agent.id)) { "Newest messages" } } }
        ol.messages #talk data-live data-parts role="log" aria-live="polite" {
            @if items.is_empty() {
                li.empty #nothing-said { "Nothing was said yet. What you write below wakes the agent for one tick." }
            }
            @for message in items { (one(message, session)) }
        }
    }
}

fn one(message: &MessageView, session: &Session) -> Markup {
    html! {
        li #{ "m-" (message.id) } {
            div.said.person {
                p.who { (said(&message.author)) " · " (render::time(message.created_at)) }
                (text(&message.text))
                (files(message.files.iter().map(|file| (file.name.as_str(), file.size)), &format!("/messages/{}/received", message.id)))
            }
            (outcome(message, session))
        }
    }
}

fn outcome(message: &MessageView, session: &Session) -> Markup {
    let kind = match message.outcome {
        None => "open",
        Some(MessageOutcome::Answered) => "answer",
        Some(_) => "notice",
    };
    html! {
        div class={ "said " (kind) } {
            p.who {
                @match message.outcome {
                    Some(MessageOutcome::Answered) => "agent",
                    Some(outcome) => (outcome.as_str()),
                    None => span.dots { "on its way" },
                }
                @if let Some(tick) = message.tick {
                    " · " a href=(tick::address(tick)) { "tick " (tick.short()) }
                }
            }
            @if message.outcome.is_none() { p { (said(&render::state(message))) } }
            @if let Some(reply) = &message.reply {
                (text(&reply.text))
                (files(reply.files.iter().map(|file| (file.name.as_str(), file.size)), &format!("/messages/{}/files", message.id)))
            }
            @if let (None, Some(reason)) = (&message.reply, &message.reason) { p { (said(reason)) } }
            @if message.outcome == Some(MessageOutcome::Parked) {
                (press(session, &format!("/messages/{}/retry", message.id), &format!("retry-{}", message.id), "Try again", &[]))
            }
        }
    }
}

/// Each is a link to save it by.
fn files<'a>(files: impl ExactSizeIterator<Item = (&'a str, u64)>, at: &str) -> Markup {
    html! {
        @if files.len() > 0 {
            ul.files {
                @for (n, (name, size)) in files.enumerate() {
                    li {
                        a href={ (at) "/" (n) } download { (said_name(name)) }
                        " " span.mute { (render::bytes(size)) }
                    }
                }
            }
        }
    }
}

fn said_name(name: &str) -> String {
    said(&render::one_line(name, 200))
}

fn text(text: &str) -> Markup {
    let (shown, cut) = beginning(text, TEXT);
    html! {
        div.text dir="auto" { (said(shown)) }
        @if cut { p.mute { "… " (render::bytes((text.len() - shown.len()) as u64)) " more are not shown" } }
    }
}

/// The form's own key makes a second press the first one again.
fn say(agent: &AgentView, session: &Session, draft: &str) -> Markup {
    html! {
        form.say #say method="post" enctype="multipart/form-data" action={ (address(agent.id)) "/messages" } {
            (key(session))
            input type="hidden" name="once" value={ "page:" (MessageId::new()) };
            label for="text" { "Message to agent " (agent.short) }
            // A browser drops the first line end.
            textarea #text name="text" rows="3" dir="auto" aria-describedby="send-hint" { "\n" (draft) }
            div.row {
                button.primary #send { "Send" }
                label for="files" { "Files" }
                input #files type="file" name="files" multiple;
                span.mute #send-hint { span.scripted { "Ctrl + Enter sends" } }
                noscript { a href=(address(agent.id)) { "Look again for the answer" } }
            }
        }
    }
}

fn beside(agent: &AgentView, ticks: &Page<TickView>) -> Markup {
    html! {
        ol.ticks #ticks data-live data-parts {
            @if ticks.items.is_empty() { li.empty #no-ticks { "None yet: each message is one." } }
            @for tick in &ticks.items {
                li #{ "t-" (tick.id) } .past[!tick.in_head && tick.outcome.is_some()] {
                    (tick::line(tick))
                    @if agent.head_tick == Some(tick.id) { span.badge.here { "now here" } }
                    @if tick.state.as_deref() == Some("kept") {
                        span.row {
                            @if agent.head_tick != Some(tick.id) {
                                a href={ (tick::address(tick.id)) "/rollback" } aria-label={ "Roll back to tick " (tick.id.short()) } { "Roll back" }
                            }
                            a href={ (tick::address(tick.id)) "/fork" } aria-label={ "Fork at tick " (tick.id.short()) } { "Fork" }
                        }
                    }
                }
            }
            @if ticks.next.is_some() {
                li.mute #more-ticks { "Older ones: " code { "mayfly agent log " (agent.short) } }
            }
        }
    }
}

/// `GET /messages/ID/files/N`: a file that was sent in reply.
pub(super) async fn reply_file(
    State(pages): State<Pages>,
    Numbered(id, n): Numbered,
) -> Result<Response, Refused> {
    Ok(fetched(pages.commands.reply_file(id, n).await?))
}

/// `GET /messages/ID/received/N`: a file that came with a message.
pub(super) async fn attachment(
    State(pages): State<Pages>,
    Numbered(id, n): Numbered,
) -> Result<Response, Refused> {
    Ok(fetched(pages.commands.attachment(id, n).await?))
}

/// `POST /agents/ID/messages`.
pub(super) async fn send(
    State(pages): State<Pages>,
    Extension(session): Extension<Session>,
    Path(id): Path<String>,
    request: Request,
) -> Result<Response, Refused> {
    let agent = pages.commands.agent_to_change(&id).await?;
    let to = address(agent);
    let Said { text, once, files } = said::read(&pages, &session, request)
        .await
        .map_err(|refused| refused.back(to.clone()))?;
    let judged = match files.is_empty() {
        true => check_text(text.as_bytes()),
        false => check_caption(text.as_bytes()),
    };
    let sent = match judged {
        Ok(_) => {
            let send = Send {
                text: text.clone(),
                files,
                author: Author::local("page"),
                idempotency_key: once,
                sandbox: None,
            };
            let sent = pages.commands.send(agent, send).await;
            sent.map_err(Problem::from)
        }
        Err(error) => Err(error.into()),
    };
    let Err(problem) = sent else {
        return Ok(Redirect::to(&format!("{to}#say")).into_response());
    };
    let view = pages.commands.agent(agent).await?;
    let refused = Refused::from(problem).back(to);
    Err(refused.rest(say(&view, &session, &text)))
}
