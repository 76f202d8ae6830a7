//! A state read without a mount shows what the next tick will see, and nothing else.

use std::{
    fs,
    io::Read as _,
    os::unix::{ffi::OsStrExt as _, fs as unix},
    path::Path,
};

use mayfly_domain::LayerId;
use mayfly_orchestrator::snapshot::{FileEntry, Listed, LookError, Looked};

use crate::{picture::take, world::World};

const ALL: Listed = Listed {
    recursive: true,
    most: 10_000,
    after: None,
};

fn look(world: &World, path: &str) -> Result<Looked, LookError> {
    let state = world.state(&world.layers);
    world.store.look(&state, &world.slots, path.as_bytes(), ALL)
}

fn content(world: &World, path: &str) -> String {
    match look(world, path).unwrap() {
        Looked::File(entry, mut file) => {
            let mut text = String::new();
            file.read_to_string(&mut text).unwrap();
            assert_eq!(entry.size, text.len() as u64);
            text
        }
        other => panic!("{other:?}"),
    }
}

fn entries(world: &World, path: &str) -> Vec<FileEntry> {
    match look(world, path).unwrap() {
        Looked::Folder {
            entries,
            more: false,
            ..
        } => entries,
        other => panic!("{other:?}"),
    }
}

fn refused(world: &World, path: &str) -> String {
    look(world, path).unwrap_err().to_string()
}

/// Whiteouts, replaced folders and moved ones, with and without a merge.
fn changed() -> World {
    let mut world = World::new(|work| {
        fs::create_dir_all(work.join("d/sub")).unwrap();
        fs::write(work.join("d/old"), "old").unwrap();
        fs::write(work.join("d/sub/f"), "f").unwrap();
        fs::write(work.join("gone"), "gone").unwrap();
    });
    world.tick(|work| {
        fs::remove_file(work.join("gone")).unwrap();
        fs::remove_dir_all(work.join("d")).unwrap();
        fs::create_dir(work.join("d")).unwrap();
        fs::write(work.join("d/new"), "new").unwrap();
        fs::create_dir_all(work.join("a/b")).unwrap();
        fs::write(work.join("a/b/c"), "c").unwrap();
        fs::write(
            work.join(std::ffi::OsStr::from_bytes(b"\xff\n\x1b[31m")),
            "odd",
        )
        .unwrap();
    });
    world.tick(|work| {
        fs::rename(work.join("a"), work.join("z")).unwrap();
        unix::symlink("/etc/passwd", work.join("link")).unwrap();
        unix::symlink("z", work.join("folder")).unwrap();
    });
    world
}

fn assert_as_mounted(world: &World) {
    let mounted = world.view(take);
    let mut read: Vec<_> = entries(world, "/work")
        .into_iter()
        .map(|entry| {
            let path = entry.path.strip_prefix(b"/work/").unwrap().to_vec();
            (path, entry.mode, (entry.uid, entry.gid))
        })
        .collect();
    read.sort();
    let wanted: Vec<_> = mounted
        .into_iter()
        .filter(|(path, _)| !path.is_empty())
        .map(|(path, entry)| (path, entry.mode, entry.owner))
        .collect();
    assert_eq!(read, wanted);
}

#[test]
fn what_is_read_is_what_a_tick_would_see() {
    let mut world = changed();
    assert_as_mounted(&world);
    assert_eq!(content(&world, "/work/z/b/c"), "c");
    assert_eq!(content(&world, "//work/./d//new"), "new");
    let into = LayerId::new();
    world
        .store
        .merge(&world.base, &world.layers, &into, &world.slots)
        .unwrap();
    world.layers = vec![into];
    assert_as_mounted(&world);
    assert_eq!(content(&world, "/work/z/b/c"), "c");
}

#[test]
fn links_are_shown_and_never_followed_and_nothing_else_is_reached() {
    let world = changed();
    let link = look(&world, "/work/link").unwrap();
    assert!(
        matches!(&link, Looked::Link(entry) if entry.target.as_deref() == Some(b"/etc/passwd")),
        "{link:?}"
    );
    let told = refused(&world, "/work/folder/b/c");
    assert!(
        told.contains("/work/folder is a link") && told.contains("points to z"),
        "{told}"
    );
    let told = refused(&world, "/work/d/new/x");
    assert!(told.contains("/work/d/new is a file, no folder"), "{told}");
    assert!(refused(&world, "/work/gone").contains("has no /work/gone"));
    assert!(refused(&world, "/work/d/old").contains("has no"));
    for outside in ["/etc/passwd", "/workshop", "/home", "/work2/x"] {
        let told = refused(&world, outside);
        assert!(told.contains("/work and /home/agent"), "{told}");
    }
    for bad in ["/work/../etc/passwd", "work", "", "/work/a\0b"] {
        let told = refused(&world, bad);
        assert!(told.contains("is no path"), "{bad}: {told}");
    }
    let paths: Vec<_> = entries(&world, "/").into_iter().map(|e| e.path).collect();
    assert_eq!(paths, [&b"/home/agent"[..], b"/work"]);
    assert!(!refused(&world, "/work/\x1b[31m").contains('\x1b'));
}

#[test]
fn pages_of_a_listing_are_the_whole_of_it() {
    let world = changed();
    let state = world.state(&world.layers);
    let page = |listed| {
        let looked = world.store.look(&state, &world.slots, b"/work", listed);
        match looked.unwrap() {
            Looked::Folder { entries, more, .. } => (entries, more),
            other => panic!("{other:?}"),
        }
    };
    for recursive in [true, false] {
        let whole = Listed { recursive, ..ALL };
        let (whole, more) = page(whole);
        assert!(whole.len() > 3 && !more);
        for most in 1..=whole.len() {
            let (mut pages, mut after) = (Vec::new(), None);
            loop {
                let (entries, more) = page(Listed {
                    recursive,
                    most,
                    after,
                });
                assert!(
                    entries.len() == most || !more,
                    "a short page is the last one"
                );
                pages.extend(entries);
                if !more {
                    break;
                }
                after = pages.last().map(|entry: &FileEntry| entry.path.clone());
            }
            assert_eq!(pages, whole, "pages of {most}");
        }
    }
    // What the last page ended with may be gone meanwhile.
    let after = Some(b"/work/\x01".to_vec());
    assert_eq!(page(Listed { after, ..ALL }).0, page(ALL).0);
    for bad in ["/work", "/work/", "/home/agent/x", "x"] {
        let after = Some(bad.into());
        let looked = world
            .store
            .look(&state, &world.slots, b"/work", Listed { after, ..ALL });
        let told = looked.unwrap_err().to_string();
        assert!(told.contains("does not lie in /work"), "{bad}: {told}");
    }
}

#[test]
fn a_long_listing_is_cut_and_a_missing_layer_is_an_error() {
    let world = changed();
    let few = Listed {
        recursive: true,
        most: 3,
        after: None,
    };
    let state = world.state(&world.layers);
    match world
        .store
        .look(&state, &world.slots, b"/work", few)
        .unwrap()
    {
        Looked::Folder { entries, more, .. } => assert_eq!((entries.len(), more), (3, true)),
        other => panic!("{other:?}"),
    }
    let gone = world.path("l").join(world.layers[0].as_str());
    fs::rename(&gone, Path::new(&gone).with_extension("aside")).unwrap();
    let told = refused(&world, "/work/d/new");
    assert!(
        told.contains(&format!(
            "layer {} of this state is missing",
            world.layers[0]
        )),
        "{told}"
    );
}
