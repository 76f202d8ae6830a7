//! The platform of command line, API and page: its readers read the deliveries themselves.

use async_trait::async_trait;
use mayfly_domain::{DeliverError, DeliveryId, Platform, Reply, ThreadKey};

/// See the module.
#[derive(Debug, Clone, Copy, Default)]
pub struct Local;

#[async_trait]
impl Platform for Local {
    fn name(&self) -> &'static str {
        "local"
    }

    async fn deliver(
        &self,
        _thread: &ThreadKey,
        delivery: DeliveryId,
        _reply: &Reply,
    ) -> Result<String, DeliverError> {
        Ok(delivery.to_string())
    }
}
