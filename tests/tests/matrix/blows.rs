//! What can happen to processes and to what they share. Each leaves everything as it was before.

use std::{fmt, thread::sleep, time::Duration};

use mayfly_orchestrator::clock::{STALE, unix_ms};
use mayfly_tests::{second_engine::SecondEngine, server::Server};
use rustix::process::{Pid, Signal, kill_process};

use crate::{
    fleet::{Engine, Fleet},
    kind::Kind,
    stores::Stores,
    truth::until,
    witness,
};

/// Longer than a lease and what is added to it.
const LAPSED: Duration = Duration::from_secs(38);
const DAY_MS: i64 = 24 * 60 * 60 * 1000;
/// Messages that are settled while a clock is wrong.
const MEANWHILE: usize = 20;
/// Longest, in seconds, that a sandbox lives on without its worker: what init waits for a heartbeat, and a slow machine.
const LASTING: u64 = STALE.as_secs() + 4;
/// A network that is away for a while, and the lease holds.
const AWAY: Duration = Duration::from_secs(8);

/// A way on which everything goes through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Redis,
    Postgres,
    Objects,
    Engine,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Blow {
    /// The process dies at a point of its way.
    Dies(&'static str),
    /// `kill -9` at any moment.
    Killed,
    /// SIGTERM, and a new start.
    Restarted,
    /// SIGSTOP while it runs a program, and SIGCONT after its lease.
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
            Blow::Cut(Way::Objects),
            Blow::CutForLong(Way::Redis),
            Blow::CutForLong(Way::Postgres),
            Blow::CutForLong(Way::Objects),
        ];
        match kind {
            Kind::Own => points.chain(any).collect(),
            Kind::Engine { workers: 1 } => vec![
                Blow::Killed,
                Blow::EngineRestarted,
                Blow::EngineKilled,
                Blow::Dies("commit.inside"),
                Blow::Cut(Way::Engine),
                Blow::CutForLong(Way::Engine),
            ],
            Kind::Engine { .. } => vec![Blow::Paused, Blow::Cut(Way::Engine)],
            Kind::Shared { .. } => points.chain(any).chain(shared).collect(),
        }
    }

    /// What each run has time for: the points of the way fall on files of one's own, and what takes longer than
    /// a lease on several workers, who take over.
    pub(crate) fn some(kind: Kind) -> Vec<Blow> {
        let mut blows = Blow::all(kind);
        let few: Vec<&str> = POINTS.into_iter().step_by(3).collect();
        blows.retain(|blow| match blow {
            Blow::Dies(point) => kind == Kind::Own || kind.real() || few.contains(point),
            Blow::Paused => kind == Kind::Own || kind.workers() > 1,
            Blow::CutForLong(way) => kind.workers() > 1 && *way == Way::Postgres,
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
            Blow::Paused => pause(fleet),
            Blow::Clock(days) => jump(fleet, days),
            Blow::EngineRestarted => daemon(fleet).restart(),
            Blow::EngineKilled => {
                daemon(fleet).kill_daemon();
                daemon(fleet).up();
            }
            Blow::RedisEmptied => {
                stores(fleet).redis.command(&["FLUSHALL"]);
            }
            Blow::RedisRestarted => {
                let redis = &mut stores(fleet).redis;
                redis.kill();
                redis.run();
            }
            Blow::PostgresRestarted => {
                let postgres = &stores(fleet).postgres;
                postgres.crash();
                postgres.start_again();
            }
            Blow::Cut(way) => cut(fleet, way, AWAY),
            Blow::CutForLong(way) => cut(fleet, way, LAPSED),
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
            let ahead = worker.clock() - unix_ms();
            match (ahead - i64::from(days) * DAY_MS).abs() < DAY_MS / 2 {
                true => Ok(()),
                false => Err(format!("it is {ahead} ms ahead")),
            }
        });
    }
    truth.until_settled(truth.settled() + MEANWHILE, LAPSED);
    fleet.clocks[0].set(0);
}

/// Its sandboxes have ended long before another worker may run what it ran.
fn pause(fleet: &mut Fleet) {
    let (worker, layer) = stopped(fleet);
    let stopped = witness::now();
    sleep(LAPSED);
    if let Some(engine) = &fleet.engine {
        let lived = engine.watcher.lived(&layer);
        let (_, until) = lived.unwrap_or_else(|| panic!("nobody saw the sandbox of {layer}"));
        let seconds = until.saturating_sub(stopped) / 100;
        assert!(
            until > stopped,
            "it had ended before its worker was stopped"
        );
        assert!(seconds < LASTING, "it lived on for {seconds} s");
    }
    signal(fleet.workers[worker].pid(), Signal::CONT);
}

/// A worker that is stopped while it runs a program, and the layer which that makes.
fn stopped(fleet: &Fleet) -> (usize, String) {
    let truth = fleet.truth();
    let ids: Vec<String> = fleet.workers.iter().map(worker_id).collect();
    let running = format!(
        "SELECT k.worker, k.layer FROM ticks k JOIN messages m ON m.id = k.message
          WHERE k.outcome IS NULL AND k.phase = 'running' AND m.text LIKE '%sleep {};%' ORDER BY k.id LIMIT 1",
        fleet.kind.lasting()
    );
    until(LAPSED + LAPSED, || {
        let found = truth.ask(&running);
        let (id, layer) = found.split_once('|').ok_or("no such program runs")?;
        let worker = ids.iter().position(|known| known == id);
        let worker = worker.ok_or_else(|| format!("{id} is none of {ids:?}"))?;
        let pid = fleet.workers[worker].pid();
        signal(pid, Signal::STOP);
        // It may have ended just before.
        let still = format!(
            "SELECT count(*) FROM ticks WHERE layer = '{layer}' AND phase = 'running' AND outcome IS NULL"
        );
        match truth.count(&still) {
            1 => Ok((worker, layer.to_owned())),
            _ => {
                signal(pid, Signal::CONT);
                Err("it has ended just before".to_owned())
            }
        }
    })
}

fn worker_id(server: &Server) -> String {
    let id = std::fs::read_to_string(server.data_dir().join("worker"));
    id.expect("it was started").trim().to_owned()
}

fn cut(fleet: &mut Fleet, way: Way, span: Duration) {
    let network = match way {
        Way::Redis => &stores(fleet).to_redis,
        Way::Postgres => &stores(fleet).to_postgres,
        Way::Objects => &stores(fleet).to_objects,
        Way::Engine => &engine(fleet).network,
    };
    network.silent(true);
    network.cut_all();
    sleep(span);
    network.silent(false);
    network.cut_all();
}

fn stores(fleet: &mut Fleet) -> &mut Stores {
    fleet.stores.as_mut().expect("this kind shares")
}

fn engine(fleet: &mut Fleet) -> &mut Engine {
    fleet.engine.as_mut().expect("this kind has its own")
}

fn daemon(fleet: &mut Fleet) -> &mut SecondEngine {
    &mut engine(fleet).daemon
}

fn signal(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(pid.cast_signed()).expect("a process id");
    kill_process(pid, signal).expect("it lives");
}

fn silence(way: &Way, span: Duration) -> String {
    let span = span.as_secs();
    format!("{way} cut, and silent to new connections, for {span} s")
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
            Blow::Paused => format!("stopped in a program for {} s", LAPSED.as_secs()),
            Blow::Clock(days) => format!("the clock jumps by {days} days, and back"),
            Blow::EngineRestarted => "dockerd restarted".to_owned(),
            Blow::EngineKilled => "dockerd killed and started".to_owned(),
            Blow::RedisEmptied => "FLUSHALL".to_owned(),
            Blow::RedisRestarted => "Redis killed and started, empty".to_owned(),
            Blow::PostgresRestarted => "PostgreSQL crashes and recovers".to_owned(),
            Blow::Cut(way) => silence(way, AWAY),
            Blow::CutForLong(way) => silence(way, LAPSED),
        };
        f.pad(&shown)
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Way::Redis => "Redis",
            Way::Postgres => "PostgreSQL",
            Way::Objects => "S3",
            Way::Engine => "Docker",
        })
    }
}
