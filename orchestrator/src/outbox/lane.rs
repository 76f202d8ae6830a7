//! What one platform is owed: one writer per thread, a bounded number of threads at once.

use std::{collections::HashSet, convert::Infallible, sync::Arc, time::Duration};

use futures_util::{StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use mayfly_domain::ThreadKey;
use tokio::time::Instant;

use super::{
    Target,
    progress::{self, Busy, Due},
    write::Writer,
};
use crate::{
    bell::Bell,
    db::{
        DbError,
        deliveries::{Owed, Whose},
        progress::Watched,
    },
    observe,
    supervise::Supervisor,
};

/// Longest wait between two looks for something owed.
const POLL: Duration = Duration::from_secs(2);
/// The same while people wait for an answer.
const SOON: Duration = Duration::from_millis(500);
/// Messages whose progress is looked at.
const WATCHED: i64 = 100;
/// Threads of one platform that are written to at once.
pub(super) const AT_ONCE: usize = 8;

/// What a writer has done when it ends.
enum Done {
    /// Something was written.
    Wrote,
    /// Somebody is shown to be busy until then.
    Busy(Instant),
}

/// Waits for a writer, which is a task of its own: between two polls it may hold a connection that
/// the lane's own look needs.
type Writing = BoxFuture<'static, (ThreadKey, Done)>;

/// See the module.
pub(super) struct Lane {
    whose: Whose,
    writer: Arc<Writer>,
    bell: Bell,
    supervisor: Supervisor,
    /// Threads that have a writer now.
    writing: HashSet<ThreadKey>,
    writers: FuturesUnordered<Writing>,
    busy: Busy,
}

impl Lane {
    pub(super) fn new(whose: Whose, writer: Writer, bell: Bell, supervisor: Supervisor) -> Self {
        Lane {
            whose,
            writer: Arc::new(writer),
            bell,
            supervisor,
            writing: HashSet::new(),
            writers: FuturesUnordered::new(),
            busy: Busy::new(),
        }
    }

    /// Goes on until the process comes to rest, and then until the last writer has ended.
    pub(super) async fn serve(mut self) -> Result<(), Infallible> {
        let stopping = self.writer.stopping.clone();
        let bell = self.bell.clone();
        while !stopping.is_cancelled() {
            // Listened for before the look, so that no ring between look and wait is missed.
            let rung = bell.next();
            let wait = match self.take().await {
                Ok(true) => SOON,
                Ok(false) => POLL,
                Err(error) => {
                    tracing::error!(error = observe::chain(&error), "outbox not readable");
                    POLL
                }
            };
            tokio::select! {
                () = stopping.cancelled() => {}
                Some((thread, done)) = self.writers.next() => self.ended(thread, done),
                () = rung => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
        while self.writers.next().await.is_some() {}
        Ok(())
    }

    fn ended(&mut self, thread: ThreadKey, done: Done) {
        self.writing.remove(&thread);
        if let Done::Busy(until) = done {
            self.busy.insert(thread, until);
        }
    }

    /// Gives threads that are owed something a writer, as far as there are any left. True if
    /// somebody watches the progress of something.
    async fn take(&mut self) -> Result<bool, DbError> {
        let mut left = AT_ONCE - self.writing.len();
        if left == 0 {
            return Ok(false);
        }
        // Those that have a writer may come first.
        let owed = self.writer.db.owed(&self.whose, AT_ONCE as i64 * 2).await?;
        for delivery in owed {
            if left > 0 && self.writing.insert(delivery.thread.clone()) {
                left -= 1;
                self.writers.push(self.write(delivery));
            }
        }
        let Target::Chat(caller) = &self.writer.target else {
            return Ok(false);
        };
        let watched = self.writer.db.watched(&self.whose, WATCHED).await?;
        let now = Instant::now();
        self.busy.retain(|_, until| *until > now);
        for of in &watched {
            let due = progress::due(of, self.writer.db.now(), caller.platform.as_ref());
            let idle = of.phase.is_some() && !self.busy.contains_key(&of.thread);
            if left > 0 && (idle || due.is_some()) && self.writing.insert(of.thread.clone()) {
                left -= 1;
                self.writers.push(self.show(of.clone(), due));
            }
        }
        Ok(!watched.is_empty())
    }

    fn write(&self, owed: Owed) -> Writing {
        let (writer, thread) = (self.writer.clone(), owed.thread.clone());
        self.task(thread, async move {
            writer.deliver(owed).await;
            Done::Wrote
        })
    }

    fn task(
        &self,
        thread: ThreadKey,
        work: impl Future<Output = Done> + Send + 'static,
    ) -> Writing {
        let task = self.supervisor.task("writer", work);
        Box::pin(async move {
            let done = task.await.unwrap_or_else(|panic| {
                tracing::error!(%thread, %panic, "a writer failed");
                Done::Wrote
            });
            (thread, done)
        })
    }

    fn show(&self, of: Watched, due: Option<Due>) -> Writing {
        let writer = self.writer.clone();
        self.task(of.thread.clone(), async move {
            let Target::Chat(caller) = &writer.target else {
                return Done::Wrote;
            };
            match due {
                Some(due) => {
                    writer.show_progress(caller, &of, due).await;
                    Done::Wrote
                }
                None => Done::Busy(Writer::show_busy(caller, of.thread.clone()).await),
            }
        })
    }
}
