//! What a tick costs: against a bare container cycle, split by step, by size of the state, with a
//! neighbour who writes, and with many agents at once; what rolling back and forking costs, and
//! what the server holds at rest.
//!
//! Everything is measured by one process and in turns, so that a slower minute of the machine
//! falls on all figures alike.

use std::{path::Path, time::Duration};

use futures_util::future::join_all;
use mayfly_domain::{AgentId, Limits, MessageOutcome};
use mayfly_orchestrator::command::RequestError;

use super::{
    bare::{Bare, Cycle},
    figure::Report,
    memory::Memory,
    neighbour::Neighbour,
    points::{self, Course},
};
use crate::{
    engine,
    server::Server,
    world::{Setup, World},
};

/// A tick against the bare cycle.
const OVER_BARE: f64 = 1.25;
/// 1 GB of state against 1 MB.
const BY_SIZE: f64 = 1.15;
/// Milliseconds to roll back or fork.
const POINTER: f64 = 10.0;
/// Mebibytes of the server at rest.
const AT_REST: f64 = 30.0;
/// Agents that are sent a message at once.
const CROWD: usize = 20;
/// Ticks before the second look at the server's memory.
const LIVED: u32 = 50;
/// Until a server that has nothing to do is at rest.
const REST: Duration = Duration::from_secs(3);
/// States are made by this many ticks, of this many files each.
const TICKS: usize = 4;
const FILES: usize = 4;
/// Name and KiB of each of the files.
const SIZES: [(&str, usize); 3] = [("1 MB", 64), ("100 MB", 6_400), ("1 GB", 65_536)];
const SMALL: &str = "1 MB";
const LARGE: &str = "1 GB";

/// From the sending to the answer, without a gap.
const STEPS: [(&str, &str, &str); 15] = [
    ("accept", "", "accept.after"),
    ("claim, image looked up", "accept.after", "spawn.claimed"),
    ("upper folders", "spawn.claimed", "spawn.uppers"),
    ("container created", "spawn.uppers", "spawn.created"),
    ("container started", "spawn.created", "spawn.started"),
    ("init ready", "spawn.started", "spawn.ready"),
    ("scope", "spawn.ready", "scope.after"),
    ("program started", "scope.after", "run.started"),
    ("program runs", "run.started", "run.ended"),
    ("init ends", "run.ended", "report.ended"),
    ("container removed", "report.ended", "remove.container"),
    ("volumes removed", "remove.container", "report.removed"),
    ("seal", "report.removed", "commit.before"),
    ("commit", "commit.before", "commit.after"),
    ("told", "commit.after", ""),
];
/// Those that the bare cycle has too.
const ENGINE: [&str; 4] = [
    "container created",
    "container started",
    "init ends",
    "container removed",
];

/// Measures all of it and cleans up.
pub async fn run(rounds: u32, program: &Path) -> Report {
    let memory = AtRest::of(program);
    points::watch();
    let limits = Limits {
        wall_clock_s: 300,
        ..Limits::default()
    };
    let world = World::docker_with(Setup {
        limits,
        ..Setup::default()
    })
    .await;
    let mut bench = Bench::prepare(world).await;
    say("states of 1 MB, 100 MB and 1 GB are there");
    bench.round(&mut Samples::default()).await;
    let mut samples = Samples::default();
    for round in 1..=rounds {
        bench.round(&mut samples).await;
        say(&format!("round {round} of {rounds}"));
    }
    let mut crowded = Vec::new();
    for round in 1..=rounds.div_ceil(4) {
        crowded.extend(bench.crowd().await);
        say(&format!("{CROWD} agents at once, round {round}"));
    }
    bench.end().await;
    let mut report = Report::default();
    samples.report(&mut report);
    report.samples("message to reply, 20 agents at once", "ms", None, &crowded);
    let p95 = super::figure::quantile(&crowded, 0.95);
    let p95 = p95.expect("there were some");
    let name = "message to reply, 20 agents at once, p95";
    report.value(name, "ms", None, p95, crowded.len());
    memory.report(&mut report);
    report
}

fn say(what: &str) {
    eprintln!("bench: {what}");
}

/// What is measured, per round.
#[derive(Default)]
struct Samples {
    bare: Vec<Cycle>,
    cold: Vec<Course>,
    sizes: [OfSize; 3],
    forks: Vec<f64>,
}

/// With one size of state.
#[derive(Default)]
struct OfSize {
    quiet: Vec<Course>,
    noisy: Vec<Course>,
    rollbacks: Vec<f64>,
}

struct Bench {
    world: World,
    bare: Bare,
    empty: AgentId,
    states: Vec<AgentId>,
    crowd: Vec<AgentId>,
    round: usize,
}

impl Bench {
    async fn prepare(world: World) -> Bench {
        let empty = world.shell().await;
        let bare = like_a_sandbox(&world, empty).await;
        let mut states = Vec::new();
        for (name, kib) in SIZES {
            let agent = world.shell().await;
            for tick in 0..TICKS {
                let files = format!("$(seq {} {})", tick * FILES, tick * FILES + FILES - 1);
                let dd = format!("dd if=/dev/urandom of=state/$i bs=64K count={}", kib / 64);
                let script = format!(
                    "set -e; mkdir -p state; for i in {files}; do {dd} status=none; done; echo 0 > note; echo made"
                );
                let said = world.reply(agent, &script).await;
                assert_eq!(said, "made", "no state of {name}");
            }
            states.push(agent);
        }
        let mut crowd = Vec::new();
        for _ in 0..CROWD {
            crowd.push(world.shell().await);
        }
        Bench {
            world,
            bare,
            empty,
            states,
            crowd,
            round: 0,
        }
    }

    /// One measurement of everything, each round in another order.
    async fn round(&mut self, samples: &mut Samples) {
        self.round += 1;
        for turn in 0..2 {
            if (turn + self.round).is_multiple_of(2) {
                let cycle = self.bare.cycle().await;
                samples.bare.push(cycle.expect("a bare cycle"));
            } else {
                samples.cold.push(self.tick(self.empty, "true").await);
            }
        }
        for turn in 0..SIZES.len() {
            let which = (turn + self.round) % SIZES.len();
            let (course, back) = self.change(which).await;
            samples.sizes[which].quiet.push(course);
            samples.sizes[which].rollbacks.push(back);
        }
        samples.forks.push(self.fork().await);
        let neighbour = Neighbour::beside(self.world.data_dir()).await;
        let neighbour = neighbour.expect("a neighbour");
        for turn in 0..SIZES.len() {
            let which = (turn + self.round) % SIZES.len();
            let (course, _) = self.change(which).await;
            samples.sizes[which].noisy.push(course);
        }
        drop(neighbour);
    }

    async fn tick(&self, agent: AgentId, text: &str) -> Course {
        let (told, course) = Course::of(self.world.say(agent, text)).await;
        let outcome = told.outcome;
        let done = [MessageOutcome::Answered, MessageOutcome::Noticed].map(Some);
        assert!(done.contains(&outcome), "{text}: {told:?}");
        course
    }

    /// A tick that changes one file, taken back so that the next one finds the same state.
    async fn change(&self, which: usize) -> (Course, f64) {
        let agent = self.states[which];
        let course = self.tick(agent, "date +%N > note; echo noted").await;
        let rollback = self.world.commands().rollback(agent, None);
        let (back, rolled) = Course::of(rollback).await;
        back.unwrap_or_else(|error| panic!("no way back: {error}"));
        (course, rolled.total())
    }

    async fn fork(&self) -> f64 {
        let large = *self.states.last().expect("there are sizes");
        let commands = self.world.commands();
        let (fork, forked) = Course::of(commands.fork(large, None)).await;
        let removed: Result<(), RequestError> = match fork {
            Ok(fork) => commands.remove_agent(fork.id, false).await,
            Err(error) => Err(error),
        };
        removed.unwrap_or_else(|error| panic!("no fork: {error}"));
        forked.total()
    }

    /// Milliseconds from message to reply of many agents at once.
    async fn crowd(&self) -> Vec<f64> {
        let one = async |agent: &AgentId| {
            let began = tokio::time::Instant::now();
            let told = self.world.say(*agent, "echo here").await;
            assert_eq!(told.outcome, Some(MessageOutcome::Answered), "{told:?}");
            points::ms(began.elapsed())
        };
        join_all(self.crowd.iter().map(one)).await
    }

    async fn end(self) {
        let prefix = self.world.prefix();
        self.world.end().await;
        engine::forget_images(&prefix);
    }
}

/// A bare cycle with the settings of this world's sandboxes.
async fn like_a_sandbox(world: &World, agent: AgentId) -> Bare {
    let waiting = world.post(agent, "sleep 2; echo seen").await;
    let prefix = world.prefix();
    let name = loop {
        if let [name, ..] = &engine::containers(&prefix)[..] {
            break name.clone();
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    let bare = Bare::like(&name, prefix).await;
    world.outcome(&waiting).await;
    bare.expect("the engine tells of a sandbox")
}

impl Samples {
    fn report(&self, report: &mut Report) {
        let bare: Vec<f64> = self.bare.iter().map(Cycle::total).collect();
        let cold: Vec<f64> = self.cold.iter().map(Course::total).collect();
        report.samples("bare container", "ms", None, &bare);
        for (place, name) in ["created", "started", "waited for", "removed"]
            .iter()
            .enumerate()
        {
            let part = |cycle: &Cycle| [cycle.create, cycle.start, cycle.wait, cycle.remove][place];
            let part: Vec<f64> = self.bare.iter().map(part).collect();
            report.samples(&format!("bare container: {name}"), "ms", None, &part);
        }
        report.samples("tick", "ms", None, &cold);
        for (name, from, to) in STEPS {
            let step = between(&self.cold, from, to);
            report.samples(&format!("tick: {name}"), "ms", None, &step);
        }
        report.ratio(
            "tick / bare container",
            "tick",
            "bare container",
            Some(OVER_BARE),
        );
        let cause = over_bare(report);
        report.cause("tick / bare container", cause);

        for (row, what, from, to) in [
            (0, "revive", "spawn.claimed", "spawn.ready"),
            (0, "program's end to commit", "run.ended", "commit.after"),
            (0, "seal", "report.removed", "report.sealed"),
            (
                1,
                "program's end to commit, neighbour writes",
                "run.ended",
                "commit.after",
            ),
            (
                1,
                "seal, neighbour writes",
                "report.removed",
                "report.sealed",
            ),
        ] {
            for ((size, _), of) in SIZES.iter().zip(&self.sizes) {
                let courses = if row == 0 { &of.quiet } else { &of.noisy };
                let times = between(courses, from, to);
                report.samples(&format!("{what}, {size}"), "ms", None, &times);
            }
            if what.starts_with("seal") {
                continue;
            }
            let (large, small) = (format!("{what}, {LARGE}"), format!("{what}, {SMALL}"));
            let name = format!("{what}, {LARGE} / {SMALL}");
            report.ratio(&name, &large, &small, Some(BY_SIZE));
            let cause = report.overlap(&small, &large);
            report.cause(&name, cause);
        }
        for ((size, _), of) in SIZES.iter().zip(&self.sizes) {
            report.samples(
                &format!("rollback, {size}"),
                "ms",
                Some(POINTER),
                &of.rollbacks,
            );
        }
        report.samples(&format!("fork, {LARGE}"), "ms", Some(POINTER), &self.forks);
    }
}

fn between(courses: &[Course], from: &str, to: &str) -> Vec<f64> {
    courses
        .iter()
        .filter_map(|course| course.between(from, to))
        .collect()
}

/// Where a tick spends what a bare cycle does not.
fn over_bare(report: &Report) -> String {
    let step = |name: &str| report.get(&format!("tick: {name}")).unwrap_or_default();
    let engine: f64 = ENGINE.iter().map(|name| step(name)).sum();
    let mut own: Vec<(&str, f64)> = STEPS
        .iter()
        .filter(|(name, ..)| !ENGINE.contains(name))
        .map(|(name, ..)| (*name, step(name)))
        .collect();
    own.sort_by(|a, b| b.1.total_cmp(&a.1));
    let own: Vec<String> = own
        .iter()
        .take(6)
        .map(|(name, ms)| format!("{name} {ms:.1}"))
        .collect();
    format!(
        "the engine's part takes {engine:.0} ms, the bare cycle {:.0}; Mayfly's largest own steps in ms: {}",
        report.get("bare container").unwrap_or_default(),
        own.join(", ")
    )
}

/// The memory of the real server.
struct AtRest {
    fresh: Memory,
    lived: Memory,
}

impl AtRest {
    /// After its start, and after it has worked.
    fn of(program: &Path) -> AtRest {
        let program = program.to_str().expect("paths are UTF-8");
        let mut server = Server::new(program);
        server.start();
        std::thread::sleep(REST);
        let fresh = Memory::of(server.pid());
        let made = server.json(&["agent", "new"]);
        let agent = made["agent"]["id"].as_str();
        let agent = agent.unwrap_or_else(|| panic!("no id in {made}"));
        for _ in 0..LIVED {
            server.json(&["agent", "send", agent, "echo here"]);
        }
        std::thread::sleep(REST);
        let lived = Memory::of(server.pid());
        server.stop();
        server.assert_nothing_left();
        engine::forget_images(&server.prefix());
        say("memory at rest is known");
        AtRest { fresh, lived }
    }

    fn report(&self, report: &mut Report) {
        let after = format!("after {LIVED} ticks");
        for (when, memory) in [("after its start", self.fresh), (&after, self.lived)] {
            let rss = format!("memory at rest {when}, RSS");
            report.value(&rss, "MiB", Some(AT_REST), memory.rss, 1);
            report.cause(
                &rss,
                format!(
                    "of {:.1} MiB resident, {:.1} are its own share",
                    memory.rss, memory.pss
                ),
            );
            let pss = format!("memory at rest {when}, PSS");
            report.value(&pss, "MiB", None, memory.pss, 1);
        }
    }
}
