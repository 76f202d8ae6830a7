//! Many senders at once: one sync for many, to each its own answer, and nothing is lost by one that gives up.

use std::{
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use mayfly_domain::{AgentId, Author, Mark};
use mayfly_orchestrator::{
    command::{RequestError, Send},
    faults,
    sandbox::fake::Fake,
    view::MessageView,
};
use mayfly_tests::{
    engine, full,
    world::{Setup, World},
};
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

struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// What another process does to the database meanwhile: it writes, and copies.
fn another_process(data_dir: &std::path::Path, over: &AtomicBool) -> u32 {
    let database = data_dir.join("mayfly.db");
    // It has the lock for some time.
    let write = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000)
        UPDATE installation SET written_by = written_by WHERE (SELECT count(*) FROM n) > 0";
    let copy = format!("VACUUM INTO '{}/copy-", data_dir.display());
    let mut rounds = 0;
    while !over.load(Ordering::SeqCst) {
        engine::change(&database, write);
        if rounds % 10 == 0 {
            engine::change(&database, &format!("{copy}{rounds}'"));
        }
        rounds += 1;
        thread::sleep(Duration::from_millis(50));
    }
    rounds
}

/// Fifty that write and ten that read, some of whom give up in the middle, while another process writes and copies:
/// nobody hears of a lock, what was accepted is there, and every connection comes back.
#[tokio::test(flavor = "multi_thread")]
async fn sp_05_fifty_writers_ten_readers_and_another_process_hear_of_no_lock() {
    let (world, agent) = at_rest().await;
    let last = if full() { 60 } else { 6 };
    let until = Instant::now() + Duration::from_secs(last);
    let (over, accepted) = (AtomicBool::new(false), AtomicUsize::new(0));
    let writing = (0..50_u64).map(|n| {
        let (world, accepted) = (&world, &accepted);
        let db = &world.service().worker().tools.db;
        async move {
            let mut round = 0_u64;
            while Instant::now() < until {
                round += 1;
                let key = format!("{n}-{round}");
                let mark = Mark {
                    platform: "chat".to_owned(),
                    name: format!("at{n}"),
                    value: round.to_string(),
                };
                match n % 5 {
                    0 => {
                        let key = format!("perhaps {key}");
                        let sent = send(world, agent, &key, "hello");
                        drop(timeout(Duration::from_micros(200 * (round % 50)), sent).await);
                    }
                    1 | 2 => {
                        let key = format!("sure {key}");
                        send(world, agent, &key, "hello").await.expect("accepted");
                        accepted.fetch_add(1, Ordering::SeqCst);
                    }
                    _ => drop(db.take_events(&[], Some(&mark)).await.expect("written")),
                }
                // The other process comes in between.
                tokio::time::sleep(Duration::from_millis(40 + n % 7)).await;
            }
        }
    });
    let reading = (0..10).map(|_| async {
        while Instant::now() < until {
            let before = accepted.load(Ordering::SeqCst) as u64;
            let seen = world.commands().agent(agent).await.expect("it is read");
            assert!(seen.waiting >= before, "{} of {before}", seen.waiting);
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    let rounds = thread::scope(|scope| {
        let other = scope.spawn(|| another_process(world.data_dir(), &over));
        // It ends also where one of them has heard of a lock.
        let end = End(&over);
        tokio::task::block_in_place(|| {
            let all = async { tokio::join!(join_all(writing), join_all(reading)) };
            tokio::runtime::Handle::current().block_on(all);
        });
        drop(end);
        other.join().expect("it heard of no lock either")
    });
    let accepted = accepted.load(Ordering::SeqCst);
    println!("{accepted} accepted beside {rounds} rounds of another process");
    assert!(accepted >= 20 && rounds > 0);
    let kept = "SELECT count(*) FROM messages m JOIN arrivals a ON a.message = m.id WHERE a.key LIKE 'sure %'";
    assert_eq!(world.sql(kept), accepted.to_string());
    timeout(
        Duration::from_secs(30),
        send(&world, agent, "last", "hello"),
    )
    .await
    .expect("its connection is back")
    .expect("accepted");
    world.end().await;
}
