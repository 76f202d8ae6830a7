//! What one platform is owed: one writer per thread, a bounded number of threads at once.

use std::{collections::HashSet, convert::Infallible, sync::Arc, time::Duration};

use futures_util::{StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use mayfly_domain::ThreadKey;

use super::write::Writer;
use crate::{
    bell::Bell,
    db::{
        DbError,
        deliveries::{Owed, Whose},
    },
    observe,
};

/// Longest wait between two looks for something owed.
const POLL: Duration = Duration::from_secs(2);
/// Threads of one platform that are written to at once.
pub(super) const AT_ONCE: usize = 8;

/// See the module.
pub(super) struct Lane {
    whose: Whose,
    writer: Arc<Writer>,
    bell: Bell,
    /// Threads that have a writer now.
    writing: HashSet<ThreadKey>,
    writers: FuturesUnordered<BoxFuture<'static, ThreadKey>>,
}

impl Lane {
    pub(super) fn new(whose: Whose, writer: Writer, bell: Bell) -> Self {
        Lane {
            whose,
            writer: Arc::new(writer),
            bell,
            writing: HashSet::new(),
            writers: FuturesUnordered::new(),
        }
    }

    /// Goes on until the process comes to rest, and then until the last writer has ended.
    pub(super) async fn serve(mut self) -> Result<(), Infallible> {
        let stopping = self.writer.stopping.clone();
        let bell = self.bell.clone();
        while !stopping.is_cancelled() {
            // Listened for before the look, so that no ring between look and wait is missed.
            let rung = bell.next();
            if let Err(error) = self.take().await {
                tracing::error!(error = observe::chain(&error), "outbox not readable");
            }
            tokio::select! {
                () = stopping.cancelled() => {}
                Some(thread) = self.writers.next() => { self.writing.remove(&thread); }
                () = rung => {}
                () = tokio::time::sleep(POLL) => {}
            }
        }
        while self.writers.next().await.is_some() {}
        Ok(())
    }

    /// Gives threads that are owed something a writer, as far as there are any left.
    async fn take(&mut self) -> Result<(), DbError> {
        let mut left = AT_ONCE - self.writing.len();
        if left == 0 {
            return Ok(());
        }
        // Those that have a writer may come first.
        let owed = self.writer.db.owed(&self.whose, AT_ONCE as i64 * 2).await?;
        for delivery in owed {
            if left > 0 && self.writing.insert(delivery.thread.clone()) {
                left -= 1;
                self.writers.push(Box::pin(self.write(delivery)));
            }
        }
        Ok(())
    }

    fn write(&self, owed: Owed) -> impl Future<Output = ThreadKey> + Send + use<> {
        let writer = self.writer.clone();
        async move {
            let thread = owed.thread.clone();
            writer.deliver(owed).await;
            thread
        }
    }
}
