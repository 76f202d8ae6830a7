//! The seam through which platforms hand in what happened.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::{AgentId, AttachmentError, MessageId, NewMessage, ThreadKey};

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

/// Takes arrivals. When `accept` returns, the arrival is durable and may be acknowledged.
#[async_trait]
pub trait Inbox: Send + Sync {
    /// Stores the arrival and its place in the agent's lane in one transaction.
    async fn accept(&self, arrival: Arrival) -> Result<Accepted, InboxError>;
}
