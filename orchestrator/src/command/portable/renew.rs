//! Other ids for everything an archive brings, where its own are in use here.

use std::collections::HashMap;

use mayfly_domain::{AgentId, MessageId, SnapshotId, TickId};

use crate::snapshot::oci::{History, ReplyRow};

/// Gives everything a new id, in the same order; answers the ticks' new ids.
pub(super) fn renew(history: &mut History) -> HashMap<TickId, TickId> {
    let snapshots = history
        .snapshots
        .iter()
        .map(|row| (row.id, SnapshotId::new()));
    let snapshots: HashMap<_, _> = snapshots.collect();
    let messages = history
        .messages
        .iter()
        .map(|row| (row.id, MessageId::new()));
    let messages: HashMap<_, _> = messages.collect();
    let mut ids: Vec<_> = history.ticks.iter().map(|row| row.id).collect();
    ids.sort();
    let ticks: HashMap<_, _> = ids.into_iter().map(|id| (id, TickId::new())).collect();
    let state = |id: Option<SnapshotId>| id.and_then(|id| snapshots.get(&id).copied());
    let tick = |id: Option<TickId>| id.and_then(|id| ticks.get(&id).copied());
    history.agent.id = AgentId::new();
    for row in &mut history.snapshots {
        row.id = snapshots[&row.id];
        row.tick = tick(row.tick);
    }
    for row in &mut history.messages {
        row.id = messages[&row.id];
        row.merged_into = row.merged_into.map(|first| messages[&first]);
    }
    for row in &mut history.ticks {
        row.id = ticks[&row.id];
        row.message = messages[&row.message];
        row.retry_of = tick(row.retry_of);
        row.before = state(row.before);
        row.after = state(row.after);
    }
    for row in &mut history.replies {
        let row: &mut ReplyRow = row;
        row.message = messages[&row.message];
        row.tick = tick(row.tick);
    }
    ticks
}
