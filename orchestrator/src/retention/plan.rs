//! Which states stay, which layers they need, and what can go: no clock, no files, no database.
//!
//! A layer is needed where a kept state is found by walking from it towards the base; a merged
//! layer ends that walk, because it stands for all that is below. What an open tick has mounted and
//! what readers pin is needed whatever the walk says.

use std::collections::{HashMap, HashSet};

use mayfly_domain::{AgentId, LayerId, SnapshotId};

use super::Retention;
use crate::snapshot::merging::MERGE_FROM;

/// An agent that was idle for so long is merged for its bytes' sake; a busy one is anyway.
const IDLE_MS: i64 = 60 * 60 * 1000;
/// Less than this below the oldest kept state is not worth a merge.
const WORTH: u64 = 16 << 20;
const WORTH_WHEN_IDLE: u64 = 1 << 20;

/// One state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    /// Its id.
    pub id: SnapshotId,
    /// Whose tick made it.
    pub agent: AgentId,
    /// The state before.
    pub parent: Option<SnapshotId>,
    /// What its tick changed; none where it changed nothing.
    pub layer: Option<LayerId>,
    /// None where that layer is forgotten.
    pub layer_bytes: Option<u64>,
    /// Stands for the whole chain.
    pub merged: Option<LayerId>,
    /// All it holds, files shared with other layers too.
    pub merged_bytes: Option<u64>,
    /// Unix ms.
    pub created_at: i64,
    /// It cannot be gone back to.
    pub expired: bool,
}

/// An agent that is not removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Which.
    pub agent: AgentId,
    /// Its profile's name.
    pub profile: String,
    /// Where its next tick starts.
    pub head: Option<SnapshotId>,
    /// Where its head was moved from and to.
    pub left: Vec<SnapshotId>,
    /// Unix ms.
    pub last_tick: i64,
}

/// Agents that may share layers.
#[derive(Debug, Clone, Default)]
pub struct Family {
    /// Those that are not removed.
    pub members: Vec<Member>,
    /// All that a kept state may stand on.
    pub states: HashMap<SnapshotId, State>,
    /// Where ticks started whose sandboxes are not proved to be gone.
    pub before: HashSet<SnapshotId>,
    /// Layers that are mounted or read.
    pub pinned: HashSet<LayerId>,
    /// Something is mounted and no row says what.
    pub unknown_mounts: bool,
}

/// What is to be done; empty lists mean nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// States that cannot be gone back to any more.
    pub expire: Vec<SnapshotId>,
    /// Expired states that no kept one stands on.
    pub gone: Vec<SnapshotId>,
    /// Layers that nothing needs.
    pub forget: Vec<LayerId>,
    /// States whose chains hold much that only expired states need: merged, it can go.
    pub merge: Vec<SnapshotId>,
}

impl Plan {
    /// Whether rows would change.
    pub fn is_empty(&self) -> bool {
        self.expire.is_empty() && self.gone.is_empty() && self.forget.is_empty()
    }
}

impl Family {
    /// Adds one state.
    pub fn add(&mut self, state: State) {
        self.states.insert(state.id, state);
    }

    /// What may go, by each member's rule; a member without one keeps everything.
    pub fn plan(&self, rule: impl Fn(&Member) -> Option<Retention>, now: i64) -> Plan {
        let mut keep: HashSet<SnapshotId> = self.before.clone();
        for member in &self.members {
            keep.extend(self.kept_by(member, rule(member), now));
        }
        let mut plan = Plan::default();
        let expire = self
            .states
            .values()
            .filter(|state| !state.expired && !keep.contains(&state.id));
        plan.expire = expire.map(|state| state.id).collect();
        let walked = self.walk(&keep);
        if walked.broken || self.unknown_mounts {
            // Better too much on disk than a hole in a state.
            return plan;
        }
        let needed = |layer: &LayerId| walked.layers.contains(layer) || self.pinned.contains(layer);
        for state in self.states.values() {
            let there = [
                state.layer.as_ref().filter(|_| state.layer_bytes.is_some()),
                state.merged.as_ref(),
            ];
            let mut all = true;
            for layer in there.into_iter().flatten() {
                match needed(layer) {
                    true => all = false,
                    false => plan.forget.push(layer.clone()),
                }
            }
            if all && !keep.contains(&state.id) && !walked.states.contains(&state.id) {
                plan.gone.push(state.id);
            }
        }
        for member in &self.members {
            plan.merge.extend(self.worth_merging(member, &keep, now));
        }
        plan.merge.sort();
        plan.merge.dedup();
        plan.expire.sort();
        plan.gone.sort();
        plan.forget.sort();
        plan
    }

    /// What an agent's kept states take on disk, by rows: what only it needs, and what other
    /// agents need too.
    pub fn disk_of(&self, agent: AgentId) -> (u64, u64) {
        let need = |ours: bool| {
            let mut keep = HashSet::new();
            let members = self.members.iter();
            for member in members.filter(|member| (member.agent == agent) == ours) {
                keep.extend(self.kept_by(member, None, 0));
            }
            self.walk(&keep).layers
        };
        let (mine, others) = (need(true), need(false));
        let (mut own, mut shared) = (0, 0);
        for state in self.states.values() {
            let bytes = [
                (state.layer.as_ref(), state.layer_bytes.unwrap_or(0)),
                (state.merged.as_ref(), self.beyond_its_sources(state)),
            ];
            for (layer, bytes) in bytes {
                match layer {
                    Some(layer) if mine.contains(layer) && others.contains(layer) => {
                        shared += bytes
                    }
                    Some(layer) if mine.contains(layer) => own += bytes,
                    _ => {}
                }
            }
        }
        (own, shared)
    }

    fn kept_by(&self, member: &Member, rule: Option<Retention>, now: i64) -> Vec<SnapshotId> {
        let mut reach: HashSet<SnapshotId> = self
            .states
            .values()
            .filter(|state| state.agent == member.agent)
            .map(|state| state.id)
            .collect();
        for from in member.head.iter().chain(&member.left) {
            let mut at = Some(*from);
            while let Some(state) = at.and_then(|id| self.states.get(&id)) {
                reach.insert(state.id);
                at = state.parent;
            }
        }
        let mut states: Vec<&State> = reach.iter().map(|id| &self.states[id]).collect();
        states.retain(|state| !state.expired && Some(state.id) != member.head);
        states.sort_by_key(|state| std::cmp::Reverse((state.created_at, state.id)));
        let head = member.head.and_then(|head| self.states.get(&head));
        let Some(rule) = rule else {
            return head.into_iter().chain(states).map(|s| s.id).collect();
        };
        let mut kept = Vec::new();
        let mut bytes = 0;
        for (state, is_head) in head
            .map(|state| (state, true))
            .into_iter()
            .chain(states.into_iter().map(|state| (state, false)))
        {
            bytes += state.layer_bytes.unwrap_or(0);
            if !is_head && !rule.keeps(kept.len(), now - state.created_at, bytes) {
                break;
            }
            kept.push(state.id);
        }
        kept
    }

    fn walk(&self, keep: &HashSet<SnapshotId>) -> Walked {
        let mut walked = Walked::default();
        let mut next: Vec<SnapshotId> = keep.iter().copied().collect();
        while let Some(id) = next.pop() {
            let Some(state) = self.states.get(&id) else {
                tracing::error!(snapshot = %id, "a state is missing below a kept one");
                walked.broken = true;
                continue;
            };
            if !walked.states.insert(id) {
                continue;
            }
            match &state.merged {
                Some(merged) => {
                    walked.layers.insert(merged.clone());
                }
                None => {
                    walked.layers.extend(state.layer.clone());
                    next.extend(state.parent);
                }
            }
            // What the tick of a kept state changed can be read without its merged form. It costs
            // folders only: the merged form links the same files.
            if keep.contains(&id) {
                walked.layers.extend(state.layer.clone());
            }
        }
        walked
    }

    /// The oldest kept state below the head, if the chain under it is worth merging.
    fn worth_merging(
        &self,
        member: &Member,
        keep: &HashSet<SnapshotId>,
        now: i64,
    ) -> Option<SnapshotId> {
        let mut at = self.states.get(&member.head?)?;
        let mut kept = 0;
        loop {
            if at.merged.is_some() {
                return None;
            }
            kept += at.layer_bytes.unwrap_or(0);
            let parent = self.states.get(&at.parent?)?;
            if !keep.contains(&parent.id) {
                break;
            }
            at = parent;
        }
        let oldest = at.id;
        let (mut layers, mut bytes) = (0, 0);
        let mut below = at.parent;
        while let Some(state) = below.and_then(|id| self.states.get(&id)) {
            if let Some(merged) = state.merged_bytes {
                layers += 1;
                bytes += merged / 8;
                break;
            }
            if state.layer.is_some() {
                layers += 1;
                bytes += state.layer_bytes.unwrap_or(0);
            }
            below = state.parent;
        }
        let idle = now - member.last_tick > IDLE_MS;
        let worth = match idle {
            true => WORTH_WHEN_IDLE,
            false => WORTH.max(kept / 4),
        };
        (layers > 0 && (layers + 1 >= MERGE_FROM || bytes >= worth)).then_some(oldest)
    }

    /// A merged layer links the files of its sources: what these have is counted with them.
    fn beyond_its_sources(&self, state: &State) -> u64 {
        let Some(merged) = state.merged_bytes else {
            return 0;
        };
        let mut sources = state.layer_bytes.unwrap_or(0);
        let mut below = state.parent;
        while let Some(state) = below.and_then(|id| self.states.get(&id)) {
            if let Some(bytes) = state.merged_bytes {
                sources += bytes;
                break;
            }
            sources += state.layer_bytes.unwrap_or(0);
            below = state.parent;
        }
        merged.saturating_sub(sources)
    }
}

#[derive(Default)]
struct Walked {
    states: HashSet<SnapshotId>,
    layers: HashSet<LayerId>,
    broken: bool,
}

#[cfg(test)]
mod tests;
