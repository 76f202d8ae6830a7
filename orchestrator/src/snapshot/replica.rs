//! A tree copied as it is, and the digest it is known by from then on.
//!
//! Both are made in one walk: what was written is what was hashed. Trees copied by one
//! [`Replicator`] share hard links as their originals do; where the file system refuses a link the
//! file is copied once more. A tree may hold what a layer may hold and nothing else.
//!
//! The digest is SHA-256 over the folders in depth-first order, names sorted bytewise; of each entry
//! its kind, path, owner, mode, mtime, xattrs and the digest of its content: a link's target, a
//! file's length and its blocks of 4 KiB that are not all zero. So it does not depend on where a file
//! system puts holes, nor on links to other trees, and a file with many names is read once.

use std::{
    collections::HashMap,
    fs::File,
    io,
    os::{fd::OwnedFd, unix::fs::FileExt},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{FileType, OFlags, SeekFrom, Stat, fstat, ftruncate, lgetxattr, openat, readlinkat, seek},
    io::Errno,
};
use sha2::{Digest as _, Sha256};
use tokio_util::sync::CancellationToken;

use super::{
    StoreError, attrs, durable, ops,
    tree::{self, Entry, Tree, join, open_regular},
    walk::{Kids, Visitor, depth_first},
};

const BLOCK: u64 = 4096;
const BUFFER: usize = 256 * 1024;
/// The system's limit of one xattr's value.
const VALUE_MAX: usize = 65536;

/// Why a tree could not be copied or hashed.
#[derive(Debug, thiserror::Error)]
pub enum ReplicaError {
    /// The original cannot be read.
    #[error(transparent)]
    Source(StoreError),
    /// The copy cannot be written.
    #[error(transparent)]
    Target(StoreError),
    /// The original holds what no layer holds.
    #[error("{} {what}", path.display())]
    Foreign {
        /// Where.
        path: PathBuf,
        /// `is a device`, `has setuid`.
        what: String,
    },
    /// The caller has no use for it any more.
    #[error("stopped half-way")]
    Stopped,
}

type Inode = (u64, u64);
type Result<T> = std::result::Result<T, ReplicaError>;

/// See the module.
#[derive(Debug)]
pub struct Replicator {
    stop: CancellationToken,
    roots: Vec<PathBuf>,
    /// Files with more names to come: read once.
    known: HashMap<Inode, Known>,
}

#[derive(Debug)]
struct Known {
    content: Content,
    /// Names of the original not seen yet.
    left: i64,
    /// A name of the copy: which of the roots, folder, name.
    place: Option<(usize, Vec<u8>, Vec<u8>)>,
}

type Content = [u8; 32];

impl Replicator {
    /// Gives up, with [`ReplicaError::Stopped`], once `stop` is cancelled.
    pub fn new(stop: CancellationToken) -> Self {
        Replicator {
            stop,
            roots: Vec::new(),
            known: HashMap::new(),
        }
    }

    /// Copies the folder `from` to `to`, which must not be there; of its content only paths that
    /// `keep` takes. Answers the digest of the copy. Nothing is durable yet.
    pub fn copy(&mut self, from: &Path, to: &Path, keep: &dyn Fn(&[u8]) -> bool) -> Result<String> {
        let from = Tree::open(from).map_err(ReplicaError::Source)?;
        let made = ops::make_path(to).map_err(|error| StoreError::io(to, error));
        made.map_err(ReplicaError::Target)?;
        let out = Tree::open(to).map_err(ReplicaError::Target)?;
        self.roots.push(to.to_owned());
        self.walk(&from, Some(&out), keep, false)
    }

    /// The digest alone.
    pub fn digest(&mut self, of: &Path) -> Result<String> {
        let from = Tree::open(of).map_err(ReplicaError::Source)?;
        self.walk(&from, None, &|_| true, false)
    }

    /// Whether it holds only what a layer may hold; no content is read.
    pub fn kinds(&mut self, of: &Path) -> Result<()> {
        let from = Tree::open(of).map_err(ReplicaError::Source)?;
        self.walk(&from, None, &|_| true, true).map(drop)
    }

    /// Copies one regular file; answers its plain SHA-256 and length.
    pub fn copy_file(&mut self, from: &Path, to: &Path) -> Result<(String, u64)> {
        let target = parent(to).and_then(|dir| {
            let made = create(&dir, name(to));
            made.map_err(|error| StoreError::io(to, error))
        });
        let target = target.map_err(ReplicaError::Target)?;
        self.file(from, Some((&target, to)))
    }

    /// The plain SHA-256 and length of one regular file.
    pub fn digest_file(&mut self, of: &Path) -> Result<(String, u64)> {
        self.file(of, None)
    }

    fn file(&mut self, from: &Path, to: Option<(&File, &Path)>) -> Result<(String, u64)> {
        let source = parent(from).and_then(|dir| {
            let opened = open_regular(&dir, name(from));
            opened.map_err(|error| StoreError::io(from, error))
        });
        let source = File::from(source.map_err(ReplicaError::Source)?);
        let (mut hash, mut at, mut buffer) = (Sha256::new(), 0, vec![0; BUFFER]);
        loop {
            self.check_stop()?;
            let read = source.read_at(&mut buffer, at);
            let len = read.map_err(|error| ReplicaError::Source(StoreError::io(from, error)))?;
            if len == 0 {
                return Ok((hex::encode(hash.finalize()), at));
            }
            hash.update(&buffer[..len]);
            if let Some((target, to)) = to {
                let written = target.write_all_at(&buffer[..len], at);
                written.map_err(|error| ReplicaError::Target(StoreError::io(to, error)))?;
            }
            at += len as u64;
        }
    }

    fn walk(
        &mut self,
        from: &Tree,
        to: Option<&Tree>,
        keep: &dyn Fn(&[u8]) -> bool,
        skim: bool,
    ) -> Result<String> {
        let mut hash = Sha256::new();
        hash.update(b"mayfly tree 1\n");
        let mut walk = Walk {
            from,
            to,
            keep,
            skim,
            shared: self,
            hash,
            first: HashMap::new(),
            buffer: vec![0; BUFFER],
        };
        depth_first(&mut walk, None)?;
        Ok(hex::encode(walk.hash.finalize()))
    }

    fn remember(
        &mut self,
        inode: Inode,
        stat: &Stat,
        content: Content,
        place: Option<(usize, Vec<u8>, Vec<u8>)>,
    ) {
        let known = self.known.entry(inode).or_insert_with(|| Known {
            content,
            left: i64::try_from(stat.st_nlink).unwrap_or(i64::MAX),
            place: None,
        });
        known.left -= 1;
        known.place = place.or_else(|| known.place.take());
        if known.left <= 0 {
            self.known.remove(&inode);
        }
    }

    fn check_stop(&self) -> Result<()> {
        match self.stop.is_cancelled() {
            true => Err(ReplicaError::Stopped),
            false => Ok(()),
        }
    }
}

fn parent(path: &Path) -> std::result::Result<OwnedFd, StoreError> {
    Tree::open(path.parent().unwrap_or(Path::new("/")))?.must(b"")
}

fn name(path: &Path) -> &[u8] {
    path.file_name().unwrap_or_default().as_encoded_bytes()
}

/// Makes everything on the file system of `path` durable, then the entries of its parent.
pub fn settle(path: &Path) -> std::result::Result<(), StoreError> {
    durable::everything(path)?;
    durable::folder(path.parent().unwrap_or(path))
}

/// Removes a tree however deep it is; that it lacks is fine.
pub fn remove(path: &Path) -> std::result::Result<(), StoreError> {
    super::trash::remove(path)
}

/// What a tree takes on disk: files that trees share are counted once.
pub struct Weight<'a>(super::measure::Measure<'a>);

impl Weight<'_> {
    /// Of nothing.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        Weight(super::measure::Measure::new(None))
    }

    /// Adds a tree.
    pub fn add(&mut self, path: &Path) -> std::result::Result<(), StoreError> {
        let added = self.0.add(&Tree::open(path)?);
        added.map_err(|error| match error {
            super::SealError::Store(error) => error,
            other => StoreError::io(path, io::Error::other(other)),
        })
    }

    /// All together.
    pub fn sum(self) -> super::LayerSize {
        self.0.whole()
    }
}

struct Walk<'a> {
    from: &'a Tree,
    to: Option<&'a Tree>,
    keep: &'a dyn Fn(&[u8]) -> bool,
    /// Files are not read.
    skim: bool,
    shared: &'a mut Replicator,
    hash: Sha256,
    /// The first name of a file with several names in this tree.
    first: HashMap<Inode, Vec<u8>>,
    buffer: Vec<u8>,
}

/// What is put on a copy beside its content.
struct Attributes {
    stat: Stat,
    xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Visitor for Walk<'_> {
    type Node = Option<Attributes>;
    type Error = ReplicaError;

    fn enter(&mut self, path: &[u8], node: &mut Self::Node) -> Result<Kids<Self>> {
        let dir = self.from.must(path).map_err(ReplicaError::Source)?;
        let stat = fstat(&dir).map_err(|error| self.unread(path, error))?;
        let xattrs = self.xattrs(&dir, b".", path, &stat)?;
        let attributes = Attributes { stat, xattrs };
        self.tell(b'd', path, &attributes);
        *node = Some(attributes);
        let out = match self.to {
            Some(to) => Some(to.must(path).map_err(ReplicaError::Target)?),
            None => None,
        };
        let mut entries = tree::entries(&dir).map_err(|error| self.unread(path, error))?;
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        let mut kids = Vec::new();
        for entry in entries {
            self.shared.check_stop()?;
            let full = join(path, &entry.name);
            if !(self.keep)(&full) {
                continue;
            }
            if attrs::is_dir(&entry.stat) {
                if let Some(out) = &out {
                    let made = ops::make_dir(out, &entry.name, 0o700);
                    made.map_err(|error| self.unwritten(&full, error))?;
                }
                kids.push((entry.name, None));
            } else {
                self.file(&dir, path, &full, &entry, out.as_ref())?;
            }
        }
        Ok(kids)
    }

    fn leave(&mut self, path: &[u8], node: Self::Node) -> Result<()> {
        let (Some(to), Some(attributes)) = (self.to, node) else {
            return Ok(());
        };
        let out = to.must(path).map_err(ReplicaError::Target)?;
        let put = attributes.put_on(&out, b".");
        put.map_err(|error| self.unwritten(path, error))
    }
}

impl Walk<'_> {
    fn file(
        &mut self,
        dir: &OwnedFd,
        path: &[u8],
        full: &[u8],
        entry: &Entry,
        out: Option<&OwnedFd>,
    ) -> Result<()> {
        let (stat, name) = (&entry.stat, &entry.name);
        let kind = self.kind(full, stat)?;
        if kind == b'w' {
            self.number(kind.into());
            self.bytes(full);
            let made = out.map_or(Ok(()), |out| ops::white_out(out, name));
            return made.map_err(|error| self.unwritten(full, error));
        }
        let inode = (stat.st_dev, stat.st_ino);
        let several = stat.st_nlink > 1;
        let known = match several {
            true => self.shared.known.get(&inode).map(|known| known.content),
            false => None,
        };
        let to = match out {
            Some(out) if known.is_some() && self.link(inode, (out, name), full)? => None,
            out => out,
        };
        let xattrs = self.xattrs(dir, name, full, stat)?;
        let attributes = Attributes {
            stat: *stat,
            xattrs,
        };
        let content = match (known, to) {
            (Some(content), None) => content,
            _ => self.content(kind, (dir, full), entry, to)?,
        };
        if let Some(to) = to {
            let put = attributes.put_on(to, name);
            put.map_err(|error| self.unwritten(full, error))?;
        }
        match self.first.get(&inode).filter(|_| several).cloned() {
            Some(first) => {
                self.number(b'h'.into());
                self.bytes(full);
                self.bytes(&first);
            }
            None => {
                self.tell(kind, full, &attributes);
                self.hash.update(content);
            }
        }
        if several {
            self.first.entry(inode).or_insert_with(|| full.to_vec());
            let root = self.shared.roots.len().wrapping_sub(1);
            let place = to.map(|_| (root, path.to_vec(), name.clone()));
            self.shared.remember(inode, stat, content, place);
        }
        Ok(())
    }

    /// Reads, and writes where there is something to write to.
    fn content(
        &mut self,
        kind: u8,
        (dir, full): (&OwnedFd, &[u8]),
        entry: &Entry,
        to: Option<&OwnedFd>,
    ) -> Result<Content> {
        let name = &entry.name;
        if kind == b'l' {
            let target = readlinkat(dir, &name[..], Vec::new());
            let target = target.map_err(|error| self.unread(full, error))?;
            let made = to.map_or(Ok(()), |to| ops::symlink(target.as_bytes(), to, name));
            made.map_err(|error| self.unwritten(full, error))?;
            return Ok(Sha256::digest(target.as_bytes()).into());
        }
        if self.skim {
            return Ok(Content::default());
        }
        let source = open_regular(dir, name).map_err(|error| self.unread(full, error))?;
        let target = to.map(|to| create(to, name)).transpose();
        let target = target.map_err(|error| self.unwritten(full, error))?;
        self.data(&File::from(source), target.as_ref(), full, &entry.stat)
    }

    /// Another name of a file that was copied before. False where it must be copied (again).
    fn link(&mut self, inode: Inode, to: (&OwnedFd, &[u8]), full: &[u8]) -> Result<bool> {
        let known = self.shared.known.get(&inode);
        let Some((root, folder, name)) = known.and_then(|known| known.place.as_ref()) else {
            return Ok(false);
        };
        let root = Tree::open(&self.shared.roots[*root]).map_err(ReplicaError::Target)?;
        let dir = root.must(folder).map_err(ReplicaError::Target)?;
        match ops::may_link().and_then(|()| ops::link((&dir, name), to)) {
            Ok(()) => Ok(true),
            Err(Errno::MLINK | Errno::XDEV | Errno::PERM) => Ok(false),
            Err(error) => Err(self.unwritten(full, error)),
        }
    }

    fn data(
        &mut self,
        source: &File,
        target: Option<&File>,
        full: &[u8],
        stat: &Stat,
    ) -> Result<Content> {
        let size = stat.st_size as u64;
        let mut hash = Sha256::new();
        hash.update(size.to_le_bytes());
        let mut at = 0;
        while at < size {
            let data = match seek(source, SeekFrom::Data(at)) {
                Ok(data) => (data / BLOCK * BLOCK).max(at),
                Err(Errno::NXIO) => break,
                Err(error) => return Err(self.unread(full, error)),
            };
            let hole = seek(source, SeekFrom::Hole(data.max(at)));
            let hole = hole.map_err(|error| self.unread(full, error))?;
            let end = hole.max(data + 1).next_multiple_of(BLOCK).min(size);
            at = data;
            while at < end {
                self.shared.check_stop()?;
                let len = BUFFER.min((end - at) as usize);
                let read = source.read_exact_at(&mut self.buffer[..len], at);
                read.map_err(|error| self.unread(full, error))?;
                let (blocks, mut offset) = (self.buffer[..len].chunks(BLOCK as usize), at);
                for block in blocks {
                    if block.iter().any(|byte| *byte != 0) {
                        hash.update(offset.to_le_bytes());
                        hash.update(block);
                    }
                    offset += block.len() as u64;
                }
                if let Some(target) = target {
                    let written = target.write_all_at(&self.buffer[..len], at);
                    written.map_err(|error| self.unwritten(full, error))?;
                }
                at += len as u64;
            }
        }
        let sized = target.map_or(Ok(()), |target| ftruncate(target, size));
        sized.map_err(|error| self.unwritten(full, error))?;
        Ok(hash.finalize().into())
    }

    /// A letter for what a layer may hold.
    fn kind(&self, full: &[u8], stat: &Stat) -> Result<u8> {
        let kind = match attrs::kind(stat) {
            FileType::RegularFile if stat.st_mode & 0o6000 != 0 => Err("has setuid or setgid"),
            FileType::RegularFile => Ok(b'f'),
            FileType::Symlink => Ok(b'l'),
            FileType::CharacterDevice if attrs::is_whiteout(stat) => Ok(b'w'),
            FileType::CharacterDevice | FileType::BlockDevice => Err("is a device"),
            FileType::Socket => Err("is a socket"),
            FileType::Fifo => Err("is a fifo"),
            _ => Err("is of no known kind"),
        };
        kind.map_err(|what| self.foreign(full, what))
    }

    /// Those that belong to a layer; what the host put there by itself is left out.
    fn xattrs(
        &self,
        dir: &OwnedFd,
        name: &[u8],
        full: &[u8],
        stat: &Stat,
    ) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let path = attrs::through(dir, name);
        let names = attrs::names(&path).map_err(|error| self.unread(full, error))?;
        let mut found = Vec::new();
        for xattr in names {
            let users = xattr.starts_with(b"user.") || xattr.starts_with(b"system.posix_acl_");
            let opaque = xattr == attrs::OPAQUE && attrs::is_dir(stat);
            if !users && !opaque {
                if xattr.starts_with(b"trusted.") || xattr == attrs::CAPABILITY {
                    let what = format!("has the attribute {}", String::from_utf8_lossy(&xattr));
                    return Err(self.foreign(full, what));
                }
                continue;
            }
            let mut value = vec![0; VALUE_MAX];
            let len = lgetxattr(&path[..], &xattr[..], &mut value[..]);
            value.truncate(len.map_err(|error| self.unread(full, error))?);
            if opaque && value != b"y" {
                return Err(self.foreign(full, "is opaque in a foreign way"));
            }
            found.push((xattr, value));
        }
        found.sort();
        Ok(found)
    }

    fn tell(&mut self, kind: u8, path: &[u8], attributes: &Attributes) {
        let stat = &attributes.stat;
        self.number(kind.into());
        self.bytes(path);
        for number in [stat.st_mode & 0o7777, stat.st_uid, stat.st_gid] {
            self.number(number.into());
        }
        let mtime = attrs::mtime(stat);
        self.hash.update(mtime.tv_sec.to_le_bytes());
        self.number(mtime.tv_nsec as u64);
        self.number(attributes.xattrs.len() as u64);
        for (name, value) in &attributes.xattrs {
            self.bytes(name);
            self.bytes(value);
        }
    }

    fn number(&mut self, number: u64) {
        self.hash.update(number.to_le_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.hash.update(bytes);
    }

    fn unread(&self, full: &[u8], error: impl Into<io::Error>) -> ReplicaError {
        ReplicaError::Source(fault(self.from, full, error.into()))
    }

    fn unwritten(&self, full: &[u8], error: impl Into<io::Error>) -> ReplicaError {
        ReplicaError::Target(fault(self.to.unwrap_or(self.from), full, error.into()))
    }

    fn foreign(&self, full: &[u8], what: impl Into<String>) -> ReplicaError {
        let path = match self.from.fault(full, Errno::INVAL) {
            StoreError::Io { path, .. } => path,
            _ => PathBuf::new(),
        };
        let what = what.into();
        ReplicaError::Foreign { path, what }
    }
}

fn fault(tree: &Tree, full: &[u8], source: io::Error) -> StoreError {
    match tree.fault(full, Errno::IO) {
        StoreError::Io { path, .. } => StoreError::Io { path, source },
        other => other,
    }
}

impl Attributes {
    fn put_on(&self, dir: &OwnedFd, name: &[u8]) -> rustix::io::Result<()> {
        let target = attrs::through(dir, name);
        for (xattr, value) in &self.xattrs {
            ops::set_xattr(&target, xattr, value)?;
        }
        ops::set_owner(dir, name, self.stat.st_uid, self.stat.st_gid)?;
        if attrs::kind(&self.stat) != FileType::Symlink {
            ops::set_mode(dir, name, self.stat.st_mode)?;
        }
        ops::set_mtime(dir, name, attrs::mtime(&self.stat))
    }
}

fn create(dir: &OwnedFd, name: &[u8]) -> rustix::io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(dir, name, flags, 0o600.into())?.into())
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::MetadataExt as _};

    use super::*;

    struct Trees(tempfile::TempDir);

    impl Trees {
        /// Two trees that share a file; the first has another twice.
        fn new() -> Trees {
            let trees = Trees(tempfile::tempdir().unwrap());
            fs::create_dir_all(trees.at("a/d")).unwrap();
            fs::create_dir(trees.at("b")).unwrap();
            fs::write(trees.at("a/one"), "one").unwrap();
            fs::hard_link(trees.at("a/one"), trees.at("a/d/same")).unwrap();
            fs::write(trees.at("a/d/shared"), vec![7; 10_000]).unwrap();
            fs::hard_link(trees.at("a/d/shared"), trees.at("b/shared")).unwrap();
            std::os::unix::fs::symlink("nowhere", trees.at("b/link")).unwrap();
            trees
        }

        fn at(&self, path: &str) -> PathBuf {
            self.0.path().join(path)
        }

        /// Both, as `a2` and `b2` or so.
        fn copy(&self, to: &str) -> [String; 2] {
            let mut replicator = Replicator::new(CancellationToken::new());
            ["a", "b"].map(|name| {
                let to = self.at(&format!("{name}{to}"));
                replicator.copy(&self.at(name), &to, &|_| true).unwrap()
            })
        }

        fn digest(&self, of: &str) -> String {
            let mut replicator = Replicator::new(CancellationToken::new());
            replicator.digest(&self.at(of)).unwrap()
        }

        fn inode(&self, path: &str) -> u64 {
            fs::metadata(self.at(path)).unwrap().ino()
        }
    }

    #[test]
    fn a_copy_has_the_digest_and_the_links_of_its_original() {
        let trees = Trees::new();
        let copied = trees.copy("2");
        assert_eq!(copied, ["a", "b"].map(|name| trees.digest(name)));
        assert_eq!(copied, ["a2", "b2"].map(|name| trees.digest(name)));
        assert_eq!(trees.inode("a2/one"), trees.inode("a2/d/same"));
        assert_eq!(trees.inode("a2/d/shared"), trees.inode("b2/shared"));
        assert_ne!(trees.inode("a/one"), trees.inode("a2/one"));
        assert_eq!(fs::read(trees.at("b2/shared")).unwrap(), vec![7; 10_000]);
    }

    #[test]
    fn where_links_are_refused_the_file_is_copied_once_more() {
        let trees = Trees::new();
        ops::fault::NO_LINKS.set(true);
        let copied = trees.copy("2");
        ops::fault::NO_LINKS.set(false);
        assert_eq!(copied, ["a", "b"].map(|name| trees.digest(name)));
        assert_ne!(trees.inode("a2/d/shared"), trees.inode("b2/shared"));
        assert_eq!(fs::read(trees.at("b2/shared")).unwrap(), vec![7; 10_000]);
        assert_eq!(fs::read(trees.at("a2/d/same")).unwrap(), b"one");
    }

    #[test]
    fn a_digest_tells_each_change_but_not_where_the_holes_are() {
        let trees = Trees::new();
        let path = trees.at("a/big");
        let file = File::create(&path).unwrap();
        let folder = fs::metadata(trees.at("a")).unwrap();
        let write = |length: u64, blocks: &[(u64, u8)]| {
            file.set_len(0).unwrap();
            file.set_len(length).unwrap();
            for (at, byte) in blocks {
                file.write_all_at(&[*byte; 5000], *at).unwrap();
            }
            file.set_modified(folder.modified().unwrap()).unwrap();
            trees.digest("a")
        };
        let sparse = write(1 << 20, &[(100_000, 1)]);
        let known = [
            write(1 << 20, &[(0, 0), (100_000, 1), (200_000, 0)]),
            write((1 << 20) + 1, &[(100_000, 1)]),
            write(1 << 20, &[(100_001, 1)]),
            write(1 << 20, &[(100_000, 2)]),
            write(1 << 20, &[]),
        ];
        assert_eq!(sparse, known[0]);
        for other in &known[1..] {
            assert_ne!(sparse, *other);
        }
    }

    #[test]
    fn what_no_layer_holds_is_refused_by_name() {
        let trees = Trees::new();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o4755);
        fs::set_permissions(trees.at("a/one"), mode).unwrap();
        let mut replicator = Replicator::new(CancellationToken::new());
        let refused = replicator.kinds(&trees.at("a")).unwrap_err().to_string();
        assert!(refused.ends_with("has setuid or setgid"), "{refused}");
    }
}
