//! What can happen to processes and to what they share. Each leaves everything as it was before.

use std::{fmt, thread::sleep, time::Duration};

use mayfly_orchestrator::clock::unix_ms;
use mayfly_tests::{
    engine::run,
    http::{get, on_socket},
    second_engine::SecondEngine,
    server::Server,
};
use rustix::process::{Pid, Signal, kill_process};

use crate::fleet::{Fleet, Kind, Shared};

/// Longer than a lease and what is added to it.
const LAPSED: Duration = Duration::from_secs(38);
const DAY_MS: i64 = 24 * 60 * 60 * 1000;
/// Messages that are settled while a clock is wrong.
const MEANWHILE: usize = 20;
/// A network that is away for a while, and the lease holds.
const AWAY: Duration = Duration::from_secs(8);

/// A way on which everything goes through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Redis,
    Postgres,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Blow {
    /// The process dies at a point of its way.
    Dies(&'static str),
    /// `kill -9` at any moment.
    Killed,
    /// SIGTERM, and a new start.
    Restarted,
    /// SIGSTOP, and SIGCONT after its lease.
    Paused,
    /// One host's wall clock is so many days off for a while.
    Clock(i8),
    EngineRestarted,
    /// Its daemon alone: what runs in its containers goes on.
    EngineKilled,
    RedisEmptied,
    RedisRestarted,
    PostgresRestarted,
    /// Connections end, and new ones hear nothing for a while.
    Cut(Way),
    /// The same, for longer than the lease.
    CutForLong(Way),
}

/// Where a message passes on its way, one of each phase and each side of what must be whole.
const POINTS: [&str; 24] = [
    "accept.before",
    "accept.inside",
    "accept.after",
    "claim.inside",
    "claim.answer",
    "spawn.claimed",
    "begin.folder",
    "spawn.uppers",
    "spawn.ready",
    "scope.opened",
    "run.started",
    "run.output",
    "report.ended",
    "report.removed",
    "seal.fixed",
    "publish.renamed",
    "publish.durable",
    "report.sealed",
    "commit.before",
    "commit.inside",
    "commit.answer",
    "commit.after",
    "deliver.before",
    "deliver.recorded",
];

impl Blow {
    /// Everything that can happen to these.
    pub(crate) fn all(kind: Kind) -> Vec<Blow> {
        let points = POINTS.into_iter().map(Blow::Dies);
        let any = [
            Blow::Killed,
            Blow::Restarted,
            Blow::Paused,
            Blow::Clock(2),
            Blow::Clock(-2),
        ];
        let shared = [
            Blow::RedisEmptied,
            Blow::RedisRestarted,
            Blow::PostgresRestarted,
            Blow::Cut(Way::Redis),
            Blow::Cut(Way::Postgres),
            Blow::CutForLong(Way::Postgres),
        ];
        match kind {
            Kind::Own => points.chain(any).collect(),
            Kind::Engine => vec![
                Blow::Killed,
                Blow::EngineRestarted,
                Blow::EngineKilled,
                Blow::Dies("commit.inside"),
            ],
            Kind::Shared { .. } => points.chain(any).chain(shared).collect(),
        }
    }

    /// What each run has time for: the points of the way fall on files of one's own, and what takes longer than
    /// a lease on several workers, who take over.
    pub(crate) fn some(kind: Kind) -> Vec<Blow> {
        let mut blows = Blow::all(kind);
        let Kind::Shared { workers } = kind else {
            return blows;
        };
        let few: Vec<&str> = POINTS.into_iter().step_by(3).collect();
        blows.retain(|blow| match blow {
            Blow::Dies(point) => few.contains(point),
            Blow::Paused | Blow::CutForLong(_) => workers > 1,
            _ => true,
        });
        blows
    }

    pub(crate) fn strike(self, fleet: &mut Fleet) {
        match self {
            Blow::Dies(point) => dies_at(fleet, point),
            Blow::Killed => {
                fleet.workers[0].kill();
                fleet.workers[0].start();
            }
            Blow::Restarted => {
                assert_eq!(fleet.workers[0].stop().code(), Some(0));
                fleet.workers[0].start();
            }
            Blow::Paused => {
                let pid = fleet.workers[0].pid();
                signal(pid, Signal::STOP);
                sleep(LAPSED);
                signal(pid, Signal::CONT);
            }
            Blow::Clock(days) => jump(fleet, days),
            Blow::EngineRestarted => engine(fleet).restart(),
            Blow::EngineKilled => {
                engine(fleet).kill_daemon();
                engine(fleet).up();
            }
            Blow::RedisEmptied => {
                shared(fleet).redis.command(&["FLUSHALL"]);
            }
            Blow::RedisRestarted => {
                let redis = &mut shared(fleet).redis;
                redis.kill();
                redis.run();
            }
            Blow::PostgresRestarted => {
                let postgres = &shared(fleet).postgres;
                postgres.crash();
                postgres.start_again();
            }
            Blow::Cut(way) => cut(shared(fleet), way, AWAY),
            Blow::CutForLong(way) => cut(shared(fleet), way, LAPSED),
        }
        fleet.stand();
    }
}

/// An answer that is lost kills nobody.
fn dies_at(fleet: &mut Fleet, point: &str) {
    let worker = &mut fleet.workers[0];
    worker.kill();
    worker.start_with_fault(point);
    if point.ends_with(".answer") {
        return;
    }
    worker.wait_dead();
    worker.start();
}

fn jump(fleet: &Fleet, days: i8) {
    let (truth, worker) = (fleet.truth(), &fleet.workers[0]);
    fleet.clocks[0].set(days);
    // Its HTTP never goes back behind a date that it has shown, so only one way is seen.
    if days > 0 {
        worker.until("its clock has jumped", || {
            let ahead = clock_of(worker) - unix_ms();
            match (ahead - i64::from(days) * DAY_MS).abs() < DAY_MS / 2 {
                true => Ok(()),
                false => Err(format!("it is {ahead} ms ahead")),
            }
        });
    }
    truth.until_settled(truth.settled() + MEANWHILE, LAPSED);
    fleet.clocks[0].set(0);
}

/// What a server says that it is, in unix milliseconds. Others may run all of the ticks.
fn clock_of(server: &Server) -> i64 {
    let answer = on_socket(server.data_dir(), &get("/healthz"));
    let date = answer.header("date").expect("each answer has one");
    let seconds = run("date", &["-u", "-d", date, "+%s"]);
    let seconds: i64 = seconds.trim().parse().expect("a number");
    seconds * 1000
}

fn cut(shared: &Shared, way: Way, span: Duration) {
    let network = match way {
        Way::Redis => &shared.to_redis,
        Way::Postgres => &shared.to_postgres,
    };
    network.silent(true);
    network.cut_all();
    sleep(span);
    network.silent(false);
    network.cut_all();
}

fn shared(fleet: &mut Fleet) -> &mut Shared {
    fleet.shared.as_mut().expect("this kind shares")
}

fn engine(fleet: &mut Fleet) -> &mut SecondEngine {
    fleet.engine.as_mut().expect("this kind has its own")
}

fn signal(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(pid.cast_signed()).expect("a process id");
    kill_process(pid, signal).expect("it lives");
}

impl fmt::Display for Blow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = match self {
            Blow::Dies(point) if point.ends_with(".answer") => {
                format!("the answer is lost: {point}")
            }
            Blow::Dies(point) => format!("dies at {point}"),
            Blow::Killed => "kill -9".to_owned(),
            Blow::Restarted => "restart".to_owned(),
            Blow::Paused => format!("stopped for {} s", LAPSED.as_secs()),
            Blow::Clock(days) => format!("the clock jumps by {days} days, and back"),
            Blow::EngineRestarted => "dockerd restarted".to_owned(),
            Blow::EngineKilled => "dockerd killed and started".to_owned(),
            Blow::RedisEmptied => "FLUSHALL".to_owned(),
            Blow::RedisRestarted => "Redis killed and started, empty".to_owned(),
            Blow::PostgresRestarted => "PostgreSQL crashes and recovers".to_owned(),
            Blow::Cut(way) => format!("no network to {way:?} for {} s", AWAY.as_secs()),
            Blow::CutForLong(way) => format!("no network to {way:?} for {} s", LAPSED.as_secs()),
        };
        f.pad(&shown)
    }
}
