//! Makes a layer of what a tick wrote: all slots appear at once, or none.
//!
//! Cost follows the files that changed, never the size of the state. Repeatable: after a stop at
//! any point a second call ends with the same layer.

use std::path::{Path, PathBuf};

use mayfly_domain::{BaseId, LayerId};
use rustix::fs::fstat;

use crate::faults;

use super::{
    Caps, LayerSize, Slot, Store, StoreError, attrs, begin::make, checked, durable, fix,
    measure::Measure, notes::Notes, ops, stack::Stack, trash, tree, tree::Tree,
};

/// Where a layer's slots gather before they become visible. No slot has this name.
const READY: &str = ".ready";

/// What became of a tick's files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sealed {
    /// None: nothing had changed, so there is no layer.
    pub layer: Option<LayerSize>,
    /// What was left out or changed, for the tick's row.
    pub notes: Vec<String>,
    /// What of that a person would miss, in one line for the thread.
    pub told: Option<String>,
}

/// Why there is no layer. The folder is still there; [`Store::discard`] removes it.
#[derive(Debug, thiserror::Error)]
pub enum SealError {
    /// The tick wrote more than it may.
    #[error("the changes are larger than {limit}")]
    Cap {
        /// For example `64 MiB`, `200000 files`, `a file of 1 GiB`.
        limit: String,
    },
    /// An entry without its data: the slot was mounted with other options than ours.
    #[error("{path} has no data of its own")]
    Metacopy {
        /// In the sandbox.
        path: String,
    },
    /// A moved folder whose origin no lower has.
    #[error("{path} shows {target}, which no layer has")]
    Redirect {
        /// In the sandbox.
        path: String,
        /// As overlayfs wrote it.
        target: String,
    },
    /// Neither begun nor sealed: an earlier call found no change, or it was discarded.
    #[error("there is no folder of layer {layer}")]
    Missing {
        /// Which layer.
        layer: LayerId,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

struct Part<'a> {
    slot: &'a Slot,
    path: PathBuf,
    tree: Tree,
    lowers: Stack,
}

impl Store {
    /// Legal when the removal proof was given: nothing can write to the upper folders any more.
    pub fn seal(
        &self,
        layer: &LayerId,
        base: &BaseId,
        layers: &[LayerId],
        slots: &[Slot],
        caps: &Caps,
    ) -> Result<Sealed, SealError> {
        checked(slots)?;
        if self.present(layer) {
            return self.sealed_before(layer, slots);
        }
        let dir = self.upper_dir(layer);
        if !dir.is_dir() {
            return Err(SealError::Missing {
                layer: layer.clone(),
            });
        }
        let parts = self.parts(&dir, base, layers, slots)?;
        let before = measure(&parts, Some(caps))?;
        faults::point("seal.measured");
        let mut notes = Notes::default();
        let mut changed = false;
        for part in &parts {
            changed |= self.fix(&dir, part, &mut notes)?;
        }
        let size = if changed {
            measure(&parts, None)?
        } else {
            before
        };
        faults::point("seal.fixed");
        let gathered = gather(&dir, &parts, size.inodes)?;
        if gathered {
            self.publish(layer)?;
        } else {
            self.discard(layer)?;
        }
        Ok(Sealed {
            layer: gathered.then_some(size),
            told: notes.told(),
            notes: notes.finish(),
        })
    }

    fn sealed_before(&self, layer: &LayerId, slots: &[Slot]) -> Result<Sealed, SealError> {
        self.settle(layer)?;
        let mut measure = Measure::new(None);
        for slot in slots {
            let path = self.layer_dir(layer).join(&slot.name);
            if path.is_dir() {
                measure.add(&Tree::open(&path)?)?;
            }
        }
        Ok(Sealed {
            layer: Some(measure.own()?),
            notes: Vec::new(),
            told: None,
        })
    }

    fn parts<'a>(
        &self,
        dir: &Path,
        base: &BaseId,
        layers: &[LayerId],
        slots: &'a [Slot],
    ) -> Result<Vec<Part<'a>>, StoreError> {
        let part = |slot: &'a Slot| {
            let home = dir.join(&slot.name);
            trash::remove(&home.join("wk"))?;
            trash::remove(&home.join("fill"))?;
            let ready = dir.join(READY).join(&slot.name);
            let path = if ready.is_dir() {
                ready
            } else {
                home.join("up")
            };
            Ok(Part {
                slot,
                tree: Tree::open(&path)?,
                lowers: Stack::open(&self.lowers(base, layers, &slot.name))?,
                path,
            })
        };
        slots.iter().map(part).collect()
    }

    fn fix(&self, dir: &Path, part: &Part<'_>, notes: &mut Notes) -> Result<bool, SealError> {
        let aside = dir.join(&part.slot.name).join("fill");
        make(&aside)?;
        let aside = Tree::open(&aside)?;
        fix::run(&part.tree, &part.lowers, &aside, &part.slot.path, notes)
    }

    /// Legal when the layer's slots are gathered and durable.
    pub(super) fn publish(&self, layer: &LayerId) -> Result<(), StoreError> {
        self.show(&self.upper_dir(layer), layer)?;
        self.settle(layer)
    }

    /// Moves what is gathered in this folder to the layer's place.
    pub(super) fn show(&self, dir: &Path, layer: &LayerId) -> Result<(), StoreError> {
        let (from, to) = (ready_dir(dir), self.layer_dir(layer));
        durable::folder(&from)?;
        faults::point("publish.before");
        ops::rename_path(&from, &to).map_err(|error| StoreError::io(&from, error))?;
        faults::point("publish.renamed");
        Ok(())
    }

    /// Legal when the layer is in its place: makes that durable and removes the rest.
    pub(super) fn settle(&self, layer: &LayerId) -> Result<(), StoreError> {
        durable::folder(&self.data_dir.join("l"))?;
        let rest = self.upper_dir(layer);
        if rest.is_dir() {
            durable::folder(&rest)?;
        }
        faults::point("publish.durable");
        self.discard(layer)
    }
}

/// Where [`Store::publish`] expects the slots.
pub(super) fn ready_dir(dir: &Path) -> PathBuf {
    dir.join(READY)
}

fn measure(parts: &[Part<'_>], caps: Option<&Caps>) -> Result<LayerSize, SealError> {
    let mut measure = Measure::new(caps);
    for part in parts {
        measure.add(&part.tree)?;
    }
    measure.own()
}

/// Makes the slots that changed durable and moves them together. Answers whether there is any.
fn gather(dir: &Path, parts: &[Part<'_>], count: u64) -> Result<bool, StoreError> {
    let mut changed = Vec::new();
    for part in parts {
        if !unchanged(part)? {
            changed.push(part);
        }
    }
    if changed.is_empty() {
        return Ok(false);
    }
    durable::all(changed.iter().map(|part| &part.tree), count)?;
    faults::point("seal.synced");
    let ready = ready_dir(dir);
    if !ready.is_dir() {
        make(&ready)?;
    }
    for part in changed {
        let to = ready.join(&part.slot.name);
        ops::rename_path(&part.path, &to).map_err(|error| StoreError::io(&part.path, error))?;
    }
    Ok(true)
}

/// Nothing in it, and its root's owner, mode and user xattrs are the topmost lower's.
fn unchanged(part: &Part<'_>) -> Result<bool, StoreError> {
    let root = part.tree.must(b"")?;
    let same = || {
        if !tree::entries(&root)?.is_empty() {
            return Ok(false);
        }
        let Some(lower) = part.lowers.trees.first() else {
            return Ok(false);
        };
        let lower = lower.dir(b"")?;
        let (a, b) = (fstat(&root)?, fstat(&lower)?);
        let attributes = |dir| attrs::users(&attrs::through(dir, b"."));
        Ok(
            (a.st_mode, a.st_uid, a.st_gid) == (b.st_mode, b.st_uid, b.st_gid)
                && attributes(&root)? == attributes(&lower)?,
        )
    };
    same().map_err(|error: rustix::io::Errno| part.tree.fault(b"", error))
}
