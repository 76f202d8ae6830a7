//! What two states' difference says.

use std::{fs, path::Path};

use mayfly_orchestrator::snapshot::ChangeKind;

use crate::{
    picture::{Entry, Picture},
    world::World,
};

/// The plain way: compare two pictures, path by path.
pub(crate) fn expected(
    slot: &str,
    before: &Picture,
    after: &Picture,
) -> Vec<(Vec<u8>, ChangeKind)> {
    let mut paths: Vec<_> = before.keys().chain(after.keys()).collect();
    paths.sort();
    paths.dedup();
    let mut changes: Vec<_> = paths
        .into_iter()
        .filter_map(|path| {
            let kind = difference(before.get(path), after.get(path))?;
            let mut full = slot.as_bytes().to_vec();
            if !path.is_empty() {
                full.push(b'/');
                full.extend_from_slice(path);
            }
            Some((full, kind))
        })
        .collect();
    changes.sort_by(|a, b| a.0.cmp(&b.0));
    changes
}

fn difference(before: Option<&Entry>, after: Option<&Entry>) -> Option<ChangeKind> {
    let (a, b) = match (before, after) {
        (None, _) => return Some(ChangeKind::Added),
        (_, None) => return Some(ChangeKind::Removed),
        (Some(a), Some(b)) => (a, b),
    };
    if a.mode & 0o170_000 != b.mode & 0o170_000 {
        Some(ChangeKind::TypeChanged)
    } else if a.content != b.content {
        Some(ChangeKind::Modified)
    } else if (a.mode, a.owner) != (b.mode, b.owner) {
        Some(ChangeKind::ModeChanged)
    } else {
        None
    }
}

#[test]
fn lines_and_sizes_are_told_for_texts_and_only_sizes_for_binaries() {
    let mut world = World::new(|work| fs::write(work.join("text"), "a\nb\nc\n").unwrap());
    world.tick(|work| {
        fs::write(work.join("text"), "a\nB\nc\nd\n").unwrap();
        fs::write(work.join("binary"), b"\0\0").unwrap();
        fs::write(work.join("huge"), vec![b'\n'; (1 << 20) + 1]).unwrap();
    });
    let changes = diff(&world);
    let told: Vec<_> = changes
        .iter()
        .map(|c| {
            let name = Path::new(std::str::from_utf8(&c.path).unwrap());
            let lines = (c.added_lines, c.removed_lines);
            (name.to_str().unwrap(), lines, c.bytes_before, c.bytes_after)
        })
        .collect();
    assert_eq!(
        told,
        [
            ("/work/binary", (None, None), None, Some(2)),
            ("/work/huge", (None, None), None, Some((1 << 20) + 1)),
            ("/work/text", (Some(2), Some(1)), Some(6), Some(8)),
        ]
    );
}

#[test]
fn two_branches_are_compared_without_their_common_past() {
    let mut world = World::empty();
    world.tick(|work| fs::write(work.join("shared"), "x").unwrap());
    let trunk = world.layers.clone();
    world.tick(|work| fs::write(work.join("left"), "x").unwrap());
    let left = std::mem::replace(&mut world.layers, trunk);
    world.tick(|work| fs::rename(work.join("shared"), work.join("moved")).unwrap());
    let changes = world
        .store
        .diff_stat(&world.base, &left, &world.layers, &world.slots)
        .unwrap();
    let told: Vec<_> = changes.iter().map(|c| (&c.path[..], c.kind)).collect();
    assert_eq!(
        told,
        [
            (&b"/work/left"[..], ChangeKind::Removed),
            (b"/work/moved", ChangeKind::Added),
            (b"/work/shared", ChangeKind::Removed),
        ]
    );
}

fn diff(world: &World) -> Vec<mayfly_orchestrator::snapshot::Change> {
    world
        .store
        .diff_stat(&world.base, &[], &world.layers, &world.slots)
        .unwrap()
}
