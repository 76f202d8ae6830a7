//! What an agent did: its ticks, their evidence, the tree of its states, and the way back.

use std::collections::HashMap;

use mayfly_domain::{AgentId, SnapshotId, TickId};

use super::{
    Commands, RequestError,
    agents::{busy, gone},
    enough, internal, not_found, only, suffix,
};
use crate::{
    agent::transcript,
    db::{agents::Moved, shown::ShownTick, ticks::Tick},
    view::{
        GraphView, MoveView, NodeView, Page, RollbackView, TickDetail, TickView, UsageView, Wanted,
    },
};

const TICKS_HINT: &str = ": `mayfly agent log AGENT` shows an agent's ticks";
/// Characters of a message shown as its tick's title.
const TITLE: usize = 120;

impl Commands {
    /// Finds a tick by id or unique suffix.
    pub async fn find_tick(&self, text: &str) -> Result<TickId, RequestError> {
        let digits = suffix("tick", text, TICKS_HINT)?;
        let found = self.db.ticks_ending(&digits).await?;
        only("tick", text, &found, TICKS_HINT)
    }

    /// As [`Commands::find_tick`], for a state that is gone to: takes a few digits at least.
    pub async fn tick_to_go_to(&self, text: &str) -> Result<TickId, RequestError> {
        let found = self.find_tick(text).await?;
        enough("tick", text)?;
        Ok(found)
    }

    /// An agent's ticks, oldest first.
    pub async fn ticks(&self, agent: AgentId) -> Result<Vec<TickView>, RequestError> {
        let all = Wanted {
            after: None,
            most: i32::MAX as u32,
        };
        Ok(self.ticks_page(agent, all).await?.items)
    }

    /// A page of an agent's ticks, oldest first.
    pub async fn ticks_page(
        &self,
        agent: AgentId,
        wanted: Wanted<TickId>,
    ) -> Result<Page<TickView>, RequestError> {
        self.row(agent).await?;
        let most = wanted.most;
        let found = self.db.ticks_page(agent, wanted.after, most + 1).await?;
        Ok(Page::cut(found, most, |shown| shown.tick.id.to_string()).map(tick_view))
    }

    /// A page of an agent's ticks, newest first.
    pub async fn newest_ticks(
        &self,
        agent: AgentId,
        wanted: Wanted<TickId>,
    ) -> Result<Page<TickView>, RequestError> {
        self.row(agent).await?;
        let most = wanted.most;
        let found = self.db.newest_ticks(agent, wanted.after, most + 1).await?;
        Ok(Page::cut(found, most, |shown| shown.tick.id.to_string()).map(tick_view))
    }

    /// One tick with its transcript.
    pub async fn tick(&self, id: TickId) -> Result<TickDetail, RequestError> {
        let tick = self.tick_alone(id).await?;
        self.depot.fetch_transcript(tick.agent, id).await?;
        let path = transcript::path(&self.data_dir, tick.agent, id);
        let transcript = tokio::task::spawn_blocking(move || transcript::read(&path))
            .await
            .map_err(|panic| internal(&panic))?
            .map_err(|error| internal(&error))?;
        Ok(TickDetail { tick, transcript })
    }

    /// One tick without its transcript.
    pub async fn tick_alone(&self, id: TickId) -> Result<TickView, RequestError> {
        let shown = self.db.shown_tick(id).await?;
        let shown = shown.ok_or_else(|| not_found("tick", id, TICKS_HINT))?;
        Ok(tick_view(shown))
    }

    pub(super) async fn tick_row(&self, id: TickId) -> Result<Tick, RequestError> {
        let found = self.db.tick(id).await?;
        found.ok_or_else(|| not_found("tick", id, TICKS_HINT))
    }

    /// All states of an agent as a tree: also those left behind by rollbacks, and where forks
    /// begin. Ticks whose changes were not kept hang where they started.
    pub async fn graph(&self, agent: AgentId) -> Result<GraphView, RequestError> {
        let head = self.row(agent).await?.head;
        let ticks = self.db.ticks_of_history(agent).await?;
        let ticks: Vec<TickView> = ticks.into_iter().map(tick_view).collect();
        let made: HashMap<TickId, &TickView> = ticks.iter().map(|tick| (tick.id, tick)).collect();
        let mut nodes = Vec::new();
        for node in self.db.history(agent).await? {
            let tick = node.tick.and_then(|id| made.get(&id)).copied();
            let at = tick.map_or(node.created_at, |tick| tick.started_at);
            let node = NodeView {
                state: Some(node.id),
                parent: node.parent,
                kept: node.kept,
                tick: tick.cloned(),
            };
            nodes.push((at, node));
        }
        let own = ticks.iter().filter(|tick| tick.agent == agent);
        for tick in own.filter(|tick| tick.after.is_none()) {
            let node = NodeView {
                state: None,
                parent: tick.before,
                kept: false,
                tick: Some(tick.clone()),
            };
            let at = nodes.iter().position(|(at, _)| *at <= tick.started_at);
            nodes.insert(at.unwrap_or(nodes.len()), (tick.started_at, node));
        }
        let moves = self
            .db
            .moves(agent)
            .await?
            .into_iter()
            .map(|moved| MoveView {
                agent: moved.agent,
                at: moved.at,
                from: moved.from,
                to: moved.to,
                reason: moved.reason,
            });
        Ok(GraphView {
            agent,
            head,
            nodes: nodes.into_iter().map(|(_, node)| node).collect(),
            moves: moves.collect(),
        })
    }

    /// Moves the head to the state after a tick of the agent's history, also one left behind;
    /// without one to the state before the last tick. Refused while a tick runs. Files and session
    /// move together, as one state; what is left is remembered, transcripts stay, and messages that
    /// wait run on the new head.
    pub async fn rollback(
        &self,
        agent: AgentId,
        to: Option<TickId>,
    ) -> Result<RollbackView, RequestError> {
        let row = self.row(agent).await?;
        let target = match (to, row.head) {
            (Some(tick), _) => Some(self.state_after(agent, tick).await?),
            (None, Some(head)) => self.parent(Some(head)).await?,
            (None, None) => {
                return Err(RequestError::Conflict(format!(
                    "agent {} stands before its first tick: there is nothing to go back from",
                    agent.short()
                )));
            }
        };
        if target == row.head && self.db.open_tick(agent).await?.is_none() {
            return Err(RequestError::Conflict(format!(
                "agent {} has the state after that tick already: nothing was changed",
                agent.short()
            )));
        }
        match self.db.move_head(agent, row.head, target).await? {
            Moved::Done => {}
            Moved::Busy => return Err(self.busy_with(agent, "roll back").await?),
            Moved::Gone => return Err(gone(agent, to)),
            Moved::Elsewhere => {
                // Removed, or a tick or another rollback came first.
                let short = self.row(agent).await?.id.short();
                return Err(RequestError::Conflict(format!(
                    "the files of agent {short} have changed meanwhile: look at `mayfly agent log \
                     {short}`, then roll back"
                )));
            }
        }
        let tick_of = async |state: Option<SnapshotId>| match state {
            Some(state) => self.db.tick_of(state).await,
            None => Ok(None),
        };
        Ok(RollbackView {
            agent: self.agent(agent).await?,
            to: tick_of(target).await?,
            left: tick_of(row.head).await?,
        })
    }

    /// Who waits would run before a person could go on.
    async fn busy_with(&self, agent: AgentId, what: &str) -> Result<RequestError, RequestError> {
        let short = agent.short();
        Ok(match self.shown(agent).await?.waiting {
            0 => busy(agent, what),
            waiting => RequestError::Conflict(format!(
                "agent {short} has a running tick and {waiting} waiting: wait for them, or take \
                 them back with `mayfly agent stop --all {short}`, then {what}"
            )),
        })
    }
}

/// The first line of a text that begins so.
pub(super) fn title(begins: &str) -> String {
    let line = begins.trim().lines().next().unwrap_or_default();
    line.chars().take(TITLE).collect()
}

fn tick_view(shown: ShownTick) -> TickView {
    let ShownTick {
        tick,
        begins,
        expired,
        in_head,
    } = shown;
    TickView {
        id: tick.id,
        agent: tick.agent,
        message: tick.message,
        retry_of: tick.retry_of,
        phase: tick.phase,
        outcome: tick.outcome,
        changes: tick.changes,
        notice: tick.notice,
        exit_code: tick.exit_code.and_then(|code| i32::try_from(code).ok()),
        started_at: tick.started_at,
        ended_at: tick.ended_at,
        before: tick.before,
        after: tick.after,
        image: tick.image,
        notes: tick.notes,
        usage: UsageView {
            phase_ms: tick.phase_ms,
            output_bytes: tick.output_bytes,
            layer_bytes: tick.layer_bytes,
            layer_inodes: tick.layer_inodes,
        },
        title: title(&begins),
        state: tick.after.map(|_| match expired {
            true => "expired".to_owned(),
            false => "kept".to_owned(),
        }),
        in_head,
    }
}
