//! One folder and what lies below it, reached by directory handles only.
//!
//! A path is bytes relative to the root, joined by `/`; it may be longer than the system's limit
//! for one call. Nothing outside the root is ever opened, no link is followed and no mount is
//! entered. The number of open handles does not depend on depth.

use std::{
    cell::RefCell,
    ffi::OsStr,
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{AtFlags, CWD, Dir, Mode, OFlags, ResolveFlags, Stat, openat, openat2, statat},
    io::{Errno, Result},
};

use super::StoreError;

/// How much of a path one call resolves.
const STEP: usize = 2048;
/// How many handles one tree keeps on the way to a deep folder: those nearest to it, or each of
/// many thousand folders would be reached from far above.
const ANCHORS: usize = 128;
/// How much of a long path an error shows.
const SHOWN: usize = 1024;

const CONFINED: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_XDEV);

pub(super) struct Tree {
    root: PathBuf,
    handle: OwnedFd,
    anchors: RefCell<Anchors>,
}

/// Handles of the folders at each `STEP` of the last deep path.
#[derive(Default)]
struct Anchors {
    path: Vec<u8>,
    handles: Vec<(usize, OwnedFd)>,
}

pub(super) struct Entry {
    pub(super) name: Vec<u8>,
    pub(super) stat: Stat,
}

impl Tree {
    pub(super) fn open(root: &Path) -> std::result::Result<Tree, StoreError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let handle =
            openat(CWD, root, flags, Mode::empty()).map_err(|error| StoreError::io(root, error))?;
        Ok(Tree {
            root: root.to_owned(),
            handle,
            anchors: RefCell::default(),
        })
    }

    /// The folder at `path`. A file or link there is `NOTDIR` or `LOOP`.
    pub(super) fn dir(&self, path: &[u8]) -> Result<OwnedFd> {
        self.resolve(path, OFlags::RDONLY | OFlags::DIRECTORY)
    }

    pub(super) fn resolve(&self, path: &[u8], flags: OFlags) -> Result<OwnedFd> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        if path.len() <= STEP {
            let path = if path.is_empty() { b"." } else { path };
            return confined(&self.handle, path, flags);
        }
        let mut anchors = self.anchors.borrow_mut();
        anchors.keep_prefix_of(path);
        let mut at = anchors.handles.last().map_or(0, |(end, _)| end + 1);
        loop {
            let last = anchors.handles.last().map(|(_, handle)| handle);
            let from = last.unwrap_or(&self.handle);
            let rest = &path[at..];
            if rest.len() <= STEP {
                return confined(from, rest, flags);
            }
            let step = rest[..STEP].iter().rposition(|byte| *byte == b'/');
            let step = step.ok_or(Errno::NAMETOOLONG)?;
            let handle = confined(from, &rest[..step], OFlags::PATH | OFlags::DIRECTORY)?;
            anchors.add(&path[..at + step], handle);
            at += step + 1;
        }
    }

    /// [`Tree::dir`], for callers to whom its absence is a failure.
    pub(super) fn must(&self, path: &[u8]) -> std::result::Result<OwnedFd, StoreError> {
        self.dir(path).map_err(|error| self.fault(path, error))
    }

    /// An error about `path`.
    pub(super) fn fault(&self, path: &[u8], error: Errno) -> StoreError {
        let shown = &path[..path.len().min(SHOWN)];
        StoreError::io(self.root.join(OsStr::from_bytes(shown)), error)
    }
}

impl Anchors {
    fn keep_prefix_of(&mut self, path: &[u8]) {
        let path_of = &self.path;
        let leads = |end: usize| path.get(end) == Some(&b'/') && path[..end] == path_of[..end];
        while self.handles.last().is_some_and(|(end, _)| !leads(*end)) {
            self.handles.pop();
        }
        let end = self.handles.last().map_or(0, |(end, _)| *end);
        self.path.truncate(end);
    }

    /// `path` begins with the last anchor's.
    fn add(&mut self, path: &[u8], handle: OwnedFd) {
        let known = self.path.len();
        self.path.extend_from_slice(&path[known..]);
        if self.handles.len() == ANCHORS {
            self.handles.remove(0);
        }
        self.handles.push((path.len(), handle));
    }
}

fn confined(from: &OwnedFd, path: &[u8], flags: OFlags) -> Result<OwnedFd> {
    openat2(from, path, flags | OFlags::CLOEXEC, Mode::empty(), CONFINED)
}

/// A regular file in `dir`. Anything else is `INVAL` and is not opened.
pub(super) fn open_regular(dir: &OwnedFd, name: &[u8]) -> Result<OwnedFd> {
    let stat = statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
    if !super::attrs::is_regular(&stat) {
        return Err(Errno::INVAL);
    }
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    confined(dir, name, flags)
}

/// Tells each name that lies directly in `dir`, in no order.
pub(super) fn each_name(dir: &OwnedFd, mut tell: impl FnMut(&[u8])) -> Result<()> {
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            tell(name);
        }
    }
    Ok(())
}

/// What lies directly in `dir`, in no order.
pub(super) fn entries(dir: &OwnedFd) -> Result<Vec<Entry>> {
    let mut found = Vec::new();
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            found.push(Entry {
                name: name.to_vec(),
                stat: statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?,
            });
        }
    }
    Ok(found)
}

pub(super) fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    if dir.is_empty() {
        return name.to_vec();
    }
    [dir, name].join(&b'/')
}
