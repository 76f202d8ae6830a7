//! Paths whose changes are not kept, by globs of the profile.
//!
//! What a tick wrote there is dropped before the seal, so it costs nothing and is not back in the
//! next tick. What older layers or the base have there stays as it was, and shows again; that a tick
//! removed it is kept.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt};

use globset::{Glob, GlobBuilder, GlobSet, GlobSetBuilder};
use mayfly_domain::LayerId;
use rustix::fs::fstat;

use super::{
    Slot, Store, StoreError, attrs, ops,
    tree::{self, Tree, join},
    walk::{Kids, Visitor, depth_first},
};

/// What `~` stands for.
const HOME: &str = "/home/agent";

/// Why a pattern is none.
#[derive(Debug, thiserror::Error)]
pub enum ExcludeError {
    /// It could never match.
    #[error("\"{0}\" does not begin with / or ~/")]
    Relative(String),
    /// Its syntax.
    #[error("{0}")]
    Glob(#[from] globset::Error),
}

/// Patterns, ready to be asked. `*` and `?` stay within one name, `**` does not.
#[derive(Debug, Clone)]
pub struct Excludes(GlobSet);

impl Excludes {
    /// Reads patterns as a profile has them.
    pub fn new(patterns: &[String]) -> Result<Excludes, ExcludeError> {
        let mut set = GlobSetBuilder::new();
        for pattern in patterns {
            set.add(glob(pattern)?);
        }
        Ok(Excludes(set.build()?))
    }

    fn have(&self, path: &[u8]) -> bool {
        self.0.is_match(OsStr::from_bytes(path))
    }
}

fn glob(pattern: &str) -> Result<Glob, ExcludeError> {
    let whole = match pattern.strip_prefix("~/") {
        Some(rest) => format!("{HOME}/{rest}"),
        None if pattern.starts_with('/') => pattern.to_owned(),
        None => return Err(ExcludeError::Relative(pattern.to_owned())),
    };
    let glob = GlobBuilder::new(&whole).literal_separator(true).build();
    Ok(glob?)
}

impl Store {
    /// Drops what a tick wrote under excluded paths, and answers how many files and folders that
    /// were. Legal when nothing can write there any more and nothing is sealed yet; repeatable.
    pub fn exclude(
        &self,
        layer: &LayerId,
        slots: &[Slot],
        excludes: &Excludes,
    ) -> Result<u64, StoreError> {
        let mut dropped = 0;
        if excludes.0.is_empty() {
            return Ok(0);
        }
        for slot in slots {
            let upper = self.upper_dir(layer).join(&slot.name).join("up");
            if !upper.is_dir() {
                continue;
            }
            let tree = Tree::open(&upper)?;
            let mut dropper = Dropper {
                tree: &tree,
                slot: &slot.path,
                excludes,
                dropped: 0,
            };
            depth_first(&mut dropper, Folder::default())?;
            dropped += dropper.dropped;
        }
        Ok(dropped)
    }
}

struct Dropper<'a> {
    tree: &'a Tree,
    slot: &'a str,
    excludes: &'a Excludes,
    dropped: u64,
}

#[derive(Default)]
struct Folder {
    /// It goes with all that is in it.
    doomed: bool,
}

impl Visitor for Dropper<'_> {
    type Node = Folder;
    type Error = StoreError;

    fn enter(&mut self, path: &[u8], folder: &mut Folder) -> Result<Kids<Self>, StoreError> {
        let dir = self.tree.must(path)?;
        let entries = tree::entries(&dir).map_err(|error| self.tree.fault(path, error))?;
        let mut kids = Vec::new();
        let mut noted = folder.doomed;
        for entry in entries {
            let below = join(path, &entry.name);
            let is_dir = attrs::is_dir(&entry.stat);
            let whiteout = attrs::is_whiteout(&entry.stat);
            let goes = folder.doomed || (!whiteout && self.excluded(&below));
            if goes && !noted {
                self.note_mtime(path, &dir)?;
                noted = true;
            }
            if is_dir {
                kids.push((entry.name, Folder { doomed: goes }));
            } else if goes {
                ops::unlink(&dir, &entry.name).map_err(|error| self.tree.fault(&below, error))?;
                self.dropped += 1;
            }
        }
        Ok(kids)
    }

    fn leave(&mut self, path: &[u8], folder: Folder) -> Result<(), StoreError> {
        if !folder.doomed {
            return Ok(());
        }
        let at = path.iter().rposition(|byte| *byte == b'/');
        let (parent, name) = match at {
            Some(at) => (&path[..at], &path[at + 1..]),
            None => (&b""[..], path),
        };
        let parent = self.tree.must(parent)?;
        ops::remove_dir(&parent, name).map_err(|error| self.tree.fault(path, error))?;
        self.dropped += 1;
        Ok(())
    }
}

impl Dropper<'_> {
    fn excluded(&self, path: &[u8]) -> bool {
        self.excludes.have(&join(self.slot.as_bytes(), path))
    }

    /// The seal puts the folder's mtime back.
    fn note_mtime(&self, path: &[u8], dir: &std::os::fd::OwnedFd) -> Result<(), StoreError> {
        let note = || {
            if attrs::mark(dir, attrs::MTIME)?.is_none() {
                let mark = attrs::to_mark(attrs::mtime(&fstat(dir)?));
                ops::set_xattr(&attrs::through(dir, b"."), attrs::MTIME, &mark)?;
            }
            Ok(())
        };
        note().map_err(|error| self.tree.fault(path, error))
    }
}
