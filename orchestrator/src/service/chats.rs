//! What speaks with people: one process at a time.

use std::convert::Infallible;

use mayfly_domain::AttachmentLimits;

use super::Begin;
use crate::{
    command::Commands,
    hold::{self, Sending},
    inbox,
    orders::Orders,
    outbox::{self, Platforms},
    worker::Worker,
};

/// What it takes to speak with people.
pub(super) struct Chats {
    pub(super) worker: Worker,
    pub(super) commands: Commands,
    pub(super) platforms: Platforms,
    pub(super) hold: Vec<String>,
    pub(super) limits: AttachmentLimits,
    pub(super) begin: Begin,
}

impl Chats {
    /// Waits for its turn, and begins. Goes on until the process comes to rest.
    pub(super) async fn serve(self) -> Result<(), Infallible> {
        let tools = &self.worker.tools;
        let stopping = tools.supervisor.stopping();
        let mut names = self.hold.clone();
        names.push(hold::CHATS.to_owned());
        // Who has no platform, or listens to none, misses nothing.
        let misses = !self.platforms.is_empty() && self.begin == Begin::AtOnce;
        let tell = misses.then_some(&self.worker.trouble);
        if hold::take(&tools.db, &names, tell, &stopping).await {
            self.start();
        }
        stopping.cancelled().await;
        Ok(())
    }

    pub(super) fn start(&self) {
        let (worker, platforms) = (&self.worker, &self.platforms);
        let (tools, supervisor) = (&worker.tools, &worker.tools.supervisor);
        let accesses = worker.accesses.clone();
        inbox::start(worker, platforms, &accesses, self.limits, self.begin);
        let sending = Sending::new(&tools.lease, &tools.db);
        if !platforms.is_empty() {
            let orders = Orders {
                db: tools.db.clone(),
                blobs: tools.blobs.clone(),
                commands: self.commands.clone(),
                platforms: platforms.clone(),
                accesses,
                bell: worker.bell.clone(),
                sending: sending.clone(),
            };
            supervisor.standing("orders", orders.serve(supervisor.clone()));
        }
        outbox::start(
            &tools.db,
            &tools.blobs,
            platforms,
            &worker.bell,
            &sending,
            supervisor,
        );
    }
}
