//! What ticks may take together of the host's memory and disk: never more than there is, on either queue,
//! and a large one is neither starved nor in the way.

use std::time::Duration;

use mayfly_domain::{Limits, MessageOutcome};
use mayfly_orchestrator::{
    agent::profile::Profile, queue::QueueConfig, sandbox::fake::Fake, worker::WorkerConfig,
};
use mayfly_tests::{
    redis_server::RedisServer,
    server::Server,
    world::{Setup, World},
};

const PROGRAM: &str = env!("CARGO_BIN_EXE_mayfly-under-test");

fn profile(name: &str, limits: Limits) -> (String, Profile) {
    let profile = Profile {
        limits: Limits {
            wall_clock_s: 60,
            ..limits
        },
        ..Profile::default()
    };
    (name.to_owned(), profile)
}

fn of_memory(name: &str, memory_mib: u64) -> (String, Profile) {
    profile(
        name,
        Limits {
            memory_mib,
            state_mib: 1,
            ..Limits::default()
        },
    )
}

/// 300 MiB for six ticks.
fn setup(queue: QueueConfig, profiles: Vec<(String, Profile)>) -> Setup {
    Setup {
        queue,
        worker: WorkerConfig {
            max_running: 6,
            memory_mib: Some(300),
            grace_s: 5,
            ..WorkerConfig::default()
        },
        limits: Limits {
            memory_mib: 16,
            state_mib: 1,
            wall_clock_s: 60,
            ..Limits::default()
        },
        profiles,
        ..Setup::default()
    }
}

/// Most mebibytes that were promised at one moment to ticks of these profiles.
fn most_promised(world: &World, of: &[(&str, u64)]) -> u64 {
    let cases: String = of
        .iter()
        .map(|(profile, mib)| format!("WHEN '{profile}' THEN {mib} "))
        .collect();
    let query = format!(
        "SELECT max(n) FROM (SELECT (SELECT sum(CASE b.profile {cases} END) FROM ticks o JOIN agents b ON b.id = o.agent
           WHERE o.started_at <= t.started_at AND o.ended_at > t.started_at) AS n FROM ticks t) AS counted"
    );
    world.sql(&query).parse().expect("a number")
}

/// Small ones keep coming; the large one, which fits beside none of them, has its turn all the same, and
/// then they go on.
#[tokio::test(flavor = "multi_thread")]
async fn sp_01_a_large_tick_is_not_starved_by_small_ones_and_memory_is_never_promised_twice() {
    let server = RedisServer::start(&[]);
    for queue in [QueueConfig::default(), QueueConfig { url: server.url() }] {
        let profiles = vec![of_memory("small", 100), of_memory("large", 250)];
        let world = World::fake(setup(queue, profiles), Fake::new).await;
        let mut small = Vec::new();
        for n in 0..9 {
            let agent = world.agent("small").await.expect("an agent");
            // Those that begin together do not end together.
            let text = format!("sleep 1.{n}; echo ok");
            for _ in 0..4 {
                small.push(world.post(agent, &text).await);
            }
        }
        let running = "SELECT count(*) FROM ticks WHERE outcome IS NULL";
        world.until_sql(running, "3").await;
        let agent = world.agent("large").await.expect("an agent");
        let large = world.post(agent, "sleep 0.5; echo large").await;
        let waits = world.commands().message(large.id).await.unwrap();
        let progress = waits.progress.unwrap_or_default();
        assert!(
            progress.contains("in the queue")
                && progress.contains("may take 250 MiB, and 0 of 300"),
            "{progress}"
        );
        let settled = world.outcome(&large).await;
        assert_eq!(settled.reply.expect("a reply").text, "large");
        let left = "SELECT count(*) FROM messages WHERE outcome IS NULL";
        let left: u32 = world.sql(left).parse().unwrap();
        assert!(left >= 6, "small ones still wait: {left}");
        let told = format!(
            "SELECT count(*) FROM deliveries WHERE kind = 'waiting' AND message = '{}' AND text LIKE '%memory%'",
            large.id
        );
        assert_eq!(world.sql(&told), "1");
        for message in &small {
            let settled = world.outcome(message).await;
            assert_eq!(settled.outcome, Some(MessageOutcome::Answered));
        }
        assert_eq!(
            most_promised(&world, &[("small", 100), ("large", 250)]),
            300
        );
        assert_eq!(world.sql("SELECT max(attempts) FROM messages"), "0");
        world.end().await;
    }
}

/// A tick that waits for what is promised to it lets the process end, and runs after the next start.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_waits_for_its_share_is_handed_back_when_the_process_ends() {
    let profiles = vec![of_memory("small", 100), of_memory("large", 250)];
    let world = World::fake(setup(QueueConfig::default(), profiles), Fake::new).await;
    let small = world.agent("small").await.expect("an agent");
    let running = world.post(small, "sleep 50").await;
    let large = world.agent("large").await.expect("an agent");
    let waits = world.post(large, "echo large").await;
    let told = "SELECT count(*) FROM deliveries WHERE kind = 'waiting'";
    world.until_sql(told, "1").await;
    let begun = std::time::Instant::now();
    world.rest().await;
    assert!(
        begun.elapsed() < Duration::from_secs(20),
        "the grace is 5 s"
    );
    for message in [&running, &waits] {
        let row = world.commands().message(message.id).await.unwrap();
        assert_eq!((row.outcome, row.attempts), (None, 0));
    }
    world.end().await;
}

/// What a tick may write is free above the floor when it begins.
#[tokio::test(flavor = "multi_thread")]
async fn sp_01_room_on_the_disk_is_promised_to_one_at_a_time_where_there_is_not_more() {
    let probe = tempfile::tempdir().expect("a folder");
    let found = rustix::fs::statvfs(probe.path()).expect("it exists");
    let free = (found.f_bavail * found.f_frsize) >> 20;
    let large = Limits {
        memory_mib: 16,
        state_mib: free * 3 / 5,
        ..Limits::default()
    };
    let mut setup = setup(QueueConfig::default(), vec![profile("large", large)]);
    setup.disk.floor_mib = 1;
    let world = World::fake(setup, Fake::new).await;
    let mut posted = Vec::new();
    for _ in 0..2 {
        let agent = world.agent("large").await.expect("an agent");
        posted.push(world.post(agent, "sleep 1; echo ok").await);
    }
    world
        .until_sql("SELECT count(*) FROM ticks WHERE outcome IS NULL", "1")
        .await;
    let small = world.shell().await;
    assert_eq!(world.reply(small, "echo beside").await, "beside");
    for message in &posted {
        let settled = world.outcome(message).await;
        assert_eq!(settled.outcome, Some(MessageOutcome::Answered));
    }
    let most = most_promised(&world, &[("large", 1), ("shell", 0)]);
    assert_eq!(most, 1, "one large one at a time");
    world.end().await;
}

/// A profile that takes more than is stated for all is refused by name, with both figures; whoever only
/// looks may look.
#[test]
fn a_profile_beyond_what_is_stated_is_refused_at_start() {
    let mut server = Server::simulated(PROGRAM);
    server.start();
    let agent = server.agent();
    server.stop();
    server.set_env("MAYFLY__WORKER__MEMORY_MIB", "512");
    let refused = server.mayfly(&["serve", "--simulate"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(5), "{said}");
    for part in [
        "\"shell\"",
        "1024 MiB",
        "512 MiB",
        "profiles.shell.limits.memory_mib",
        "worker.memory_mib",
    ] {
        assert!(said.contains(part), "{said}");
    }
    server.set_env("MAYFLY__WORKER__MEMORY_MIB", "2048");
    // One alone has what is above the floor.
    server.set_env("MAYFLY__PROFILES__SHELL__LIMITS__STATE_MIB", "1000000000");
    server.start();
    server.json(&["agent", "send", &agent, "echo on"]);
    server.stop();
}
