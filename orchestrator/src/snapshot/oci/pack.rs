//! One slot of one stored layer, or of a base, as entries of a tar stream, sorted by the bytes of
//! their paths. What only overlayfs understands becomes marks; nothing is left of its attributes.

use std::{fs::File, io::Write, os::fd::OwnedFd};

use rustix::{
    fs::{FileType, Stat, flistxattr, fstat, readlinkat},
    io::Errno,
};

use super::{
    super::{
        StoreError, attrs,
        tree::{self, Entry, Tree, join},
    },
    header::Meta,
    links::{Links, Other},
    names, sparse,
    write::{Body, Writer, Xattrs},
};

/// Writes the topmost of `trees`, which are the slot's layers so far, oldest first. `prefix` is
/// where the slot is mounted, without a leading `/`.
pub(super) fn pack<W: Write>(
    writer: &mut Writer<W>,
    prefix: &[u8],
    trees: &[Tree],
    links: &mut Links,
) -> Result<(), StoreError> {
    let Some(tree) = trees.last() else {
        return Ok(());
    };
    let mut packer = Packer {
        writer,
        prefix,
        tree,
        trees,
        links,
    };
    packer.walk()
}

struct Packer<'a, W> {
    writer: &'a mut Writer<W>,
    prefix: &'a [u8],
    tree: &'a Tree,
    trees: &'a [Tree],
    links: &'a mut Links,
}

/// Something of a folder and the name it has in the archive.
struct Item {
    /// Sorts as the bytes of the whole path do: a folder's ends in `/`.
    shown: Vec<u8>,
    /// None is the folder's own opaque mark.
    entry: Option<Entry>,
}

struct Level {
    items: std::vec::IntoIter<Item>,
    parent_len: usize,
}

impl<W: Write> Packer<'_, W> {
    /// Depth first, without recursion; at most one folder is held open.
    fn walk(&mut self) -> Result<(), StoreError> {
        let mut path = Vec::new();
        let mut dir = Some(self.tree.must(&path)?);
        let mut levels = vec![self.enter(&path, dir.as_ref(), 0)?];
        while let Some(level) = levels.last_mut() {
            let Some(item) = level.items.next() else {
                path.truncate(level.parent_len);
                levels.pop();
                dir = None;
                continue;
            };
            let open = match dir.take() {
                Some(open) => open,
                None => self.tree.must(&path)?,
            };
            match item.entry {
                Some(entry) if attrs::is_dir(&entry.stat) => {
                    let parent_len = path.len();
                    path = join(&path, &entry.name);
                    dir = Some(self.tree.must(&path)?);
                    levels.push(self.enter(&path, dir.as_ref(), parent_len)?);
                }
                Some(entry) => {
                    self.add(&path, &open, &entry, &item.shown)?;
                    dir = Some(open);
                }
                None => {
                    let mark = self.shown(&path, &item.shown);
                    self.said(&path, |writer| writer.mark(&mark))?;
                    dir = Some(open);
                }
            }
        }
        Ok(())
    }

    fn enter(
        &mut self,
        path: &[u8],
        dir: Option<&OwnedFd>,
        parent_len: usize,
    ) -> Result<Level, StoreError> {
        let fault = |error| self.tree.fault(path, error);
        let Some(dir) = dir else {
            return Err(fault(Errno::BADF));
        };
        let stat = fstat(dir).map_err(fault)?;
        let xattrs = xattrs(&attrs::through(dir, b".")).map_err(fault)?;
        let opaque = attrs::is_opaque(dir).map_err(fault)?;
        let mut items: Vec<Item> = tree::entries(dir)
            .map_err(fault)?
            .into_iter()
            .map(item)
            .collect();
        if opaque {
            items.push(Item {
                shown: names::OPAQUE.to_vec(),
                entry: None,
            });
        }
        items.sort_by(|a, b| a.shown.cmp(&b.shown));
        let shown = self.shown(path, b"");
        self.said(path, |writer| writer.folder(&shown, meta(&stat), &xattrs))?;
        Ok(Level {
            items: items.into_iter(),
            parent_len,
        })
    }

    fn add(
        &mut self,
        path: &[u8],
        dir: &OwnedFd,
        entry: &Entry,
        shown: &[u8],
    ) -> Result<(), StoreError> {
        let file = join(path, &entry.name);
        let shown = self.shown(path, shown);
        if attrs::is_whiteout(&entry.stat) {
            return self.said(&file, |writer| writer.mark(&shown));
        }
        let meta = meta(&entry.stat);
        let whole = |path: &[u8]| [self.prefix, b"/", &names::escape_path(path)].concat();
        let same = match self.links.other(&entry.stat, &file, self.trees)? {
            Some(Other::Here(target)) => {
                let target = whole(&target);
                return self.said(&file, |writer| writer.link(&shown, meta, &target));
            }
            Some(Other::Older(path)) => Some(whole(&path)),
            None => None,
        };
        let same = same.as_deref();
        match attrs::kind(&entry.stat) {
            FileType::RegularFile => self.add_file(&file, dir, entry, &shown, same),
            FileType::Symlink => {
                let target = readlinkat(dir, &entry.name[..], Vec::new());
                let target = target.map_err(|error| self.tree.fault(&file, error))?;
                self.said(&file, |writer| {
                    writer.symlink(&shown, meta, target.as_bytes(), same)
                })
            }
            // A seal leaves no other kind; a base is cleaned too.
            _ => Ok(()),
        }
    }

    fn add_file(
        &mut self,
        path: &[u8],
        dir: &OwnedFd,
        entry: &Entry,
        shown: &[u8],
        same: Option<&[u8]>,
    ) -> Result<(), StoreError> {
        let fault = |error| self.tree.fault(path, error);
        let file = File::from(tree::open_regular(dir, &entry.name).map_err(fault)?);
        // Most files have none, and a handle tells it without a look-up.
        let xattrs = match flistxattr(&file, &mut [0_u8; 1][..]) {
            Ok(0) | Err(Errno::NOTSUP) => Xattrs::new(),
            _ => xattrs(&attrs::through(dir, &entry.name)).map_err(fault)?,
        };
        let length = entry.stat.st_size as u64;
        let pieces = match entry.stat.st_blocks as u64 * 512 >= length {
            true => None,
            false => sparse::pieces(&file, length).map_err(fault)?,
        };
        let meta = meta(&entry.stat);
        let body = Body {
            from: &file,
            length,
            pieces: pieces.as_ref(),
        };
        self.said(path, |writer| {
            writer.file(shown, meta, &xattrs, &body, same)
        })
    }

    /// The archive's path of `name`, given as the archive has it, in the slot's folder `path`.
    fn shown(&self, path: &[u8], name: &[u8]) -> Vec<u8> {
        let mut shown = self.prefix.to_vec();
        shown.push(b'/');
        if !path.is_empty() {
            shown.extend_from_slice(&names::escape_path(path));
            shown.push(b'/');
        }
        shown.extend_from_slice(name);
        shown
    }

    fn said(
        &mut self,
        path: &[u8],
        write: impl FnOnce(&mut Writer<W>) -> std::io::Result<()>,
    ) -> Result<(), StoreError> {
        write(self.writer).map_err(|error| {
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
            self.tree.fault(path, errno)
        })
    }
}

fn item(entry: Entry) -> Item {
    let shown = if attrs::is_whiteout(&entry.stat) {
        names::whiteout(&entry.name)
    } else {
        names::escape(&entry.name).into_owned()
    };
    let slash: &[u8] = if attrs::is_dir(&entry.stat) {
        b"/"
    } else {
        b""
    };
    Item {
        shown: [&shown, slash].concat(),
        entry: Some(entry),
    }
}

fn meta(stat: &Stat) -> Meta {
    Meta {
        mode: stat.st_mode & 0o7777,
        uid: stat.st_uid,
        gid: stat.st_gid,
        mtime: attrs::mtime(stat),
    }
}

/// Import takes no `user.overlay.*`, so none is written.
fn xattrs(path: &[u8]) -> rustix::io::Result<Xattrs> {
    let mut found = attrs::users(path)?;
    found.retain(|(name, _)| !name.starts_with(b"user.overlay."));
    Ok(found)
}
