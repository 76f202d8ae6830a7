//! What it costs to find out who is next: the queue in the process and the one on Redis, beside a plain
//! list on the same Redis and a job queue that others wrote; and what the claim in the database costs,
//! timed apart.
//!
//! A dispatch is a lane that is taken and given back with more work, so as many lanes wait at the end as at
//! the beginning. Each worker of Redis has connections of its own, as another process would.

use std::{
    collections::{BTreeMap, HashMap},
    path::Path,
    process::Command,
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use mayfly_domain::{AgentId, TickId};
use mayfly_orchestrator::{
    db::together::Together,
    queue::{Length, Local, Offer, Queue, Redis, Room, Work},
    sandbox::{Names, fake::Fake},
    snapshot::Slot,
    supervise::Supervisor,
    tick::destroy,
    worker::Identity,
};
use redis::aio::MultiplexedConnection;
use tokio::task::JoinHandle;

use super::{figure::Report, points::ms};
use crate::{
    engine::run as output,
    redis_server::RedisServer,
    world::{Setup, World},
};

const WORKERS: [usize; 3] = [1, 4, 16];
const LANES: [usize; 3] = [10, 10_000, 100_000];
/// Lanes at which others are compared.
const BESIDE: usize = 10_000;
/// How long each is measured.
const SPAN: Duration = Duration::from_secs(2);
/// Lanes offered alone, to see how long one takes.
const OFFERS: usize = 500;
/// Jobs of the other job queue for each worker count.
const JOBS: usize = 5000;
/// Claims.
const CLAIMS: usize = 300;

/// Against a plain list, which knows neither lanes nor order over users.
const LIST: f64 = 2.0;
/// Against the other job queue.
const OTHER: f64 = 1.0;
/// From 10 to 100,000 lanes.
const FLAT: f64 = 1.2;

/// Measures all of it.
pub async fn run() -> Report {
    let mut report = Report::default();
    for lanes in LANES {
        for workers in WORKERS {
            let queue = Arc::new(Local::default());
            let queues = vec![queue; workers];
            dispatch(&mut report, "in process", &queues, lanes).await;
        }
    }
    for lanes in LANES {
        for workers in WORKERS {
            let server = RedisServer::start(&[]);
            let queues: Vec<_> = (0..workers).map(|n| shared(&server, n)).collect();
            dispatch(&mut report, "Redis", &queues, lanes).await;
            if lanes == BESIDE {
                why_slower(&mut report, &server, workers).await;
            }
        }
    }
    for workers in WORKERS {
        let server = RedisServer::start(&[]);
        list(&mut report, &server, workers).await;
        let server = RedisServer::start(&[]);
        bullmq(&mut report, &server, workers);
        compare(&mut report, workers);
    }
    for kind in ["in process", "Redis"] {
        for workers in WORKERS {
            let [few, .., many] = LANES.map(|lanes| figure(kind, workers, lanes));
            report.ratio(&flat(kind, workers), &many, &few, Some(FLAT));
        }
    }
    let slower = caches();
    for workers in WORKERS {
        report.cause(&flat("in process", workers), &slower);
    }
    claims(&mut report).await;
    report
}

fn say(what: &str) {
    eprintln!("bench: {what}");
}

fn figure(kind: &str, workers: usize, lanes: usize) -> String {
    format!("dispatch, {kind}, {workers} at once, {lanes} lanes")
}

fn flat(kind: &str, workers: usize) -> String {
    format!("{kind}, {workers} at once: 100000 lanes / 10")
}

fn against_the_list(workers: usize) -> String {
    format!("dispatch / plain list, {workers} at once")
}

/// What Redis itself takes for the calls of a dispatch.
async fn why_slower(report: &mut Report, server: &RedisServer, workers: usize) {
    let client = redis::Client::open(server.url()).expect("a good address");
    let connection = client.get_multiplexed_async_connection().await;
    let mut connection = connection.expect("it answers");
    let stats: String = redis::cmd("INFO")
        .arg("commandstats")
        .query_async(&mut connection)
        .await
        .expect("it answers");
    let count = |name: &str, key: &str| {
        let line = stats.lines().find(|line| line.starts_with(name));
        let value = line.and_then(|line| line.split_once(&format!("{key}="))?.1.split(',').next());
        value
            .and_then(|value| value.parse::<f64>().ok())
            .unwrap_or(0.0)
    };
    let all: f64 = stats
        .lines()
        .filter_map(|line| {
            line.split_once("calls=")?
                .1
                .split(',')
                .next()?
                .parse::<f64>()
                .ok()
        })
        .sum();
    let (scripts, took) = (
        count("cmdstat_evalsha:", "calls"),
        count("cmdstat_evalsha:", "usec"),
    );
    report.cause(
        &against_the_list(workers),
        format!(
            "Redis, which has one thread, works {:.1} us on the two scripts of a dispatch, with {:.0} commands \
             inside; the list has two commands",
            2.0 * took / scripts,
            2.0 * (all - scripts) / scripts,
        ),
    );
}

/// The least that a dispatch does, on few lanes and on many.
fn caches() -> String {
    let each = |lanes: usize| {
        let ids: Vec<AgentId> = (0..lanes).map(|_| AgentId::new()).collect();
        let mut work: HashMap<AgentId, Work> = HashMap::new();
        let mut line: BTreeMap<usize, AgentId> = ids.iter().copied().enumerate().collect();
        work.extend(
            ids.iter()
                .enumerate()
                .map(|(n, id)| (*id, offer(lanes, n).work)),
        );
        let rounds = 10 * LANES[LANES.len() - 1];
        let began = Instant::now();
        for round in 0..rounds {
            let (_, id) = line.pop_first().expect("as many as before");
            let found = work.remove(&id).expect("all have work");
            work.insert(id, found);
            line.insert(lanes + round, id);
        }
        began.elapsed().as_secs_f64() * 1e6 / rounds as f64
    };
    let (few, many) = (each(LANES[0]), each(LANES[LANES.len() - 1]));
    format!(
        "a bare map and a bare line of as many lanes take {few:.2} us with {} and {many:.2} us with {}: \
         what is not in the processor's cache has to be fetched",
        LANES[0],
        LANES[LANES.len() - 1]
    )
}

fn shared(server: &RedisServer, number: usize) -> Arc<Redis> {
    let identity = Identity {
        id: format!("w{number}"),
        epoch: 1,
    };
    Arc::new(Redis::open(&server.url(), "bench", identity).expect("a good address"))
}

fn offer(lanes: usize, number: usize) -> Offer {
    Offer {
        work: Work {
            lane: AgentId::new(),
            user: format!("local/user {}", number % (lanes / 10).max(1)),
            profile: "shell".to_owned(),
            length: Length::Long,
        },
        delay: Duration::ZERO,
    }
}

async fn dispatch<Q: Queue>(report: &mut Report, kind: &str, queues: &[Arc<Q>], lanes: usize) {
    let workers = queues.len();
    // Each of several has its share to take from, as long as it holds one.
    let offers: Vec<Offer> = (0..lanes.max(workers)).map(|n| offer(lanes, n)).collect();
    queues[0].offer(&offers).await.expect("it answers");
    let (supervisor, began) = (Supervisor::default(), Instant::now());
    let working = queues.iter().cloned().map(|queue| {
        supervisor.task("measured", async move {
            let (mut done, room) = (0_usize, Room::for_all());
            while began.elapsed() < SPAN {
                let work = queue.take(&room).await.expect("it answers");
                let again = Offer {
                    work: work.clone(),
                    delay: Duration::ZERO,
                };
                queue
                    .done(work.lane, Some(again))
                    .await
                    .expect("it answers");
                done += 1;
            }
            done
        })
    });
    let (each, done) = counted(working.collect(), began).await;
    report.value(&figure(kind, workers, lanes), "us", None, each, done);
    if workers == 1 {
        let mut took = Vec::new();
        for number in 0..OFFERS {
            let one = [offer(lanes, number)];
            let began = Instant::now();
            queues[0].offer(&one).await.expect("it answers");
            took.push(ms(began.elapsed()) * 1000.0);
        }
        report.samples(&format!("offer, {kind}, {lanes} lanes"), "us", None, &took);
    }
    say(&format!(
        "{kind}, {workers} at once, {lanes} lanes: {:.0} a second",
        1e6 / each
    ));
}

/// Microseconds of each, and how many.
async fn counted(working: Vec<JoinHandle<usize>>, began: Instant) -> (f64, usize) {
    let counts = join_all(working).await;
    let done = counts.into_iter().map(|count| count.expect("no panic"));
    let done: usize = done.sum();
    (began.elapsed().as_secs_f64() * 1e6 / done as f64, done)
}

async fn list(report: &mut Report, server: &RedisServer, workers: usize) {
    let client = redis::Client::open(server.url()).expect("a good address");
    let mut connections = Vec::new();
    for _ in 0..workers {
        let connection = client.get_multiplexed_async_connection().await;
        connections.push(connection.expect("it answers"));
    }
    for number in 0..1000 {
        let Work { lane, user, .. } = offer(1000, number).work;
        let job = format!("{lane} {user}");
        push(&mut connections[0], &job).await;
    }
    let (supervisor, began) = (Supervisor::default(), Instant::now());
    let working = connections.into_iter().map(|mut connection| {
        supervisor.task("measured", async move {
            let mut done = 0_usize;
            while began.elapsed() < SPAN {
                let job: String = redis::cmd("LPOP")
                    .arg("jobs")
                    .query_async(&mut connection)
                    .await
                    .expect("there are more jobs than workers");
                push(&mut connection, &job).await;
                done += 1;
            }
            done
        })
    });
    let (each, done) = counted(working.collect(), began).await;
    report.value(
        &format!("plain list, {workers} at once"),
        "us",
        None,
        each,
        done,
    );
}

async fn push(connection: &mut MultiplexedConnection, job: &str) {
    let pushed: redis::RedisResult<()> = redis::cmd("RPUSH")
        .arg("jobs")
        .arg(job)
        .query_async(connection)
        .await;
    pushed.expect("it answers");
}

fn bullmq(report: &mut Report, server: &RedisServer, workers: usize) {
    let clients = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients");
    let path = |name: &str| clients.join(name).display().to_string();
    let modules = output(&path("modules"), &[&path("bullmq")]);
    let socket = server.url().replace("redis+unix://", "");
    let ran = Command::new("node")
        .arg(path("bullmq/bench.mjs"))
        .args([&socket, &workers.to_string(), &JOBS.to_string()])
        .env("MODULES", modules.trim())
        .output()
        .expect("node is installed");
    let said = String::from_utf8_lossy(&ran.stdout);
    let seconds: f64 = said.trim().parse().unwrap_or_else(|_| {
        panic!(
            "BullMQ says: {said}{}",
            String::from_utf8_lossy(&ran.stderr)
        )
    });
    let each = seconds * 1e6 / JOBS as f64;
    report.value(
        &format!("BullMQ, {workers} at once"),
        "us",
        None,
        each,
        JOBS,
    );
}

fn compare(report: &mut Report, workers: usize) {
    let ours = figure("Redis", workers, BESIDE);
    let at_once = format!("{workers} at once");
    report.ratio(
        &against_the_list(workers),
        &ours,
        &format!("plain list, {at_once}"),
        Some(LIST),
    );
    report.ratio(
        &format!("dispatch / BullMQ, {at_once}"),
        &ours,
        &format!("BullMQ, {at_once}"),
        Some(OTHER),
    );
}

/// The claim and its end in the database, which decide whatever a queue says.
async fn claims(report: &mut Report) {
    let world = World::fake(Setup::default(), Fake::new).await;
    let agents: Vec<AgentId> = join_all((0..CLAIMS).map(|_| world.shell())).await;
    world.rest().await;
    let worker = world.service().worker().clone();
    let (db, slots) = (&worker.tools.db, Slot::defaults());
    let (mut claimed, mut settled) = (Vec::new(), Vec::new());
    for agent in agents {
        let message = world.post(agent, "echo never").await;
        let together = Together {
            first: message.id,
            others: Vec::new(),
        };
        let names = |layer: &mayfly_domain::LayerId| {
            Names::of(worker.tools.installation, layer.as_str(), &slots)
        };
        let began = Instant::now();
        let claim = db
            .claim(
                TickId::new(),
                agent,
                (&worker.identity.id, worker.identity.epoch),
                names,
                &together,
            )
            .await
            .expect("the database answers")
            .expect("a message waits");
        claimed.push(ms(began.elapsed()));
        let closing = destroy::never_begun(&claim.message, claim.tick, 3);
        let began = Instant::now();
        let closed = db.close_tick(claim.tick, claim.generation, &closing).await;
        assert!(closed.expect("the database answers"));
        settled.push(ms(began.elapsed()));
        db.withdraw(&claim.message, "measured")
            .await
            .expect("the database answers");
    }
    report.samples("claim, SQLite", "ms", None, &claimed);
    report.samples("settle, SQLite", "ms", None, &settled);
    world.end_owing(CLAIMS as u32).await;
}
