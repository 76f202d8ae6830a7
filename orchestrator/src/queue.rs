//! The seam `Queue`: one lane per agent, fair, with wake-ups and delayed retries.
//!
//! A queue only says who might have work. Whatever it says, loses or repeats, the claim in the
//! database decides, and a reconciler refills it.

pub mod local;

use std::time::Duration;

use async_trait::async_trait;
use mayfly_domain::AgentId;

pub use local::Local;

/// Lanes of agents that may have something to run.
#[async_trait]
pub trait Queue: Send + Sync + 'static {
    /// This lane has, or will have after `delay`, a message. Repeats are harmless.
    async fn offer(&self, lane: AgentId, delay: Duration);

    /// Waits for a lane and takes it: nobody else gets it before [`Queue::done`].
    async fn take(&self) -> AgentId;

    /// Gives a lane back; with `again`, it is looked at after that time.
    async fn done(&self, lane: AgentId, again: Option<Duration>);

    /// How many lanes stand before this one; none if it is not waiting.
    async fn place(&self, lane: AgentId) -> Option<usize>;
}
