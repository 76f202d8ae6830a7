//! The whole service on a real Redis that is emptied, restarted, missing or strange; and the limits on
//! what runs at once, which hold on either queue.

use std::time::{Duration, Instant};

use mayfly_domain::{AgentId, Author, Limits, MessageOutcome};
use mayfly_orchestrator::{
    agent::profile::Profile,
    command::Send,
    queue::{Queue as _, QueueConfig, Redis, TURN},
    sandbox::fake::Fake,
    view::MessageView,
    worker::{Identity, WorkerConfig},
};
use mayfly_tests::{
    engine::run,
    http::{get, on_socket},
    redis_server::RedisServer,
    server::Server,
    world::{PATIENCE, Setup, World},
};
use serde_json::Value;
use tempfile::TempDir;

/// In which a queue that was emptied knows again who waits, and the next tick has run.
const REFILLED: Duration = Duration::from_secs(5);

fn setup(server: &RedisServer) -> Setup {
    Setup {
        queue: QueueConfig { url: server.url() },
        ..Setup::default()
    }
}

fn text(message: &MessageView) -> &str {
    message.reply.as_ref().map_or("", |reply| &reply.text)
}

async fn post_as(world: &World, author: &str, agent: AgentId, text: &str) -> MessageView {
    let send = Send {
        text: text.to_owned(),
        files: Vec::new(),
        author: Author::local(author),
        idempotency_key: None,
        sandbox: None,
    };
    world.commands().send(agent, send).await.expect("accepted")
}

/// Ticks that were open at one moment, at most.
fn most_at_once(world: &World, which: &str) -> usize {
    let query = format!(
        "SELECT max(n) FROM (SELECT (SELECT count(*) FROM ticks o JOIN agents b ON b.id = o.agent
           JOIN messages n ON n.id = o.message
           WHERE o.started_at <= t.started_at AND o.ended_at > t.started_at AND {which}) AS n FROM ticks t) AS counted"
    );
    world.sql(&query).parse().expect("a number")
}

/// Whatever Redis forgets, each message has one tick, in its agent's order.
#[tokio::test(flavor = "multi_thread")]
async fn a_queue_that_is_emptied_again_and_again_loses_nothing() {
    let server = RedisServer::start(&[]);
    let mut setup = setup(&server);
    setup.worker.max_running = 6;
    let world = World::fake(setup, Fake::new).await;
    let mut posted = Vec::new();
    for _ in 0..10 {
        let agent = world.shell().await;
        for number in 1..=8 {
            let message = world
                .post(agent, &format!("echo {number} >>log; sleep 0.1; cat log"))
                .await;
            posted.push((number, message));
        }
    }
    let emptying = async {
        loop {
            server.command(&["FLUSHALL"]);
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    };
    let settling = async {
        for (number, message) in &posted {
            let settled = world.outcome(message).await;
            let expected: Vec<String> = (1..=*number).map(|n| n.to_string()).collect();
            assert_eq!(text(&settled).lines().collect::<Vec<_>>(), expected);
        }
    };
    tokio::select! {
        () = emptying => {}
        () = settling => {}
    }
    assert_eq!(world.sql("SELECT count(*) FROM ticks"), "80");
    assert_eq!(world.sql("SELECT count(*) FROM deliveries"), "80");
    world.end().await;
}

/// One place, whose message takes a second, and a message of another agent that waits for it.
async fn one_waits_for_another(server: &RedisServer) -> (World, [MessageView; 2]) {
    let mut setup = setup(server);
    setup.worker.max_running = 1;
    let world = World::fake(setup, Fake::new).await;
    let (busy, waiting) = (world.shell().await, world.shell().await);
    let first = world.post(busy, "sleep 1").await;
    world
        .until_sql("SELECT count(*) FROM ticks WHERE outcome IS NULL", "1")
        .await;
    let second = world.post(waiting, "echo here").await;
    (world, [first, second])
}

/// What was never told to the queue is told by the reconciler.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_queue_forgot_runs_within_seconds() {
    let server = RedisServer::start(&[]);
    let (world, [first, second]) = one_waits_for_another(&server).await;
    server.command(&["FLUSHALL"]);
    let began = Instant::now();
    world.outcome(&first).await;
    assert_eq!(text(&world.outcome(&second).await), "here");
    assert!(began.elapsed() < REFILLED, "{:?}", began.elapsed());
    world.end().await;
}

/// The same where another process had the turn to tell the queue who waits, and died right then.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_queue_forgot_runs_within_seconds_where_whoever_had_the_turn_died() {
    let server = RedisServer::start(&[]);
    let (world, [first, second]) = one_waits_for_another(&server).await;
    let dead = Identity {
        id: "dead".to_owned(),
        epoch: 1,
    };
    let installation = world.sql("SELECT id FROM installation");
    let dead = Redis::open(&server.url(), &installation, dead).unwrap();
    // The service asks too, and may be the first who does.
    let began = loop {
        let began = Instant::now();
        server.command(&["FLUSHALL"]);
        if dead.turn().await.unwrap() {
            break began;
        }
    };
    world.outcome(&first).await;
    assert_eq!(text(&world.outcome(&second).await), "here");
    let took = began.elapsed();
    assert!(took >= TURN, "{took:?}: it was not this process's turn");
    assert!(took < REFILLED, "{took:?}");
    world.end().await;
}

/// A queue that is down delays and says so; what was accepted meanwhile is answered, without a restart.
#[tokio::test(flavor = "multi_thread")]
async fn a_queue_that_is_down_is_told_and_delays_only() {
    let mut server = RedisServer::start(&[]);
    server.kill();
    let world = World::fake(setup(&server), Fake::new).await;
    let agent = world.shell().await;
    for round in 0..2 {
        let message = world.post(agent, "echo here").await;
        until_problem(&world, "does not answer").await;
        assert_eq!(
            world.commands().message(message.id).await.unwrap().outcome,
            None
        );
        server.run();
        assert_eq!(
            text(&world.outcome(&message).await),
            "here",
            "round {round}"
        );
        until_no_problem(&world).await;
        server.kill();
    }
    server.run();
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_without_memory_is_told_and_delays_only() {
    let server = RedisServer::start(&["--maxmemory-policy", "noeviction"]);
    let world = World::fake(setup(&server), Fake::new).await;
    let agent = world.shell().await;
    assert_eq!(world.reply(agent, "echo before").await, "before");
    server.command(&["CONFIG", "SET", "maxmemory", "1mb"]);
    let message = world.post(agent, "echo after").await;
    until_problem(&world, "is out of memory").await;
    server.command(&["CONFIG", "SET", "maxmemory", "0"]);
    assert_eq!(text(&world.outcome(&message).await), "after");
    until_no_problem(&world).await;
    world.end().await;
}

async fn until_problem(world: &World, part: &str) {
    until(world, part, |problems| {
        problems.iter().any(|has| has.contains(part))
    })
    .await;
}

async fn until_no_problem(world: &World) {
    until(world, "none", |problems| problems.is_empty()).await;
}

async fn until(world: &World, wanted: &str, fits: impl Fn(&[String]) -> bool) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let problems = world.commands().ready().await.problems;
        if fits(&problems) {
            return;
        }
        assert!(Instant::now() < deadline, "not {wanted}: {problems:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// A message that ends every worker before its claim is parked with a reason, its neighbours run.
#[tokio::test(flavor = "multi_thread")]
async fn qu_03_what_the_queue_put_aside_is_parked_with_a_reason() {
    let server = RedisServer::start(&[]);
    let world = World::fake(setup(&server), Fake::new).await;
    let (poisoned, neighbour) = (world.shell().await, world.shell().await);
    // The queue has counted as many deaths as it bears.
    let prefix = world.sql("SELECT id FROM installation");
    let dead = format!("{{mayfly:{prefix}}}:dead");
    server.command(&["SADD", &dead, &poisoned.to_string()]);
    let message = world.post(poisoned, "echo never").await;
    assert_eq!(world.reply(neighbour, "echo here").await, "here");
    let parked = world.outcome(&message).await;
    assert_eq!(parked.outcome, Some(MessageOutcome::Parked));
    assert!(
        parked
            .reason
            .unwrap_or_default()
            .contains("every worker that took it died")
    );
    assert_eq!(world.reply(poisoned, "echo next").await, "next");
    let notice = format!(
        "SELECT count(*) FROM deliveries WHERE message = '{}'",
        message.id
    );
    assert_eq!(world.sql(&notice), "1", "the thread is told once");
    world.end().await;
}

/// One person's burst leaves room for others, on either queue.
#[tokio::test(flavor = "multi_thread")]
async fn sp_01_limits_per_person_and_per_profile_hold() {
    let server = RedisServer::start(&[]);
    for queue in [QueueConfig::default(), QueueConfig { url: server.url() }] {
        let heavy = Profile {
            max_concurrent: Some(1),
            ..Profile::default()
        };
        let setup = Setup {
            queue,
            worker: WorkerConfig {
                max_running: 6,
                max_per_user: Some(2),
                ..WorkerConfig::default()
            },
            profiles: vec![("heavy".to_owned(), heavy)],
            ..Setup::default()
        };
        let world = World::fake(setup, Fake::new).await;
        let mut posted = Vec::new();
        for (author, profile, agents) in [
            ("ada", "shell", 5),
            ("bob", "heavy", 2),
            ("eve", "heavy", 1),
        ] {
            for _ in 0..agents {
                let agent = world.agent(profile).await.expect("an agent");
                posted.push(post_as(&world, author, agent, "sleep 0.7; echo ok").await);
            }
        }
        for message in &posted {
            let settled = world.outcome(message).await;
            assert_eq!(settled.outcome, Some(MessageOutcome::Answered));
        }
        let of_ada = most_at_once(&world, "n.author_name = 'ada'");
        let heavy = most_at_once(&world, "b.profile = 'heavy'");
        let all = most_at_once(&world, "1 = 1");
        assert_eq!((of_ada, heavy), (2, 1), "of {all}");
        assert!(all >= 3, "both run beside one another: {all}");
        world.end().await;
    }
}

/// Long ticks never have all the places where a profile has short ones.
#[tokio::test(flavor = "multi_thread")]
async fn qu_04_a_short_tick_finds_a_place_while_long_ones_fill_the_rest() {
    let quick = Profile {
        limits: Limits {
            wall_clock_s: 60,
            ..Limits::default()
        },
        ..Profile::default()
    };
    let setup = Setup {
        limits: Limits {
            wall_clock_s: 600,
            ..Limits::default()
        },
        worker: WorkerConfig {
            max_running: 2,
            ..WorkerConfig::default()
        },
        profiles: vec![("quick".to_owned(), quick)],
        ..Setup::default()
    };
    let world = World::fake(setup, Fake::new).await;
    let mut long = Vec::new();
    for _ in 0..2 {
        let agent = world.shell().await;
        long.push(world.post(agent, "sleep 4; echo ok").await);
    }
    world
        .until_sql("SELECT count(*) FROM ticks WHERE outcome IS NULL", "1")
        .await;
    let quick = world.agent("quick").await.expect("an agent");
    assert_eq!(world.reply(quick, "echo at once").await, "at once");
    for message in &long {
        let settled = world.commands().message(message.id).await.unwrap();
        assert_eq!(settled.outcome, None, "the long ones are not over yet");
        let settled = world.outcome(message).await;
        assert_eq!(settled.outcome, Some(MessageOutcome::Answered));
    }
    assert_eq!(most_at_once(&world, "b.profile = 'shell'"), 1);
    world.end().await;
}

/// `rediss://` with a certificate of one's own authority; without that authority the reason is told.
#[test]
fn a_queue_behind_tls_is_used_where_its_authority_is_known() {
    let folder = TempDir::with_prefix("mayfly-tls").unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (key, certificate) = (path("key.pem"), path("cert.pem"));
    run(
        "openssl",
        &[
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-keyout",
            &key,
            "-out",
            &certificate,
            "-days",
            "2",
            "-subj",
            "/CN=localhost",
            "-addext",
            "subjectAltName=DNS:localhost",
            "-addext",
            "basicConstraints=critical,CA:FALSE",
        ],
    );
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let redis = RedisServer::start(&[
        "--tls-port",
        &port.to_string(),
        "--bind",
        "127.0.0.1",
        "--tls-auth-clients",
        "no",
        "--tls-cert-file",
        &certificate,
        "--tls-key-file",
        &key,
        "--tls-ca-cert-file",
        &certificate,
        "--requirepass",
        "sesame-4711",
    ]);
    let url = format!("rediss://:sesame-4711@localhost:{port}/0");
    let mut server =
        Server::simulated(env!("CARGO_BIN_EXE_mayfly-under-test")).env("MAYFLY__QUEUE__URL", &url);
    server.start();
    let problems = |server: &Server| {
        let answer = on_socket(server.data_dir(), &get("/readyz"));
        answer.json()["problems"].to_string()
    };
    server.until("an untrusted certificate is told", || {
        let told = problems(&server);
        match told.contains("SSL_CERT_FILE") {
            true => Ok(()),
            false => Err(told),
        }
    });
    assert_eq!(server.stop().code(), Some(0));
    server.set_env("SSL_CERT_FILE", &certificate);
    server.start();
    let agent = server.agent();
    let sent = server.json(&["agent", "send", &agent, "echo here"]);
    assert_eq!(sent["reply"]["text"], Value::from("here"), "{sent}");
    assert_eq!(problems(&server), "[]");
    assert!(
        redis
            .command(&["-a", "sesame-4711", "--no-auth-warning", "KEYS", "*"])
            .contains("{mayfly:")
    );
    let shown = server.mayfly(&["check"]);
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned() + &server.log();
    assert!(!shown.contains("sesame-4711"), "{shown}");
    assert_eq!(server.stop().code(), Some(0));
}
