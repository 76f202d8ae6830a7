//! Trees deeper than a path may be long and than a process may hold open.

use std::{os::fd::OwnedFd, path::Path, time::Instant};

use mayfly_domain::LayerId;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, mkdirat, openat, renameat, unlinkat};

use crate::world::World;

const LEVELS: usize = 3_000;

fn open(dir: &OwnedFd, name: &str) -> OwnedFd {
    openat(dir, name, OFlags::DIRECTORY | OFlags::RDONLY, Mode::empty()).unwrap()
}

fn start(work: &Path) -> OwnedFd {
    openat(CWD, work, OFlags::DIRECTORY | OFlags::RDONLY, Mode::empty()).unwrap()
}

fn bottom(work: &Path, first: &str, levels: usize) -> OwnedFd {
    let top = open(&start(work), first);
    (1..levels).fold(top, |dir, _| open(&dir, "folder"))
}

fn write(dir: &OwnedFd, name: &str) {
    let flags = OFlags::CREATE | OFlags::WRONLY;
    openat(dir, name, flags, Mode::from_raw_mode(0o644)).unwrap();
}

fn make(work: &Path, levels: usize) {
    let mode = Mode::from_raw_mode(0o755);
    let mut dir = start(work);
    mkdirat(&dir, "top", mode).unwrap();
    dir = open(&dir, "top");
    for _ in 1..levels {
        mkdirat(&dir, "folder", mode).unwrap();
        dir = open(&dir, "folder");
    }
    write(&dir, "bottom");
}

#[test]
fn three_thousand_levels_are_sealed_moved_merged_compared_and_removed() {
    let mut world = World::empty();
    world.tick(|work| make(work, LEVELS));
    world.tick(|work| {
        write(&bottom(work, "top", LEVELS), "second");
        renameat(CWD, work.join("top"), CWD, work.join("moved")).unwrap();
    });
    world.tick(|work| {
        let dir = bottom(work, "moved", LEVELS);
        unlinkat(&dir, "bottom", AtFlags::empty()).unwrap();
    });
    let into = LayerId::new();
    let started = Instant::now();
    world
        .store
        .merge(&world.base, &world.layers, &into, &world.slots)
        .unwrap();
    let merged = [into];
    let changes = |from, to| {
        let changes = world.diff(from, to);
        changes.len()
    };
    assert_eq!(changes(&world.layers, &merged), 0);
    assert_eq!(changes(&[], &merged), LEVELS + 1);
    for layer in world.layers.iter().chain(&merged) {
        world.store.remove_layer(layer).unwrap();
    }
    assert!(started.elapsed().as_secs() < 60);
    assert!(world.store.list_layers().unwrap().is_empty());
}
