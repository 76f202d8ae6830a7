//! Many ticks in a row, each a random change, against a plain copy of the tree.

use std::{fs, path::Path};

use mayfly_domain::LayerId;
use rand::{Rng, SeedableRng, rngs::StdRng};

use crate::{
    diff::expected,
    picture::{Picture, assert_same, take, timeless},
    steps::{apply, choose, fill},
    world::World,
};

const TICKS: u32 = 25;
const STEPS: u32 = 14;

#[test]
fn random_ticks_and_merges_always_equal_a_plain_copy() {
    for seed in 0..6 {
        run(seed);
    }
}

fn run(seed: u64) {
    let mut random = StdRng::seed_from_u64(seed);
    let mut world = World::new(fill);
    let reference = world.path("ref");
    fs::create_dir(&reference).unwrap();
    fill(&reference);
    let mut before = world.view(take);
    for tick in 0..TICKS {
        let context = format!("seed {seed}, tick {tick}");
        let chain = world.layers.clone();
        let mut left = Picture::new();
        world.tick(|work| {
            for _ in 0..STEPS {
                if let Some(step) = choose(&mut random, &reference) {
                    apply(&reference, &step);
                    apply(work, &step);
                }
            }
            left = take(work);
        });
        for layer in &world.layers {
            assert_clean(&world.layer(layer), true);
        }
        let after = world.view(take);
        assert_same(&context, &left, &after);
        assert_same(&context, &timeless(&take(&reference)), &timeless(&after));
        let changes = world.diff(&chain, &world.layers);
        let changes: Vec<_> = changes.into_iter().map(|c| (c.path, c.kind)).collect();
        assert_eq!(changes, expected("/work", &before, &after), "{context}");
        if random.random_bool(0.25) {
            merge_some(&mut random, &mut world);
            assert_same(&context, &after, &world.view(take));
        }
        before = after;
    }
}

fn merge_some(random: &mut StdRng, world: &mut World) {
    if world.layers.is_empty() {
        return;
    }
    let count = random.random_range(1..=world.layers.len());
    let into = LayerId::new();
    let rest = world.layers.split_off(count);
    world
        .store
        .merge(&world.base, &world.layers, &into, &world.slots)
        .unwrap();
    for layer in std::mem::replace(&mut world.layers, vec![into]) {
        world.store.remove_layer(&layer).unwrap();
    }
    world.layers.extend(rest);
}

/// No mark of overlayfs or ours but the opaque one is left.
fn assert_clean(path: &Path, root: bool) {
    for (name, value) in crate::picture::xattrs(path) {
        let opaque = !root && name == "trusted.overlay.opaque" && value == b"y";
        let ours = name.starts_with("user.") || opaque;
        assert!(ours, "{}: {name}", path.display());
    }
    if fs::symlink_metadata(path).unwrap().is_dir() {
        for item in fs::read_dir(path).unwrap() {
            assert_clean(&item.unwrap().path(), false);
        }
    }
}
