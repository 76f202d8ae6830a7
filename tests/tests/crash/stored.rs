//! The server dies on the way into the layer store and out of it.

use std::{fs, path::Path};

use mayfly_tests::server::Server;
use tempfile::TempDir;

use crate::scene::Scene;

/// While a tick's layer is put, before its commit.
pub(crate) const PUT: &[&str] = &["depot.packed", "depot.put", "report.stored"];
/// While an object that no row needs is removed.
pub(crate) const SWEPT: &[&str] = &["depot.removing"];
/// While a machine that lacks everything brings it back.
pub(crate) const BROUGHT: &[&str] = &["depot.got", "unpack.durable", "depot.unpacked"];

const BASE: &str = "SELECT count(*) FROM bases WHERE stored_at IS NOT NULL";
const OWED: &str = "SELECT count(*) FROM layers WHERE stored_at IS NULL";

/// An agent whose state is in the store.
fn scene(shared: &TempDir) -> Scene {
    let url = format!("file://{}", shared.path().display());
    let server = Server::new(env!("CARGO_BIN_EXE_mayfly-under-test"));
    let mut scene = Scene::on(server.env("MAYFLY__STORE__URL", &url));
    scene.server.start();
    scene.settle_in();
    scene.until_sql(BASE, "1");
    scene.server.stop();
    scene
}

fn shared() -> TempDir {
    TempDir::with_prefix("mayfly-shared").expect("a folder")
}

fn empty(data_dir: &Path) {
    for folder in ["l", "b"] {
        for entry in fs::read_dir(data_dir.join(folder)).expect("readable") {
            fs::remove_dir_all(entry.expect("readable").path()).expect("it is ours");
        }
    }
}

#[test]
fn while_a_layer_is_put_into_the_store() {
    let shared = shared();
    let mut scene = scene(&shared);
    for point in PUT {
        eprintln!("{point}");
        scene.server.start_with_fault(point);
        let posted = scene.post_line();
        scene.server.wait_dead();
        scene.server.start();
        scene.assert_answered_once(&posted);
        scene.until_sql(OWED, "0");
        scene.assert_tidy();
        scene.server.stop();
    }
    scene.server.start();
    scene.end();
}

#[test]
fn while_a_state_is_brought_from_the_store() {
    let shared = shared();
    let mut scene = scene(&shared);
    for point in BROUGHT {
        eprintln!("{point}");
        empty(scene.server.data_dir());
        scene.server.start_with_fault(point);
        let posted = scene.post_line();
        scene.server.wait_dead();
        scene.server.start();
        scene.assert_answered_once(&posted);
        assert_eq!(scene.of(&posted, "attempts"), "0", "no tick had begun");
        assert_eq!(scene.say("cat first"), "one");
        scene.assert_tidy();
        scene.server.stop();
    }
    scene.server.start();
    scene.end();
}

/// Its mark stays, and whoever starts again removes it.
#[test]
fn while_an_object_that_no_row_needs_is_removed() {
    let shared = shared();
    let mut scene = scene(&shared);
    let object = shared.path().join("blobs/ab").join("ab".repeat(32));
    fs::create_dir_all(object.parent().expect("a folder")).expect("it is ours");
    fs::write(&object, "nobody's").expect("it is ours");
    let name = format!("blobs/ab/{}", "ab".repeat(32));
    scene.server.change(&format!(
        "INSERT INTO doomed (object, at) VALUES ('{name}', 1)"
    ));
    for point in SWEPT {
        scene.server.start_with_fault(point);
        scene.server.wait_dead();
        assert!(object.exists(), "{point}");
    }
    // As long ago as makes sure that it is dead.
    scene.server.change("UPDATE doomed SET removing_at = 1");
    scene.server.start();
    scene.until_sql("SELECT count(*) FROM doomed", "0");
    assert!(!object.exists());
    scene.end();
}

/// The answer is out, the large layer is not yet: whoever starts again puts it.
#[test]
fn what_is_owed_is_put_after_a_restart() {
    let shared = shared();
    let mut scene = scene(&shared);
    for point in ["depot.packed", "depot.put"] {
        eprintln!("{point}");
        scene.server.start_with_fault(point);
        let posted = scene.post("head -c 9000000 /dev/urandom > big; echo got $T");
        scene.server.wait_dead();
        assert_eq!(scene.of(&posted, "outcome"), "answered", "before it is put");
        assert_eq!(scene.server.sql(OWED), "1");
        scene.server.start();
        scene.until_sql(OWED, "0");
        scene.assert_tidy();
        scene.server.stop();
    }
    scene.server.start();
    scene.end();
}
