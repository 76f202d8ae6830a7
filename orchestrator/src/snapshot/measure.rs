//! What a layer adds, and whether that is within the caps. Reads only.

use std::collections::HashMap;

use mayfly_domain::{BaseId, LayerId};

use super::{
    Caps, LayerSize, SealError, Slot, Store, StoreError, attrs,
    tree::{self, Tree},
    walk::{Kids, Visitor, depth_first},
};

/// Deeper folders than this are refused: work per folder grows with depth.
const DEPTH_MAX: u32 = 32_768;

impl Store {
    /// Bytes that a removal of these layers frees: files that other layers link too are not counted.
    pub fn bytes_freed(&self, layers: &[LayerId]) -> Result<u64, StoreError> {
        let mut measure = Measure::new(None);
        for layer in layers.iter().filter(|layer| self.present(layer)) {
            // A layer's folder holds its slots and nothing else.
            measure.add_plain(&Tree::open(&self.layer_dir(layer))?)?;
        }
        measure.own().map(|size| size.bytes).map_err(plain)
    }

    /// Bytes of a base's slots.
    pub fn base_bytes(&self, base: &BaseId, slots: &[Slot]) -> Result<u64, StoreError> {
        let mut measure = Measure::new(None);
        for slot in slots {
            measure.add_plain(&Tree::open(&self.base_dir(base).join(&slot.name))?)?;
        }
        Ok(measure.whole().bytes)
    }
}

/// Files, folders and links of a tree.
pub(super) fn inodes(tree: &Tree) -> Result<u64, StoreError> {
    let mut measure = Measure::new(None);
    measure.add_plain(tree)?;
    Ok(measure.whole().inodes)
}

/// Allocated bytes of a tree, each file once.
pub(super) fn whole(tree: &Tree) -> Result<u64, StoreError> {
    let mut measure = Measure::new(None);
    measure.add_plain(tree)?;
    Ok(measure.whole().bytes)
}

/// Without caps only the store itself can fail.
fn plain(error: SealError) -> StoreError {
    match error {
        SealError::Store(error) => error,
        other => StoreError::io("l", std::io::Error::other(other)),
    }
}

/// Adds up one or more trees.
pub(super) struct Measure<'a> {
    caps: Option<&'a Caps>,
    size: LayerSize,
    /// Files with more than one name.
    linked: HashMap<(u64, u64), Linked>,
}

struct Linked {
    /// Names not seen yet.
    left: i64,
    bytes: u64,
    regular: bool,
}

impl<'a> Measure<'a> {
    pub(super) fn new(caps: Option<&'a Caps>) -> Self {
        Measure {
            caps,
            size: LayerSize::default(),
            linked: HashMap::new(),
        }
    }

    pub(super) fn add(&mut self, tree: &Tree) -> Result<(), SealError> {
        let measure = self;
        depth_first(&mut OneTree { tree, measure }, 0)
    }

    fn add_plain(&mut self, tree: &Tree) -> Result<(), StoreError> {
        self.add(tree).map_err(plain)
    }

    /// Only what has all its names in the trees: the rest lies in older layers.
    pub(super) fn own(mut self) -> Result<LayerSize, SealError> {
        for linked in self.linked.values().filter(|linked| linked.left == 0) {
            self.size.bytes += linked.bytes;
            self.size.inodes += 1;
            if linked.regular {
                self.check_file(linked.bytes)?;
            }
        }
        self.check()?;
        Ok(self.size)
    }

    /// Everything once.
    pub(super) fn whole(mut self) -> LayerSize {
        self.size.inodes += self.linked.len() as u64;
        self.size.bytes += self.linked.values().map(|linked| linked.bytes).sum::<u64>();
        self.size
    }

    fn check_file(&self, allocated: u64) -> Result<(), SealError> {
        match self.caps {
            Some(caps) if allocated > caps.file_bytes => {
                Err(cap(format!("a file of {}", bytes(caps.file_bytes))))
            }
            _ => Ok(()),
        }
    }

    fn check(&self) -> Result<(), SealError> {
        let Some(caps) = self.caps else {
            return Ok(());
        };
        if self.size.bytes > caps.bytes {
            return Err(cap(bytes(caps.bytes)));
        }
        if self.size.inodes > caps.inodes {
            return Err(cap(format!("{} files", caps.inodes)));
        }
        Ok(())
    }
}

struct OneTree<'m, 'a> {
    tree: &'m Tree,
    measure: &'m mut Measure<'a>,
}

impl Visitor for OneTree<'_, '_> {
    type Node = u32;
    type Error = SealError;

    fn enter(&mut self, path: &[u8], depth: &mut u32) -> Result<Kids<Self>, SealError> {
        if *depth > DEPTH_MAX {
            return Err(cap(format!("{DEPTH_MAX} nested folders")));
        }
        let dir = self.tree.must(path)?;
        let mut kids = Vec::new();
        for entry in tree::entries(&dir).map_err(|error| self.tree.fault(path, error))? {
            self.count(&entry.stat)?;
            if attrs::is_dir(&entry.stat) {
                kids.push((entry.name, *depth + 1));
            }
        }
        self.measure.check()?;
        Ok(kids)
    }
}

impl OneTree<'_, '_> {
    fn count(&mut self, stat: &rustix::fs::Stat) -> Result<(), SealError> {
        let allocated = stat.st_blocks as u64 * 512;
        let regular = attrs::is_regular(stat);
        if attrs::is_dir(stat) || attrs::is_whiteout(stat) || stat.st_nlink == 1 {
            self.measure.size.bytes += allocated;
            self.measure.size.inodes += 1;
            if regular {
                self.measure.check_file(allocated)?;
            }
            return Ok(());
        }
        let inode = (stat.st_dev, stat.st_ino);
        let linked = self.measure.linked.entry(inode).or_insert(Linked {
            left: i64::try_from(stat.st_nlink).unwrap_or(i64::MAX),
            bytes: allocated,
            regular,
        });
        linked.left -= 1;
        Ok(())
    }
}

fn cap(limit: String) -> SealError {
    SealError::Cap { limit }
}

fn bytes(count: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    let unit = UNITS
        .iter()
        .find(|(size, _)| count >= *size && count.is_multiple_of(*size));
    match unit {
        Some((size, name)) => format!("{} {name}", count / size),
        None => format!("{count} bytes"),
    }
}
