//! Many senders at once: one sync for many, to each its own answer, and nothing is lost by one that gives up.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use futures_util::future::join_all;
use mayfly_domain::{AgentId, Author};
use mayfly_orchestrator::{
    command::{RequestError, Send},
    faults,
    sandbox::fake::Fake,
    view::MessageView,
};
use mayfly_tests::world::{Setup, World};
use tokio::time::timeout;

static COMMITS: AtomicUsize = AtomicUsize::new(0);

fn count_commits() {
    faults::watch(|point| {
        if point == "accept.inside" {
            COMMITS.fetch_add(1, Ordering::SeqCst);
        }
    });
}

/// Nothing runs: what was accepted can be counted.
async fn at_rest() -> (World, AgentId) {
    let world = World::fake(Setup::default(), Fake::new).await;
    let agent = world.shell().await;
    world.rest().await;
    (world, agent)
}

async fn send(
    world: &World,
    agent: AgentId,
    key: &str,
    text: &str,
) -> Result<MessageView, RequestError> {
    let send = Send {
        text: text.to_owned(),
        files: Vec::new(),
        author: Author::local("tester"),
        idempotency_key: Some(key.to_owned()),
        sandbox: None,
    };
    world.commands().send(agent, send).await
}

#[tokio::test(flavor = "multi_thread")]
async fn many_senders_share_a_sync_and_each_has_its_own_answer() {
    let (world, agent) = at_rest().await;
    count_commits();
    let nobody = AgentId::new();
    let sending = (0..200).map(|n| {
        let world = &world;
        async move {
            match n % 4 {
                // Twins are one message, whichever comes first.
                0 | 1 => send(world, agent, &format!("k{}", n / 4), "the same").await,
                2 => send(world, agent, &format!("own{n}"), "its own").await,
                _ => send(world, nobody, &format!("k{n}"), "to nobody").await,
            }
        }
    });
    let answers = join_all(sending).await;
    for (n, answer) in answers.iter().enumerate() {
        assert_eq!(answer.is_ok(), n % 4 != 3, "{n}: {answer:?}");
    }
    for twins in answers.chunks(4) {
        let [first, second, own, _] = twins else {
            panic!("fours")
        };
        let id = |answer: &Result<MessageView, RequestError>| answer.as_ref().expect("accepted").id;
        assert_eq!(id(first), id(second));
        assert_ne!(id(first), id(own));
    }
    assert_eq!(
        world.sql("SELECT count(*), max(seq) FROM messages"),
        "100|100"
    );
    let commits = COMMITS.load(Ordering::SeqCst);
    assert!(
        commits <= 75,
        "{commits} commits for 150 that were accepted"
    );
    let other = send(&world, agent, "k0", "another text").await;
    assert!(other.is_err(), "{other:?}");
    world.end().await;
}

/// Senders that give up anywhere take nobody with them.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_gives_up_takes_nobody_along() {
    let (world, agent) = at_rest().await;
    let sending = (0..120_u64).map(|n| {
        let world = &world;
        async move {
            let key = format!("k{n}");
            let sent = send(world, agent, &key, "hello");
            match n % 3 {
                0 => drop(timeout(Duration::from_micros(40 * n), sent).await),
                _ => drop(sent.await.expect("accepted")),
            }
        }
    });
    timeout(Duration::from_secs(60), join_all(sending))
        .await
        .expect("nobody waits for one that gave up");
    // Those that gave up come again.
    for n in (0..120).step_by(3) {
        send(&world, agent, &format!("k{n}"), "hello")
            .await
            .expect("accepted");
    }
    assert_eq!(
        world.sql("SELECT count(*), count(DISTINCT seq) FROM messages"),
        "120|120"
    );
    world.end().await;
}
