//! Which removed and added paths are one that moved: files by inode (hard-linked into the new
//! place), else by equal size and content; folders when all below them moved alike.

use std::collections::{HashMap, HashSet};

use super::{
    super::{StoreError, trash::split},
    Budget, ChangeKind, Raw, Sides,
};

/// Positions in the list of changes.
#[derive(Default)]
pub(super) struct Renames {
    /// New place to old place, and how much lies below a whole folder.
    pub(super) from: HashMap<usize, (usize, u64)>,
    /// No change of their own any more.
    pub(super) gone: HashSet<usize>,
}

/// `raw` is sorted by path; folders are only guessed where it is `complete`.
pub(super) fn guess(
    raw: &[Raw],
    sides: &[Sides],
    budget: &Budget,
    complete: bool,
) -> Result<Renames, StoreError> {
    let mut guesser = Guesser {
        raw,
        sides,
        budget,
        partner: HashMap::new(),
    };
    guesser.files()?;
    let mut renames = Renames::default();
    if complete {
        guesser.folders(&mut renames)?;
    }
    for (&old, &new) in &guesser.partner {
        if raw[old].kind == ChangeKind::Removed && !renames.gone.contains(&old) {
            renames.gone.insert(old);
            renames.from.insert(new, (old, 0));
        }
    }
    Ok(renames)
}

struct Guesser<'a> {
    raw: &'a [Raw],
    sides: &'a [Sides],
    budget: &'a Budget,
    /// Old place to new place, and back.
    partner: HashMap<usize, usize>,
}

/// Files of one content.
#[derive(Default)]
struct Alike {
    old: Vec<usize>,
    new: Vec<usize>,
}

impl Guesser<'_> {
    fn files(&mut self) -> Result<(), StoreError> {
        let (removed, added) = (self.of(ChangeKind::Removed), self.of(ChangeKind::Added));
        let mut linked: HashMap<(u64, u64), Alike> = HashMap::new();
        for &(old, _) in &removed {
            linked.entry(self.inode(old)).or_default().old.push(old);
        }
        for &(new, _) in &added {
            if let Some(alike) = linked.get_mut(&self.inode(new)) {
                alike.new.push(new);
            }
        }
        linked.into_values().for_each(|alike| self.pair(alike));
        let sizes = |files: &[(usize, u64)]| -> HashSet<u64> {
            files.iter().map(|(_, size)| *size).collect()
        };
        let both: HashSet<u64> = sizes(&removed)
            .intersection(&sizes(&added))
            .copied()
            .collect();
        let mut same: HashMap<[u8; 32], Alike> = HashMap::new();
        for (index, size) in removed.into_iter().chain(added) {
            if both.contains(&size)
                && !self.partner.contains_key(&index)
                && let Some(hash) = self.hash(index, size)?
            {
                let alike = same.entry(hash).or_default();
                match self.raw[index].kind {
                    ChangeKind::Removed => alike.old.push(index),
                    _ => alike.new.push(index),
                }
            }
        }
        same.into_values().for_each(|alike| self.pair(alike));
        Ok(())
    }

    /// Regular files with content.
    fn of(&self, kind: ChangeKind) -> Vec<(usize, u64)> {
        let files = self.raw.iter().enumerate().filter_map(|(index, raw)| {
            let size = raw.before.or(raw.after)?.size()?;
            (raw.kind == kind && size > 0).then_some((index, size))
        });
        files.collect()
    }

    fn inode(&self, index: usize) -> (u64, u64) {
        let part = self.raw[index].before.or(self.raw[index].after);
        part.map_or((0, 0), |part| (part.stat.st_dev, part.stat.st_ino))
    }

    /// Those of one name first, the others in the order of their paths.
    fn pair(&mut self, alike: Alike) {
        let name = |index: usize| split(&self.raw[index].path).1;
        let mut named: HashMap<&[u8], Vec<usize>> = HashMap::new();
        for &old in alike.old.iter().rev() {
            named.entry(name(old)).or_default().push(old);
        }
        let (mut pairs, mut rest) = (Vec::new(), Vec::new());
        for new in alike.new {
            match named.get_mut(name(new)).and_then(Vec::pop) {
                Some(old) => pairs.push((old, new)),
                None => rest.push(new),
            }
        }
        let mut free: Vec<usize> = named.into_values().flatten().collect();
        free.sort_unstable();
        pairs.extend(free.into_iter().zip(rest));
        for (old, new) in pairs {
            self.partner.insert(old, new);
            self.partner.insert(new, old);
        }
    }

    fn hash(&self, index: usize, size: u64) -> Result<Option<[u8; 32]>, StoreError> {
        let raw = &self.raw[index];
        match raw.before.or(raw.after) {
            Some(part) if self.budget.take(size) => {
                Ok(Some(self.sides[raw.slot].hash(&raw.path, &part)?))
            }
            _ => Ok(None),
        }
    }

    fn folders(&self, renames: &mut Renames) -> Result<(), StoreError> {
        for (old, raw) in self.raw.iter().enumerate() {
            let folder = raw.before.is_some_and(|part| part.is_dir());
            if raw.kind != ChangeKind::Removed || !folder || renames.gone.contains(&old) {
                continue;
            }
            if let Some(new) = self.whole(old)? {
                let (below, there) = (self.below(old), self.below(new));
                renames.from.insert(new, (old, below.len() as u64));
                renames.gone.insert(old);
                renames.gone.extend(below.chain(there));
            }
        }
        Ok(())
    }

    /// Where a folder went with everything in it.
    fn whole(&self, old: usize) -> Result<Option<usize>, StoreError> {
        let below = self.below(old);
        let from = &self.raw[old].path;
        let moved = below
            .clone()
            .find_map(|index| Some((index, *self.partner.get(&index)?)));
        let Some((inner, moved)) = moved else {
            return Ok(None);
        };
        let rest = &self.raw[inner].path[from.len()..];
        let Some(to) = self.raw[moved].path.strip_suffix(rest) else {
            return Ok(None);
        };
        let Ok(new) = self.raw.binary_search_by(|raw| raw.path[..].cmp(to)) else {
            return Ok(None);
        };
        let there = self.below(new);
        if below.len() != there.len() || !self.alike(old, new)? {
            return Ok(None);
        }
        for (a, b) in below.zip(there) {
            let same_place = self.raw[a].path[from.len()..] == self.raw[b].path[to.len()..];
            if !same_place || !self.alike(a, b)? {
                return Ok(None);
            }
        }
        Ok(Some(new))
    }

    fn alike(&self, old: usize, new: usize) -> Result<bool, StoreError> {
        let (a, b) = (&self.raw[old], &self.raw[new]);
        if (a.kind, b.kind) != (ChangeKind::Removed, ChangeKind::Added) {
            return Ok(false);
        }
        let (Some(before), Some(after)) = (a.before, b.after) else {
            return Ok(false);
        };
        if !before.same_mode(&after) {
            return Ok(false);
        }
        if before.is_link() {
            let from = self.sides[a.slot].target(&a.path, &before)?;
            return Ok(from == self.sides[b.slot].target(&b.path, &after)?);
        }
        let empty = before.size() == Some(0) && after.size() == Some(0);
        Ok(before.is_dir() || empty || self.partner.get(&old) == Some(&new))
    }

    /// All that is listed below a folder.
    fn below(&self, folder: usize) -> std::ops::Range<usize> {
        let prefix = [&self.raw[folder].path[..], b"/"].concat();
        let start = self.raw.partition_point(|raw| raw.path < prefix);
        let rest = &self.raw[start..];
        start..start + rest.partition_point(|raw| raw.path.starts_with(&prefix))
    }
}
