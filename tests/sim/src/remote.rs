//! The shared queue, as one process reaches it: or not.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use async_trait::async_trait;
use mayfly_domain::AgentId;
use mayfly_orchestrator::{
    queue::{
        Offer, Queue, QueueError, Rest, Room, Work,
        redis::speech::{self, Call, Speech},
    },
    worker::Identity,
};
use redis::{FromRedisValue, Value};

use crate::shared::Shared;

/// See the module.
#[derive(Debug)]
pub(crate) struct Remote {
    shared: Arc<Shared>,
    speech: Speech,
    arrived: AtomicBool,
    way: Arc<Way>,
    /// Milliseconds until something is due, as the last take heard it.
    due: AtomicU64,
}

/// Between a process and the queue.
#[derive(Debug, Default)]
pub(crate) struct Way {
    cut: AtomicBool,
    /// The next call is run, its answer does not come, and it is sent again as the client does.
    twice: AtomicBool,
}

impl Way {
    /// Nothing gets through, or all does.
    pub(crate) fn cut(&self, cut: bool) {
        self.cut.store(cut, Ordering::Relaxed);
    }

    /// See [`Way::twice`].
    pub(crate) fn lose_one(&self) {
        self.twice.store(true, Ordering::Relaxed);
    }
}

impl Remote {
    /// For one start of a process.
    pub(crate) fn new(shared: &Arc<Shared>, identity: Identity, way: &Arc<Way>) -> Remote {
        Remote {
            shared: shared.clone(),
            speech: Speech::new(identity),
            arrived: AtomicBool::default(),
            way: way.clone(),
            due: AtomicU64::new(u64::MAX),
        }
    }

    /// Milliseconds until something is due, as far as the last take heard.
    pub(crate) fn due(&self) -> u64 {
        self.due.load(Ordering::Relaxed)
    }

    fn call(&self, call: &Call) -> Result<Value, QueueError> {
        if self.way.cut.load(Ordering::Relaxed) {
            return Err(QueueError("the queue cannot be reached".to_owned()));
        }
        if !self.arrived.swap(true, Ordering::Relaxed) {
            self.shared.call(&self.speech.arrive());
        }
        let answer = self.shared.call(call);
        if self.way.twice.swap(false, Ordering::Relaxed) {
            return Ok(self.shared.call(call));
        }
        Ok(answer)
    }

    fn told<T: FromRedisValue>(&self, call: &Call) -> Result<T, QueueError> {
        T::from_redis_value(self.call(call)?).map_err(|error| QueueError(error.to_string()))
    }
}

#[async_trait]
impl Queue for Remote {
    async fn offer(&self, offers: &[Offer]) -> Result<(), QueueError> {
        Speech::offer(offers).try_for_each(|call| self.call(&call).map(drop))
    }

    /// Ready at once or never: whoever waits is woken by whoever plays.
    async fn take(&self, room: &Room) -> Result<Work, QueueError> {
        let answer = self.call(&self.speech.take(room))?;
        match self.speech.taken(answer) {
            Ok(Ok(work)) => Ok(work),
            Ok(Err(due)) => {
                let due = due.map_or(u64::MAX, |due| due.as_millis() as u64);
                self.due.store(due, Ordering::Relaxed);
                std::future::pending().await
            }
            Err(_) => Err(QueueError("the queue holds what nobody wrote".to_owned())),
        }
    }

    async fn done(&self, lane: AgentId, again: Option<Offer>) -> Result<(), QueueError> {
        let call = self.speech.done(lane, again.as_ref());
        call.map_or(Ok(()), |call| self.call(&call).map(drop))
    }

    async fn beat(&self) -> Result<(), QueueError> {
        self.call(&self.speech.beat()).map(drop)
    }

    async fn leave(&self) -> Result<(), QueueError> {
        self.call(&self.speech.leave()).map(drop)
    }

    async fn place(&self, lane: AgentId) -> Result<Option<usize>, QueueError> {
        self.told(&speech::place(lane))
    }

    async fn dead(&self) -> Result<Vec<AgentId>, QueueError> {
        let lanes: Vec<String> = self.told(&speech::dead())?;
        Ok(lanes.iter().filter_map(|lane| lane.parse().ok()).collect())
    }

    async fn forgive(&self, lane: AgentId) -> Result<bool, QueueError> {
        self.told(&speech::forgive(lane))
    }

    async fn turn(&self) -> Result<bool, QueueError> {
        self.told(&speech::turn())
    }

    async fn rest(&self, rest: Rest) -> Result<(), QueueError> {
        self.call(&speech::rest(rest)).map(drop)
    }
}
