//! What the distribution's own software makes of an export: skopeo, umoci and the Docker engine.

use std::{
    path::Path,
    process::{Command, Output},
};

use mayfly_orchestrator::snapshot::oci::Compress;

use crate::{
    archive::export,
    picture::{Picture, assert_same, take, without_holes},
    round_trip::odd_world,
    world::World,
};

fn run(program: &str, arguments: &[&str]) -> Output {
    let output = Command::new(program).args(arguments).output();
    output.unwrap_or_else(|error| panic!("{program}: {error}; tests/run installs it"))
}

fn ran(program: &str, arguments: &[&str]) -> Vec<u8> {
    let output = run(program, arguments);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {told}");
    output.stdout
}

fn exported(world: &World, compress: Compress) -> String {
    let layout = world.path(format!("out-{compress:?}"));
    export(world, compress, &layout);
    layout.to_str().unwrap().to_owned()
}

#[test]
fn skopeo_reads_the_image_its_labels_and_its_layers() {
    let world = odd_world();
    for compress in [Compress::Gzip, Compress::None, Compress::Zstd] {
        let layout = exported(&world, compress);
        let inspected = ran("skopeo", &["inspect", &format!("oci:{layout}")]);
        let inspected: serde_json::Value = serde_json::from_slice(&inspected).unwrap();
        assert_eq!(inspected["Labels"]["dev.mayfly.form"], "1");
        // The base, two ticks, the records.
        assert_eq!(inspected["Layers"].as_array().unwrap().len(), 4);
        assert_eq!(inspected["Os"], "linux");
    }
}

/// As root, so owners, devices-free modes and attributes are what they say.
fn unpacked(layout: &str, bundle: &Path) -> Picture {
    let bundle = bundle.to_str().unwrap();
    let image = format!("{layout}:latest");
    ran("umoci", &["unpack", "--image", &image, bundle]);
    take(&Path::new(bundle).join("rootfs/work"))
}

/// Others take a user's name for what it is written as.
fn as_umoci_shows(of: Picture) -> Picture {
    let renamed = |path: Vec<u8>| -> Vec<u8> {
        let names = path.split(|byte| *byte == b'/');
        let names: Vec<Vec<u8>> = names
            .map(|name| {
                let bare = name.iter().position(|byte| *byte != b'%').unwrap_or(0);
                match name[bare..].starts_with(b".wh.") {
                    true => [b"%", name].concat(),
                    false => name.to_vec(),
                }
            })
            .collect();
        names.join(&b'/')
    };
    // No reader but ours links into older layers.
    let moved = |path: &[u8]| path.starts_with(b"moved/");
    let mut first = std::collections::BTreeMap::new();
    for (path, entry) in &of {
        let group = (moved(path), entry.linked_to.clone());
        first.entry(group).or_insert_with(|| path.clone());
    }
    let entries = of.into_iter().map(|(path, mut entry)| {
        entry.linked_to = renamed(first[&(moved(&path), entry.linked_to)].clone());
        // No PAX key can hold a `=`.
        entry.xattrs.retain(|(name, _)| !name.contains('='));
        (renamed(path), entry)
    });
    entries.collect()
}

#[test]
fn umoci_unpacks_exactly_the_state() {
    let world = odd_world();
    let state = without_holes(as_umoci_shows(world.view(take)));
    for compress in [Compress::Gzip, Compress::None] {
        let layout = exported(&world, compress);
        let bundle = world.path(format!("bundle-{compress:?}"));
        let shown = without_holes(unpacked(&layout, &bundle));
        assert_same("umoci", &state, &shown);
    }
}

#[test]
fn the_engine_loads_it_and_a_container_sees_the_files() {
    let world = odd_world();
    // The engine of the distribution takes no zstd.
    for compress in [Compress::Gzip, Compress::None] {
        let layout = exported(&world, compress);
        let name = format!("mayfly-test-oci-{}", world.base);
        let to = format!("docker-daemon:{name}:x");
        let copied = run("skopeo", &["copy", &format!("oci:{layout}:latest"), &to]);
        let told = String::from_utf8_lossy(&copied.stderr).into_owned();
        assert!(copied.status.success(), "{compress:?}: {told}");
        let image = format!("{name}:x");
        let container = ran("docker", &["create", "--network", "none", &image, "/none"]);
        let container = String::from_utf8(container).unwrap().trim().to_owned();
        let out = world.path(format!("cp-{compress:?}"));
        let from = format!("{container}:/work");
        let seen = run("docker", &["cp", "-a", &from, out.to_str().unwrap()]);
        ran("docker", &["rm", "-f", &container]);
        ran("docker", &["rmi", &image]);
        assert!(seen.status.success(), "{seen:?}");
        let names = |path: &Path| -> Vec<Vec<u8>> { take(path).into_keys().collect() };
        let state: Vec<_> = as_umoci_shows(world.view(take)).into_keys().collect();
        assert_eq!(names(&out), state);
        for file in ["x", "moved/a", "base/d/new", "%.wh.x"] {
            let seen = std::fs::read(out.join(file));
            assert!(seen.is_ok() || file == "%.wh.x", "{file}: {seen:?}");
        }
        let sparse = std::fs::read(out.join("sparse")).unwrap();
        assert_eq!(sparse.len(), 64 << 20);
        assert_eq!(&sparse[8 << 20..(8 << 20) + 6], b"middle");
    }
}
