//! What a thread is told, in Markdown.

use mayfly_domain::{
    AgentId, MessageId, Reply, ReplyFile, TickId,
    chat::{Button, CallError},
};

use super::grammar::Order;
use crate::{
    db::{
        deliveries::Undelivered,
        orders::{Binding, Said},
    },
    snapshot::{Change, ChangeKind, Diff},
    view::{AgentView, TickView},
};

/// Most lines of a difference.
pub(super) const CHANGES: usize = 40;

pub(super) const NO_PLATFORM: &str = "This platform is not configured any more.";

/// In answer to a button that is forgotten.
pub(super) const STALE: &str = "That button is from too long ago, and what it stood for is not kept: say what you want instead.";

/// A text without buttons.
pub(crate) fn plain(text: impl Into<String>) -> Said {
    Said {
        reply: Reply {
            text: text.into(),
            files: Vec::new(),
        },
        ..Said::default()
    }
}

pub(super) fn interrupted() -> Said {
    plain("This command was cut in its middle and may have been done or not: `!history` shows it.")
}

pub(super) fn unknown() -> Said {
    plain("The database did not answer, so this may have been done or not: `!history` shows it.")
}

pub(super) fn help() -> Said {
    let lines = Order::all().into_iter();
    let lines: Vec<String> = lines
        .map(|(name, about)| format!("- `!{name}`: {about}"))
        .collect();
    plain(format!(
        "Everything else is for the agent. To Mayfly itself you can say:\n\n{}",
        lines.join("\n")
    ))
}

pub(super) fn status(
    agent: &AgentView,
    progress: Option<&str>,
    undelivered: &[Undelivered],
) -> Said {
    let now = match (agent.running, progress) {
        (Some(tick), Some(progress)) => format!("tick `{}` is at: {progress}", tick.short()),
        (Some(tick), None) => format!("tick `{}` runs", tick.short()),
        (None, _) => "nothing runs".to_owned(),
    };
    let mut lines = vec![format!(
        "Agent `{}` ({}): {now}.",
        agent.short, agent.profile
    )];
    if agent.waiting > 0 {
        lines.push(format!("{} waiting.", count(agent.waiting, "message")));
    }
    if agent.parked > 0 {
        lines.push(format!(
            "{} parked: `!retry` runs the newest again.",
            count(agent.parked, "message")
        ));
    }
    if let Some(newest) = undelivered.first() {
        lines.push(format!(
            "{} not delivered ({}): `!retry` sends them again.",
            count(undelivered.len() as u64, "text"),
            newest.reason
        ));
    }
    lines.push(format!(
        "{} so far{}.",
        count(agent.ticks, "tick"),
        agent
            .head_tick
            .map(|tick| format!(", the files are those after `{}`", tick.short()))
            .unwrap_or_default()
    ));
    plain(lines.join("\n"))
}

pub(super) fn history(ticks: &[TickView]) -> Said {
    if ticks.is_empty() {
        return plain("No tick yet.");
    }
    let line = |tick: &TickView| {
        let how = tick.outcome.map_or("runs".to_owned(), |outcome| {
            outcome.as_str().replace('_', " ")
        });
        let here = if tick.in_head { "" } else { " (left behind)" };
        format!("- `{}` {how}{here}: {}", tick.id.short(), code(&tick.title))
    };
    let lines: Vec<String> = ticks.iter().map(line).collect();
    plain(lines.join("\n"))
}

pub(super) fn diff(diff: &Diff) -> Said {
    if diff.changes.is_empty() {
        return plain("No file differs.");
    }
    let shown = diff.changes.iter().take(CHANGES).map(change);
    let mut lines: Vec<String> = shown.collect();
    let more = diff.changes.len().saturating_sub(CHANGES) as u64 + diff.more;
    if more > 0 {
        lines.push(format!("and {more} more"));
    }
    plain(format!("```\n{}\n```", lines.join("\n")))
}

fn change(change: &Change) -> String {
    let path = String::from_utf8_lossy(&change.path).replace("```", "'''");
    let mark = match change.kind {
        ChangeKind::Added => '+',
        ChangeKind::Removed => '-',
        ChangeKind::Modified | ChangeKind::TypeChanged | ChangeKind::ModeChanged => '~',
        ChangeKind::Renamed => '>',
    };
    format!("{mark} {path}")
}

pub(super) fn usage(ticks: &[TickView]) -> Said {
    let seconds: i64 = ticks
        .iter()
        .map(|tick| tick.usage.phase_ms.iter().sum::<i64>())
        .sum::<i64>()
        / 1000;
    let output: i64 = ticks.iter().map(|tick| tick.usage.output_bytes).sum();
    let layers: i64 = ticks.iter().map(|tick| tick.usage.layer_bytes).sum();
    plain(format!(
        "{}: {seconds} s of work, {} of output, {} of changed files.",
        count(ticks.len() as u64, "tick"),
        bytes(output),
        bytes(layers)
    ))
}

/// A file alone.
pub(super) fn file(file: ReplyFile) -> Said {
    Said {
        reply: Reply {
            text: String::new(),
            files: vec![file],
        },
        ..Said::default()
    }
}

/// Asks whether a file is there of which nobody can tell.
pub(crate) fn doubt(file: &ReplyFile) -> Said {
    let text = format!(
        "The file \"{}\" may not have arrived, and this platform cannot tell whether it did.",
        file.name
    );
    let again = Order::SendAgain { file: file.clone() };
    Said {
        buttons: vec![
            (button("Send again", false), again),
            (button("It is there", false), Order::Nothing),
        ],
        ..plain(text)
    }
}

/// What a person can choose where the newest files lie on a worker that does not answer.
pub(crate) fn choices(before: Option<TickId>, message: MessageId) -> Vec<(Button, Order)> {
    let message = message.to_string();
    let wait = Order::Wait {
        message: message.clone(),
    };
    let mut choices = vec![(button("Wait", false), wait)];
    if let Some(tick) = before {
        let label = format!("Go on from {}", tick.short());
        let tick = tick.to_string();
        choices.push((button(&label, true), Order::GoOn { tick, message }));
    }
    choices
}

/// What a fork's conversation is called.
pub(super) fn title(fork: AgentId) -> String {
    format!("Fork {}", fork.short())
}

pub(super) fn opened(bound: Binding, link: &str) -> Said {
    let goes_on = match link {
        "" => format!("in \"{}\"", title(bound.fork)),
        link => format!("here: {link}"),
    };
    let text = format!("Agent `{}` goes on {goes_on}", bound.fork.short());
    Said {
        binds: Some(bound),
        ..plain(text)
    }
}

/// Somebody began another conversation there before it was the fork's.
pub(crate) fn taken(fork: AgentId) -> Said {
    plain(format!(
        "Agent `{}` was made, but somebody began another conversation in its thread: it is reached \
         by command line, and `!fork` makes one more.",
        fork.short()
    ))
}

pub(super) fn unopened(fork: AgentId, error: &CallError) -> Said {
    plain(format!(
        "Agent `{}` was made, but it has no thread ({error}): it is reached by command line.",
        fork.short()
    ))
}

pub(super) fn not_opened_yet(fork: AgentId, asked_at: Option<i64>, error: &CallError) -> Said {
    let open = Order::Open { fork, asked_at };
    Said {
        buttons: vec![(button("Open it", false), open)],
        ..unopened(fork, error)
    }
}

pub(super) fn perhaps_opened(fork: AgentId) -> Said {
    let open = Order::Open {
        fork,
        asked_at: None,
    };
    let text = format!(
        "Agent `{}` was made, but this platform cannot tell whether its conversation was opened. If \
         \"{}\" stands here already, it does not lead to the agent: open it again.",
        fork.short(),
        title(fork)
    );
    Said {
        buttons: vec![(button("Open again", false), open)],
        ..plain(text)
    }
}

fn button(label: &str, danger: bool) -> Button {
    Button {
        id: uuid::Uuid::new_v4().simple().to_string(),
        label: label.to_owned(),
        danger,
    }
}

/// A question with yes and no.
pub(super) fn question(text: String, yes: &str, order: Order) -> Said {
    Said {
        buttons: vec![
            (button(yes, true), order),
            (button("Leave it", false), Order::Nothing),
        ],
        ..plain(text)
    }
}

pub(super) fn count(n: u64, what: &str) -> String {
    let s = if n == 1 { "" } else { "s" };
    format!("{n} {what}{s}")
}

fn bytes(n: i64) -> String {
    let n = n.max(0) as u64;
    match n {
        0..10_240 => format!("{n} bytes"),
        10_240..10_485_760 => format!("{} KiB", n / 1024),
        _ => format!("{} MiB", n >> 20),
    }
}

/// Text of a person as code, so that it is shown and not obeyed.
fn code(text: &str) -> String {
    format!("`{}`", text.replace('`', "'"))
}
