//! What two states' difference says.

use std::{fs, path::Path};

use mayfly_orchestrator::snapshot::{ChangeKind, Diff, DiffWanted, State, Text};

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
    let changes = world.diff(&left, &world.layers);
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
    world.diff(&[], &world.layers)
}

const ALL: DiffWanted = DiffWanted {
    most: 1000,
    renames: true,
    text: true,
};

fn since(world: &World, from: usize, wanted: &DiffWanted) -> Diff {
    world.compare(&world.layers[..from], &world.layers, wanted)
}

fn told(diff: &Diff) -> Vec<(ChangeKind, &str, &str)> {
    let text = |path: &[u8]| str::from_utf8(path).unwrap().to_owned().leak() as &str;
    let line = |c: &mayfly_orchestrator::snapshot::Change| {
        let from = c.from.as_deref().map_or("", text);
        (c.kind, from, text(&c.path))
    };
    diff.changes.iter().map(line).collect()
}

#[test]
fn a_moved_file_is_a_rename_and_so_is_a_folder_that_moved_whole() {
    let mut world = World::new(|work| {
        fs::create_dir_all(work.join("lib/deep")).unwrap();
        for n in 0..40 {
            fs::write(work.join(format!("lib/deep/{n}")), format!("file {n}\n")).unwrap();
        }
        fs::write(work.join("lib/empty"), "").unwrap();
        fs::write(work.join("twin"), "one\n").unwrap();
        fs::write(work.join("part"), "two\n").unwrap();
    });
    world.tick(|work| {
        fs::rename(work.join("lib"), work.join("moved")).unwrap();
        fs::create_dir(work.join("d")).unwrap();
        fs::rename(work.join("twin"), work.join("d/twin")).unwrap();
        fs::write(work.join("d/copy"), "one\n").unwrap();
    });
    let diff = since(&world, 0, &ALL);
    assert_eq!(
        told(&diff),
        [
            (ChangeKind::Added, "", "/work/d"),
            (ChangeKind::Added, "", "/work/d/copy"),
            (ChangeKind::Renamed, "/work/twin", "/work/d/twin"),
            (ChangeKind::Renamed, "/work/lib", "/work/moved"),
        ]
    );
    assert_eq!(diff.changes[3].below, 42);
    // One file more in the folder: it moved, but not as a whole.
    world.tick(|work| {
        fs::rename(work.join("moved"), work.join("again")).unwrap();
        fs::write(work.join("again/new"), "x").unwrap();
        fs::rename(work.join("part"), work.join("whole")).unwrap();
    });
    let diff = since(&world, 1, &ALL);
    let kinds = |kind| diff.changes.iter().filter(|c| c.kind == kind).count();
    assert_eq!(kinds(ChangeKind::Renamed), 2, "{:?}", told(&diff));
    let deep = (ChangeKind::Renamed, "/work/moved/deep", "/work/again/deep");
    assert!(told(&diff).contains(&deep), "{:?}", told(&diff));
    let plain = DiffWanted {
        renames: false,
        ..ALL
    };
    assert_eq!(since(&world, 1, &plain).changes.len(), 43 * 2 + 3);
}

#[test]
fn what_does_not_fit_is_counted_and_said() {
    let mut world = World::empty();
    world.tick(|work| {
        for n in 0..50 {
            fs::write(work.join(format!("{n:02}")), "x\n").unwrap();
        }
        fs::create_dir(work.join("zz")).unwrap();
        fs::write(work.join("zz/z"), "x\n").unwrap();
    });
    let few = DiffWanted { most: 10, ..ALL };
    let diff = since(&world, 0, &few);
    assert_eq!((diff.changes.len(), diff.more), (10, 42));
    world.tick(|work| {
        for n in 0..6 {
            let line = format!("{}\n", "x".repeat(99));
            fs::write(work.join(format!("long{n}")), line.repeat(10_000)).unwrap();
        }
        fs::write(work.join("binary"), b"\0").unwrap();
        fs::write(work.join("huge"), vec![b'\n'; (1 << 20) + 1]).unwrap();
    });
    let diff = since(&world, 1, &ALL);
    let text = |name: &str| {
        let path = [b"/work/", name.as_bytes()].concat();
        let change = diff.changes.iter().find(|c| c.path == path);
        change.unwrap().text.clone()
    };
    assert_eq!((text("binary"), text("huge")), (Text::Binary, Text::Large));
    let bytes: usize = diff
        .changes
        .iter()
        .map(|c| match &c.text {
            Text::Hunks(hunks) => hunks.len(),
            _ => 0,
        })
        .sum();
    assert!((1 << 20..=4 << 20).contains(&bytes), "{bytes}");
    assert_eq!(text("long5"), Text::LeftOut);
    assert_eq!(diff.notes.len(), 1, "{:?}", diff.notes);
    assert!(diff.notes[0].contains("left out"), "{:?}", diff.notes);
}

#[test]
fn states_on_different_bases_are_compared_whole() {
    let mut world = World::new(|work| {
        fs::write(work.join("same"), "1\n").unwrap();
        fs::write(work.join("other"), "1\n").unwrap();
    });
    let first = world.state(&[]);
    let base = mayfly_domain::BaseId::new();
    let aside = world.store.begin_base(&base).unwrap();
    for slot in &world.slots {
        fs::create_dir(aside.join(&slot.name)).unwrap();
    }
    fs::write(aside.join("work/same"), "1\n").unwrap();
    fs::write(aside.join("work/other"), "2\n").unwrap();
    world.store.finish_base(&base, &world.slots).unwrap();
    world.tick(|work| fs::write(work.join("more"), "3\n").unwrap());
    let second = State {
        base,
        layers: Vec::new(),
    };
    let diff = world.store.diff(&first, &second, &world.slots, &ALL);
    assert_eq!(
        told(&diff.unwrap()),
        [(ChangeKind::Modified, "", "/work/other")]
    );
    let diff = world
        .store
        .diff(&world.state(&world.layers), &second, &world.slots, &ALL);
    assert_eq!(
        told(&diff.unwrap()),
        [
            (ChangeKind::Removed, "", "/work/more"),
            (ChangeKind::Modified, "", "/work/other"),
        ]
    );
}
