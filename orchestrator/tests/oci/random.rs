//! Random trees over many ticks come back from an archive as they were, and make it again.

use std::{
    fs::{self, File},
    os::unix::fs::{FileExt, MetadataExt},
    path::Path,
};

use mayfly_orchestrator::snapshot::oci::Compress;
use rand::{Rng, SeedableRng, rngs::StdRng};

use crate::{
    archive::{export, import},
    picture::{assert_same, take},
    steps::{apply, choose, fill},
    world::World,
};

const TICKS: u32 = 8;
const STEPS: u32 = 14;

#[test]
fn random_ticks_come_back_from_an_archive() {
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
    for tick in 0..TICKS {
        world.tick(|work| {
            for _ in 0..STEPS {
                if let Some(step) = choose(&mut random, &reference) {
                    apply(&reference, &step);
                    apply(work, &step);
                }
            }
            odd(&mut random, work, tick);
        });
    }
    let before = (world.view(take), world.view(holes));
    let compress = [Compress::Gzip, Compress::Zstd, Compress::None][seed as usize % 3];
    let first = export(&world, compress, &world.path("out-a"));
    let mut other = World::empty();
    import(&mut other, &world.path("out-a")).unwrap();
    let after = (other.view(take), other.view(holes));
    assert_same(&format!("seed {seed}"), &before.0, &after.0);
    assert_eq!(before.1, after.1, "seed {seed}");
    // Each state on the way is there too.
    for _ in 0..TICKS / 2 {
        world.layers.pop();
        other.layers.pop();
        assert_same("earlier", &world.view(take), &other.view(take));
    }
    // A second hop makes the same bytes but for the records' random ids.
    let mut third = World::empty();
    import(&mut third, &world.path("out-a")).unwrap();
    export(&third, compress, &third.path("out-b"));
    let files = |of: &Path| {
        let manifest = manifest(of);
        let layers = manifest["layers"].as_array().unwrap().clone();
        layers[..layers.len() - 1].to_vec()
    };
    assert_eq!(files(&world.path("out-a")), files(&third.path("out-b")));
    assert!(first.layers > 2);
}

pub(crate) fn manifest(layout: &Path) -> serde_json::Value {
    let read = |path: &Path| serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    let index: serde_json::Value = read(&layout.join("index.json"));
    let digest = index["manifests"][0]["digest"].as_str().unwrap();
    read(&layout.join("blobs").join(digest.replace(':', "/")))
}

/// What the steps do not make: holes, names that look like marks, early times.
pub(crate) fn odd(random: &mut StdRng, work: &Path, tick: u32) {
    let file = File::create(work.join(format!("sparse{}", tick % 3))).unwrap();
    file.set_len(random.random_range(0..64 << 20)).unwrap();
    for _ in 0..3 {
        let at = random.random_range(0..1 << 14);
        file.write_all_at(b"data", at * 4096).unwrap();
    }
    fs::write(work.join(format!(".wh.x{}", tick % 2)), "").unwrap();
    let _ = fs::remove_file(work.join(format!(".wh.x{}", (tick + 1) % 2)));
    let early = std::time::UNIX_EPOCH - std::time::Duration::from_nanos(random.random());
    file.set_modified(early).unwrap();
}

/// Where each sparse file has data.
fn holes(work: &Path) -> Vec<(String, u64)> {
    let items = fs::read_dir(work).unwrap().map(|item| item.unwrap());
    let sparse = items.filter(|item| item.file_name().to_string_lossy().starts_with("sparse"));
    let mut found: Vec<_> = sparse
        .map(|item| {
            let name = item.file_name().into_string().unwrap();
            (name, fs::metadata(item.path()).unwrap().blocks())
        })
        .collect();
    found.sort();
    found
}
