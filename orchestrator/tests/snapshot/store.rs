//! The store's own rules: caps, refusals, repetition, what is read back.

use std::{fs, io::Read, path::Path, time::Instant};

use mayfly_domain::LayerId;
use mayfly_orchestrator::snapshot::{Caps, SealError, SealedFolder, Store};

use crate::world::{CAPS, World};

#[test]
fn a_data_dir_that_no_mount_option_can_name_is_refused() {
    for bad in [
        "/tmp/a:b",
        "/tmp/a,b",
        "/tmp/a\\b",
        &format!("/{}", "x".repeat(60)),
    ] {
        assert!(Store::open(Path::new(bad)).is_err(), "{bad}");
    }
}

#[test]
fn a_cap_refuses_the_whole_layer_and_says_which() {
    let cases: [(Caps, &str); 3] = [
        (
            Caps {
                bytes: 1 << 20,
                ..CAPS
            },
            "1 MiB",
        ),
        (Caps { inodes: 5, ..CAPS }, "5 files"),
        (
            Caps {
                file_bytes: 1 << 20,
                ..CAPS
            },
            "a file of 1 MiB",
        ),
    ];
    for (caps, limit) in cases {
        let world = World::empty();
        let layer = world.run(|work| {
            fs::write(work.join("big"), vec![1; 2 << 20]).unwrap();
            for n in 0..9 {
                fs::write(work.join(n.to_string()), "").unwrap();
            }
        });
        let refused = world.seal(&layer, &caps).unwrap_err();
        assert_eq!(
            refused.to_string(),
            format!("the changes are larger than {limit}")
        );
        assert!(!world.store.present(&layer));
        assert_eq!(
            world.store.list_unsealed().unwrap(),
            std::slice::from_ref(&layer)
        );
        world.store.discard(&layer).unwrap();
        world.store.discard(&layer).unwrap();
        assert!(world.store.list_unsealed().unwrap().is_empty());
    }
}

#[test]
fn a_second_seal_answers_the_same_and_a_seal_of_nothing_is_an_error() {
    let world = World::empty();
    let layer = world.run(|work| fs::write(work.join("f"), "content").unwrap());
    let first = world.seal(&layer, &CAPS).unwrap();
    assert_eq!(world.seal(&layer, &CAPS).unwrap(), first);
    let unknown = world.seal(&LayerId::new(), &CAPS);
    assert!(matches!(unknown, Err(SealError::Missing { .. })));
}

#[test]
fn files_are_read_from_the_layer_and_no_link_is_followed() {
    let mut world = World::empty();
    world.tick(|work| {
        fs::create_dir_all(work.join("send/sub")).unwrap();
        fs::write(work.join("send/b.txt"), "bb").unwrap();
        fs::write(work.join("send/a.txt"), "a").unwrap();
        std::os::unix::fs::symlink("/etc/passwd", work.join("send/passwd")).unwrap();
        std::os::unix::fs::symlink("/etc", work.join("etc")).unwrap();
    });
    let (store, layer) = (&world.store, &world.layers[0]);
    let found = store.files_in(layer, "work", "send").unwrap();
    let files: Vec<_> = found.files.iter().map(|f| (&f.name[..], f.size)).collect();
    assert_eq!(files, [(&b"a.txt"[..], 1), (b"b.txt", 2)]);
    assert_eq!(found.others, [&b"passwd"[..], b"sub"]);
    for (slot, folder) in [("work", "etc"), ("work", "none"), ("home", "send")] {
        let nothing = store.files_in(layer, slot, folder).unwrap();
        assert_eq!(nothing, SealedFolder::default());
    }
    let mut text = String::new();
    let mut file = store.open_file(layer, "work", "send/b.txt").unwrap();
    file.read_to_string(&mut text).unwrap();
    assert_eq!(text, "bb");
    for outside in [
        "send/passwd",
        "etc/passwd",
        "../work/send/a.txt",
        "/etc/passwd",
        "send/sub",
    ] {
        assert!(
            store.open_file(layer, "work", outside).is_err(),
            "{outside}"
        );
    }
}

#[test]
fn a_seal_costs_what_changed_not_what_there_is() {
    let mut world = World::new(|work| {
        for n in 0..100_000 {
            fs::File::create(work.join(n.to_string())).unwrap();
        }
    });
    let layer = world.run(|work| fs::write(work.join("new"), "").unwrap());
    let started = Instant::now();
    world.seal(&layer, &CAPS).unwrap();
    let sealed = started.elapsed();
    world.layers.push(layer);
    let started = Instant::now();
    assert_eq!(
        world.view(|work| fs::read_dir(work).unwrap().count()),
        100_001
    );
    assert!(sealed < started.elapsed().max(std::time::Duration::from_millis(100)));
}

#[test]
fn both_slots_appear_together_and_only_those_that_changed() {
    let mut world = World::empty();
    world.tick(|work| fs::write(work.join("f"), "").unwrap());
    let layer = world.path("l").join(world.layers[0].as_str());
    let names: Vec<_> = fs::read_dir(layer)
        .unwrap()
        .map(|i| i.unwrap().file_name())
        .collect();
    assert_eq!(names, ["work"]);
}
