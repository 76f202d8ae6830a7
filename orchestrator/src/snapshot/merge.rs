//! Makes one layer of a chain of layers: folders anew, files by hard links. Nothing of the chain
//! changes, so it may stay mounted meanwhile.

use std::{os::fd::OwnedFd, rc::Rc};

use mayfly_domain::{BaseId, LayerId};

use crate::faults;

use super::{
    LayerSize, SealError, Slot, Store, StoreError, attrs,
    begin::make,
    checked, durable,
    measure::Measure,
    ops,
    place::{Placer, Source},
    seal::ready_dir,
    stack::{Layers, Stack},
    tree::{Tree, join},
    walk::{Kids, Visitor, depth_first},
};

impl Store {
    /// Merges `layers` (without the base, which they lie on) into the new layer `into`. Whiteouts
    /// and opaque marks stay where they hide something of the base. Repeatable.
    pub fn merge(
        &self,
        base: &BaseId,
        layers: &[LayerId],
        into: &LayerId,
        slots: &[Slot],
    ) -> Result<LayerSize, StoreError> {
        checked(slots)?;
        if self.present(into) {
            self.settle(into)?;
            return size(&self.layer_dir(into), slots);
        }
        self.discard(into)?;
        let dir = self.upper_dir(into);
        let (ready, aside) = (ready_dir(&dir), dir.join("fill"));
        for path in [&dir, &ready, &aside] {
            make(path)?;
        }
        let aside = Tree::open(&aside)?.must(b"")?;
        for slot in slots {
            let mut roots = self.lowers(base, layers, &slot.name);
            let base = Tree::open(&roots.remove(roots.len() - 1))?;
            if !roots.is_empty() {
                let out = ready.join(&slot.name);
                make(&out)?;
                merge_slot(&Stack::open(&roots)?, &base, &Tree::open(&out)?, &aside)?;
            }
        }
        let size = size(&ready, slots)?;
        faults::point("merge.placed");
        let outs = slots.iter().map(|slot| ready.join(&slot.name));
        let outs = outs.filter(|out| out.is_dir()).map(|out| Tree::open(&out));
        let outs: Vec<_> = outs.collect::<Result<_, _>>()?;
        durable::all(&outs, size.inodes)?;
        faults::point("merge.synced");
        self.publish(into)?;
        Ok(size)
    }
}

fn size(dir: &std::path::Path, slots: &[Slot]) -> Result<LayerSize, StoreError> {
    let mut measure = Measure::new(None);
    for slot in slots {
        let path = dir.join(&slot.name);
        if path.is_dir() {
            let added = measure.add(&Tree::open(&path)?);
            added.map_err(|error| match error {
                SealError::Store(error) => error,
                other => StoreError::io(&path, std::io::Error::other(other)),
            })?;
        }
    }
    Ok(measure.whole())
}

fn merge_slot(chain: &Stack, base: &Tree, out: &Tree, aside: &OwnedFd) -> Result<(), StoreError> {
    let mut merger = Merger {
        chain,
        base,
        out,
        placer: Placer::new(out, aside),
    };
    let root = Folder {
        parent: chain.root().ids.into(),
        parent_on_base: true,
        layers: Layers::default(),
        on_base: true,
    };
    depth_first(&mut merger, root)
}

struct Merger<'a> {
    chain: &'a Stack,
    base: &'a Tree,
    out: &'a Tree,
    placer: Placer<'a>,
}

struct Folder {
    parent: Rc<[usize]>,
    /// The parent folder shows the base's folder of its name.
    parent_on_base: bool,
    layers: Layers,
    /// The base has a folder here, and the chain's parent folder shows it.
    on_base: bool,
}

impl Visitor for Merger<'_> {
    type Node = Folder;
    type Error = StoreError;

    fn enter(&mut self, path: &[u8], folder: &mut Folder) -> Result<Kids<Self>, StoreError> {
        if path.is_empty() {
            folder.layers = self.chain.root();
        } else {
            folder.layers = self.chain.descend(&folder.parent, path)?;
            folder.on_base = folder.parent_on_base && self.base.dir(path).is_ok();
        }
        let shows_base = folder.on_base && !folder.layers.cut;
        let ids: Rc<[usize]> = folder.layers.ids.as_slice().into();
        let merged = self.chain.merged(&ids, path)?;
        let out = self.out.must(path)?;
        let mut kids = Vec::new();
        for (name, (at, stat)) in &merged.entries {
            let dir = &merged.dirs[*at];
            if attrs::is_dir(stat) {
                ops::make_dir(&out, name, 0o700)
                    .map_err(|error| self.out.fault(&join(path, name), error))?;
                kids.push((name.clone(), Folder::child(&ids, shows_base)));
            } else if !attrs::is_whiteout(stat) || (shows_base && self.base_has(path, name)?) {
                let from = Source { dir, name, stat };
                self.placer.place(&from, &out, path)?;
            }
        }
        Ok(kids)
    }

    fn leave(&mut self, path: &[u8], folder: Folder) -> Result<(), StoreError> {
        let topmost = self.chain.trees[folder.layers.ids[0]].must(path)?;
        let out = self.out.must(path)?;
        let finish = || {
            let stat = attrs::copy(&topmost, &out, b".")?;
            if folder.on_base && folder.layers.cut {
                ops::set_xattr(&attrs::through(&out, b"."), attrs::OPAQUE, b"y")?;
            }
            ops::set_mtime(&out, b".", attrs::mtime(&stat))
        };
        finish().map_err(|error| self.out.fault(path, error))
    }
}

impl Folder {
    fn child(parent: &Rc<[usize]>, parent_on_base: bool) -> Folder {
        Folder {
            parent: parent.clone(),
            parent_on_base,
            layers: Layers::default(),
            on_base: false,
        }
    }
}

impl Merger<'_> {
    fn base_has(&self, path: &[u8], name: &[u8]) -> Result<bool, StoreError> {
        use rustix::{
            fs::{AtFlags, statat},
            io::Errno,
        };
        let dir = self.base.must(path)?;
        match statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(self.base.fault(&join(path, name), error)),
        }
    }
}
