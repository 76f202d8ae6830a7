//! Ticks and their transcripts.

use mayfly_orchestrator::{
    agent::transcript::{Event, Line},
    view::{TickDetail, TickView},
};

use super::{bytes, one_line, printable, span, table::table, time};
use crate::screen::Screen;

const PHASES: [&str; 5] = ["spawn", "scope", "run", "report", "commit"];

pub(crate) fn ticks(ticks: &[TickView], screen: Screen) -> String {
    let row = |tick: &TickView| {
        [
            match tick.in_head {
                true => "*".to_owned(),
                false => String::new(),
            },
            tick.id.short(),
            time(tick.started_at),
            lasted(tick),
            outcome(tick),
            one_line(&tick.title, 60),
        ]
    };
    let rows: Vec<_> = ticks.iter().map(row).collect();
    let head = ["", "TICK", "STARTED", "TOOK", "OUTCOME", "MESSAGE"];
    table(head, &rows, screen)
}

fn lasted(tick: &TickView) -> String {
    tick.ended_at
        .map_or_else(String::new, |end| span(end - tick.started_at))
}

pub(crate) fn outcome(tick: &TickView) -> String {
    match (tick.outcome, tick.changes) {
        (None, _) => format!("in {}", tick.phase),
        (Some(outcome), None) => outcome.as_str().to_owned(),
        (Some(outcome), Some(changes)) => {
            let expired = match tick.state.as_deref() {
                Some("expired") => ", state expired",
                _ => "",
            };
            format!(
                "{}, changes {}{expired}",
                outcome.as_str(),
                changes.as_str()
            )
        }
    }
}

pub(crate) fn tick(detail: &TickDetail, screen: Screen) -> String {
    let tick = &detail.tick;
    let mut lines = vec![
        ("tick", screen.bold(&tick.id.to_string())),
        ("agent", tick.agent.to_string()),
        ("message", one_line(&tick.title, 120)),
        ("outcome", outcome(tick)),
        ("started", time(tick.started_at)),
    ];
    if let Some(notice) = &tick.notice {
        lines.push(("notice", one_line(notice, 400)));
    }
    if let Some(code) = tick.exit_code {
        lines.push(("exit code", code.to_string()));
    }
    if let Some(first) = tick.retry_of {
        lines.push(("re-run of", first.short()));
    }
    if let Some(image) = &tick.image {
        lines.push(("image", image.clone()));
    }
    lines.push(("took", phases(tick)));
    lines.push(("output", bytes(tick.usage.output_bytes.max(0) as u64)));
    lines.push(("layer", layer(tick)));
    lines.extend(tick.notes.iter().map(|note| ("note", one_line(note, 400))));
    let line = |(name, value): &(&str, String)| format!("{name:12} {value}\n");
    let mut text: String = lines.iter().map(line).collect();
    text.push('\n');
    text.extend(
        detail
            .transcript
            .iter()
            .map(|line| transcript(line, screen)),
    );
    text
}

pub(crate) fn phases(tick: &TickView) -> String {
    let spent = PHASES.iter().zip(tick.usage.phase_ms);
    let parts: Vec<String> = spent
        .map(|(phase, ms)| format!("{phase} {}", span(ms)))
        .collect();
    parts.join(", ")
}

fn layer(tick: &TickView) -> String {
    let usage = &tick.usage;
    match usage.layer_inodes {
        0 => "none".to_owned(),
        inodes => format!("{inodes} files, {}", bytes(usage.layer_bytes.max(0) as u64)),
    }
}

fn transcript(line: &Line, screen: Screen) -> String {
    let (kind, text) = match &line.event {
        Event::Prompt { text } => ("prompt", printable(text)),
        Event::Received { path, size, .. } => {
            let told = format!("{path}, {}", bytes(*size));
            ("received", one_line(&told, 400))
        }
        Event::Started { argv } => ("started", one_line(&argv.join(" "), 400)),
        Event::Stdout { text } => ("stdout", printable(text)),
        Event::Stderr { text } => ("stderr", printable(text)),
        Event::Cut { bytes: count } => ("cut", format!("{} left out", bytes(*count))),
        Event::Asked { signal, reason } => ("asked", format!("{signal}: {reason}")),
        Event::Exit { code, signal } => ("exit", exit(*code, *signal)),
        Event::Note { text } => ("note", printable(text)),
        Event::Full => ("full", "the transcript's limit is reached".to_owned()),
    };
    let head = screen.dim(&format!("{:>5} {kind:8}", line.n));
    let lines: Vec<&str> = text.trim_end_matches('\n').split('\n').collect();
    format!("{head} {}\n", lines.join(&format!("\n{:15}", "")))
}

pub(crate) fn exit(code: Option<i32>, signal: Option<i32>) -> String {
    match (code, signal) {
        (Some(code), _) => format!("code {code}"),
        (None, Some(signal)) => format!("by signal {signal}"),
        (None, None) => "unknown".to_owned(),
    }
}
