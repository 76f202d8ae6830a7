//! What an error left on disk goes while the service runs, not only at its next start.

use std::{fs, path::Path, time::Duration};

use mayfly_domain::MessageOutcome;
use mayfly_orchestrator::{command::StopScope, reconcile, sandbox::fake::Fake};
use mayfly_tests::world::{PATIENCE, Setup, World};

fn entries(folder: &Path) -> usize {
    fs::read_dir(folder).expect("a folder").count()
}

/// The engine, to be told what to do.
async fn world_with_engine() -> (World, Fake) {
    let mut engine = None;
    let world = World::fake(Setup::default(), |supervisor, lease| {
        engine.insert(Fake::new(supervisor, lease)).clone()
    })
    .await;
    (world, engine.expect("made"))
}

#[tokio::test(flavor = "multi_thread")]
async fn folders_that_could_not_be_removed_go_when_they_can() {
    let (world, engine) = world_with_engine().await;
    let agent = world.shell().await;
    world.say(agent, "echo kept > f").await;
    let [uppers, trash, aside] = ["u", "t", "aside"].map(|name| world.data_dir().join(name));
    // Nothing can be renamed into the trash.
    fs::rename(&trash, &aside).expect("it is there");
    fs::write(&trash, "").expect("a file in its place");
    engine.script(|script| script.out_of_memory = true);
    let said = world.say(agent, "echo lost > f").await;
    assert_eq!(said.outcome, Some(MessageOutcome::Noticed), "{said:?}");
    engine.script(|script| script.out_of_memory = false);
    assert_eq!(entries(&uppers), 1, "it cannot be removed yet");
    // What runs meanwhile is not taken for left.
    let posted = world.post(agent, "sleep 8; cat f").await;
    let running = "SELECT count(*) FROM ticks WHERE outcome IS NULL";
    world.until_sql(running, "1").await;
    fs::remove_file(&trash).expect("it is there");
    fs::rename(&aside, &trash).expect("it is there");
    let reply = world.outcome(&posted).await.reply.expect("a reply");
    assert_eq!(reply.text, "kept");
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while entries(&uppers) + entries(&trash) > 0 {
        assert!(tokio::time::Instant::now() < deadline, "still there");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    world.end().await;
}

/// The engine has not said yet that the sandbox of this worker's last start is gone: its tick stays open, so that no
/// other one begins beside it.
#[tokio::test(flavor = "multi_thread")]
async fn p2_a_tick_of_an_earlier_start_is_closed_when_its_sandbox_is_gone() {
    let (world, engine) = world_with_engine().await;
    let agent = world.shell().await;
    let posted = world.post(agent, "sleep 600").await;
    let running = "SELECT count(*) FROM ticks WHERE outcome IS NULL AND phase = 'running'";
    world.until_sql(running, "1").await;
    engine.script(|script| script.removals = [409; 100_000].into());
    world.change("UPDATE ticks SET epoch = epoch - 1 WHERE outcome IS NULL");
    let tools = &world.service().worker().tools;
    assert_eq!(reconcile::orphans(tools).await.unwrap(), []);
    assert_eq!(world.sql(running), "1");
    engine.script(|script| script.removals.clear());
    let ticks =
        "SELECT group_concat(coalesce(outcome, phase), ' ') FROM (SELECT * FROM ticks ORDER BY id)";
    world.until_sql(ticks, "interrupted running").await;
    let stopped = world.commands().stop(agent, StopScope::Running).await;
    stopped.expect("it runs");
    world.outcome(&posted).await;
    world
        .until_sql("SELECT count(*) FROM ticks WHERE removed_at IS NULL", "0")
        .await;
    world.end().await;
}
