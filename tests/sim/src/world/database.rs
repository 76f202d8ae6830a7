//! What processes ask of the database: sent, run, answered, and each of the three may fail by itself.

use std::{cell::Cell, panic::AssertUnwindSafe, panic::resume_unwind, sync::Once, time::Duration};

use futures_util::FutureExt as _;
use mayfly_domain::{AgentId, MessageId, TickId};
use mayfly_orchestrator::{
    clock::LEASE,
    db::{
        Db, DbError,
        claims::Claim,
        endings::{Closing, NewSnapshot},
        messages::Message,
        ticks::Tick,
        together::Together,
    },
    faults,
    sandbox::Names,
    snapshot::Slot,
    tick::destroy,
    worker::Identity,
};

use super::{Event, Ms, Server, World, jobs::JobId, time::BASE, workers::Life};
use crate::{agents, oracle::End, sqlite_clock};

/// Attempts of a message, as the default is.
pub(super) const ATTEMPTS: u32 = 3;

/// Something that a process has asked for: it may be run when the process is dead.
#[derive(Debug)]
pub(super) struct Request {
    /// The database as that start of the process has it.
    pub(super) db: Db,
    pub(super) identity: Identity,
    pub(super) job: JobId,
    pub(super) what: Ask,
}

#[derive(Debug)]
pub(super) enum Ask {
    Look(AgentId),
    Claim(TickId, AgentId, Together),
    /// Whether the claim was written whose answer was lost; then it is given back.
    Unclaim(TickId),
    Enter(Box<Claim>),
    Commit(Box<Claim>, Box<Closing>, NewSnapshot),
    /// Whether the commit was written whose answer was lost.
    Reread(TickId),
    Close(AgentId, TickId, i64, Box<Closing>),
    /// What a start that is over has left open.
    Orphan(Box<Tick>),
    /// The lease; sent at this time of the boot clock.
    Renew(Duration),
}

/// What a process hears.
#[derive(Debug)]
pub(super) enum Heard {
    /// An error, whatever was done.
    Nothing(JobId),
    Looked(JobId, Option<Box<Message>>, Vec<MessageId>),
    Claimed(JobId, Option<Box<Claim>>),
    Unclaimed(JobId),
    Entered(JobId, bool),
    Committed(JobId),
    Read(JobId, bool),
    Closed(JobId),
    Renewed(Option<Duration>),
    /// The lane of an orphan is free.
    Freed(AgentId),
    /// This start of the process is over for the database.
    Over,
}

thread_local! {
    static ARMED: Cell<Option<&'static str>> = const { Cell::new(None) };
}

/// None where the process dies at this point.
pub(super) async fn died_inside<T>(
    at: Option<&'static str>,
    asked: impl Future<Output = T>,
) -> Option<T> {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        faults::watch(|passed| {
            if ARMED.get() == Some(passed) {
                ARMED.set(None);
                resume_unwind(Box::new(passed));
            }
        });
    });
    ARMED.set(at);
    let answer = AssertUnwindSafe(asked).catch_unwind().await;
    let struck = ARMED.take().is_none() && at.is_some();
    match answer {
        Ok(answer) => Some(answer),
        Err(_) if struck => None,
        Err(panic) => resume_unwind(panic),
    }
}

impl Ask {
    /// Where a process may die so that nothing is written.
    fn inside(&self) -> Option<&'static str> {
        match self {
            Ask::Claim(..) => Some("claim.inside"),
            Ask::Commit(..) => Some("commit.inside"),
            Ask::Close(..) | Ask::Orphan(_) => Some("close.inside"),
            _ => None,
        }
    }
}

impl World<'_> {
    /// The database's clock is the true one.
    pub(super) fn show_database(&self) {
        sqlite_clock::set(BASE + self.now() as i64);
    }

    /// Whether something breaks that breaks so often.
    pub(super) fn breaks(&mut self, of_all: f64) -> bool {
        !self.mended && self.chance.happens(of_all)
    }

    fn way(&mut self) -> Ms {
        match self.breaks(0.01) {
            true => self.chance.between(500, 9000),
            false => self.chance.between(1, 8),
        }
    }

    /// A process asks.
    pub(super) fn ask(&mut self, worker: usize, job: JobId, what: Ask) {
        self.ask_after(worker, 0, job, what);
    }

    /// A process asks when others have been answered.
    pub(super) fn ask_after(&mut self, worker: usize, wait: Ms, job: JobId, what: Ask) {
        let asker = &self.workers[worker];
        let (life, request) = (
            asker.life,
            Request {
                db: asker.db.clone(),
                identity: asker.identity.clone(),
                job,
                what,
            },
        );
        let way = self.way();
        self.schedule
            .after(way + wait, Event::Run(worker, life, Box::new(request)));
    }

    pub(super) fn reaches_database(&self, worker: usize) -> bool {
        self.workers[worker].cut[Server::Database as usize].is_none()
            && self.away[Server::Database as usize].is_none()
    }

    /// The database does what it was asked for.
    pub(super) fn run(&mut self, worker: usize, life: Life, request: Request) {
        let is_dead = self.workers[worker].life != life;
        // What was sent may have arrived.
        if is_dead && self.chance.happens(0.5) {
            return;
        }
        let (job, renews) = (request.job, matches!(request.what, Ask::Renew(_)));
        let nothing = || match renews {
            true => Heard::Renewed(None),
            false => Heard::Nothing(job),
        };
        if !self.reaches_database(worker) {
            let patience = self.chance.between(1000, 5000);
            let hear = Event::Hear(worker, life, Box::new(nothing()));
            return self.schedule.after(patience, hear);
        }
        let inside = request.what.inside();
        let inside = inside.filter(|_| !is_dead && self.breaks(self.scene.inside));
        self.show_database();
        self.workers[worker].clock.show(self.now());
        let Some(heard) = self.do_it(worker, inside, request) else {
            return self.crash(worker, "inside of a transaction");
        };
        let lost = self.breaks(self.scene.lost);
        let heard = if lost { nothing() } else { heard };
        if lost {
            self.figures.count("answers lost");
        }
        let way = self.way();
        self.schedule
            .after(way, Event::Hear(worker, life, Box::new(heard)));
    }

    /// What a process hears of it; none where it died.
    fn do_it(
        &mut self,
        worker: usize,
        inside: Option<&'static str>,
        request: Request,
    ) -> Option<Heard> {
        let Request {
            db,
            identity,
            job,
            what,
        } = request;
        let asked = died_inside(inside, ask(&db, &identity, &what));
        let answer = match self.runtime.block_on(asked)? {
            Ok(answer) => answer,
            Err(DbError::Over) => {
                self.tell_trace(|| {
                    format!("w{worker} is over for the database: {what:?}")
                        .chars()
                        .take(120)
                        .collect()
                });
                return Some(Heard::Over);
            }
            Err(error) => {
                self.break_(
                    &format!("an error that nobody made: {error} at {what:?}"),
                    &[],
                );
                return None;
            }
        };
        self.look_at(worker, &db, &what, &answer);
        Some(match (what, answer) {
            (_, Answer::Looked(next, others)) => Heard::Looked(job, next, others),
            (_, Answer::Claimed(claim)) => Heard::Claimed(job, claim),
            (_, Answer::Entered(entered)) => Heard::Entered(job, entered),
            (_, Answer::Read(open)) => Heard::Read(job, open),
            (Ask::Renew(sent), Answer::Done(true)) => Heard::Renewed(Some(sent)),
            (Ask::Renew(_), Answer::Done(false)) => Heard::Over,
            (Ask::Commit(..), Answer::Done(_)) => Heard::Committed(job),
            (_, Answer::Done(_)) => Heard::Closed(job),
            (_, Answer::Unclaimed(..)) => Heard::Unclaimed(job),
            (Ask::Orphan(tick), Answer::Orphan(_, true)) => Heard::Freed(tick.agent),
            (_, Answer::Orphan(..)) => Heard::Nothing(job),
        })
    }

    /// Holds what was done against what must be true.
    fn look_at(&mut self, worker: usize, db: &Db, what: &Ask, answer: &Answer) {
        let now = self.now();
        let judged = match (what, answer) {
            (_, Answer::Claimed(Some(claim))) => {
                self.tell_trace(|| told("claims", worker, claim.agent.id, claim.tick));
                self.oracle.claim(claim, now, &mut self.figures)
            }
            (Ask::Commit(claim, _, snapshot), Answer::Done(done)) => {
                let (agent, tick) = (claim.agent.id, claim.tick);
                self.tell_trace(|| {
                    told(
                        if *done { "commits" } else { "cannot commit" },
                        worker,
                        agent,
                        tick,
                    )
                });
                let ended =
                    self.oracle
                        .end(agent, tick, End::Committed, *done, now, &mut self.figures);
                ended.and_then(|()| match *done {
                    true => self.runtime.block_on(whole(db, claim, snapshot)),
                    false => Ok(()),
                })
            }
            (Ask::Close(agent, tick, _, closing), Answer::Done(done)) => {
                self.tell_trace(|| {
                    told(
                        if *done { "closes" } else { "finds closed" },
                        worker,
                        *agent,
                        *tick,
                    )
                });
                let end = End::Closed(&closing.message);
                self.oracle
                    .end(*agent, *tick, end, *done, now, &mut self.figures)
            }
            (Ask::Orphan(tick), Answer::Orphan(closing, done)) => {
                let what = if *done {
                    "closes the orphan"
                } else {
                    "finds the orphan closed"
                };
                self.tell_trace(|| told(what, worker, tick.agent, tick.id));
                self.figures.count("orphans closed");
                let end = End::Closed(&closing.message);
                self.oracle
                    .end(tick.agent, tick.id, end, *done, now, &mut self.figures)
            }
            (Ask::Unclaim(tick), Answer::Unclaimed(Some((agent, closing, done)))) => {
                self.tell_trace(|| told("gives back", worker, *agent, *tick));
                let end = End::Closed(&closing.message);
                self.oracle
                    .end(*agent, *tick, end, *done, now, &mut self.figures)
            }
            _ => Ok(()),
        };
        self.judge(judged);
    }
}

fn told(what: &str, worker: usize, agent: AgentId, tick: TickId) -> String {
    format!(
        "w{worker} {what} agent {} tick {}",
        agents::number(agent),
        tick.short()
    )
}

/// What the database says.
enum Answer {
    Looked(Option<Box<Message>>, Vec<MessageId>),
    Claimed(Option<Box<Claim>>),
    Unclaimed(Option<(AgentId, Box<Closing>, bool)>),
    Entered(bool),
    Read(bool),
    Done(bool),
    Orphan(Box<Closing>, bool),
}

async fn ask(db: &Db, identity: &Identity, what: &Ask) -> Result<Answer, DbError> {
    Ok(match what {
        Ask::Look(lane) => look(db, *lane).await?,
        Ask::Claim(tick, lane, together) => {
            let worker = (identity.id.as_str(), identity.epoch);
            let names = |layer: &mayfly_domain::LayerId| Names {
                container: layer.to_string(),
                volumes: Slot::defaults().into_iter().map(|slot| slot.name).collect(),
                sockets: layer.as_str().into(),
            };
            let claim = db.claim(*tick, *lane, worker, names, together).await?;
            Answer::Claimed(claim.map(Box::new))
        }
        Ask::Unclaim(tick) => {
            db.outlast_writers().await?;
            Answer::Unclaimed(unclaim(db, *tick).await?)
        }
        Ask::Enter(claim) => Answer::Entered(db.enter_run(claim, "image").await?),
        Ask::Commit(claim, end, snapshot) => {
            Answer::Done(db.commit_tick(claim, end, snapshot).await?)
        }
        Ask::Reread(tick) => {
            db.outlast_writers().await?;
            let row = db.tick(*tick).await?;
            Answer::Read(row.is_some_and(|tick| tick.outcome.is_none()))
        }
        Ask::Close(_, tick, generation, closing) => {
            Answer::Done(db.close_tick(*tick, *generation, closing).await?)
        }
        Ask::Orphan(tick) => {
            let message = db.message(tick.message).await?;
            let message = message.expect("a tick has a message");
            let closing = destroy::crashed(&message, tick.id, ATTEMPTS, &tick.effects);
            let done = db.close_tick(tick.id, tick.generation, &closing).await?;
            Answer::Orphan(Box::new(closing), done)
        }
        Ask::Renew(_) => Answer::Done(db.renew(&identity.id, identity.epoch, LEASE).await?),
    })
}

async fn look(db: &Db, lane: AgentId) -> Result<Answer, DbError> {
    let (Some(_), Some(next)) = (db.agent(lane).await?, db.next_message(lane).await?) else {
        return Ok(Answer::Looked(None, Vec::new()));
    };
    let others = match agents::merges(lane) {
        true => db.waiting_behind(&next, 49).await?,
        false => Vec::new(),
    };
    let others = others.into_iter().map(|message| message.id).collect();
    Ok(Answer::Looked(Some(Box::new(next)), others))
}

async fn unclaim(db: &Db, tick: TickId) -> Result<Option<(AgentId, Box<Closing>, bool)>, DbError> {
    let row = db.tick(tick).await?;
    let Some(tick) = row.filter(|tick| tick.outcome.is_none()) else {
        return Ok(None);
    };
    let Some(message) = db.message(tick.message).await? else {
        return Ok(None);
    };
    let closing = destroy::never_begun(&message, tick.id, ATTEMPTS);
    let done = db.close_tick(tick.id, tick.generation, &closing).await?;
    Ok(Some((tick.agent, Box::new(closing), done)))
}

/// P3: all that a commit writes is there.
async fn whole(db: &Db, claim: &Claim, snapshot: &NewSnapshot) -> Result<(), String> {
    let read = async {
        let tick = db.tick(claim.tick).await?;
        let agent = db.agent(claim.agent.id).await?;
        let message = db.message(claim.message.id).await?;
        Ok::<_, DbError>((tick, agent, message))
    };
    let (tick, agent, message) = read.await.map_err(|error| error.to_string())?;
    let tick = tick.is_some_and(|tick| tick.outcome.is_some() && tick.after == Some(snapshot.id));
    let head = agent.is_some_and(|agent| agent.head == Some(snapshot.id));
    let message = message.is_some_and(|message| message.outcome.is_some());
    match (tick, head, message) {
        (true, true, true) => Ok(()),
        parts => Err(format!(
            "P3: {} is committed in parts: {parts:?}",
            claim.tick
        )),
    }
}
