//! Messages.

use mayfly_domain::MessageOutcome;
use mayfly_orchestrator::view::{MessageView, PairedView};

use super::{one_line, table::table, time};
use crate::screen::Screen;

/// Where a message is, in a few words.
pub(crate) fn state(view: &MessageView) -> String {
    match (view.outcome, &view.progress, view.ahead) {
        (Some(outcome), ..) => outcome.as_str().to_owned(),
        (None, Some(progress), _) => one_line(progress, 120),
        (None, None, 0) => "waiting to start".to_owned(),
        (None, None, 1) => "waiting, 1 message before it".to_owned(),
        (None, None, ahead) => format!("waiting, {ahead} messages before it"),
    }
}

/// Why it, or its reply, waits for a person.
fn why(message: &MessageView) -> &str {
    let parked = message.outcome == Some(MessageOutcome::Parked);
    let reply = message.undelivered.as_deref().filter(|_| !parked);
    reply.or(message.reason.as_deref()).unwrap_or_default()
}

pub(crate) fn parked(messages: &[MessageView], screen: Screen) -> String {
    let row = |message: &MessageView| {
        [
            message.id.short(),
            message.agent.short(),
            time(message.created_at),
            message.attempts.to_string(),
            one_line(why(message), 60),
            one_line(&message.text, 40),
        ]
    };
    let rows: Vec<_> = messages.iter().map(row).collect();
    let head = ["MESSAGE", "AGENT", "WRITTEN", "ATTEMPTS", "REASON", "TEXT"];
    table(head, &rows, screen)
}

/// People who were let in.
pub(crate) fn paired(people: &[PairedView], screen: Screen) -> String {
    let row = |one: &PairedView| {
        [
            one.person.clone(),
            one_line(&one.name, 40),
            one.platform.clone(),
            time(one.since),
        ]
    };
    let rows: Vec<_> = people.iter().map(row).collect();
    table(["PERSON", "NAME", "PLATFORM", "SINCE"], &rows, screen)
}
