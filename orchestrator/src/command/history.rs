//! What an agent did: its ticks, their evidence, what they changed, and the way back.

use std::collections::HashSet;

use mayfly_domain::{AgentId, BaseId, LayerId, SnapshotId, TickId};

use super::{Commands, RequestError, agents::busy, internal, not_found, only, suffix};
use crate::{
    agent::transcript,
    db::ticks::Tick,
    snapshot::{Change, ChangeKind, Slot},
    view::{ChangeView, DiffView, RollbackView, TickDetail, TickView, UsageView},
};

const TICKS_HINT: &str = ": `mayfly agent log AGENT` shows an agent's ticks";
/// Characters of a message shown as its tick's title.
const TITLE: usize = 120;

impl Commands {
    /// Finds a tick by id or unique suffix.
    pub async fn find_tick(&self, text: &str) -> Result<TickId, RequestError> {
        let digits = suffix("tick", text, TICKS_HINT)?;
        only(
            "tick",
            text,
            &self.db.ticks_ending(&digits).await?,
            TICKS_HINT,
        )
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

    /// One tick with its transcript.
    pub async fn tick(&self, id: TickId) -> Result<TickDetail, RequestError> {
        let tick = self
            .db
            .tick(id)
            .await?
            .ok_or_else(|| not_found("tick", id, TICKS_HINT))?;
        let head = self
            .db
            .agent(tick.agent)
            .await?
            .and_then(|agent| agent.head);
        let in_head = self.db.ancestry(head).await?.into_iter().collect();
        let path = transcript::path(&self.data_dir, tick.agent, id);
        let transcript = tokio::task::spawn_blocking(move || transcript::read(&path))
            .await
            .map_err(|panic| internal(&panic))?
            .map_err(|error| internal(&error))?;
        Ok(TickDetail {
            tick: self.tick_view(tick, &in_head).await?,
            transcript,
        })
    }

    /// What changed between two states; without ticks what the last tick changed, with one what
    /// that tick changed.
    pub async fn diff(
        &self,
        agent: AgentId,
        from: Option<TickId>,
        to: Option<TickId>,
    ) -> Result<DiffView, RequestError> {
        let row = self.row(agent).await?;
        let (before, after) = match (from, to) {
            (Some(from), Some(to)) => (
                Some(self.state_after(agent, from).await?),
                Some(self.state_after(agent, to).await?),
            ),
            (Some(tick), None) | (None, Some(tick)) => {
                let after = self.state_after(agent, tick).await?;
                (self.parent(Some(after)).await?, Some(after))
            }
            (None, None) => (self.parent(row.head).await?, row.head),
        };
        let (before, after) = (
            self.db.layers_of(before).await?,
            self.db.layers_of(after).await?,
        );
        let changes = self.compare(row.base, before, after).await?;
        Ok(DiffView {
            changes: changes.iter().map(change).collect(),
        })
    }

    /// Moves the head to the state after a tick of the agent's history; without one to the state
    /// before the last tick. Refused while a tick runs.
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
        if !self.db.move_head(agent, row.head, target).await? {
            return Err(busy(agent, "roll back"));
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

    async fn parent(&self, of: Option<SnapshotId>) -> Result<Option<SnapshotId>, RequestError> {
        let Some(of) = of else { return Ok(None) };
        Ok(self
            .db
            .snapshot(of)
            .await?
            .and_then(|snapshot| snapshot.parent))
    }

    async fn compare(
        &self,
        base: BaseId,
        from: Vec<LayerId>,
        to: Vec<LayerId>,
    ) -> Result<Vec<Change>, RequestError> {
        let store = self.store.clone();
        let compared = tokio::task::spawn_blocking(move || {
            store.diff_stat(&base, &from, &to, &Slot::defaults())
        });
        Ok(compared.await.map_err(|panic| internal(&panic))??)
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
            in_head: tick.after.is_some_and(|after| in_head.contains(&after)),
        })
    }
}

fn change(change: &Change) -> ChangeView {
    let kind = match change.kind {
        ChangeKind::Added => "added",
        ChangeKind::Removed => "removed",
        ChangeKind::Modified => "modified",
        ChangeKind::TypeChanged => "type",
        ChangeKind::ModeChanged => "mode",
    };
    ChangeView {
        path: String::from_utf8_lossy(&change.path).into_owned(),
        kind: kind.to_owned(),
        added: change.added_lines,
        removed: change.removed_lines,
        bytes_before: change.bytes_before,
        bytes_after: change.bytes_after,
    }
}
