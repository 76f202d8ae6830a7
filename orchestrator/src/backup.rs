//! A whole installation as one folder, taken while it runs, and brought back on an empty machine.
//!
//! ```text
//! DIR/manifest.json        format, and the digest of everything else: written last
//! DIR/mayfly.db            as of one moment; what follows is what its rows name
//! DIR/l/<layer>            with xattrs, owners, mtimes, holes and links between layers
//! DIR/b/<base>
//! DIR/blobs/<2>/<sha256>
//! DIR/transcripts/<agent>/<tick>.jsonl
//! DIR/images/<12>.tar      if asked for
//! ```
//!
//! The copy of the database comes first and a pin keeps the layers it names, so ticks, merges and
//! garbage collection go on meanwhile; what is sealed later is not in the backup. What the local cache of a layer
//! store has not is brought from there first. It is written to
//! `DIR.unfinished` and gets its name when all of it is durable. Configuration and the API's token
//! are not in it.
//!
//! A restored installation has a new identity: it is a copy, and a copy never touches what the
//! original has on an engine. Never go on with both. What is in the backup is not trusted: digests
//! are of what was read, only what a layer may hold is taken, and nothing is written outside the
//! data dir.

mod bring;
pub mod inspect;
mod manifest;
mod place;
pub mod restore;
mod take;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub use manifest::{Manifest, ManifestError};
pub use take::{Parts, take};

use crate::{
    db::DbError,
    sandbox::BackendError,
    snapshot::{ReplicaError, StoreError},
};

/// What a backup holds, and what it lacks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BackupView {
    /// Where it lies.
    #[schema(value_type = String)]
    pub path: PathBuf,
    /// Layers in it.
    pub layers: u64,
    /// Bytes on disk.
    pub bytes: u64,
    /// Layers, bases and files that could not be read: this installation is damaged.
    pub damaged: Vec<String>,
    /// Images of agents that are not in it.
    pub images: Vec<ImageLeft>,
}

/// An image that the machine of a restore must have or get.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ImageLeft {
    /// The engine's id.
    pub id: String,
    /// Gives it again, if any registry does.
    pub registry: Option<String>,
}

/// Why a backup was not taken. `Display` is one sentence with the way out.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The folder is not one to write to.
    #[error("{} {reason}", path.display())]
    Target {
        /// As given.
        path: PathBuf,
        /// What is wrong, and the way out.
        reason: &'static str,
    },
    /// Does not fit.
    #[error(
        "a backup takes {} and {inodes} files, and {} has {} and {free_inodes} files free: free some, or name a folder on another disk",
        size(*bytes), path.display(), size(*free)
    )]
    NoRoom {
        /// Where it should go.
        path: PathBuf,
        /// Bytes wanted.
        bytes: u64,
        /// Files wanted.
        inodes: u64,
        /// Bytes that may be used.
        free: u64,
        /// Files that may be made.
        free_inodes: u64,
    },
    /// What is in the layer store only does not fit here.
    #[error(
        "a backup brings {} here from the layer store, and the disk of {} has {} for that beside what ticks need: free some, or give it a larger disk",
        size(*bytes), path.display(), size(*free)
    )]
    NoRoomToFetch {
        /// The data dir.
        path: PathBuf,
        /// Bytes wanted.
        bytes: u64,
        /// Bytes that may be used.
        free: u64,
    },
    /// The disk became full in the middle.
    #[error("the disk of {} became full: free some space, or name a folder on another disk", .0.display())]
    Full(PathBuf),
    /// What a layer needs cannot be kept there.
    #[error(
        "{} is on a file system without owners, links or attributes: name a folder on ext4, xfs or btrfs",
        .0.display()
    )]
    FileSystem(PathBuf),
    /// It is in the layer store only, and does not come from there now.
    #[error(
        "{what} is in the layer store only, and could not be fetched: {reason}; a backup holds everything, so none was taken: take it again when that is mended"
    )]
    NotHere {
        /// A layer, base, file or transcript.
        what: String,
        /// One sentence.
        reason: String,
    },
    /// The server stops, or nobody waits for it any more.
    #[error("the backup was given up half-way, nothing is left of it: take it again")]
    Stopped,
    /// The rows.
    #[error(transparent)]
    Db(#[from] DbError),
    /// An image could not be written.
    #[error(transparent)]
    Image(#[from] BackendError),
    /// A file.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl BackupError {
    /// The folder is named in the sentence about its disk.
    fn of(error: ReplicaError, target: &Path) -> BackupError {
        match error {
            ReplicaError::Stopped => BackupError::Stopped,
            ReplicaError::Target(StoreError::Io { path, source }) => {
                use std::io::ErrorKind as Kind;
                match source.kind() {
                    Kind::StorageFull | Kind::QuotaExceeded => BackupError::Full(target.to_owned()),
                    Kind::Unsupported | Kind::PermissionDenied => {
                        BackupError::FileSystem(target.to_owned())
                    }
                    _ => StoreError::Io { path, source }.into(),
                }
            }
            ReplicaError::Target(error) | ReplicaError::Source(error) => error.into(),
            ReplicaError::Foreign { path, what } => StoreError::Io {
                path,
                source: std::io::Error::other(what),
            }
            .into(),
        }
    }
}

/// For people.
fn size(bytes: u64) -> String {
    match bytes {
        0..0x40_0000 => format!("{} KiB", bytes.div_ceil(1 << 10)),
        0x40_0000..0x1_0000_0000 => format!("{} MiB", bytes >> 20),
        _ => format!("{} GiB", bytes >> 30),
    }
}
