//! A data dir on a small file system that is filled up from outside.

use std::{
    fs::{self, File},
    io::Write as _,
    path::PathBuf,
};

use mayfly_tests::{
    engine::run,
    http::{get, on_socket},
    server::Server,
};
use tempfile::TempDir;

use super::{PROGRAM, printed};

/// An ext4 of 64 MiB; unmounted when dropped.
struct Small {
    folder: TempDir,
}

impl Small {
    fn new() -> Small {
        let folder = tempfile::Builder::new()
            .prefix("mk")
            .tempdir()
            .expect("a folder");
        let (image, mount) = (folder.path().join("image"), folder.path().join("m"));
        File::create(&image)
            .and_then(|file| file.set_len(64 << 20))
            .expect("an image");
        fs::create_dir(&mount).expect("a mount point");
        let [image, mount] = [image, mount].map(|path| path.to_str().expect("UTF-8").to_owned());
        run("mkfs.ext4", &["-q", "-m", "0", &image]);
        run("mount", &["-o", "loop", &image, &mount]);
        Small { folder }
    }

    fn data_dir(&self) -> PathBuf {
        self.folder.path().join("m/d")
    }

    /// Takes every block that is left.
    fn fill(&self) {
        let mut file = File::options();
        let path = self.folder.path().join("m/filler");
        let mut file = file.create(true).append(true).open(path).expect("a file");
        for size in [1 << 20, 4096, 1] {
            let block = vec![1; size];
            while file.write_all(&block).is_ok() {}
        }
    }

    fn free(&self) {
        fs::remove_file(self.folder.path().join("m/filler")).expect("it is there");
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let mount = self.folder.path().join("m");
        run("umount", &["--lazy", mount.to_str().expect("UTF-8")]);
    }
}

fn outcome(server: &Server, message: &str) -> String {
    server.sql(&format!(
        "SELECT outcome FROM messages WHERE id = '{message}'"
    ))
}

#[test]
fn a_full_disk_loses_no_outcome_and_no_accepted_message() {
    let small = Small::new();
    let mut server = Server::new(PROGRAM)
        .at(&small.data_dir())
        .env("MAYFLY__DISK__FLOOR_MIB", "8")
        .env("MAYFLY__PROFILES__SHELL__LIMITS__STATE_MIB", "4")
        .env("MAYFLY__DISK__BALLAST_MIB", "4");
    server.start();
    let agent = server.agent();
    printed(&server.mayfly(&["agent", "send", &agent, "echo kept > f; echo ok"]));
    let text = "if [ -e late ]; then cat f; else echo x > late; sleep 30; fi";
    let first = printed(&server.mayfly(&["agent", "send", &agent, "--no-wait", text]));
    let running = "SELECT count(*) FROM ticks WHERE phase = 'running' AND outcome IS NULL";
    server.until_sql(running, "1");
    small.fill();
    // The ballast makes room for its outcome.
    server.until_sql("SELECT count(*) FROM ticks WHERE outcome IS NULL", "0");
    let ended = "SELECT outcome FROM ticks ORDER BY started_at DESC LIMIT 1";
    assert_ne!(server.sql(ended), "done", "{}", server.log());

    // Until the disk takes nothing more: each is taken or refused, in words.
    let mut accepted = Vec::new();
    let mut refusal = None;
    for n in 0..200 {
        small.fill();
        let text = format!("echo {n}; true {}", "x".repeat(100_000));
        let mut command = server.command(&["agent", "send", &agent, "--no-wait", &text]);
        let output = command.output().expect("it starts");
        match output.status.code() {
            Some(0) => accepted.push(printed(&output)),
            _ => {
                refusal = Some(output);
                break;
            }
        }
    }
    let refusal = refusal.expect("a full disk takes no end of messages");
    super::refused(&refusal, 7, &["disk", "full", "free some space"]);
    assert!(server.running(), "{}", server.log());
    let ready = server.mayfly(&["agent", "list"]);
    printed(&ready);

    small.free();
    printed(&server.mayfly(&["agent", "send", &agent, "--timeout", "120", "cat f"]));
    assert!(!outcome(&server, &first).is_empty(), "{}", server.log());
    for id in &accepted {
        assert_eq!(
            outcome(&server, id),
            "answered",
            "{} were accepted",
            accepted.len()
        );
    }
    server.stop();
    server.assert_nothing_left();
    assert!(!server.log().contains("panicked"), "{}", server.log());
}

#[test]
fn a_server_that_starts_on_a_full_disk_says_so() {
    let small = Small::new();
    let server = Server::new(PROGRAM)
        .at(&small.data_dir())
        .env("MAYFLY__DISK__FLOOR_MIB", "8")
        .env("MAYFLY__PROFILES__SHELL__LIMITS__STATE_MIB", "4")
        .env("MAYFLY__DISK__BALLAST_MIB", "0");
    small.fill();
    let output = server.mayfly(&["agent", "list"]);
    let code = output.status.code();
    assert!([Some(6), Some(7)].contains(&code), "{output:?}");
    let said = super::told(&output, code.expect("a code"));
    assert!(
        said.contains("full") || said.contains("No space left"),
        "{said}"
    );
    small.free();
    let agent = server.agent();
    printed(&server.mayfly(&["agent", "send", &agent, "echo kept > f; echo ok"]));
    small.fill();
    // What fits is accepted and waits for room; what does not is refused.
    let output = server.mayfly(&["agent", "send", &agent, "--timeout", "3", "cat f"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    match output.status.code() {
        Some(9) => assert!(said.contains("disk is nearly full"), "{said}"),
        _ => super::refused(&output, 7, &["full", "free some space"]),
    }
    small.free();
    assert_eq!(
        printed(&server.mayfly(&["agent", "send", &agent, "cat f"])),
        "kept"
    );
}

#[test]
fn a_start_on_a_disk_without_a_byte_gives_the_ballast_up_and_closes_what_was_open() {
    let small = Small::new();
    let mut server = Server::new(PROGRAM)
        .at(&small.data_dir())
        .env("MAYFLY__DISK__FLOOR_MIB", "8")
        .env("MAYFLY__PROFILES__SHELL__LIMITS__STATE_MIB", "4")
        .env("MAYFLY__DISK__BALLAST_MIB", "4");
    server.start();
    let agent = server.agent();
    let text = "if [ -e late ]; then cat f; else echo x > late; sleep 30; fi";
    printed(&server.mayfly(&["agent", "send", &agent, "--no-wait", text]));
    server.until_sql("SELECT count(*) FROM ticks WHERE phase = 'running'", "1");
    assert!(small.data_dir().join("ballast").exists());
    server.kill();
    small.fill();
    server.start();
    server.until_sql("SELECT count(*) FROM ticks WHERE outcome IS NULL", "0");
    assert!(!small.data_dir().join("ballast").exists());
    let ready = on_socket(server.data_dir(), &get("/readyz"));
    assert_eq!(ready.status, 503, "{}", ready.body);
    for part in ["disk is nearly full", "disk.floor_mib"] {
        assert!(ready.body.contains(part), "{}", ready.body);
    }
    small.free();
    printed(&server.mayfly(&["agent", "stop", "--all", &agent]));
    let said = server.mayfly(&["agent", "send", &agent, "--timeout", "60", "echo on"]);
    assert_eq!(printed(&said), "on");
    server.stop();
    server.assert_nothing_left();
}
