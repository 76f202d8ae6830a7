//! A worker that is frozen between the claim and its program's start: its lease may be over when it goes on.

use std::{
    cell::Cell,
    path::PathBuf,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use mayfly_orchestrator::{
    clock::{self, STALE, simulated},
    faults,
    sandbox::fake::Fake,
    worker::WorkerConfig,
};
use mayfly_tests::{
    engine,
    world::{PATIENCE, Setup, World},
};

/// Longer than a lease is fresh.
const FROZEN: Duration = Duration::from_secs(STALE.as_secs() + 5);

static POINT: Mutex<&str> = Mutex::new("");
static WAS_FROZEN: AtomicBool = AtomicBool::new(false);
/// From when on the clocks go on.
static GOES_ON: AtomicBool = AtomicBool::new(false);
/// Sandboxes that were made.
static READY: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// The clocks of this host when the test began.
    static BEGAN: Cell<Option<(Instant, simulated::Now)>> = const { Cell::new(None) };
}

/// Both clocks as they are, and so much later.
fn show(later: Duration) {
    let now = BEGAN.get().unwrap_or_else(|| {
        let began = simulated::Now {
            unix_ms: clock::unix_ms(),
            boot: clock::boot_time(),
        };
        let began = (Instant::now(), began);
        BEGAN.set(Some(began));
        began
    });
    let (since, began) = now;
    let passed = since.elapsed() + later;
    simulated::set(simulated::Now {
        unix_ms: began.unix_ms + passed.as_millis() as i64,
        boot: began.boot + passed,
    });
}

/// Its first passing takes as long as a frozen process does.
fn freeze(passed: &'static str) {
    let at = *POINT.lock().unwrap();
    if passed == at && !WAS_FROZEN.swap(true, Ordering::SeqCst) {
        show(FROZEN);
    }
    match passed {
        "spawn.ready" => {
            READY.fetch_add(1, Ordering::SeqCst);
        }
        "destroy.closed" => GOES_ON.store(true, Ordering::SeqCst),
        _ => {}
    }
}

/// One interruption that counts would park the message. Answers how many sandboxes were made.
async fn answered_although_frozen_at(point: &'static str) -> u32 {
    show(Duration::ZERO);
    *POINT.lock().unwrap() = point;
    faults::watch(freeze);
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
    let message = world.post(agent, "echo here").await;
    let deadline = Instant::now() + PATIENCE;
    let settled = loop {
        let seen = world.commands().message(message.id).await.unwrap();
        if seen.outcome.is_some() {
            break seen;
        }
        assert!(Instant::now() < deadline, "{seen:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
        match WAS_FROZEN.load(Ordering::SeqCst) {
            false => show(Duration::ZERO),
            true if GOES_ON.load(Ordering::SeqCst) => show(FROZEN),
            // It stands.
            true => {}
        }
    };
    assert_eq!(
        settled.reply.map(|reply| reply.text).as_deref(),
        Some("here")
    );
    let ticks =
        world.sql("SELECT group_concat(outcome, ' ') FROM (SELECT outcome FROM ticks ORDER BY id)");
    assert_eq!(ticks, "interrupted done");
    let told = world.sql("SELECT notice FROM ticks WHERE outcome = 'interrupted'");
    assert!(told.contains("let go of its sandboxes"), "{told}");
    let made = READY.load(Ordering::SeqCst);
    world.end().await;
    made
}

#[tokio::test]
async fn p2_a_worker_that_was_frozen_since_the_claim_makes_no_sandbox() {
    assert_eq!(answered_although_frozen_at("spawn.uppers").await, 1);
}

#[tokio::test]
async fn p2_a_worker_that_was_frozen_since_the_sandbox_was_made_starts_no_program() {
    assert_eq!(answered_although_frozen_at("scope.after").await, 2);
}

/// Where a start waits until its lease is renewed.
static STARTS_IN: Mutex<Option<PathBuf>> = Mutex::new(None);

fn take_long(passed: &'static str) {
    let folder = STARTS_IN
        .lock()
        .unwrap()
        .take_if(|_| passed == "reconcile.closed");
    let Some(folder) = folder else { return };
    let data_dir = std::fs::read_dir(folder)
        .unwrap()
        .next()
        .expect("the data dir");
    let database = data_dir.unwrap().path().join("mayfly.db");
    let expires = || engine::sql(&database, "SELECT expires_at FROM workers");
    let (first, deadline) = (expires(), Instant::now() + clock::LEASE);
    while expires() == first {
        assert!(
            Instant::now() < deadline,
            "the lease is over before the start is"
        );
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// A start that has much to close is heard of meanwhile, so nobody declares it dead.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_start_that_takes_long_keeps_its_lease() {
    let folder = tempfile::tempdir().unwrap();
    *STARTS_IN.lock().unwrap() = Some(folder.path().to_owned());
    faults::watch(take_long);
    let world = World::fake_in(Setup::default(), Fake::new, folder.path()).await;
    assert!(STARTS_IN.lock().unwrap().is_none(), "it has waited");
    world.end().await;
}
