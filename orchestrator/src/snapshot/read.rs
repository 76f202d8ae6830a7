//! Regular files of a sealed layer, for delivery. The agent made the layer: no link in it is
//! followed, nothing outside the slot is reached.

use std::{fs::File, path::PathBuf};

use mayfly_domain::LayerId;
use rustix::{
    fs::{FileType, OFlags},
    io::Errno,
};

use super::{
    Store, StoreError, attrs,
    tree::{self, Tree},
};

/// A regular file directly in the folder asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedFile {
    /// Bytes, in any encoding.
    pub name: Vec<u8>,
    /// Its length, holes included.
    pub size: u64,
}

/// What lies directly in the folder asked for, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SealedFolder {
    /// Regular files.
    pub files: Vec<SealedFile>,
    /// Names of folders and links.
    pub others: Vec<Vec<u8>>,
}

impl Store {
    /// What the layer itself has in `<slot>/<folder>`. Nothing if the layer has no such folder.
    pub fn files_in(
        &self,
        layer: &LayerId,
        slot: &str,
        folder: &str,
    ) -> Result<SealedFolder, StoreError> {
        let path = self.layer_dir(layer).join(slot);
        let absent = |error: &Errno| matches!(*error, Errno::NOENT | Errno::NOTDIR | Errno::LOOP);
        let tree = match Tree::open(&path) {
            Err(error) if error.errno().as_ref().is_some_and(absent) => {
                return Ok(SealedFolder::default());
            }
            tree => tree?,
        };
        let dir = match tree.dir(folder.as_bytes()) {
            Err(error) if absent(&error) => return Ok(SealedFolder::default()),
            dir => dir.map_err(|error| tree.fault(folder.as_bytes(), error))?,
        };
        let entries = tree::entries(&dir);
        let entries = entries.map_err(|error| tree.fault(folder.as_bytes(), error))?;
        let mut found = SealedFolder::default();
        for entry in entries {
            match attrs::kind(&entry.stat) {
                FileType::RegularFile => found.files.push(SealedFile {
                    name: entry.name,
                    size: entry.stat.st_size as u64,
                }),
                FileType::Directory | FileType::Symlink => found.others.push(entry.name),
                // A whiteout: nothing lies there any more.
                _ => {}
            }
        }
        found.files.sort_by(|a, b| a.name.cmp(&b.name));
        found.others.sort();
        Ok(found)
    }

    /// A regular file of the layer by its path in the slot.
    pub fn open_file(
        &self,
        layer: &LayerId,
        slot: &str,
        path: impl AsRef<[u8]>,
    ) -> Result<File, StoreError> {
        let root: PathBuf = self.layer_dir(layer).join(slot);
        let (tree, path) = (Tree::open(&root)?, path.as_ref());
        let open = || {
            let probe = tree.resolve(path, OFlags::PATH)?;
            if !attrs::is_regular(&rustix::fs::fstat(probe)?) {
                return Err(Errno::INVAL);
            }
            tree.resolve(path, OFlags::RDONLY)
        };
        Ok(open().map_err(|error| tree.fault(path, error))?.into())
    }
}
