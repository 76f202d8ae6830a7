//! Files that other snapshot tools lose, hang on or blow up.

use std::{
    fs::{self, File},
    os::unix::{
        ffi::OsStringExt,
        fs::{FileTypeExt, MetadataExt, PermissionsExt},
        net::UnixListener,
    },
    path::Path,
    time::{Duration, Instant},
};

use rustix::fs::{CWD, FileType, Mode, XattrFlags, mknodat, setxattr};

use crate::{
    picture::{assert_same, take},
    world::World,
};

fn names(dir: &Path) -> Vec<String> {
    let items = fs::read_dir(dir).unwrap();
    let mut names: Vec<_> = items
        .map(|item| item.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn fifo(path: impl AsRef<Path>) {
    mknodat(
        CWD,
        path.as_ref(),
        FileType::Fifo,
        Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
}

#[test]
fn sn_01_new_recreated_and_moved_folders_are_exactly_what_the_tick_left() {
    let mut world = World::new(|work| {
        fs::create_dir_all(work.join("d")).unwrap();
        fs::create_dir_all(work.join("p")).unwrap();
        for file in ["d/a", "d/b", "p/f"] {
            fs::write(work.join(file), file).unwrap();
        }
    });
    world.tick(|work| {
        fs::create_dir(work.join("new")).unwrap();
        fs::remove_dir_all(work.join("d")).unwrap();
        fs::create_dir(work.join("d")).unwrap();
        fs::write(work.join("d/c"), "").unwrap();
        fs::rename(work.join("p"), work.join("q")).unwrap();
    });
    world.view(|work| {
        assert_eq!(names(work), ["d", "new", "q"]);
        assert_eq!(names(&work.join("d")), ["c"]);
        assert_eq!(names(&work.join("q")), ["f"]);
        assert_eq!(fs::read(work.join("q/f")).unwrap(), b"p/f");
        assert!(names(&work.join("new")).is_empty());
    });
}

#[test]
fn sn_03_a_sparse_file_costs_what_it_holds() {
    let mut world = World::empty();
    let started = Instant::now();
    let sealed = world.tick(|work| {
        let file = File::create(work.join("big")).unwrap();
        file.set_len(5 << 30).unwrap();
        std::os::unix::fs::FileExt::write_at(&file, b"end", (5 << 30) - 3).unwrap();
    });
    assert!(sealed.layer.unwrap().bytes < 64 << 10);
    world.view(|work| {
        let meta = fs::metadata(work.join("big")).unwrap();
        assert_eq!(meta.len(), 5 << 30);
        assert!(meta.blocks() < 128);
    });
    assert!(started.elapsed() < Duration::from_secs(5));
}

#[test]
fn sn_05_sockets_and_fifos_are_left_out_and_told() {
    let mut world = World::empty();
    let sealed = world.tick(|work| {
        let socket = UnixListener::bind(work.join(".s.PGSQL.5432")).unwrap();
        drop(socket);
        fs::create_dir(work.join("d")).unwrap();
        fifo(work.join("d/pipe"));
        fs::write(work.join("d/rest"), "kept").unwrap();
    });
    assert_eq!(
        sealed.notes,
        [
            "dropped socket /work/.s.PGSQL.5432",
            "dropped fifo /work/d/pipe"
        ]
    );
    world.view(|work| {
        assert_eq!(names(work), ["d"]);
        assert_eq!(names(&work.join("d")), ["rest"]);
    });
}

#[test]
fn notes_are_counted_beyond_twenty_and_hold_no_control_characters() {
    let mut world = World::empty();
    let sealed = world.tick(|work| {
        for n in 0..30 {
            fifo(work.join(format!("{n}\n/work/forged").replace('/', "_")));
        }
    });
    assert!(sealed.layer.is_none());
    assert_eq!(sealed.notes.len(), 21);
    assert_eq!(sealed.notes[20], "and 10 more");
    assert!(sealed.notes.iter().all(|note| !note.contains('\n')));
}

#[test]
fn a_dropped_fifo_does_not_bring_back_the_file_whose_name_it_took() {
    let mut world = World::new(|work| {
        fs::create_dir(work.join("d")).unwrap();
        fs::write(work.join("d/x"), "old").unwrap();
        fs::write(work.join("y"), "old").unwrap();
    });
    let mut mtime = None;
    world.tick(|work| {
        for path in ["d/x", "y"] {
            fs::remove_file(work.join(path)).unwrap();
            fifo(work.join(path));
        }
        mtime = Some(fs::metadata(work.join("d")).unwrap().modified().unwrap());
        fs::rename(work.join("d"), work.join("e")).unwrap();
    });
    world.view(|work| {
        assert_eq!(names(work), ["e"]);
        assert!(names(&work.join("e")).is_empty());
        let now = fs::metadata(work.join("e")).unwrap().modified().unwrap();
        assert_eq!(Some(now), mtime);
    });
}

#[test]
fn setuid_setgid_and_file_capabilities_are_taken_away_and_told() {
    let mut world = World::empty();
    let sealed = world.tick(|work| {
        let file = work.join("tool");
        fs::write(&file, "#!").unwrap();
        let capability = [1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        setxattr(
            &file,
            "security.capability",
            &capability,
            XattrFlags::empty(),
        )
        .unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o6755)).unwrap();
        fs::create_dir(work.join("shared")).unwrap();
        fs::set_permissions(work.join("shared"), fs::Permissions::from_mode(0o3775)).unwrap();
    });
    assert_eq!(
        sealed.notes,
        [
            "stripped file capabilities from /work/tool",
            "stripped setuid from /work/tool",
            "stripped setgid from /work/tool",
        ]
    );
    world.view(|work| {
        let mode = |name: &str| fs::metadata(work.join(name)).unwrap().mode() & 0o7777;
        assert_eq!((mode("tool"), mode("shared")), (0o755, 0o3775));
        assert!(crate::picture::xattrs(&work.join("tool")).is_empty());
    });
}

#[test]
fn any_byte_in_a_name_survives_and_so_do_names_that_others_use_as_marks() {
    let mut world = World::empty();
    world.tick(|work| {
        for byte in (1..=255_u8).filter(|byte| *byte != b'/') {
            let name = std::ffi::OsString::from_vec(vec![b'-', byte]);
            fs::write(work.join(name), [byte]).unwrap();
        }
        fs::write(work.join(".wh.x"), "mine").unwrap();
        fs::write(work.join(".wh..wh..opq"), "trusted.overlay.opaque=y").unwrap();
        fs::write(work.join("x"), "stays").unwrap();
        let value = b"y";
        let name = "user.overlay.opaque";
        setxattr(work.join("x"), name, value, XattrFlags::empty()).unwrap();
    });
    let before = world.view(take);
    assert_eq!(before.len(), 1 + 254 + 3);
    assert_eq!(before[&b"x"[..]].xattrs.len(), 1);
    world.tick(|work| {
        let there = work.join("there");
        fs::create_dir(&there).unwrap();
        fs::write(there.join("f"), "").unwrap();
    });
    assert_eq!(world.view(take).len(), before.len() + 2);
}

#[test]
fn a_folder_nobody_may_enter_keeps_its_mode_and_its_file() {
    let mut world = World::empty();
    for _ in 0..2 {
        world.tick(|work| {
            let closed = work.join("closed");
            if !closed.exists() {
                fs::create_dir(&closed).unwrap();
                fs::write(closed.join("f"), "in").unwrap();
                fs::set_permissions(&closed, fs::Permissions::from_mode(0o0)).unwrap();
            }
            fs::rename(&closed, work.join("c")).unwrap();
            fs::rename(work.join("c"), &closed).unwrap();
        });
    }
    world.view(|work| {
        let mode = fs::metadata(work.join("closed")).unwrap().mode();
        assert_eq!(mode & 0o7777, 0);
        assert_eq!(fs::read(work.join("closed/f")).unwrap(), b"in");
    });
}

#[test]
fn a_tick_that_changes_nothing_adds_no_layer_and_leaves_no_folder() {
    let mut world = World::new(|work| fs::write(work.join("f"), "").unwrap());
    let sealed = world.tick(|work| {
        fs::write(work.join("tmp"), "").unwrap();
        fs::remove_file(work.join("tmp")).unwrap();
    });
    assert!(sealed.layer.is_none());
    assert!(world.store.list_unsealed().unwrap().is_empty());
    assert!(world.store.list_layers().unwrap().is_empty());
}

#[test]
fn the_slot_roots_own_attributes_are_a_change_and_reach_the_next_tick() {
    let mut world = World::empty();
    let sealed = world.tick(|work| {
        fs::set_permissions(work, fs::Permissions::from_mode(0o700)).unwrap();
        setxattr(work, "user.note", b"mine", XattrFlags::empty()).unwrap();
    });
    assert!(sealed.layer.is_some());
    let sealed = world.tick(|work| {
        assert_eq!(fs::metadata(work).unwrap().mode() & 0o7777, 0o700);
        assert_eq!(crate::picture::xattrs(work).len(), 1);
    });
    assert!(sealed.layer.is_none());
}

#[test]
fn what_was_deleted_stays_deleted() {
    let mut world = World::new(|work| {
        fs::create_dir_all(work.join("a/b")).unwrap();
        fs::write(work.join("a/b/c"), "").unwrap();
        fs::write(work.join("d"), "").unwrap();
    });
    world.tick(|work| {
        fs::remove_dir_all(work.join("a")).unwrap();
        fs::remove_file(work.join("d")).unwrap();
    });
    world.view(|work| assert!(names(work).is_empty()));
    world.tick(|work| fs::create_dir(work.join("a")).unwrap());
    world.view(|work| {
        assert_eq!(names(work), ["a"]);
        assert!(names(&work.join("a")).is_empty());
    });
}

#[test]
fn a_base_holds_no_device_and_no_setuid() {
    let world = World::new(|work| {
        mknodat(
            CWD,
            work.join("dev"),
            FileType::CharacterDevice,
            0o600.into(),
            0x103,
        )
        .unwrap();
        fs::write(work.join("su"), "").unwrap();
        fs::set_permissions(work.join("su"), fs::Permissions::from_mode(0o4755)).unwrap();
    });
    world.view(|work| {
        assert_eq!(names(work), ["su"]);
        assert_eq!(
            fs::metadata(work.join("su")).unwrap().mode() & 0o7777,
            0o755
        );
    });
}

#[test]
fn a_move_of_a_large_folder_adds_links_not_bytes() {
    let mut world = World::empty();
    world.tick(|work| {
        fs::create_dir(work.join("a")).unwrap();
        for n in 0..20 {
            fs::write(work.join(format!("a/{n}")), vec![7; 1 << 20]).unwrap();
        }
    });
    let before = world.view(|work| take(&work.join("a")));
    let sealed = world.tick(|work| fs::rename(work.join("a"), work.join("b")).unwrap());
    assert!(sealed.layer.unwrap().bytes < 64 << 10);
    assert_same("moved", &before, &world.view(|work| take(&work.join("b"))));
}

#[test]
fn whiteouts_are_the_only_devices_of_a_layer() {
    let mut world = World::new(|work| fs::write(work.join("f"), "").unwrap());
    world.tick(|work| fs::remove_file(work.join("f")).unwrap());
    let meta = fs::symlink_metadata(world.layer(&world.layers[0]).join("f")).unwrap();
    assert!(meta.file_type().is_char_device() && meta.rdev() == 0);
}
