//! A hint that something was settled. The database is the truth; who waits also polls.

use std::{sync::Arc, time::Duration};

use tokio::sync::Notify;

/// Longest wait between two looks at the truth.
const POLL: Duration = Duration::from_secs(1);

/// Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Bell(Arc<Notify>);

impl Bell {
    /// Something was settled.
    pub fn ring(&self) {
        self.0.notify_waiters();
    }

    /// Resolves at the first ring after this call, also one that comes before it is awaited.
    pub fn next(&self) -> impl Future<Output = ()> + '_ {
        self.0.notified()
    }

    /// True if something is settled before the time is over.
    pub async fn rings(&self, within: Duration) -> bool {
        tokio::time::timeout(within, self.0.notified())
            .await
            .is_ok()
    }

    /// Looks until `look` finds something or the time is over. Registers before each look, so no
    /// ring between look and wait is missed.
    pub async fn until<T, E, Look>(
        &self,
        patience: Duration,
        mut look: impl FnMut() -> Look,
    ) -> Result<Option<T>, E>
    where
        Look: Future<Output = Result<Option<T>, E>>,
    {
        let deadline = tokio::time::Instant::now() + patience;
        loop {
            let rung = self.0.notified();
            if let Some(found) = look().await? {
                return Ok(Some(found));
            }
            if tokio::time::Instant::now() >= deadline {
                return Ok(None);
            }
            let _ = tokio::time::timeout_at(deadline.min(tokio::time::Instant::now() + POLL), rung)
                .await;
        }
    }
}
