//! Sequences that an outsider found: what a person stopped stays stopped, what a fork stands on
//! stays, and nobody waits for a clock that stepped back.

use mayfly_domain::MessageOutcome;
use mayfly_orchestrator::{
    command::{RequestError, StopScope},
    sandbox::fake::Fake,
    tick::outcome::TickOutcome,
};
use mayfly_tests::{
    engine,
    server::Server,
    world::{Setup, World},
};

#[test]
fn a_message_that_was_stopped_does_not_run_again_after_a_kill() {
    let mut server = Server::new(env!("CARGO_BIN_EXE_mayfly-under-test"));
    server.start();
    let agent = server.agent();
    let deaf = "trap '' INT TERM; echo up; while :; do sleep 1; done";
    server.mayfly(&["agent", "send", &agent, "--no-wait", deaf]);
    let running = "SELECT count(*) FROM ticks WHERE phase = 'running'";
    server.until_sql(running, "1");
    server.mayfly(&["agent", "stop", &agent]);
    server.kill();
    server.start();
    let outcome = "SELECT m.outcome || ' ' || t.outcome || ' ' || t.notice FROM messages m
                   JOIN ticks t ON t.message = m.id";
    assert_eq!(
        server.sql(outcome),
        "noticed cancelled stopped, changes discarded"
    );
    assert_eq!(
        server.sql("SELECT text FROM deliveries"),
        "stopped, changes discarded"
    );
    let after = server.mayfly(&["agent", "send", &agent, "echo next"]);
    assert_eq!(String::from_utf8_lossy(&after.stdout), "next\n");
    assert_eq!(server.sql("SELECT count(*) FROM ticks"), "2");
    server.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_while_the_sandbox_is_made_keeps_the_program_from_starting() {
    let world = World::docker().await;
    let agent = world.shell().await;
    world.say(agent, "echo kept > f").await;
    let posted = world.post(agent, "echo ran >> f; sleep 30").await;
    world
        .until_sql("SELECT count(*) FROM ticks WHERE outcome IS NULL", "1")
        .await;
    let stop = world
        .commands()
        .stop(agent, StopScope::Running)
        .await
        .unwrap();
    assert!(stop.stopping.is_some());
    let message = world.outcome(&posted).await;
    assert_eq!(message.outcome, Some(MessageOutcome::Noticed));
    let tick = world
        .commands()
        .tick(message.tick.expect("a tick"))
        .await
        .unwrap();
    assert_eq!(tick.tick.outcome, Some(TickOutcome::Cancelled));
    let text = message.reply.expect("a notice").text;
    if text == "stopped, changes discarded" {
        assert_eq!(world.reply(agent, "cat f").await, "kept");
    }
    world.end().await;
}

/// Forks are made while collections run and their origin is removed: each fork keeps its files.
#[tokio::test(flavor = "multi_thread")]
async fn a_fork_that_is_made_beside_a_collection_keeps_its_files() {
    let world = World::docker().await;
    let origin = world.shell().await;
    world.say(origin, "echo whole > keep").await;
    let tools = &world.service().worker().tools;
    let origins = tools.db.origins(None, 100).await.unwrap();
    assert_eq!(origins, [origin]);
    let fork = world.commands().fork(origin, None).await.unwrap().id;
    world.commands().remove_agent(origin, true).await.unwrap();
    // The list was read before the fork was made, as a round does.
    for agent in origins {
        let plan = tools
            .db
            .collect(agent, |family| family.plan(|_| None, i64::MAX / 2))
            .await
            .unwrap();
        assert!(plan.forget.is_empty(), "{:?}", plan.forget);
    }
    assert_eq!(world.reply(fork, "cat keep").await, "whole");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_does_not_wait_for_a_clock_that_stepped_back() {
    let world = World::docker().await;
    let agent = world.shell().await;
    let first = world.post(agent, "sleep 2; echo one").await;
    let second = world.post(agent, "echo two").await;
    let later = "UPDATE messages SET claimable_at = claimable_at + 86400000 WHERE seq = 2";
    engine::change(&world.data_dir().join("mayfly.db"), later);
    assert_eq!(
        world.outcome(&first).await.reply.expect("a reply").text,
        "one"
    );
    assert_eq!(
        world.outcome(&second).await.reply.expect("a reply").text,
        "two"
    );
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollback_to_where_one_stands_is_told() {
    let world = World::docker().await;
    let agent = world.shell().await;
    let tick = world.say(agent, "echo x > f").await.tick.expect("a tick");
    let refused = world
        .commands()
        .rollback(agent, Some(tick))
        .await
        .unwrap_err();
    assert!(matches!(refused, RequestError::Conflict(_)), "{refused}");
    assert_eq!(world.sql("SELECT count(*) FROM head_moves"), "0");
    world.end().await;
}

/// A look at chains that fails forgets none of the agents it was to look at.
#[tokio::test(flavor = "multi_thread")]
async fn a_failed_look_at_one_chain_forgets_no_other() {
    let world = World::fake(Setup::default(), Fake::new).await;
    let (one, other) = (world.shell().await, world.shell().await);
    let tools = &world.service().worker().tools;
    // From here on only those that are named are due.
    mayfly_orchestrator::reconcile::chains(tools)
        .await
        .expect("a look at all");
    world.change("ALTER TABLE merges RENAME TO elsewhere");
    for agent in [one, other] {
        tools.keeper.chains_again(Some(agent));
    }
    let looked = mayfly_orchestrator::reconcile::chains(tools).await;
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
    // The server's own rounds take them too, and give them back.
    let due = || {
        let due = tools.keeper.chains_due();
        for agent in &due {
            tools.keeper.chains_again(*agent);
        }
        [one, other].iter().all(|agent| due.contains(&Some(*agent)))
    };
    while !due() {
        assert!(
            std::time::Instant::now() < deadline,
            "forgotten: {looked:?}"
        );
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    world.change("ALTER TABLE elsewhere RENAME TO merges");
    world.end().await;
}

/// A state that is worth a merge stays so where its merge fails.
#[tokio::test(flavor = "multi_thread")]
async fn a_failed_merge_is_tried_again() {
    let world = World::fake(Setup::default(), Fake::new).await;
    let agent = world.shell().await;
    world.reply(agent, "echo one > f").await;
    world.reply(agent, "echo two > g").await;
    let tools = &world.service().worker().tools;
    let head = tools.db.agent(agent).await.expect("a row");
    let head = head.and_then(|agent| agent.head).expect("a head");
    world.rest().await;
    tools.keeper.merge_again(agent, head);
    world.change("ALTER TABLE merges RENAME TO elsewhere");
    let failed = mayfly_orchestrator::reconcile::chains(tools).await;
    failed.expect_err("there is no such table");
    world.change("ALTER TABLE elsewhere RENAME TO merges");
    let chains = mayfly_orchestrator::reconcile::chains(tools).await;
    chains.expect("it can be merged");
    assert_eq!(world.sql("SELECT snapshot FROM merges"), head.to_string());
    assert_eq!(tools.keeper.worth_merging(), []);
    world.end().await;
}
