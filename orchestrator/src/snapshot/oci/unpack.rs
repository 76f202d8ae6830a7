//! Makes one layer, or a base, of a tar stream that anybody may have made. It writes only below the
//! slots' new folders: each parent is looked up anew without following a link, and must be a folder
//! that this layer itself has. Every name is made once; what is there is never written to.

use std::{
    fs::File,
    io::{self, Read},
    os::{fd::OwnedFd, unix::fs::FileExt},
    path::PathBuf,
};

use rustix::{
    fs::{AtFlags, FileType, OFlags, Stat, ftruncate, openat, readlinkat, statat},
    io::Errno,
};

use super::{
    super::{
        StoreError, attrs,
        notes::Notes,
        ops,
        place::{Placer, Source},
        stack::Stack,
        tree::{Tree, join, open_regular},
    },
    OciError,
    header::Meta,
    names::{self, Meaning},
    read::{Entry, Kind, Reader},
};

/// Where a slot's entries go.
pub(super) struct Target {
    /// Where it is mounted, without a leading `/`.
    pub(super) prefix: Vec<u8>,
    /// Empty, and on the store's file system.
    pub(super) out: Tree,
    /// The layers that came before, topmost first, then the base; a base has none.
    pub(super) below: Option<Stack>,
    /// Empty, for copies in the making.
    pub(super) aside: OwnedFd,
}

/// Files beside the slots that a base has, and where they go.
pub(super) type Beside = Vec<(&'static [u8], PathBuf)>;

/// What an import may still write.
pub struct Budget<'a> {
    /// Bytes, holes not counted.
    pub bytes: u64,
    /// Files, folders, links and marks.
    pub inodes: u64,
    /// Asked now and then, before more is written: whether the disk has room for so many bytes.
    pub room: &'a dyn Fn(u64) -> bool,
    pub(super) asked: u64,
}

/// What a file takes on disk at least, and each piece of one between holes.
const BLOCK: u64 = 4096;
/// After so many bytes the disk is asked again.
const ASK: u64 = 64 << 20;
const READ: usize = 256 << 10;
/// Of passwd or group.
const BESIDE_MAX: u64 = 2 << 20;
/// What is held in memory of one layer's folders until its end: some 700,000 with paths of 100 bytes.
const HELD_MAX: usize = 128 << 20;

impl<'a> Budget<'a> {
    /// See the fields.
    pub fn new(bytes: u64, inodes: u64, room: &'a dyn Fn(u64) -> bool) -> Self {
        Budget {
            bytes,
            inodes,
            room,
            asked: 0,
        }
    }

    pub(super) fn take(&mut self, bytes: u64) -> Result<(), OciError> {
        if bytes > self.bytes {
            return Err(OciError::Limit(
                "it holds more bytes than may come in".to_owned(),
            ));
        }
        self.bytes -= bytes;
        self.take_room(bytes)
    }

    /// What the disk needs, and the archive need not hold.
    fn take_room(&mut self, bytes: u64) -> Result<(), OciError> {
        if bytes > self.asked {
            if !(self.room)(ASK.max(bytes)) {
                return Err(OciError::Limit("the disk has no room for it".to_owned()));
            }
            self.asked = ASK.max(bytes);
        }
        self.asked -= bytes;
        Ok(())
    }

    /// An entry, and what its header and records say.
    pub(super) fn take_entry(&mut self, entry: &Entry) -> Result<(), OciError> {
        self.take_inode()?;
        self.take((entry.path.len() + entry.target.len() + weight(&entry.xattrs)) as u64)
    }

    fn take_inode(&mut self) -> Result<(), OciError> {
        let left = self.inodes.checked_sub(1);
        self.inodes =
            left.ok_or_else(|| OciError::Limit("it holds more files than may come in".to_owned()))?;
        self.take_room(BLOCK)
    }
}

/// Reads the stream to its end; answers which slots it had something for.
pub(super) fn unpack<R: Read>(
    stream: R,
    targets: &[Target],
    beside: &Beside,
    budget: &mut Budget<'_>,
    notes: &mut Notes,
) -> Result<(R, Vec<bool>), OciError> {
    let mut reader = Reader::new(stream);
    let mut unpacker = Unpacker {
        targets,
        beside,
        budget,
        notes,
        folders: targets.iter().map(|_| Vec::new()).collect(),
        held: 0,
        placers: targets
            .iter()
            .map(|target| Placer::new(&target.out, &target.aside))
            .collect(),
        buffer: vec![0; READ],
    };
    while let Some(entry) = reader.next().map_err(OciError::Tar)? {
        unpacker.budget.take_entry(&entry)?;
        unpacker.add(&mut reader, entry)?;
    }
    unpacker.settle()?;
    let used = unpacker.folders.iter().map(|folders| !folders.is_empty());
    let used = used.collect();
    Ok((reader.finish().map_err(OciError::Tar)?, used))
}

type Xattrs = Vec<(Vec<u8>, Vec<u8>)>;

/// What a folder gets when all is in it.
struct Folder {
    path: Vec<u8>,
    meta: Meta,
    /// Access lists: what is made in a folder would inherit them.
    lists: Xattrs,
}

struct Unpacker<'a, 'b> {
    targets: &'a [Target],
    beside: &'a Beside,
    budget: &'a mut Budget<'b>,
    notes: &'a mut Notes,
    /// Per slot its folders, in the order they came.
    folders: Vec<Vec<Folder>>,
    /// Bytes of them.
    held: usize,
    placers: Vec<Placer<'a>>,
    buffer: Vec<u8>,
}

/// A name in a folder of a slot.
struct Place<'p> {
    /// Users' names.
    parent: Vec<u8>,
    meaning: Meaning<'p>,
}

impl Unpacker<'_, '_> {
    fn add<R: Read>(&mut self, reader: &mut Reader<R>, entry: Entry) -> Result<(), OciError> {
        let path = entry.path.clone();
        let bad = |reason: &str| OciError::entry(&path, reason);
        if path.split(|byte| *byte == b'/').any(not_a_name) {
            return Err(bad("is no path of names"));
        }
        let slot = self.targets.iter().position(|target| {
            let rest = path.strip_prefix(&target.prefix[..]);
            rest.is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
        });
        let Some(slot) = slot else {
            return self.add_outside(reader, &entry);
        };
        let Some(rest) = path[self.targets[slot].prefix.len()..].strip_prefix(b"/") else {
            return match entry.kind {
                Kind::Folder => self.add_root(slot, entry),
                _ => Err(bad("stands where a slot's folder belongs")),
            };
        };
        let place = place(rest).ok_or_else(|| bad("has a mark where a folder belongs"))?;
        let out = &self.targets[slot].out;
        let dir = match out.dir(&place.parent) {
            Ok(dir) => dir,
            Err(Errno::NOENT | Errno::NAMETOOLONG) => {
                return Err(bad("comes before its folder"));
            }
            Err(Errno::NOTDIR | Errno::LOOP) => return Err(bad("lies in what is no folder")),
            Err(error) => return Err(out.fault(&place.parent, error).into()),
        };
        match place.meaning {
            Meaning::Plain(name) => self.add_named(reader, entry, slot, &place.parent, &dir, name),
            Meaning::Unknown => Err(bad("is a mark that is not understood")),
            Meaning::Opaque | Meaning::Hides(_) if self.targets[slot].below.is_none() => {
                Err(bad("is a mark in a base"))
            }
            Meaning::Opaque if place.parent.is_empty() => Err(bad("hides a whole slot")),
            Meaning::Opaque => {
                let mark = set_xattr(&attrs::through(&dir, b"."), attrs::OPAQUE, b"y");
                made(mark, out, &path)
            }
            Meaning::Hides(name) => made(ops::white_out(&dir, name), out, &path),
        }
    }

    /// The folders on the way to a slot, and the files that a base has beside its slots.
    fn add_outside<R: Read>(
        &mut self,
        reader: &mut Reader<R>,
        entry: &Entry,
    ) -> Result<(), OciError> {
        let file = self.beside.iter().find(|(path, _)| *path == entry.path);
        if let (Some((_, to)), Kind::File) = (file, entry.kind) {
            let content = reader.bytes(BESIDE_MAX).map_err(OciError::Tar)?;
            let written = File::create_new(to).and_then(|file| {
                file.write_all_at(&content, 0)
                    .and_then(|()| file.sync_all())
            });
            return written.map_err(|error| match error.kind() {
                io::ErrorKind::AlreadyExists => OciError::entry(&entry.path, "is there twice"),
                _ => StoreError::io(to, error).into(),
            });
        }
        let leads = |to: &[u8]| {
            let rest = to.strip_prefix(&entry.path[..]);
            rest.is_some_and(|rest| rest.starts_with(b"/"))
        };
        let on_the_way = self.targets.iter().any(|target| leads(&target.prefix))
            || self.beside.iter().any(|(path, _)| leads(path));
        match entry.kind == Kind::Folder && on_the_way {
            true => Ok(()),
            false => Err(OciError::entry(&entry.path, "lies outside of the slots")),
        }
    }

    fn add_root(&mut self, slot: usize, entry: Entry) -> Result<(), OciError> {
        if !self.folders[slot].is_empty() {
            return Err(OciError::entry(&entry.path, "is there twice, or too late"));
        }
        let root = self.targets[slot].out.must(b"")?;
        self.begin_folder(slot, &root, b".", Vec::new(), entry)
    }

    /// The folder `name` in `dir` was made; what would change by what comes into it waits.
    fn begin_folder(
        &mut self,
        slot: usize,
        dir: &OwnedFd,
        name: &[u8],
        path: Vec<u8>,
        entry: Entry,
    ) -> Result<(), OciError> {
        let is_list = |(name, _): &(Vec<u8>, Vec<u8>)| name.starts_with(b"system.");
        let (lists, users): (Xattrs, Xattrs) = entry.xattrs.into_iter().partition(is_list);
        self.held += size_of::<Folder>() + path.len() + weight(&lists);
        if self.held > HELD_MAX {
            let mib = HELD_MAX >> 20;
            return Err(OciError::Limit(format!(
                "the folders of one layer have more than {mib} MiB of paths and access lists: \
                 export a state with fewer folders"
            )));
        }
        let set = set_xattrs(&attrs::through(dir, name), &users);
        made(set, &self.targets[slot].out, &entry.path)?;
        self.folders[slot].push(Folder {
            path,
            meta: entry.meta,
            lists,
        });
        Ok(())
    }

    fn add_named<R: Read>(
        &mut self,
        reader: &mut Reader<R>,
        entry: Entry,
        slot: usize,
        parent: &[u8],
        dir: &OwnedFd,
        name: &[u8],
    ) -> Result<(), OciError> {
        if self.folders[slot].is_empty() {
            return Err(OciError::entry(&entry.path, "comes before its folder"));
        }
        if self.add_same(reader, &entry, slot, parent, dir, name)? {
            return Ok(());
        }
        let out = &self.targets[slot].out;
        match entry.kind {
            Kind::Folder => {
                made(ops::make_dir(dir, name, 0o700), out, &entry.path)?;
                self.begin_folder(slot, dir, name, join(parent, name), entry)
            }
            Kind::File => self.add_file(reader, &entry, slot, parent, dir, name),
            Kind::Symlink => {
                made(symlink(&entry, dir, name), out, &entry.path)?;
                let set = ops::set_owner(dir, name, entry.meta.uid, entry.meta.gid)
                    .and_then(|()| ops::set_mtime(dir, name, entry.meta.mtime));
                made(set, out, &entry.path)
            }
            Kind::Link => self.add_link(&entry, slot, parent, dir, name),
            Kind::Node => {
                let shown = String::from_utf8_lossy(&self.targets[slot].prefix).into_owned();
                self.notes.add(
                    "dropped device or fifo",
                    &format!("/{shown}"),
                    &join(parent, name),
                );
                Ok(())
            }
        }
    }

    fn add_file<R: Read>(
        &mut self,
        reader: &mut Reader<R>,
        entry: &Entry,
        slot: usize,
        parent: &[u8],
        dir: &OwnedFd,
        name: &[u8],
    ) -> Result<(), OciError> {
        let out = &self.targets[slot].out;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let file = openat(dir, name, flags | OFlags::CLOEXEC, 0o600.into());
        let file = match file {
            Ok(file) => File::from(file),
            Err(error) => return made(Err(error), out, &entry.path),
        };
        let whole = vec![(0, entry.length)];
        for (at, len) in entry.pieces.as_ref().unwrap_or(&whole) {
            if entry.pieces.is_some() {
                self.budget.take_room(BLOCK)?;
            }
            self.write(reader, &file, (*at, *len), out, &entry.path)?;
        }
        if entry.pieces.is_some() {
            made(ftruncate(&file, entry.length), out, &entry.path)?;
        }
        let mut mode = entry.meta.mode;
        for (bit, what) in [(0o4000, "setuid"), (0o2000, "setgid")] {
            if mode & bit != 0 {
                mode &= !bit;
                let shown = String::from_utf8_lossy(&self.targets[slot].prefix).into_owned();
                let what = format!("stripped {what} from");
                self.notes
                    .add(&what, &format!("/{shown}"), &join(parent, name));
            }
        }
        let meta = Meta { mode, ..entry.meta };
        made(dress(dir, name, &meta, &entry.xattrs), out, &entry.path)
    }

    fn write<R: Read>(
        &mut self,
        reader: &mut Reader<R>,
        file: &File,
        (mut at, mut left): (u64, u64),
        out: &Tree,
        path: &[u8],
    ) -> Result<(), OciError> {
        while left > 0 {
            let want = READ.min(usize::try_from(left).unwrap_or(READ));
            let len = reader
                .read(&mut self.buffer[..want])
                .map_err(OciError::Tar)?;
            if len == 0 {
                return Err(OciError::entry(path, "has less content than it says"));
            }
            self.budget.take(len as u64)?;
            let written = file.write_all_at(&self.buffer[..len], at);
            let errno = |error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
            made(written.map_err(errno), out, path)?;
            (at, left) = (at + len as u64, left - len as u64);
        }
        Ok(())
    }

    /// One more name of what this layer has as the target.
    fn add_link(
        &mut self,
        entry: &Entry,
        slot: usize,
        parent: &[u8],
        dir: &OwnedFd,
        name: &[u8],
    ) -> Result<(), OciError> {
        let bad = |reason| OciError::entry(&entry.path, reason);
        let target = &self.targets[slot];
        let (to_parent, to_name) =
            inside(target, &entry.target).ok_or_else(|| bad("is a link out of its slot"))?;
        let Some((from, stat)) = here(target, &to_parent, to_name)? else {
            return Err(bad("is a link to what is not there"));
        };
        if !attrs::is_regular(&stat) && attrs::kind(&stat) != FileType::Symlink {
            return Err(bad("is a link to what is no file"));
        }
        self.place(
            &entry.path,
            (&from, to_name, &stat),
            slot,
            parent,
            (dir, name),
        )
    }

    /// Whether the entry became one more name of the same file in an older layer.
    fn add_same<R: Read>(
        &mut self,
        reader: &mut Reader<R>,
        entry: &Entry,
        slot: usize,
        parent: &[u8],
        dir: &OwnedFd,
        name: &[u8],
    ) -> Result<bool, OciError> {
        let target = &self.targets[slot];
        let same = entry.same.as_ref().and_then(|same| inside(target, same));
        let Some((to_parent, to_name)) = same else {
            return Ok(false);
        };
        let Some((from, stat)) = older(target, &to_parent, to_name)? else {
            return Ok(false);
        };
        let fault = |error| OciError::from(target.out.fault(&to_parent, error));
        let equal = match entry.kind {
            Kind::Symlink if attrs::kind(&stat) == FileType::Symlink => {
                let to = readlinkat(&from, to_name, Vec::new()).map_err(fault)?;
                to.as_bytes() == entry.target
            }
            Kind::File if attrs::is_regular(&stat) && stat.st_size as u64 == entry.length => {
                let file = File::from(open_regular(&from, to_name).map_err(fault)?);
                if !self.equal(reader, entry, &file)? {
                    let reason = "is another file than the one it says it is";
                    return Err(OciError::entry(&entry.path, reason));
                }
                true
            }
            _ => false,
        };
        if equal {
            self.place(
                &entry.path,
                (&from, to_name, &stat),
                slot,
                parent,
                (dir, name),
            )?;
        }
        Ok(equal)
    }

    /// Reads the entry's data and compares it; holes are not looked at.
    fn equal<R: Read>(
        &mut self,
        reader: &mut Reader<R>,
        entry: &Entry,
        file: &File,
    ) -> Result<bool, OciError> {
        let whole = vec![(0, entry.length)];
        let mut have = vec![0; READ];
        for (at, len) in entry.pieces.as_ref().unwrap_or(&whole) {
            let (mut at, mut left) = (*at, *len);
            while left > 0 {
                let want = READ.min(usize::try_from(left).unwrap_or(READ));
                let read = reader.read(&mut self.buffer[..want]);
                let len = read.map_err(OciError::Tar)?;
                let same = file.read_exact_at(&mut have[..len], at).is_ok();
                if len == 0 || !same || have[..len] != self.buffer[..len] {
                    return Ok(false);
                }
                (at, left) = (at + len as u64, left - len as u64);
            }
        }
        Ok(true)
    }

    fn place(
        &mut self,
        path: &[u8],
        (from, from_name, stat): (&OwnedFd, &[u8], &Stat),
        slot: usize,
        parent: &[u8],
        to: (&OwnedFd, &[u8]),
    ) -> Result<(), OciError> {
        if statat(to.0, to.1, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
            return Err(OciError::entry(path, "is there twice"));
        }
        let source = Source {
            dir: from,
            name: from_name,
            stat,
        };
        Ok(self.placers[slot].place_as(&source, to, parent)?)
    }

    /// Folders get the rest of their attributes last, children before parents.
    fn settle(&mut self) -> Result<(), OciError> {
        for (target, folders) in self.targets.iter().zip(&self.folders) {
            for folder in folders.iter().rev() {
                let set = || {
                    let dir = target.out.dir(&folder.path)?;
                    dress(&dir, b".", &folder.meta, &folder.lists)
                };
                made(set(), &target.out, &folder.path)?;
            }
        }
        Ok(())
    }
}

/// A whole path of the archive as folder and name within a slot.
fn inside<'p>(target: &Target, path: &'p [u8]) -> Option<(Vec<u8>, &'p [u8])> {
    let rest = path.strip_prefix(&target.prefix[..])?.strip_prefix(b"/")?;
    if rest.split(|byte| *byte == b'/').any(not_a_name) {
        return None;
    }
    let place = place(rest)?;
    match place.meaning {
        Meaning::Plain(name) => Some((place.parent, name)),
        _ => None,
    }
}

/// What this layer has as `name` in the folder `parent`.
fn here(target: &Target, parent: &[u8], name: &[u8]) -> Result<Option<(OwnedFd, Stat)>, OciError> {
    let fault = |error| OciError::from(target.out.fault(parent, error));
    let dir = match target.out.dir(parent) {
        Ok(dir) => dir,
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
        Err(error) => return Err(fault(error)),
    };
    match statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some((dir, stat))),
        Err(Errno::NOENT | Errno::NAMETOOLONG) => Ok(None),
        Err(error) => Err(fault(error)),
    }
}

/// What the layers below show there.
fn older(target: &Target, parent: &[u8], name: &[u8]) -> Result<Option<(OwnedFd, Stat)>, OciError> {
    let Some(below) = &target.below else {
        return Ok(None);
    };
    let mut layers = below.root().ids;
    let slashes = parent.iter().enumerate().filter(|(_, byte)| **byte == b'/');
    let ends = slashes.map(|(at, _)| at).chain([parent.len()]);
    for end in ends.filter(|end| *end > 0) {
        layers = below.descend(&layers, &parent[..end])?.ids;
    }
    match below.look(&layers, parent, name)? {
        Some((id, stat)) => Ok(Some((below.trees[id].must(parent)?, stat))),
        None => Ok(None),
    }
}

fn place(rest: &[u8]) -> Option<Place<'_>> {
    let at = rest.iter().rposition(|byte| *byte == b'/');
    let (parents, name) = match at {
        Some(at) => (Some(&rest[..at]), &rest[at + 1..]),
        None => (None, rest),
    };
    let mut parent = Vec::with_capacity(rest.len());
    for name in parents
        .iter()
        .flat_map(|path| path.split(|byte| *byte == b'/'))
    {
        let Meaning::Plain(name) = names::read(name) else {
            return None;
        };
        if !parent.is_empty() {
            parent.push(b'/');
        }
        parent.extend_from_slice(name);
    }
    Some(Place {
        parent,
        meaning: names::read(name),
    })
}

fn not_a_name(name: &[u8]) -> bool {
    matches!(name, b"" | b"." | b"..") || name.contains(&0)
}

fn symlink(entry: &Entry, dir: &OwnedFd, name: &[u8]) -> rustix::io::Result<()> {
    match entry.target.is_empty() || entry.target.contains(&0) {
        true => Err(Errno::INVAL),
        false => ops::symlink(&entry.target, dir, name),
    }
}

/// The user's attributes, owner, mode, and last the mtime.
fn dress(
    dir: &OwnedFd,
    name: &[u8],
    meta: &Meta,
    xattrs: &[(Vec<u8>, Vec<u8>)],
) -> rustix::io::Result<()> {
    set_xattrs(&attrs::through(dir, name), xattrs)?;
    ops::set_owner(dir, name, meta.uid, meta.gid)?;
    ops::set_mode(dir, name, meta.mode)?;
    ops::set_mtime(dir, name, meta.mtime)
}

fn set_xattrs(path: &[u8], xattrs: &[(Vec<u8>, Vec<u8>)]) -> rustix::io::Result<()> {
    let mut all = xattrs.iter();
    all.try_for_each(|(name, value)| set_xattr(path, name, value))
}

fn set_xattr(path: &[u8], name: &[u8], value: &[u8]) -> rustix::io::Result<()> {
    ops::set_xattr(path, name, value).map_err(|error| match error {
        // More than fits beside an inode, or a folder's list for a file; the disk may be empty.
        Errno::NOSPC | Errno::ACCESS => Errno::TOOBIG,
        other => other,
    })
}

fn weight(xattrs: &[(Vec<u8>, Vec<u8>)]) -> usize {
    let each = xattrs.iter().map(|(name, value)| name.len() + value.len());
    each.sum()
}

/// The system's refusals that an archive can bring about are the archive's fault.
fn made(answer: rustix::io::Result<()>, out: &Tree, path: &[u8]) -> Result<(), OciError> {
    answer.map_err(|error| match error {
        Errno::EXIST => OciError::entry(path, "is there twice"),
        Errno::NAMETOOLONG => OciError::entry(path, "has too long a name"),
        Errno::INVAL => OciError::entry(path, "has attributes that no file can have"),
        Errno::FBIG => OciError::entry(path, "is larger than a file can be"),
        Errno::RANGE | Errno::OPNOTSUPP | Errno::TOOBIG => {
            OciError::entry(path, "has attributes that this file system does not keep")
        }
        other => out.fault(path, other).into(),
    })
}
