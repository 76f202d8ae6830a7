//! The seam to chat systems.

use async_trait::async_trait;

use crate::{DeliveryId, Reply, ThreadKey};

/// Why a delivery did not happen.
#[derive(Debug, thiserror::Error)]
pub enum DeliverError {
    /// Trying again may help.
    #[error("the platform is not reachable: {0}")]
    Transient(String),
    /// Trying again cannot help; the delivery is parked with this reason.
    #[error("the platform refuses: {0}")]
    Permanent(String),
}

/// A chat system.
#[async_trait]
pub trait Platform: Send + Sync {
    /// The platform part of its threads' keys.
    fn name(&self) -> &'static str;

    /// Brings a reply to its thread and returns the platform's id of what people now see.
    /// Called again with the same id after a crash: must not show the reply twice.
    async fn deliver(
        &self,
        thread: &ThreadKey,
        delivery: DeliveryId,
        reply: &Reply,
    ) -> Result<String, DeliverError>;
}
