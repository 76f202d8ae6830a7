//! Construction: the only place that sees everything.

use crate::{config::Config, data_dir::DataDir, exit::Exit};
use mayfly_orchestrator::{command::Commands, supervise::Supervisor};

/// Why the service did not start; each is one sentence with the way out.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The data dir's content: copied from elsewhere, or from a newer version.
    #[error("{0}")]
    DataDir(String),
    /// The engine or the disk.
    #[error("{0}")]
    Unavailable(String),
    /// Ours to mend.
    #[error("{0}")]
    Internal(String),
}

impl StartError {
    pub fn exit(&self) -> Exit {
        match self {
            StartError::DataDir(_) => Exit::DataDir,
            StartError::Unavailable(_) => Exit::Unavailable,
            StartError::Internal(_) => Exit::Internal,
        }
    }
}

/// A service that takes messages.
pub struct Running {
    pub commands: Commands,
    pub supervisor: Supervisor,
    /// Held until everything else has ended.
    _data_dir: DataDir,
}

/// Builds and starts everything but the listeners.
///
/// `simulate` takes the fake engine in place of Docker.
pub async fn start(
    _config: &Config,
    _data_dir: DataDir,
    _simulate: bool,
) -> Result<Running, StartError> {
    // WIRE HERE: database, backend, worker, reconcilers; see the crate `mayfly_orchestrator`.
    Err(StartError::Internal(
        "the service is not wired yet".to_owned(),
    ))
}

impl Running {
    /// Claims nothing new and waits until no tick runs; what waits stays for the next start.
    pub async fn drain(&self) {
        // WIRE HERE: ask the worker to come to rest and wait for it.
    }
}
