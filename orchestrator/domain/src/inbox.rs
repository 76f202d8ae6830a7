//! The seam through which platforms hand in what happened.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::{AgentId, AttachmentError, Event, MessageId, NewMessage, ThreadKey};

/// One immutable platform event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrival {
    /// Where it happened.
    pub thread: ThreadKey,
    /// The platform's identity of the post, or the caller's idempotency key: a second arrival
    /// with the same thread and key is the first one again.
    pub key: String,
    /// The event as it came.
    pub raw: Vec<u8>,
    /// What it was understood as; `None` is kept, counted and starts nothing.
    pub message: Option<NewMessage>,
}

/// An arrival that is safe on disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accepted {
    /// The message it became part of.
    pub message: MessageId,
    /// The agent that will run it.
    pub agent: AgentId,
    /// False if this key had already been accepted.
    pub new: bool,
}

/// Why an arrival was not accepted. Nothing of it was stored, so the caller still owns it.
#[derive(Debug, thiserror::Error)]
pub enum InboxError {
    /// No agent belongs to this thread.
    #[error("no agent belongs to thread {0}")]
    NoAgent(ThreadKey),
    /// This key came before with another text or other files.
    #[error("the key \"{0}\" was already used for another message: use a new key")]
    KeyReused(String),
    /// Its files cannot come with it.
    #[error(transparent)]
    Files(#[from] AttachmentError),
    /// The database did not take it.
    #[error("the message could not be stored")]
    Storage(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// A platform's event as it came, with what its adapter understood of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Incoming {
    /// For example `telegram`.
    pub platform: String,
    /// As it came.
    pub raw: Vec<u8>,
    /// What it says, or why that is not understood. Kept in either case.
    pub event: Result<Event, String>,
}

/// Where an adapter stands in its platform's stream, for example an offset. It is written with the
/// events before it, so that a crash neither loses nor repeats any.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    /// For example `telegram`.
    pub platform: String,
    /// For example `offset`.
    pub name: String,
    /// Anything.
    pub value: String,
}

/// How an adapter's connection to its platform is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Link {
    /// Events come.
    Up,
    /// They do not, and why; the adapter tries on.
    Down(String),
}

/// A conversation in which something was said lately.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recent {
    /// Which.
    pub thread: ThreadKey,
    /// The newest post of it that is known, by the platform's id.
    pub newest: String,
    /// When that came, unix ms.
    pub at: i64,
}

/// Takes arrivals. When `accept` returns, the arrival is durable and may be acknowledged.
#[async_trait]
pub trait Inbox: Send + Sync {
    /// Stores the arrival and its place in the agent's lane in one transaction.
    async fn accept(&self, arrival: Arrival) -> Result<Accepted, InboxError>;

    /// Stores events of a platform in their order, with where its adapter stands then, in one
    /// transaction: when it returns they may be acknowledged. What they add up to is decided after
    /// that. An event that came before changes nothing.
    async fn take(&self, events: Vec<Incoming>, mark: Option<Mark>) -> Result<(), InboxError>;

    /// The latest mark of this name, with the time it was made (unix ms).
    async fn mark(&self, platform: &str, name: &str) -> Result<Option<(String, i64)>, InboxError>;

    /// Conversations of a platform that have an agent, the latest first: what a gap is caught up
    /// over.
    async fn recent(&self, platform: &str, most: usize) -> Result<Vec<Recent>, InboxError>;

    /// Says how the connection is whenever that changes.
    fn link(&self, platform: &'static str, link: Link);
}
