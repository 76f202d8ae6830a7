//! The first milestone: a file written by one tick is there in the next, folders of earlier ticks
//! can be renamed, a rollback brings files back, and nothing is left behind.

use mayfly_domain::MessageOutcome;
use mayfly_tests::world::World;

#[tokio::test(flavor = "multi_thread")]
async fn what_a_tick_leaves_is_there_in_the_next() {
    let world = World::docker().await;
    let agent = world.shell().await;
    let first = world
        .say(
            agent,
            "git init -q . && mkdir d && echo one > d/f && git add . && echo ok",
        )
        .await;
    assert_eq!(first.outcome, Some(MessageOutcome::Answered));
    assert_eq!(world.reply(agent, "cat d/f").await, "one");
    let moved = "git mv d d2 && python3 -c 'import os; os.rename(\"d2\", \"d3\")' && cat d3/f";
    assert_eq!(world.reply(agent, moved).await, "one");
    assert_eq!(
        world.reply(agent, "ls -A | sort | tr '\\n' ' '").await,
        ".git d3"
    );
    world.commands().rollback(agent, None).await.unwrap();
    world.commands().rollback(agent, None).await.unwrap();
    assert_eq!(world.reply(agent, "cat d/f").await, "one");
    world.end().await;
}
