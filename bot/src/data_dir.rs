//! The data dir: one process holds it at a time, by a lock that ends with the process.

use std::{
    fmt,
    fs::{DirBuilder, File, OpenOptions, Permissions},
    io::{self, Read, Seek, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use mayfly_orchestrator::backup::restore;
use rustix::fs::{FlockOperation, flock};

/// Longest path: mount options name many folders below it and must fit one page.
const MAX_PATH: usize = 60;

/// Why a data dir cannot be used: one sentence with the way out.
#[derive(Debug, thiserror::Error)]
pub enum DataDirError {
    #[error("{0:?} is not absolute: write the path from / on")]
    Relative(PathBuf),
    #[error("{:?} has {} bytes, at most {MAX_PATH} fit into mount options: choose a shorter path", .0, .0.as_os_str().len())]
    TooLong(PathBuf),
    #[error("{path:?} holds {found:?}, which mount options cannot: choose a path without it")]
    Character { path: PathBuf, found: char },
    #[error("data dir {} is not a folder: choose another path or move the file away", .0.display())]
    NotAFolder(PathBuf),
    #[error("data dir {} belongs to user id {owner}, this process is {me}: run mayfly as its owner, or chown it", path.display())]
    Foreign { path: PathBuf, owner: u32, me: u32 },
    #[error("data dir {} is on a read-only file system: mount it writable or choose another path", .0.display())]
    ReadOnly(PathBuf),
    #[error("data dir {} cannot be entered: run mayfly as root (for example with sudo), or choose another path with --data-dir", .0.display())]
    NoPermission(PathBuf),
    #[error("folder {} holds \"{entry}\", which is not Mayfly's: name a new or an empty folder", path.display())]
    Occupied { path: PathBuf, entry: String },
    #[error("data dir {} holds an unfinished restore: run mayfly restore again, or name another", .0.display())]
    HalfRestored(PathBuf),
    #[error("data dir {} is in use by {holder}: wait until it ends, stop it, or name another with --data-dir", path.display())]
    InUse { path: PathBuf, holder: Holder },
    #[error("data dir {}: {action} failed: {source}", path.display())]
    Io {
        path: PathBuf,
        action: &'static str,
        source: io::Error,
    },
}

impl DataDirError {
    /// Whether it will be over soon: a command holds the data dir.
    pub fn passes(&self) -> bool {
        match self {
            DataDirError::InUse { holder, .. } => {
                matches!(holder.purpose, Some(Purpose::Command | Purpose::Restore))
            }
            _ => false,
        }
    }
}

/// What a process holds a data dir for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// `mayfly serve`: as long as nobody stops it.
    Serve,
    /// Any other verb: until it is done.
    Command,
    /// `mayfly restore`: the only one that may hold a half-restored one.
    Restore,
}

/// Who holds a data dir, as its lock tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// None while it has not written it down yet.
    pub purpose: Option<Purpose>,
    pid: String,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let who = match self.purpose {
            Some(Purpose::Serve) => "mayfly serve",
            Some(Purpose::Command) => "a mayfly command",
            Some(Purpose::Restore) => "mayfly restore",
            None => return f.write_str("another process"),
        };
        write!(f, "{who} (pid {})", self.pid)
    }
}

impl Holder {
    fn parse(text: &str) -> Self {
        let (pid, purpose) = text.trim().split_once(' ').unwrap_or((text.trim(), ""));
        let purpose = match purpose {
            "serve" => Some(Purpose::Serve),
            "command" => Some(Purpose::Command),
            "restore" => Some(Purpose::Restore),
            _ => None,
        };
        Holder {
            purpose,
            pid: pid.to_owned(),
        }
    }
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
    /// Makes the folder if it is missing, takes its lock and closes it to others.
    pub fn hold(path: &Path, purpose: Purpose) -> Result<Self, DataDirError> {
        check_path(path)?;
        make(path)?;
        inspect(path, purpose)?;
        // A data dir is bound to its place: by whatever name it was reached, this is the same one.
        let path = path
            .canonicalize()
            .map_err(|error| told(path, "looking at it", error))?;
        check_path(&path)?;
        let lock = lock(&path, purpose)?;
        tighten(&path)?;
        Ok(DataDir { path, _lock: lock })
    }

    /// Without links and detours.
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

fn inspect(path: &Path, purpose: Purpose) -> Result<(), DataDirError> {
    let found = match std::fs::metadata(path) {
        // A link to nothing.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(DataDirError::NotAFolder(path.to_owned()));
        }
        found => found.map_err(|error| told(path, "looking at it", error))?,
    };
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
    only_ours(path, purpose)
}

/// What may lie in a data dir whose first start has not come far.
const OURS: [&str; 18] = [
    ".doctor",
    ".socket",
    "b",
    "ballast",
    "blobs",
    "init",
    "l",
    "lock",
    "lost+found",
    "mayfly.sock",
    "mayfly.toml",
    "t",
    "token",
    "token.new",
    "transcripts",
    "trash",
    "u",
    "worker",
];

/// A slip of the pen must not make a data dir of `/var` and close it to everybody else.
fn only_ours(path: &Path, purpose: Purpose) -> Result<(), DataDirError> {
    let is_file = |name: &str| {
        let found = std::fs::symlink_metadata(path.join(name));
        found.is_ok_and(|found| found.is_file())
    };
    // The second where the rows are elsewhere.
    if is_file("mayfly.db") || is_file("worker") {
        return Ok(());
    }
    if path.join(restore::UNFINISHED).is_dir() {
        return match purpose {
            Purpose::Restore => Ok(()),
            _ => Err(DataDirError::HalfRestored(path.to_owned())),
        };
    }
    let entries = std::fs::read_dir(path).map_err(|error| told(path, "reading it", error))?;
    for entry in entries {
        let entry = entry.map_err(|error| told(path, "reading it", error))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if !OURS.contains(&name.as_str()) {
            return Err(DataDirError::Occupied {
                path: path.to_owned(),
                entry: name,
            });
        }
    }
    Ok(())
}

/// Chats and tokens lie in it: it is its owner's only.
fn tighten(path: &Path) -> Result<(), DataDirError> {
    let found = std::fs::metadata(path).map_err(|error| told(path, "looking at it", error))?;
    let mode = found.mode() & 0o7777;
    if mode & 0o077 != 0 {
        std::fs::set_permissions(path, Permissions::from_mode(0o700))
            .map_err(|error| told(path, "closing it to others", error))?;
        tracing::warn!("data dir {} had mode {mode:o}: now 700", path.display());
    }
    Ok(())
}

fn lock(path: &Path, purpose: Purpose) -> Result<File, DataDirError> {
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
            let mut told = String::new();
            let _ = file.read_to_string(&mut told);
            return Err(DataDirError::InUse {
                path: path.to_owned(),
                holder: Holder::parse(&told),
            });
        }
        Err(error) => return Err(told(path, "locking it", error.into())),
    }
    let what = match purpose {
        Purpose::Serve => "serve",
        Purpose::Command => "command",
        Purpose::Restore => "restore",
    };
    let written = file
        .set_len(0)
        .and_then(|()| file.rewind())
        .and_then(|()| writeln!(file, "{} {what}", std::process::id()));
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
        let held = DataDir::hold(&path, Purpose::Serve).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o700);
        let refused = DataDir::hold(&path, Purpose::Command).unwrap_err();
        let holder = format!("in use by mayfly serve (pid {})", std::process::id());
        assert!(refused.to_string().contains(&holder), "{refused}");
        drop(held);
        DataDir::hold(&path, Purpose::Command).unwrap();
    }

    #[test]
    fn a_data_dir_is_closed_to_others_and_the_same_by_any_name() {
        let dir = tempfile::tempdir_in("/tmp").unwrap();
        let path = dir.path().join("d");
        drop(DataDir::hold(&path, Purpose::Command).unwrap());
        std::fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let held = DataDir::hold(&link, Purpose::Command).unwrap();
        assert_eq!(held.path(), path);
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o700);
    }

    #[test]
    fn a_folder_of_something_else_is_left_as_it_is() {
        let dir = tempfile::tempdir_in("/tmp").unwrap();
        std::fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
        std::fs::create_dir(dir.path().join("lost+found")).unwrap();
        std::fs::write(dir.path().join("letters"), "").unwrap();
        let refused = DataDir::hold(dir.path(), Purpose::Serve).unwrap_err();
        assert!(refused.to_string().contains("\"letters\""), "{refused}");
        let mode = std::fs::metadata(dir.path()).unwrap().mode();
        assert_eq!(mode & 0o777, 0o755);
        assert!(!dir.path().join("lock").exists());
        std::fs::remove_file(dir.path().join("letters")).unwrap();
        DataDir::hold(dir.path(), Purpose::Serve).unwrap();
    }

    /// Where the rows are in PostgreSQL there is no database file, and more folders come with time.
    #[test]
    fn a_data_dir_is_known_by_its_worker_too() {
        let dir = tempfile::tempdir_in("/tmp").unwrap();
        std::fs::create_dir(dir.path().join("images")).unwrap();
        assert!(DataDir::hold(dir.path(), Purpose::Serve).is_err());
        std::fs::write(dir.path().join("worker"), "").unwrap();
        DataDir::hold(dir.path(), Purpose::Serve).unwrap();
    }

    #[test]
    fn a_file_in_its_place_is_named() {
        let dir = tempfile::tempdir_in("/tmp").unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, "").unwrap();
        let refused = DataDir::hold(&path, Purpose::Serve).unwrap_err();
        assert!(matches!(refused, DataDirError::NotAFolder(_)), "{refused}");
    }

    #[test]
    fn a_foreign_folder_is_refused() {
        if rustix::process::geteuid().is_root() {
            let dir = tempfile::tempdir_in("/tmp").unwrap();
            std::os::unix::fs::chown(dir.path(), Some(1234), None).unwrap();
            let refused = DataDir::hold(dir.path(), Purpose::Serve);
            let refused = refused.unwrap_err().to_string();
            assert!(refused.contains("belongs to user id 1234"), "{refused}");
        }
    }
}
