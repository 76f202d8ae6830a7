//! What faces can ask for: chat, command line, API and page call these functions and no others.

use std::{sync::Arc, time::Duration};

use mayfly_domain::{AgentId, Author, MessageId, SandboxRef, TickId};

use crate::view::{
    AgentView, DiffView, MessageView, ReadyView, RollbackView, StopView, TickDetail, TickView,
};

/// Why a request was not carried out. `Display` is one sentence for a person: the thing, and the
/// way out.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// Nothing has this name or id.
    #[error("there is no {kind} \"{text}\"{hint}")]
    NotFound {
        /// `agent`, `tick`, `message` or `profile`.
        kind: &'static str,
        /// What was asked for.
        text: String,
        /// Empty, or ` (did you mean …?)`, or where to look.
        hint: String,
    },
    /// A suffix that several ids end with.
    #[error("\"{text}\" is the end of several {kind} ids: give more digits")]
    Ambiguous {
        /// What was looked for.
        kind: &'static str,
        /// What was given.
        text: String,
    },
    /// The request itself is wrong.
    #[error("{0}")]
    Invalid(String),
    /// Right, but not now.
    #[error("{0}")]
    Conflict(String),
    /// The engine, an image or the disk is missing.
    #[error("{0}")]
    Unavailable(String),
    /// Ours to mend; the chain is logged.
    #[error("internal error: {0}")]
    Internal(String),
}

/// A new agent.
#[derive(Debug, Clone, Default)]
pub struct NewAgent {
    /// Profile name; `shell` if none.
    pub profile: Option<String>,
    /// Image in place of the profile's.
    pub sandbox: Option<SandboxRef>,
}

/// A message by command line, API or page.
#[derive(Debug, Clone)]
pub struct Send {
    /// What is said.
    pub text: String,
    /// Who says it.
    pub author: Author,
    /// A second send with the same key and agent is the first one again.
    pub idempotency_key: Option<String>,
    /// Image for this tick only.
    pub sandbox: Option<SandboxRef>,
}

/// Which messages `stop` means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopScope {
    /// The running tick.
    Running,
    /// Also those that wait.
    All,
}

/// The functions; cheap to clone.
#[derive(Clone)]
pub struct Commands {
    inner: Arc<()>,
}

impl Commands {
    /// Makes an agent: refuses unknown profiles and images that are not on this host.
    pub async fn create_agent(&self, _new: NewAgent) -> Result<AgentView, RequestError> {
        unimplemented!()
    }
    /// Finds an agent by id or unique suffix.
    pub async fn find_agent(&self, _text: &str) -> Result<AgentId, RequestError> {
        unimplemented!()
    }
    /// Finds a tick by id or unique suffix.
    pub async fn find_tick(&self, _text: &str) -> Result<TickId, RequestError> {
        unimplemented!()
    }
    /// One agent.
    pub async fn agent(&self, _agent: AgentId) -> Result<AgentView, RequestError> {
        unimplemented!()
    }
    /// All agents, newest first.
    pub async fn agents(&self) -> Result<Vec<AgentView>, RequestError> {
        unimplemented!()
    }
    /// Accepts a message; durable when it returns.
    pub async fn send(&self, _agent: AgentId, _send: Send) -> Result<MessageView, RequestError> {
        unimplemented!()
    }
    /// One message.
    pub async fn message(&self, _message: MessageId) -> Result<MessageView, RequestError> {
        unimplemented!()
    }
    /// Waits until the message has an outcome or the time is over; then as [`Commands::message`].
    pub async fn wait(
        &self,
        _message: MessageId,
        _patience: Duration,
    ) -> Result<MessageView, RequestError> {
        unimplemented!()
    }
    /// An agent's ticks, oldest first.
    pub async fn ticks(&self, _agent: AgentId) -> Result<Vec<TickView>, RequestError> {
        unimplemented!()
    }
    /// One tick with its transcript.
    pub async fn tick(&self, _tick: TickId) -> Result<TickDetail, RequestError> {
        unimplemented!()
    }
    /// What changed between two states; without ticks what the last tick changed, with one what
    /// that tick changed.
    pub async fn diff(
        &self,
        _agent: AgentId,
        _from: Option<TickId>,
        _to: Option<TickId>,
    ) -> Result<DiffView, RequestError> {
        unimplemented!()
    }
    /// Moves the head to the state after a tick of the agent's history; without one to the state
    /// before the last tick. Refused while a tick runs.
    pub async fn rollback(
        &self,
        _agent: AgentId,
        _to: Option<TickId>,
    ) -> Result<RollbackView, RequestError> {
        unimplemented!()
    }
    /// A new agent on the same state, or on the state after a tick.
    pub async fn fork(
        &self,
        _agent: AgentId,
        _at: Option<TickId>,
    ) -> Result<AgentView, RequestError> {
        unimplemented!()
    }
    /// Removes an agent and what only it needs. Refused while a tick runs, and while forks need
    /// its layers unless `even_with_forks` (the shared layers stay).
    pub async fn remove_agent(
        &self,
        _agent: AgentId,
        _even_with_forks: bool,
    ) -> Result<(), RequestError> {
        unimplemented!()
    }
    /// Ends the running tick; what waits stays, or is withdrawn with a notice.
    pub async fn stop(&self, _agent: AgentId, _scope: StopScope) -> Result<StopView, RequestError> {
        unimplemented!()
    }
    /// Messages that wait for a person, oldest first.
    pub async fn parked(&self) -> Result<Vec<MessageView>, RequestError> {
        unimplemented!()
    }
    /// Puts a parked message back into its lane with fresh attempts.
    pub async fn retry(&self, _message_text: &str) -> Result<MessageView, RequestError> {
        unimplemented!()
    }
    /// Whether messages would be run.
    pub async fn ready(&self) -> ReadyView {
        unimplemented!()
    }
}
