//! A layer that is gone from the disk parks the message at once, and the notice says how to go on.

use std::fs;

use mayfly_domain::MessageOutcome;
use mayfly_orchestrator::sandbox::fake::Fake;
use mayfly_tests::{
    engine,
    server::Server,
    world::{Setup, World},
};

#[tokio::test(flavor = "multi_thread")]
async fn the_notice_names_the_layer_its_tick_and_the_state_before_it() {
    let world = World::fake(Setup::default(), Fake::new).await;
    let agent = world.shell().await;
    let first = world.say(agent, "echo one > f").await.tick.expect("it ran");
    let second = world.say(agent, "echo two > f").await.tick.expect("it ran");
    world.say(agent, "echo three > g").await;
    let layer = world.sql(&format!("SELECT layer FROM ticks WHERE id = '{second}'"));
    let place = world.data_dir().join("l").join(&layer);
    fs::rename(&place, world.data_dir().join("aside")).expect("it is there");
    let said = world.say(agent, "cat f").await;
    assert_eq!(said.outcome, Some(MessageOutcome::Parked), "{said:?}");
    let ran = format!("SELECT count(*) FROM ticks WHERE message = '{}'", said.id);
    assert_eq!(world.sql(&ran), "1", "trying again does not help");
    let reply = said.reply.expect("a notice").text;
    let agent_short = agent.short();
    for part in [
        format!(
            "layer {layer} of this state is missing (tick {} made it)",
            second.short()
        ),
        format!("`mayfly agent rollback {agent_short} {}`", first.short()),
        "changes discarded".to_owned(),
    ] {
        assert!(reply.contains(&part), "{part}: {reply}");
    }
    world
        .commands()
        .rollback(agent, Some(first))
        .await
        .expect("as the notice says");
    assert_eq!(world.reply(agent, "cat f").await, "one");
    world.end().await;
}

/// A copy has another worker's name than the one that made the layer; nobody can hand it over all the same.
#[test]
fn an_adopted_copy_without_a_layer_parks_the_message_at_once() {
    let program = env!("CARGO_BIN_EXE_mayfly-under-test");
    let mut first = Server::simulated(program);
    first.start();
    let agent = first.agent();
    first.json(&["agent", "send", &agent, "echo one > f"]);
    let layer = first.sql("SELECT layer FROM ticks");
    first.stop();
    let folder = tempfile::tempdir().expect("a folder");
    let copy = folder.path().join("d");
    engine::copy(first.data_dir(), &copy);
    fs::remove_dir_all(copy.join("l").join(&layer)).expect("it is there");
    let mut second = Server::simulated(program).at(&copy);
    assert!(second.mayfly(&["adopt"]).status.success());
    second.start();
    let said = second.json(&["agent", "send", &agent, "cat f"]);
    assert_eq!(said["outcome"], "parked", "{said}");
    assert_eq!(second.sql("SELECT count(*) FROM ticks"), "2");
    second.stop();
}
