//! The seam to chat systems.

use std::time::Duration;

use async_trait::async_trait;

use crate::{DeliveryId, Reply, ThreadKey};

/// Why a delivery did not happen.
#[derive(Debug, thiserror::Error)]
pub enum DeliverError {
    /// Trying again may help.
    #[error("the platform is not reachable: {0}")]
    Transient(String),
    /// The platform itself says when to come again (a rate limit); trying earlier makes it worse.
    #[error("the platform asks to wait {} s: {reason}", after.as_secs())]
    Limited {
        /// What it said.
        reason: String,
        /// How long from now.
        after: Duration,
    },
    /// Trying again cannot help; the delivery is parked with this reason.
    #[error("the platform refuses: {0}")]
    Permanent(String),
}

/// A chat system.
#[async_trait]
pub trait Platform: Send + Sync {
    /// The platform part of its threads' keys.
    fn name(&self) -> &'static str;

    /// Longest time one [`Platform::deliver`] may take. A call that takes longer is dropped and
    /// made again, so it is well above what the platform's own client waits for one request.
    fn patience(&self) -> Duration {
        Duration::from_secs(60)
    }

    /// Brings a reply to its thread and returns the platform's id of what people now see.
    ///
    /// Calls for one thread come one after the other, in the order of its replies; those for
    /// different threads come side by side. May be dropped at any `await`, and is called again with
    /// the same id after that and after a crash: must not show the reply twice.
    async fn deliver(
        &self,
        thread: &ThreadKey,
        delivery: DeliveryId,
        reply: &Reply,
    ) -> Result<String, DeliverError>;
}
