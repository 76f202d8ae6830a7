//! The queue inside one process, rebuilt from the database at start.

use std::{
    collections::{HashMap, VecDeque},
    sync::Mutex,
    time::Duration,
};

use async_trait::async_trait;
use mayfly_domain::AgentId;
use tokio::{sync::Notify, time::Instant};

use super::Queue;

/// Round robin: a lane that was served goes to the back.
#[derive(Debug, Default)]
pub struct Local {
    lanes: Mutex<Lanes>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Lanes {
    ready: VecDeque<AgentId>,
    state: HashMap<AgentId, Lane>,
}

#[derive(Debug, Clone, Copy)]
enum Lane {
    Ready,
    Later(Instant),
    /// Taken; `Some` if it was offered meanwhile.
    Taken(Option<Instant>),
}

impl Lanes {
    fn offer(&mut self, lane: AgentId, at: Instant) {
        match self.state.get_mut(&lane) {
            Some(Lane::Ready) => {}
            Some(Lane::Later(due)) => *due = at.min(*due),
            Some(Lane::Taken(again)) => *again = Some(again.map_or(at, |due| due.min(at))),
            None => {
                self.state.insert(lane, Lane::Later(at));
            }
        }
    }

    /// Moves what is due to the back of the ring; returns when the next one will be.
    fn ripen(&mut self, now: Instant) -> Option<Instant> {
        let mut next = None;
        let mut due = Vec::new();
        for (lane, state) in &self.state {
            match state {
                Lane::Later(at) if *at <= now => due.push((*at, *lane)),
                Lane::Later(at) => next = Some(next.map_or(*at, |n: Instant| n.min(*at))),
                _ => {}
            }
        }
        due.sort();
        for (_, lane) in due {
            self.state.insert(lane, Lane::Ready);
            self.ready.push_back(lane);
        }
        next
    }
}

impl Local {
    fn lanes(&self) -> std::sync::MutexGuard<'_, Lanes> {
        self.lanes
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn try_take(&self) -> Result<AgentId, Option<Instant>> {
        let mut lanes = self.lanes();
        let next = lanes.ripen(Instant::now());
        match lanes.ready.pop_front() {
            Some(lane) => {
                lanes.state.insert(lane, Lane::Taken(None));
                Ok(lane)
            }
            None => Err(next),
        }
    }
}

#[async_trait]
impl Queue for Local {
    async fn offer(&self, lane: AgentId, delay: Duration) {
        self.lanes().offer(lane, Instant::now() + delay);
        self.changed.notify_one();
    }

    async fn take(&self) -> AgentId {
        loop {
            let changed = self.changed.notified();
            match self.try_take() {
                Ok(lane) => return lane,
                Err(None) => changed.await,
                Err(Some(due)) => {
                    tokio::select! {
                        () = changed => {}
                        () = tokio::time::sleep_until(due) => {}
                    }
                }
            }
        }
    }

    async fn done(&self, lane: AgentId, again: Option<Duration>) {
        let mut lanes = self.lanes();
        let offered = match lanes.state.remove(&lane) {
            Some(Lane::Taken(offered)) => offered,
            Some(other) => {
                lanes.state.insert(lane, other);
                return;
            }
            None => None,
        };
        let again = again.map(|delay| Instant::now() + delay);
        // A delay asked for by the worker holds; an offer without one brings the lane back.
        if let Some(at) = again.or(offered) {
            lanes.offer(lane, at);
            drop(lanes);
            self.changed.notify_one();
        }
    }

    async fn place(&self, lane: AgentId) -> Option<usize> {
        self.lanes()
            .ready
            .iter()
            .position(|waiting| *waiting == lane)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn lanes_are_served_in_turn_and_one_at_a_time() {
        let queue = Local::default();
        let (a, b) = (AgentId::new(), AgentId::new());
        queue.offer(a, Duration::ZERO).await;
        queue.offer(a, Duration::ZERO).await;
        queue.offer(b, Duration::from_millis(1)).await;
        assert_eq!(queue.take().await, a);
        queue.offer(a, Duration::ZERO).await;
        assert_eq!(queue.take().await, b, "a is taken");
        queue.done(a, None).await;
        assert_eq!(queue.take().await, a, "a was offered while taken");
        queue.done(a, None).await;
        queue.done(b, Some(Duration::from_secs(60))).await;
        let before = Instant::now();
        assert_eq!(queue.take().await, b);
        assert!(before.elapsed() >= Duration::from_secs(60));
    }
}
