//! Excluded paths are not kept, and what is there already stays.

use std::fs;

use mayfly_orchestrator::snapshot::exclude::Excludes;

use crate::{
    picture::{assert_same, take},
    world::{CAPS, World},
};

fn excludes(patterns: &[&str]) -> Excludes {
    let patterns: Vec<String> = patterns.iter().map(|p| (*p).to_owned()).collect();
    Excludes::new(&patterns).unwrap()
}

#[test]
fn what_a_tick_wrote_under_excluded_paths_is_not_back_in_the_next() {
    let mut world = World::new(|work| {
        fs::create_dir_all(work.join("app/node_modules/.cache")).unwrap();
        fs::write(work.join("app/node_modules/.cache/old"), "old").unwrap();
        fs::write(work.join("app/node_modules/.cache/gone"), "").unwrap();
        fs::write(work.join("app/x.tmp"), "base").unwrap();
    });
    let mut wanted = None;
    let layer = world.run(|work| {
        let modules = work.join("app/node_modules");
        fs::create_dir_all(modules.join("lib/deep/.cache.d")).unwrap();
        fs::write(modules.join("lib/index.js"), "code").unwrap();
        wanted = Some(take(work));
        fs::create_dir_all(modules.join(".cache/a/b")).unwrap();
        fs::write(modules.join(".cache/a/b/new"), vec![7; 1 << 20]).unwrap();
        fs::create_dir_all(modules.join("lib/node_modules/.cache")).unwrap();
        fs::write(work.join("app/x.tmp"), "changed").unwrap();
        fs::write(work.join("app/y.tmp"), "new").unwrap();
    });
    let patterns = [
        "/work/**/node_modules/.cache",
        "/work/app/*.tmp",
        "~/.cache/**",
    ];
    let dropped = world
        .store
        .exclude(&layer, &world.slots, &excludes(&patterns));
    assert!(dropped.unwrap() >= 7);
    let again = world
        .store
        .exclude(&layer, &world.slots, &excludes(&patterns));
    assert_eq!(again.unwrap(), 0, "repeatable");
    let caps = mayfly_orchestrator::snapshot::Caps {
        bytes: 256 << 10,
        ..CAPS
    };
    let sealed = world.seal(&layer, &caps).unwrap().layer.unwrap();
    assert!(sealed.bytes < 256 << 10, "{sealed:?}");
    world.layers.push(layer);
    let seen = world.view(take);
    let times = |picture: &crate::picture::Picture| {
        let mut picture = crate::picture::timeless(picture);
        // Made beside the excluded folder in it.
        picture.remove(&b"app/node_modules/lib/node_modules"[..]);
        picture
    };
    assert_same("excluded", &times(&wanted.unwrap()), &times(&seen));
    assert_eq!(seen[&b"app/x.tmp"[..]].content, b"base");
    assert_eq!(seen[&b"app/node_modules/.cache/old"[..]].content, b"old");
}

#[test]
fn a_folder_keeps_its_mtime_when_something_in_it_is_left_out() {
    let mut world = World::new(|work| fs::create_dir(work.join("d")).unwrap());
    let mut mtime = None;
    let layer = world.run(|work| {
        fs::write(work.join("d/f"), "f").unwrap();
        fs::write(work.join("d/x.log"), "x").unwrap();
        mtime = take(work)[&b"d"[..]].mtime;
    });
    std::thread::sleep(std::time::Duration::from_millis(20));
    let set = excludes(&["/work/**/*.log"]);
    assert_eq!(world.store.exclude(&layer, &world.slots, &set).unwrap(), 1);
    world.seal(&layer, &CAPS).unwrap();
    world.layers.push(layer);
    let seen = world.view(take);
    assert_eq!(seen[&b"d"[..]].mtime, mtime);
    assert!(!seen.contains_key(&b"d/x.log"[..]));
}

#[test]
fn patterns_that_could_never_match_are_refused() {
    for bad in ["node_modules", "", "/work/[", "~x"] {
        assert!(Excludes::new(&[bad.to_owned()]).is_err(), "{bad}");
    }
}
