//! Below the floor of the host's disk no program starts, also where the floor was crossed after
//! the claim.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use mayfly_domain::{Limits, MessageOutcome};
use mayfly_orchestrator::{faults, sandbox::fake::Fake, worker::host_disk::DiskConfig};
use mayfly_tests::{
    engine::run,
    world::{Setup, World},
};

static FILLER: OnceLock<PathBuf> = OnceLock::new();

/// Between the claim and the program, once.
fn fill(point: &'static str) {
    let Some(filler) = FILLER.get().filter(|_| point == "scope.after") else {
        return;
    };
    if !filler.with_extension("done").exists() {
        fs::write(filler.with_extension("done"), "").expect("room for a name");
        fs::write(filler, vec![1; 56 << 20]).expect("room for the rest");
    }
}

/// A file system of 64 MiB; unmounted when dropped.
struct Small(tempfile::TempDir);

impl Small {
    fn new() -> Small {
        let folder = tempfile::Builder::new().prefix("mf").tempdir();
        let folder = folder.expect("a folder");
        let shown = folder.path().to_str().expect("UTF-8").to_owned();
        run("mount", &["-t", "tmpfs", "-o", "size=64m", "tmpfs", &shown]);
        Small(folder)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let shown = self.path().to_str().expect("UTF-8");
        run("umount", &["--lazy", shown]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tick_that_was_claimed_above_the_floor_starts_no_program_below_it() {
    let small = Small::new();
    let setup = Setup {
        disk: DiskConfig {
            floor_mib: 16,
            ballast_mib: 1,
        },
        limits: Limits {
            state_mib: 16,
            ..Limits::default()
        },
        ..Setup::default()
    };
    let world = World::fake_in(setup, Fake::new, small.path()).await;
    let agent = world.shell().await;
    let filler = small.path().join("filler");
    FILLER.set(filler.clone()).expect("once");
    faults::watch(fill);
    let posted = world.post(agent, "echo x >> f; cat f").await;
    let told = "SELECT count(*) FROM deliveries WHERE kind = 'waiting' AND text LIKE '%disk is nearly full%'";
    world.until_sql(told, "1").await;
    // Where it lies is for the operator.
    let path = world.data_dir().to_str().expect("UTF-8");
    let delivered = world.sql("SELECT text FROM deliveries");
    assert!(!delivered.contains(path), "{delivered}");
    let operator = world.service().worker().trouble.all();
    assert!(
        operator.len() == 1 && operator[0].contains(path),
        "{operator:?}"
    );
    let first = "SELECT outcome || ' ' || notice FROM ticks";
    let closed = world.sql(first);
    assert!(
        closed.starts_with("interrupted ") && closed.contains("disk is nearly full"),
        "{closed}"
    );
    let transcripts = world.data_dir().join("transcripts");
    assert!(
        !transcripts.exists()
            || fs::read_dir(&transcripts)
                .expect("a folder")
                .next()
                .is_none()
    );
    assert_eq!(world.sql("SELECT attempts FROM messages"), "0");
    fs::remove_file(&filler).expect("it is there");
    let said = world.outcome(&posted).await;
    assert_eq!(said.outcome, Some(MessageOutcome::Answered), "{said:?}");
    assert_eq!(said.reply.expect("a reply").text, "x");
    world.end().await;
}
