//! Sealed layers as overlayfs merges them: the topmost wins, whiteouts and opaque folders hide.
//!
//! A folder's content is the list of layers that add to it, topmost first; a child's list follows
//! from its parent's. Stored layers hold no redirects.

use std::{collections::BTreeMap, os::fd::OwnedFd, path::Path};

use rustix::{
    fs::{AtFlags, Stat, statat},
    io::Errno,
};

use super::{StoreError, attrs, tree, tree::Tree};

pub(super) struct Stack {
    pub(super) trees: Vec<Tree>,
}

/// The layers that add to one folder.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Layers {
    /// Indices into [`Stack::trees`], topmost first.
    pub(super) ids: Vec<usize>,
    /// Something hides whatever layers below these have there.
    pub(super) cut: bool,
}

/// A folder's merged content; whiteouts are listed.
pub(super) struct Merged {
    pub(super) dirs: Vec<OwnedFd>,
    /// Name to position in `dirs` and what is there.
    pub(super) entries: BTreeMap<Vec<u8>, (usize, Stat)>,
}

impl Stack {
    /// Of the given roots, topmost first.
    pub(super) fn open<P: AsRef<Path>>(roots: &[P]) -> Result<Stack, StoreError> {
        let trees = roots.iter().map(|root| Tree::open(root.as_ref()));
        Ok(Stack {
            trees: trees.collect::<Result<_, _>>()?,
        })
    }

    /// The root's layers: all of them.
    pub(super) fn root(&self) -> Layers {
        Layers {
            ids: (0..self.trees.len()).collect(),
            cut: false,
        }
    }

    /// The layers of the folder `path`, whose parent folder's layers are `parent`.
    pub(super) fn descend(&self, parent: &[usize], path: &[u8]) -> Result<Layers, StoreError> {
        let mut found = Layers::default();
        for &id in parent {
            let tree = &self.trees[id];
            match tree.dir(path) {
                Ok(dir) => {
                    found.ids.push(id);
                    found.cut = attrs::is_opaque(&dir).map_err(|e| tree.fault(path, e))?;
                }
                Err(Errno::NOENT) => {}
                Err(Errno::NOTDIR | Errno::LOOP) => found.cut = true,
                Err(error) => return Err(tree.fault(path, error)),
            }
            if found.cut {
                break;
            }
        }
        Ok(found)
    }

    /// What is seen as `name` in the folder `path`.
    pub(super) fn look(
        &self,
        layers: &[usize],
        path: &[u8],
        name: &[u8],
    ) -> Result<Option<(usize, Stat)>, StoreError> {
        for &id in layers {
            let tree = &self.trees[id];
            match statat(tree.must(path)?, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) if attrs::is_whiteout(&stat) => return Ok(None),
                Ok(stat) => return Ok(Some((id, stat))),
                Err(Errno::NOENT) => {}
                Err(error) => return Err(tree.fault(path, error)),
            }
        }
        Ok(None)
    }

    /// All that the layers list in the folder `path`.
    pub(super) fn merged(&self, layers: &[usize], path: &[u8]) -> Result<Merged, StoreError> {
        let mut merged = Merged {
            dirs: Vec::new(),
            entries: BTreeMap::new(),
        };
        for &id in layers {
            let tree = &self.trees[id];
            let dir = tree.must(path)?;
            for entry in tree::entries(&dir).map_err(|error| tree.fault(path, error))? {
                let at = (merged.dirs.len(), entry.stat);
                merged.entries.entry(entry.name).or_insert(at);
            }
            merged.dirs.push(dir);
        }
        Ok(merged)
    }
}
