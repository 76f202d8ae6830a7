//! One layer, or one base, by itself, as it travels between workers: the canonical tar stream of an
//! export, stored with zstd.
//!
//! It is packed without the layers below, so its bytes depend on nothing else and its cost follows what
//! changed: a file that shares its data with an older layer travels whole, and is a file of its own where
//! it arrives.

use std::{fs::File, io, path::Path};

use mayfly_domain::{BaseId, LayerId};

use super::{
    super::{
        LayerSize, Slot, Store, StoreError, begin::make, checked, durable, measure::Measure,
        notes::Notes, seal::ready_dir, stack::Stack, trash, tree::Tree,
    },
    Compress, OciError,
    export::{BESIDE, Part, base_layer, prefix, tick_layer},
    squeeze::{Feeder, squeeze, unsqueeze},
    unpack::{Beside, Budget, Target, unpack},
    write::Writer,
};

/// What was packed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parcel {
    /// SHA-256 of the stored bytes, hexadecimal.
    pub digest: String,
    /// Stored bytes.
    pub size: u64,
}

impl Store {
    /// Writes a sealed layer. The same layer makes the same bytes.
    pub fn pack_layer(
        &self,
        layer: &LayerId,
        slots: &[Slot],
        into: File,
    ) -> Result<Parcel, OciError> {
        checked(slots)?;
        let dir = self.layer_dir(layer);
        if !dir.is_dir() {
            let layer = layer.clone();
            return Err(StoreError::Missing { layer }.into());
        }
        let mut parts = Part::of(slots);
        packed(&dir, into, |writer| tick_layer(writer, &dir, &mut parts))
    }

    /// Writes a finished base, with passwd and group.
    pub fn pack_base(&self, base: &BaseId, slots: &[Slot], into: File) -> Result<Parcel, OciError> {
        checked(slots)?;
        let dir = self.base_dir(base);
        let mut parts = Part::of(slots);
        for part in &mut parts {
            part.trees.push(Tree::open(&dir.join(&part.slot.name))?);
        }
        packed(&dir, into, |writer| base_layer(writer, &dir, &mut parts))
    }

    /// Makes a layer of what [`Store::pack_layer`] wrote: built aside, durable, then visible. Its stored
    /// bytes have been compared with their digest; what they hold is not trusted all the same. On
    /// failure nothing is left.
    pub fn unpack_layer(
        &self,
        layer: &LayerId,
        slots: &[Slot],
        from: File,
        budget: &mut Budget<'_>,
    ) -> Result<LayerSize, OciError> {
        checked(slots)?;
        // Not under the layer's name: a row has it, so nobody would look for what a crash left.
        let staging = self.stage()?;
        let size = Store::fill_layer(staging.path(), slots, from, budget)?;
        self.show(staging.path(), layer)?;
        durable::folder(&self.data_dir.join("l"))?;
        staging.end()?;
        Ok(size)
    }

    /// Makes a base of what [`Store::pack_base`] wrote.
    pub fn unpack_base(
        &self,
        base: &BaseId,
        slots: &[Slot],
        from: File,
        budget: &mut Budget<'_>,
    ) -> Result<(), OciError> {
        checked(slots)?;
        let aside = self.begin_base(base)?;
        let fill = |budget: &mut Budget<'_>| {
            let copies = aside.join(".copies");
            make(&copies)?;
            let targets = targets(&aside, &copies, slots, || None)?;
            let beside = BESIDE.map(|(shown, name)| (shown.as_bytes(), aside.join(name)));
            let used = read(from, &targets, &beside.into(), budget)?;
            if used.contains(&false) {
                return Err(OciError::bad("the base", "it lacks a slot"));
            }
            Ok(trash::remove(&copies)?)
        };
        let done = fill(budget);
        if done.is_err() {
            self.throw_away(&aside)?;
        }
        done?;
        Ok(self.finish_base(base, slots)?)
    }

    fn fill_layer(
        dir: &Path,
        slots: &[Slot],
        from: File,
        budget: &mut Budget<'_>,
    ) -> Result<LayerSize, OciError> {
        let (ready, copies) = (ready_dir(dir), dir.join("copies"));
        for path in [&ready, &copies] {
            make(path)?;
        }
        let nothing = || Some(Stack { trees: Vec::new() });
        let targets = targets(&ready, &copies, slots, nothing)?;
        let used = read(from, &targets, &Vec::new(), budget)?;
        let (mut measure, mut trees) = (Measure::new(None), Vec::new());
        for ((slot, target), used) in slots.iter().zip(targets).zip(used) {
            match used {
                true => {
                    measure.add(&target.out).map_err(OciError::seal)?;
                    trees.push(target.out);
                }
                false => trash::remove(&ready.join(&slot.name))?,
            }
        }
        let size = measure.own().map_err(OciError::seal)?;
        durable::all(&trees, size.inodes)?;
        crate::faults::point("unpack.durable");
        Ok(size)
    }

    /// Bytes of all that a layer holds, also of what older layers share.
    pub fn whole_bytes(&self, layer: &LayerId) -> Result<u64, StoreError> {
        super::super::measure::whole(&Tree::open(&self.layer_dir(layer))?)
    }
}

fn packed(
    dir: &Path,
    into: File,
    fill: impl FnOnce(&mut Writer<Feeder>) -> Result<(), OciError>,
) -> Result<Parcel, OciError> {
    let fault = |error: io::Error| OciError::from(StoreError::io(dir, error));
    let squeezed = squeeze(Compress::Zstd, &into, |feeder| {
        let mut writer = Writer::new(feeder);
        fill(&mut writer)?;
        writer.finish().map_err(fault)
    });
    let squeezed = squeezed.map_err(fault)??;
    Ok(Parcel {
        digest: squeezed.digest,
        size: squeezed.size,
    })
}

fn targets(
    into: &Path,
    copies: &Path,
    slots: &[Slot],
    below: impl Fn() -> Option<Stack>,
) -> Result<Vec<Target>, OciError> {
    let target = |slot: &Slot| {
        let out = into.join(&slot.name);
        make(&out)?;
        Ok(Target {
            prefix: prefix(slot),
            out: Tree::open(&out)?,
            below: below(),
            aside: Tree::open(copies)?.must(b"")?,
        })
    };
    slots.iter().map(target).collect()
}

/// Which slots it had something for.
fn read(
    from: File,
    targets: &[Target],
    beside: &Beside,
    budget: &mut Budget<'_>,
) -> Result<Vec<bool>, OciError> {
    let stored = |error: io::Error| OciError::bad("what is stored", error.to_string());
    let stream = unsqueeze(Compress::Zstd, from).map_err(stored)?;
    let (_, used) = unpack(stream, targets, beside, budget, &mut Notes::default())?;
    Ok(used)
}
