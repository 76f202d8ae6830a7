//! The seam `Queue`: one lane per agent, fair over users and lanes, with wake-ups and delayed retries.
//!
//! A queue only says who might have work. Whatever it says, loses or repeats, the claim in the
//! database decides, and a reconciler refills it. What is offered to it is looked up by [`Lanes`].

mod lanes;
pub mod local;
pub mod redis;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use mayfly_domain::{AgentId, InstallationId};
use serde::{Deserialize, Serialize};

pub use lanes::Lanes;
pub use local::Local;
pub use redis::Redis;

use crate::{db::workers::QueueKind, worker::Identity};

/// Deadline up to which a tick counts as short.
const SHORT: Duration = Duration::from_secs(5 * 60);

/// Takers that died with a lane, one after the other, until it is put aside. Far above a message's own
/// attempts, which the database counts from the claim on: this is for what dies before it.
pub const DEATHS: u32 = 10;

/// Where the queue is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct QueueConfig {
    /// `redis://`, `rediss://` or `redis+unix://`; in this process if empty.
    pub url: String,
}

impl QueueConfig {
    /// Whether the address can be one; the error does not hold it.
    pub fn check(&self) -> Result<(), QueueError> {
        match self.url.as_str() {
            "" => Ok(()),
            url => redis::client(url).map(drop),
        }
    }

    /// Who keeps it.
    pub fn kind(&self) -> QueueKind {
        match self.url.as_str() {
            "" => QueueKind::Local,
            _ => QueueKind::Shared,
        }
    }

    /// The queue of an installation, for this start of a worker.
    pub fn open(
        &self,
        installation: InstallationId,
        identity: &Identity,
    ) -> Result<Arc<dyn Queue>, QueueError> {
        Ok(match self.url.as_str() {
            "" => Arc::new(Local::default()),
            url => Arc::new(Redis::open(
                url,
                &installation.to_string(),
                identity.clone(),
            )?),
        })
    }
}

/// How long a tick may take. Some of the running places are kept for short ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// At most 5 minutes.
    Short,
    /// Longer.
    Long,
}

impl Length {
    /// Of ticks with this deadline.
    pub fn of(deadline: Duration) -> Length {
        match deadline <= SHORT {
            true => Length::Short,
            false => Length::Long,
        }
    }
}

/// A lane and whose turn it uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Work {
    /// Whose message waits.
    pub lane: AgentId,
    /// Who wrote it: users take turns, and so do the lanes of one user.
    pub user: String,
    /// The agent's profile.
    pub profile: String,
    /// How long its tick may take.
    pub length: Length,
}

/// This lane has, or will have after the delay, a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// The lane.
    pub work: Work,
    /// From now on.
    pub delay: Duration,
}

/// What a worker has a place for, and how much may run on all workers together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Room {
    /// False where only a place for short ticks is free.
    pub long: bool,
    /// Lanes of one user at once; no limit if none.
    pub per_user: Option<u32>,
    /// Lanes of one profile at once; no limit where it is not named.
    pub per_profile: BTreeMap<String, u32>,
}

impl Room {
    /// For anything.
    pub fn for_all() -> Room {
        Room {
            long: true,
            per_user: None,
            per_profile: BTreeMap::new(),
        }
    }
}

/// Why the queue does not answer. `Display` is one sentence for a person.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct QueueError(pub String);

/// Lanes of agents that may have something to run.
#[async_trait]
pub trait Queue: Send + Sync + 'static {
    /// These lanes have work. Repeats are harmless: a lane stands in the queue once.
    async fn offer(&self, offers: &[Offer]) -> Result<(), QueueError>;

    /// Waits for a lane there is room for and takes it: nobody else gets it before [`Queue::done`].
    /// Nothing is lost where the future is dropped: the next call answers the same.
    async fn take(&self, room: &Room) -> Result<Work, QueueError>;

    /// Gives a lane back. With `again` it is looked at after that delay, and not before; else at once
    /// if it was offered meanwhile.
    async fn done(&self, lane: AgentId, again: Option<Offer>) -> Result<(), QueueError>;

    /// Says that this process still works on what it took; wanted every [`BEAT`].
    async fn beat(&self) -> Result<(), QueueError>;

    /// Gives back what a dropped [`Queue::take`] may have taken.
    async fn leave(&self) -> Result<(), QueueError>;

    /// How many lanes stand before this one; none if it is not waiting.
    async fn place(&self, lane: AgentId) -> Result<Option<usize>, QueueError>;

    /// Lanes put aside because [`DEATHS`] takers died with them.
    async fn dead(&self) -> Result<Vec<AgentId>, QueueError>;

    /// A lane that was put aside may be offered again; false if it was not, or not any more.
    async fn forgive(&self, lane: AgentId) -> Result<bool, QueueError>;

    /// Whether it is this process's turn to offer all lanes with work. Of all that ask one has it, for [`TURN`]
    /// or until [`Queue::rest`] says otherwise; whoever asks a queue that lost all it knew has it at once.
    async fn turn(&self) -> Result<bool, QueueError>;

    /// Whoever has the turn is not through yet, or is: for so long nobody gets it.
    async fn rest(&self, rest: Rest) -> Result<(), QueueError>;
}

/// Between two [`Queue::beat`]s.
pub const BEAT: Duration = Duration::from_secs(5);

/// How long a turn to offer all lanes holds when nothing more is heard of whoever has it.
pub const TURN: Duration = Duration::from_secs(2);
/// From the end of such a turn until the next.
pub const ROUND: Duration = Duration::from_secs(4);

/// For how long nobody gets the turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rest {
    /// Whoever has it goes on.
    Turn,
    /// All lanes were offered.
    Round,
    /// Whoever has it cannot use it: the next that asks has it.
    Over,
}

impl Rest {
    /// From when it is said.
    pub fn duration(self) -> Duration {
        match self {
            Rest::Turn => TURN,
            Rest::Round => ROUND,
            Rest::Over => Duration::ZERO,
        }
    }
}
