//! The loop: the next event happens, and then the promises are looked at.

mod bots;
mod database;
mod faults;
mod jobs;
mod sandboxes;
mod time;
mod workers;

use std::{
    collections::{HashMap, VecDeque},
    fmt,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::Arc,
    time::Instant,
};

use mayfly_domain::{InstallationId, TickId};
use mayfly_orchestrator::{
    agent::profile::Profiles,
    db::{Db, Place},
};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::{
    agents, chance::Chance, check, figures::Figures, oracle::Oracle, remote::Way, scene::Scene,
    shared::Shared, sqlite_clock,
};
use bots::{Bot, Post};
use database::{Heard, Request};
use faults::Fault;
use sandboxes::Sandbox;
use time::{BASE, Clock, Schedule};
use workers::{Life, Timer, Worker};

/// Virtual milliseconds.
type Ms = u64;

/// How long the last message may take after everything was mended.
const PATIENCE: Ms = 20 * 60 * 1000;

/// A promise that was broken.
#[derive(Debug)]
pub struct Violation {
    /// Of the run.
    pub seed: u64,
    /// When, by the virtual clock.
    pub at_ms: u64,
    /// Which, in a sentence.
    pub broken: String,
    /// What happened before, the last at the end.
    pub trace: Vec<String>,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.trace {
            writeln!(f, "  {line}")?;
        }
        let at = self.at_ms as f64 / 1000.0;
        write!(f, "seed {}, at {at} s: {}", self.seed, self.broken)
    }
}

/// What happens.
#[derive(Debug)]
enum Event {
    /// Somebody writes.
    Write,
    /// A hog writes to many.
    Burst(usize),
    /// A bot hands a post to the database.
    Accept { bot: usize, post: Post },
    /// A bot tells the queue.
    Offer {
        bot: usize,
        agent: mayfly_domain::AgentId,
    },
    /// A worker's process is started.
    Start(usize),
    /// A worker's process does what it does by time.
    Timer(usize, Life, Timer),
    /// The database runs what a process asked for.
    Run(usize, Life, Box<Request>),
    /// A process hears what came of it.
    Hear(usize, Life, Box<Heard>),
    /// Init looks for heartbeats, or has killed all.
    Init(TickId),
    /// A sandbox's program ends.
    Ended(TickId),
    /// Something breaks.
    Break(Fault),
    /// A process goes on.
    Resume(usize, u64),
    /// A process reaches what it was cut off from.
    Reach(usize, Server, u64),
    /// A server is there again.
    Back(Server, u64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Server {
    Database,
    Queue,
}

/// See the module.
pub(crate) struct World<'a> {
    scene: &'a Scene,
    runtime: &'a Runtime,
    chance: Chance,
    schedule: Schedule<Event>,
    folder: TempDir,
    db: Db,
    shared: Arc<Shared>,
    /// What the queue's server takes its clock for.
    shared_clock: Clock,
    profiles: Arc<Profiles>,
    workers: Vec<Worker>,
    bots: Vec<Bot>,
    sandboxes: HashMap<TickId, Sandbox>,
    /// Workers that wait for a ring, the longest waiting first.
    waiting: VecDeque<(usize, Life, u64)>,
    /// Until when the servers are away, by the number of the outage; none if they are there.
    away: [Option<u64>; 2],
    outages: u64,
    oracle: Oracle,
    figures: Figures,
    written: u64,
    /// Nothing breaks any more.
    mended: bool,
    trace: VecDeque<String>,
    print: DefaultHasher,
    broken: Option<String>,
}

impl<'a> World<'a> {
    /// Before anything has happened.
    pub(crate) fn new(scene: &'a Scene, runtime: &'a Runtime) -> World<'a> {
        sqlite_clock::install();
        sqlite_clock::set(BASE);
        mayfly_domain::simulated::begin();
        let mut chance = Chance::new(scene.seed);
        let folder = TempDir::with_prefix_in("mayfly-sim", &scene.folder)
            .expect("a folder can be made for the database");
        let place = Place::embedded(folder.path());
        Clock::default().show(0);
        let db = runtime.block_on(Db::open(&place)).expect("a new database");
        agents::insert(&folder.path().join("mayfly.db"), scene.agents);
        let installation = InstallationId::new();
        let shared = Arc::new(Shared::new(&installation.to_string()));
        let workers = (0..scene.workers)
            .map(|number| Worker::new(&db, number, Clock::any(&mut chance, scene.right)))
            .collect();
        let bots = (0..scene.bots)
            .map(|_| Bot {
                clock: Clock::any(&mut chance, scene.right),
                way: Arc::new(Way::default()),
            })
            .collect();
        World {
            scene,
            runtime,
            schedule: Schedule::default(),
            folder,
            db,
            shared,
            shared_clock: Clock::any(&mut chance, scene.right),
            profiles: Arc::new(Profiles::default()),
            workers,
            bots,
            sandboxes: HashMap::new(),
            waiting: VecDeque::new(),
            away: [None; 2],
            outages: 0,
            oracle: Oracle::default(),
            figures: Figures::of(scene.seed),
            written: 0,
            mended: false,
            trace: VecDeque::new(),
            print: DefaultHasher::new(),
            broken: None,
            chance,
        }
    }

    /// To the end.
    pub(crate) fn play(mut self) -> Result<Figures, Violation> {
        let began = Instant::now();
        self.begin();
        let end = self.scene.seconds * 1000;
        while let Some(event) = self.schedule.next() {
            if !self.mended && self.now() >= end {
                self.mend();
            }
            self.figures.steps += 1;
            self.happen(event);
            self.ring();
            if self.broken.is_some() {
                break;
            }
            if self.mended && self.is_over() {
                break;
            }
            if self.now() > end + PATIENCE {
                let left = self.oracle.left();
                self.break_(
                    "P1: messages have no outcome long after all was mended",
                    &left,
                );
                break;
            }
        }
        self.runtime.block_on(self.db.close());
        if self.broken.is_none() {
            let database = self.folder.path().join("mayfly.db");
            self.broken = check::rows(&database, self.oracle.accepted()).err();
        }
        if let Some(broken) = self.broken {
            return Err(Violation {
                seed: self.scene.seed,
                at_ms: self.schedule.now(),
                broken,
                trace: self.trace.into(),
            });
        }
        self.figures.virtual_ms = self.schedule.now();
        self.figures.took = began.elapsed();
        self.figures.print = self.print.finish();
        Ok(self.figures)
    }

    fn begin(&mut self) {
        for worker in 0..self.workers.len() {
            let after = self.chance.below(5000);
            self.schedule.after(after, Event::Start(worker));
        }
        self.schedule.after(1, Event::Write);
        for hog in 0..agents::HOGS.len() {
            let at = self.scene.seconds * 1000 / 4;
            self.schedule.after(at, Event::Burst(hog));
        }
        self.begin_breaking();
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Write => self.write(),
            Event::Burst(hog) => self.burst(hog),
            Event::Accept { bot, post } => self.accept(bot, post),
            Event::Offer { bot, agent } => self.tell(bot, agent),
            Event::Start(worker) => self.start(worker),
            Event::Timer(worker, life, timer) => {
                if self.is_there(worker, life, |life| Event::Timer(worker, life, timer)) {
                    self.on_time(worker, timer);
                }
            }
            Event::Run(worker, life, request) => self.run(worker, life, *request),
            Event::Hear(worker, life, heard) => {
                if self.workers[worker].life != life {
                    return;
                }
                if self.workers[worker].paused.is_some() {
                    self.workers[worker]
                        .held
                        .push(Event::Hear(worker, life, heard));
                    return;
                }
                self.hear(worker, *heard);
            }
            Event::Init(tick) => self.init_looks(tick),
            Event::Ended(tick) => self.program_ends(tick),
            Event::Break(fault) => self.break_something(fault),
            Event::Resume(worker, pause) => self.resume(worker, pause),
            Event::Reach(worker, server, cut) => self.reach(worker, server, cut),
            Event::Back(server, outage) => self.back(server, outage),
        }
    }

    /// All was written and has its outcome, and nothing is left of it.
    fn is_over(&self) -> bool {
        self.written >= self.scene.messages
            && self.oracle.open() == 0
            && self.workers.iter().all(Worker::is_at_rest)
            && !self
                .schedule
                .any(|event| matches!(event, Event::Accept { .. }))
    }

    fn now(&self) -> Ms {
        self.schedule.now()
    }

    /// Told in the trace, and part of the run's print.
    fn tell_trace(&mut self, what: impl FnOnce() -> String) {
        let line = format!("{:>10.3} {}", self.now() as f64 / 1000.0, what());
        line.hash(&mut self.print);
        if self.scene.tell {
            eprintln!("{line}");
        }
        if self.trace.len() >= self.scene.last {
            self.trace.pop_front();
        }
        self.trace.push_back(line);
    }

    fn break_(&mut self, sentence: &str, more: &[String]) {
        let more = if more.is_empty() {
            String::new()
        } else {
            format!(": {}", more.join(", "))
        };
        self.broken.get_or_insert(format!("{sentence}{more}"));
    }

    /// Notes a broken promise.
    fn judge(&mut self, judged: Result<(), String>) {
        if let Err(broken) = judged {
            self.broken.get_or_insert(broken);
        }
    }

    /// Whoever waits is woken by what was just lined up.
    fn ring(&mut self) {
        use crate::shared::Ring;
        while let Some(first) = self.waiting.front().copied() {
            if !self.waits(first) {
                self.waiting.pop_front();
                continue;
            }
            if !self.shared.rung(Ring::Short) && !self.shared.rung(Ring::Long) {
                return;
            }
            self.waiting.pop_front();
            let (worker, life, wait) = first;
            self.schedule
                .after(1, Event::Timer(worker, life, Timer::Take(wait)));
        }
    }
}
