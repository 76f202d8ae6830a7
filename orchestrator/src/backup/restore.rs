//! Bringing one back into an empty data dir. Everything is made below `.restore` and moved to its
//! place at the end, the database last: until then a data dir is recognisably unfinished.

use std::{
    collections::HashSet,
    fs::{self, DirBuilder, File},
    io,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
};

use mayfly_domain::InstallationId;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use super::{
    ImageLeft, Manifest, ManifestError,
    manifest::{DATABASE, Item},
    size,
};
use crate::{
    db::{
        Db, DbError, Place,
        copy::{self, Named},
    },
    faults, observe,
    sandbox::disk,
    service,
    snapshot::{ReplicaError, Replicator, StoreError, replica},
};

/// Lies in a data dir while it is restored.
pub const UNFINISHED: &str = ".restore";

/// What an unfinished restore may have moved to its place.
const MOVED: [&str; 5] = ["b", "l", "transcripts", "blobs", "images"];
/// What may lie in a data dir that counts as empty.
const HARMLESS: [&str; 3] = ["lock", "lost+found", "mayfly.toml"];
/// Kept free beside what is restored.
const MORE: u64 = 64 << 20;

/// What was restored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestoreView {
    /// Its new identity.
    pub installation: InstallationId,
    /// Living agents.
    pub agents: u64,
    /// When the backup was taken, unix milliseconds.
    pub taken_at: i64,
    /// What the backup lacked because the original was damaged.
    pub damaged: Vec<String>,
    /// Images that were not in it.
    pub images: Vec<ImageLeft>,
}

/// Why nothing was restored. `Display` is one sentence with the way out.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// No backup that can be used.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// Something of it is not what it was.
    #[error("{} is damaged: {reason}; nothing was restored, take another backup", path.display())]
    Damaged {
        /// What.
        path: PathBuf,
        /// How.
        reason: String,
    },
    /// Restoring would mix two installations.
    #[error(
        "data dir {} is not empty, it holds \"{entry}\": name another with --data-dir, or move this one away", path.display()
    )]
    NotEmpty {
        /// The data dir.
        path: PathBuf,
        /// What lies in it.
        entry: String,
    },
    /// Does not fit.
    #[error(
        "the backup takes {}, and {} are free for data dir {}: free some, or name another with --data-dir",
        size(*bytes), size(*free), path.display()
    )]
    NoRoom {
        /// The data dir.
        path: PathBuf,
        /// Bytes wanted.
        bytes: u64,
        /// Bytes that may be used.
        free: u64,
    },
    /// The rows.
    #[error(transparent)]
    Db(#[from] DbError),
    /// The data dir.
    #[error("nothing was restored: {}", observe::chain(.0))]
    Target(StoreError),
    /// A signal came.
    #[error("the restore was given up half-way: run it again")]
    Stopped,
}

/// Restores `backup` into `data_dir`, which is empty and held by the caller. A data dir that an
/// earlier restore left unfinished counts as empty.
pub async fn restore(
    backup: &Path,
    data_dir: &Path,
    stop: CancellationToken,
) -> Result<RestoreView, RestoreError> {
    let manifest = Manifest::read(backup)?;
    clear(data_dir)?;
    let aside = data_dir.join(UNFINISHED);
    let restored = into(&aside, &manifest, (backup, data_dir), stop).await;
    if restored.is_err()
        && let Err(error) = clear(data_dir)
    {
        tracing::warn!(%error, "an unfinished restore is left");
    }
    restored
}

async fn into(
    aside: &Path,
    manifest: &Manifest,
    (backup, data_dir): (&Path, &Path),
    stop: CancellationToken,
) -> Result<RestoreView, RestoreError> {
    weigh(backup, manifest, data_dir)?;
    make(aside)?;
    make(&aside.join("db"))?;
    let database = aside.join("db").join(DATABASE);
    let source = backup.join(DATABASE);
    let copied = Replicator::new(stop.clone()).copy_file(&source, &database);
    let (sha256, _) = copied.map_err(of)?;
    if sha256 != manifest.database {
        return Err(damaged(&source, "its content is not what was backed up"));
    }
    match copy::judge(&database).await {
        Ok(None) => {}
        Ok(Some(fault)) => return Err(damaged(&source, fault)),
        Err(error) => return Err(damaged(&source, error)),
    }
    let db = Db::open(&Place::Embedded(database.clone())).await?;
    let installation = db.adopt(&service::binding(data_dir)).await?;
    db.owe_all().await?;
    db.forget_unnamed_uploads().await?;
    let agents = db.count_agents().await?;
    db.close().await;
    let named = Named::read(&database).await?;
    complete(backup, manifest, &named)?;
    faults::point("restore.database");
    let copying = {
        let (backup, aside, manifest) = (backup.to_owned(), aside.to_owned(), manifest.clone());
        tokio::task::spawn_blocking(move || files(&backup, &aside, &manifest, stop))
    };
    copying
        .await
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))?;
    faults::point("restore.copied");
    settle(aside, data_dir)?;
    Ok(RestoreView {
        installation,
        agents,
        taken_at: manifest.taken_at,
        damaged: manifest.damaged.clone(),
        images: manifest.images.clone(),
    })
}

/// What the rows name is there, or was said to be lost; and nothing else.
fn complete(backup: &Path, manifest: &Manifest, named: &Named) -> Result<(), RestoreError> {
    let listed = manifest.trees.iter().map(|item| &item.path);
    let known: HashSet<&String> = listed.chain(&manifest.damaged).collect();
    let layers = named.layers.iter().map(|id| format!("l/{id}"));
    let bases = named.bases.iter().map(|id| format!("b/{id}"));
    let wanted: HashSet<String> = layers.chain(bases).collect();
    if let Some(path) = wanted.iter().find(|path| !known.contains(path)) {
        return Err(damaged(&backup.join(path), "the manifest lacks it"));
    }
    let state = |path: &&&String| path.starts_with("l/") || path.starts_with("b/");
    match known
        .iter()
        .filter(state)
        .find(|path| !wanted.contains(**path))
    {
        Some(path) => Err(damaged(&backup.join(path), "the database does not know it")),
        None => Ok(()),
    }
}

fn files(
    backup: &Path,
    aside: &Path,
    manifest: &Manifest,
    stop: CancellationToken,
) -> Result<(), RestoreError> {
    for folder in MOVED {
        make(&aside.join(folder))?;
    }
    let mut replicator = Replicator::new(stop);
    for (n, Item { path, sha256 }) in manifest.trees.iter().enumerate() {
        if n == 1 {
            faults::point("restore.copying");
        }
        let from = backup.join(path);
        // Each part of the path is the backup's own folder and no link out of it.
        for part in [from.parent().unwrap_or(&from), &from] {
            match part.symlink_metadata() {
                Ok(found) if found.is_dir() => {}
                Ok(_) => return Err(damaged(part, "it is no folder")),
                Err(error) => return Err(damaged(part, error)),
            }
        }
        let copied = replicator.copy(&from, &aside.join(path), &|_| true);
        if copied.map_err(of)? != *sha256 {
            return Err(damaged(&from, "its content is not what was backed up"));
        }
    }
    for Item { path, sha256 } in &manifest.archives {
        let from = backup.join(path);
        let copied = replicator.copy_file(&from, &aside.join(path));
        if copied.map_err(of)?.0 != *sha256 {
            return Err(damaged(&from, "its content is not what was backed up"));
        }
    }
    Ok(())
}

/// Durable, then moved, the database last.
fn settle(aside: &Path, data_dir: &Path) -> Result<(), RestoreError> {
    let lasting = |path: &Path| {
        let synced = File::open(path).and_then(|folder| folder.sync_all());
        synced.map_err(|error| target(path, error))
    };
    replica::settle(aside).map_err(RestoreError::Target)?;
    for name in MOVED {
        let (from, to) = (aside.join(name), data_dir.join(name));
        fs::rename(&from, &to).map_err(|error| target(&to, error))?;
    }
    lasting(data_dir)?;
    faults::point("restore.moved");
    let to = data_dir.join(DATABASE);
    let moved = fs::rename(aside.join("db").join(DATABASE), &to);
    moved.map_err(|error| target(&to, error))?;
    lasting(data_dir)?;
    faults::point("restore.named");
    replica::remove(aside).map_err(RestoreError::Target)?;
    lasting(data_dir)
}

/// Takes away what a restore that was whole had no time to. Legal when the database is in its place.
pub(crate) fn tidy(data_dir: &Path) -> Result<(), StoreError> {
    replica::remove(&data_dir.join(UNFINISHED))
}

/// Takes away what an earlier restore left, and refuses anything else.
fn clear(data_dir: &Path) -> Result<(), RestoreError> {
    let whole = data_dir.join(DATABASE).exists();
    let aside = data_dir.join(UNFINISHED);
    if !whole && aside.is_dir() {
        // The mark goes last.
        for name in MOVED {
            replica::remove(&data_dir.join(name)).map_err(RestoreError::Target)?;
        }
        replica::remove(&aside).map_err(RestoreError::Target)?;
    }
    let entries = fs::read_dir(data_dir).map_err(|error| target(data_dir, error))?;
    for entry in entries {
        let entry = entry.map_err(|error| target(data_dir, error))?;
        let entry = entry.file_name().to_string_lossy().into_owned();
        if !HARMLESS.contains(&entry.as_str()) {
            return Err(RestoreError::NotEmpty {
                path: data_dir.to_owned(),
                entry,
            });
        }
    }
    Ok(())
}

fn weigh(backup: &Path, manifest: &Manifest, data_dir: &Path) -> Result<(), RestoreError> {
    let mut weight = replica::Weight::new();
    for item in &manifest.trees {
        // What is wrong with it is told where it is read.
        let _ = weight.add(&backup.join(&item.path));
    }
    let archives = manifest.archives.iter().map(|item| item.path.as_str());
    let plain = archives.chain([DATABASE]).map(|path| {
        let found = backup.join(path).symlink_metadata();
        found.map_or(0, |found| found.len())
    });
    let bytes = weight.sum().bytes.saturating_add(plain.sum::<u64>());
    let free = disk::free(data_dir).map_err(|error| target(data_dir, error))?;
    match bytes.saturating_add(MORE) > free.0 {
        true => Err(RestoreError::NoRoom {
            path: data_dir.to_owned(),
            bytes,
            free: free.0,
        }),
        false => Ok(()),
    }
}

fn make(folder: &Path) -> Result<(), RestoreError> {
    let made = DirBuilder::new().mode(0o700).create(folder);
    made.map_err(|error| target(folder, error))
}

fn target(path: &Path, source: io::Error) -> RestoreError {
    RestoreError::Target(StoreError::Io {
        path: path.to_owned(),
        source,
    })
}

fn damaged(path: &Path, reason: impl ToString) -> RestoreError {
    RestoreError::Damaged {
        path: path.to_owned(),
        reason: reason.to_string(),
    }
}

fn of(error: ReplicaError) -> RestoreError {
    match error {
        ReplicaError::Stopped => RestoreError::Stopped,
        ReplicaError::Target(error) => RestoreError::Target(error),
        ReplicaError::Source(StoreError::Io { path, source }) => damaged(&path, source),
        ReplicaError::Source(error) => RestoreError::Target(error),
        ReplicaError::Foreign { path, what } => damaged(&path, format!("it {what}")),
    }
}
