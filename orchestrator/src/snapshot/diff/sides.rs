//! Two states of one slot, and what lies in them.

use std::{
    fs::File,
    io::{self, Read},
    os::fd::OwnedFd,
    path::PathBuf,
};

use rustix::{fs::readlinkat, io::Errno};
use sha2::{Digest as _, Sha256};

use super::{
    super::{StoreError, lines, stack::Stack, trash::split, tree::open_regular},
    Part,
};

pub(super) struct Sides {
    /// The layers of both states, each once.
    pub(super) stack: Stack,
    /// Where the sandbox sees the slot.
    pub(super) slot: Vec<u8>,
}

impl Sides {
    /// Also answers which layers each state has, topmost first.
    pub(super) fn open(
        before: &[PathBuf],
        after: &[PathBuf],
        slot: &str,
    ) -> Result<(Sides, [Vec<usize>; 2]), StoreError> {
        let mut roots = before.to_vec();
        roots.extend(after.iter().filter(|root| !before.contains(root)).cloned());
        let ids = |side: &[PathBuf]| {
            let place = |root| roots.iter().position(|known| known == root);
            side.iter().filter_map(place).collect()
        };
        let ids = [ids(before), ids(after)];
        let sides = Sides {
            stack: Stack::open(&roots)?,
            slot: slot.as_bytes().to_vec(),
        };
        Ok((sides, ids))
    }

    pub(super) fn target(&self, path: &[u8], part: &Part) -> Result<Vec<u8>, StoreError> {
        let (dir, name) = self.place(path, part)?;
        let target = readlinkat(dir, name, Vec::new());
        let target = target.map_err(|error| self.fault(path, part, error.into()))?;
        Ok(target.into_bytes())
    }

    /// Of a file of few bytes.
    pub(super) fn content(&self, path: &[u8], part: &Part) -> Result<Vec<u8>, StoreError> {
        let mut content = Vec::new();
        let file = self.open_file(path, part)?;
        file.take(lines::COUNTED_MAX)
            .read_to_end(&mut content)
            .map_err(|error| self.fault(path, part, error))?;
        Ok(content)
    }

    pub(super) fn hash(&self, path: &[u8], part: &Part) -> Result<[u8; 32], StoreError> {
        let mut hash = Sha256::new();
        let mut file = self.open_file(path, part)?;
        io::copy(&mut file, &mut hash).map_err(|error| self.fault(path, part, error))?;
        Ok(hash.finalize().into())
    }

    pub(super) fn same_content(
        &self,
        path: &[u8],
        before: &Part,
        after: &Part,
    ) -> Result<bool, StoreError> {
        let (mut a, mut b) = (self.open_file(path, before)?, self.open_file(path, after)?);
        same_bytes(&mut a, &mut b).map_err(|error| self.fault(path, after, error))
    }

    fn open_file(&self, path: &[u8], part: &Part) -> Result<File, StoreError> {
        let (dir, name) = self.place(path, part)?;
        let file = open_regular(&dir, name);
        Ok(file
            .map_err(|error| self.fault(path, part, error.into()))?
            .into())
    }

    fn place<'p>(&self, path: &'p [u8], part: &Part) -> Result<(OwnedFd, &'p [u8]), StoreError> {
        let (dir, name) = split(self.inside(path));
        Ok((self.stack.trees[part.layer].must(dir)?, name))
    }

    /// The path below the slot.
    fn inside<'p>(&self, path: &'p [u8]) -> &'p [u8] {
        path.get(self.slot.len() + 1..).unwrap_or_default()
    }

    fn fault(&self, path: &[u8], part: &Part, error: io::Error) -> StoreError {
        let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
        self.stack.trees[part.layer].fault(self.inside(path), errno)
    }
}

fn same_bytes(a: &mut File, b: &mut File) -> io::Result<bool> {
    let (mut left, mut right) = (vec![0; 65536], vec![0; 65536]);
    loop {
        let len = a.read(&mut left)?;
        if len == 0 {
            return Ok(true);
        }
        b.read_exact(&mut right[..len])?;
        if left[..len] != right[..len] {
            return Ok(false);
        }
    }
}
