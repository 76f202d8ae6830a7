//! Workers as processes: what they do by time.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures_util::FutureExt as _;
use mayfly_domain::AgentId;
use mayfly_orchestrator::{
    clock::{self, HEARTBEAT, LEASE, Lease, RENEWAL},
    db::{
        Db, DbError,
        installation::Binding,
        workers::{QueueKind, Started},
    },
    queue::{BEAT, Lanes, Queue as _, Room},
    trouble::Trouble,
    worker::{Identity, suspects::Suspects},
};

use super::{
    Event, Ms, Server, World,
    database::{ATTEMPTS, Ask},
    jobs::{Job, JobId},
    time::Clock,
};
use crate::{
    agents,
    remote::{Remote, Way},
};

/// Changes with each start and each end of a process.
pub(super) type Life = u64;

/// Between two looks for what the dead left.
const PERIOD: Ms = 5000;
/// Longest pause until a process asks again whose turn it is to tell the queue who waits.
const ASK: Ms = 1000;
/// How long a worker has to have its lease, and to run, before it declares others dead.
const STEADY: Duration = Duration::from_secs(20);
/// Longest wait for a ring.
const POLL: Ms = 1000;
const DIED: &str = "every worker that took it died before it could begin";

/// What a process does by time.
#[derive(Debug, Clone, Copy)]
pub(super) enum Timer {
    Began,
    Renew,
    Beat,
    Keep,
    Tell,
    Heartbeat,
    /// Looks for work, unless it has looked or was woken since.
    Take(u64),
    Spawned(JobId),
    Removed(JobId),
    /// Its sandbox is dead.
    Lost(JobId),
    Again(JobId),
}

/// One host with one process, or none.
pub(super) struct Worker {
    pub(super) life: Life,
    up: bool,
    /// Stopped, by the number of the pause.
    pub(super) paused: Option<u64>,
    /// What happens when it goes on.
    pub(super) held: Vec<Event>,
    pub(super) clock: Clock,
    /// Cut off from a server, by the number of the cut.
    pub(super) cut: [Option<u64>; 2],
    way: Arc<Way>,
    pub(super) db: Db,
    pub(super) identity: Identity,
    remote: Option<Arc<Remote>>,
    pub(super) lanes: Option<Lanes>,
    pub(super) lease: Lease,
    began: Duration,
    pub(super) jobs: BTreeMap<JobId, Job>,
    pub(super) next_job: JobId,
    /// Jobs that run what was interrupted before.
    pub(super) suspects: Suspects,
    wait: u64,
}

impl Worker {
    pub(super) fn new(db: &Db, number: usize, clock: Clock) -> Worker {
        Worker {
            life: 0,
            up: false,
            paused: None,
            held: Vec::new(),
            clock,
            cut: [None; 2],
            way: Arc::default(),
            db: db.clone(),
            identity: Identity {
                id: format!("w{number}"),
                epoch: 0,
            },
            remote: None,
            lanes: None,
            lease: Lease::default(),
            began: Duration::ZERO,
            jobs: BTreeMap::new(),
            next_job: 0,
            suspects: Suspects::new(ATTEMPTS),
            wait: 0,
        }
    }

    pub(super) fn is_at_rest(&self) -> bool {
        self.jobs.is_empty()
    }
}

impl World<'_> {
    /// Whether this start of a process is there; one that is stopped does it later.
    pub(super) fn is_there(
        &mut self,
        worker: usize,
        life: Life,
        later: impl FnOnce(Life) -> Event,
    ) -> bool {
        let process = &mut self.workers[worker];
        if process.life != life {
            return false;
        }
        if process.paused.is_some() {
            process.held.push(later(life));
            return false;
        }
        true
    }

    pub(super) fn at(&mut self, worker: usize, wait: Ms, timer: Timer) {
        let life = self.workers[worker].life;
        self.schedule.after(wait, Event::Timer(worker, life, timer));
    }

    /// A process is started: what earlier ones left open is closed before anything else.
    pub(super) fn start(&mut self, worker: usize) {
        if self.workers[worker].up {
            return;
        }
        if !self.reaches_database(worker) {
            return self.schedule.after(1000, Event::Start(worker));
        }
        self.show_database();
        self.workers[worker].clock.show(self.now());
        let db = self.db.of_another_process();
        let id = self.workers[worker].identity.id.clone();
        let binding = Binding {
            machine_id: id.clone(),
            data_dir: id.clone(),
        };
        let started = db.start_worker(&id, &binding, QueueKind::Shared, LEASE);
        let epoch = match self.runtime.block_on(started) {
            Ok(Started::Epoch(epoch)) => epoch,
            other => return self.break_(&format!("w{worker} cannot be started: {other:?}"), &[]),
        };
        self.tell_trace(|| format!("w{worker} starts, epoch {epoch}"));
        let starting = &mut self.workers[worker];
        starting.life += 1;
        starting.up = true;
        starting.db = db.clone();
        starting.identity.epoch = epoch;
        let remote = Arc::new(Remote::new(
            &self.shared,
            starting.identity.clone(),
            &starting.way,
        ));
        starting.lanes = Some(Lanes::new(
            remote.clone(),
            db,
            self.profiles.clone(),
            Trouble::default(),
        ));
        starting.remote = Some(remote);
        starting.lease = Lease::default();
        starting.began = clock::boot_time();
        self.close_orphans(worker);
        self.refill(worker);
        if !self.is_up(worker) {
            return;
        }
        let takes = self.chance.between(10, 4000);
        self.at(worker, takes, Timer::Began);
    }

    pub(super) fn on_time(&mut self, worker: usize, timer: Timer) {
        self.workers[worker].clock.show(self.now());
        match timer {
            Timer::Began => self.began(worker),
            Timer::Renew => self.ask(worker, 0, Ask::Renew(clock::boot_time())),
            Timer::Beat => self.beat(worker),
            Timer::Keep => self.keep(worker),
            Timer::Tell => self.tell_who_waits(worker),
            Timer::Heartbeat => {
                if self.workers[worker].lease.fresh() {
                    self.heartbeat(worker);
                }
                self.at(worker, HEARTBEAT.as_millis() as u64, Timer::Heartbeat);
            }
            Timer::Take(wait) => {
                if self.workers[worker].wait == wait {
                    self.take(worker);
                }
            }
            Timer::Spawned(job) => self.spawned(worker, job),
            Timer::Removed(job) => self.removed(worker, job),
            Timer::Lost(job) => self.sandbox_lost(worker, job),
            Timer::Again(job) => self.again(worker, job),
        }
    }

    fn began(&mut self, worker: usize) {
        self.workers[worker].lease.confirm(clock::boot_time());
        for timer in [Timer::Renew, Timer::Beat, Timer::Heartbeat, Timer::Tell] {
            self.at(worker, 0, timer);
        }
        if worker < self.scene.keepers {
            let wait = self.chance.between(1, PERIOD);
            self.at(worker, wait, Timer::Keep);
        }
        self.look_for_work(worker);
    }

    pub(super) fn renewed(&mut self, worker: usize, sent: Option<Duration>) {
        if let Some(sent) = sent {
            self.workers[worker].lease.confirm(sent);
        }
        self.at(worker, RENEWAL.as_millis() as u64, Timer::Renew);
    }

    /// Says to the queue's server what this process sees of it.
    pub(super) fn meet_queue(&mut self, worker: usize) {
        let now = self.now();
        let cut = self.workers[worker].cut[Server::Queue as usize].is_some();
        let lost = self.breaks(self.scene.lost);
        let way = &self.workers[worker].way;
        way.cut(cut || self.away[Server::Queue as usize].is_some());
        if lost {
            way.lose_one();
        }
        self.workers[worker].clock.show(now);
        self.shared.set(self.shared_clock.wall(now));
    }

    fn beat(&mut self, worker: usize) {
        self.meet_queue(worker);
        let Worker { lanes, lease, .. } = &self.workers[worker];
        if let Some(lanes) = lanes.clone().filter(|_| lease.fresh()) {
            self.runtime.block_on(lanes.beat());
        }
        self.at(worker, BEAT.as_millis() as u64, Timer::Beat);
    }

    pub(super) fn look_for_work(&mut self, worker: usize) {
        let looking = &mut self.workers[worker];
        looking.wait += 1;
        let wait = looking.wait;
        self.at(worker, 0, Timer::Take(wait));
    }

    fn take(&mut self, worker: usize) {
        while self.workers[worker].jobs.len() < self.scene.places as usize {
            self.meet_queue(worker);
            let Some(remote) = self.workers[worker].remote.clone() else {
                return;
            };
            let taken = remote.take(&Room::for_all()).now_or_never();
            let pause = match taken {
                Some(Ok(work)) => {
                    self.begin_job(worker, work.lane);
                    continue;
                }
                Some(Err(_)) => self.chance.between(100, 5000),
                None => remote.due().clamp(1, POLL),
            };
            let looking = &mut self.workers[worker];
            looking.wait += 1;
            let (life, wait) = (looking.life, looking.wait);
            self.waiting.push_back((worker, life, wait));
            return self.at(worker, pause, Timer::Take(wait));
        }
    }

    /// Whether it still waits for this ring.
    pub(super) fn waits(&self, (worker, life, wait): (usize, Life, u64)) -> bool {
        let waiting = &self.workers[worker];
        waiting.life == life && waiting.wait == wait && waiting.paused.is_none()
    }

    /// What `reconcile.rs` does for the others, and for the queue.
    fn keep(&mut self, worker: usize) {
        self.at(worker, PERIOD, Timer::Keep);
        if !self.reaches_database(worker) {
            return;
        }
        self.show_database();
        let keeper = &self.workers[worker];
        let lately = clock::boot_time().saturating_sub(STEADY);
        if !keeper.lease.lapsed_since(lately) && keeper.began <= lately {
            match self.runtime.block_on(keeper.db.declare_dead()) {
                Ok(dead) if dead.is_empty() => {}
                Ok(dead) => {
                    self.figures.count("declared dead");
                    self.tell_trace(|| format!("w{worker} declares dead: {}", dead.join(" ")));
                }
                Err(DbError::Over) => return self.crash(worker, "its epoch is over"),
                Err(error) => {
                    return self.break_(&format!("w{worker} declares nobody dead: {error}"), &[]);
                }
            }
        }
        self.close_orphans(worker);
        self.meet_queue(worker);
        if let Some(lanes) = self.workers[worker].lanes.clone() {
            self.park_the_dead(worker, &lanes);
        }
    }

    /// What `reconcile::keep_lanes` does.
    fn tell_who_waits(&mut self, worker: usize) {
        let pause = match self.refill(worker) {
            true => self.chance.between(ASK / 2, ASK),
            false => PERIOD,
        };
        if self.is_up(worker) {
            self.at(worker, pause, Timer::Tell);
        }
    }

    /// Whether it had what it takes: who has the turn may not reach the database, or die with it.
    fn refill(&mut self, worker: usize) -> bool {
        self.meet_queue(worker);
        let reaches = self.reaches_database(worker);
        let teller = &self.workers[worker];
        let (Some(lanes), Some(remote)) = (teller.lanes.clone(), teller.remote.clone()) else {
            return false;
        };
        let dies = self.breaks(self.scene.inside);
        if dies || !reaches {
            let has_turn = self.runtime.block_on(remote.turn()) == Ok(true);
            if has_turn && dies {
                self.crash(worker, "with the turn to tell who waits");
            }
            return !has_turn;
        }
        self.show_database();
        if let Err(error) = self.runtime.block_on(lanes.refill()) {
            self.break_(&format!("w{worker} does not refill: {error}"), &[]);
        }
        true
    }

    fn park_the_dead(&mut self, worker: usize, lanes: &Lanes) {
        for lane in self.runtime.block_on(lanes.dead()) {
            if !self.runtime.block_on(lanes.forgive(lane)) {
                continue;
            }
            self.tell_trace(|| {
                format!("w{worker} parks the next of agent {}", agents::number(lane))
            });
            let parked = self
                .runtime
                .block_on(self.workers[worker].db.park_next(lane, DIED));
            match parked {
                Ok(()) => self.oracle.park_next(lane, &mut self.figures),
                Err(DbError::Over) => return self.crash(worker, "its epoch is over"),
                Err(error) => {
                    return self.break_(&format!("w{worker} does not park: {error}"), &[]);
                }
            }
        }
    }

    /// Looks for what is open of starts that are over; each is then closed by a transaction of its own.
    fn close_orphans(&mut self, worker: usize) {
        let db = self.workers[worker].db.clone();
        match self.runtime.block_on(db.orphans()) {
            Ok(orphans) => {
                let mut wait = 0;
                for tick in orphans {
                    self.ask_after(worker, wait, 0, Ask::Orphan(Box::new(tick)));
                    // One after the other, on a database that has others to serve.
                    wait += self.chance.between(2, 60);
                }
            }
            Err(error) => self.break_(&format!("w{worker} finds no orphans: {error}"), &[]),
        }
    }

    /// The lane of an orphan is free.
    pub(super) fn freed(&mut self, worker: usize, lane: AgentId) {
        self.meet_queue(worker);
        if let Some(lanes) = self.workers[worker].lanes.clone() {
            self.runtime.block_on(lanes.offer(lane, Duration::ZERO));
        }
    }

    /// The process is gone, as by `kill -9`; another is started later.
    pub(super) fn crash(&mut self, worker: usize, why: &str) {
        let now = self.now();
        self.tell_trace(|| format!("w{worker} dies: {why}"));
        self.figures.count("processes died");
        self.let_go(worker);
        let dying = &mut self.workers[worker];
        dying.life += 1;
        dying.up = false;
        dying.paused = None;
        dying.held.clear();
        dying.suspects = Suspects::new(ATTEMPTS);
        dying.lanes = None;
        dying.remote = None;
        for job in std::mem::take(&mut dying.jobs).into_values() {
            if job.claim.is_some() {
                self.oracle.bereave(job.lane, job.tick, now);
            }
        }
        let wait = match self.chance.below(4) {
            _ if self.mended => 1000,
            0 => self.chance.between(20_000, 180_000),
            _ => self.chance.between(300, 5_000),
        };
        self.schedule.after(wait, Event::Start(worker));
    }

    pub(super) fn is_up(&self, worker: usize) -> bool {
        self.workers[worker].up
    }
}
