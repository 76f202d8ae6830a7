//! Whether a data dir is where it was, whose worker it is, and with which engine.

use std::{
    fs::File,
    io::{self, Write as _},
    path::Path,
};

use mayfly_domain::InstallationId;

use super::{Parts, StartError};
use crate::{
    clock::LEASE,
    db::{
        Db, Place,
        installation::{Binding, version},
        workers::{QueueKind, Started},
    },
    sandbox::{BackendError, Engine, fake::SIMULATED},
    worker::Identity,
};

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
pub(super) struct AtHome {
    pub(super) installation: InstallationId,
    pub(super) engine_id: Option<String>,
}

/// The installation, and that this data dir is where it was: the one of the rows, or that of the worker where
/// several share them.
pub(super) async fn identify(db: &Db, parts: &Parts, worker: &str) -> Result<AtHome, StartError> {
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
pub(super) async fn begin_epoch(
    db: &Db,
    parts: &Parts,
    id: String,
) -> Result<Identity, StartError> {
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
pub(super) async fn bind_engine(
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

pub(super) fn worker_id(data_dir: &Path) -> Result<String, StartError> {
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
