//! Events of platforms are applied one after the other, in the order they came.
//!
//! An event that opens a conversation needs an agent, and that one an image, which only the engine
//! knows. While it does not answer, or fetches the image, that channel waits and the others go on.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use futures_util::{StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use mayfly_domain::{AgentId, Channel, Event, Happened};
use tokio::time::Instant;

use super::{access::Access, courtesy::Courtesy};
use crate::{
    agent::profile::Profiles,
    bases::Bases,
    bell::Bell,
    db::{Db, DbError, agents::Agent, arrivals::NewArrival, posts::Applied},
    observe,
    queue::Lanes,
    supervise::Supervisor,
    trouble::{Source, Trouble},
};

/// Longest wait between two looks for something new, and least between two tries of an event.
const POLL: Duration = Duration::from_secs(2);
/// Events read at once.
const BATCH: i64 = 100;

/// Tries of an event that will fail for ever, as far as one can tell.
const TRIES: u32 = 3;

/// Why an event is not applied.
struct Failure {
    told: String,
    /// Trying again will most likely not help.
    lasts: bool,
}

impl Failure {
    fn of(error: DbError) -> Self {
        Failure {
            lasts: error.is_lasting(),
            told: observe::chain(&error),
        }
    }
}

/// Who may speak, by platform.
pub type Accesses = BTreeMap<String, Access>;

/// See the module; cheap to clone.
#[derive(Clone)]
pub struct Router {
    /// The truth.
    pub db: Db,
    /// Who has work.
    pub lanes: Lanes,
    /// What agents are made from.
    pub profiles: Arc<Profiles>,
    /// Makes what agents begin with.
    pub bases: Bases,
    /// Who may speak.
    pub accesses: Arc<Accesses>,
    /// Rung by the inbox.
    pub bell: Bell,
    /// Where it is said that something waits.
    pub trouble: Trouble,
    /// What people are shown beside the conversation.
    pub courtesies: tokio::sync::mpsc::UnboundedSender<Courtesy>,
}

/// An agent for a conversation that an event opens, and by which event.
type Made = (i64, Result<Agent, String>);

/// An event that could not be applied.
struct Failed {
    tries: u32,
    /// When it is tried again.
    again: Instant,
    /// Why, which holds until a try has ended well.
    told: String,
}

/// What is known of events that are not applied yet, by their place.
#[derive(Default)]
struct Open {
    failed: BTreeMap<i64, Failed>,
    /// Those whose agent is being made, perhaps for minutes (a large image).
    making: BTreeSet<i64>,
    made: BTreeMap<i64, Result<Agent, String>>,
    makers: FuturesUnordered<BoxFuture<'static, Made>>,
}

/// How far an event is.
enum Step {
    Done,
    /// It needs an agent of this profile.
    WantsAgent {
        profile: String,
        shown: Option<Courtesy>,
    },
}

impl Router {
    /// Applies until the process comes to rest.
    pub async fn serve(self, supervisor: Supervisor) -> Result<(), DbError> {
        let stopping = supervisor.stopping();
        let mut open = Open::default();
        while !stopping.is_cancelled() {
            let rung = self.bell.next();
            let applied = self.apply_all(&mut open, &supervisor);
            match stopping.run_until_cancelled(applied).await {
                None => break,
                Some(Ok(())) => {}
                Some(Err(error)) => {
                    tracing::error!(error = observe::chain(&error), "arrivals not readable");
                }
            }
            tokio::select! {
                () = stopping.cancelled() => {}
                Some((seq, agent)) = open.makers.next() => {
                    open.making.remove(&seq);
                    open.made.insert(seq, agent);
                }
                () = rung => {}
                () = tokio::time::sleep(POLL) => {}
            }
        }
        Ok(())
    }

    /// Goes once through all that is new. Where something has to wait, what comes after it in its
    /// channel waits too, and other channels go on.
    async fn apply_all(&self, open: &mut Open, supervisor: &Supervisor) -> Result<(), DbError> {
        let (mut held, mut waits, mut after) = (BTreeSet::new(), None, 0);
        loop {
            let found = self.db.new_arrivals(after, BATCH).await?;
            let Some(last) = found.last() else { break };
            after = last.seq;
            for arrival in found {
                let Some(event) = &arrival.event else {
                    self.db.give_up_arrival(arrival.seq, "unreadable").await?;
                    continue;
                };
                let channel = channel_of(event);
                if channel.is_some_and(|channel| held.contains(channel)) {
                    continue;
                }
                if let Err(wait) = self.one(&arrival, event, open, supervisor).await? {
                    waits = wait.or(waits);
                    held.extend(channel.cloned());
                }
            }
        }
        match waits {
            Some(told) => self.trouble.raise(Source::Router, told),
            None => self.trouble.clear(Source::Router),
        }
        Ok(())
    }

    /// One event. An error is why it waits, where somebody should know.
    async fn one(
        &self,
        arrival: &NewArrival,
        event: &Event,
        open: &mut Open,
        supervisor: &Supervisor,
    ) -> Result<Result<(), Option<String>>, DbError> {
        let seq = arrival.seq;
        let before = open.failed.get(&seq);
        let tries = before.map_or(0, |failed| failed.tries);
        let told = before.map(|failed| failed.told.clone());
        let early = before.is_some_and(|failed| failed.again > Instant::now());
        if early || open.making.contains(&seq) {
            return Ok(Err(told));
        }
        let fresh = open.made.remove(&seq).transpose();
        let applied = match fresh {
            Ok(fresh) => self.apply(arrival, event, fresh.as_ref()).await,
            Err(told) => Err(Failure { told, lasts: false }),
        };
        match applied {
            Ok(Step::Done) => {
                open.failed.remove(&seq);
                Ok(Ok(()))
            }
            Ok(Step::WantsAgent { profile, shown }) => {
                if tries == 0 {
                    self.show(shown);
                }
                open.making.insert(seq);
                open.makers.push(self.make(seq, profile, supervisor));
                Ok(Err(told))
            }
            Err(error) if error.lasts && tries + 1 >= TRIES => {
                tracing::error!(arrival = seq, error = error.told, "an event is given up");
                open.failed.remove(&seq);
                self.db.give_up_arrival(seq, "failed").await?;
                Ok(Ok(()))
            }
            Err(error) => {
                tracing::warn!(arrival = seq, error = error.told, "an event waits");
                let failed = Failed {
                    tries: tries + 1,
                    again: Instant::now() + POLL,
                    told: error.told.clone(),
                };
                open.failed.insert(seq, failed);
                Ok(Err(Some(error.told)))
            }
        }
    }

    async fn apply(
        &self,
        arrival: &NewArrival,
        event: &Event,
        fresh: Option<&Agent>,
    ) -> Result<Step, Failure> {
        let platform = channel_of(event).map_or("", |channel| channel.platform.as_str());
        let closed = Access::default();
        let access = self.accesses.get(platform).unwrap_or(&closed);
        let done = self.db.apply(arrival.seq, event, access, fresh);
        match done.await.map_err(Failure::of)? {
            Applied::WantsAgent { profile, shown } => Ok(Step::WantsAgent { profile, shown }),
            Applied::Done { lane, shown } => {
                self.bell.ring();
                if let Some((agent, after)) = lane {
                    self.lanes.offer(agent, after).await;
                }
                self.show(shown);
                Ok(Step::Done)
            }
        }
    }

    fn show(&self, courtesy: Option<Courtesy>) {
        if let Some(courtesy) = courtesy {
            // Nobody listens while the process comes to rest.
            let _ = self.courtesies.send(courtesy);
        }
    }

    fn make(&self, seq: i64, profile: String, supervisor: &Supervisor) -> BoxFuture<'static, Made> {
        let (router, stopping) = (self.clone(), supervisor.stopping());
        let task = supervisor.task("agent maker", async move {
            let made = stopping.run_until_cancelled(router.agent(&profile)).await;
            made.unwrap_or_else(|| Err("the process comes to rest".to_owned()))
        });
        Box::pin(async move {
            let made = task.await;
            let failed = |panic| Err(format!("making its agent failed: {panic}"));
            (seq, made.unwrap_or_else(failed))
        })
    }

    async fn agent(&self, name: &str) -> Result<Agent, String> {
        let profile = self.profiles.0.get(name);
        let profile = profile.ok_or_else(|| {
            format!("the configuration has no profile \"{name}\": add it and restart")
        })?;
        let begins = self.bases.beginning(&profile.sandbox).await;
        let begins = begins.map_err(|error| observe::chain(&error))?;
        Ok(Agent {
            id: AgentId::new(),
            profile: name.to_owned(),
            sandbox: None,
            image: begins.image,
            base: begins.base,
            head: None,
            forked_from: None,
            created_at: self.db.now(),
        })
    }
}

fn channel_of(event: &Event) -> Option<&Channel> {
    match &event.happened {
        Happened::Posted(posted) | Happened::Edited(posted) => Some(&posted.id.channel),
        Happened::Deleted(id) => Some(&id.channel),
        Happened::Pressed(pressed) => Some(&pressed.on.channel),
        Happened::Moved { from, .. } => Some(from),
        Happened::Ignored(_) => None,
    }
}
