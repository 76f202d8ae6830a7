//! What a thousand agents cost that do nothing, and what reading about them costs.
//!
//! Two agents are made by real ticks, the others are copies of them ([`crate::crowd`]). The load
//! comes from threads of this process, so it shares the machine's processors with the server.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use super::{
    figure::{Report, quantile},
    load::{Door, Load},
    memory::Memory,
};
use crate::{crowd::Crowd, engine, server::Server};

/// Agents where no number is given.
pub const AGENTS: u32 = 1000;
/// Agents with a history of some hundred ticks.
const DEEP: u32 = 10;
/// So often is the history of a deep agent that of the first.
const TIMES: u32 = 13;
const TICKS: u32 = 30;
const FORK_TICKS: u32 = 9;
const STARTS: usize = 7;
const CONNECTIONS: usize = 6;
const SPAN: Duration = Duration::from_secs(15);
/// Until the work that a start leaves to the background is done.
const SETTLED: Duration = Duration::from_secs(180);

/// What is promised.
#[derive(Clone, Copy)]
struct Goals {
    /// Milliseconds from the start of the program to the first 200 of `/readyz`.
    start_up: f64,
    /// Mebibytes.
    memory: f64,
}

const USUAL: Goals = Goals {
    start_up: 1000.0,
    memory: 40.0,
};
/// For 100,000 agents: 3 s and 80 MB.
const MANY: Goals = Goals {
    start_up: 3000.0,
    memory: 76.3,
};
/// Milliseconds of the machine per read: 1,000 a second.
const PER_READ: f64 = 1.0;
/// Milliseconds.
const P99: f64 = 10.0;

const KINDS: [&str; 6] = [
    "page of 100 agents",
    "agent",
    "page of 100 ticks",
    "tick",
    "message",
    "files of a state",
];

/// Measures all of it and cleans up. With more agents than the usual, these have a short history, and their
/// goals are those of [`MANY`].
pub fn run(program: &Path, agents: u32) -> Report {
    let goals = match agents > AGENTS {
        true => MANY,
        false => USUAL,
    };
    let program = program.to_str().expect("paths are UTF-8");
    let mut server = Server::new(program)
        .env("MAYFLY__HTTP__LISTEN", "127.0.0.1:0")
        .env("MAYFLY__LOG__LEVEL", "warn");
    match agents > AGENTS {
        true => fill_with_many(&mut server, agents),
        false => fill(&mut server),
    }
    let mut report = Report::default();
    let starts: Vec<f64> = (0..STARTS).map(|_| start(&mut server)).collect();
    report.samples("start-up", "ms", Some(goals.start_up), &starts);
    let own = cpu(&server).as_secs_f64() * 1000.0;
    report.cause(
        "start-up",
        format!(
            "the last start took {own:.0} ms of processor, the rest waited for disk and engine"
        ),
    );
    settle(&mut server);
    start(&mut server);
    memory(&mut report, &server, "after its start", goals);
    settled(&server);
    memory(&mut report, &server, "at rest", goals);
    let containers = engine::containers(&server.prefix()).len();
    report.value("containers", "", Some(0.0), containers as f64, 1);
    report.cause("containers", "a sandbox lives although no tick runs");
    let before = cpu(&server);
    std::thread::sleep(Duration::from_secs(10));
    let idle = (cpu(&server) - before).as_secs_f64() * 1000.0 / 10.0;
    report.value("processor at rest", "ms/s", None, idle, 1);
    let paths = paths(&server);
    let token = std::fs::read_to_string(server.data_dir().join("token"));
    let token = token.expect("a token").trim().to_owned();
    let tcp = Door::Tcp(server.address(), token);
    for (name, door) in [("TCP", tcp), ("socket", Door::of(server.data_dir()))] {
        // Each connection to the database has prepared each statement once.
        Load::of(&door, CONNECTIONS, SPAN / 5, &paths);
        let before = cpu(&server);
        let load = Load::of(&door, CONNECTIONS, SPAN, &paths);
        say(&format!("{} reads over {name}", load.reads.len()));
        told(&mut report, name, &load);
        causes(&mut report, name, &load, cpu(&server) - before);
    }
    memory(&mut report, &server, "after reads", goals);
    server.stop();
    server.assert_nothing_left();
    report
}

fn say(what: &str) {
    eprintln!("bench: {what}");
}

fn fill(server: &mut Server) {
    server.start();
    let agent = server.agent();
    for n in 0..TICKS {
        let text = format!(
            "mkdir -p d{0}; echo {n} >d{0}/f{n}; echo {n} >now; echo tick {n}",
            n % 5
        );
        server.json(&["agent", "send", &agent, &text]);
        if n == TICKS / 2 {
            server.json(&["agent", "rollback", &agent]);
        }
    }
    let fork = server.json(&["agent", "fork", &agent]);
    let fork = fork["id"].as_str().expect("an id").to_owned();
    for n in 0..FORK_TICKS {
        server.json(&["agent", "send", &fork, &format!("echo {n} >fork; echo {n}")]);
    }
    say("two agents have lived");
    settle(server);
    let crowd = Crowd {
        copies: (AGENTS - 2 - DEEP) / 2,
        deep: DEEP,
        times: TIMES,
        of: &agent,
    };
    crowd.make(server.data_dir()).expect("the copies are made");
    let ticks = server.sql("SELECT count(*) FROM ticks");
    let agents = server.sql("SELECT count(*) FROM agents");
    assert_eq!(agents, AGENTS.to_string());
    say(&format!("{agents} agents have {ticks} ticks"));
    // An installation that has lived has merged, measured and archived what was due.
    server.start();
    settle(server);
}

/// One agent lives through two ticks, the others are copies of it.
fn fill_with_many(server: &mut Server, agents: u32) {
    server.start();
    let agent = server.agent();
    for n in 0..2 {
        server.json(&["agent", "send", &agent, &format!("echo {n} >now; echo {n}")]);
    }
    settle(server);
    let crowd = Crowd {
        copies: agents - 1,
        deep: 0,
        times: 0,
        of: &agent,
    };
    crowd.make(server.data_dir()).expect("the copies are made");
    let made = server.sql("SELECT count(*) FROM agents");
    assert_eq!(made, agents.to_string());
    say(&format!("{made} agents"));
    server.start();
    settle(server);
}

/// Milliseconds until the server is ready; it runs on.
fn start(server: &mut Server) -> f64 {
    if server.running() {
        server.stop();
    }
    let began = Instant::now();
    server.spawn();
    let door = Door::of(server.data_dir());
    while door.status("/readyz") != Some(200) {
        assert!(began.elapsed() < SETTLED, "not ready: {}", server.log());
        std::thread::sleep(Duration::from_millis(2));
    }
    began.elapsed().as_secs_f64() * 1000.0
}

/// Waits for the background and ends the server.
fn settle(server: &mut Server) {
    settled(server);
    server.stop();
}

/// Until the server uses next to no processor for a while.
fn settled(server: &Server) {
    let began = Instant::now();
    let mut quiet = 0;
    while quiet < 3 {
        assert!(began.elapsed() < SETTLED, "it does not come to rest");
        let before = cpu(server);
        std::thread::sleep(Duration::from_secs(2));
        let busy = cpu(server) - before > Duration::from_millis(200);
        quiet = if busy { 0 } else { quiet + 1 };
    }
}

/// Processor time of the server so far.
fn cpu(server: &Server) -> Duration {
    let path = format!("/proc/{}/stat", server.pid());
    let stat = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let fields: Vec<&str> = stat
        .rsplit(')')
        .next()
        .unwrap_or("")
        .split_whitespace()
        .collect();
    let ticks = |at: usize| -> u64 { fields[at].parse().expect("a number") };
    let per_second = rustix::param::clock_ticks_per_second();
    Duration::from_secs_f64((ticks(11) + ticks(12)) as f64 / per_second as f64)
}

fn memory(report: &mut Report, server: &Server, when: &str, goals: Goals) {
    let memory = Memory::of(server.pid());
    let figure = format!("memory {when}");
    report.value(&figure, "MiB", Some(goals.memory), memory.rss, 1);
    report.cause(&figure, memory.made_of());
    let most = Memory::most(server.pid());
    report.value(&format!("most memory {when}"), "MiB", None, most, 1);
}

/// What is read, by kind.
fn paths(server: &Server) -> Vec<Vec<String>> {
    let ids =
        |query: &str| -> Vec<String> { server.sql(query).lines().map(str::to_owned).collect() };
    let agents = ids("SELECT id FROM agents ORDER BY substr(id, 36), id");
    let ticks = ids("SELECT id FROM ticks ORDER BY substr(id, 35), id LIMIT 5000");
    let messages = ids("SELECT id FROM messages ORDER BY substr(id, 35), id LIMIT 5000");
    let of = |ids: &[String], path: &dyn Fn(&str) -> String| -> Vec<String> {
        ids.iter().map(|id| path(id)).collect()
    };
    vec![
        of(&agents[..100], &|id| format!("/v1/agents?after={id}")),
        of(&agents, &|id| format!("/v1/agents/{id}")),
        of(&agents, &|id| format!("/v1/agents/{id}/ticks")),
        of(&ticks, &|id| format!("/v1/ticks/{id}")),
        of(&messages, &|id| format!("/v1/messages/{id}")),
        of(&agents, &|id| {
            format!("/v1/agents/{id}/files/work?list=true")
        }),
    ]
}

fn told(report: &mut Report, door: &str, load: &Load) {
    let all = load.times(None);
    let per_second = all.len() as f64 / load.took.as_secs_f64();
    report.value(
        &format!("reads over {door}"),
        "1/s",
        None,
        per_second,
        all.len(),
    );
    let per_read = format!("time per read over {door}");
    report.value(
        &per_read,
        "ms",
        Some(PER_READ),
        1000.0 / per_second,
        all.len(),
    );
    let mut quantiles = |what: &str, times: &[f64], goal| {
        for (name, share, goal) in [("p50", 0.5, None), ("p99", 0.99, goal)] {
            let value = quantile(times, share).expect("there were some");
            let name = format!("{what} over {door}, {name}");
            report.value(&name, "ms", goal, value, times.len());
        }
    };
    quantiles("all reads", &all, Some(P99));
    for (kind, name) in KINDS.iter().enumerate() {
        quantiles(name, &load.times(Some(kind)), None);
    }
}

/// What was measured beside the reads that says where their time went.
fn causes(report: &mut Report, door: &str, load: &Load, server: Duration) {
    let reads = load.reads.len() as f64;
    let own = server.as_secs_f64() * 1000.0 / reads;
    let whole = load.took.as_secs_f64() * 1000.0 / reads;
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let per_read = format!(
        "the server used {own:.2} ms of processor per read, in the {whole:.2} ms that each of {processors} processors \
         had for it; the rest are the readers, and what else ran here"
    );
    report.cause(&format!("time per read over {door}"), per_read);
    let slowest = load.slowest();
    let all: usize = slowest.iter().map(|(_, count)| count).sum();
    let shares: Vec<String> = slowest
        .iter()
        .map(|(kind, count)| {
            let (name, median) = (KINDS[*kind], quantile(&load.times(Some(*kind)), 0.5));
            let percent = 100.0 * *count as f64 / all as f64;
            format!(
                "{percent:.0} % {name} (p50 {:.1} ms)",
                median.unwrap_or_default()
            )
        })
        .collect();
    let slow = format!(
        "of its slowest hundredth are {}; the server used {own:.2} ms of processor per read, so the rest is waiting, \
         with {CONNECTIONS} readers on {processors} processors",
        shares.join(", ")
    );
    report.cause(&format!("all reads over {door}, p99"), slow);
}
