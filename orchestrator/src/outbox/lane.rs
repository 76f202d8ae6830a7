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

type Writing = BoxFuture<'static, (ThreadKey, Done)>;

/// See the module.
pub(super) struct Lane {
    whose: Whose,
    writer: Arc<Writer>,
    bell: Bell,
    /// Threads that have a writer now.
    writing: HashSet<ThreadKey>,
    writers: FuturesUnordered<Writing>,
    busy: Busy,
}

impl Lane {
    pub(super) fn new(whose: Whose, writer: Writer, bell: Bell) -> Self {
        Lane {
            whose,
            writer: Arc::new(writer),
            bell,
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
            let due = progress::due(of, caller.platform.as_ref());
            let idle = of.phase.is_some() && !self.busy.contains_key(&of.thread);
            if left > 0 && (idle || due.is_some()) && self.writing.insert(of.thread.clone()) {
                left -= 1;
                self.writers.push(self.show(of.clone(), due));
            }
        }
        Ok(!watched.is_empty())
    }

    fn write(&self, owed: Owed) -> Writing {
        let writer = self.writer.clone();
        Box::pin(async move {
            let thread = owed.thread.clone();
            writer.deliver(owed).await;
            (thread, Done::Wrote)
        })
    }

    fn show(&self, of: Watched, due: Option<Due>) -> Writing {
        let writer = self.writer.clone();
        Box::pin(async move {
            let thread = of.thread.clone();
            let Target::Chat(caller) = &writer.target else {
                return (thread, Done::Wrote);
            };
            let done = match due {
                Some(due) => {
                    writer.show_progress(caller, &of, due).await;
                    Done::Wrote
                }
                None => Done::Busy(Writer::show_busy(caller, thread.clone()).await),
            };
            (thread, done)
        })
    }
}
