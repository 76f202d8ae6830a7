//! Files that other archives lose.

use std::{
    ffi::OsString,
    fs::{self, File},
    os::unix::{
        ffi::OsStringExt,
        fs::{FileExt, MetadataExt, PermissionsExt, symlink},
    },
    path::Path,
};

use mayfly_orchestrator::snapshot::oci::{Compress, Output};
use rustix::fs::{AtFlags, CWD, Gid, Uid, XattrFlags, setxattr};

use crate::{
    archive::{export, export_as, history, import},
    picture::{assert_same, take},
    world::World,
};

/// One of everything, over two ticks.
pub(crate) fn odd_world() -> World {
    let mut world = World::new(|work| {
        fs::create_dir_all(work.join("base/d")).unwrap();
        fs::write(work.join("base/d/f"), "base").unwrap();
        fs::write(work.join("base/gone"), "gone").unwrap();
        fs::write(work.join(".wh.base"), "a user's file").unwrap();
    });
    world.tick(first);
    world.tick(second);
    world
}

fn first(work: &Path) {
    let long = "n".repeat(200);
    fs::create_dir_all(work.join(&long).join("p".repeat(150))).unwrap();
    fs::write(work.join(&long).join("p".repeat(150)).join("f"), "deep").unwrap();
    symlink("/etc/alternatives/python", work.join("python")).unwrap();
    symlink("loop", work.join("loop")).unwrap();
    symlink("t".repeat(150), work.join("far")).unwrap();
    let any: OsString = OsString::from_vec(b"\xff\n\t =\\\"".to_vec());
    fs::write(work.join(any), "any bytes").unwrap();
    fs::write(work.join(".wh.x"), "looks like a mark").unwrap();
    fs::write(work.join("x"), "must stay").unwrap();
    fs::write(work.join("%.wh.x"), "looks like an escape").unwrap();
    fs::create_dir(work.join("locked")).unwrap();
    fs::write(work.join("locked/inside"), "inside").unwrap();
    owner(&work.join("locked/inside"), 1000, 2000);
    owner(&work.join("x"), 4_000_000_000, 3_000_000_000);
    mode(&work.join("locked"), 0o000);
    fs::create_dir(work.join("links")).unwrap();
    fs::write(work.join("links/a"), "linked").unwrap();
    fs::hard_link(work.join("links/a"), work.join("links/b")).unwrap();
    fs::hard_link(work.join("links/a"), work.join("a")).unwrap();
    symlink("target", work.join("links/s")).unwrap();
    fs::hard_link(work.join("links/s"), work.join("s2")).unwrap();
    xattr(&work.join("x"), "user.mark", b"binary\0\n=value");
    xattr(&work.join("x"), "user.a=b", b"");
    xattr(&work.join("links"), "user.of.a.folder", b"v");
    let sparse = File::create(work.join("sparse")).unwrap();
    sparse.set_len(64 << 20).unwrap();
    sparse.write_all_at(b"middle", 8 << 20).unwrap();
    File::create(work.join("hole"))
        .unwrap()
        .set_len(1 << 20)
        .unwrap();
    let early = std::time::UNIX_EPOCH - std::time::Duration::from_nanos(1);
    sparse.set_modified(early).unwrap();
}

fn second(work: &Path) {
    // Links that stay in the old layer and move within the new one.
    fs::rename(work.join("links"), work.join("moved")).unwrap();
    fs::remove_file(work.join("base/gone")).unwrap();
    fs::remove_file(work.join(".wh.x")).unwrap();
    fs::remove_file(work.join(".wh.base")).unwrap();
    fs::remove_dir_all(work.join("base/d")).unwrap();
    fs::create_dir(work.join("base/d")).unwrap();
    fs::write(work.join("base/d/new"), "opaque").unwrap();
}

fn owner(path: &Path, uid: u32, gid: u32) {
    let (uid, gid) = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
    rustix::fs::chownat(CWD, path, uid, gid, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn xattr(path: &Path, name: &str, value: &[u8]) {
    setxattr(path, name, value, XattrFlags::empty()).unwrap();
}

#[test]
fn sn_08_sn_10_everything_odd_comes_back_in_each_compression() {
    let world = odd_world();
    let before = world.view(take);
    for compress in [Compress::Gzip, Compress::Zstd, Compress::None] {
        let layout = world.path(format!("{compress:?}"));
        export(&world, compress, &layout);
        let mut other = World::empty();
        import(&mut other, &layout).unwrap();
        assert_same(&format!("{compress:?}"), &before, &other.view(take));
        other.view(|work| {
            let links = |path| fs::metadata(work.join(path)).unwrap().ino();
            assert_eq!(links("a"), links("moved/a"), "a link into an older layer");
            assert_eq!(links("moved/b"), links("moved/a"));
            assert!(fs::metadata(work.join("sparse")).unwrap().blocks() < 64);
            assert_eq!(fs::metadata(work.join("hole")).unwrap().blocks(), 0);
        });
    }
}

#[test]
fn the_same_state_makes_the_same_bytes() {
    let world = odd_world();
    let records = crate::archive::history(&world.layers, true).to_lines();
    let make = |name: &str| {
        let done = crate::archive::export_with(&world, Compress::Gzip, &records, &world.path(name));
        done.unwrap().digest
    };
    assert_eq!(make("one"), make("two"));
}

#[test]
fn sn_12_a_failed_export_leaves_nothing() {
    let mut world = odd_world();
    world.layers.push(mayfly_domain::LayerId::new());
    let to = world.path("out");
    let error = crate::archive::export_with(&world, Compress::Gzip, b"", &to).unwrap_err();
    assert!(error.to_string().contains("is missing"), "{error}");
    assert!(!to.exists());
}

#[test]
fn a_file_has_the_same_bytes_as_a_stream() {
    let mut world = odd_world();
    // One blob for all three: it is kept once.
    for _ in 0..3 {
        world.tick(|work| fs::write(work.join("same"), "same").unwrap());
    }
    let records = history(&world.layers, true).to_lines();
    for compress in [Compress::None, Compress::Gzip, Compress::Zstd] {
        let dir = tempfile::tempdir().unwrap();
        let mut stream = Vec::new();
        let to = Output::Stream {
            to: &mut stream,
            aside: dir.path(),
        };
        let streamed = export_as(&world, compress, &records, to).unwrap();
        let path = dir.path().join("agent.tar");
        let file = File::create_new(&path).unwrap();
        let to = Output::File(&file, &path);
        let written = export_as(&world, compress, &records, to).unwrap();
        assert_eq!(written, streamed);
        assert!(fs::read(&path).unwrap() == stream, "{compress:?}");
    }
}
