//! What an export tells of its agent: rows of the database, in the archive's own form.

use std::collections::{HashMap, HashSet};

use mayfly_domain::{AgentId, MessageId, SnapshotId, TickId};

use super::{Commands, RequestError, export::ExportAs};
use crate::{
    db::{
        agents::Agent,
        portable::{PinnedStates, Settled},
        ticks::Tick,
    },
    snapshot::oci::{AgentRow, FORM, History, MessageRow, SnapshotRow, TickRow},
};

impl Commands {
    /// Everything that led to the pinned states, up to the tick `at`.
    pub(super) async fn history_of(
        &self,
        agent: &Agent,
        at: Option<TickId>,
        pinned: &PinnedStates,
        how: ExportAs,
    ) -> Result<History, RequestError> {
        let base = self.db.base(&agent.base).await?;
        let mut ticks = Vec::new();
        for state in &pinned.states {
            // Those of the agent that this one was forked from.
            if let Some(tick) = state.tick
                && let Some(tick) = self.db.tick(tick).await?
                && tick.agent != agent.id
            {
                ticks.push(tick);
            }
        }
        let own = self.db.ticks_of(agent.id).await?;
        let until = |tick: &Tick| at.is_none_or(|at| tick.id <= at);
        ticks.extend(own.into_iter().filter(until));
        let mut settled: HashMap<MessageId, Option<i64>> = HashMap::new();
        let mut order = Vec::new();
        let told: HashSet<MessageId> = ticks.iter().map(|tick| tick.message).collect();
        let mut owners: Vec<AgentId> = ticks.iter().map(|tick| tick.agent).collect();
        owners.push(agent.id);
        owners.dedup();
        for owner in owners {
            for Settled {
                id,
                at: when,
                first,
            } in self.db.settled(owner).await?
            {
                let whole = owner == agent.id && at.is_none();
                if (whole || told.contains(&first)) && settled.insert(id, when).is_none() {
                    order.push(id);
                }
            }
        }
        ticks.retain(|tick| settled.contains_key(&tick.message));
        let mut history = History {
            agent: AgentRow {
                form: FORM,
                id: agent.id,
                profile: agent.profile.clone(),
                sandbox: agent.sandbox.clone(),
                image: agent.image.clone(),
                uid: base.uid,
                gid: base.gid,
                base: how.with_base,
                created_at: agent.created_at,
            },
            snapshots: snapshots(pinned, how),
            messages: Vec::new(),
            ticks: Vec::new(),
            replies: Vec::new(),
        };
        for id in order {
            let Some(message) = self.db.message(id).await? else {
                continue;
            };
            let Some(outcome) = message.outcome else {
                continue;
            };
            history.messages.push(MessageRow {
                id,
                author: message.author,
                text: message.text,
                sandbox: message.sandbox,
                created_at: message.created_at,
                attempts: message.attempts,
                outcome,
                reason: message.reason,
                merged_into: message.merged_into,
                words_of: message.words_of,
                settled_at: settled.get(&id).copied().flatten(),
            });
            history.replies.extend(self.db.told(id).await?);
        }
        history.ticks = ticks.into_iter().filter_map(tick_row).collect();
        only_what_is_there(&mut history);
        Ok(history)
    }
}

fn snapshots(pinned: &PinnedStates, how: ExportAs) -> Vec<SnapshotRow> {
    let mut next = u32::from(how.with_base);
    let mut layer = || {
        next += 1;
        next - 1
    };
    let states = pinned.states.iter();
    states
        .map(|state| SnapshotRow {
            id: state.id,
            tick: state.tick,
            layer: state.layer.as_ref().map(|_| layer()),
            session: state.session.clone(),
            created_at: state.created_at,
        })
        .collect()
}

fn tick_row(tick: Tick) -> Option<TickRow> {
    Some(TickRow {
        id: tick.id,
        message: tick.message,
        retry_of: tick.retry_of,
        phase: tick.phase,
        outcome: tick.outcome?,
        changes: tick.changes,
        notice: tick.notice,
        exit_code: tick.exit_code,
        effects: tick.effects,
        before: tick.before,
        after: tick.after,
        image: tick.image,
        notes: tick.notes,
        phase_ms: tick.phase_ms,
        output_bytes: tick.output_bytes,
        layer_bytes: tick.layer_bytes,
        layer_inodes: tick.layer_inodes,
        started_at: tick.started_at,
        ended_at: tick.ended_at,
    })
}

/// References to states and ticks that do not travel are left out.
fn only_what_is_there(history: &mut History) {
    let states: HashSet<SnapshotId> = history.snapshots.iter().map(|row| row.id).collect();
    let there = |state: &mut Option<SnapshotId>| *state = state.filter(|id| states.contains(id));
    for row in &mut history.ticks {
        there(&mut row.before);
        there(&mut row.after);
    }
    let ticks: HashSet<TickId> = history.ticks.iter().map(|row| row.id).collect();
    let there = |tick: &mut Option<TickId>| *tick = tick.filter(|id| ticks.contains(id));
    for row in &mut history.ticks {
        there(&mut row.retry_of);
    }
    for row in &mut history.snapshots {
        there(&mut row.tick);
    }
    for row in &mut history.replies {
        there(&mut row.tick);
    }
}
