//! Which other name a file has: in this layer, or in an older one and still seen.

use std::collections::HashMap;

use rustix::{
    fs::{AtFlags, Stat, statat},
    io::Errno,
};

use super::super::{StoreError, attrs, tree::Tree};

/// Another name of an inode.
pub(super) enum Other {
    /// Earlier in the same layer.
    Here(Vec<u8>),
    /// In an older layer, where the state still shows it.
    Older(Vec<u8>),
}

/// In which layer, and under which path.
type Name = (usize, Box<[u8]>);

/// The names that inodes had so far, in one slot.
#[derive(Default)]
pub(super) struct Links {
    /// Per inode its names, oldest layer first. Memory follows the number of linked files.
    names: HashMap<(u64, u64), Vec<Name>>,
}

impl Links {
    /// Another name of `path`, if any; remembers `path`. `trees` are the layers so far, oldest
    /// first, the last one being written.
    pub(super) fn other(
        &mut self,
        stat: &Stat,
        path: &[u8],
        trees: &[Tree],
    ) -> Result<Option<Other>, StoreError> {
        if stat.st_nlink < 2 {
            return Ok(None);
        }
        let names = self.names.entry((stat.st_dev, stat.st_ino)).or_default();
        let own = trees.len() - 1;
        let mut found = names.iter().find(|(layer, _)| *layer == own);
        for name in names.iter().rev() {
            if found.is_some() {
                break;
            }
            let (layer, path) = name;
            let hidden = trees[layer + 1..].iter().map(|tree| hides(tree, path));
            let hidden = hidden.collect::<Result<Vec<_>, _>>()?;
            found = (!hidden.contains(&true)).then_some(name);
        }
        let found = found.map(|(layer, path)| match *layer == own {
            true => Other::Here(path.to_vec()),
            false => Other::Older(path.to_vec()),
        });
        names.push((own, path.into()));
        Ok(found)
    }
}

/// Whether a layer shows something else, or nothing, where an older one has `path`.
fn hides(tree: &Tree, path: &[u8]) -> Result<bool, StoreError> {
    let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
    let parents = slashes.map(|(at, _)| &path[..at]);
    let mut last = tree.must(b"")?;
    for parent in parents {
        last = match tree.dir(parent) {
            Ok(dir) => dir,
            Err(Errno::NOENT) => return Ok(false),
            Err(Errno::NOTDIR | Errno::LOOP) => return Ok(true),
            Err(error) => return Err(tree.fault(parent, error)),
        };
        if attrs::is_opaque(&last).map_err(|error| tree.fault(parent, error))? {
            return Ok(true);
        }
    }
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
    match statat(&last, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(_) => Ok(true),
        Err(Errno::NOENT) => Ok(false),
        Err(error) => Err(tree.fault(path, error)),
    }
}
