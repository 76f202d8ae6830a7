//! A lane on its way through a worker, as `worker.rs` and `tick.rs` take it.

use std::time::Duration;

use mayfly_domain::{AgentId, Apology, DeliveryId, MessageOutcome, Reply, SnapshotId, TickId};
use mayfly_orchestrator::{
    clock,
    db::{
        claims::Claim,
        deliveries::{Kind, NewDelivery},
        endings::{Closing, MessageFate, NewSnapshot, Usage},
        messages::Message,
        together::Together,
    },
    snapshot::LayerSize,
    tick::{Changes, EndedBadly, TickOutcome, destroy, state::Again},
    worker::suspects::Suspect,
};

use super::{
    World,
    database::{ATTEMPTS, Ask, Heard},
    workers::{Life, Timer},
};

/// One of a worker's.
pub(super) type JobId = u64;

const SOON: Duration = Duration::from_millis(500);
const WAIT: Duration = Duration::from_secs(2);
/// Ticks from which on also those count that a stalled database ended.
const STALLS: i64 = 10;
/// One of so many messages ends every worker that runs it.
const POISONED: u64 = 151;

/// See the module.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) lane: AgentId,
    pub(super) tick: TickId,
    pub(super) claim: Option<Box<Claim>>,
    pub(super) sandbox: Option<TickId>,
    suspect: Option<Suspect>,
    begun: Duration,
    stage: Stage,
}

/// Where it is, with what it needs to be asked again.
#[derive(Debug)]
enum Stage {
    Looking,
    Claiming,
    Unclaiming,
    Spawning,
    Entering,
    Running,
    Removing,
    Committing(Box<Closing>, NewSnapshot),
    Rereading(Box<Closing>, NewSnapshot),
    Closing(Box<Closing>),
}

impl World<'_> {
    /// A lane was taken.
    pub(super) fn begin_job(&mut self, worker: usize, lane: AgentId) {
        let taker = &mut self.workers[worker];
        taker.next_job += 1;
        let id = taker.next_job;
        let job = Job {
            lane,
            tick: TickId::new(),
            claim: None,
            sandbox: None,
            suspect: None,
            begun: Duration::ZERO,
            stage: Stage::Looking,
        };
        taker.jobs.insert(id, job);
        self.ask(worker, id, Ask::Look(lane));
    }

    fn job(&mut self, worker: usize, job: JobId) -> Option<&mut Job> {
        self.workers[worker].jobs.get_mut(&job)
    }

    /// A process hears of something that it has asked for.
    pub(super) fn hear(&mut self, worker: usize, heard: Heard) {
        self.workers[worker].clock.show(self.now());
        match heard {
            Heard::Over => self.crash(worker, "its epoch is over"),
            Heard::Renewed(sent) => self.renewed(worker, sent),
            Heard::Freed(lane) => self.freed(worker, lane),
            Heard::Looked(job, next, others) => self.looked(worker, job, next, others),
            Heard::Claimed(job, Some(claim)) => self.claimed(worker, job, claim),
            Heard::Claimed(job, None) => self.give_back(worker, job, Some(SOON)),
            Heard::Unclaimed(job) => self.give_back(worker, job, Some(WAIT)),
            Heard::Entered(job, entered) => self.entered(worker, job, entered),
            // Lost means that somebody closed it: nothing is left to be done.
            Heard::Committed(job) | Heard::Closed(job) => {
                self.give_back(worker, job, Some(Duration::ZERO))
            }
            Heard::Read(job, open) => self.reread(worker, job, open),
            Heard::Nothing(job) => self.heard_nothing(worker, job),
        }
    }

    fn looked(
        &mut self,
        worker: usize,
        job: JobId,
        next: Option<Box<Message>>,
        others: Vec<mayfly_domain::MessageId>,
    ) {
        let Some(next) = next else {
            return self.give_back(worker, job, None);
        };
        let early = self.workers[worker].db.until(next.claimable_at);
        if early > 0 {
            let pause = Duration::from_millis(early as u64);
            return self.give_back(worker, job, Some(pause));
        }
        if !self.workers[worker].lease.fresh() {
            return self.give_back(worker, job, Some(SOON));
        }
        if next.attempts > 0 {
            let Some(suspect) = self.workers[worker].suspects.admit(next.attempts) else {
                return self.give_back(worker, job, Some(SOON));
            };
            if let Some(found) = self.job(worker, job) {
                found.suspect = Some(suspect);
            }
        }
        let together = Together {
            first: next.id,
            others,
        };
        let Some(found) = self.job(worker, job) else {
            return;
        };
        found.begun = clock::boot_time();
        found.tick = TickId::new();
        found.stage = Stage::Claiming;
        let ask = Ask::Claim(found.tick, found.lane, together);
        self.ask(worker, job, ask);
    }

    fn claimed(&mut self, worker: usize, job: JobId, claim: Box<Claim>) {
        let Some(found) = self.job(worker, job) else {
            return;
        };
        found.claim = Some(claim);
        found.stage = Stage::Spawning;
        let takes = self.chance.between(150, 1500);
        self.at(worker, takes, Timer::Spawned(job));
    }

    /// Init is ready.
    pub(super) fn spawned(&mut self, worker: usize, job: JobId) {
        let Some(found) = self.job(worker, job) else {
            return;
        };
        let (tick, lane) = (found.tick, found.lane);
        let Some(claim) = found.claim.clone() else {
            return;
        };
        found.sandbox = Some(tick);
        found.stage = Stage::Entering;
        self.make_sandbox(worker, job, lane, tick);
        self.ask(worker, job, Ask::Enter(claim));
    }

    fn entered(&mut self, worker: usize, job: JobId, entered: bool) {
        let Some(found) = self.job(worker, job) else {
            return;
        };
        let (tick, claim) = (found.tick, found.claim.clone());
        let Some(claim) = claim.filter(|_| entered) else {
            return self.fail(worker, job, "more came for its message", Again::AtOnce);
        };
        found.stage = Stage::Running;
        if !self.start_program(tick) {
            return self.fail(worker, job, "the sandbox does not follow", Again::Counted);
        }
        let number: u64 = claim.message.text["post".len()..].parse().unwrap_or(1);
        if number.is_multiple_of(POISONED) {
            self.crash(worker, "by what it runs");
        }
    }

    /// Its program has ended by itself.
    pub(super) fn program_ended(&mut self, worker: usize, life: Life, job: JobId) {
        if self.workers[worker].life != life {
            return;
        }
        if let Some(found) = self.job(worker, job) {
            found.stage = Stage::Removing;
            let takes = self.chance.between(100, 600);
            self.at(worker, takes, Timer::Removed(job));
        }
    }

    /// Its sandbox has ended, whatever it was doing.
    pub(super) fn sandbox_died(&mut self, worker: usize, life: Life, job: JobId) {
        if self.workers[worker].life == life {
            self.at(worker, 1, Timer::Lost(job));
        }
    }

    /// The worker sees that the sandbox is dead.
    pub(super) fn sandbox_lost(&mut self, worker: usize, job: JobId) {
        let runs = self.job(worker, job);
        if runs.is_some_and(|job| matches!(job.stage, Stage::Running)) {
            self.fail(worker, job, "no heartbeat came in time", Again::Counted);
        }
    }

    /// The sandbox is proved to be gone: what it left is committed.
    pub(super) fn removed(&mut self, worker: usize, job: JobId) {
        let Some(found) = self.job(worker, job) else {
            return;
        };
        let tick = found.tick;
        let Some(claim) = found.claim.clone() else {
            return;
        };
        self.remove_sandbox(tick);
        let changed = self.chance.happens(0.8);
        let (end, snapshot) = answered(&claim, changed);
        let end = Box::new(end);
        self.commit(worker, job, end, snapshot);
    }

    fn commit(&mut self, worker: usize, job: JobId, end: Box<Closing>, snapshot: NewSnapshot) {
        let Some(found) = self.job(worker, job) else {
            return;
        };
        found.stage = Stage::Committing(end.clone(), snapshot.clone());
        let Some(claim) = found.claim.clone() else {
            return;
        };
        self.ask(worker, job, Ask::Commit(claim, end, snapshot));
    }

    fn reread(&mut self, worker: usize, job: JobId, open: bool) {
        if !open {
            return self.give_back(worker, job, Some(Duration::ZERO));
        }
        let stage = self
            .job(worker, job)
            .map(|job| std::mem::replace(&mut job.stage, Stage::Removing));
        if let Some(Stage::Rereading(end, snapshot)) = stage {
            self.commit(worker, job, end, snapshot);
        }
    }

    /// An error came back, of which nobody knows what was done.
    fn heard_nothing(&mut self, worker: usize, job: JobId) {
        let Some(found) = self.job(worker, job) else {
            return;
        };
        let stage = std::mem::replace(&mut found.stage, Stage::Removing);
        match stage {
            Stage::Looking => self.give_back(worker, job, Some(WAIT)),
            Stage::Claiming | Stage::Unclaiming => {
                found.stage = Stage::Unclaiming;
                self.at(worker, WAIT.as_millis() as u64, Timer::Again(job));
            }
            Stage::Entering => {
                self.fail(worker, job, "the database does not answer", Again::Counted)
            }
            Stage::Committing(end, snapshot) | Stage::Rereading(end, snapshot) => {
                found.stage = Stage::Rereading(end, snapshot);
                self.at(worker, 500, Timer::Again(job));
            }
            Stage::Closing(closing) => {
                found.stage = Stage::Closing(closing);
                self.at(worker, 1000, Timer::Again(job));
            }
            Stage::Spawning | Stage::Running | Stage::Removing => found.stage = stage,
        }
    }

    /// The database is asked once more.
    pub(super) fn again(&mut self, worker: usize, job: JobId) {
        let Some(found) = self.job(worker, job) else {
            return;
        };
        let (tick, lane) = (found.tick, found.lane);
        let ask = match &found.stage {
            Stage::Unclaiming => Ask::Unclaim(tick),
            Stage::Rereading(..) => Ask::Reread(tick),
            Stage::Closing(closing) => {
                let generation = found.claim.as_ref().map_or(0, |claim| claim.generation);
                Ask::Close(lane, tick, generation, closing.clone())
            }
            _ => return,
        };
        self.ask(worker, job, ask);
    }

    /// A tick ends before its commit: the crash policy decides.
    fn fail(&mut self, worker: usize, job: JobId, reason: &str, again: Again) {
        let Some(found) = self.workers[worker].jobs.get(&job) else {
            return;
        };
        let (tick, begun) = (found.tick, found.begun);
        let Some(claim) = found.claim.clone() else {
            return;
        };
        self.remove_sandbox(tick);
        let failing = &self.workers[worker];
        let again = match again {
            Again::Counted if failing.lease.lapsed_since(begun) => {
                let ticks = failing.db.count_ticks_for(claim.message.id);
                match self.runtime.block_on(ticks) {
                    Ok(ticks) if ticks < STALLS => Again::Free,
                    _ => Again::Counted,
                }
            }
            again => again,
        };
        let ended = EndedBadly {
            outcome: TickOutcome::Interrupted,
            apology: Apology::Interrupted {
                reason: reason.to_owned(),
            },
            text: String::new(),
            again,
            exit_code: None,
            usage: Usage::default(),
            removed: true,
        };
        let closing = destroy::closing(&claim.message, tick, ended, ATTEMPTS, "none");
        if let Some(found) = self.job(worker, job) {
            found.stage = Stage::Closing(Box::new(closing));
        }
        self.again(worker, job);
    }

    /// The lane goes back to the queue, and its place is free.
    fn give_back(&mut self, worker: usize, job: JobId, again: Option<Duration>) {
        let Some(done) = self.workers[worker].jobs.remove(&job) else {
            return;
        };
        if let Some(suspect) = done.suspect.filter(|_| done.claim.is_some()) {
            suspect.ended();
        }
        // Where the database does not say whose lane it is, nothing is said.
        let again = again.filter(|_| self.reaches_database(worker));
        self.meet_queue(worker);
        let lanes = self.workers[worker].lanes.clone();
        if let Some(lanes) = lanes {
            self.runtime.block_on(lanes.done(done.lane, again));
        }
        self.look_for_work(worker);
    }
}

/// A tick whose program has answered.
fn answered(claim: &Claim, changed: bool) -> (Closing, NewSnapshot) {
    let layer = changed.then_some(LayerSize {
        bytes: 1,
        inodes: 1,
    });
    let delivery = NewDelivery {
        id: DeliveryId::new(),
        thread: claim.message.thread,
        message: claim.message.id,
        tick: Some(claim.tick),
        kind: Kind::Answer,
        reply: Reply {
            text: claim.message.text.clone(),
            files: Vec::new(),
        },
    };
    let end = Closing {
        outcome: TickOutcome::Done,
        changes: Changes::Kept,
        notice: None,
        exit_code: Some(0),
        removed: true,
        usage: Usage::default(),
        message: MessageFate::Settled(MessageOutcome::Answered, None),
        delivery: Some(delivery),
    };
    let snapshot = NewSnapshot {
        id: SnapshotId::new(),
        layer,
        session: None,
        parcel: None,
    };
    (end, snapshot)
}
