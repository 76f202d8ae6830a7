use std::fs;

use mayfly_tests::server::Server;

use super::{PROGRAM, printed, refused};

#[test]
fn every_fault_is_told_at_once_each_in_a_line() {
    let server = Server::new(PROGRAM)
        .env("MAYFLY__WORKER__GRACE_S", "abc")
        .env("MAYFLY__HTTP__LISTNE", "off");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("bad.toml");
    let text = "\
        data_dri = \"/x\"\n[http]\nlisten = 8080\n[worker]\nmax_running = \"four\"\nattempts = 0\n\
        [disk]\nfloor_mib = -4\n[docker]\nhost = \"ssh://x\"\n[profiles.coder]\ncommand = []\n\
        [profiles.\"Bad Name\"]\n[profiles.shell.limits]\ncpus = -1\nmemory_mb = 3\n";
    fs::write(&file, text).expect("written");
    let path = file.to_str().expect("test paths are UTF-8");
    let output = server.mayfly(&["--config", path, "serve"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(5), "{said}");
    for wanted in [
        "unknown key \"data_dri\"",
        "did you mean \"data_dir\"?",
        "http.listen (file",
        "worker.max_running (file",
        "worker.attempts (file",
        "disk.floor_mib (file",
        "docker.host",
        "profiles.coder.command",
        "profiles.Bad Name",
        "profiles.shell.limits.cpus",
        "did you mean \"memory_mib\"?",
        "worker.grace_s (environment MAYFLY__WORKER__GRACE_S): a whole number",
        "warning: the environment variable MAYFLY__HTTP__LISTNE is not read, did you mean",
    ] {
        assert_eq!(said.matches(wanted).count(), 1, "{wanted:?} in {said}");
    }
    assert!(
        said.lines().all(|line| line.starts_with("mayfly: ")),
        "{said}"
    );
    assert!(!server.data_dir().exists());
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let server = Server::new(PROGRAM);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let missing = folder.path().join("none.toml");
    let path = missing.to_str().expect("test paths are UTF-8");
    refused(
        &server.mayfly(&["--config", path, "check"]),
        5,
        &[path, "No such file"],
    );
    let output = server.mayfly(&["--config", "/", "check"]);
    refused(&output, 5, &["cannot read the configuration /"]);
    let broken = folder.path().join("broken.toml");
    fs::write(&broken, "a = \n").expect("written");
    let path = broken.to_str().expect("test paths are UTF-8");
    let output = server.mayfly(&["--config", path, "check"]);
    assert_eq!(output.status.code(), Some(5));
    assert!(String::from_utf8_lossy(&output.stderr).contains("is not valid TOML"));
}

#[test]
fn an_unknown_variable_is_no_fault_and_a_secret_is_not_shown() {
    let server = Server::new(PROGRAM)
        .env("MAYFLY_DATA_DIR", "/x")
        .env("MAYFLY__PROFILES__SHELL__ENV__API_KEY", "hunter2");
    let output = server.mayfly(&["check"]);
    let shown = printed(&output);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("did you mean MAYFLY__DATA_DIR?"), "{said}");
    assert!(said.contains("looks like a secret"), "{said}");
    assert!(
        !shown.contains("hunter2") && !said.contains("hunter2"),
        "{shown}"
    );
    assert!(
        shown.contains("API_KEY = \"(set)\"  # environment"),
        "{shown}"
    );
}
