//! The worker from its parts.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::AtomicBool},
};

use mayfly_domain::InstallationId;
use tokio_util::sync::CancellationToken;
use url::Url;

use super::{Begin, Parts, StartError};
use crate::{
    agent::profile::Profiles,
    bases::Bases,
    bell::Bell,
    blobs::Blobs,
    clock,
    db::Db,
    depot::{Objects, StoreConfig, Travel},
    images::Images,
    queue::{Lanes, Queue},
    retention::Keeper,
    role::Role,
    sandbox::{Backend, Owner},
    snapshot::Store,
    tick::Tools,
    trouble::Trouble,
    worker::{
        Identity, Worker, host_disk::HostDisk, places::Places, reserves::Reserves,
        running::Running, suspects::Suspects,
    },
};

/// What a start has opened.
pub(super) struct Ground {
    pub(super) db: Db,
    pub(super) backend: Arc<dyn Backend>,
    pub(super) store: Arc<Store>,
    pub(super) installation: InstallationId,
    pub(super) identity: Identity,
    pub(super) queue: Arc<dyn Queue>,
}

impl Ground {
    /// Nothing of it runs yet.
    pub(super) fn worker(self, parts: Parts) -> Result<Worker, StartError> {
        let trouble = Trouble::default();
        let tools = self.tools(&parts, &trouble)?;
        let bases = bases(&tools, parts.role);
        // What others have is not known here.
        let run_here = match parts.role.has_engine() {
            true => parts.profiles.clone(),
            false => Profiles(BTreeMap::new()),
        };
        let reserves = Reserves::new(
            &parts.worker,
            &run_here,
            tools.host_disk.clone(),
            tools.running.clone(),
        );
        let begun = CancellationToken::new();
        if parts.begin == Begin::AtOnce {
            if parts.role.has_engine() {
                reserves.check(&run_here)?;
            }
            begun.cancel();
        }
        let profiles = Arc::new(parts.profiles);
        let suspects = Suspects::new(parts.worker.attempts);
        Ok(Worker {
            tools,
            role: parts.role,
            bases,
            lanes: Lanes::new(self.queue, self.db, profiles.clone(), trouble.clone()),
            places: Places::new(&parts.worker, &profiles, reserves),
            profiles,
            identity: self.identity,
            accesses: Arc::new(parts.accesses),
            config: parts.worker,
            bell: Bell::default(),
            trouble,
            resting: CancellationToken::new(),
            begun,
            suspects,
        })
    }

    fn tools(&self, parts: &Parts, trouble: &Trouble) -> Result<Tools, StartError> {
        let (db, store, backend) = (&self.db, &self.store, &self.backend);
        let host_disk = HostDisk::new(parts.data_dir.clone(), parts.disk);
        let images = Images::new(
            db.clone(),
            backend.clone(),
            self.installation,
            &parts.data_dir,
            host_disk.clone(),
        );
        let making = Arc::default();
        let objects = Objects::open(&parts.store, trouble).map_err(StartError::Depot)?;
        let travel = Travel::new(
            db.clone(),
            store.clone(),
            objects,
            self.identity.id.clone(),
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
            installation: self.installation,
            worker: self.identity.id.clone(),
        };
        Ok(Tools {
            images,
            db: db.clone(),
            store: store.clone(),
            blobs,
            backend: backend.clone(),
            supervisor: parts.supervisor.clone(),
            running: Running::default(),
            installation: self.installation,
            owner,
            data_dir: parts.data_dir.clone(),
            init: parts.init.clone(),
            travel,
            host_disk,
            attempts: parts.worker.attempts,
            making,
            began: clock::boot_time(),
            lease: parts.lease.clone(),
            keeper,
            // An earlier start may have died anywhere.
            left: Arc::new(AtomicBool::new(true)),
        })
    }
}

/// A folder that is not mounted yet is no fault of the configuration: the next start finds it. Looked at before
/// this start counts as one, since others leave to a worker that starts what its last start ran.
pub(super) fn store_is_there(config: &StoreConfig) -> Result<(), StartError> {
    let url = Url::parse(&config.url).ok();
    let folder = url.filter(|url| url.scheme() == "file");
    let folder = folder.and_then(|url| url.to_file_path().ok());
    match folder.filter(|path| !path.exists()) {
        Some(path) => Err(StartError::NoStore { path }),
        None => Ok(()),
    }
}

fn bases(tools: &Tools, role: Role) -> Bases {
    Bases {
        db: tools.db.clone(),
        store: tools.store.clone(),
        backend: tools.backend.clone(),
        images: tools.images.clone(),
        owner: tools.owner.clone(),
        making: Arc::clone(&tools.making),
        has_engine: role.has_engine(),
        travel: tools.travel.clone(),
        one_at_a_time: Arc::default(),
    }
}
