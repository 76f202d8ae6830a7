//! The parts come to life in the right order: database, identity, clean state, then loops.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    fs::File,
    io::{self, Write as _},
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use mayfly_domain::{AttachmentLimits, InstallationId};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::{
    agent::profile::Profiles,
    backup,
    bases::Bases,
    bell::Bell,
    blobs::{BlobError, Blobs},
    clock::{self, LEASE, Lease},
    command::Commands,
    db::{
        Db, DbError, Place,
        installation::{Binding, version},
        workers::{QueueKind, Started},
    },
    depot::{Objects, StoreConfig, Travel},
    engine::BoundEngine,
    faults,
    hold::{self, Sending},
    images::Images,
    inbox::{self, route::Accesses},
    orders::Orders,
    outbox::{self, Platforms},
    queue::{Lanes, Queue, QueueConfig, QueueError},
    reconcile,
    retention::Keeper,
    role::Role,
    sandbox::{Backend, BackendError, Engine, Owner, fake::SIMULATED},
    snapshot::{Store, StoreError},
    supervise::Supervisor,
    tick::{TickError, Tools},
    trouble::Trouble,
    worker::{
        Identity, Worker, WorkerConfig,
        host_disk::{DiskConfig, HostDisk},
        places::Places,
        reserves::{Reserves, TooLarge},
        running::Running,
    },
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

/// Why a service does not start. `Display` is one sentence for a person.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The database.
    #[error(transparent)]
    Db(#[from] DbError),
    /// The queue.
    #[error(transparent)]
    Queue(#[from] QueueError),
    /// The folders.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The blob store.
    #[error(transparent)]
    Blobs(#[from] BlobError),
    /// A file of the data dir.
    #[error("{path}: {source}")]
    File {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The layer store, as configured.
    #[error("the layer store: {0}")]
    Depot(String),
    /// The data dir is bound to another place.
    #[error(
        "data dir {data_dir} was made {elsewhere}: if it is a copy or has moved for good, run `mayfly adopt`; never run both"
    )]
    Copied {
        /// Here.
        data_dir: PathBuf,
        /// `on another machine`, `at /other/path`, `with another container engine`.
        elsewhere: String,
    },
    /// One of two processes keeps the queue, or the files, to itself.
    #[error(
        "database {database} is in use by another mayfly (worker {worker}), and two need one queue and one store for files: name a Redis in [queue] url and the store in [store] url of both; or end that one first, of one that died it is free after {} s",
        LEASE.as_secs()
    )]
    Alone {
        /// Which database.
        database: String,
        /// Whose lease holds.
        worker: String,
    },
    /// What is to be adopted is not dead.
    #[error(
        "database {database} is in use by another mayfly as worker {worker}, which this data dir is too: end that one first; of one that died it is free after {} s",
        LEASE.as_secs()
    )]
    InUse {
        /// Which database.
        database: String,
        /// Whose lease holds.
        worker: String,
    },
    /// Nothing to adopt.
    #[error("data dir {data_dir} is at home here: there is nothing to adopt")]
    AtHome {
        /// Here.
        data_dir: PathBuf,
    },
    /// Real agents would run on pretended sandboxes, or the other way round.
    #[error(
        "data dir {data_dir} is for {belongs}: name another with --data-dir, or use `mayfly serve{flag}`"
    )]
    OtherKind {
        /// Here.
        data_dir: PathBuf,
        /// `simulated agents` or `real agents`.
        belongs: &'static str,
        /// With which it would start.
        flag: &'static str,
    },
    /// The database asks for a newer program.
    #[error(
        "data dir {data_dir} needs mayfly {needs} or later, this is {ours}: install that version, or restore the backup made before its upgrade"
    )]
    TooOld {
        /// Here.
        data_dir: PathBuf,
        /// The stored minimum.
        needs: String,
        /// This program.
        ours: &'static str,
    },
    /// A profile's limits are beyond the host.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
    /// What an earlier start left could not be closed.
    #[error("an earlier start could not be cleaned up after")]
    Reconcile(#[source] Box<TickError>),
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
        let id = worker_id(&parts.data_dir)?;
        let at_home = identify(&db, &parts, &id).await?;
        let store = Arc::new(Store::open(&parts.data_dir)?);
        backup::restore::tidy(&parts.data_dir)?;
        let bound = bind_engine(&db, &at_home, &parts, &id).await?;
        let engine = BoundEngine::new(parts.backend.clone(), db.clone(), id.clone(), bound);
        let leased = clock::boot_time();
        let identity = begin_epoch(&db, &parts, id).await?;
        if parts.role.has_engine() && at_home.engine_id.is_none() {
            // Written down from now on; one that is down is told where it is needed.
            let _ = engine.engine().await;
        }
        faults::point("start.epoch");
        let queue = parts.queue.open(at_home.installation, &identity)?;
        let (hold, cache_mib) = (parts.hold.clone(), parts.store.cache_mib);
        let (platforms, limits, begin) = (parts.platforms.clone(), parts.attachments, parts.begin);
        let worker = assemble(parts, db, Arc::new(engine), store, at_home, identity, queue)?;
        reconcile::at_start(&worker)
            .await
            .map_err(|error| StartError::Reconcile(Box::new(error)))?;
        let commands = Commands::new(&worker, limits);
        start_store(&worker, cache_mib).await;
        start_loops(&worker, leased);
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
    /// hands the rest back. Returns when no tick runs.
    pub async fn drain(&self) {
        self.worker.drain().await;
    }

    /// Gives back what this process had for itself. Legal when everything else has ended.
    pub async fn leave(&self) {
        self.worker.leave().await;
    }
}

fn assemble(
    parts: Parts,
    db: Db,
    backend: Arc<dyn Backend>,
    store: Arc<Store>,
    at_home: AtHome,
    identity: Identity,
    queue: Arc<dyn Queue>,
) -> Result<Worker, StartError> {
    let installation = at_home.installation;
    let host_disk = HostDisk::new(parts.data_dir.clone(), parts.disk);
    let images = Images::new(
        db.clone(),
        backend.clone(),
        installation,
        &parts.data_dir,
        host_disk.clone(),
    );
    let making = Arc::default();
    let trouble = Trouble::default();
    let objects = Objects::open(&parts.store, &trouble).map_err(StartError::Depot)?;
    let travel = Travel::new(
        db.clone(),
        store.clone(),
        objects,
        identity.id.clone(),
        parts.data_dir.clone(),
        host_disk.clone(),
        Arc::clone(&making),
    );
    let blobs = Blobs::open(&parts.data_dir.join("blobs"))?.shared_by(travel.clone());
    let keeper = Keeper::new(
        db.clone(),
        store.clone(),
        blobs.clone(),
        images.clone(),
        Arc::clone(&making),
        &parts.profiles,
        parts.role,
    );
    let owner = Owner {
        installation,
        worker: identity.id.clone(),
    };
    let bases = Bases {
        db: db.clone(),
        store: store.clone(),
        backend: backend.clone(),
        images: images.clone(),
        owner: owner.clone(),
        making: Arc::clone(&making),
        has_engine: parts.role.has_engine(),
        travel: travel.clone(),
        one_at_a_time: Arc::default(),
    };
    let tools = Tools {
        images,
        db: db.clone(),
        store,
        blobs,
        backend,
        supervisor: parts.supervisor,
        running: Running::default(),
        installation,
        owner,
        data_dir: parts.data_dir,
        init: parts.init,
        travel,
        host_disk,
        attempts: parts.worker.attempts,
        making,
        lease: parts.lease,
        keeper,
        // An earlier start may have died anywhere.
        left: Arc::new(AtomicBool::new(true)),
    };
    let profiles = Arc::new(parts.profiles);
    // What others have is not known here.
    let run_here = match parts.role.has_engine() {
        true => (*profiles).clone(),
        false => Profiles(BTreeMap::new()),
    };
    let reserves = Reserves::new(
        &parts.worker,
        &run_here,
        tools.host_disk.clone(),
        tools.running.clone(),
    );
    if parts.begin == Begin::AtOnce && parts.role.has_engine() {
        reserves.check(&run_here)?;
    }
    let worker = Worker {
        tools,
        role: parts.role,
        bases,
        lanes: Lanes::new(queue, db, profiles.clone(), trouble.clone()),
        places: Places::new(&parts.worker, &profiles, reserves),
        profiles,
        identity,
        accesses: Arc::new(parts.accesses),
        config: parts.worker,
        bell: Bell::default(),
        trouble,
        resting: CancellationToken::new(),
        begun: CancellationToken::new(),
        began: clock::boot_time(),
        suspects: Arc::new(Semaphore::new(1)),
    };
    if parts.begin == Begin::AtOnce {
        worker.begun.cancel();
    }
    Ok(worker)
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
}

/// Its lease was asked for at this time of the boot clock.
fn start_loops(worker: &Worker, leased: Duration) {
    let (supervisor, lease) = (&worker.tools.supervisor, &worker.tools.lease);
    lease.confirm(leased);
    supervisor.standing("lease", worker.clone().renew(lease.clone()));
    supervisor.standing("disk guard", worker.clone().guard_disk());
    supervisor.standing("reconciler", reconcile::serve(worker.clone()));
    supervisor.standing("lane keeper", reconcile::keep_lanes(worker.clone()));
    if worker.role.has_engine() {
        supervisor.standing("worker", worker.clone().serve());
        supervisor.standing("queue beat", worker.clone().beat());
        supervisor.standing("engine watch", worker.clone().watch_engine());
        supervisor.standing("image keeper", reconcile::keep_images(worker.clone()));
    }
}

/// What speaks with people: one process at a time.
struct Chats {
    worker: Worker,
    commands: Commands,
    platforms: Platforms,
    hold: Vec<String>,
    limits: AttachmentLimits,
    begin: Begin,
}

impl Chats {
    /// Waits for its turn, and begins. Goes on until the process comes to rest.
    async fn serve(self) -> Result<(), Infallible> {
        let tools = &self.worker.tools;
        let stopping = tools.supervisor.stopping();
        let mut names = self.hold.clone();
        names.push(hold::CHATS.to_owned());
        // Who has no platform, or listens to none, misses nothing.
        let misses = !self.platforms.is_empty() && self.begin == Begin::AtOnce;
        let tell = misses.then_some(&self.worker.trouble);
        if hold::take(&tools.db, &names, tell, &stopping).await {
            self.start();
        }
        stopping.cancelled().await;
        Ok(())
    }

    fn start(&self) {
        let (worker, platforms) = (&self.worker, &self.platforms);
        let (tools, supervisor) = (&worker.tools, &worker.tools.supervisor);
        let accesses = worker.accesses.clone();
        inbox::start(worker, platforms, &accesses, self.limits, self.begin);
        let sending = Sending::new(&tools.lease, &tools.db);
        if !platforms.is_empty() {
            let orders = Orders {
                db: tools.db.clone(),
                blobs: tools.blobs.clone(),
                commands: self.commands.clone(),
                platforms: platforms.clone(),
                accesses,
                bell: worker.bell.clone(),
                sending: sending.clone(),
            };
            supervisor.standing("orders", orders.serve(supervisor.clone()));
        }
        outbox::start(
            &tools.db,
            &tools.blobs,
            platforms,
            &worker.bell,
            &sending,
            supervisor,
        );
    }
}

/// Binds a copied or moved data dir to this place: under a new installation id where it holds the rows, else
/// its worker. Refused where it is at home: it would give up what its own ticks have made on the engine.
pub async fn adopt(
    database: &Place,
    data_dir: &Path,
    engine: Option<&Engine>,
) -> Result<InstallationId, StartError> {
    let db = Db::open(database).await?;
    let here = binding(data_dir);
    let (id, moved) = match (db.installation().await?, db.is_shared()) {
        (None, _) => (db.create_installation(&here).await?.id, true),
        (Some(found), true) => {
            let moved = adopt_worker(&db, database, data_dir, engine).await?;
            (found.id, moved)
        }
        (Some(found), false) if is_at(&found.binding, found.engine_id.as_ref(), &here, engine) => {
            (found.id, false)
        }
        (Some(_), false) => {
            let id = db.adopt(&here).await?;
            forget_worker(data_dir)?;
            (id, true)
        }
    };
    db.close().await;
    match moved {
        true => Ok(id),
        false => Err(StartError::AtHome {
            data_dir: data_dir.to_owned(),
        }),
    }
}

/// False where it is at home.
async fn adopt_worker(
    db: &Db,
    database: &Place,
    data_dir: &Path,
    engine: Option<&Engine>,
) -> Result<bool, StartError> {
    let here = binding(data_dir);
    let id = worker_id(data_dir)?;
    let home = db.home(&id).await?;
    let Some(known) = home.binding else {
        return Ok(false);
    };
    if is_at(&known, home.engine_id.as_ref(), &here, engine) {
        return Ok(false);
    }
    if db.lives(&id).await? {
        return Err(StartError::InUse {
            database: database.to_string(),
            worker: id,
        });
    }
    db.move_worker(&id, &here).await?;
    Ok(true)
}

fn is_at(
    known: &Binding,
    engine_id: Option<&String>,
    here: &Binding,
    engine: Option<&Engine>,
) -> bool {
    let same =
        |known: &String| known == SIMULATED || engine.is_none_or(|engine| engine.id == *known);
    known == here && engine_id.is_none_or(same)
}

fn forget_worker(data_dir: &Path) -> Result<(), StartError> {
    let worker = data_dir.join("worker");
    match std::fs::remove_file(&worker) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(StartError::File {
            path: worker,
            source: error,
        }),
        _ => Ok(()),
    }
}

/// This place.
pub(crate) fn binding(data_dir: &Path) -> Binding {
    let machine_id = std::fs::read_to_string("/etc/machine-id").unwrap_or_default();
    Binding {
        machine_id: machine_id.trim().to_owned(),
        data_dir: data_dir.display().to_string(),
    }
}

/// Who starts here.
struct AtHome {
    installation: InstallationId,
    engine_id: Option<String>,
}

/// The installation, and that this data dir is where it was: the one of the rows, or that of the worker where
/// several share them.
async fn identify(db: &Db, parts: &Parts, worker: &str) -> Result<AtHome, StartError> {
    let here = binding(&parts.data_dir);
    let found = match db.installation().await? {
        Some(found) => found,
        None => db.create_installation(&here).await?,
    };
    let ours = env!("CARGO_PKG_VERSION");
    if version(&found.minimum_version) > version(ours) {
        return Err(StartError::TooOld {
            data_dir: parts.data_dir.clone(),
            needs: found.minimum_version,
            ours,
        });
    }
    let (known, engine_id) = match &parts.database {
        Place::Embedded(_) => (Some(found.binding), found.engine_id),
        Place::Postgres(_) => {
            let home = db.home(worker).await?;
            (home.binding, home.engine_id)
        }
    };
    match known.filter(|known| *known != here) {
        None => Ok(AtHome {
            installation: found.id,
            engine_id,
        }),
        Some(known) => Err(StartError::Copied {
            data_dir: parts.data_dir.clone(),
            elsewhere: match known.machine_id == here.machine_id {
                true => format!("at {}", known.data_dir),
                false => "on another machine".to_owned(),
            },
        }),
    }
}

/// From here on this process is a worker of the database.
async fn begin_epoch(db: &Db, parts: &Parts, id: String) -> Result<Identity, StartError> {
    let here = binding(&parts.data_dir);
    // Whoever keeps the files to itself cannot share the work either.
    let queue = match parts.store.is_on() {
        true => parts.queue.kind(),
        false => QueueKind::Local,
    };
    match db.start_worker(&id, &here, queue, LEASE).await? {
        Started::Epoch(epoch) => Ok(Identity { id, epoch }),
        Started::Alone(worker) => Err(StartError::Alone {
            database: parts.database.to_string(),
            worker,
        }),
    }
}

/// The engine this data dir belongs to. One that is down binds nothing: the lanes wait for it.
async fn bind_engine(
    db: &Db,
    at_home: &AtHome,
    parts: &Parts,
    worker: &str,
) -> Result<Option<String>, StartError> {
    if !parts.role.has_engine() {
        return Ok(None);
    }
    let engine = match parts.backend.engine().await {
        Ok(engine) => engine,
        Err(error @ BackendError::Down { .. }) => {
            tracing::warn!(%error, "starting without an engine: messages wait");
            return Ok(at_home.engine_id.clone());
        }
        Err(error) => {
            tracing::warn!(%error, "the engine does not tell who it is");
            return Ok(at_home.engine_id.clone());
        }
    };
    // Agents of a shared database run on any of its workers.
    let kind = match (&at_home.engine_id, db.is_shared()) {
        (None, true) => db.engine_of_others(worker).await?,
        (known, _) => known.clone(),
    };
    if let Some(kind) = kind.filter(|kind| (kind == SIMULATED) != (engine.id == SIMULATED)) {
        let (belongs, flag) = match kind == SIMULATED {
            true => ("simulated agents", " --simulate"),
            false => ("real agents", ""),
        };
        return Err(StartError::OtherKind {
            data_dir: parts.data_dir.clone(),
            belongs,
            flag,
        });
    }
    match &at_home.engine_id {
        Some(known) if *known != engine.id => Err(StartError::Copied {
            data_dir: parts.data_dir.clone(),
            elsewhere: "with another container engine".to_owned(),
        }),
        Some(_) => Ok(Some(engine.id)),
        None => Ok(None),
    }
}

/// A crash leaves all of it or nothing.
fn write_durably(folder: &Path, path: &Path, text: &str) -> io::Result<()> {
    let fresh = path.with_extension("new");
    let mut file = File::create(&fresh)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&fresh, path)?;
    File::open(folder)?.sync_all()
}

fn worker_id(data_dir: &Path) -> Result<String, StartError> {
    let path = data_dir.join("worker");
    let file = |source| StartError::File {
        path: path.clone(),
        source,
    };
    match std::fs::read_to_string(&path) {
        Ok(id) if !id.trim().is_empty() => Ok(id.trim().to_owned()),
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(file(error)),
        _ => {
            let id = uuid::Uuid::now_v7().to_string();
            write_durably(data_dir, &path, &id).map_err(file)?;
            Ok(id)
        }
    }
}
