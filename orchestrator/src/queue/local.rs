//! The queue inside one process, rebuilt from the database at start.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use mayfly_domain::AgentId;
use tokio::{sync::Notify, time::Instant};

use super::{Offer, Queue, QueueError, Rest, Room, TURN, Work, local::order::Order};

mod order;

/// See the module.
#[derive(Debug)]
pub struct Local {
    order: Mutex<Order>,
    changed: Notify,
    /// Until when nobody gets the turn to offer all lanes.
    rests: Mutex<Duration>,
    began: Instant,
}

impl Default for Local {
    fn default() -> Self {
        Local {
            order: Mutex::default(),
            changed: Notify::new(),
            rests: Mutex::default(),
            began: Instant::now(),
        }
    }
}

impl Local {
    fn order(&self) -> MutexGuard<'_, Order> {
        self.order.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn rests(&self) -> MutexGuard<'_, Duration> {
        self.rests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }
}

#[async_trait]
impl Queue for Local {
    async fn offer(&self, offers: &[Offer]) -> Result<(), QueueError> {
        let now = self.now();
        let mut order = self.order();
        for offer in offers {
            order.offer(offer, now);
        }
        drop(order);
        self.changed.notify_one();
        Ok(())
    }

    async fn take(&self, room: &Room) -> Result<Work, QueueError> {
        loop {
            let changed = self.changed.notified();
            let taken = self.order().take(room, self.now());
            match taken {
                Ok(work) => return Ok(work),
                Err(None) => changed.await,
                Err(Some(due)) => {
                    tokio::select! {
                        () = changed => {}
                        () = tokio::time::sleep_until(self.began + due) => {}
                    }
                }
            }
        }
    }

    async fn done(&self, lane: AgentId, again: Option<Offer>) -> Result<(), QueueError> {
        let now = self.now();
        self.order().done(lane, again.as_ref(), now);
        self.changed.notify_one();
        Ok(())
    }

    async fn beat(&self) -> Result<(), QueueError> {
        Ok(())
    }

    async fn leave(&self) -> Result<(), QueueError> {
        Ok(())
    }

    async fn place(&self, lane: AgentId) -> Result<Option<usize>, QueueError> {
        Ok(self.order().place(lane))
    }

    async fn dead(&self) -> Result<Vec<AgentId>, QueueError> {
        Ok(Vec::new())
    }

    async fn forgive(&self, _: AgentId) -> Result<bool, QueueError> {
        Ok(false)
    }

    async fn turn(&self) -> Result<bool, QueueError> {
        let (now, mut rests) = (self.now(), self.rests());
        let free = *rests <= now;
        if free {
            *rests = now + TURN;
        }
        Ok(free)
    }

    async fn rest(&self, rest: Rest) -> Result<(), QueueError> {
        *self.rests() = self.now() + rest.duration();
        Ok(())
    }
}
