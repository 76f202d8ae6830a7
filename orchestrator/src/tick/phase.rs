//! Where a tick is.

/// The phases in their order; see the module `tick`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// The sandbox is made.
    Spawn,
    /// Its permissions are given.
    Scope,
    /// The agent program runs.
    Run,
    /// Its result is secured.
    Report,
    /// The result becomes the truth.
    Commit,
}

impl Phase {
    /// As stored and shown.
    pub fn as_str(self) -> &'static str {
        match self {
            Phase::Spawn => "starting",
            Phase::Scope => "preparing",
            Phase::Run => "running",
            Phase::Report => "saving",
            Phase::Commit => "done",
        }
    }
}
