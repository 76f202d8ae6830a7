//! Events of platforms are applied one after the other, in the order they came.
//!
//! An event that opens a conversation needs an agent, and that one an image, which only the engine
//! knows. While it does not answer, that channel waits and the others go on.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use mayfly_domain::{AgentId, Channel, Event, Happened, PostId};

use super::access::Access;
use crate::{
    agent::profile::Profiles,
    bases::Bases,
    bell::Bell,
    clock,
    db::{Db, DbError, agents::Agent, arrivals::NewArrival, posts::Applied},
    images::Images,
    observe,
    queue::Queue,
    supervise::Supervisor,
    trouble::{Source, Trouble},
};

/// Longest wait between two looks for something new.
const POLL: Duration = Duration::from_secs(2);
/// Events read at once.
const BATCH: i64 = 100;

/// Tries of an event that will fail for ever, as far as one can tell.
const TRIES: u32 = 3;

/// How often events have failed, by their place.
type Failed = BTreeMap<i64, u32>;

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
    pub queue: Arc<dyn Queue>,
    /// What agents are made from.
    pub profiles: Arc<Profiles>,
    /// Finds a profile's image.
    pub images: Images,
    /// Makes what agents begin with.
    pub bases: Bases,
    /// Who may speak.
    pub accesses: Arc<Accesses>,
    /// Rung by the inbox.
    pub bell: Bell,
    /// Where it is said that something waits.
    pub trouble: Trouble,
    /// Told of each post that became part of a message.
    pub seen: tokio::sync::mpsc::UnboundedSender<PostId>,
}

impl Router {
    /// Applies until the process comes to rest.
    pub async fn serve(self, supervisor: Supervisor) -> Result<(), DbError> {
        let stopping = supervisor.stopping();
        let mut failed = Failed::new();
        while !stopping.is_cancelled() {
            let rung = self.bell.next();
            let waits = match stopping
                .run_until_cancelled(self.apply_all(&mut failed))
                .await
            {
                None => break,
                Some(Ok(waits)) => waits,
                Some(Err(error)) => {
                    tracing::error!(error = observe::chain(&error), "arrivals not readable");
                    true
                }
            };
            let pause = async {
                match waits {
                    true => tokio::time::sleep(POLL).await,
                    false => {
                        let _ = tokio::time::timeout(POLL, rung).await;
                    }
                }
            };
            let _ = stopping.run_until_cancelled(pause).await;
        }
        Ok(())
    }

    /// Goes once through all that is new. Whether something has to wait: then what comes after it in
    /// its channel waits too, and other channels go on.
    async fn apply_all(&self, failed: &mut Failed) -> Result<bool, DbError> {
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
                let Err(error) = self.apply(&arrival, event).await else {
                    failed.remove(&arrival.seq);
                    continue;
                };
                let tries = failed.entry(arrival.seq).or_default();
                *tries += 1;
                if error.lasts && *tries >= TRIES {
                    tracing::error!(
                        arrival = arrival.seq,
                        error = error.told,
                        "an event is given up"
                    );
                    failed.remove(&arrival.seq);
                    self.db.give_up_arrival(arrival.seq, "failed").await?;
                    continue;
                }
                tracing::warn!(arrival = arrival.seq, error = error.told, "an event waits");
                waits = Some(error.told);
                held.extend(channel.cloned());
            }
        }
        match &waits {
            Some(told) => self.trouble.raise(Source::Router, told.clone()),
            None => self.trouble.clear(Source::Router),
        }
        Ok(waits.is_some())
    }

    async fn apply(&self, arrival: &NewArrival, event: &Event) -> Result<(), Failure> {
        let platform = channel_of(event).map_or("", |channel| channel.platform.as_str());
        let closed = Access::default();
        let access = self.accesses.get(platform).unwrap_or(&closed);
        let mut fresh = None;
        loop {
            let done = self.db.apply(arrival.seq, event, access, fresh.as_ref());
            match done.await.map_err(Failure::of)? {
                Applied::WantsAgent(profile) => {
                    let agent = self.agent(&profile).await;
                    fresh = Some(agent.map_err(|told| Failure { told, lasts: false })?);
                }
                Applied::Done { lane, seen } => {
                    self.bell.ring();
                    if let Some((agent, after)) = lane {
                        self.queue.offer(agent, after).await;
                    }
                    if let Some(post) = seen {
                        // Nobody listens while the process comes to rest.
                        let _ = self.seen.send(post);
                    }
                    return Ok(());
                }
            }
        }
    }

    async fn agent(&self, name: &str) -> Result<Agent, String> {
        let profile = self.profiles.0.get(name);
        let profile = profile.ok_or_else(|| {
            format!("the configuration has no profile \"{name}\": add it and restart")
        })?;
        let image = self.images.resolve(&profile.sandbox).await;
        let image = image.map_err(|error| observe::chain(&error))?;
        let base = self.bases.ensure(&image).await;
        let base = base.map_err(|error| observe::chain(&error))?;
        Ok(Agent {
            id: AgentId::new(),
            profile: name.to_owned(),
            sandbox: None,
            image: base.image,
            base: base.id,
            head: None,
            forked_from: None,
            created_at: clock::unix_ms(),
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
