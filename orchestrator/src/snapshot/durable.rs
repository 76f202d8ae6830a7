//! Makes a built tree survive a power cut. `volatile` mounts mean that nothing was synced before.

use std::{os::fd::OwnedFd, path::Path};

use rustix::fs::{fsync, syncfs};

use super::{
    StoreError, attrs,
    tree::{self, Tree, join},
    walk::{Kids, Visitor, depth_first},
};

/// Up to here each file is synced by itself; above, one `syncfs` is cheaper although it pays for
/// the neighbours' dirty data.
const SINGLY: u64 = 300;
/// How many syncs run at once.
const AT_ONCE: usize = 16;
/// How many files are held open for that.
const BATCH: usize = 4 * AT_ONCE;

/// `count` is how many inodes the tree has.
pub(super) fn contents(tree: &Tree, count: u64) -> Result<(), StoreError> {
    if count > SINGLY {
        return whole(tree);
    }
    let mut syncer = Syncer {
        tree,
        open: Vec::new(),
    };
    depth_first(&mut syncer, ())?;
    syncer.flush()
}

/// Several trees of one file system, with `count` inodes in all.
pub(super) fn all<'a>(
    trees: impl IntoIterator<Item = &'a Tree>,
    count: u64,
) -> Result<(), StoreError> {
    // One `syncfs` is as good as one for each.
    let most = if count > SINGLY { 1 } else { usize::MAX };
    let mut trees = trees.into_iter().take(most);
    trees.try_for_each(|tree| contents(tree, count))
}

/// The whole file system that holds `path`.
pub(super) fn everything(path: &Path) -> Result<(), StoreError> {
    whole(&Tree::open(path)?)
}

/// The entries of one folder.
pub(super) fn folder(path: &Path) -> Result<(), StoreError> {
    let dir = Tree::open(path)?.must(b"")?;
    fsync(dir).map_err(|error| StoreError::io(path, error))
}

fn whole(tree: &Tree) -> Result<(), StoreError> {
    let root = tree.must(b"")?;
    syncfs(root).map_err(|error| tree.fault(b"", error))
}

struct Syncer<'a> {
    tree: &'a Tree,
    open: Vec<(Vec<u8>, OwnedFd)>,
}

impl Visitor for Syncer<'_> {
    type Node = ();
    type Error = StoreError;

    fn enter(&mut self, path: &[u8], _: &mut ()) -> Result<Kids<Self>, StoreError> {
        let dir = self.tree.must(path)?;
        let mut kids = Vec::new();
        for entry in tree::entries(&dir).map_err(|error| self.tree.fault(path, error))? {
            if attrs::is_dir(&entry.stat) {
                kids.push((entry.name, ()));
            } else if attrs::is_regular(&entry.stat) {
                let file = tree::open_regular(&dir, &entry.name);
                let name = join(path, &entry.name);
                let file = file.map_err(|error| self.tree.fault(&name, error))?;
                self.add(name, file)?;
            }
        }
        Ok(kids)
    }

    fn leave(&mut self, path: &[u8], _: ()) -> Result<(), StoreError> {
        self.add(path.to_vec(), self.tree.must(path)?)
    }
}

impl Syncer<'_> {
    fn add(&mut self, path: Vec<u8>, handle: OwnedFd) -> Result<(), StoreError> {
        self.open.push((path, handle));
        if self.open.len() == BATCH {
            return self.flush();
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), StoreError> {
        let open = std::mem::take(&mut self.open);
        let share = open.len().div_ceil(AT_ONCE).max(1);
        let answers: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = open
                .chunks(share)
                .map(|part| scope.spawn(|| sync_all(part)))
                .collect();
            threads.into_iter().map(|thread| thread.join()).collect()
        });
        for answer in answers {
            let failed = answer.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            if let Some((path, error)) = failed {
                return Err(self.tree.fault(path, error));
            }
        }
        Ok(())
    }
}

fn sync_all(part: &[(Vec<u8>, OwnedFd)]) -> Option<(&[u8], rustix::io::Errno)> {
    part.iter()
        .find_map(|(path, handle)| Some((&path[..], fsync(handle).err()?)))
}
