//! Agents that travel: out into an image layout, in from one, also on another machine.
//!
//! An import keeps the ids of the archive where none of them is in use here; else the agent and all
//! of its history get new ones. Messages that wait stay behind, and nothing is sent again. What
//! needs the engine comes last: the image itself is looked for at the next tick.

use std::path::{Path, PathBuf};

use mayfly_domain::{AgentId, TickId};

use super::{Commands, RequestError, internal};
use crate::{
    agent::transcript,
    snapshot::{StoreError, oci::OciError},
};

mod export;
mod history;
mod import;
mod renew;
mod travel;

pub use export::{ExportAs, ExportTo, PreparedExport};
pub use import::ImportFrom;
pub(crate) use travel::Travel;

fn transcripts_of(data_dir: &Path, agent: AgentId) -> PathBuf {
    let any = transcript::path(data_dir, agent, TickId::new());
    any.parent().map(Path::to_owned).unwrap_or_default()
}

fn made(folder: &Path) -> Result<(), OciError> {
    use std::os::unix::fs::DirBuilderExt as _;
    let made = std::fs::DirBuilder::new().mode(0o700).create(folder);
    made.map_err(|source| {
        let path = folder.to_owned();
        StoreError::Io { path, source }.into()
    })
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, OciError> + Send + 'static,
) -> Result<T, RequestError> {
    let done = tokio::task::spawn_blocking(work).await;
    Ok(done.map_err(|panic| internal(&panic))??)
}

impl From<OciError> for RequestError {
    fn from(error: OciError) -> Self {
        match error {
            OciError::Store(error) => error.into(),
            OciError::Limit(_) => RequestError::TooLarge(error.to_string()),
            _ => RequestError::Invalid(format!("this is no agent to import: {error}")),
        }
    }
}
