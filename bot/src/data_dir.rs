//! The data dir: one process holds it at a time, by a lock that ends with the process.

use std::{
    fs::{DirBuilder, File, OpenOptions},
    io::{self, Read, Seek, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use rustix::fs::{FlockOperation, flock};

/// Longest path: mount options name many folders below it and must fit one page.
const MAX_PATH: usize = 60;

/// Why a data dir cannot be used: one sentence with the way out.
#[derive(Debug, thiserror::Error)]
pub enum DataDirError {
    #[error("\"{}\" is not absolute: write the path from / on", .0.display())]
    Relative(PathBuf),
    #[error("\"{}\" has {} bytes, at most {MAX_PATH} fit into mount options: choose a shorter path", .0.display(), .0.as_os_str().len())]
    TooLong(PathBuf),
    #[error("\"{}\" holds {found:?}, which mount options cannot: choose a path without it", path.display())]
    Character { path: PathBuf, found: char },
    #[error("data dir {} is not a folder: choose another path or move the file away", .0.display())]
    NotAFolder(PathBuf),
    #[error("data dir {} belongs to user id {owner}, this process is {me}: run mayfly as its owner, or chown it", path.display())]
    Foreign { path: PathBuf, owner: u32, me: u32 },
    #[error("data dir {} is on a read-only file system: mount it writable or choose another path", .0.display())]
    ReadOnly(PathBuf),
    #[error("data dir {} cannot be entered: run mayfly as root (for example with sudo), or choose another path with --data-dir", .0.display())]
    NoPermission(PathBuf),
    #[error("data dir {} is in use by {holder}: wait until it ends, stop it, or name another with --data-dir", path.display())]
    InUse { path: PathBuf, holder: String },
    #[error("data dir {}: {action} failed: {source}", path.display())]
    Io {
        path: PathBuf,
        action: &'static str,
        source: io::Error,
    },
}

/// What a path must be before anything is looked at.
pub fn check_path(path: &Path) -> Result<(), DataDirError> {
    if !path.is_absolute() {
        return Err(DataDirError::Relative(path.to_owned()));
    }
    if path.as_os_str().len() > MAX_PATH {
        return Err(DataDirError::TooLong(path.to_owned()));
    }
    let text = path.to_string_lossy();
    let bad = |c: &char| [':', ',', '\\', '\u{fffd}'].contains(c) || c.is_control();
    match text.chars().find(bad) {
        Some(found) => Err(DataDirError::Character {
            path: path.to_owned(),
            found,
        }),
        None => Ok(()),
    }
}

/// A data dir that this process holds.
#[derive(Debug)]
pub struct DataDir {
    path: PathBuf,
    /// Its lock ends when this is closed.
    _lock: File,
}

impl DataDir {
    /// Makes the folder if it is missing and takes its lock.
    pub fn hold(path: &Path) -> Result<Self, DataDirError> {
        check_path(path)?;
        make(path)?;
        inspect(path)?;
        Ok(DataDir {
            path: path.to_owned(),
            _lock: lock(path)?,
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Where the server answers.
pub fn socket(data_dir: &Path) -> PathBuf {
    data_dir.join("mayfly.sock")
}

/// What the TCP listener wants to be told.
pub fn token(data_dir: &Path) -> PathBuf {
    data_dir.join("token")
}

fn make(path: &Path) -> Result<(), DataDirError> {
    let parent = path.parent().unwrap_or(path);
    std::fs::create_dir_all(parent).map_err(|error| told(path, "making the folder", error))?;
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(told(path, "making the folder", error))
        }
        _ => Ok(()),
    }
}

fn inspect(path: &Path) -> Result<(), DataDirError> {
    let found = std::fs::metadata(path).map_err(|error| told(path, "looking at it", error))?;
    if !found.is_dir() {
        return Err(DataDirError::NotAFolder(path.to_owned()));
    }
    let me = rustix::process::geteuid().as_raw();
    if found.uid() != me {
        return Err(DataDirError::Foreign {
            path: path.to_owned(),
            owner: found.uid(),
            me,
        });
    }
    Ok(())
}

fn lock(path: &Path) -> Result<File, DataDirError> {
    let opened = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path.join("lock"));
    let mut file = opened.map_err(|error| told(path, "opening its lock", error))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(rustix::io::Errno::WOULDBLOCK) => {
            let mut pid = String::new();
            let _ = file.read_to_string(&mut pid);
            let holder = match pid.trim() {
                "" => "another process".to_owned(),
                pid => format!("pid {pid}"),
            };
            return Err(DataDirError::InUse {
                path: path.to_owned(),
                holder,
            });
        }
        Err(error) => return Err(told(path, "locking it", error.into())),
    }
    let written = file
        .set_len(0)
        .and_then(|()| file.rewind())
        .and_then(|()| writeln!(file, "{}", std::process::id()));
    // A full disk must not keep the service from writing outcomes: the pid is only for people.
    if let Err(error) = written {
        tracing::warn!(%error, "the pid could not be written into the lock");
    }
    Ok(file)
}

fn told(path: &Path, action: &'static str, source: io::Error) -> DataDirError {
    let path = path.to_owned();
    match source.kind() {
        io::ErrorKind::ReadOnlyFilesystem => DataDirError::ReadOnly(path),
        io::ErrorKind::PermissionDenied => DataDirError::NoPermission(path),
        io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => {
            DataDirError::NotAFolder(path)
        }
        _ => DataDirError::Io {
            path,
            action,
            source,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_mount_options_cannot_hold_is_refused() {
        let fault = |path: &str| check_path(Path::new(path)).unwrap_err().to_string();
        assert!(fault("var/mayfly").contains("not absolute"));
        assert!(fault("/var/lib/a,b").contains("','"));
        assert!(fault("/var/lib/a:b").contains("':'"));
        assert!(fault("/var/lib/a\\b").contains("choose a path"));
        assert!(fault(&format!("/{}", "a".repeat(60))).contains("61 bytes"));
        assert!(check_path(Path::new(&format!("/{}", "a".repeat(59)))).is_ok());
    }

    #[test]
    fn a_second_holder_is_told_who_has_it() {
        let dir = tempfile::tempdir_in("/tmp").unwrap();
        let path = dir.path().join("d");
        let held = DataDir::hold(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o700);
        let refused = DataDir::hold(&path).unwrap_err().to_string();
        assert!(refused.contains(&format!("in use by pid {}", std::process::id())));
        drop(held);
        DataDir::hold(&path).unwrap();
    }

    #[test]
    fn a_file_in_its_place_is_named() {
        let dir = tempfile::tempdir_in("/tmp").unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, "").unwrap();
        let refused = DataDir::hold(&path).unwrap_err();
        assert!(matches!(refused, DataDirError::NotAFolder(_)), "{refused}");
    }

    #[test]
    fn a_foreign_folder_is_refused() {
        if rustix::process::geteuid().is_root() {
            let dir = tempfile::tempdir_in("/tmp").unwrap();
            std::os::unix::fs::chown(dir.path(), Some(1234), None).unwrap();
            let refused = DataDir::hold(dir.path()).unwrap_err().to_string();
            assert!(refused.contains("belongs to user id 1234"), "{refused}");
        }
    }
}
