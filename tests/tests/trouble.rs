//! Why messages wait is a set: each cause is there as long as it holds, whatever else runs.

use std::time::Duration;

use mayfly_domain::{AgentId, SandboxRef};
use mayfly_orchestrator::{
    agent::profile::Profile,
    command::StopScope,
    db::ticks::Tick,
    sandbox::{BackendError, fake::Fake},
};
use mayfly_tests::world::{PATIENCE, Setup, World};

/// A world with a second profile, whose image is another, and its engine.
async fn world() -> (World, Fake) {
    let other = Profile {
        sandbox: SandboxRef::Docker {
            image: "other".to_owned(),
            id: None,
        },
        ..Profile::default()
    };
    let setup = Setup {
        profiles: vec![("other".to_owned(), other)],
        ..Setup::default()
    };
    let mut engine = None;
    let world = World::fake(setup, |supervisor, lease| {
        engine.insert(Fake::new(supervisor, lease)).clone()
    });
    let world = world.await;
    (world, engine.expect("made"))
}

/// The tick that made the agent's state.
async fn row_of_head(world: &World, agent: AgentId) -> Tick {
    let view = world.commands().agent(agent).await.expect("an agent");
    let tick = view.head_tick.expect("it made a state");
    let db = &world.service().worker().tools.db;
    db.tick(tick).await.expect("rows").expect("it is there")
}

/// Waits until the problems are these, by a part of each; in order.
async fn until_problems(world: &World, wanted: &[&str]) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        let found = world.commands().ready().await.problems;
        let fits = found.len() == wanted.len()
            && found
                .iter()
                .zip(wanted)
                .all(|(has, part)| has.contains(part));
        if fits {
            return;
        }
        assert!(tokio::time::Instant::now() < deadline, "{found:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lane_that_runs_does_not_hide_what_another_waits_for() {
    let (world, engine) = world().await;
    let well = world.shell().await;
    let lost = world.agent("other").await.expect("an agent");
    let second = world.agent("other").await.expect("an agent");
    let image = world.sql(&format!("SELECT image FROM agents WHERE id = '{lost}'"));
    engine.script(|script| {
        script.lost.insert(image.clone());
    });
    let waits = world.post(lost, "echo late").await;
    let waits_too = world.post(second, "echo late").await;
    until_problems(&world, &[&image]).await;
    for _ in 0..5 {
        world.say(well, "echo here").await;
        let problems = world.commands().ready().await.problems;
        assert_eq!(problems.len(), 1, "{problems:?}");
    }
    let seen = world
        .commands()
        .message(waits.id)
        .await
        .expect("it is there");
    assert!(seen.progress.unwrap_or_default().contains(&image));
    engine.script(|script| script.lost.clear());
    world.outcome(&waits).await;
    world.outcome(&waits_too).await;
    until_problems(&world, &[]).await;
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_nobody_waits_for_any_more_is_no_trouble() {
    let (world, engine) = world().await;
    let agent = world.agent("other").await.expect("an agent");
    let image = world.sql("SELECT image FROM agents");
    engine.script(|script| {
        script.lost.insert(image.clone());
    });
    world.post(agent, "echo never").await;
    until_problems(&world, &[&image]).await;
    let stop = async |scope| world.commands().stop(agent, scope).await.expect("stopped");
    let kept = stop(StopScope::Running).await;
    assert_eq!((kept.stopping, kept.waiting), (None, 1));
    let all = stop(StopScope::All).await;
    assert_eq!((all.withdrawn.len(), all.waiting), (1, 0));
    until_problems(&world, &[]).await;
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_is_down_is_told_without_a_message_and_beside_the_rest() {
    let (world, engine) = world().await;
    engine.script(|script| script.down = true);
    until_problems(&world, &["does not answer"]).await;
    let agent = world.sql("SELECT count(*) FROM agents");
    assert_eq!(agent, "0");
    engine.script(|script| script.down = false);
    until_problems(&world, &[]).await;
    world.end().await;
}

/// Nothing has told yet that the engine was exchanged: its first answer is that it has no such
/// container.
#[tokio::test(flavor = "multi_thread")]
async fn what_an_exchanged_engine_does_not_know_is_not_removed() {
    let (world, engine) = world().await;
    let agent = world.shell().await;
    world.say(agent, "echo here").await;
    let tools = &world.service().worker().tools;
    let row = row_of_head(&world, agent).await;
    tools
        .backend
        .remove(&row.names, PATIENCE)
        .await
        .expect("gone");
    engine.script(|script| script.exchanged = true);
    let removed = tools.backend.remove(&row.names, Duration::ZERO).await;
    assert!(
        matches!(removed, Err(BackendError::OtherEngine)),
        "{removed:?}"
    );
    world.end().await;
}

/// What is not proved while the engine is away is proved when it is back: a tick that was closed without the
/// proof would let the next one of its agent begin beside its sandbox.
#[tokio::test(flavor = "multi_thread")]
async fn a_removal_waits_for_an_engine_that_is_away() {
    let (world, engine) = world().await;
    let agent = world.shell().await;
    world.say(agent, "echo here").await;
    let tools = &world.service().worker().tools;
    let row = row_of_head(&world, agent).await;
    engine.script(|script| script.down = true);
    // Who answers is not known any more from here on.
    let away = tools.backend.remove(&row.names, Duration::ZERO).await;
    assert!(matches!(away, Err(BackendError::Down { .. })), "{away:?}");
    let (removed, ()) = tokio::join!(
        biased;
        tools.backend.remove(&row.names, PATIENCE),
        async { engine.script(|script| script.down = false) },
    );
    assert!(removed.is_ok(), "{removed:?}");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_engine_proves_nothing_and_runs_nothing() {
    let (world, engine) = world().await;
    let agent = world.shell().await;
    world.say(agent, "echo here").await;
    let worker = world.service().worker();
    let row = row_of_head(&world, agent).await;
    engine.script(|script| script.exchanged = true);
    until_problems(&world, &["another container engine"]).await;
    let removed = worker
        .tools
        .backend
        .remove(&row.names, Duration::ZERO)
        .await;
    assert!(
        matches!(removed, Err(BackendError::OtherEngine)),
        "{removed:?}"
    );
    let waits = world.post(agent, "echo late").await;
    let told = "SELECT count(*) FROM deliveries WHERE kind = 'waiting' AND text LIKE '%another container engine%'";
    world.until_sql(told, "1").await;
    assert_eq!(world.sql("SELECT count(*) FROM ticks"), "1");
    engine.script(|script| script.exchanged = false);
    world.outcome(&waits).await;
    until_problems(&world, &[]).await;
    world.end().await;
}

/// After some failures in a row its lanes wait and each thread is told once; one try at a time finds out that it
/// is mended, and no message has lost its attempts meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn an_image_whose_sandboxes_do_not_start_is_left_alone_until_one_does() {
    let (world, engine) = world().await;
    let well = world.shell().await;
    let mut posted = Vec::new();
    let mut agents = Vec::new();
    for _ in 0..4 {
        agents.push(world.agent("other").await.expect("an agent"));
    }
    let image = world.sql(&format!(
        "SELECT image FROM agents WHERE id = '{}'",
        agents[0]
    ));
    engine.script(|script| {
        script.broken.insert(image.clone());
    });
    for agent in agents {
        posted.push(world.post(agent, "echo here").await);
    }
    until_problems(&world, &["sandboxes of image docker:other ("]).await;
    let told = "SELECT count(*) FROM deliveries WHERE kind = 'waiting'
                AND text LIKE 'waiting: sandboxes of its image do not start%'";
    world.until_sql(told, "4").await;
    let attempts = || world.sql("SELECT sum(attempts) FROM messages");
    let ticks = || -> u32 { world.sql("SELECT count(*) FROM ticks").parse().unwrap() };
    let (before, tried) = (attempts(), ticks());
    assert!(
        before.parse::<u32>().unwrap() <= 2,
        "those that came before it was known: {before}"
    );
    // Others are served, and one try is made.
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while ticks() == tried {
        assert!(tokio::time::Instant::now() < deadline, "nobody tries");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(world.reply(well, "echo well").await, "well");
    assert_eq!(ticks(), tried + 2, "one try and the other's tick");
    assert_eq!(attempts(), before);
    assert_eq!(world.sql(told), "4", "each thread is told once");
    engine.script(|script| script.broken.clear());
    for message in &posted {
        let settled = world.outcome(message).await;
        assert_eq!(settled.reply.expect("a reply").text, "here");
    }
    until_problems(&world, &[]).await;
    world.end().await;
}
