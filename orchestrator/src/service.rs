//! The parts come to life in the right order: database, identity, clean state, then loops.

mod assemble;
mod chats;
mod error;
mod home;

use std::{path::PathBuf, sync::Arc, time::Duration};

use mayfly_domain::AttachmentLimits;

pub(crate) use self::home::binding;
use self::{assemble::Ground, chats::Chats};
pub use self::{error::StartError, home::adopt};
use crate::{
    agent::profile::Profiles,
    backup,
    clock::{self, Lease},
    command::Commands,
    db::{Db, Place},
    depot::StoreConfig,
    engine::BoundEngine,
    faults,
    inbox::route::Accesses,
    outbox::Platforms,
    queue::QueueConfig,
    reconcile,
    role::Role,
    sandbox::Backend,
    snapshot::Store,
    supervise::Supervisor,
    worker::{Worker, WorkerConfig, host_disk::DiskConfig},
};

/// How long a start waits for the layer store's first answer.
const FIRST_LOOK: Duration = Duration::from_secs(5);

/// What a service is made from.
pub struct Parts {
    /// Locked by the caller for as long as the service lives.
    pub data_dir: PathBuf,
    /// Who has work is told by this.
    pub queue: QueueConfig,
    /// Where the rows are.
    pub database: Place,
    /// Limits on what runs.
    pub worker: WorkerConfig,
    /// Limits on the host's disk.
    pub disk: DiskConfig,
    /// Where layers go that several workers share.
    pub store: StoreConfig,
    /// What people may attach.
    pub attachments: AttachmentLimits,
    /// As configured.
    pub profiles: Profiles,
    /// The engine.
    pub backend: Arc<dyn Backend>,
    /// Folder of the static init.
    pub init: PathBuf,
    /// Shared with the backend: heartbeats stop when it is stale.
    pub lease: Lease,
    /// Spawns everything.
    pub supervisor: Supervisor,
    /// Where messages come from and replies go.
    pub platforms: Platforms,
    /// Names that stand for the tokens they are used by: one process has each.
    pub hold: Vec<String>,
    /// What this process is there for.
    pub role: Role,
    /// Who may speak there, by platform.
    pub accesses: Accesses,
    /// When the first tick may start.
    pub begin: Begin,
}

/// When the first tick may start, and whether platforms are listened to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begin {
    /// At once: what waits runs, and what people write comes.
    AtOnce,
    /// When a message is sent or retried: a command that only looks, or moves a head, starts nothing and
    /// listens to nobody.
    WithAMessage,
}

/// A service that runs.
pub struct Service {
    /// What faces call.
    pub commands: Commands,
    worker: Worker,
}

impl Service {
    /// Opens the data dir, closes what a dead start left open, and starts the loops.
    pub async fn start(parts: Parts) -> Result<Service, StartError> {
        let db = Db::open(&parts.database).await?;
        let id = home::worker_id(&parts.data_dir)?;
        let at_home = home::identify(&db, &parts, &id).await?;
        let store = Arc::new(Store::open(&parts.data_dir)?);
        backup::restore::tidy(&parts.data_dir)?;
        let bound = home::bind_engine(&db, &at_home, &parts, &id).await?;
        let engine = BoundEngine::new(parts.backend.clone(), db.clone(), id.clone(), bound);
        assemble::store_is_there(&parts.store)?;
        let leased = clock::boot_time();
        let identity = home::begin_epoch(&db, &parts, id).await?;
        if parts.role.has_engine() && at_home.engine_id.is_none() {
            // Written down from now on; one that is down is told where it is needed.
            let _ = engine.engine().await;
        }
        faults::point("start.epoch");
        let queue = parts.queue.open(at_home.installation, &identity)?;
        let (hold, cache_mib) = (parts.hold.clone(), parts.store.cache_mib);
        let (platforms, limits, begin) = (parts.platforms.clone(), parts.attachments, parts.begin);
        let ground = Ground {
            db,
            backend: Arc::new(engine),
            store,
            installation: at_home.installation,
            identity,
            queue,
        };
        let worker = ground.worker(parts)?;
        // What a dead start left may take longer to close than a lease lasts.
        start_lease(&worker, leased);
        reconcile::at_start(&worker)
            .await
            .map_err(|error| StartError::Reconcile(Box::new(error)))?;
        let commands = Commands::new(&worker, limits);
        start_store(&worker, cache_mib).await;
        start_loops(&worker);
        if worker.role.has_chats() {
            let chats = Chats {
                worker: worker.clone(),
                commands: commands.clone(),
                platforms,
                hold,
                limits,
                begin,
            };
            match worker.tools.db.is_shared() {
                true => {
                    let supervisor = &worker.tools.supervisor;
                    supervisor.standing("chats", chats.serve());
                }
                false => chats.start(),
            }
        }
        Ok(Service { commands, worker })
    }

    /// The worker, to look inside.
    pub fn worker(&self) -> &Worker {
        &self.worker
    }

    /// Takes no new message from the queue, lets running ticks end within the grace period and
    /// hands the rest back. Returns when no tick runs; see [`Worker::drain`].
    pub async fn drain(&self) -> bool {
        self.worker.drain().await
    }

    /// Gives back what this process had for itself. Legal when everything else has ended.
    pub async fn leave(&self) {
        self.worker.leave().await;
    }
}

async fn start_store(worker: &Worker, cache_mib: u64) {
    let (travel, supervisor) = (&worker.tools.travel, &worker.tools.supervisor);
    if travel.objects().is_none() {
        return;
    }
    // Lanes that come first need not be told that nobody has asked yet.
    let _ = tokio::time::timeout(FIRST_LOOK, travel.look()).await;
    let bell = worker.bell.clone();
    let serve = travel.clone().serve(supervisor.clone(), bell, cache_mib);
    supervisor.standing("layer store", serve);
    let sweep = travel.clone().serve_sweep(supervisor.clone());
    supervisor.standing("layer store sweep", sweep);
}

/// It was asked for at this time of the boot clock.
fn start_lease(worker: &Worker, leased: Duration) {
    let (supervisor, lease) = (&worker.tools.supervisor, &worker.tools.lease);
    lease.confirm(leased);
    supervisor.standing("lease", worker.clone().renew(lease.clone()));
}

fn start_loops(worker: &Worker) {
    let supervisor = &worker.tools.supervisor;
    supervisor.standing("disk guard", worker.clone().guard_disk());
    supervisor.standing("reconciler", reconcile::serve(worker.clone()));
    supervisor.standing("lane keeper", reconcile::keep_lanes(worker.clone()));
    supervisor.standing("watch", reconcile::keep_watch(worker.clone()));
    if worker.role.has_engine() {
        supervisor.standing("worker", worker.clone().serve());
        supervisor.standing("queue beat", worker.clone().beat());
        supervisor.standing("engine watch", worker.clone().watch_engine());
        supervisor.standing("image keeper", reconcile::keep_images(worker.clone()));
    }
}
