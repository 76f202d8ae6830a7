//! `mayfly serve --simulate`: the faces can be tried without an engine.

use mayfly_domain::MessageOutcome;
use mayfly_orchestrator::sandbox::fake::Fake;
use mayfly_tests::world::{Setup, World};

#[tokio::test(flavor = "multi_thread")]
async fn the_shell_profile_answers_on_the_simulated_engine() {
    let world = World::fake(Setup::default(), Fake::new).await;
    let agent = world.shell().await;
    let first = world.say(agent, "echo one > f; cat f").await;
    assert_eq!(first.outcome, Some(MessageOutcome::Answered));
    assert_eq!(world.reply(agent, "cat f").await, "one");
    world.commands().rollback(agent, None).await.unwrap();
    world.commands().rollback(agent, None).await.unwrap();
    assert!(
        world
            .reply(agent, "cat f")
            .await
            .contains("exit 1, changes kept")
    );
    world.end().await;
}
