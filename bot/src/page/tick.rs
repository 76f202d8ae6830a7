//! One tick: how it ended, what it took, what it changed, what was written down.

use axum::{
    Extension,
    extract::{Path, State},
};
use maud::{Markup, html};
use mayfly_domain::TickId;
use mayfly_orchestrator::{
    agent::transcript::{Event, Line},
    command::RequestError,
    snapshot::{Diff, DiffWanted},
    tick::outcome::TickOutcome,
    view::TickView,
};

use super::{
    Pages, agents, diff,
    layout::{Refused, Sheet},
    sign_in::Session,
    text::{beginning, said},
};
use crate::render;

/// Lines of a transcript on a page, and bytes of all of them.
const LINES: usize = 500;
const BYTES: usize = 256 << 10;
/// Changes on a page; the others are counted.
const CHANGES: usize = 300;

/// A tick's own page.
pub(super) fn address(tick: TickId) -> String {
    format!("/ticks/{tick}")
}

/// A tick in a list.
pub(super) fn line(tick: &TickView) -> Markup {
    html! {
        a.line href=(address(tick.id)) { (badge(tick)) " " (said(&render::one_line(&tick.title, 60))) }
        span.mute {
            (tick.id.short())
            @if let Some(ended) = tick.ended_at { " · " (render::span(ended - tick.started_at)) }
            @if let Some(kept) = kept(tick) { " · " (kept) }
        }
    }
}

fn badge(tick: &TickView) -> Markup {
    let (class, word) = match tick.outcome {
        None => ("run", tick.phase.as_str()),
        Some(TickOutcome::Done) => ("good", "done"),
        Some(outcome) => ("bad", outcome.as_str()),
    };
    html! { span class={ "badge " (class) } { (word.replace('_', " ")) } }
}

/// What it left on disk.
fn kept(tick: &TickView) -> Option<String> {
    let usage = &tick.usage;
    let bytes = render::bytes(usage.layer_bytes.max(0) as u64);
    match usage.layer_inodes {
        0 => None,
        1 => Some(format!("1 file, {bytes}")),
        files => Some(format!("{files} files, {bytes}")),
    }
}

/// `GET /ticks/ID`.
pub(super) async fn show(
    State(pages): State<Pages>,
    Extension(session): Extension<Session>,
    Path(id): Path<String>,
) -> Result<Markup, Refused> {
    let id = pages.commands.find_tick(&id).await?;
    let detail = pages.commands.tick(id).await?;
    let tick = &detail.tick;
    let changes = match tick.after {
        Some(_) => Some(changes(&pages, tick).await),
        None => None,
    };
    let agent = pages.commands.agent(tick.agent).await?;
    let is_head = agent.head_tick == Some(id);
    let is_open = tick.outcome.is_none();
    let title = format!("Tick {}", id.short());
    let sheet = Sheet {
        title: &title,
        session: &session,
        busy: is_open,
        told: None,
    };
    Ok(sheet.with(html! {
        p { a href=(agents::address(tick.agent)) { "Agent " (tick.agent.short()) } }
        div.heading #tick data-live[is_open] {
            h1 { (title) }
            p { (badge(tick)) @if is_head { " " span.badge.here { "now here" } } }
            @if tick.state.as_deref() == Some("kept") {
                div.row {
                    @if !is_head { a.button href={ (address(id)) "/rollback" } { "Roll back to here" } }
                    a.button href={ (address(id)) "/fork" } { "Fork here" }
                }
            }
        }
        section aria-label="About" #about data-live[is_open] { (about(tick)) }
        section #changes data-live[is_open] {
            h2 { "What it changed" }
            @match &changes {
                None => p.mute { "It kept no changes." },
                Some(Err(error)) => p.refused { (said(&error.to_string())) },
                Some(Ok(diff)) => (diff::show(diff, tick)),
            }
        }
        section #transcript data-live[is_open] {
            h2 { "Transcript" }
            (transcript(&detail.transcript, tick))
        }
    }))
}

async fn changes(pages: &Pages, tick: &TickView) -> Result<Diff, RequestError> {
    let wanted = DiffWanted {
        most: CHANGES,
        renames: true,
        text: true,
    };
    let to = Some(tick.id);
    pages.commands.diff(tick.agent, None, to, wanted).await
}

fn about(tick: &TickView) -> Markup {
    let usage = &tick.usage;
    let took = tick.ended_at.map(|ended| ended - tick.started_at);
    let rows = [
        ("message", Some(render::one_line(&tick.title, 120))),
        ("outcome", Some(render::outcome(tick).replace('_', " "))),
        ("notice", tick.notice.clone()),
        ("exit code", tick.exit_code.map(|code| code.to_string())),
        ("started", Some(render::time(tick.started_at))),
        ("took", took.map(render::span)),
        ("of which", took.map(|_| render::phases(tick))),
        (
            "printed",
            Some(render::bytes(usage.output_bytes.max(0) as u64)),
        ),
        (
            "left on disk",
            Some(kept(tick).unwrap_or_else(|| "nothing".to_owned())),
        ),
        ("image", tick.image.clone()),
    ];
    html! {
        dl {
            @for (name, value) in &rows {
                @if let Some(value) = value { dt { (name) } dd { (said(value)) } }
            }
            @if let Some(first) = tick.retry_of {
                dt { "re-run of" } dd { a href=(address(first)) { (first.short()) } }
            }
            @for note in &tick.notes { dt { "note" } dd { (said(note)) } }
        }
    }
}

fn transcript(lines: &[Line], tick: &TickView) -> Markup {
    let mut room = BYTES;
    let mut items = Vec::new();
    for line in lines.iter().take(LINES) {
        let text = written(&line.event);
        let (shown, cut) = beginning(text.trim_end_matches('\n'), room);
        room -= shown.len();
        items.push(html! {
            li class=(line.event.kind()) {
                span.kind { (line.event.kind()) }
                pre dir="auto" { (said(shown)) @if cut { "…" } }
            }
        });
        if cut {
            break;
        }
    }
    html! {
        ol.transcript { @for item in &items { (item) } }
        @if items.len() < lines.len() || room == 0 {
            p.mute { "All of it: " code { "mayfly tick show " (tick.id.short()) } }
        }
    }
}

fn written(event: &Event) -> String {
    match event {
        Event::Prompt { text }
        | Event::Stdout { text }
        | Event::Stderr { text }
        | Event::Note { text } => text.clone(),
        Event::Received { path, size, .. } => format!("{path}, {}", render::bytes(*size)),
        Event::Started { argv } => argv.join(" "),
        Event::Cut { bytes } => format!("{} left out", render::bytes(*bytes)),
        Event::Asked { signal, reason } => format!("{signal}: {reason}"),
        Event::Exit { code, signal } => render::exit(*code, *signal),
        Event::Full => "the transcript's limit is reached".to_owned(),
    }
}
