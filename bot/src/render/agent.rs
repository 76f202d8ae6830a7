//! Agents and what was done to them.

use mayfly_orchestrator::view::{
    AgentView, DiskView, GcView, RollbackView, StopView, UndeliveredView,
};

use super::{bytes, one_line, table::table, time};
use crate::screen::Screen;

pub(crate) fn agents(agents: &[AgentView], screen: Screen) -> String {
    let row = |agent: &AgentView| {
        [
            agent.short.clone(),
            agent.profile.clone(),
            agent.sandbox.clone(),
            time(agent.created_at),
            agent.ticks.to_string(),
            state(agent),
        ]
    };
    let rows: Vec<_> = agents.iter().map(row).collect();
    let head = ["AGENT", "PROFILE", "SANDBOX", "MADE", "TICKS", "STATE"];
    table(head, &rows, screen)
}

fn state(agent: &AgentView) -> String {
    let mut parts = Vec::new();
    match agent.running {
        Some(tick) => parts.push(format!("running {}", tick.short())),
        None => parts.push("idle".to_owned()),
    }
    if agent.waiting > 0 {
        parts.push(format!("{} waiting", agent.waiting));
    }
    if agent.parked > 0 {
        parts.push(format!("{} parked", agent.parked));
    }
    parts.join(", ")
}

pub(crate) fn agent(agent: &AgentView, screen: Screen) -> String {
    let none = || "none".to_owned();
    let head = match (agent.head, agent.head_tick) {
        (Some(_), Some(tick)) => format!("after tick {}", tick.short()),
        (Some(snapshot), None) => format!("snapshot {}", snapshot.short()),
        (None, _) => "the image's own files".to_owned(),
    };
    let origin = agent.forked_from.map_or_else(none, |agent| agent.short());
    let lines = [
        ("agent", screen.bold(&agent.id.to_string())),
        ("profile", agent.profile.clone()),
        ("sandbox", agent.sandbox.clone()),
        ("made", time(agent.created_at)),
        ("state", state(agent)),
        ("head", head),
        ("ticks", agent.ticks.to_string()),
        ("layers", agent.layers.to_string()),
        ("disk", agent.disk.map_or_else(none, disk)),
        ("forked from", origin),
    ];
    let line = |(name, value): &(&str, String)| format!("{name:12} {value}\n");
    let undelivered = agent.undelivered.iter().map(undelivered);
    lines.iter().map(line).chain(undelivered).collect()
}

fn undelivered(one: &UndeliveredView) -> String {
    let again = match one.message {
        Some(message) => format!("mayfly parked retry {}", message.short()),
        None => "`!retry` in its thread".to_owned(),
    };
    format!(
        "undelivered  {} \"{}\": {}; once that is mended: {again}\n",
        time(one.since),
        one_line(&one.title, 40),
        one_line(&one.reason, 300),
    )
}

fn disk(disk: DiskView) -> String {
    format!(
        "{} of its own, {} shared with other agents, {} of its image's base",
        bytes(disk.own_bytes),
        bytes(disk.shared_bytes),
        bytes(disk.base_bytes)
    )
}

/// One line; what is nothing is left out.
pub(crate) fn gc(view: &GcView) -> String {
    let parts = [
        (view.states, "state expired", "states expired"),
        (view.layers, "layer", "layers"),
        (view.blobs, "file", "files"),
        (view.bases, "base", "bases"),
        (view.images, "image archive", "image archives"),
    ];
    let parts = parts.iter().filter(|(count, ..)| *count > 0);
    let parts = parts.map(|(count, one, many)| match count {
        1 => format!("1 {one}"),
        count => format!("{count} {many}"),
    });
    let parts: Vec<String> = parts.collect();
    let verb = if view.dry_run {
        "would remove"
    } else {
        "removed"
    };
    match parts.is_empty() {
        true => format!("{verb} nothing"),
        false => format!("{verb} {}: {} on disk", parts.join(", "), bytes(view.bytes)),
    }
}

pub(crate) fn rollback(view: &RollbackView) -> String {
    let now = match view.to {
        Some(tick) => format!("the state after tick {}", tick.short()),
        None => "the state before its first tick".to_owned(),
    };
    let back = match view.left {
        Some(tick) => format!(
            "; forward again with: mayfly agent rollback {} {}",
            view.agent.short,
            tick.short()
        ),
        None => String::new(),
    };
    format!("agent {} has {now}{back}", view.agent.short)
}

pub(crate) fn stop(view: &StopView) -> String {
    let stopping = match view.stopping {
        Some(tick) => format!("tick {} is being ended", tick.short()),
        None => "nothing runs".to_owned(),
    };
    let withdrawn = match view.withdrawn.len() {
        0 => String::new(),
        1 => ", 1 message withdrawn".to_owned(),
        many => format!(", {many} messages withdrawn"),
    };
    let waiting = match view.waiting {
        0 => String::new(),
        1 => ", 1 message waits and will run: stop --all withdraws it".to_owned(),
        many => format!(", {many} messages wait and will run: stop --all withdraws them"),
    };
    format!("{stopping}{withdrawn}{waiting}")
}
