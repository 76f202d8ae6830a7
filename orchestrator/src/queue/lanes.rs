//! What the queue is told: which lanes have work, whose turn each uses and how long it may take, as the
//! database and the configuration say.

use std::{sync::Arc, time::Duration};

use mayfly_domain::AgentId;
use tokio::time::timeout;

use super::{BEAT, Length, Offer, Queue, QueueError, Rest, Room, Work};
use crate::{
    agent::profile::Profiles,
    db::{Db, DbError, messages::Waiting},
    observe,
    trouble::{Source, Trouble},
};

/// Patience of whoever accepts a message: what the queue is not told now it is told by the reconciler.
const SHORTLY: Duration = Duration::from_secs(1);
/// Lanes that are offered before whoever has the turn says that it goes on.
const OFFERED: usize = 2000;

/// See the module; cheap to clone.
#[derive(Clone)]
pub struct Lanes {
    queue: Arc<dyn Queue>,
    db: Db,
    profiles: Arc<Profiles>,
    trouble: Trouble,
}

impl Lanes {
    /// Of one installation.
    pub fn new(queue: Arc<dyn Queue>, db: Db, profiles: Arc<Profiles>, trouble: Trouble) -> Lanes {
        Lanes {
            queue,
            db,
            profiles,
            trouble,
        }
    }

    /// This lane has, or will have after the delay, a message. What cannot be told now the reconciler
    /// tells later.
    pub async fn offer(&self, lane: AgentId, delay: Duration) {
        match self.offer_of(lane, delay).await {
            Ok(Some(offer)) => {
                let offered = timeout(SHORTLY, self.queue.offer(&[offer])).await;
                let late = || {
                    Err(QueueError(
                        "the queue does not answer within a second".to_owned(),
                    ))
                };
                self.hear(Source::Offers, offered.unwrap_or_else(|_| late()));
            }
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(agent = %lane, error = observe::chain(&error), "a lane is not offered yet");
            }
        }
    }

    /// Offers every lane with work, where it is this process's turn: the queue may have lost it.
    pub async fn refill(&self) -> Result<(), DbError> {
        if !self.has_turn().await {
            return Ok(());
        }
        let waiting = match self.db.lanes_to_run().await {
            Ok(waiting) => waiting,
            Err(error) => {
                self.ask(self.queue.rest(Rest::Over).await);
                return Err(error);
            }
        };
        let offers: Vec<Offer> = waiting
            .into_iter()
            .map(|lane| self.offer_for(lane))
            .collect();
        for offers in offers.chunks(OFFERED) {
            self.ask(self.queue.rest(Rest::Turn).await);
            let offered = self.queue.offer(offers).await;
            if self.hear(Source::Offers, offered).is_none() {
                return Ok(());
            }
        }
        self.ask(self.queue.rest(Rest::Round).await);
        Ok(())
    }

    /// Of all processes one reads and offers what waits; the others hear only that the queue is well.
    async fn has_turn(&self) -> bool {
        self.hear(Source::Offers, self.queue.turn().await) == Some(true)
    }

    /// Waits for a lane; tries again, ever more slowly, where the queue does not answer.
    pub async fn take(&self, room: &Room) -> Work {
        let mut pause = Duration::from_millis(100);
        loop {
            if let Some(work) = self.hear(Source::Queue, self.queue.take(room).await) {
                return work;
            }
            tokio::time::sleep(pause.mul_f64(rand::random_range(0.5..1.0))).await;
            pause = (pause * 2).min(BEAT);
        }
    }

    /// Gives a lane back; with `again` it is looked at after that time.
    pub async fn done(&self, lane: AgentId, again: Option<Duration>) {
        let offer = match again {
            None => None,
            Some(delay) => self.offer_of(lane, delay).await.unwrap_or_else(|error| {
                tracing::warn!(agent = %lane, error = observe::chain(&error), "a lane is not offered yet");
                None
            }),
        };
        self.ask(self.queue.done(lane, offer).await);
    }

    /// Says that this process still works on what it took.
    pub async fn beat(&self) {
        self.ask(self.queue.beat().await);
    }

    /// Takes nothing any more.
    pub async fn leave(&self) {
        self.ask(self.queue.leave().await);
    }

    /// Lanes stand before this one; none if it is not waiting.
    pub async fn place(&self, lane: AgentId) -> Option<usize> {
        self.ask(self.queue.place(lane).await).flatten()
    }

    /// Lanes that ended every worker that took them.
    pub async fn dead(&self) -> Vec<AgentId> {
        self.ask(self.queue.dead().await).unwrap_or_default()
    }

    /// Takes such a lane back in; false if somebody else did.
    pub async fn forgive(&self, lane: AgentId) -> bool {
        self.ask(self.queue.forgive(lane).await).unwrap_or(false)
    }

    async fn offer_of(&self, lane: AgentId, delay: Duration) -> Result<Option<Offer>, DbError> {
        let waiting = self.db.lane_to_run(lane).await?;
        Ok(waiting.map(|waiting| Offer {
            delay,
            ..self.offer_for(waiting)
        }))
    }

    fn offer_for(&self, waiting: Waiting) -> Offer {
        let deadline = self.profiles.0.get(&waiting.profile);
        let deadline = deadline.map_or(0, |profile| profile.limits.wall_clock_s);
        Offer {
            delay: Duration::from_millis(self.db.until(waiting.claimable_at) as u64),
            work: Work {
                lane: waiting.agent,
                user: waiting.user,
                profile: waiting.profile,
                length: Length::of(Duration::from_secs(deadline)),
            },
        }
    }

    /// Whether lanes can be taken is said by whoever takes.
    fn ask<T>(&self, answer: Result<T, QueueError>) -> Option<T> {
        answer
            .inspect_err(|error| tracing::debug!(%error, "the queue"))
            .ok()
    }

    fn hear<T>(&self, source: Source, answer: Result<T, QueueError>) -> Option<T> {
        match answer {
            Ok(value) => {
                self.trouble.clear(source);
                Some(value)
            }
            Err(QueueError(sentence)) => {
                self.trouble.raise(source, sentence);
                None
            }
        }
    }
}
