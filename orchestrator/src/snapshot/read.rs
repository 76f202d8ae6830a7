//! Regular files of a sealed layer, for delivery. The agent made the layer: no link in it is
//! followed, nothing outside the slot is reached.

use std::{fs::File, path::PathBuf};

use mayfly_domain::LayerId;
use rustix::{fs::OFlags, io::Errno};

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

impl Store {
    /// The files that the layer itself has in `<slot>/<folder>`, by name. None if the layer has no
    /// such folder.
    pub fn files_in(
        &self,
        layer: &LayerId,
        slot: &str,
        folder: &str,
    ) -> Result<Vec<SealedFile>, StoreError> {
        let path = self.layer_dir(layer).join(slot);
        let absent = |error: &Errno| matches!(*error, Errno::NOENT | Errno::NOTDIR | Errno::LOOP);
        let tree = match Tree::open(&path) {
            Err(error) if error.errno().as_ref().is_some_and(absent) => return Ok(Vec::new()),
            tree => tree?,
        };
        let dir = match tree.dir(folder.as_bytes()) {
            Err(error) if absent(&error) => return Ok(Vec::new()),
            dir => dir.map_err(|error| tree.fault(folder.as_bytes(), error))?,
        };
        let entries = tree::entries(&dir);
        let entries = entries.map_err(|error| tree.fault(folder.as_bytes(), error))?;
        let mut files: Vec<_> = entries
            .into_iter()
            .filter(|entry| attrs::is_regular(&entry.stat))
            .map(|entry| SealedFile {
                name: entry.name,
                size: entry.stat.st_size as u64,
            })
            .collect();
        files.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(files)
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
