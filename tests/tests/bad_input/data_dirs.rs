use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, chown, symlink},
    path::{Path, PathBuf},
    process::Stdio,
};

use mayfly_tests::{
    engine::{containers, run, sql},
    server::Server,
};
use tempfile::TempDir;

use super::{PROGRAM, printed, refused};

fn folder() -> TempDir {
    tempfile::Builder::new()
        .prefix("mb")
        .tempdir()
        .expect("a temporary folder")
}

fn at(path: &Path) -> Server {
    Server::new(PROGRAM).at(path)
}

/// All verbs that come near a data dir say the same.
fn all_refuse(server: &Server, fragments: &[&str]) {
    for arguments in [
        ["agent", "list"].as_slice(),
        &["agent", "new", "-m", "date"],
        &["serve"],
    ] {
        refused(&server.mayfly(arguments), 6, fragments);
    }
}

/// A data dir with one agent and one answered message.
fn lived_in(path: &Path) -> (Server, String) {
    let server = at(path);
    let agent = server.agent();
    printed(&server.mayfly(&["agent", "send", &agent, "echo kept > f; echo ok"]));
    (server, agent)
}

fn still_there(server: &Server, agent: &str) {
    assert_eq!(
        printed(&server.mayfly(&["agent", "send", agent, "cat f"])),
        "kept"
    );
}

fn tree(path: &Path) -> String {
    let path = path.to_str().expect("test paths are UTF-8");
    run("find", &[path, "-printf", "%P %y %m %u %s\n"])
}

#[test]
fn paths_that_mounts_cannot_name_are_refused() {
    let folder = folder();
    let long = folder.path().join("a".repeat(60));
    for (path, fragment) in [
        (PathBuf::from("relative/d"), "not absolute"),
        (folder.path().join("a,b"), "','"),
        (folder.path().join("a:b"), "':'"),
        (folder.path().join("a\\b"), "mount options cannot"),
        (folder.path().join("a\nb"), "mount options cannot"),
        (long, "at most 60"),
    ] {
        all_refuse(&at(&path), &["data_dir (--data-dir)", fragment]);
        refused(&at(&path).mayfly(&["adopt"]), 6, &[fragment]);
        refused(&at(&path).mayfly(&["doctor"]), 6, &[fragment]);
    }
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 0);
    // What a short link hides counts too.
    let real = folder.path().join("b,c");
    fs::create_dir(&real).expect("made");
    let link = folder.path().join("link");
    symlink(&real, &link).expect("linked");
    all_refuse(&at(&link), &["b,c", "','"]);
}

#[test]
fn what_is_no_folder_of_mayflys_is_left_as_it_is() {
    let folder = folder();
    let file = folder.path().join("f");
    fs::write(&file, "letters").expect("written");
    all_refuse(&at(&file), &["not a folder"]);
    all_refuse(&at(&file.join("d")), &["not a folder"]);
    let nowhere = folder.path().join("n");
    symlink(folder.path().join("gone"), &nowhere).expect("linked");
    all_refuse(&at(&nowhere), &["not a folder"]);
    let full = folder.path().join("full");
    fs::create_dir(&full).expect("made");
    fs::write(full.join("letters"), "x").expect("written");
    fs::set_permissions(&full, fs::Permissions::from_mode(0o755)).expect("set");
    let before = tree(folder.path());
    all_refuse(&at(&full), &["\"letters\"", "empty folder"]);
    all_refuse(&at(Path::new("/")), &["not Mayfly's"]);
    assert_eq!(tree(folder.path()), before);
    refused(
        &at(&folder.path().join("no")).mayfly(&["adopt"]),
        6,
        &["nothing to adopt"],
    );
}

#[test]
fn a_data_dir_of_somebody_else_or_read_only_is_refused_and_kept() {
    let folder = folder();
    let path = folder.path().join("d");
    let (server, agent) = lived_in(&path);
    chown(&path, Some(4711), Some(4711)).expect("chown");
    all_refuse(&server, &["belongs to user id 4711", "chown"]);
    refused(&server.mayfly(&["adopt"]), 6, &["4711"]);
    chown(&path, Some(0), Some(0)).expect("chown");
    let text = path.to_str().expect("test paths are UTF-8");
    run("mount", &["--bind", text, text]);
    run("mount", &["-o", "remount,bind,ro", text]);
    let outputs = [["agent", "list"].as_slice(), &["serve"], &["adopt"]]
        .map(|arguments| server.mayfly(arguments));
    run("umount", &[text]);
    for output in outputs {
        refused(&output, 6, &["read-only", "mount it writable"]);
    }
    still_there(&server, &agent);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("set");
    still_there(&server, &agent);
    let mode = fs::metadata(&path).expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o700, "opened to others");
}

#[test]
fn a_data_dir_of_a_newer_version_is_refused_and_kept() {
    let folder = folder();
    let path = folder.path().join("d");
    let (server, agent) = lived_in(&path);
    let database = path.join("mayfly.db");
    let change = |statement: &str| {
        let database = database.to_str().expect("test paths are UTF-8");
        run("sqlite3", &[database, statement]);
    };
    change("UPDATE installation SET minimum_version = '9.1.0'");
    all_refuse(
        &server,
        &["needs mayfly 9.1.0 or later", "install that version"],
    );
    change("UPDATE installation SET minimum_version = '0.1.0'");
    change("INSERT INTO _sqlx_migrations VALUES (9999, 'later', 0, 1, x'00', 0)");
    all_refuse(&server, &["written by a newer version", "run that version"]);
    refused(
        &server.mayfly(&["adopt"]),
        6,
        &["written by a newer version"],
    );
    change("DELETE FROM _sqlx_migrations WHERE version = 9999");
    still_there(&server, &agent);
}

#[test]
fn a_broken_database_is_named_and_not_touched() {
    let folder = folder();
    let path = folder.path().join("d");
    let (server, agent) = lived_in(&path);
    let database = path.join("mayfly.db");
    // Everything into the one file: nothing is mended from a log beside it.
    let text = database.to_str().expect("test paths are UTF-8");
    run("sqlite3", &[text, "PRAGMA journal_mode = DELETE"]);
    let whole = fs::read(&database).expect("a database");
    let (mut torn, noise) = (whole.clone(), vec![0xa5; 8192]);
    let half = torn.len() / 2;
    torn[4096..half].fill(0xa5);
    for (bytes, fragment) in [(&noise, "not a database"), (&torn, "malformed")] {
        fs::write(&database, bytes).expect("written");
        all_refuse(&server, &["mayfly.db", fragment, "backup"]);
        let kept = fs::read(&database).expect("a database") == *bytes;
        assert!(kept, "{fragment}");
    }
    fs::write(&database, &whole).expect("written");
    still_there(&server, &agent);
}

#[test]
fn a_copy_is_refused_until_adopted_and_never_touches_the_originals_sandboxes() {
    let folder = folder();
    let (first, second) = (folder.path().join("d"), folder.path().join("e"));
    let (mut server, agent) = lived_in(&first);
    server.start();
    let mut send = server.command(&["agent", "send", &agent, "sleep 15; echo late"]);
    let send = send.stdout(Stdio::piped()).spawn().expect("it starts");
    let prefix = server.prefix();
    server.until("its sandbox", || match containers(&prefix).len() {
        1 => Ok(()),
        other => Err(format!("{other} containers")),
    });
    // As it lies there while the original runs a tick: the copy knows of that tick.
    let paths = [&first, &second].map(|path| path.to_str().expect("test paths are UTF-8"));
    run("cp", &["-a", "--", paths[0], paths[1]]);
    let copy = at(&second);
    all_refuse(&copy, &[paths[0], "mayfly adopt", "never run both"]);
    let adopted = printed(&copy.mayfly(&["adopt"]));
    assert!(adopted.contains("installation"), "{adopted}");
    assert_ne!(copy.prefix(), prefix);
    printed(&copy.mayfly(&["agent", "new", "-m", "echo hi"]));
    let output = send.wait_with_output().expect("it ends");
    assert_eq!(output.stdout, b"late\n");
    let ended = server.sql("SELECT DISTINCT outcome FROM ticks");
    assert_eq!(ended, "done", "the original's sandbox was touched");
    still_there(&server, &agent);
    still_there(&copy, &agent);
    server.stop();
    refused(&server.mayfly(&["adopt"]), 6, &["at home here"]);
    refused(&copy.mayfly(&["adopt"]), 6, &["at home here"]);
    let open = "SELECT count(*) FROM ticks WHERE outcome IS NULL";
    assert_eq!(sql(&second.join("mayfly.db"), open), "0");
    server.assert_nothing_left();
    copy.assert_nothing_left();
}
