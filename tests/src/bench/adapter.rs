//! What platforms cost: how fast their events are taken and acknowledged, and what the program weighs
//! that is connected to all of them.
//!
//! Rates are those of the shipped server on the simulated engine, so that no container takes its share;
//! its weight is that of the shipped server on the real one.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use super::{
    figure::{Report, quantile},
    flat::Sizes,
    memory::Memory,
};
use crate::{
    server::Server,
    traffic::{self, Crowd, Way},
};

/// Events that come at once.
const BURST: usize = 3000;
/// Events for connections and statements to be there.
const WARM: usize = 200;
const A_SECOND: u32 = 50;
const POSTS: usize = 1500;
/// Conversations in all.
const THREADS: usize = 10_000;
/// Conversations that are begun at once.
const BATCH: usize = 200;
/// How long people write while the program is weighed.
const SPAN: Duration = Duration::from_secs(90);

/// Milliseconds.
const P99: f64 = 1000.0;
/// Mebibytes.
const MEMORY: f64 = 40.0;
/// Mebibytes between the second and the last third of the traffic.
const GROWTH: f64 = 1.0;

/// The ways a program has at once.
const AT_ONCE: [Way; 3] = [Way::SlackSocket, Way::Discord, Way::TelegramPolling];

/// Measures all of it and cleans up.
pub fn run(program: &Path) -> Report {
    let program = program.to_str().expect("paths are UTF-8");
    let mut report = Report::default();
    for way in Way::ALL {
        rates(&mut report, program, way);
    }
    weight(&mut report, program);
    threads(&mut report, program);
    report
}

fn say(what: &str) {
    eprintln!("bench: {what}");
}

fn started(mut server: Server, crowds: &[Box<dyn Crowd>]) -> Server {
    server.set_env("MAYFLY__LOG__LEVEL", "warn");
    for crowd in crowds {
        for (name, value) in crowd.environment() {
            server.set_env(name, &value);
        }
    }
    server.start();
    crowds.iter().for_each(|crowd| crowd.reach(&server));
    server
}

/// How many events a second one platform's way takes, and how long acknowledgements take.
fn rates(report: &mut Report, program: &str, way: Way) {
    let crowds = [way.crowd()];
    let mut server = started(Server::simulated(program), &crowds);
    let crowd = crowds[0].as_ref();
    (0..WARM).for_each(|n| crowd.chatter(n));
    traffic::applied(&server, WARM as u64);
    let began = Instant::now();
    (0..BURST).for_each(|n| crowd.chatter(n));
    let all = (WARM + BURST) as u64;
    while traffic::events(&server) < all {
        std::thread::sleep(Duration::from_millis(2));
    }
    let rate = |since: Instant| BURST as f64 / since.elapsed().as_secs_f64();
    let name = way.name();
    report.value(
        &format!("accepted, {name}"),
        "1/s",
        None,
        rate(began),
        BURST,
    );
    traffic::applied(&server, all);
    report.value(
        &format!("understood, {name}"),
        "1/s",
        None,
        rate(began),
        BURST,
    );
    let took = traffic::steady(crowd, A_SECOND, POSTS);
    let took: Vec<f64> = took
        .iter()
        .map(|took| took.as_secs_f64() * 1000.0)
        .collect();
    for (share, of, goal) in [("p50", 0.5, None), ("p99", 0.99, Some(P99))] {
        let value = quantile(&took, of).expect("there were some");
        let figure = format!("acknowledged at {A_SECOND}/s, {name}, {share}");
        report.value(&figure, "ms", goal, value, took.len());
    }
    say(&format!("{name} is measured"));
    server.kill();
}

/// What the program weighs with all connected, and whether that stays so.
fn weight(report: &mut Report, program: &str) {
    let crowds = AT_ONCE.map(Way::crowd);
    let mut server = started(Server::new(program), &crowds);
    std::thread::sleep(Duration::from_secs(5));
    memory(report, &server, "memory, all connected");
    let (mut sizes, since, mut n) = (Sizes::default(), Instant::now(), 1);
    while since.elapsed() < SPAN {
        // Each round has a tick, on each platform in turn.
        let came = traffic::events(&server);
        crowds[n % crowds.len()].speak(n);
        for _ in 0..20 {
            crowds.iter().for_each(|crowd| crowd.chatter(n));
            n += 1;
        }
        traffic::quiet(&server, came + 20 * crowds.len() as u64);
        sizes.add(traffic::events(&server), Memory::of(server.pid()).rss);
    }
    memory(report, &server, "memory, after traffic");
    report.value(
        "events meanwhile",
        "",
        None,
        traffic::events(&server) as f64,
        1,
    );
    if let Some(course) = sizes.course() {
        let figure = "memory that traffic leaves";
        report.value(figure, "MiB", Some(GROWTH), course.growth(), sizes.looks());
        let cause = format!(
            "{:.0} B for each of {} events between the second and the last third; each of the database's five \
             connections caches up to 2 MiB, and {SPAN:?} do not fill them: tests/soak.rs goes on for longer",
            course.each(),
            course.work
        );
        report.cause(figure, cause);
    }
    report.value("most memory", "MiB", None, Memory::most(server.pid()), 1);
    server.stop();
    server.assert_nothing_left();
    say("the program is weighed");
}

fn memory(report: &mut Report, server: &Server, figure: &str) {
    let memory = Memory::of(server.pid());
    report.value(figure, "MiB", Some(MEMORY), memory.rss, 1);
    report.cause(figure, memory.made_of());
}

/// What conversations weigh that are known and idle.
fn threads(report: &mut Report, program: &str) {
    let crowds = AT_ONCE.map(Way::crowd);
    let mut server = started(Server::simulated(program), &crowds);
    let begin = |from: usize, to: usize| {
        for first in (from..to).step_by(BATCH) {
            (first..to.min(first + BATCH)).for_each(|n| crowds[n % crowds.len()].speak(n));
            // What is understood waits for its turn; what is not may be still to come.
            let known = "SELECT count(*) FROM threads WHERE key NOT LIKE 'local/%'";
            let wanted = to.min(first + BATCH) as u64;
            server.until(known, || {
                let found: u64 = server.sql(known).parse().expect("a number");
                if found >= wanted {
                    Ok(())
                } else {
                    Err(found.to_string())
                }
            });
            traffic::quiet(&server, 0);
        }
    };
    begin(0, THREADS / 10);
    let before = Memory::of(server.pid());
    let began = Instant::now();
    begin(THREADS / 10, THREADS / 10 + THREADS);
    let after = Memory::of(server.pid());
    let bytes = (after.anonymous - before.anonymous) * 1024.0 * 1024.0;
    let figure = format!("bytes of memory, {THREADS} known threads");
    report.value(&figure, "B", None, bytes, 1);
    let took = began.elapsed().as_secs_f64();
    report.value("threads begun", "1/s", None, THREADS as f64 / took, THREADS);
    say("threads are weighed");
    server.kill();
}
