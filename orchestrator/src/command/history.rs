//! What an agent did: its ticks, their evidence, the tree of its states, and the way back.

use std::collections::HashSet;

use mayfly_domain::{AgentId, SnapshotId, TickId};

use super::{
    Commands, RequestError,
    agents::{busy, gone},
    enough, internal, not_found, only, suffix,
};
use crate::{
    agent::transcript,
    db::{agents::Moved, ticks::Tick},
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
        let head = self.row(agent).await?.head;
        let in_head: HashSet<SnapshotId> = self.db.ancestry(head).await?.into_iter().collect();
        let mut views = Vec::new();
        for tick in self.db.ticks_of(agent).await? {
            views.push(self.tick_view(tick, &in_head).await?);
        }
        Ok(views)
    }

    /// A page of an agent's ticks, oldest first.
    pub async fn ticks_page(
        &self,
        agent: AgentId,
        wanted: Wanted<TickId>,
    ) -> Result<Page<TickView>, RequestError> {
        let head = self.row(agent).await?.head;
        let in_head = self.db.ancestry(head).await?.into_iter().collect();
        let most = wanted.most;
        let found = self.db.ticks_after(agent, wanted.after, most + 1).await?;
        let mut page = Page::cut(found, most, |tick| tick.id.to_string());
        let mut views = Vec::new();
        for tick in std::mem::take(&mut page.items) {
            views.push(self.tick_view(tick, &in_head).await?);
        }
        Ok(page.with(views))
    }

    /// A page of an agent's ticks, newest first.
    pub async fn newest_ticks(
        &self,
        agent: AgentId,
        wanted: Wanted<TickId>,
    ) -> Result<Page<TickView>, RequestError> {
        let head = self.row(agent).await?.head;
        let in_head = self.db.ancestry(head).await?.into_iter().collect();
        let most = wanted.most;
        let found = self.db.ticks_before(agent, wanted.after, most + 1).await?;
        let mut page = Page::cut(found, most, |tick| tick.id.to_string());
        let mut views = Vec::new();
        for tick in std::mem::take(&mut page.items) {
            views.push(self.tick_view(tick, &in_head).await?);
        }
        Ok(page.with(views))
    }

    /// One tick with its transcript.
    pub async fn tick(&self, id: TickId) -> Result<TickDetail, RequestError> {
        let tick = self.tick_alone(id).await?;
        let path = transcript::path(&self.data_dir, tick.agent, id);
        let transcript = tokio::task::spawn_blocking(move || transcript::read(&path))
            .await
            .map_err(|panic| internal(&panic))?
            .map_err(|error| internal(&error))?;
        Ok(TickDetail { tick, transcript })
    }

    /// One tick without its transcript.
    pub async fn tick_alone(&self, id: TickId) -> Result<TickView, RequestError> {
        let tick = self.tick_row(id).await?;
        let agent = self.db.agent(tick.agent).await?;
        let head = agent.and_then(|agent| agent.head);
        let in_head = self.db.ancestry(head).await?.into_iter().collect();
        self.tick_view(tick, &in_head).await
    }

    pub(super) async fn tick_row(&self, id: TickId) -> Result<Tick, RequestError> {
        let found = self.db.tick(id).await?;
        found.ok_or_else(|| not_found("tick", id, TICKS_HINT))
    }

    /// All states of an agent as a tree: also those left behind by rollbacks, and where forks
    /// begin. Ticks whose changes were not kept hang where they started.
    pub async fn graph(&self, agent: AgentId) -> Result<GraphView, RequestError> {
        let head = self.row(agent).await?.head;
        let in_head: HashSet<SnapshotId> = self.db.ancestry(head).await?.into_iter().collect();
        let mut nodes = Vec::new();
        for node in self.db.history(agent).await? {
            let tick = match node.tick {
                Some(id) => self.db.tick(id).await?,
                None => None,
            };
            let tick = match tick {
                Some(tick) => Some(self.tick_view(tick, &in_head).await?),
                None => None,
            };
            let at = tick
                .as_ref()
                .map_or(node.created_at, |tick| tick.started_at);
            let node = NodeView {
                state: Some(node.id),
                parent: node.parent,
                kept: node.kept,
                tick,
            };
            nodes.push((at, node));
        }
        for tick in self.db.ticks_of(agent).await? {
            if tick.after.is_none() {
                let node = NodeView {
                    state: None,
                    parent: tick.before,
                    kept: false,
                    tick: Some(self.tick_view(tick.clone(), &in_head).await?),
                };
                let at = nodes.iter().position(|(at, _)| *at <= tick.started_at);
                nodes.insert(at.unwrap_or(nodes.len()), (tick.started_at, node));
            }
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
        Ok(match self.db.counts(agent).await?.waiting {
            0 => busy(agent, what),
            waiting => RequestError::Conflict(format!(
                "agent {short} has a running tick and {waiting} waiting: wait for them, or take \
                 them back with `mayfly agent stop --all {short}`, then {what}"
            )),
        })
    }

    async fn tick_view(
        &self,
        tick: Tick,
        in_head: &HashSet<SnapshotId>,
    ) -> Result<TickView, RequestError> {
        let message = self.db.message(tick.message).await?;
        let text = message.map(|message| message.text).unwrap_or_default();
        let title = text
            .trim()
            .lines()
            .next()
            .unwrap_or_default()
            .chars()
            .take(TITLE)
            .collect();
        Ok(TickView {
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
            title,
            state: match tick.after {
                Some(state) if self.db.is_expired(state).await? => Some("expired".to_owned()),
                Some(_) => Some("kept".to_owned()),
                None => None,
            },
            in_head: tick.after.is_some_and(|after| in_head.contains(&after)),
        })
    }
}
