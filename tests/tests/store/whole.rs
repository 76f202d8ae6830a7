//! A backup needs no store, and what is brought back from one goes into whichever store it is given.

use std::{fs, path::Path};

use mayfly_tests::{engine, server::Server};
use tempfile::TempDir;

use crate::{Shared, count, empty, folder};

const PROGRAM: &str = env!("CARGO_BIN_EXE_mayfly-under-test");
const BASE: &str = "SELECT count(*) FROM bases WHERE stored_at IS NOT NULL";
const TOLD: &str = "SELECT count(*) FROM ticks WHERE transcript <> ''";

fn on(store: &Shared, at: Option<&Path>) -> Server {
    let server = Server::simulated(PROGRAM).env("MAYFLY__STORE__URL", &store.config().url);
    match at {
        Some(data_dir) => server.at(data_dir),
        None => server,
    }
}

/// An agent whose layer, base, file and transcript are in the store only.
fn evicted(store: &Shared) -> (Server, String) {
    let mut server = on(store, None);
    server.start();
    let agent = server.agent();
    let send = "mkdir send; echo content > send/a; echo one > f; echo ok";
    server.json(&["agent", "send", &agent, send]);
    server.until_sql(BASE, "1");
    server.until_sql(TOLD, "1");
    empty(server.data_dir());
    for lost in ["blobs", "transcripts"] {
        for entry in fs::read_dir(server.data_dir().join(lost)).expect("readable") {
            fs::remove_dir_all(entry.expect("readable").path()).expect("it is ours");
        }
    }
    (server, agent)
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

#[test]
fn a_backup_holds_what_is_in_the_store_only() {
    let (store, place) = (Shared::folder(), TempDir::new().expect("a folder"));
    let (mut first, agent) = evicted(&store);
    let taken = place.path().join("taken");
    let view = first.json(&["backup", text(&taken)]);
    assert_eq!(view["damaged"], serde_json::json!([]), "{view}");
    assert_eq!(view["layers"], 1, "{view}");
    first.stop();
    drop(store);

    let restored = place.path().join("restored");
    fs::create_dir(&restored).expect("a folder");
    let other = Shared::folder();
    let mut second = on(&other, Some(&restored));
    let output = second.mayfly(&["restore", text(&taken)]);
    assert!(output.status.success(), "{output:?}");
    second.start();
    let said = second.json(&["agent", "send", &agent, "cat f"]);
    assert_eq!(said["reply"]["text"], "one", "{said}");
    // All of it is owed to the new store, under whatever name it was made.
    second.until_sql("SELECT count(*) FROM layers WHERE stored_at IS NULL", "0");
    second.until_sql(BASE, "1");
    second.until_sql(TOLD, "2");
    assert_eq!(count(&folder(&other).join("layers")), 1);
    empty(second.data_dir());
    let said = second.json(&["agent", "send", &agent, "cat f"]);
    assert_eq!(said["reply"]["text"], "one", "{said}");
    second.stop();
}

#[test]
fn no_backup_is_taken_without_what_cannot_be_fetched() {
    let (store, place) = (Shared::folder(), TempDir::new().expect("a folder"));
    let (mut server, _) = evicted(&store);
    let (there, aside) = (folder(&store), place.path().join("aside"));
    fs::rename(there, &aside).expect("it is ours");
    let taken = place.path().join("taken");
    let refused = server.mayfly(&["backup", text(&taken)]);
    let told = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success(), "{told}");
    assert!(told.contains("is in the layer store only"), "{told}");
    assert_eq!(count(place.path()), 1, "nothing is left of it");
    fs::rename(&aside, there).expect("it is ours");
    server.until("the store is back", || {
        let taken = server.mayfly(&["backup", text(&taken)]);
        match taken.status.success() {
            true => Ok(()),
            false => Err(String::from_utf8_lossy(&taken.stderr).into_owned()),
        }
    });
    server.stop();
}

/// What it would take is known before any of it is fetched, and no layer is kept for one that was refused.
#[test]
fn a_backup_that_does_not_fit_here_fetches_nothing() {
    let (store, place) = (Shared::folder(), TempDir::new().expect("a folder"));
    let (mut server, _) = evicted(&store);
    let database = server.data_dir().join("mayfly.db");
    let tebibyte = format!("UPDATE layers SET bytes = {}", 1u64 << 40);
    engine::change(&database, &tebibyte);
    let taken = place.path().join("taken");
    let refused = server.mayfly(&["backup", text(&taken)]);
    let told = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success(), "{told}");
    assert!(
        told.contains("1024 GiB here from the layer store"),
        "{told}"
    );
    assert_eq!(count(place.path()), 0, "nothing is left of it");
    for folder in ["l", "b", "transcripts"] {
        assert_eq!(count(&server.data_dir().join(folder)), 0, "{folder}");
    }
    server.until_sql("SELECT count(*) FROM pins", "0");
    engine::change(&database, "UPDATE layers SET bytes = 8192");
    let view = server.json(&["backup", text(&taken)]);
    assert_eq!(view["damaged"], serde_json::json!([]), "{view}");
    server.until_sql("SELECT count(*) FROM pins", "0");
    server.stop();
}

/// A copy's worker has another name than the one that made the layer, and puts it all the same.
#[test]
fn an_adopted_copy_puts_what_was_owed() {
    let place = TempDir::new().expect("a folder");
    let mut first = Server::simulated(PROGRAM);
    first.start();
    let agent = first.agent();
    first.json(&["agent", "send", &agent, "echo one > f"]);
    first.stop();
    let copy = place.path().join("d");
    engine::copy(first.data_dir(), &copy);
    let store = Shared::folder();
    let mut second = on(&store, Some(&copy));
    assert!(second.mayfly(&["adopt"]).status.success());
    second.start();
    second.until_sql("SELECT count(*) FROM layers WHERE stored_at IS NULL", "0");
    second.until_sql(TOLD, "1");
    second.stop();
}
