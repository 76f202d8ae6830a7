//! Sealed layers as overlayfs merges them: the topmost wins, whiteouts and opaque folders hide.
//!
//! A folder's content is the list of layers that add to it, topmost first; a child's list follows
//! from its parent's. Stored layers hold no redirects.

use std::{collections::BTreeMap, ops::Bound, os::fd::OwnedFd, path::Path};

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

/// A name of a folder; a whiteout is one too.
pub(super) struct Seen {
    pub(super) name: Vec<u8>,
    /// Position of its layer in the folder's list.
    pub(super) at: usize,
    pub(super) stat: Stat,
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

    /// The first `most` names of the folder `path` from `from` on, in the order of their bytes.
    pub(super) fn names(
        &self,
        layers: &[usize],
        path: &[u8],
        from: Bound<&[u8]>,
        most: usize,
    ) -> Result<Vec<Seen>, StoreError> {
        let mut dirs = Vec::new();
        let mut found: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
        for (at, &id) in layers.iter().enumerate() {
            let tree = &self.trees[id];
            let dir = tree.must(path)?;
            let add = |name: &[u8]| {
                let before = match from {
                    Bound::Unbounded => false,
                    Bound::Included(from) => name < from,
                    Bound::Excluded(from) => name <= from,
                };
                let full = found.len() == most;
                let beyond = |(last, _): (&Vec<u8>, _)| full && &last[..] < name;
                if before || found.last_key_value().is_some_and(beyond) {
                    return;
                }
                // What a layer above has stays.
                found.entry(name.to_vec()).or_insert(at);
                if found.len() > most {
                    found.pop_last();
                }
            };
            tree::each_name(&dir, add).map_err(|error| tree.fault(path, error))?;
            dirs.push(dir);
        }
        let seen = |(name, at): (Vec<u8>, usize)| {
            let stat = statat(&dirs[at], &name[..], AtFlags::SYMLINK_NOFOLLOW);
            let stat = stat.map_err(|error| self.trees[layers[at]].fault(path, error))?;
            Ok(Seen { name, at, stat })
        };
        found.into_iter().map(seen).collect()
    }
}
