//! The folders a tick writes to.

use std::path::{Path, PathBuf};

use mayfly_domain::{BaseId, LayerId};

use super::{Slot, Store, StoreError, attrs, checked, ops, tree::Tree};

/// What one slot's mount needs beside its lowers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upper {
    /// The slot's name.
    pub slot: String,
    /// The mount's `upperdir`.
    pub upper: PathBuf,
    /// The mount's `workdir`.
    pub work: PathBuf,
}

impl Store {
    /// Makes the upper folders of a new layer. Each has the owner, mode, mtime and user xattrs
    /// that its slot has now: a fresh one would be root's and lock the agent out.
    pub fn begin(
        &self,
        layer: &LayerId,
        base: &BaseId,
        layers: &[LayerId],
        slots: &[Slot],
    ) -> Result<Vec<Upper>, StoreError> {
        checked(slots)?;
        if let Some(missing) = layers.iter().find(|layer| !self.present(layer)) {
            return Err(StoreError::Missing {
                layer: missing.clone(),
            });
        }
        let dir = self.upper_dir(layer);
        make(&dir)?;
        crate::faults::point("begin.folder");
        slots
            .iter()
            .map(|slot| {
                let lowers = self.lowers(base, layers, &slot.name);
                begin_slot(&dir, slot, &lowers[0])
            })
            .collect()
    }

    /// Nothing of this name is shown in the slot, whatever the layers have there, and however much.
    /// Legal between [`Store::begin`] and the mount.
    pub fn hide(&self, layer: &LayerId, slot: &str, name: &str) -> Result<(), StoreError> {
        let upper = self.upper_dir(layer).join(slot).join("up");
        let dir = Tree::open(&upper)?.must(b"")?;
        ops::white_out(&dir, name.as_bytes())
            .map_err(|error| StoreError::io(upper.join(name), error))
    }
}

fn begin_slot(dir: &Path, slot: &Slot, topmost: &Path) -> Result<Upper, StoreError> {
    let dir = dir.join(&slot.name);
    let made = Upper {
        slot: slot.name.clone(),
        upper: dir.join("up"),
        work: dir.join("wk"),
    };
    for path in [&dir, &made.upper, &made.work] {
        make(path)?;
    }
    let topmost = Tree::open(topmost)?.must(b"")?;
    let dir = Tree::open(&dir)?.must(b"")?;
    attrs::copy(&topmost, &dir, b"up")
        .and_then(|stat| ops::set_mtime(&dir, b"up", attrs::mtime(&stat)))
        .map_err(|error| StoreError::io(&made.upper, error))?;
    Ok(made)
}

pub(super) fn make(path: &Path) -> Result<(), StoreError> {
    ops::make_path(path).map_err(|error| StoreError::io(path, error))
}
