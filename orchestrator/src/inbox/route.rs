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
};

/// Longest wait between two looks for something new.
const POLL: Duration = Duration::from_secs(2);
/// Events read at once.
const BATCH: i64 = 100;

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
    /// Told of each post that became part of a message.
    pub seen: tokio::sync::mpsc::UnboundedSender<PostId>,
}

impl Router {
    /// Applies until the process comes to rest.
    pub async fn serve(self, supervisor: Supervisor) -> Result<(), DbError> {
        let stopping = supervisor.stopping();
        let mut held = false;
        while !stopping.is_cancelled() {
            if held {
                let pause = tokio::time::sleep(POLL);
                if stopping.run_until_cancelled(pause).await.is_none() {
                    break;
                }
            }
            let found = self.bell.until(POLL, || async {
                let found = self.db.new_arrivals(BATCH).await?;
                Ok::<_, DbError>((!found.is_empty()).then_some(found))
            });
            let Some(found) = stopping.run_until_cancelled(found).await else {
                break;
            };
            held = match found {
                Ok(found) => self.apply_all(found.unwrap_or_default()).await,
                Err(error) => {
                    tracing::error!(error = observe::chain(&error), "arrivals not readable");
                    true
                }
            };
        }
        Ok(())
    }

    /// Whether one of them has to wait.
    async fn apply_all(&self, found: Vec<NewArrival>) -> bool {
        let mut held = BTreeSet::new();
        for arrival in found {
            let Some(event) = &arrival.event else {
                continue;
            };
            let channel = channel_of(event);
            if channel.is_some_and(|channel| held.contains(channel)) {
                continue;
            }
            if let Err(error) = self.apply(&arrival, event).await {
                tracing::warn!(arrival = arrival.seq, error, "an event waits");
                held.extend(channel.cloned());
            }
        }
        !held.is_empty()
    }

    async fn apply(&self, arrival: &NewArrival, event: &Event) -> Result<(), String> {
        let platform = channel_of(event).map_or("", |channel| channel.platform.as_str());
        let closed = Access::default();
        let access = self.accesses.get(platform).unwrap_or(&closed);
        let mut fresh = None;
        loop {
            let done = self.db.apply(arrival.seq, event, access, fresh.as_ref());
            match done.await.map_err(|error| observe::chain(&error))? {
                Applied::WantsAgent(profile) => fresh = Some(self.agent(&profile).await?),
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
