//! How two states on one base differ. Looks only at what the layers touch that they do not share.

use std::{
    collections::BTreeSet,
    fs::File,
    io::{self, Read},
    os::fd::OwnedFd,
};

use mayfly_domain::{BaseId, LayerId};
use rustix::fs::{FileType, Stat, readlinkat};

use super::{
    Slot, Store, StoreError, attrs, checked, lines,
    stack::Stack,
    tree::{join, open_regular},
    walk::{Kids, Visitor, depth_first},
};

/// What happened to one path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeKind {
    /// Only the later state has it.
    Added,
    /// Only the earlier state has it.
    Removed,
    /// Content differs.
    Modified,
    /// A file became a folder, a link became a file.
    TypeChanged,
    /// Only mode or owner differ.
    ModeChanged,
}

/// One path that differs. An mtime alone is no difference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// As the sandbox sees it, absolute.
    pub path: Vec<u8>,
    /// What happened.
    pub kind: ChangeKind,
    /// Of text files up to 1 MiB.
    pub added_lines: Option<u64>,
    /// Of text files up to 1 MiB.
    pub removed_lines: Option<u64>,
    /// Size of the regular file before.
    pub bytes_before: Option<u64>,
    /// Size of the regular file after.
    pub bytes_after: Option<u64>,
}

impl Store {
    /// What differs between two chains on `base`, by path.
    pub fn diff_stat(
        &self,
        base: &BaseId,
        from: &[LayerId],
        to: &[LayerId],
        slots: &[Slot],
    ) -> Result<Vec<Change>, StoreError> {
        checked(slots)?;
        let mut changes = Vec::new();
        for slot in slots {
            let before = self.lowers(base, from, &slot.name);
            let after = self.lowers(base, to, &slot.name);
            let mut roots = before.clone();
            roots.extend(after.iter().filter(|root| !before.contains(root)).cloned());
            let ids = |side: &[std::path::PathBuf]| {
                let place = |root| roots.iter().position(|known| known == root);
                side.iter().filter_map(place).collect()
            };
            let root = Pair {
                parents: [ids(&before), ids(&after)],
            };
            let stack = Stack::open(&roots)?;
            let slot = slot.path.as_bytes();
            let changes = &mut changes;
            depth_first(
                &mut Differ {
                    stack: &stack,
                    slot,
                    changes,
                },
                root,
            )?;
        }
        changes.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(changes)
    }
}

struct Differ<'a> {
    stack: &'a Stack,
    slot: &'a [u8],
    changes: &'a mut Vec<Change>,
}

/// The layers of the parent folder, before and after; at the root, of the folder itself.
struct Pair {
    parents: [Vec<usize>; 2],
}

/// What one side has under a name.
struct Found<'a> {
    id: usize,
    path: &'a [u8],
    name: &'a [u8],
    stat: Stat,
}

impl Visitor for Differ<'_> {
    type Node = Pair;
    type Error = StoreError;

    fn enter(&mut self, path: &[u8], pair: &mut Pair) -> Result<Kids<Self>, StoreError> {
        let [before, after] = &pair.parents;
        let (before, after) = if path.is_empty() {
            self.compare_roots(before[0], after[0])?;
            (before.clone(), after.clone())
        } else {
            let ids = |parent: &Vec<usize>| Ok(self.stack.descend(parent, path)?.ids);
            (ids(before)?, ids(after)?)
        };
        let mut kids = Vec::new();
        for name in self.touched(path, &before, &after)? {
            let found = |layers: &[usize]| -> Result<_, StoreError> {
                let found = self.stack.look(layers, path, &name)?;
                let name = &name[..];
                Ok(found.map(|(id, stat)| Found {
                    id,
                    path,
                    name,
                    stat,
                }))
            };
            let (old, new) = (found(&before)?, found(&after)?);
            let is_dir = |side: &Option<Found<'_>>| {
                side.as_ref()
                    .is_some_and(|found| attrs::is_dir(&found.stat))
            };
            if is_dir(&old) || is_dir(&new) {
                let parents = [before.clone(), after.clone()];
                kids.push((name.clone(), Pair { parents }));
            }
            self.compare(old.as_ref(), new.as_ref())?;
        }
        Ok(kids)
    }
}

impl Differ<'_> {
    /// Names listed by layers that only one side has in this folder.
    fn touched(
        &self,
        path: &[u8],
        before: &[usize],
        after: &[usize],
    ) -> Result<BTreeSet<Vec<u8>>, StoreError> {
        let shared = before.iter().rev().zip(after.iter().rev());
        let shared = shared.take_while(|(a, b)| a == b).count();
        let mut names = BTreeSet::new();
        for side in [before, after] {
            let differing = &side[..side.len() - shared];
            names.extend(self.stack.merged(differing, path)?.entries.into_keys());
        }
        Ok(names)
    }

    fn compare_roots(&mut self, before: usize, after: usize) -> Result<(), StoreError> {
        let stat = |id: usize| {
            let tree = &self.stack.trees[id];
            rustix::fs::fstat(tree.must(b"")?).map_err(|error| tree.fault(b"", error))
        };
        if !same_mode(&stat(before)?, &stat(after)?) {
            self.changes
                .push(Change::new(self.slot.to_vec(), ChangeKind::ModeChanged));
        }
        Ok(())
    }

    fn compare(
        &mut self,
        old: Option<&Found<'_>>,
        new: Option<&Found<'_>>,
    ) -> Result<(), StoreError> {
        let Some(some) = new.or(old) else {
            return Ok(());
        };
        let kind = match (old, new) {
            (None, _) => ChangeKind::Added,
            (_, None) => ChangeKind::Removed,
            (Some(old), Some(new)) => match self.difference(old, new)? {
                Some(kind) => kind,
                None => return Ok(()),
            },
        };
        let path = [self.slot, &join(some.path, some.name)].join(&b'/');
        let mut change = Change::new(path, kind);
        change.bytes_before = old.and_then(Found::size);
        change.bytes_after = new.and_then(Found::size);
        if kind != ChangeKind::ModeChanged {
            let counts = self.count_lines(old, new)?;
            (change.added_lines, change.removed_lines) = counts.unzip();
        }
        self.changes.push(change);
        Ok(())
    }

    fn difference(
        &self,
        old: &Found<'_>,
        new: &Found<'_>,
    ) -> Result<Option<ChangeKind>, StoreError> {
        let (a, b) = (&old.stat, &new.stat);
        if (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino) {
            return Ok(None);
        }
        if attrs::kind(a) != attrs::kind(b) {
            return Ok(Some(ChangeKind::TypeChanged));
        }
        let same = match attrs::kind(a) {
            FileType::RegularFile => a.st_size == b.st_size && self.same_content(old, new)?,
            FileType::Symlink => self.target(old)? == self.target(new)?,
            _ => true,
        };
        Ok(match (same, same_mode(a, b)) {
            (false, _) => Some(ChangeKind::Modified),
            (true, false) => Some(ChangeKind::ModeChanged),
            (true, true) => None,
        })
    }

    fn same_content(&self, old: &Found<'_>, new: &Found<'_>) -> Result<bool, StoreError> {
        let (mut a, mut b) = (self.open(old)?, self.open(new)?);
        same_bytes(&mut a, &mut b).map_err(|error| self.fault(new, error))
    }

    /// None where a side is no text, too large, or no side is a regular file.
    fn count_lines(
        &self,
        old: Option<&Found<'_>>,
        new: Option<&Found<'_>>,
    ) -> Result<Option<(u64, u64)>, StoreError> {
        let regular = |side: &&Found<'_>| side.size().is_some();
        let (old, new) = (old.filter(regular), new.filter(regular));
        let sizes = || [old, new].into_iter().flatten().filter_map(Found::size);
        if sizes().count() == 0 || sizes().any(|size| size > lines::COUNTED_MAX) {
            return Ok(None);
        }
        let read = |side: Option<&Found<'_>>| -> Result<Vec<u8>, StoreError> {
            let mut content = Vec::new();
            if let Some(found) = side {
                let file = self.open(found)?;
                file.take(lines::COUNTED_MAX)
                    .read_to_end(&mut content)
                    .map_err(|error| self.fault(found, error))?;
            }
            Ok(content)
        };
        Ok(lines::count(&read(old)?, &read(new)?))
    }

    fn dir(&self, found: &Found<'_>) -> Result<OwnedFd, StoreError> {
        self.stack.trees[found.id].must(found.path)
    }

    fn open(&self, found: &Found<'_>) -> Result<File, StoreError> {
        let file = open_regular(&self.dir(found)?, found.name);
        Ok(file
            .map_err(|error| self.fault(found, error.into()))?
            .into())
    }

    fn target(&self, found: &Found<'_>) -> Result<Vec<u8>, StoreError> {
        let target = readlinkat(self.dir(found)?, found.name, Vec::new());
        let target = target.map_err(|error| self.fault(found, error.into()))?;
        Ok(target.into_bytes())
    }

    fn fault(&self, found: &Found<'_>, error: io::Error) -> StoreError {
        use rustix::io::Errno;
        let path = join(found.path, found.name);
        let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
        self.stack.trees[found.id].fault(&path, errno)
    }
}

impl Found<'_> {
    /// Of a regular file.
    fn size(&self) -> Option<u64> {
        attrs::is_regular(&self.stat).then_some(self.stat.st_size as u64)
    }
}

impl Change {
    fn new(path: Vec<u8>, kind: ChangeKind) -> Change {
        Change {
            path,
            kind,
            added_lines: None,
            removed_lines: None,
            bytes_before: None,
            bytes_after: None,
        }
    }
}

fn same_mode(a: &Stat, b: &Stat) -> bool {
    (a.st_mode, a.st_uid, a.st_gid) == (b.st_mode, b.st_uid, b.st_gid)
}

fn same_bytes(a: &mut File, b: &mut File) -> io::Result<bool> {
    let (mut left, mut right) = (vec![0; 65536], vec![0; 65536]);
    loop {
        let len = a.read(&mut left)?;
        if len == 0 {
            return Ok(true);
        }
        b.read_exact(&mut right[..len])?;
        if left[..len] != right[..len] {
            return Ok(false);
        }
    }
}
