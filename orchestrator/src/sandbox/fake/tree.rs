//! The files of a simulated sandbox: the lowers merged in memory, changes kept beside them, and
//! written into the uppers as overlayfs would have left them.

use std::{
    collections::BTreeMap,
    fs, io,
    os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, chown},
    path::{Component, Path, PathBuf},
};

use rustix::fs::{CWD, FileType, Mode, XattrFlags, getxattr, makedev, mknodat, setxattr};

use crate::{clock, sandbox::SandboxSpec};

/// The one file of the kernel's: seconds since its boot.
const UPTIME: &str = "/proc/uptime";
const OPAQUE: &str = "trusted.overlay.opaque";

/// What is at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Node {
    /// As a lower has it; its attributes are there.
    Kept(PathBuf),
    /// A folder of a lower; several lowers may have a part of it.
    Merged(PathBuf),
    /// Made in this sandbox.
    Folder,
    /// Written in this sandbox.
    File(Vec<u8>, u32),
}

type Nodes = BTreeMap<PathBuf, Node>;

#[derive(Debug)]
struct Slot {
    path: PathBuf,
    /// `None` for `/tmp`, which is not kept.
    upper: Option<PathBuf>,
    was: Nodes,
    now: Nodes,
}

/// All mutable folders of one sandbox.
#[derive(Debug)]
pub(super) struct Tree {
    slots: Vec<Slot>,
    uid: u32,
    gid: u32,
}

/// A sentence as `sh`'s tools say it.
type Said<T> = Result<T, String>;

impl Tree {
    pub(super) fn mount(spec: &SandboxSpec) -> io::Result<Tree> {
        let mut slots = vec![Slot {
            path: "/tmp".into(),
            upper: None,
            was: Nodes::new(),
            now: Nodes::new(),
        }];
        for slot in &spec.slots {
            let mut was = Nodes::new();
            for lower in slot.lowers.iter().rev() {
                merge(lower, Path::new(""), &mut was)?;
            }
            let mut now = was.clone();
            merge(&slot.upper, Path::new(""), &mut now)?;
            slots.push(Slot {
                path: PathBuf::from(&slot.path),
                upper: Some(slot.upper.clone()),
                now,
                was,
            });
        }
        Ok(Tree {
            slots,
            uid: spec.uid,
            gid: spec.gid,
        })
    }

    /// The slot and the path below it. Links are not followed.
    fn place(&mut self, path: &Path) -> Said<(&mut Slot, PathBuf)> {
        let path = normal(path);
        let slot = self
            .slots
            .iter_mut()
            .find(|slot| path.starts_with(&slot.path));
        match slot {
            Some(slot) => {
                let below = path.strip_prefix(&slot.path).expect("just matched");
                let below = below.to_owned();
                Ok((slot, below))
            }
            None => Err(format!("{}: Read-only file system", path.display())),
        }
    }

    pub(super) fn read(&mut self, path: &Path) -> Said<Vec<u8>> {
        if path == Path::new(UPTIME) {
            let up = clock::boot_time();
            let shown = format!("{}.{:02} 0.00\n", up.as_secs(), up.subsec_millis() / 10);
            return Ok(shown.into_bytes());
        }
        let missing = || format!("{}: No such file or directory", path.display());
        let (slot, below) = self.place(path).map_err(|_| missing())?;
        match slot.now.get(&below) {
            Some(Node::File(bytes, _)) => Ok(bytes.clone()),
            Some(Node::Kept(at)) => {
                fs::read(at).map_err(|error| format!("{}: {error}", path.display()))
            }
            None if !below.as_os_str().is_empty() => Err(missing()),
            _ => Err(format!("{}: Is a directory", path.display())),
        }
    }

    pub(super) fn write(&mut self, path: &Path, bytes: Vec<u8>, mode: u32) -> Said<()> {
        let shown = path.display().to_string();
        let (slot, below) = self.place(path)?;
        if below.as_os_str().is_empty() || slot.folder(&below) {
            return Err(format!("{shown}: Is a directory"));
        }
        slot.parent(&below, &shown)?;
        slot.now.insert(below, Node::File(bytes, mode));
        Ok(())
    }

    pub(super) fn append(&mut self, path: &Path, bytes: &[u8]) -> Said<()> {
        let mut all = self.read(path).unwrap_or_default();
        all.extend_from_slice(bytes);
        self.write(path, all, 0o644)
    }

    pub(super) fn make_folder(&mut self, path: &Path) -> Said<()> {
        let shown = path.display().to_string();
        let (slot, below) = self.place(path)?;
        if below.as_os_str().is_empty() || slot.now.contains_key(&below) {
            return Err(format!("{shown}: File exists"));
        }
        slot.parent(&below, &shown)?;
        slot.now.insert(below, Node::Folder);
        Ok(())
    }

    /// Makes the folders above a path, those that are missing.
    pub(super) fn make_parents(&mut self, path: &Path) -> Said<()> {
        let mut missing: Vec<&Path> = path.ancestors().skip(1).collect();
        missing.reverse();
        for folder in missing {
            if let Ok((slot, below)) = self.place(folder)
                && !below.as_os_str().is_empty()
                && !slot.now.contains_key(&below)
            {
                self.make_folder(folder)?;
            }
        }
        Ok(())
    }

    pub(super) fn remove(&mut self, path: &Path, recursive: bool) -> Said<()> {
        let shown = path.display().to_string();
        let (slot, below) = self.place(path)?;
        if below.as_os_str().is_empty() || !slot.now.contains_key(&below) {
            return Err(format!("{shown}: No such file or directory"));
        }
        if slot.folder(&below) && !recursive {
            return Err(format!("{shown}: Is a directory"));
        }
        slot.now.retain(|path, _| !path.starts_with(&below));
        Ok(())
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> Said<()> {
        let bytes = self.read(from)?;
        let mut to = to.to_owned();
        if let Ok((slot, below)) = self.place(&to)
            && (below.as_os_str().is_empty() || slot.folder(&below))
        {
            to.push(from.file_name().unwrap_or_default());
        }
        self.write(&to, bytes, 0o644)?;
        self.remove(from, false)
    }

    /// Names in a folder, sorted.
    pub(super) fn list(&mut self, path: &Path) -> Said<Vec<String>> {
        let shown = path.display().to_string();
        let (slot, below) = self.place(path)?;
        if !below.as_os_str().is_empty() && !slot.folder(&below) {
            return Err(format!("{shown}: No such file or directory"));
        }
        let names = slot.now.keys();
        let names = names.filter(|path| path.parent() == Some(&*below));
        Ok(names
            .filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned()))
            .collect())
    }

    /// Writes the changes into the uppers. Repeatable: what an earlier call wrote is replaced.
    pub(super) fn keep(&self) -> io::Result<()> {
        for slot in &self.slots {
            if let Some(upper) = &slot.upper {
                slot.keep(upper, self.uid, self.gid)?;
            }
        }
        Ok(())
    }
}

impl Slot {
    fn folder(&self, below: &Path) -> bool {
        matches!(self.now.get(below), Some(Node::Folder | Node::Merged(_)))
    }

    fn parent(&self, below: &Path, shown: &str) -> Said<()> {
        match below.parent() {
            Some(parent) if !parent.as_os_str().is_empty() && !self.folder(parent) => {
                Err(format!("{shown}: No such file or directory"))
            }
            _ => Ok(()),
        }
    }

    fn keep(&self, upper: &Path, uid: u32, gid: u32) -> io::Result<()> {
        for entry in fs::read_dir(upper)? {
            let path = entry?.path();
            if fs::symlink_metadata(&path)?.is_dir() {
                fs::remove_dir_all(&path)?;
            } else {
                fs::remove_file(&path)?;
            }
        }
        for (path, node) in &self.now {
            if self.was.get(path) == Some(node) {
                continue;
            }
            self.copy_up(upper, path)?;
            let at = upper.join(path);
            match node {
                Node::File(bytes, mode) => {
                    fs::write(&at, bytes)?;
                    fs::set_permissions(&at, fs::Permissions::from_mode(*mode))?;
                }
                Node::Folder => {
                    fs::create_dir(&at)?;
                    if self.was.contains_key(path) {
                        setxattr(&at, OPAQUE, b"y", XattrFlags::empty())?;
                    }
                }
                Node::Kept(_) | Node::Merged(_) => continue,
            }
            chown(&at, Some(uid), Some(gid))?;
        }
        for path in self.was.keys() {
            let hidden = path.parent().is_some_and(|parent| {
                !parent.as_os_str().is_empty()
                    && !matches!(self.now.get(parent), Some(Node::Merged(_)))
            });
            if !self.now.contains_key(path) && !hidden {
                self.copy_up(upper, path)?;
                let at = upper.join(path);
                mknodat(
                    CWD,
                    &at,
                    FileType::CharacterDevice,
                    Mode::empty(),
                    makedev(0, 0),
                )?;
            }
        }
        Ok(())
    }

    /// Makes the folders above `path` in the upper, with the attributes they have in the lowers.
    fn copy_up(&self, upper: &Path, path: &Path) -> io::Result<()> {
        let mut folders: Vec<&Path> = path.ancestors().skip(1).collect();
        folders.reverse();
        for folder in folders {
            let at = upper.join(folder);
            if let Some(Node::Merged(like)) = self.now.get(folder)
                && !at.exists()
            {
                let like = fs::metadata(like)?;
                fs::create_dir(&at)?;
                fs::set_permissions(&at, like.permissions())?;
                chown(&at, Some(like.uid()), Some(like.gid()))?;
            }
        }
        Ok(())
    }
}

/// Lays one layer over what is below it.
fn merge(layer: &Path, below: &Path, nodes: &mut Nodes) -> io::Result<()> {
    for entry in fs::read_dir(layer.join(below))? {
        let entry = entry?;
        let (path, at) = (below.join(entry.file_name()), entry.path());
        let found = fs::symlink_metadata(&at)?;
        if !found.is_dir() {
            nodes.retain(|other, _| !other.starts_with(&path));
            if !(found.file_type().is_char_device() && found.rdev() == 0) {
                nodes.insert(path, Node::Kept(at));
            }
            continue;
        }
        let mut mark = [0; 1];
        let opaque = getxattr(&at, OPAQUE, &mut mark[..]).is_ok_and(|size| mark[..size] == *b"y");
        if opaque || matches!(nodes.get(&path), Some(Node::Kept(_))) {
            nodes.retain(|other, _| !other.starts_with(&path));
        }
        nodes.insert(path.clone(), Node::Merged(at));
        merge(layer, &path, nodes)?;
    }
    Ok(())
}

fn normal(path: &Path) -> PathBuf {
    let mut plain = PathBuf::from("/");
    for part in path.components() {
        match part {
            Component::Normal(name) => plain.push(name),
            Component::ParentDir => drop(plain.pop()),
            _ => {}
        }
    }
    plain
}
