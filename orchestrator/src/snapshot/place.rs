//! Puts a stored file under one more name: a hard link, or a copy where the file system refuses
//! another link. A crash leaves either nothing or the whole file under the new name.

use std::{
    collections::{HashMap, HashSet},
    fs::File,
    os::{fd::OwnedFd, unix::fs::FileExt},
};

use rustix::{
    fs::{FileType, SeekFrom, Stat, ftruncate, openat, readlinkat, seek},
    io::{Errno, Result},
};

use super::{
    StoreError, attrs, ops,
    tree::{Tree, open_regular},
};

/// The name a copy has until it is whole.
const ASIDE: &[u8] = b"f";
/// A file with more names than half of what ext4 allows (65,000) is copied before the first link:
/// else the limit would come in the middle, and tear the group of its names.
const MANY: u64 = 32_000;

pub(super) struct Placer<'a> {
    out: &'a Tree,
    aside: &'a OwnedFd,
    /// Where the copy of an inode went, so that its other names are links to it.
    copies: HashMap<(u64, u64), (Vec<u8>, Vec<u8>)>,
    /// Inodes that were linked before they came near [`MANY`], which links of ours may bring them.
    linked: HashSet<(u64, u64)>,
}

/// A stored file by its folder's handle.
pub(super) struct Source<'a> {
    pub(super) dir: &'a OwnedFd,
    pub(super) name: &'a [u8],
    pub(super) stat: &'a Stat,
}

impl<'a> Placer<'a> {
    /// Places into `out`; `aside` is an empty folder on the same file system.
    pub(super) fn new(out: &'a Tree, aside: &'a OwnedFd) -> Self {
        Placer {
            out,
            aside,
            copies: HashMap::new(),
            linked: HashSet::new(),
        }
    }

    /// `dir` is the handle of the folder `path` of the tree.
    pub(super) fn place(
        &mut self,
        from: &Source<'_>,
        dir: &OwnedFd,
        path: &[u8],
    ) -> std::result::Result<(), StoreError> {
        self.place_as(from, (dir, from.name), path)
    }

    /// [`Placer::place`] under another name.
    pub(super) fn place_as(
        &mut self,
        from: &Source<'_>,
        to: (&OwnedFd, &[u8]),
        path: &[u8],
    ) -> std::result::Result<(), StoreError> {
        let link = || ops::link((from.dir, from.name), to);
        let answer = match self.is_copied(from.stat) {
            true => self.copy_once(from, to, path),
            false => match ops::may_link().and_then(|()| link()) {
                Err(Errno::MLINK | Errno::XDEV) => self.copy_once(from, to, path),
                answer => answer,
            },
        };
        answer.map_err(|error| self.out.fault(&super::tree::join(path, to.1), error))
    }

    fn is_copied(&mut self, stat: &Stat) -> bool {
        let inode = (stat.st_dev, stat.st_ino);
        #[allow(clippy::useless_conversion)] // Its width is the architecture's.
        let names = u64::from(stat.st_nlink);
        if names <= MANY / 2 || self.linked.contains(&inode) {
            return false;
        }
        if names <= MANY && !self.copies.contains_key(&inode) {
            self.linked.insert(inode);
            return false;
        }
        true
    }

    fn copy_once(&mut self, from: &Source<'_>, to: (&OwnedFd, &[u8]), path: &[u8]) -> Result<()> {
        let inode = (from.stat.st_dev, from.stat.st_ino);
        if let Some((known, name)) = self.copies.get(&inode) {
            let known = self.out.dir(known)?;
            match ops::link((&known, name), to) {
                Err(Errno::MLINK) => {}
                answer => return answer,
            }
        }
        copy(from, self.aside)?;
        ops::rename((self.aside, ASIDE), to)?;
        if from.stat.st_nlink > 1 {
            self.copies.insert(inode, (path.to_vec(), to.1.to_vec()));
        }
        Ok(())
    }
}

fn copy(from: &Source<'_>, aside: &OwnedFd) -> Result<()> {
    match attrs::kind(from.stat) {
        FileType::RegularFile => copy_content(from, aside)?,
        FileType::Symlink => {
            let target = readlinkat(from.dir, from.name, Vec::new())?;
            ops::symlink(target.as_bytes(), aside, ASIDE)?;
        }
        FileType::CharacterDevice => return ops::white_out(aside, ASIDE),
        _ => return Err(Errno::INVAL),
    }
    let target = attrs::through(aside, ASIDE);
    for (name, value) in attrs::users(&attrs::through(from.dir, from.name))? {
        ops::set_xattr(&target, &name, &value)?;
    }
    ops::set_owner(aside, ASIDE, from.stat.st_uid, from.stat.st_gid)?;
    if attrs::is_regular(from.stat) {
        ops::set_mode(aside, ASIDE, from.stat.st_mode)?;
    }
    ops::set_mtime(aside, ASIDE, attrs::mtime(from.stat))
}

fn copy_content(from: &Source<'_>, aside: &OwnedFd) -> Result<()> {
    use rustix::fs::OFlags;
    let source = File::from(open_regular(from.dir, from.name)?);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let target = File::from(openat(aside, ASIDE, flags, 0o600.into())?);
    let mut buffer = vec![0; 128 * 1024];
    let mut at = 0;
    while let Some(data) = end_of(seek(&source, SeekFrom::Data(at)))? {
        let hole = seek(&source, SeekFrom::Hole(data))?;
        at = data;
        while at < hole {
            let want = buffer.len().min((hole - at) as usize);
            let len = source.read_at(&mut buffer[..want], at).map_err(errno)?;
            if len == 0 {
                break;
            }
            target.write_all_at(&buffer[..len], at).map_err(errno)?;
            at += len as u64;
        }
        at = hole;
    }
    ftruncate(&target, from.stat.st_size as u64)
}

fn end_of(answer: Result<u64>) -> Result<Option<u64>> {
    match answer {
        Ok(at) => Ok(Some(at)),
        Err(Errno::NXIO) => Ok(None),
        Err(error) => Err(error),
    }
}

fn errno(error: std::io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}
