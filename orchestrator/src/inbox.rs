//! Where arrivals become durable: stored raw with their place in the lane, then acknowledged. Files
//! were uploaded before; a message names them.

use std::sync::Arc;

use async_trait::async_trait;
use mayfly_domain::{Accepted, Arrival, AttachmentLimits, Inbox, InboxError};

use crate::{
    db::{Db, messages::Acceptance},
    faults,
    queue::Queue,
};

/// The one accept path of every platform.
#[derive(Clone)]
pub struct DurableInbox {
    db: Db,
    queue: Arc<dyn Queue>,
    limits: AttachmentLimits,
}

impl DurableInbox {
    /// An inbox over this database, waking this queue.
    pub fn new(db: Db, queue: Arc<dyn Queue>, limits: AttachmentLimits) -> Self {
        DurableInbox { db, queue, limits }
    }
}

#[async_trait]
impl Inbox for DurableInbox {
    async fn accept(&self, arrival: Arrival) -> Result<Accepted, InboxError> {
        faults::point("accept.before");
        let accepted = match self.db.accept(&arrival, &self.limits).await {
            Ok(Acceptance::Accepted(accepted)) => accepted,
            Ok(Acceptance::Files(error)) => return Err(error.into()),
            Ok(Acceptance::KeyReused) => return Err(InboxError::KeyReused(arrival.key)),
            Ok(Acceptance::NoAgent) => return Err(InboxError::NoAgent(arrival.thread)),
            Err(error) => return Err(InboxError::Storage(Box::new(error))),
        };
        faults::point("accept.after");
        self.queue
            .offer(accepted.agent, std::time::Duration::ZERO)
            .await;
        Ok(accepted)
    }
}
