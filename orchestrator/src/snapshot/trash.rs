//! Removal in two moves: out of sight by one rename, then piece by piece. Any crash between leaves
//! only trash. What is removed may be as deep as it likes; nothing in it is followed.

use std::{
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    path::Path,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use mayfly_domain::LayerId;
use rustix::io::Errno;

use super::{
    Store, StoreError, ops,
    tree::{Tree, join},
    walk::{Kids, Visitor, depth_first, folders_and},
};
use crate::clock::unix_ms;

/// How often two removals of the same may meet.
const AGAIN: u32 = 100;

impl Store {
    /// Throws away what a tick wrote. Legal when nothing can write there any more; repeatable.
    pub fn discard(&self, layer: &LayerId) -> Result<(), StoreError> {
        self.throw_away(&self.upper_dir(layer))
    }

    /// Legal when no row and no mount names the layer; repeatable.
    pub fn remove_layer(&self, layer: &LayerId) -> Result<(), StoreError> {
        self.throw_away(&self.layer_dir(layer))
    }

    /// It is used now, as the cache takes it. Only a hint: what cannot be written is left.
    pub fn touch(&self, layer: &LayerId) {
        let now = UNIX_EPOCH + Duration::from_millis(unix_ms().unsigned_abs());
        let dir = std::fs::File::open(self.layer_dir(layer));
        if let Err(error) = dir.and_then(|dir| dir.set_modified(now)) {
            tracing::debug!(%layer, %error, "its use is not noted");
        }
    }

    /// When it was used last; none where it is not here.
    pub fn used(&self, layer: &LayerId) -> Option<SystemTime> {
        let meta = std::fs::metadata(self.layer_dir(layer)).ok()?;
        meta.modified().ok()
    }

    /// Removes what earlier removals left.
    pub fn empty_trash(&self) -> Result<(), StoreError> {
        let trash = Tree::open(&self.data_dir.join("t"))?;
        together(|| empty(&trash))
    }

    pub(super) fn throw_away(&self, path: &Path) -> Result<(), StoreError> {
        let unique = uuid::Uuid::new_v4().simple().to_string();
        let trash = self.data_dir.join("t").join(unique);
        match ops::rename_path(path, &trash) {
            Ok(()) => {
                crate::faults::point("trash.renamed");
                remove(&trash)
            }
            Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(StoreError::io(path, error)),
        }
    }
}

/// Removes a folder and all below it; that it lacks is fine.
pub(super) fn remove(path: &Path) -> Result<(), StoreError> {
    together(|| {
        let tree = match Tree::open(path) {
            Ok(tree) => tree,
            Err(error) if error.errno() == Some(Errno::NOENT) => return Ok(()),
            Err(error) => return Err(error),
        };
        empty(&tree)?;
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Ok(());
        };
        let parent = Tree::open(parent)?.must(b"")?;
        ops::remove_dir(&parent, name.as_bytes()).map_err(|error| StoreError::io(path, error))
    })
}

/// A tick removes its own trash while a reconciler empties all of it: each time that shows, one of
/// both has come further.
fn together(remove: impl Fn() -> Result<(), StoreError>) -> Result<(), StoreError> {
    for _ in 0..AGAIN {
        match remove() {
            Err(error) if matches!(error.errno(), Some(Errno::NOENT | Errno::NOTEMPTY)) => {}
            answer => return answer,
        }
    }
    remove()
}

fn empty(tree: &Tree) -> Result<(), StoreError> {
    depth_first(&mut Remover { tree }, ())
}

struct Remover<'a> {
    tree: &'a Tree,
}

impl Visitor for Remover<'_> {
    type Node = ();
    type Error = StoreError;

    fn enter(&mut self, path: &[u8], _: &mut ()) -> Result<Kids<Self>, StoreError> {
        folders_and(self.tree, path, |dir, entry| {
            self.gone(path, &entry.name, ops::unlink(dir, &entry.name))
        })
    }

    fn leave(&mut self, path: &[u8], _: ()) -> Result<(), StoreError> {
        let (parent, name) = split(path);
        if name.is_empty() {
            return Ok(());
        }
        let parent_dir: OwnedFd = self.tree.must(parent)?;
        self.gone(parent, name, ops::remove_dir(&parent_dir, name))
    }
}

impl Remover<'_> {
    fn gone(
        &self,
        dir: &[u8],
        name: &[u8],
        answer: rustix::io::Result<()>,
    ) -> Result<(), StoreError> {
        match answer {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(self.tree.fault(&join(dir, name), error)),
        }
    }
}

/// Folder and name.
pub(super) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (b"", path),
    }
}
