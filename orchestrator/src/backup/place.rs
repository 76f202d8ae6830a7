//! Where a backup is written: aside, marked as unfinished, under its name when it is whole.

use std::{
    fs::{self, DirBuilder, File},
    io,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use rustix::fs::{FlockOperation, flock};

use super::{BackupError, manifest::NAME};
use crate::snapshot::{StoreError, replica};

/// Lies in a backup until it is whole; its writer holds a lock on it.
pub(super) const UNFINISHED: &str = "unfinished";

/// A backup that is being written. Dropped before [`Place::finish`], nothing is left of it.
pub(super) struct Place {
    target: PathBuf,
    aside: PathBuf,
    mark: Option<File>,
}

impl Place {
    /// Claims `target`, whose parent must be there and outside `data_dir`.
    pub(super) fn claim(target: &Path, data_dir: &Path) -> Result<Place, BackupError> {
        let refused = |reason| BackupError::Target {
            path: target.to_owned(),
            reason,
        };
        if !target.is_absolute() {
            return Err(refused("is not absolute: write the path from / on"));
        }
        let (Some(parent), Some(name)) = (target.parent(), target.file_name()) else {
            return Err(refused("is no new folder: name one"));
        };
        let parent = match parent.canonicalize() {
            Ok(parent) if parent.is_dir() => parent,
            _ => return Err(refused("has no parent folder: make that first")),
        };
        if parent.starts_with(data_dir) {
            return Err(refused("lies in the data dir: name a folder outside of it"));
        }
        let target = parent.join(name);
        match target.symlink_metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(told(&target, error)),
            Ok(found) if !found.is_dir() => {
                return Err(refused("is there already and no folder: name a new folder"));
            }
            Ok(found) => {
                let above = parent.metadata().map_err(|error| told(&parent, error))?;
                if found.dev() != above.dev() {
                    return Err(refused("is a mount point: name a new folder in it"));
                }
                let mut entries = fs::read_dir(&target).map_err(|error| told(&target, error))?;
                if entries.next().is_some() {
                    return Err(refused("is not empty: name a new folder"));
                }
            }
        }
        let mut aside = name.to_owned();
        aside.push(".unfinished");
        let aside = parent.join(aside);
        let mark = claim_aside(&aside, &refused)?;
        Ok(Place {
            target,
            aside,
            mark: Some(mark),
        })
    }

    /// Where to write.
    pub(super) fn aside(&self) -> &Path {
        &self.aside
    }

    /// What it will be called.
    pub(super) fn target(&self) -> &Path {
        &self.target
    }

    /// Takes the mark off and gives it its name; durable when it returns.
    pub(super) fn finish(mut self) -> Result<PathBuf, BackupError> {
        let mark = self.aside.join(UNFINISHED);
        fs::remove_file(&mark).map_err(|error| told(&mark, error))?;
        replica::settle(&self.aside)?;
        crate::faults::point("backup.whole");
        fs::rename(&self.aside, &self.target).map_err(|error| told(&self.target, error))?;
        self.mark = None;
        let target = self.target.clone();
        let parent = target.parent().unwrap_or(&target);
        let synced = File::open(parent).and_then(|parent| parent.sync_all());
        synced.map_err(|error| told(parent, error))?;
        Ok(target)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.mark.is_some()
            && let Err(error) = replica::remove(&self.aside)
        {
            tracing::warn!(%error, "an unfinished backup is left");
        }
    }
}

fn claim_aside(
    aside: &Path,
    refused: &impl Fn(&'static str) -> BackupError,
) -> Result<File, BackupError> {
    let mark = aside.join(UNFINISHED);
    match DirBuilder::new().mode(0o700).create(aside) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            // Of a writer that died, before it had made its mark or after it had taken it off?
            // Else it is not ours to remove.
            if fs::remove_dir(aside).is_err() {
                let held = File::open(&mark).or_else(|_| File::open(aside.join(NAME)));
                let Ok(held) = held else {
                    return Err(refused(
                        "cannot be written: its name with .unfinished is taken by something else",
                    ));
                };
                lock(&held, refused)?;
                replica::remove(aside)?;
            }
            let made = DirBuilder::new().mode(0o700).create(aside);
            made.map_err(|error| told(aside, error))?;
        }
        Err(error) => return Err(told(aside, error)),
    }
    let file = File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&mark);
    let file = file.map_err(|error| told(&mark, error))?;
    lock(&file, refused)?;
    Ok(file)
}

fn lock(file: &File, refused: &impl Fn(&'static str) -> BackupError) -> Result<(), BackupError> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(()),
        Err(_) => Err(refused("is being written by another backup: wait for it")),
    }
}

fn told(path: &Path, source: io::Error) -> BackupError {
    match source.kind() {
        io::ErrorKind::StorageFull => BackupError::Full(path.to_owned()),
        _ => StoreError::Io {
            path: path.to_owned(),
            source,
        }
        .into(),
    }
}
