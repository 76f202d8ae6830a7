//! Exports and imports of a test's world, without a database.

use std::{collections::BTreeMap, path::Path};

use mayfly_domain::{AgentId, BaseId, LayerId, SnapshotId};
use mayfly_orchestrator::snapshot::oci::{
    AgentRow, Archive, Budget, Compress, Export, Exported, FORM, History, Imported, LABEL_FORM,
    OciError, Output, SnapshotRow, TickLayer,
};

use crate::world::World;

pub(crate) fn history(layers: &[LayerId], base: bool) -> History {
    let first = u32::from(base);
    let snapshot = |at: usize| SnapshotRow {
        id: SnapshotId::new(),
        tick: None,
        layer: Some(first + at as u32),
        session: None,
        created_at: 0,
    };
    History {
        agent: AgentRow {
            form: FORM,
            id: AgentId::new(),
            profile: "shell".to_owned(),
            sandbox: None,
            image: "sha256:00".to_owned(),
            uid: 1000,
            gid: 1000,
            base,
            created_at: 0,
        },
        snapshots: (0..layers.len()).map(snapshot).collect(),
        messages: Vec::new(),
        ticks: Vec::new(),
        replies: Vec::new(),
    }
}

/// Exports all layers of the world into the new folder `to`.
pub(crate) fn export(world: &World, compress: Compress, to: &Path) -> Exported {
    let records = history(&world.layers, true).to_lines();
    export_with(world, compress, &records, to).unwrap()
}

pub(crate) fn export_with(
    world: &World,
    compress: Compress,
    records: &[u8],
    to: &Path,
) -> Result<Exported, OciError> {
    export_as(world, compress, records, Output::Folder(to))
}

pub(crate) fn export_as(
    world: &World,
    compress: Compress,
    records: &[u8],
    to: Output<'_>,
) -> Result<Exported, OciError> {
    let layers: Vec<_> = world
        .layers
        .iter()
        .map(|layer| TickLayer {
            layer: layer.clone(),
            title: "mayfly tick".to_owned(),
            created_at: 0,
            annotations: BTreeMap::new(),
        })
        .collect();
    let what = Export {
        base: &world.base,
        with_base: true,
        layers: &layers,
        records,
        transcripts: &[],
        labels: BTreeMap::from([(LABEL_FORM.to_owned(), FORM.to_string())]),
        user: "1000:1000".to_owned(),
        created_at: 0,
        compress,
    };
    world.store.export(&what, &world.slots, to)
}

/// Puts an archive's base and layers into the world, in place of its own.
pub(crate) fn import(world: &mut World, from: &Path) -> Result<Imported, OciError> {
    import_within(world, from, 1 << 34, 1 << 20)
}

pub(crate) fn import_within(
    world: &mut World,
    from: &Path,
    bytes: u64,
    inodes: u64,
) -> Result<Imported, OciError> {
    let archive = Archive::open(from)?;
    let mut budget = Budget::new(bytes, inodes, &|_| true);
    let records = tempfile::tempdir().unwrap();
    let records = archive.records(records.path(), &mut budget)?;
    let (base, slots) = (BaseId::new(), world.slots.clone());
    world
        .store
        .import_base(&archive, &base, &slots, &mut budget)?;
    let rows = records.history.snapshots.iter();
    let ids: Vec<_> = rows
        .filter(|row| row.layer.is_some())
        .map(|_| LayerId::new())
        .collect();
    let done = world
        .store
        .import_layers(&archive, 1, &base, &ids, &slots, &mut budget);
    match done {
        Ok(done) => {
            (world.base, world.layers) = (base, ids);
            Ok(done)
        }
        Err(error) => {
            world.store.remove_base(&base)?;
            Err(error)
        }
    }
}
