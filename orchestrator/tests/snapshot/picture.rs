//! Everything about a tree that a snapshot promises to keep, as one comparable value.

use std::{
    collections::BTreeMap,
    fmt, fs,
    os::unix::{
        ffi::OsStrExt,
        fs::{FileTypeExt, MetadataExt},
    },
    path::Path,
};

use rustix::fs::{SeekFrom, lgetxattr, llistxattr, seek};

pub(crate) type Picture = BTreeMap<Vec<u8>, Entry>;

#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) mode: u32,
    pub(crate) owner: (u32, u32),
    /// Seconds and nanoseconds; the root's is left out.
    pub(crate) mtime: Option<(i64, i64)>,
    pub(crate) xattrs: Vec<(String, Vec<u8>)>,
    /// A file's content, a link's target.
    pub(crate) content: Vec<u8>,
    /// Where a file has data.
    pub(crate) data: Vec<(u64, u64)>,
    /// The first name of the same inode.
    pub(crate) linked_to: Vec<u8>,
}

/// A failure is read by people: the content is only its begin and its length.
impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let begin = &self.content[..self.content.len().min(32)];
        f.debug_struct("Entry")
            .field("mode", &format_args!("{:o}", self.mode))
            .field("owner", &self.owner)
            .field("mtime", &self.mtime)
            .field("xattrs", &self.xattrs)
            .field("content", &String::from_utf8_lossy(begin))
            .field("length", &self.content.len())
            .field("data", &self.data)
            .field("linked_to", &String::from_utf8_lossy(&self.linked_to))
            .finish()
    }
}

pub(crate) fn take(root: &Path) -> Picture {
    let mut picture = Picture::new();
    let mut inodes = BTreeMap::new();
    let mut folders = vec![Vec::new()];
    add(root, b"", &mut picture, &mut inodes);
    while let Some(folder) = folders.pop() {
        for item in fs::read_dir(root.join(std::ffi::OsStr::from_bytes(&folder))).unwrap() {
            let item = item.unwrap();
            let mut path = folder.clone();
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(item.file_name().as_bytes());
            add(root, &path, &mut picture, &mut inodes);
            if item.file_type().unwrap().is_dir() {
                folders.push(path);
            }
        }
    }
    for entry in picture.values_mut() {
        let first = inodes
            .values()
            .find(|names: &&Vec<Vec<u8>>| names.contains(&entry.linked_to));
        entry.linked_to = first.unwrap().iter().min().unwrap().clone();
    }
    picture
}

/// Without mtimes and holes: a reference tree is written at other moments, and copied by other means.
#[allow(dead_code)]
pub(crate) fn timeless(picture: &Picture) -> Picture {
    let mut picture = picture.clone();
    for entry in picture.values_mut() {
        entry.mtime = None;
        entry.data.clear();
    }
    picture
}

/// For programs that write what is in a hole.
#[allow(dead_code)]
pub(crate) fn without_holes(mut picture: Picture) -> Picture {
    for entry in picture.values_mut() {
        entry.data.clear();
    }
    picture
}

pub(crate) fn assert_same(context: &str, left: &Picture, right: &Picture) {
    for path in left.keys().chain(right.keys()) {
        let (a, b) = (left.get(path), right.get(path));
        assert_eq!(a, b, "{context}: {}", String::from_utf8_lossy(path));
    }
}

fn add(
    root: &Path,
    path: &[u8],
    picture: &mut Picture,
    inodes: &mut BTreeMap<(u64, u64), Vec<Vec<u8>>>,
) {
    let full = root.join(std::ffi::OsStr::from_bytes(path));
    let full = if path.is_empty() { root } else { &full };
    let meta = fs::symlink_metadata(full).unwrap();
    let kind = meta.file_type();
    assert!(!kind.is_fifo() && !kind.is_socket(), "{}", full.display());
    let content = if kind.is_file() {
        fs::read(full).unwrap()
    } else if kind.is_symlink() {
        fs::read_link(full).unwrap().as_os_str().as_bytes().to_vec()
    } else {
        Vec::new()
    };
    inodes
        .entry((meta.dev(), meta.ino()))
        .or_default()
        .push(path.to_vec());
    picture.insert(
        path.to_vec(),
        Entry {
            mode: meta.mode(),
            owner: (meta.uid(), meta.gid()),
            mtime: (!path.is_empty()).then(|| (meta.mtime(), meta.mtime_nsec())),
            xattrs: xattrs(full),
            data: match kind.is_file() {
                true => data(full, meta.len()),
                false => Vec::new(),
            },
            content,
            linked_to: path.to_vec(),
        },
    );
}

fn data(path: &Path, length: u64) -> Vec<(u64, u64)> {
    let file = fs::File::open(path).unwrap();
    let (mut found, mut at) = (Vec::new(), 0);
    while at < length {
        let Ok(from) = seek(&file, SeekFrom::Data(at)) else {
            break;
        };
        at = seek(&file, SeekFrom::Hole(from)).unwrap();
        found.push((from, at));
    }
    found
}

/// All of them: a view must not even show ours.
pub(crate) fn xattrs(path: &Path) -> Vec<(String, Vec<u8>)> {
    let mut list = vec![0; 4096];
    let len = llistxattr(path, &mut list[..]).unwrap();
    let names = list[..len].split(|byte| *byte == 0);
    let mut found: Vec<_> = names
        .filter(|name| !name.is_empty())
        .map(|name| {
            let mut value = vec![0; 4096];
            let len = lgetxattr(path, name, &mut value[..]).unwrap();
            value.truncate(len);
            (String::from_utf8(name.to_vec()).unwrap(), value)
        })
        .collect();
    found.sort();
    found
}
