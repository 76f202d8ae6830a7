//! A database that does not answer for a while.

use std::{
    io::Write as _,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use mayfly_orchestrator::{command::StopScope, sandbox::fake::Fake, worker::WorkerConfig};
use mayfly_tests::world::{Setup, World};

/// Keeps everybody else from writing, as a stalled disk does.
struct Stall(Child);

impl Stall {
    fn of(data_dir: &Path) -> Stall {
        let mut shell = Command::new("sqlite3")
            .args(["-cmd", ".timeout 60000"])
            .arg(data_dir.join("mayfly.db"))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("sqlite3 starts");
        let input = shell.stdin.as_mut().expect("it is piped");
        input.write_all(b"BEGIN IMMEDIATE;\n").expect("it reads");
        Stall(shell)
    }

    fn end(mut self) {
        let mut input = self.0.stdin.take().expect("it is piped");
        input.write_all(b"ROLLBACK;\n").expect("it reads");
        drop(input);
        assert!(self.0.wait().expect("it ends").success());
    }
}

/// The lease cannot be renewed, so the sandbox ends itself. One interruption that counts would park
/// the message here.
#[tokio::test(flavor = "multi_thread")]
async fn a_tick_that_a_stalled_database_ended_is_no_attempt() {
    let setup = Setup {
        worker: WorkerConfig {
            attempts: 1,
            grace_s: 5,
            ..WorkerConfig::default()
        },
        ..Setup::default()
    };
    let world = World::fake(setup, Fake::new).await;
    let agent = world.shell().await;
    let message = world.post(agent, "sleep 600").await;
    let running = "SELECT count(*) FROM ticks WHERE phase = 'running' AND outcome IS NULL";
    world.until_sql(running, "1").await;
    let stall = Stall::of(world.data_dir());
    // 15 s until no heartbeat is sent, and as long again until the sandbox misses them.
    let transcript = async || {
        let tick = world.commands().message(message.id).await.unwrap().tick;
        let detail = world.commands().tick(tick.unwrap()).await.unwrap();
        format!("{:?}", detail.transcript)
    };
    let deadline = tokio::time::Instant::now() + Duration::from_secs(90);
    while !transcript().await.contains("Exit") {
        assert!(
            tokio::time::Instant::now() < deadline,
            "the sandbox lives on"
        );
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    stall.end();
    let interrupted = "SELECT count(*) FROM ticks WHERE outcome = 'interrupted'";
    world.until_sql(interrupted, "1").await;
    let seen = world.commands().message(message.id).await.unwrap();
    assert_eq!((seen.outcome, seen.attempts), (None, 0), "{seen:?}");
    world.until_sql(running, "1").await;
    world
        .commands()
        .stop(agent, StopScope::Running)
        .await
        .unwrap();
    world.outcome(&message).await;
    let told = "SELECT notice FROM ticks WHERE outcome = 'interrupted'";
    assert!(world.sql(told).contains("the database did not answer"));
    world.end().await;
}
