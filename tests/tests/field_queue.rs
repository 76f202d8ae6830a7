//! Messages that arrive while something else happens, and what people say to a lane.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::sleep,
    time::{Duration, Instant},
};

use mayfly_domain::{AgentId, Author, Limits, MessageOutcome};
use mayfly_orchestrator::{
    agent::profile::Profile,
    command::{RequestError, Send, StopScope},
    tick::outcome::{Changes, TickOutcome},
    view::MessageView,
};
use mayfly_tests::{
    front::{Act, Front},
    world::{PATIENCE, Setup, World},
};

fn text(message: &MessageView) -> &str {
    message.reply.as_ref().map_or("", |reply| &reply.text)
}

/// Waits until the agent's program runs.
async fn running(world: &World, agent: AgentId) {
    let open = "AND phase = 'running' AND outcome IS NULL";
    let query = format!("SELECT count(*) FROM ticks WHERE agent = '{agent}' {open}");
    world.until_sql(&query, "1").await;
}

/// Until the program has written this.
async fn written(world: &World, message: &MessageView, text: &str) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let commands = world.commands();
        let tick = commands.message(message.id).await.unwrap().tick.unwrap();
        let transcript = commands.tick(tick).await.unwrap().transcript;
        if format!("{transcript:?}").contains(&format!("\"{text}")) {
            return;
        }
        assert!(Instant::now() < deadline, "{text}: {transcript:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// While one runs others speak: each is kept in order, sees its place, and is answered with what
/// came before it in sight.
#[tokio::test(flavor = "multi_thread")]
async fn qu_01_messages_that_arrive_while_one_runs() {
    let world = World::docker().await;
    let agent = world.shell().await;
    let slow = world
        .post(agent, "echo first >>log; sleep 4; cat log")
        .await;
    running(&world, agent).await;
    let mut waiting = Vec::new();
    for word in ["second", "third", "fourth"] {
        let command = format!("echo {word} >>log; tr '\\n' ' ' <log");
        waiting.push(world.post(agent, &command).await);
    }
    for (place, message) in waiting.iter().enumerate() {
        let seen = world.commands().message(message.id).await.unwrap();
        assert_eq!(seen.ahead, place as u64 + 1);
        assert_eq!(seen.outcome, None);
    }
    assert_eq!(text(&world.outcome(&slow).await), "first");
    let expected = [
        "first second",
        "first second third",
        "first second third fourth",
    ];
    for (message, expected) in waiting.iter().zip(expected) {
        let message = world.outcome(message).await;
        assert_eq!(message.outcome, Some(MessageOutcome::Answered));
        assert_eq!(text(&message), expected);
    }
    let overlapping =
        "SELECT count(*) FROM ticks a JOIN ticks b ON a.agent = b.agent AND a.id < b.id
                       WHERE b.started_at < a.ended_at";
    assert_eq!(world.sql(overlapping), "0");
    world.end().await;
}

/// A message that arrives between the program's end and the removal of its sandbox has a turn of
/// its own, which sees the finished state.
#[tokio::test(flavor = "multi_thread")]
async fn qu_02_a_message_that_arrives_while_the_sandbox_is_removed() {
    let (removing, release) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicBool::new(false)),
    );
    let (seen, let_go) = (removing.clone(), release.clone());
    let front = Front::new(move |request| {
        if request.removes_container() && !request.path.contains("-base-") {
            seen.store(true, Ordering::SeqCst);
            let deadline = Instant::now() + PATIENCE;
            while !let_go.load(Ordering::SeqCst) && Instant::now() < deadline {
                sleep(Duration::from_millis(20));
            }
        }
        Act::Pass
    });
    let world = World::docker_with(Setup {
        docker_host: Some(front.host()),
        ..Setup::default()
    })
    .await;
    let agent = world.shell().await;
    let first = world.post(agent, "echo finished >f; echo one").await;
    let deadline = Instant::now() + PATIENCE;
    while !removing.load(Ordering::SeqCst) {
        assert!(Instant::now() < deadline, "nothing is removed");
        sleep(Duration::from_millis(20));
    }
    let second = world.post(agent, "cat f").await;
    let seen = world
        .commands()
        .wait(second.id, Duration::from_secs(5))
        .await
        .unwrap();
    assert_eq!((seen.outcome, seen.tick), (None, None), "it waits");
    release.store(true, Ordering::SeqCst);
    assert_eq!(text(&world.outcome(&first).await), "one");
    assert_eq!(text(&world.outcome(&second).await), "finished");
    assert_eq!(world.sql("SELECT count(*) FROM ticks"), "2");
    world.end().await;
}

/// One program prints nothing for ever: others are answered at their usual speed, it ends at its
/// deadline, and its lane is free again. More hang than may run at once.
#[tokio::test(flavor = "multi_thread")]
async fn qu_04_a_hung_agent_holds_up_nobody() {
    let hung = Profile {
        limits: Limits {
            wall_clock_s: 20,
            ..Limits::default()
        },
        ..Profile::default()
    };
    let world = World::docker_with(Setup {
        profiles: vec![("hung".to_owned(), hung)],
        ..Setup::default()
    })
    .await;
    let (a, b) = (world.agent("hung").await.unwrap(), world.shell().await);
    world.reply(b, "true").await;
    let began = Instant::now();
    let hangs = world.post(a, "sleep 600").await;
    running(&world, a).await;
    for _ in 0..3 {
        assert_eq!(world.reply(b, "echo at once").await, "at once");
    }
    assert!(began.elapsed() < Duration::from_secs(19), "{began:?}");
    assert_eq!(
        world.commands().message(hangs.id).await.unwrap().outcome,
        None
    );
    let message = world.outcome(&hangs).await;
    assert_eq!(text(&message), "time limit of 20 s reached, changes kept");
    assert!(began.elapsed() < Duration::from_secs(45), "{began:?}");
    let view = world.commands().agent(a).await.unwrap();
    assert_eq!((view.running, view.waiting), (None, 0));
    // A turn that ends while a child keeps its stream open does not stay busy either.
    assert_eq!(world.reply(a, "setsid -f sleep 600; echo two").await, "two");
    assert_eq!(world.reply(a, "echo three").await, "three");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stop_ends_a_sleeping_program_within_two_seconds_and_keeps_its_changes() {
    let world = World::docker().await;
    let agent = world.shell().await;
    let sleeping = world
        .post(agent, "echo half >f; echo so far; sleep 600")
        .await;
    let next = world.post(agent, "cat f").await;
    running(&world, agent).await;
    world.until_sql("SELECT count(*) FROM messages", "2").await;
    written(&world, &sleeping, "so far").await;
    let began = Instant::now();
    let stopped = world
        .commands()
        .stop(agent, StopScope::Running)
        .await
        .unwrap();
    assert!(stopped.stopping.is_some() && stopped.withdrawn.is_empty());
    let message = world.outcome(&sleeping).await;
    assert!(
        began.elapsed() < Duration::from_secs(4),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(text(&message), "so far\n\nstopped, changes kept");
    let tick = world
        .commands()
        .tick(message.tick.unwrap())
        .await
        .unwrap()
        .tick;
    assert_eq!(tick.outcome, Some(TickOutcome::Cancelled));
    assert_eq!(tick.changes, Some(Changes::Kept));
    // What waits stays, and runs.
    assert_eq!(text(&world.outcome(&next).await), "half");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stop_all_withdraws_what_waits_with_a_notice() {
    let world = World::docker().await;
    let agent = world.shell().await;
    let sleeping = world.post(agent, "sleep 600").await;
    let waiting = [
        world.post(agent, "echo never").await,
        world.post(agent, "echo never").await,
    ];
    running(&world, agent).await;
    let stopped = world.commands().stop(agent, StopScope::All).await.unwrap();
    assert_eq!(
        stopped.withdrawn,
        waiting.each_ref().map(|message| message.id)
    );
    assert_eq!(
        text(&world.outcome(&sleeping).await),
        "stopped, changes kept"
    );
    for message in &waiting {
        let message = world.outcome(message).await;
        assert_eq!(message.outcome, Some(MessageOutcome::Withdrawn));
        assert!(
            text(&message).starts_with("withdrawn"),
            "{}",
            text(&message)
        );
    }
    assert_eq!(world.sql("SELECT count(*) FROM ticks"), "1");
    // Nothing is left to stop.
    let stopped = world.commands().stop(agent, StopScope::All).await.unwrap();
    assert_eq!((stopped.stopping, stopped.withdrawn), (None, vec![]));
    assert_eq!(world.reply(agent, "echo goes on").await, "goes on");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_send_with_the_same_key_is_the_first_one_again() {
    let world = World::docker().await;
    let (agent, other) = (world.shell().await, world.shell().await);
    let send = async |agent, text: &str| {
        let send = Send {
            text: text.to_owned(),
            files: Vec::new(),
            author: Author::local("tester"),
            idempotency_key: Some("key-1".to_owned()),
            sandbox: None,
        };
        world.commands().send(agent, send).await
    };
    let command = "echo x >>f; wc -l <f";
    let first = send(agent, command).await.unwrap();
    let again = send(agent, command).await.unwrap();
    assert_eq!(first.id, again.id);
    assert_eq!(text(&world.outcome(&first).await), "1");
    // Also after it was answered; another text is refused, another agent is another thread.
    let late = send(agent, command).await.unwrap();
    assert_eq!((late.id, text(&late)), (first.id, "1"));
    let refused = send(agent, "echo other").await;
    assert!(
        matches!(refused, Err(RequestError::Conflict(_))),
        "{refused:?}"
    );
    let beside = send(other, command).await.unwrap();
    assert_ne!(beside.id, first.id);
    assert_eq!(text(&world.outcome(&beside).await), "1");
    assert_eq!(world.reply(agent, "wc -l <f").await, "1");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rollback_and_rm_are_refused_while_a_tick_runs() {
    let world = World::docker().await;
    let agent = world.shell().await;
    world.reply(agent, "echo one >f").await;
    world.reply(agent, "echo two >f").await;
    let posted = world.post(agent, "cat f; sleep 600").await;
    let waits = world.post(agent, "cat f").await;
    running(&world, agent).await;
    written(&world, &posted, "two").await;
    let refused = world.commands().rollback(agent, None).await;
    let way_out = |error: &RequestError| matches!(error, RequestError::Conflict(text) if text.contains("mayfly agent stop"));
    assert!(refused.as_ref().is_err_and(way_out), "{refused:?}");
    let refused = world.commands().remove_agent(agent, false).await;
    assert!(refused.as_ref().is_err_and(way_out), "{refused:?}");
    world
        .commands()
        .stop(agent, StopScope::Running)
        .await
        .unwrap();
    assert_eq!(
        text(&world.outcome(&posted).await),
        "two\n\nstopped, changes kept"
    );
    assert_eq!(text(&world.outcome(&waits).await), "two");
    // Two ticks back that changed nothing, then the one that wrote.
    for _ in 0..3 {
        world.commands().rollback(agent, None).await.unwrap();
    }
    assert_eq!(world.reply(agent, "cat f").await, "one");
    world.end().await;
}
