//! The parts come to life in the right order: database, identity, clean state, then loops.

use std::{
    fs::File,
    io::{self, Write as _},
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicBool},
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
        installation::{Binding, Installation, version},
    },
    engine::BoundEngine,
    faults,
    images::Images,
    inbox::{self, route::Accesses},
    orders::Orders,
    outbox::{self, Platforms},
    queue::{Lanes, QueueConfig, QueueError},
    reconcile,
    retention::Keeper,
    sandbox::{Backend, BackendError, Engine, fake::SIMULATED},
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
    /// The database is bound to another data dir.
    #[error(
        "database {database} belongs to data dir {home}, and this is {here}: if that one has moved here for good, run `mayfly adopt`; never run both"
    )]
    Taken {
        /// Which database.
        database: String,
        /// Whose: `/path`, `/path on another machine`.
        home: String,
        /// Here.
        here: PathBuf,
    },
    /// A database has one process at a time.
    #[error(
        "database {database} is in use by another mayfly (worker {worker}): end that one first; of one that died it is free after {} s",
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
        let installation = identify(&db, &parts.database, &parts.data_dir).await?;
        let store = Arc::new(Store::open(&parts.data_dir)?);
        backup::restore::tidy(&parts.data_dir)?;
        let blobs = Blobs::open(&parts.data_dir.join("blobs"))?;
        let bound = bind_engine(&db, &installation, &parts).await?;
        let backend: Arc<dyn Backend> =
            Arc::new(BoundEngine::new(parts.backend.clone(), db.clone(), bound));
        let id = worker_id(&parts.data_dir)?;
        alone(&db, &parts.database, &id).await?;
        let epoch = db.start_worker(&id, LEASE).await?;
        faults::point("start.epoch");
        let host_disk = HostDisk::new(parts.data_dir.clone(), parts.disk);
        let images = Images::new(
            db.clone(),
            backend.clone(),
            installation.id,
            &parts.data_dir,
            host_disk.clone(),
        );
        let making = Arc::default();
        let keeper = Keeper::new(
            db.clone(),
            store.clone(),
            blobs.clone(),
            images.clone(),
            Arc::clone(&making),
            &parts.profiles,
        );
        let tools = Tools {
            images,
            db: db.clone(),
            store: store.clone(),
            blobs,
            backend: backend.clone(),
            supervisor: parts.supervisor.clone(),
            running: Running::default(),
            installation: installation.id,
            data_dir: parts.data_dir,
            init: parts.init,
            host_disk,
            attempts: parts.worker.attempts,
            making,
            lease: parts.lease.clone(),
            keeper,
            // An earlier start may have died anywhere.
            left: Arc::new(AtomicBool::new(true)),
        };
        let (profiles, trouble) = (Arc::new(parts.profiles), Trouble::default());
        let identity = Identity { id, epoch };
        let queue = parts.queue.open(installation.id, &identity)?;
        let reserves = Reserves::new(
            parts.worker.memory().unwrap_or(u64::MAX),
            &profiles,
            tools.host_disk.clone(),
            tools.running.clone(),
        );
        if parts.begin == Begin::AtOnce {
            reserves.check()?;
        }
        let worker = Worker {
            tools,
            lanes: Lanes::new(queue, db.clone(), profiles.clone(), trouble.clone()),
            places: Places::new(&parts.worker, &profiles, reserves),
            profiles,
            identity,
            accesses: Arc::new(parts.accesses),
            config: parts.worker,
            bell: Bell::default(),
            trouble,
            resting: CancellationToken::new(),
            begun: CancellationToken::new(),
            suspects: Arc::new(Semaphore::new(1)),
        };
        if parts.begin == Begin::AtOnce {
            worker.begun.cancel();
        }
        reconcile::at_start(&worker)
            .await
            .map_err(|error| StartError::Reconcile(Box::new(error)))?;
        let making = worker.tools.making.clone();
        let bases = Bases::new(db.clone(), store, backend, installation.id, making);
        let commands = Commands::new(&worker, bases.clone(), parts.attachments);
        let supervisor = &parts.supervisor;
        parts.lease.confirm(clock::boot_time());
        supervisor.standing("lease", worker.clone().renew(parts.lease));
        supervisor.standing("worker", worker.clone().serve());
        supervisor.standing("queue beat", worker.clone().beat());
        supervisor.standing("disk guard", worker.clone().guard_disk());
        supervisor.standing("engine watch", worker.clone().watch_engine());
        supervisor.standing("reconciler", reconcile::serve(worker.clone()));
        supervisor.standing("lane keeper", reconcile::keep_lanes(worker.clone()));
        supervisor.standing("image keeper", reconcile::keep_images(worker.clone()));
        let (platforms, accesses) = (&parts.platforms, worker.accesses.clone());
        inbox::start(
            &worker,
            bases,
            platforms,
            &accesses,
            parts.attachments,
            parts.begin,
        );
        if !platforms.is_empty() {
            let orders = Orders {
                db: db.clone(),
                blobs: worker.tools.blobs.clone(),
                commands: commands.clone(),
                platforms: platforms.clone(),
                accesses: Arc::clone(&accesses),
                bell: worker.bell.clone(),
            };
            supervisor.standing("orders", orders.serve(supervisor.clone()));
        }
        outbox::start(
            &db,
            &worker.tools.blobs,
            platforms,
            &worker.bell,
            supervisor,
        );
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
}

/// Binds a copied or moved data dir to this place under a new installation id. Refused where it is
/// at home: it would give up what its own ticks have made on the engine.
pub async fn adopt(
    database: &Place,
    data_dir: &Path,
    engine: Option<&Engine>,
) -> Result<InstallationId, StartError> {
    let db = Db::open(database).await?;
    alone(&db, database, "").await?;
    let here = binding(data_dir);
    let id = match db.installation().await? {
        Some(found) => {
            let same = |known: &String| {
                known == SIMULATED || engine.is_none_or(|engine| engine.id == *known)
            };
            if found.binding == here && found.engine_id.as_ref().is_none_or(same) {
                let data_dir = data_dir.to_owned();
                return Err(StartError::AtHome { data_dir });
            }
            db.adopt(&here).await?
        }
        None => db.create_installation(&here).await?,
    };
    let worker = data_dir.join("worker");
    match std::fs::remove_file(&worker) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(StartError::File {
                path: worker,
                source: error,
            });
        }
        _ => {}
    }
    db.close().await;
    Ok(id)
}

/// Refused while another process works on the database.
async fn alone(db: &Db, database: &Place, worker: &str) -> Result<(), StartError> {
    match db.other_worker(worker).await? {
        None => Ok(()),
        Some(worker) => Err(StartError::InUse {
            database: database.to_string(),
            worker,
        }),
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

async fn identify(db: &Db, database: &Place, data_dir: &Path) -> Result<Installation, StartError> {
    let here = binding(data_dir);
    let Some(found) = db.installation().await? else {
        let id = db.create_installation(&here).await?;
        let minimum_version = env!("CARGO_PKG_VERSION").to_owned();
        return Ok(Installation {
            id,
            binding: here,
            engine_id: None,
            minimum_version,
        });
    };
    let ours = env!("CARGO_PKG_VERSION");
    if version(&found.minimum_version) > version(ours) {
        let (data_dir, needs) = (data_dir.to_owned(), found.minimum_version);
        return Err(StartError::TooOld {
            data_dir,
            needs,
            ours,
        });
    }
    let elsewhere = if found.binding.machine_id != here.machine_id {
        "on another machine".to_owned()
    } else if found.binding.data_dir != here.data_dir {
        format!("at {}", found.binding.data_dir)
    } else {
        return Ok(found);
    };
    Err(match database {
        Place::Embedded(_) => StartError::Copied {
            data_dir: data_dir.to_owned(),
            elsewhere,
        },
        Place::Postgres(server) => StartError::Taken {
            database: server.to_string(),
            home: match found.binding.machine_id == here.machine_id {
                true => found.binding.data_dir,
                false => format!("{} on another machine", found.binding.data_dir),
            },
            here: data_dir.to_owned(),
        },
    })
}

/// The engine this data dir belongs to. One that is down binds nothing: the lanes wait for it.
async fn bind_engine(
    db: &Db,
    found: &Installation,
    parts: &Parts,
) -> Result<Option<String>, StartError> {
    let engine = match parts.backend.engine().await {
        Ok(engine) => engine,
        Err(error @ BackendError::Down { .. }) => {
            tracing::warn!(%error, "starting without an engine: messages wait");
            return Ok(found.engine_id.clone());
        }
        Err(error) => {
            tracing::warn!(%error, "the engine does not tell who it is");
            return Ok(found.engine_id.clone());
        }
    };
    match &found.engine_id {
        Some(known) if (known == SIMULATED) != (engine.id == SIMULATED) => {
            let (belongs, flag) = match known == SIMULATED {
                true => ("simulated agents", " --simulate"),
                false => ("real agents", ""),
            };
            Err(StartError::OtherKind {
                data_dir: parts.data_dir.clone(),
                belongs,
                flag,
            })
        }
        Some(known) if *known != engine.id => Err(StartError::Copied {
            data_dir: parts.data_dir.clone(),
            elsewhere: "with another container engine".to_owned(),
        }),
        Some(_) => Ok(Some(engine.id)),
        None => {
            db.bind_engine(&engine.id).await?;
            Ok(Some(engine.id))
        }
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
