//! The files of a state, read without mounting it: through its layers, whiteouts and opaque folders
//! honoured. The agent made them: no link is followed, nothing outside a slot is reached, only
//! regular files are opened.

use std::{fs::File, os::fd::OwnedFd, rc::Rc};

use rustix::{
    fs::{FileType, Stat, fstat, readlinkat},
    io::Errno,
};

use super::{
    Slot, State, Store, StoreError, attrs, checked,
    notes::readable,
    stack::Stack,
    tree::{join, open_regular},
};

/// What lies at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileEntry {
    /// As the sandbox sees it, absolute; any bytes but NUL.
    pub path: Vec<u8>,
    /// Type and permissions, as `st_mode`.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Owner's group.
    pub gid: u32,
    /// Of a regular file, holes included; else 0.
    pub size: u64,
    /// Seconds since 1970, and nanoseconds.
    pub mtime: (i64, u32),
    /// Where a symbolic link points.
    pub target: Option<Vec<u8>>,
}

/// What a state has at a path.
#[derive(Debug)]
pub enum Looked {
    /// A regular file, to be read to its size.
    File(FileEntry, File),
    /// A symbolic link; it is not followed.
    Link(FileEntry),
    /// A folder and what is in it; more than was asked for is left out.
    Folder {
        /// Itself; the root, which holds the slots, has no mode.
        entry: FileEntry,
        /// In it, or below it; a folder comes before what is in it, names are in the order of their
        /// bytes.
        entries: Vec<FileEntry>,
        /// There are more after these.
        more: bool,
    },
}

/// How a folder is listed.
#[derive(Debug, Clone)]
pub struct Listed {
    /// All below it, not only what lies in it.
    pub recursive: bool,
    /// At most so many.
    pub most: usize,
    /// The last path of the page before; it need not exist any more.
    pub after: Option<Vec<u8>>,
}

/// Why a path shows nothing. `Display` is one sentence for a person; paths in it are made readable.
#[derive(Debug, thiserror::Error)]
pub enum LookError {
    /// Not in a slot.
    #[error("{path} is not kept: an agent's files lie in {slots}")]
    Outside {
        /// As asked for.
        path: String,
        /// Where to look.
        slots: String,
    },
    /// The state has no such name.
    #[error("the state has no {path}")]
    Nothing {
        /// As asked for.
        path: String,
    },
    /// A folder of the path is no folder.
    #[error("{path} is {what}, no folder{hint}")]
    NoFolder {
        /// The part of the path that ends the way.
        path: String,
        /// `a file` or `a link`.
        what: &'static str,
        /// Where a link points.
        hint: String,
    },
    /// No path at all.
    #[error("{path} is no path of a file: write it from the root, without ..")]
    NoPath {
        /// As given.
        path: String,
    },
    /// No page goes on after this.
    #[error(
        "{after} does not lie in {folder}, so no page of it goes on there: leave it out for the first page"
    )]
    NotInside {
        /// As asked for.
        after: String,
        /// What is listed.
        folder: String,
    },
    /// The layers cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Store {
    /// Looks at an absolute path. Legal while the state's layers are pinned.
    pub fn look(
        &self,
        state: &State,
        slots: &[Slot],
        path: &[u8],
        listed: Listed,
    ) -> Result<Looked, LookError> {
        checked(slots)?;
        let parts = parts(path)?;
        if parts.is_empty() {
            return self.look_at_root(state, slots);
        }
        let path = [&b"/"[..], &parts.join(&b'/')].concat();
        let Some((slot, inside)) = inside(slots, &path) else {
            let paths: Vec<&str> = slots.iter().map(|slot| &slot.path[..]).collect();
            return Err(LookError::Outside {
                path: readable(&path),
                slots: paths.join(" and "),
            });
        };
        let looker = Looker {
            stack: Stack::open(&state.roots(self, &slot.name)?)?,
            slot: slot.path.as_bytes(),
        };
        looker.look(inside, listed)
    }

    fn look_at_root(&self, state: &State, slots: &[Slot]) -> Result<Looked, LookError> {
        let mut entries = Vec::new();
        for slot in slots {
            let looker = Looker {
                stack: Stack::open(&state.roots(self, &slot.name)?)?,
                slot: slot.path.as_bytes(),
            };
            entries.push(looker.root_entry()?);
        }
        entries.sort_by(|a, b| a.path.cmp(&b.path));
        let entry = FileEntry {
            path: b"/".to_vec(),
            mode: 0,
            uid: 0,
            gid: 0,
            size: 0,
            mtime: (0, 0),
            target: None,
        };
        Ok(Looked::Folder {
            entry,
            entries,
            more: false,
        })
    }
}

/// The components of an absolute path.
fn parts(path: &[u8]) -> Result<Vec<&[u8]>, LookError> {
    let parts = path.split(|byte| *byte == b'/');
    let parts: Vec<_> = parts
        .filter(|part| !part.is_empty() && *part != b".")
        .collect();
    let bad = |part: &&[u8]| *part == b".." || part.contains(&0) || part.len() > 255;
    match path.first() == Some(&b'/') && !parts.iter().any(bad) {
        true => Ok(parts),
        false => Err(LookError::NoPath {
            path: readable(path),
        }),
    }
}

fn inside<'a>(slots: &'a [Slot], path: &'a [u8]) -> Option<(&'a Slot, &'a [u8])> {
    slots
        .iter()
        .find_map(|slot| match path.strip_prefix(slot.path.as_bytes())? {
            [] => Some((slot, &b""[..])),
            [b'/', rest @ ..] => Some((slot, rest)),
            _ => None,
        })
}

pub(super) struct Looker<'a> {
    pub(super) stack: Stack,
    slot: &'a [u8],
}

impl Looker<'_> {
    fn look(&self, path: &[u8], listed: Listed) -> Result<Looked, LookError> {
        if path.is_empty() {
            return self.list(
                self.root_entry()?,
                path,
                self.stack.root().ids.into(),
                listed,
            );
        }
        let mut layers = self.stack.root().ids;
        let (mut folder, mut rest) = (Vec::new(), path);
        loop {
            let (name, after) = match rest.iter().position(|byte| *byte == b'/') {
                Some(at) => (&rest[..at], Some(&rest[at + 1..])),
                None => (rest, None),
            };
            let at = join(&folder, name);
            let Some((layer, stat)) = self.stack.look(&layers, &folder, name)? else {
                let path = readable(&self.absolute(&at));
                return Err(LookError::Nothing { path });
            };
            match (attrs::is_dir(&stat), after) {
                (true, Some(after)) => {
                    layers = self.stack.descend(&layers, &at)?.ids;
                    (folder, rest) = (at, after);
                }
                (false, Some(_)) => return Err(self.no_folder(&at, layer, &folder, name, &stat)?),
                (true, None) => {
                    let ids = self.stack.descend(&layers, &at)?.ids;
                    let entry = self.entry(layer, &folder, name, &stat)?;
                    return self.list(entry, &at, ids.into(), listed);
                }
                (false, None) => return self.single(layer, &folder, name, &stat),
            }
        }
    }

    fn single(
        &self,
        layer: usize,
        folder: &[u8],
        name: &[u8],
        stat: &Stat,
    ) -> Result<Looked, LookError> {
        let entry = self.entry(layer, folder, name, stat)?;
        if !attrs::is_regular(stat) {
            return Ok(Looked::Link(entry));
        }
        let dir = self.dir(layer, folder)?;
        let file = open_regular(&dir, name);
        let file =
            file.map_err(|error| self.stack.trees[layer].fault(&join(folder, name), error))?;
        Ok(Looked::File(entry, file.into()))
    }

    fn no_folder(
        &self,
        at: &[u8],
        layer: usize,
        folder: &[u8],
        name: &[u8],
        stat: &Stat,
    ) -> Result<LookError, StoreError> {
        let entry = self.entry(layer, folder, name, stat)?;
        let (what, hint) = match entry.target {
            Some(target) => {
                let target = readable(&target);
                (
                    "a link",
                    format!("; links are not followed: it points to {target}"),
                )
            }
            None => ("a file", String::new()),
        };
        Ok(LookError::NoFolder {
            path: readable(&self.absolute(at)),
            what,
            hint,
        })
    }

    fn list(
        &self,
        entry: FileEntry,
        path: &[u8],
        layers: Rc<[usize]>,
        listed: Listed,
    ) -> Result<Looked, LookError> {
        let after = match &listed.after {
            Some(after) => Some(after_in(&entry.path, after)?),
            None => None,
        };
        let (entries, more) = self.page(path, layers, &listed, after)?;
        Ok(Looked::Folder {
            entry,
            entries,
            more,
        })
    }

    fn root_entry(&self) -> Result<FileEntry, StoreError> {
        let tree = &self.stack.trees[0];
        let stat = fstat(tree.must(b"")?).map_err(|error| tree.fault(b"", error))?;
        Ok(shown(self.slot.to_vec(), &stat, None))
    }

    pub(super) fn entry(
        &self,
        layer: usize,
        folder: &[u8],
        name: &[u8],
        stat: &Stat,
    ) -> Result<FileEntry, StoreError> {
        let path = join(folder, name);
        let target = match attrs::kind(stat) {
            FileType::Symlink => {
                let target = readlinkat(self.dir(layer, folder)?, name, Vec::new());
                let fault = |error: Errno| self.stack.trees[layer].fault(&path, error);
                Some(target.map_err(fault)?.into_bytes())
            }
            _ => None,
        };
        Ok(shown(self.absolute(&path), stat, target))
    }

    fn dir(&self, layer: usize, folder: &[u8]) -> Result<OwnedFd, StoreError> {
        self.stack.trees[layer].must(folder)
    }

    fn absolute(&self, inside: &[u8]) -> Vec<u8> {
        [self.slot, inside].join(&b'/')
    }
}

fn shown(path: Vec<u8>, stat: &Stat, target: Option<Vec<u8>>) -> FileEntry {
    let regular = attrs::is_regular(stat);
    FileEntry {
        path,
        mode: stat.st_mode,
        uid: stat.st_uid,
        gid: stat.st_gid,
        size: if regular { stat.st_size as u64 } else { 0 },
        mtime: (stat.st_mtime, stat.st_mtime_nsec as u32),
        target,
    }
}

/// Where the page before ended, from the listed folder on.
fn after_in(folder: &[u8], after: &[u8]) -> Result<Vec<u8>, LookError> {
    let inside = after.strip_prefix(folder);
    match inside.and_then(|rest| rest.strip_prefix(b"/")) {
        Some(inside) if !inside.is_empty() => Ok(inside.to_vec()),
        _ => Err(LookError::NotInside {
            after: readable(after),
            folder: readable(folder),
        }),
    }
}
