//! Turns what overlayfs left in an upper folder into a layer that needs no overlayfs to be read.
//!
//! Afterwards the tree has no redirect (each is an opaque folder of hard links to what it showed),
//! no socket, fifo or device but whiteouts, no setuid, no file capability, and of `trusted.*` only
//! the opaque mark. Folders keep their mtime.
//!
//! Repeatable after a stop at any change: what is put under a final name is whole, a folder's old
//! mtime is noted on it before its first change, and a folder's whiteouts go only when it is
//! already opaque.

use std::{os::fd::OwnedFd, rc::Rc};

use rustix::fs::{FileType, Stat, Timespec, fstat};

use super::{
    SealError, StoreError, attrs,
    notes::{self, Notes},
    ops,
    place::{Placer, Source},
    stack::Stack,
    tree::{self, Entry, Tree, join},
    walk::{Kids, Visitor, depth_first},
};

/// Names in the aside folder.
const FOLDER: &[u8] = b"d";
const WHITEOUT: &[u8] = b"w";

/// Fixes `upper`, whose lowers are `lowers`. `aside` is an empty folder on the same file system.
/// Answers whether it changed what is in the tree.
pub(super) fn run(
    upper: &Tree,
    lowers: &Stack,
    aside: &Tree,
    slot: &str,
    notes: &mut Notes,
) -> Result<bool, SealError> {
    let aside = aside.must(b"")?;
    let mut fixer = Fixer {
        upper,
        lowers,
        aside: &aside,
        slot,
        notes,
        placer: Placer::new(upper, &aside),
        below: Vec::new(),
        changed: false,
    };
    let root = Folder::child(b"", &lowers.root().ids.into(), false);
    depth_first(&mut fixer, root)?;
    Ok(fixer.changed)
}

struct Fixer<'a> {
    upper: &'a Tree,
    lowers: &'a Stack,
    aside: &'a OwnedFd,
    slot: &'a str,
    notes: &'a mut Notes,
    placer: Placer<'a>,
    /// Where the lowers have the content of the folder being visited.
    below: Vec<u8>,
    changed: bool,
}

struct Folder {
    name: Vec<u8>,
    /// What the parent folder knew.
    parent_layers: Rc<[usize]>,
    parent_moved: bool,
    /// The lowers that add to this folder; none if it is opaque or new.
    layers: Rc<[usize]>,
    /// It shows content of the lowers that it would not show by its name and place alone.
    moved: bool,
    back: Back,
    mtime: Timespec,
    /// Its mtime is noted on it.
    touched: bool,
    /// Whiteouts that hide nothing once the folder is opaque.
    idle: Vec<Vec<u8>>,
}

/// How `below` returns to the parent folder's.
enum Back {
    Cut(usize),
    Whole(Vec<u8>),
}

impl Folder {
    fn child(name: &[u8], layers: &Rc<[usize]>, moved: bool) -> Folder {
        Folder {
            name: name.to_vec(),
            parent_layers: layers.clone(),
            parent_moved: moved,
            layers: Rc::default(),
            moved: false,
            back: Back::Cut(0),
            mtime: Timespec::default(),
            touched: false,
            idle: Vec::new(),
        }
    }
}

impl Visitor for Fixer<'_> {
    type Node = Folder;
    type Error = SealError;

    fn enter(&mut self, path: &[u8], folder: &mut Folder) -> Result<Kids<Self>, SealError> {
        let dir = self.upper.must(path)?;
        self.find_below(path, &dir, folder)?;
        self.read_mtime(path, &dir, folder)?;
        let entries = tree::entries(&dir).map_err(|error| self.upper.fault(path, error))?;
        let mut kids = Vec::new();
        for entry in &entries {
            match attrs::kind(&entry.stat) {
                FileType::Directory => kids.push(self.kid(folder, &entry.name)),
                FileType::RegularFile | FileType::Symlink => self.clean(path, &dir, entry)?,
                _ if attrs::is_whiteout(&entry.stat) => {
                    if folder.moved || folder.layers.is_empty() {
                        folder.idle.push(entry.name.clone());
                    }
                }
                _ => self.drop_node(path, &dir, folder, entry)?,
            }
        }
        if folder.moved {
            self.fill(path, &dir, folder, &entries, &mut kids)?;
        }
        Ok(kids)
    }

    fn leave(&mut self, path: &[u8], mut folder: Folder) -> Result<(), SealError> {
        let dir = self.upper.must(path)?;
        if folder.moved || !folder.idle.is_empty() {
            self.touch(path, &dir, &mut folder)?;
        }
        self.settle(path, &dir, &folder)
            .map_err(|error| self.upper.fault(path, error))?;
        match folder.back {
            Back::Cut(len) => self.below.truncate(len),
            Back::Whole(below) => self.below = below,
        }
        Ok(())
    }
}

impl Fixer<'_> {
    fn kid(&self, folder: &Folder, name: &[u8]) -> (Vec<u8>, Folder) {
        let kid = Folder::child(name, &folder.layers, folder.moved);
        (name.to_vec(), kid)
    }

    /// Sets `below` and `layers` by the folder's marks, as overlayfs does at a look-up.
    fn find_below(
        &mut self,
        path: &[u8],
        dir: &OwnedFd,
        folder: &mut Folder,
    ) -> Result<(), SealError> {
        if path.is_empty() {
            folder.layers = folder.parent_layers.clone();
            return Ok(());
        }
        let fault = |error| self.upper.fault(path, error);
        let opaque = attrs::is_opaque(dir).map_err(fault)?;
        let redirect = attrs::mark(dir, attrs::REDIRECT).map_err(fault)?;
        let redirect = redirect.filter(|_| !opaque);
        let start = self.below.len();
        folder.back = Back::Cut(start);
        match &redirect {
            Some(target) if target.starts_with(b"/") => {
                folder.back = Back::Whole(std::mem::take(&mut self.below));
                folder.layers = self.step_from_root(&target[1..])?;
            }
            Some(name) => folder.layers = self.step(&folder.parent_layers, name)?,
            None if opaque => {}
            None => folder.layers = self.step(&folder.parent_layers, &folder.name)?,
        }
        folder.moved = redirect.is_some() || (folder.parent_moved && !folder.layers.is_empty());
        if let (Some(target), true) = (redirect, folder.layers.is_empty()) {
            return Err(SealError::Redirect {
                path: self.shown(path),
                target: String::from_utf8_lossy(&target).into_owned(),
            });
        }
        Ok(())
    }

    fn step_from_root(&mut self, path: &[u8]) -> Result<Rc<[usize]>, StoreError> {
        let mut layers: Rc<[usize]> = self.lowers.root().ids.into();
        for name in path.split(|byte| *byte == b'/') {
            layers = self.step(&layers, name)?;
        }
        Ok(layers)
    }

    fn step(&mut self, layers: &[usize], name: &[u8]) -> Result<Rc<[usize]>, StoreError> {
        if !self.below.is_empty() {
            self.below.push(b'/');
        }
        self.below.extend_from_slice(name);
        Ok(self.lowers.descend(layers, &self.below)?.ids.into())
    }

    fn read_mtime(
        &self,
        path: &[u8],
        dir: &OwnedFd,
        folder: &mut Folder,
    ) -> Result<(), StoreError> {
        let fault = |error| self.upper.fault(path, error);
        let noted = attrs::mark(dir, attrs::MTIME).map_err(fault)?;
        let noted = noted.and_then(|value| attrs::from_mark(&value));
        folder.touched = noted.is_some();
        folder.mtime = match noted {
            Some(mtime) => mtime,
            None => attrs::mtime(&fstat(dir).map_err(fault)?),
        };
        Ok(())
    }

    /// Legal and needed before any change in the folder.
    fn touch(&mut self, path: &[u8], dir: &OwnedFd, folder: &mut Folder) -> Result<(), StoreError> {
        self.changed = true;
        if !folder.touched {
            let mark = attrs::to_mark(folder.mtime);
            ops::set_xattr(&attrs::through(dir, b"."), attrs::MTIME, &mark)
                .map_err(|error| self.upper.fault(path, error))?;
            folder.touched = true;
        }
        Ok(())
    }

    fn clean(&mut self, path: &[u8], dir: &OwnedFd, entry: &Entry) -> Result<(), SealError> {
        let file = join(path, &entry.name);
        let fault = |error| self.upper.fault(&file, error);
        let target = attrs::through(dir, &entry.name);
        for name in attrs::names(&target).map_err(fault)? {
            if name == attrs::METACOPY {
                return Err(SealError::Metacopy {
                    path: self.shown(&file),
                });
            }
            let capability = name == attrs::CAPABILITY;
            if capability || name.starts_with(b"trusted.") {
                ops::remove_xattr(&target, &name).map_err(fault)?;
            }
            if capability {
                self.notes
                    .add("stripped file capabilities from", self.slot, &file);
            }
        }
        for (bit, what) in [(0o4000, "setuid"), (0o2000, "setgid")] {
            if attrs::is_regular(&entry.stat) && entry.stat.st_mode & bit != 0 {
                ops::set_mode(dir, &entry.name, entry.stat.st_mode & !0o6000).map_err(fault)?;
                let what = format!("stripped {what} from");
                self.notes.add(&what, self.slot, &file);
            }
        }
        Ok(())
    }

    fn drop_node(
        &mut self,
        path: &[u8],
        dir: &OwnedFd,
        folder: &mut Folder,
        entry: &Entry,
    ) -> Result<(), SealError> {
        self.touch(path, dir, folder)?;
        let name = &entry.name;
        let below = self.lowers.look(&folder.layers, &self.below, name)?;
        let dropped = if below.is_some() {
            folder.moved.then(|| folder.idle.push(name.clone()));
            ops::white_out(self.aside, WHITEOUT)
                .and_then(|()| ops::rename((self.aside, WHITEOUT), (dir, name)))
        } else {
            ops::unlink(dir, name)
        };
        let file = join(path, name);
        dropped.map_err(|error| self.upper.fault(&file, error))?;
        let what = match attrs::kind(&entry.stat) {
            FileType::Socket => notes::SOCKET,
            FileType::Fifo => "dropped fifo",
            _ => "dropped device",
        };
        self.notes.add(what, self.slot, &file);
        Ok(())
    }

    /// Adds what the lowers have and the folder itself does not.
    fn fill(
        &mut self,
        path: &[u8],
        dir: &OwnedFd,
        folder: &mut Folder,
        have: &[Entry],
        kids: &mut Kids<Self>,
    ) -> Result<(), SealError> {
        self.touch(path, dir, folder)?;
        let mut merged = self.lowers.merged(&folder.layers, &self.below)?;
        for entry in have {
            merged.entries.remove(&entry.name);
        }
        for (name, (at, stat)) in &merged.entries {
            let from = Source {
                dir: &merged.dirs[*at],
                name,
                stat,
            };
            if attrs::is_dir(stat) {
                let id = folder.layers[*at];
                self.graft(id, name, stat, dir)?;
                kids.push(self.kid(folder, name));
            } else if !attrs::is_whiteout(stat) {
                self.placer.place(&from, dir, path)?;
            }
        }
        Ok(())
    }

    /// Makes an empty folder like the lower's, with its mtime noted on it.
    fn graft(&self, id: usize, name: &[u8], stat: &Stat, dir: &OwnedFd) -> Result<(), StoreError> {
        let path = join(&self.below, name);
        let lower = self.lowers.trees[id].must(&path)?;
        let make = || {
            ops::make_dir(self.aside, FOLDER, 0o700)?;
            attrs::copy(&lower, self.aside, FOLDER)?;
            let mark = attrs::to_mark(attrs::mtime(stat));
            ops::set_xattr(&attrs::through(self.aside, FOLDER), attrs::MTIME, &mark)?;
            ops::rename((self.aside, FOLDER), (dir, name))
        };
        make().map_err(|error| self.upper.fault(&path, error))
    }

    /// The last changes of a folder, in the one order that can be repeated.
    fn settle(&self, path: &[u8], dir: &OwnedFd, folder: &Folder) -> rustix::io::Result<()> {
        let target = attrs::through(dir, b".");
        if folder.moved {
            ops::set_xattr(&target, attrs::OPAQUE, b"y")?;
        }
        for name in &folder.idle {
            ops::unlink(dir, name)?;
        }
        if folder.touched {
            ops::set_mtime(dir, b".", folder.mtime)?;
        }
        let opaque = !path.is_empty() && attrs::is_opaque(dir)?;
        for name in attrs::names(&target)? {
            let stays = opaque && name == attrs::OPAQUE;
            if name.starts_with(b"trusted.") && !stays {
                ops::remove_xattr(&target, &name)?;
            }
        }
        Ok(())
    }

    fn shown(&self, path: &[u8]) -> String {
        format!("{}/{}", self.slot, String::from_utf8_lossy(path))
    }
}
