//! One page of what lies in a folder of a state, or below it. Only names and the page are held in
//! memory, and of the names never more than a page.

use std::{
    collections::VecDeque,
    ops::Bound::{self, Excluded, Included, Unbounded},
    rc::Rc,
};

use super::{
    StoreError, attrs,
    files::{FileEntry, Listed, Looker},
    stack::Seen,
    tree::join,
};

/// Names that are looked up at once.
const NAMES: usize = 1024;

/// A folder on the way.
struct Level {
    path: Vec<u8>,
    layers: Rc<[usize]>,
    /// Known and not yet visited.
    names: VecDeque<Seen>,
    /// The last name that was looked up.
    last: Option<Vec<u8>>,
    /// Nothing comes after `names`.
    whole: bool,
    /// Where the page before ended, from here on.
    after: Option<Vec<u8>>,
}

impl Level {
    fn new(path: Vec<u8>, layers: Rc<[usize]>, after: Option<Vec<u8>>) -> Level {
        Level {
            path,
            layers,
            names: VecDeque::new(),
            last: None,
            whole: false,
            after,
        }
    }

    /// From where further names are looked up.
    fn from(&self) -> Bound<&[u8]> {
        match (&self.last, &self.after) {
            (Some(last), _) => Excluded(last),
            (None, Some(after)) => Included(first(after)),
            (None, None) => Unbounded,
        }
    }

    /// Whether a name was listed by the page before, and where that went on below it.
    fn passed(&mut self, name: &[u8]) -> Option<Option<Vec<u8>>> {
        let after = self.after.take()?;
        let below = after.strip_prefix(name)?;
        match below {
            [] => Some(None),
            [b'/', below @ ..] => Some(Some(below.to_vec())),
            _ => None,
        }
    }
}

fn first(path: &[u8]) -> &[u8] {
    path.split(|byte| *byte == b'/').next().unwrap_or(path)
}

impl Looker<'_> {
    /// What comes after `after` below the folder `path`, and whether there is more than is listed.
    pub(super) fn page(
        &self,
        path: &[u8],
        layers: Rc<[usize]>,
        listed: &Listed,
        after: Option<Vec<u8>>,
    ) -> Result<(Vec<FileEntry>, bool), StoreError> {
        let mut entries = Vec::new();
        let mut levels = vec![Level::new(path.to_vec(), layers, after)];
        while let Some(level) = levels.last_mut() {
            let Some(seen) = level.names.pop_front() else {
                match level.whole {
                    true => drop(levels.pop()),
                    false => self.look_up(level, listed.most)?,
                }
                continue;
            };
            if attrs::is_whiteout(&seen.stat) {
                continue;
            }
            let passed = level.passed(&seen.name);
            if passed.is_none() {
                if entries.len() == listed.most {
                    return Ok((entries, true));
                }
                let layer = level.layers[seen.at];
                entries.push(self.entry(layer, &level.path, &seen.name, &seen.stat)?);
            }
            if listed.recursive && attrs::is_dir(&seen.stat) {
                let folder = join(&level.path, &seen.name);
                let layers = self.stack.descend(&level.layers, &folder)?.ids;
                levels.push(Level::new(folder, layers.into(), passed.flatten()));
            }
        }
        Ok((entries, false))
    }

    fn look_up(&self, level: &mut Level, most: usize) -> Result<(), StoreError> {
        let most = NAMES.min(most + 1);
        let seen = self
            .stack
            .names(&level.layers, &level.path, level.from(), most)?;
        level.whole = seen.len() < most;
        level.last = seen
            .last()
            .map(|seen| seen.name.clone())
            .or(level.last.take());
        level.names = seen.into();
        Ok(())
    }
}
