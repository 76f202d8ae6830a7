//! Where arrivals become durable: stored raw with their place in the lane, then acknowledged. Files
//! were uploaded before; a message names them.

pub mod access;
pub mod courtesy;
pub mod decide;
pub mod fetch;
pub mod listen;
pub mod pairing;
pub mod route;

use std::sync::Arc;

use async_trait::async_trait;
use mayfly_domain::{
    Accepted, Arrival, AttachmentLimits, Inbox, InboxError, Incoming, Link, Mark, Recent,
};

use tokio::sync::mpsc;

use fetch::Fetcher;
use route::{Accesses, Router};

use crate::{
    bell::Bell,
    db::{Db, accept::Acceptance},
    faults,
    outbox::Platforms,
    queue::Lanes,
    service::Begin,
    trouble::{Source, Trouble},
    worker::Worker,
};

/// The one accept path of every platform.
#[derive(Clone)]
pub struct DurableInbox {
    db: Db,
    lanes: Lanes,
    limits: AttachmentLimits,
    /// Rung when events of platforms wait to be applied.
    bell: Bell,
    trouble: Trouble,
}

impl DurableInbox {
    /// An inbox over this database, waking this queue.
    pub fn new(
        db: Db,
        lanes: Lanes,
        limits: AttachmentLimits,
        bell: Bell,
        trouble: Trouble,
    ) -> Self {
        DurableInbox {
            db,
            lanes,
            limits,
            bell,
            trouble,
        }
    }
}

/// Everything between a platform's event and a message in its lane, until the process comes to rest.
pub fn start(
    worker: &Worker,
    platforms: &Platforms,
    accesses: &Arc<Accesses>,
    limits: AttachmentLimits,
    begin: Begin,
) {
    if platforms.is_empty() {
        return;
    }
    let (tools, supervisor) = (&worker.tools, &worker.tools.supervisor);
    let (courtesies, to_show) = mpsc::unbounded_channel();
    let router = Router {
        db: tools.db.clone(),
        lanes: worker.lanes.clone(),
        profiles: worker.profiles.clone(),
        bases: worker.bases.clone(),
        accesses: accesses.clone(),
        bell: worker.bell.clone(),
        trouble: worker.trouble.clone(),
        courtesies,
    };
    supervisor.standing("router", router.serve(supervisor.clone()));
    let fetcher = Fetcher {
        db: tools.db.clone(),
        blobs: tools.blobs.clone(),
        platforms: platforms.clone(),
        limits,
        lanes: worker.lanes.clone(),
        bell: worker.bell.clone(),
    };
    supervisor.standing("fetcher", fetcher.serve(supervisor.clone()));
    let shown = courtesy::serve(to_show, platforms.clone(), supervisor.clone());
    supervisor.standing("courtesies", shown);
    if begin == Begin::WithAMessage {
        // A command is no server: what people write meanwhile is for the next one.
        return;
    }
    for platform in platforms.values() {
        let name = platform.name();
        let not_yet = format!("no connection to {name} yet");
        worker.trouble.expect(Source::Platform(name), not_yet);
        let (platform, inbox) = (platform.clone(), worker.inbox(limits));
        let listener = listen::serve(platform, inbox, worker.trouble.clone(), supervisor.clone());
        supervisor.standing("listener", listener);
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
        self.lanes
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
