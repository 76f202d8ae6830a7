//! State on disk: bases, layers, the folder a tick writes to. Files only; rows are in `db`.
//!
//! ```text
//! data_dir/b/<base>/<slot>            the slot as the image has it, and passwd, group
//! data_dir/l/<layer>/<slot>           a sealed layer, never written again
//! data_dir/u/<layer>/<slot>/{up,wk}   what a running tick writes; becomes layer <layer>
//! data_dir/t/<any>                    trash: renamed here first, then removed
//! ```
//!
//! Everything here blocks; callers use `spawn_blocking`. Order of durability: data, rename, both
//! parent folders; only then may a row name the layer. Chains of layers are given oldest first.

use std::{
    collections::HashSet,
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use mayfly_domain::{BaseId, LayerId};
use rustix::io::Errno;

mod attrs;
mod base;
mod begin;
#[cfg(test)]
mod crash;
mod diff;
mod durable;
pub mod exclude;
mod files;
mod fix;
mod lines;
mod listing;
mod measure;
mod merge;
pub mod merging;
mod notes;
pub mod oci;
mod ops;
mod place;
mod read;
pub mod replica;
mod seal;
mod stack;
mod staging;
mod state;
mod trash;
mod tree;
mod walk;

pub use begin::Upper;
pub use diff::{Change, ChangeKind, Diff, DiffWanted, Side, Text};
pub use files::{FileEntry, Listed, LookError, Looked};
pub use read::{SealedFile, SealedFolder};
pub use replica::{ReplicaError, Replicator};
pub use seal::{SealError, Sealed};
pub use staging::Staging;
pub use state::State;

/// The longest `data_dir`: mount options name up to 17 folders in one page.
const DATA_DIR_MAX: usize = 60;

/// One folder of the sandbox that survives the tick.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slot {
    /// Its folder's name in a layer: lower-case letters, digits and `-`.
    pub name: String,
    /// Where the sandbox sees it.
    pub path: String,
}

impl Slot {
    /// `/work` and `/home/agent`.
    pub fn defaults() -> Vec<Slot> {
        [("work", "/work"), ("home", "/home/agent")]
            .map(|(name, path)| Slot {
                name: name.to_owned(),
                path: path.to_owned(),
            })
            .into()
    }
}

/// The most that one tick may add. Bytes are allocated ones: holes are free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caps {
    /// Of all slots together.
    pub bytes: u64,
    /// Files, folders and links of all slots together.
    pub inodes: u64,
    /// Of any one file.
    pub file_bytes: u64,
}

/// What a layer adds: files it shares with older layers by hard links are not counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LayerSize {
    /// Allocated bytes.
    pub bytes: u64,
    /// Files, folders and links.
    pub inodes: u64,
}

/// Why the store could not do it.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// `data_dir` cannot stand in a mount option.
    #[error("data_dir {} {reason}", path.display())]
    DataDir {
        /// As given.
        path: PathBuf,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A slot's name that is no plain folder name.
    #[error("\"{name}\" is no slot name: lower-case letters, digits and - are wanted")]
    SlotName {
        /// As given.
        name: String,
    },
    /// A layer that a state stands on is not there: going on without it would show another state.
    #[error(
        "layer {layer} of this state is missing: bring l/{layer} back from a backup, or roll back"
    )]
    Missing {
        /// Which.
        layer: LayerId,
    },
    /// A call about one path failed.
    #[error("cannot work on {}", path.display())]
    Io {
        /// Which path.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl StoreError {
    fn io(path: impl Into<PathBuf>, source: impl Into<io::Error>) -> StoreError {
        StoreError::Io {
            path: path.into(),
            source: source.into(),
        }
    }

    /// Whether it works again once there is room on the disk.
    pub fn is_full(&self) -> bool {
        matches!(self.errno(), Some(Errno::NOSPC | Errno::DQUOT))
    }

    /// The system's number, where it was the system that refused.
    fn errno(&self) -> Option<Errno> {
        match self {
            StoreError::Io { source, .. } => Errno::from_io_error(source),
            _ => None,
        }
    }
}

/// The four folders below `data_dir`.
#[derive(Debug, Clone)]
pub struct Store {
    data_dir: PathBuf,
    /// Folders that live as long as their [`Staging`].
    staged: Arc<Mutex<HashSet<LayerId>>>,
}

impl Store {
    /// Makes the four folders where they lack, for root only.
    pub fn open(data_dir: &Path) -> Result<Store, StoreError> {
        let bad = |reason| StoreError::DataDir {
            path: data_dir.to_owned(),
            reason,
        };
        let text = data_dir.as_os_str().as_encoded_bytes();
        if text.iter().any(|byte| b":,\\".contains(byte)) {
            return Err(bad("must not contain ':', ',' or '\\'"));
        }
        if text.len() > DATA_DIR_MAX {
            return Err(bad("must not be longer than 60 bytes"));
        }
        let mut fresh = false;
        for folder in ["b", "l", "u", "t"] {
            let path = data_dir.join(folder);
            match rustix::fs::mkdir(&path, 0o700.into()) {
                Ok(()) => fresh = true,
                Err(Errno::EXIST) => {}
                Err(error) => return Err(StoreError::io(path, error)),
            }
        }
        if fresh {
            durable::folder(data_dir)?;
        }
        Ok(Store {
            data_dir: data_dir.to_owned(),
            staged: Arc::default(),
        })
    }

    /// Where a base lies, or will.
    pub fn base_dir(&self, base: &BaseId) -> PathBuf {
        self.data_dir.join("b").join(base.as_str())
    }

    /// The lower folders of one slot, topmost first. A layer without that slot is left out.
    pub fn lowers(&self, base: &BaseId, layers: &[LayerId], slot: &str) -> Vec<PathBuf> {
        let newest_first = layers.iter().rev().map(|layer| self.layer_dir(layer));
        newest_first
            .map(|dir| dir.join(slot))
            .filter(|dir| dir.is_dir())
            .chain([self.base_dir(base).join(slot)])
            .collect()
    }

    /// Whether the layer is sealed.
    pub fn present(&self, layer: &LayerId) -> bool {
        self.layer_dir(layer).is_dir()
    }

    /// All sealed layers, in no order.
    pub fn list_layers(&self) -> Result<Vec<LayerId>, StoreError> {
        ids_in(&self.data_dir.join("l"))
    }

    /// All layers begun and neither sealed nor discarded, in no order.
    pub fn list_unsealed(&self) -> Result<Vec<LayerId>, StoreError> {
        let mut found: Vec<LayerId> = ids_in(&self.data_dir.join("u"))?;
        found.retain(|id| !self.staged().contains(id));
        Ok(found)
    }

    fn staged(&self) -> MutexGuard<'_, HashSet<LayerId>> {
        self.staged.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn layer_dir(&self, layer: &LayerId) -> PathBuf {
        self.data_dir.join("l").join(layer.as_str())
    }

    fn upper_dir(&self, layer: &LayerId) -> PathBuf {
        self.data_dir.join("u").join(layer.as_str())
    }
}

fn ids_in<Id: std::str::FromStr>(dir: &Path) -> Result<Vec<Id>, StoreError> {
    let read = || -> io::Result<Vec<Id>> {
        let names = std::fs::read_dir(dir)?.map(|entry| Ok(entry?.file_name()));
        let names: Vec<_> = names.collect::<io::Result<_>>()?;
        Ok(names
            .iter()
            .filter_map(|name| name.to_str()?.parse().ok())
            .collect())
    };
    read().map_err(|error| StoreError::io(dir, error))
}

fn checked(slots: &[Slot]) -> Result<(), StoreError> {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    match slots
        .iter()
        .find(|slot| slot.name.is_empty() || !slot.name.bytes().all(plain))
    {
        None => Ok(()),
        Some(slot) => Err(StoreError::SlotName {
            name: slot.name.clone(),
        }),
    }
}
