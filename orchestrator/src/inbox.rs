//! Where arrivals become durable: stored raw with their place in the lane, then acknowledged. Files
//! were uploaded before; a message names them.

pub mod access;
pub mod decide;
pub mod route;

use std::sync::Arc;

use async_trait::async_trait;
use mayfly_domain::{
    Accepted, Arrival, AttachmentLimits, Inbox, InboxError, Incoming, Link, Mark, Recent,
};

use crate::{
    bell::Bell,
    db::{Db, messages::Acceptance},
    faults,
    queue::Queue,
    trouble::{Source, Trouble},
};

/// The one accept path of every platform.
#[derive(Clone)]
pub struct DurableInbox {
    db: Db,
    queue: Arc<dyn Queue>,
    limits: AttachmentLimits,
    /// Rung when events of platforms wait to be applied.
    bell: Bell,
    trouble: Trouble,
}

impl DurableInbox {
    /// An inbox over this database, waking this queue.
    pub fn new(
        db: Db,
        queue: Arc<dyn Queue>,
        limits: AttachmentLimits,
        bell: Bell,
        trouble: Trouble,
    ) -> Self {
        DurableInbox {
            db,
            queue,
            limits,
            bell,
            trouble,
        }
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

    async fn take(&self, events: Vec<Incoming>, mark: Option<Mark>) -> Result<(), InboxError> {
        let stored = self.db.take_events(&events, mark.as_ref()).await;
        let new = stored.map_err(|error| InboxError::Storage(Box::new(error)))?;
        faults::point("take.after");
        if new > 0 {
            self.bell.ring();
        }
        Ok(())
    }

    async fn mark(&self, platform: &str, name: &str) -> Result<Option<(String, i64)>, InboxError> {
        let mark = self.db.mark(platform, name).await;
        mark.map_err(|error| InboxError::Storage(Box::new(error)))
    }

    async fn recent(&self, platform: &str, most: usize) -> Result<Vec<Recent>, InboxError> {
        let recent = self.db.recent(platform, most).await;
        recent.map_err(|error| InboxError::Storage(Box::new(error)))
    }

    fn link(&self, platform: &'static str, link: Link) {
        match link {
            Link::Up => self.trouble.clear(Source::Platform(platform)),
            Link::Down(why) => {
                let told = format!("no connection to {platform}: {why}");
                self.trouble.raise(Source::Platform(platform), told);
            }
        }
    }
}
