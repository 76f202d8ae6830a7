//! Which paths differ, by one walk over the folders that either state touches.

use std::{collections::BTreeSet, os::fd::OwnedFd, rc::Rc};

use rustix::{
    fs::{AtFlags, FileType, statat},
    io::Errno,
};

use super::{
    super::{
        StoreError, attrs,
        tree::join,
        walk::{Kids, Visitor, depth_first},
    },
    Budget, ChangeKind, Part, Raw, Sides,
};

/// How much memory the paths of all changes may take: names may lie thousands of folders deep.
const PATHS_MAX: usize = 64 << 20;

pub(super) struct Found {
    pub(super) raw: Vec<Raw>,
    /// Those that did not fit.
    pub(super) more: u64,
    /// The time was over before the end.
    pub(super) cut: bool,
    most: usize,
    /// Bytes of paths that still fit.
    room: usize,
}

impl Found {
    pub(super) fn new(most: usize) -> Found {
        Found {
            raw: Vec::new(),
            more: 0,
            cut: false,
            most,
            room: PATHS_MAX,
        }
    }

    fn push(&mut self, raw: Raw) {
        let room = self.room.checked_sub(raw.path.len());
        match room.filter(|_| self.raw.len() < self.most) {
            Some(room) => {
                self.room = room;
                self.raw.push(raw);
            }
            None => self.more += 1,
        }
    }
}

/// `root` has the layers of both states.
pub(super) fn run(
    sides: &Sides,
    slot: usize,
    root: [Vec<usize>; 2],
    budget: &Budget,
    found: &mut Found,
) -> Result<(), StoreError> {
    let mut collector = Collector {
        sides,
        slot,
        budget,
        found,
    };
    let [before, after] = root;
    depth_first(
        &mut collector,
        Pair {
            parents: [before.into(), after.into()],
        },
    )
}

struct Collector<'a> {
    sides: &'a Sides,
    slot: usize,
    budget: &'a Budget,
    found: &'a mut Found,
}

/// The layers of the parent folder, before and after; at the root, of the folder itself.
struct Pair {
    parents: [Rc<[usize]>; 2],
}

impl Visitor for Collector<'_> {
    type Node = Pair;
    type Error = StoreError;

    fn enter(&mut self, path: &[u8], pair: &mut Pair) -> Result<Kids<Self>, StoreError> {
        if self.budget.over() {
            self.found.cut = true;
            return Ok(Vec::new());
        }
        let [before, after] = &pair.parents;
        let (before, after): (Rc<[usize]>, Rc<[usize]>) = if path.is_empty() {
            self.compare_roots(before[0], after[0])?;
            (before.clone(), after.clone())
        } else {
            let ids = |parent: &Rc<[usize]>| -> Result<Rc<[usize]>, StoreError> {
                Ok(self.sides.stack.descend(parent, path)?.ids.into())
            };
            (ids(before)?, ids(after)?)
        };
        let opened = [self.open(&before, path)?, self.open(&after, path)?];
        let mut kids = Vec::new();
        for name in self.touched(path, &before, &after)? {
            let (old, new) = (
                self.look(&opened[0], path, &name)?,
                self.look(&opened[1], path, &name)?,
            );
            if [old, new].iter().flatten().any(Part::is_dir) {
                let parents = [before.clone(), after.clone()];
                kids.push((name.clone(), Pair { parents }));
            }
            let path = [&self.sides.slot, &join(path, &name)[..]].join(&b'/');
            self.compare(path, old, new)?;
        }
        Ok(kids)
    }
}

impl Collector<'_> {
    /// The folder in each layer, once for all its names.
    fn open(&self, layers: &[usize], path: &[u8]) -> Result<Vec<(usize, OwnedFd)>, StoreError> {
        let open = |&layer: &usize| Ok((layer, self.sides.stack.trees[layer].must(path)?));
        layers.iter().map(open).collect()
    }

    /// As [`Stack::look`](super::super::stack::Stack::look).
    fn look(
        &self,
        opened: &[(usize, OwnedFd)],
        path: &[u8],
        name: &[u8],
    ) -> Result<Option<Part>, StoreError> {
        for (layer, dir) in opened {
            match statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) if attrs::is_whiteout(&stat) => return Ok(None),
                Ok(stat) => {
                    let layer = *layer;
                    return Ok(Some(Part { layer, stat }));
                }
                Err(Errno::NOENT) => {}
                Err(error) => {
                    let path = join(path, name);
                    return Err(self.sides.stack.trees[*layer].fault(&path, error));
                }
            }
        }
        Ok(None)
    }

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
            names.extend(
                self.sides
                    .stack
                    .merged(differing, path)?
                    .entries
                    .into_keys(),
            );
        }
        Ok(names)
    }

    fn compare_roots(&mut self, before: usize, after: usize) -> Result<(), StoreError> {
        let part = |layer: usize| {
            let tree = &self.sides.stack.trees[layer];
            let stat =
                rustix::fs::fstat(tree.must(b"")?).map_err(|error| tree.fault(b"", error))?;
            Ok::<_, StoreError>(Part { layer, stat })
        };
        let (before, after) = (part(before)?, part(after)?);
        if !before.same_mode(&after) {
            let path = self.sides.slot.clone();
            self.push(path, ChangeKind::ModeChanged, Some(before), Some(after));
        }
        Ok(())
    }

    fn compare(
        &mut self,
        path: Vec<u8>,
        old: Option<Part>,
        new: Option<Part>,
    ) -> Result<(), StoreError> {
        let kind = match (&old, &new) {
            (None, None) => None,
            (None, Some(_)) => Some(ChangeKind::Added),
            (Some(_), None) => Some(ChangeKind::Removed),
            (Some(old), Some(new)) => self.difference(&path, old, new)?,
        };
        if let Some(kind) = kind {
            self.push(path, kind, old, new);
        }
        Ok(())
    }

    fn push(&mut self, path: Vec<u8>, kind: ChangeKind, before: Option<Part>, after: Option<Part>) {
        self.found.push(Raw {
            slot: self.slot,
            path,
            kind,
            before,
            after,
        });
    }

    fn difference(
        &self,
        path: &[u8],
        old: &Part,
        new: &Part,
    ) -> Result<Option<ChangeKind>, StoreError> {
        let (a, b) = (&old.stat, &new.stat);
        if (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino) {
            return Ok(None);
        }
        if attrs::kind(a) != attrs::kind(b) {
            return Ok(Some(ChangeKind::TypeChanged));
        }
        let same = match attrs::kind(a) {
            FileType::RegularFile => a.st_size == b.st_size && self.same_content(path, old, new)?,
            FileType::Symlink => self.sides.target(path, old)? == self.sides.target(path, new)?,
            _ => true,
        };
        Ok(match (same, old.same_mode(new)) {
            (false, _) => Some(ChangeKind::Modified),
            (true, false) => Some(ChangeKind::ModeChanged),
            (true, true) => None,
        })
    }

    /// Overlayfs copies a file with its mtime: without reading, one mtime is one content.
    fn same_content(&self, path: &[u8], old: &Part, new: &Part) -> Result<bool, StoreError> {
        if !self.budget.take(new.stat.st_size as u64) {
            self.budget.guessed.set(self.budget.guessed.get() + 1);
            return Ok(attrs::mtime(&old.stat) == attrs::mtime(&new.stat));
        }
        self.sides.same_content(path, old, new)
    }
}
