//! States as they are read: how two differ, what lies in one. Whatever is read is pinned meanwhile,
//! so no merge and no removal pulls a layer away.

use mayfly_domain::{AgentId, BaseId, LayerId, SnapshotId, TickId};

use super::{
    Commands, RequestError,
    agents::{gone, kept_nothing},
    internal, not_found,
};
use crate::{
    db::pins::Pinned,
    depot::DepotError,
    observe,
    snapshot::{Diff, DiffWanted, Listed, LookError, Looked, Slot},
};

impl Commands {
    /// What changed between two states; without ticks what the last tick changed, with one what
    /// that tick changed. Also between ticks of forks and what they were forked from.
    pub async fn diff(
        &self,
        agent: AgentId,
        from: Option<TickId>,
        to: Option<TickId>,
        wanted: DiffWanted,
    ) -> Result<Diff, RequestError> {
        let row = self.row(agent).await?;
        let (before, after) = match (from, to) {
            (Some(from), Some(to)) => (
                Some(self.state_of_kin(agent, from).await?),
                Some(self.state_of_kin(agent, to).await?),
            ),
            (Some(tick), None) | (None, Some(tick)) => {
                let after = self.state_of_kin(agent, tick).await?;
                (self.parent(Some(after)).await?, Some(after))
            }
            (None, None) => (self.parent(row.head).await?, row.head),
        };
        let pinned = self.pinned(agent, &[before, after]).await?;
        let store = self.store.clone();
        let compared = tokio::task::spawn_blocking(move || {
            let Pinned { states, pin } = pinned;
            let compared = store.diff(&states[0], &states[1], &Slot::defaults(), &wanted);
            drop(pin);
            compared
        });
        Ok(compared.await.map_err(|panic| internal(&panic))??)
    }

    /// What the state after a tick has at an absolute path; without a tick, the head.
    pub async fn look(
        &self,
        agent: AgentId,
        tick: Option<TickId>,
        path: Vec<u8>,
        listed: Listed,
    ) -> Result<Looked, RequestError> {
        let state = match tick {
            Some(tick) => Some(self.state_after(agent, tick).await?),
            None => self.row(agent).await?.head,
        };
        let pinned = self.pinned(agent, &[state]).await?;
        let store = self.store.clone();
        // An open file outlives its name: it needs no pin.
        let looked = tokio::task::spawn_blocking(move || {
            let Pinned { states, pin } = pinned;
            let looked = store.look(&states[0], &Slot::defaults(), &path, listed);
            drop(pin);
            looked
        });
        Ok(looked.await.map_err(|panic| internal(&panic))??)
    }

    pub(super) async fn parent(
        &self,
        of: Option<SnapshotId>,
    ) -> Result<Option<SnapshotId>, RequestError> {
        let Some(of) = of else { return Ok(None) };
        Ok(self
            .db
            .snapshot(of)
            .await?
            .and_then(|snapshot| snapshot.parent))
    }

    /// Brings here what another worker has made; it is pinned.
    pub(super) async fn bring(
        &self,
        base: &BaseId,
        layers: &[LayerId],
    ) -> Result<(), RequestError> {
        if self.depot.objects().is_none() || base.is_promised() {
            return Ok(());
        }
        let base = self.db.base(base).await?;
        let fetched = async {
            if !self.depot.fetch_base(&base).await? {
                let object = format!("base {}", base.id);
                return Err(DepotError::NotStored { object });
            }
            self.depot.fetch(layers).await
        };
        Ok(fetched.await?)
    }

    async fn pinned(
        &self,
        agent: AgentId,
        states: &[Option<SnapshotId>],
    ) -> Result<Pinned, RequestError> {
        match self.db.pin(agent, states).await? {
            Some(pinned) => {
                for state in &pinned.states {
                    self.bring(&state.base, &state.layers).await?;
                }
                Ok(pinned)
            }
            None => {
                let last = states.last().copied().flatten();
                let tick = match last {
                    Some(state) => self.db.tick_of(state).await?,
                    None => None,
                };
                Err(gone(agent, tick.filter(|_| states.len() == 1)))
            }
        }
    }

    /// As `state_after`, also for ticks of forks and of what this was forked from.
    async fn state_of_kin(&self, agent: AgentId, id: TickId) -> Result<SnapshotId, RequestError> {
        let tick = self.db.tick(id).await?;
        if let Some(tick) = tick
            && self.db.kin(agent).await?.contains(&tick.agent)
        {
            return tick.after.ok_or_else(|| kept_nothing(id));
        }
        let hint = format!(" of agent {}, its forks or its origin", agent.short());
        Err(not_found("tick", id, hint))
    }
}

impl From<DepotError> for RequestError {
    fn from(error: DepotError) -> Self {
        match error {
            DepotError::Db(error) => error.into(),
            DepotError::Store(error) => error.into(),
            DepotError::Panic(_) | DepotError::File { .. } => internal(&error),
            error => RequestError::Unavailable(observe::chain(&error)),
        }
    }
}

impl From<LookError> for RequestError {
    fn from(error: LookError) -> Self {
        match error {
            LookError::Store(error) => error.into(),
            LookError::Nothing { path } => not_found(
                "file",
                path,
                " in that state: `mayfly agent files AGENT [TICK]` shows what it has",
            ),
            LookError::Outside { path, slots } => {
                not_found("file", path, format!(": an agent's files lie in {slots}"))
            }
            LookError::NoFolder { path, what, hint } => {
                not_found("folder", path, format!(": it is {what}{hint}"))
            }
            LookError::NotInside { after, folder } => {
                let hint = format!(" in {folder}: leave it out for the first page");
                not_found("place to go on after", after, hint)
            }
            error @ LookError::NoPath { .. } => RequestError::Invalid(error.to_string()),
        }
    }
}
