//! One bounded revival of an agent for one message.
//!
//! ```text
//! spawn -> scope -> run -> report -> commit -> destroy
//! ```
//!
//! Each phase consumes the last one's value, so none can be skipped or repeated. Whatever fails
//! before the commit discards the tick's files and leaves the head where it was. There is one
//! teardown, `Backend::remove`, for success, failure, crash and reaper.

pub mod commit;
pub mod destroy;
pub mod outcome;
pub mod phase;
pub mod received;
pub mod report;
pub mod run;
pub mod scope;
pub mod spawn;
pub mod state;

use std::{
    path::PathBuf,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use mayfly_domain::{Apology, InstallationId};
use tokio::sync::RwLock;

use crate::{
    agent::profile::Profile,
    blobs::Blobs,
    clock::Lease,
    db::{Db, agents::Base, claims::Claim},
    depot::{DepotError, Travel},
    images::Images,
    retention::Keeper,
    sandbox::{Backend, BackendError, Image, Owner},
    snapshot::Store,
    supervise::Supervisor,
    worker::{host_disk::HostDisk, running::Running},
};

pub use outcome::{Changes, TickOutcome};

/// What every tick works with.
#[derive(Clone)]
pub struct Tools {
    /// The truth.
    pub db: Db,
    /// Layers.
    pub store: Arc<Store>,
    /// Files that travel.
    pub blobs: Blobs,
    /// The engine.
    pub backend: Arc<dyn Backend>,
    /// What sandboxes are made from.
    pub images: Images,
    /// Spawns the tick's helpers.
    pub supervisor: Supervisor,
    /// Ticks that can be asked to end.
    pub running: Running,
    /// Whose names everything carries.
    pub installation: InstallationId,
    /// Whose labels everything carries.
    pub owner: Owner,
    /// Transcripts lie here.
    pub data_dir: PathBuf,
    /// The static init's folder.
    pub init: PathBuf,
    /// The way of layers between workers.
    pub travel: Travel,
    /// The host's free space.
    pub host_disk: HostDisk,
    /// Interrupted ticks per message before it is parked.
    pub attempts: u32,
    /// When this process began, by the boot clock.
    pub began: Duration,
    /// The worker's right to run ticks.
    pub lease: Lease,
    /// What stays and what goes.
    pub keeper: Keeper,
    /// Shared while something is made that no row names yet (a merged layer, a base); held alone
    /// while what no row names is removed.
    pub making: Arc<RwLock<()>>,
    /// True where something may lie on disk that no row names: a reconciler looks.
    pub left: Arc<AtomicBool>,
}

/// What this tick is about.
#[derive(Clone)]
pub struct Job {
    /// The right to run it.
    pub claim: Claim,
    /// The profile as it is now.
    pub profile: Profile,
    /// The image it runs in.
    pub image: Image,
    /// The base its slots stand on.
    pub base: Base,
    /// When it was claimed, by the boot clock.
    pub begun: Duration,
}

/// Why a tick ended before its commit.
#[derive(Debug, thiserror::Error)]
pub enum TickError {
    /// The engine.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// The sandbox's init.
    #[error("the sandbox does not follow")]
    Control(#[from] crate::sandbox::ControlError),
    /// A person said stop while the sandbox was made.
    #[error("stopped before the program started")]
    Stopped,
    /// The host's disk came below its floor while the sandbox was made.
    #[error("the host's disk is nearly full")]
    NoRoom,
    /// The worker's lease is not fresh, so others may have its lanes.
    #[error("the worker could not renew its lease before the program started")]
    Stale,
    /// Somebody asked it to end before its program started.
    #[error("asked to end before the program started: {}", .0.apology)]
    AskedEarly(Box<EndedBadly>),
    /// More came for its message before its program was started.
    #[error("more came for its message before the program started")]
    Grown,
    /// Its messages got files that do not fit together: they are parted before the next tick.
    #[error("the files of its messages have no room in one tick any more")]
    Crowded,
    /// The message's files are not in the sandbox, and would not be next time.
    #[error("its files could not be handed over: {0}")]
    NotReceived(String),
    /// The program could not be started.
    #[error("the program could not be started: {0}")]
    NotStarted(String),
    /// The folders of its state.
    #[error("the state's folders could not be prepared")]
    Store(#[from] crate::snapshot::StoreError),
    /// The layer store.
    #[error(transparent)]
    Depot(DepotError),
    /// Its evidence.
    #[error("the transcript could not be written")]
    Transcript(#[source] std::io::Error),
    /// Files to send.
    #[error("a file to send could not be stored")]
    Blobs(#[from] crate::blobs::BlobError),
    /// The images.
    #[error("images in use could not be kept")]
    Images(#[from] crate::images::ImagesError),
    /// Rows.
    #[error(transparent)]
    Db(#[from] crate::db::DbError),
    /// The program ended in a way that is answered without a commit.
    #[error("the tick ended: {}", .0.apology)]
    Ended(Box<EndedBadly>),
    /// The proof that nothing can write any more is missing.
    #[error("the sandbox could not be removed")]
    NotRemoved(#[source] BackendError),
    /// Somebody closed it, or the head moved: nothing was written.
    #[error("the claim was lost before the commit")]
    Lost,
    /// A helper panicked.
    #[error("a part of the tick panicked: {0}")]
    Panic(String),
}

impl From<DepotError> for TickError {
    fn from(error: DepotError) -> Self {
        match error {
            DepotError::Store(error) => TickError::Store(error),
            DepotError::Db(error) => TickError::Db(error),
            other => TickError::Depot(other),
        }
    }
}

/// A program's end that keeps no files.
#[derive(Debug)]
pub struct EndedBadly {
    /// How the tick ended.
    pub outcome: TickOutcome,
    /// What is told.
    pub apology: Apology,
    /// What the program had written, to be posted above the notice.
    pub text: String,
    /// Whether the message runs again.
    pub again: state::Again,
    /// Exit code.
    pub exit_code: Option<i32>,
    /// What was used.
    pub usage: crate::db::endings::Usage,
    /// Whether the sandbox is proved to be gone.
    pub removed: bool,
}

/// Runs one claimed message to its end. Returns when the tick's row is closed.
pub async fn run(tools: &Tools, job: &Job) {
    if let Err(error) = attempt(tools, job).await {
        destroy::fail(tools, job, error).await;
    }
}

async fn attempt(tools: &Tools, job: &Job) -> Result<(), TickError> {
    let spawned = spawn::spawn(tools, job).await?;
    let scoped = scope::scope(tools, job, spawned).await?;
    let ran = run::run(tools, job, scoped).await?;
    let reported = report::report(tools, job, ran).await?;
    commit::commit(tools, job, reported).await
}

/// Measures phases, in milliseconds.
#[derive(Debug, Clone, Copy)]
pub struct Stopwatch {
    since: Duration,
    phases: [i64; 5],
}

impl Stopwatch {
    /// Starts now.
    pub fn start() -> Self {
        Stopwatch {
            since: crate::clock::boot_time(),
            phases: [0; 5],
        }
    }

    /// The phase ends now.
    pub fn lap(&mut self, phase: phase::Phase) {
        let now = crate::clock::boot_time();
        self.phases[phase as usize] = (now - self.since).as_millis() as i64;
        self.since = now;
    }

    /// Milliseconds per phase so far.
    pub fn phases(&self) -> [i64; 5] {
        self.phases
    }
}

/// Runs blocking work; a panic in it is an error of this tick.
pub async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, TickError> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|panic| TickError::Panic(panic.to_string()))
}
