//! Layers and bases that travel by themselves arrive as they were sealed.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
};

use mayfly_domain::LayerId;
use mayfly_orchestrator::snapshot::oci::{Budget, OciError, Parcel};
use rand::{SeedableRng, rngs::StdRng};
use sha2::{Digest, Sha256};

use crate::{
    picture::{Picture, assert_same, take},
    random::odd,
    round_trip::odd_world,
    steps::{apply, choose, fill},
    world::World,
};

const CHAR_DEVICE: u32 = 0o020000;
const KIND: u32 = 0o170000;

/// As it lies on the disk, but for what overlayfs noted for itself and never shows: on whiteouts
/// everything, and attributes of its own beside the opaque mark.
fn sealed(folder: &Path) -> Picture {
    let mut picture = take(folder);
    for (path, entry) in &mut picture {
        let own = |name: &str| name.starts_with("trusted.overlay.");
        entry
            .xattrs
            .retain(|(name, _)| !own(name) || name == "trusted.overlay.opaque");
        if entry.mode & KIND == CHAR_DEVICE {
            entry.mode = CHAR_DEVICE;
            entry.owner = (0, 0);
            entry.mtime = None;
            entry.linked_to = path.clone();
        }
    }
    picture
}

/// As a sandbox sees it; files that different layers shared are files of their own.
fn seen(world: &World) -> Picture {
    let mut picture = world.view(take);
    picture
        .values_mut()
        .for_each(|entry| entry.linked_to.clear());
    picture
}

fn pack(world: &World, layer: &LayerId, to: &str) -> (PathBuf, Parcel) {
    let path = world.path(to);
    let file = File::create(&path).unwrap();
    let packed = world.store.pack_layer(layer, &world.slots, file);
    (path, packed.unwrap())
}

fn unpack(world: &World, layer: &LayerId, from: &Path) -> Result<(), OciError> {
    let room = |_| true;
    let mut budget = Budget::new(u64::MAX, u64::MAX, &room);
    let from = File::open(from).unwrap();
    let done = world
        .store
        .unpack_layer(layer, &world.slots, from, &mut budget);
    done.map(drop)
}

/// Everything goes through parcels into another world.
fn travelled(world: &World) -> World {
    let mut other = World::empty();
    let base = world.path("base");
    let packed = world
        .store
        .pack_base(&world.base, &world.slots, File::create(&base).unwrap());
    assert_eq!(packed.unwrap().size, fs::metadata(&base).unwrap().len());
    let room = |_| true;
    let mut budget = Budget::new(u64::MAX, u64::MAX, &room);
    let from = File::open(&base).unwrap();
    let made = other
        .store
        .unpack_base(&world.base, &world.slots, from, &mut budget);
    made.unwrap();
    other.base = world.base.clone();
    for layer in &world.layers {
        let (path, parcel) = pack(world, layer, "parcel");
        let bytes = fs::read(&path).unwrap();
        assert_eq!(parcel.digest, hex::encode(Sha256::digest(&bytes)));
        assert_eq!(parcel.size, bytes.len() as u64);
        unpack(&other, layer, &path).unwrap();
        other.layers.push(layer.clone());
        let (again, same) = pack(&other, layer, "again");
        assert_eq!(same, parcel, "the second hop makes the same bytes");
        drop(again);
    }
    other
}

fn assert_arrived(context: &str, world: &World, other: &World) {
    for layer in &world.layers {
        let (was, is) = (world.layer(layer), other.layer(layer));
        assert_eq!(was.is_dir(), is.is_dir(), "{context}");
        if was.is_dir() {
            assert_same(context, &sealed(&was), &sealed(&is));
        }
    }
    assert_same(context, &seen(world), &seen(other));
}

#[test]
fn a_layer_arrives_byte_for_byte_with_everything_odd() {
    let world = odd_world();
    let other = travelled(&world);
    assert_arrived("odd", &world, &other);
}

#[test]
fn random_ticks_arrive_as_they_were() {
    for seed in 100..105 {
        let mut random = StdRng::seed_from_u64(seed);
        let mut world = World::new(fill);
        let reference = world.path("ref");
        fs::create_dir(&reference).unwrap();
        fill(&reference);
        for tick in 0..6 {
            world.tick(|work| {
                for _ in 0..14 {
                    if let Some(step) = choose(&mut random, &reference) {
                        apply(&reference, &step);
                        apply(work, &step);
                    }
                }
                odd(&mut random, work, tick);
            });
        }
        let other = travelled(&world);
        assert_arrived(&format!("seed {seed}"), &world, &other);
    }
}

#[test]
fn what_is_no_parcel_leaves_nothing_and_a_good_one_comes_after_it() {
    let world = odd_world();
    let layer = &world.layers[0];
    let (path, _) = pack(&world, layer, "parcel");
    let good = fs::read(&path).unwrap();
    let other = World::empty();
    let bad = other.path("bad");
    let mut flipped = good.clone();
    flipped[good.len() / 2] ^= 0xff;
    for bytes in [&good[..good.len() / 2], &flipped, b"", b"no archive at all"] {
        fs::write(&bad, bytes).unwrap();
        unpack(&other, layer, &bad).unwrap_err();
        for folder in ["l", "u"] {
            let left = fs::read_dir(other.path(folder)).unwrap().count();
            assert_eq!(left, 0, "{folder}");
        }
    }
    unpack(&other, layer, &path).unwrap();
    assert_same(
        "after all",
        &sealed(&world.layer(layer)),
        &sealed(&other.layer(layer)),
    );
}

#[test]
fn a_full_disk_stops_it_before_it_is_full() {
    let world = odd_world();
    let (path, _) = pack(&world, &world.layers[0], "parcel");
    let other = World::empty();
    let room = |_| false;
    let mut budget = Budget::new(u64::MAX, u64::MAX, &room);
    let from = File::open(path).unwrap();
    let error = other
        .store
        .unpack_layer(&world.layers[0], &world.slots, from, &mut budget);
    let told = error.unwrap_err().to_string();
    assert!(told.contains("no room"), "{told}");
    assert_eq!(fs::read_dir(other.path("u")).unwrap().count(), 0);
}
