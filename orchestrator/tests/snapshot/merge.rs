//! One layer instead of many.

use std::fs;

use mayfly_domain::LayerId;

use crate::{
    picture::{assert_same, take},
    world::World,
};

fn merge(world: &mut World) -> LayerId {
    let into = LayerId::new();
    world
        .store
        .merge(&world.base, &world.layers, &into, &world.slots)
        .unwrap();
    world.layers = vec![into.clone()];
    into
}

#[test]
fn whiteouts_stay_only_where_they_hide_something_of_the_base() {
    let mut world = World::new(|work| {
        fs::create_dir(work.join("d")).unwrap();
        fs::write(work.join("d/base"), "").unwrap();
        fs::write(work.join("base"), "").unwrap();
    });
    world.tick(|work| fs::write(work.join("mine"), "").unwrap());
    world.tick(|work| {
        fs::remove_file(work.join("mine")).unwrap();
        fs::remove_file(work.join("base")).unwrap();
        fs::remove_dir_all(work.join("d")).unwrap();
    });
    world.tick(|work| fs::create_dir(work.join("d")).unwrap());
    let before = world.view(take);
    let into = merge(&mut world);
    assert_same("merged", &before, &world.view(take));
    let names = fs::read_dir(world.layer(&into)).unwrap();
    let mut names: Vec<_> = names.map(|item| item.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["base", "d"]);
    let marks = crate::picture::xattrs(&world.layer(&into).join("d"));
    assert_eq!(
        marks,
        [("trusted.overlay.opaque".to_owned(), b"y".to_vec())]
    );
}

#[test]
fn a_merge_is_repeatable_and_leaves_nothing_aside() {
    let mut world = World::empty();
    for n in 0..3 {
        world.tick(|work| fs::write(work.join(n.to_string()), "").unwrap());
    }
    let chain = world.layers.clone();
    let into = merge(&mut world);
    let again = world.store.merge(&world.base, &chain, &into, &world.slots);
    assert_eq!(again.unwrap().inodes, 3);
    assert!(world.store.list_unsealed().unwrap().is_empty());
    assert!(world.store.present(&into));
}

#[test]
fn sixty_five_thousand_links_are_one_too_many_and_become_a_copy() {
    let mut world = World::empty();
    world.tick(|work| {
        fs::write(work.join("f"), "content").unwrap();
        fs::create_dir(work.join("l")).unwrap();
        for n in 1..40_000 {
            fs::hard_link(work.join("f"), work.join(format!("l/{n}"))).unwrap();
        }
    });
    let before = world.view(take_light);
    merge(&mut world);
    assert_eq!(before, world.view(take_light));
}

/// Names and content only: groups of links are split by the copy.
fn take_light(work: &std::path::Path) -> Vec<(std::ffi::OsString, Vec<u8>)> {
    let items = fs::read_dir(work.join("l")).unwrap();
    let read = |item: fs::DirEntry| (item.file_name(), fs::read(item.path()).unwrap());
    let mut all: Vec<_> = items.map(|item| read(item.unwrap())).collect();
    all.sort();
    all
}
