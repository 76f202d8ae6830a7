//! A seal and a merge stopped at every single change, then repeated, end as if never stopped.
//!
//! The upper folder is written by hand as overlayfs leaves it; the mounts are in `tests/snapshot`.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
};

use mayfly_domain::{BaseId, LayerId};
use rustix::fs::{
    AtFlags, CWD, FileType, Timespec, Timestamps, XattrFlags, lsetxattr, mknodat, utimensat,
};

use super::{Caps, SealError, Sealed, Slot, Store, ops::fault};

#[path = "../../tests/snapshot/picture.rs"]
#[allow(dead_code, unreachable_pub)]
mod picture;

const CAPS: Caps = Caps {
    bytes: 1 << 30,
    inodes: 1 << 20,
    file_bytes: 1 << 30,
};

struct Scene {
    dir: tempfile::TempDir,
    store: Store,
    base: BaseId,
    layer: LayerId,
}

impl Scene {
    fn new() -> Scene {
        let dir = tempfile::Builder::new().prefix("mf").tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let (base, layer) = (BaseId::new(), LayerId::new());
        let aside = store.begin_base(&base).unwrap();
        fs::create_dir(aside.join("home")).unwrap();
        fill_base(&aside.join("work"));
        set_times(&aside.join("work"), 1);
        store.finish_base(&base, &Slot::defaults()).unwrap();
        let uppers = store.begin(&layer, &base, &[], &Slot::defaults()).unwrap();
        fill_upper(&uppers[0].upper);
        set_times(&uppers[0].upper, 2);
        fs::write(uppers[1].upper.join("f"), "home").unwrap();
        set_times(&uppers[1].upper, 3);
        Scene {
            dir,
            store,
            base,
            layer,
        }
    }

    fn seal(&self) -> Result<Sealed, SealError> {
        let slots = Slot::defaults();
        self.store.seal(&self.layer, &self.base, &[], &slots, &CAPS)
    }

    fn merge(&self, into: &LayerId) -> Result<super::LayerSize, super::StoreError> {
        let slots = Slot::defaults();
        self.store
            .merge(&self.base, std::slice::from_ref(&self.layer), into, &slots)
    }

    /// The stored layer; a whiteout's mode and mtime mean nothing.
    fn picture(&self, layer: &LayerId) -> picture::Picture {
        let mut picture = picture::take(&self.dir.path().join("l").join(layer.as_str()));
        let whiteouts = picture
            .values_mut()
            .filter(|entry| FileType::from_raw_mode(entry.mode) == FileType::CharacterDevice);
        whiteouts.for_each(|entry| (entry.mode, entry.mtime) = (0, None));
        picture
    }

    fn assert_tidy(&self) {
        assert!(self.store.list_unsealed().unwrap().is_empty());
        self.store.empty_trash().unwrap();
        let trash = fs::read_dir(self.dir.path().join("t")).unwrap();
        assert_eq!(trash.count(), 0);
    }
}

fn fill_base(work: &Path) {
    fs::create_dir_all(work.join("d/sub/deep")).unwrap();
    fs::create_dir(work.join("p")).unwrap();
    for file in [
        "d/a", "d/b", "d/sub/x", "d/sub/y", "d/sub/z", "p/f", "taken",
    ] {
        fs::write(work.join(file), file).unwrap();
    }
    fs::write(work.join("d/sub/deep/est"), "").unwrap();
    fs::hard_link(work.join("p/f"), work.join("p/g")).unwrap();
    symlink("a", work.join("d/link")).unwrap();
    mark(&work.join("d/sub/deep"), "user.note", b"mine");
}

/// `mv d moved; mv p moved/p`, and files removed, replaced and made at every level.
fn fill_upper(up: &Path) {
    fs::create_dir_all(up.join("moved/sub")).unwrap();
    fs::create_dir_all(up.join("moved/p")).unwrap();
    mark(&up.join("moved"), "trusted.overlay.redirect", b"d");
    mark(&up.join("moved/p"), "trusted.overlay.redirect", b"/p");
    mark(&up.join("moved/sub"), "trusted.overlay.origin", b"?");
    for path in ["d", "p", "moved/a", "moved/sub/x"] {
        node(&up.join(path), FileType::CharacterDevice);
    }
    for path in ["taken", "free", "moved/sub/y", "moved/own"] {
        node(&up.join(path), FileType::Fifo);
    }
    fs::write(up.join("moved/new"), "new").unwrap();
    fs::hard_link(up.join("moved/new"), up.join("also")).unwrap();
    fs::write(up.join("su"), "").unwrap();
    fs::set_permissions(up.join("su"), fs::Permissions::from_mode(0o6755)).unwrap();
    mark(&up.join("su"), "trusted.overlay.origin", b"?");
    symlink("nowhere", up.join("link")).unwrap();
    mark(&up.join("link"), "trusted.overlay.origin", b"?");
}

fn mark(path: &Path, name: &str, value: &[u8]) {
    lsetxattr(path, name, value, XattrFlags::empty()).unwrap();
}

fn node(path: &Path, kind: FileType) {
    mknodat(CWD, path, kind, 0o600.into(), 0).unwrap();
}

/// A different mtime for each path, the same in each scene.
fn set_times(root: &Path, seed: i64) {
    let mut paths = vec![root.to_owned()];
    let mut at = 0;
    while at < paths.len() {
        let path: PathBuf = paths[at].clone();
        if fs::symlink_metadata(&path).unwrap().is_dir() {
            let mut below: Vec<_> = fs::read_dir(&path)
                .unwrap()
                .map(|item| item.unwrap().path())
                .collect();
            below.sort();
            paths.extend(below);
        }
        at += 1;
    }
    for (place, path) in paths.iter().enumerate() {
        let time = Timespec {
            tv_sec: seed * 1_000_000,
            tv_nsec: place as i64 + 1,
        };
        let times = Timestamps {
            last_access: time,
            last_modification: time,
        };
        utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
    }
}

#[test]
fn a_seal_stopped_at_any_change_and_repeated_is_the_same_layer() {
    let whole = Scene::new();
    let sealed = whole.seal().unwrap();
    assert_eq!(sealed.notes.len(), 6, "{:?}", sealed.notes);
    let expected = whole.picture(&whole.layer);
    let moved = &expected[&b"work/moved"[..]];
    assert_eq!(moved.xattrs[0].0, "trusted.overlay.opaque");
    assert_eq!(moved.mtime.unwrap().0, 2_000_000);
    assert!(expected.contains_key(&b"work/moved/sub/deep/est"[..]));
    for gone in ["work/moved/a", "work/moved/sub/x", "work/moved/sub/y"] {
        assert!(!expected.contains_key(gone.as_bytes()), "{gone}");
    }
    for steps in 0.. {
        let scene = Scene::new();
        fault::LEFT.set(Some(steps));
        let stopped = scene.seal();
        fault::LEFT.set(None);
        let again = scene.seal().unwrap();
        assert_eq!(again.layer, sealed.layer, "stopped after {steps}");
        let context = format!("stopped after {steps}");
        picture::assert_same(&context, &expected, &scene.picture(&scene.layer));
        scene.assert_tidy();
        if stopped.is_ok() {
            assert!(steps > 40, "only {steps} changes");
            return;
        }
    }
}

#[test]
fn a_seal_stopped_again_and_again_is_the_same_layer() {
    let whole = Scene::new();
    whole.seal().unwrap();
    let scene = Scene::new();
    for steps in 0.. {
        fault::LEFT.set(Some(steps));
        let stopped = scene.seal();
        fault::LEFT.set(None);
        if stopped.is_ok() {
            break;
        }
    }
    let (left, right) = (whole.picture(&whole.layer), scene.picture(&scene.layer));
    picture::assert_same("stopped often", &left, &right);
    scene.assert_tidy();
}

#[test]
fn a_merge_stopped_at_any_change_and_repeated_is_the_same_layer() {
    let whole = Scene::new();
    whole.seal().unwrap();
    let into = LayerId::new();
    whole.merge(&into).unwrap();
    let expected = whole.picture(&into);
    for steps in 0.. {
        let scene = Scene::new();
        scene.seal().unwrap();
        fault::LEFT.set(Some(steps));
        let stopped = scene.merge(&into);
        fault::LEFT.set(None);
        scene.merge(&into).unwrap();
        let context = format!("stopped after {steps}");
        picture::assert_same(&context, &expected, &scene.picture(&into));
        scene.assert_tidy();
        if stopped.is_ok() {
            return;
        }
    }
}

#[test]
fn where_no_further_link_is_allowed_a_copy_keeps_everything() {
    let whole = Scene::new();
    whole.seal().unwrap();
    let (scene, into) = (Scene::new(), LayerId::new());
    fault::NO_LINKS.set(true);
    scene.seal().unwrap();
    scene.merge(&into).unwrap();
    fault::NO_LINKS.set(false);
    let expected = whole.picture(&whole.layer);
    picture::assert_same("sealed", &expected, &scene.picture(&scene.layer));
    let merged = LayerId::new();
    whole.merge(&merged).unwrap();
    let expected = whole.picture(&merged);
    picture::assert_same("merged", &expected, &scene.picture(&into));
}

#[test]
fn a_redirect_to_nowhere_and_an_entry_without_data_are_refused() {
    for (name, value) in [
        ("trusted.overlay.redirect", &b"/none"[..]),
        ("trusted.overlay.metacopy", b""),
    ] {
        let scene = Scene::new();
        let up = scene.store.upper_dir(&scene.layer).join("work/up");
        let path = match value {
            b"" => up.join("su"),
            _ => up.join("moved"),
        };
        mark(&path, name, value);
        let refused = scene.seal().unwrap_err().to_string();
        assert!(refused.starts_with("/work/"), "{refused}");
    }
}
