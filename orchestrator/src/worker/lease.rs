//! This worker lives: it renews its lease in the database and tells the queue so.

use super::{SOON, WAIT, Worker};
use crate::{
    clock::{self, LEASE, Lease, RENEWAL, STALE},
    db::DbError,
    observe,
    queue::BEAT,
    trouble::Source,
};

impl Worker {
    pub(super) async fn until_lease(&self, fresh: bool) {
        while self.tools.lease.fresh() != fresh {
            tokio::time::sleep(SOON).await;
        }
    }

    /// Tells the queue that this worker lives, until no tick runs any more.
    pub async fn beat(self) -> Result<(), String> {
        let stopping = self.tools.supervisor.stopping();
        while !(stopping.is_cancelled() && self.is_at_rest()) {
            // Whoever cannot renew its lease runs nothing: others may have its lanes.
            if self.tools.lease.fresh() {
                self.lanes.beat().await;
            }
            let pause = if stopping.is_cancelled() { SOON } else { BEAT };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = stopping.cancelled(), if !stopping.is_cancelled() => {}
            }
        }
        Ok(())
    }

    /// Renews the one lease of all this worker's ticks.
    pub async fn renew(self, lease: Lease) -> Result<(), String> {
        let stopping = self.tools.supervisor.stopping();
        loop {
            let sent = clock::boot_time();
            let renewal = self
                .tools
                .db
                .renew(&self.identity.id, self.identity.epoch, LEASE);
            match tokio::time::timeout(STALE, renewal).await {
                Ok(Ok(true)) => {
                    lease.confirm(sent);
                    self.trouble.clear(Source::Database);
                    self.set_clock().await;
                }
                Ok(Ok(false)) => return Err(DbError::Over.to_string()),
                Ok(Err(error)) => self.database_fails(observe::chain(&error)),
                Err(_) => self.database_fails(format!("no answer within {} s", STALE.as_secs())),
            }
            // Ticks that are still being ended need the lease until the last of them is over.
            if stopping.is_cancelled() && self.is_at_rest() {
                return Ok(());
            }
            let next = if stopping.is_cancelled() {
                SOON
            } else {
                RENEWAL
            };
            tokio::select! {
                () = tokio::time::sleep(next) => {}
                () = stopping.cancelled(), if !stopping.is_cancelled() => {}
            }
        }
    }

    /// What is not heard in time says nothing, and the boot clock goes on.
    async fn set_clock(&self) {
        if let Ok(Err(error)) = tokio::time::timeout(WAIT, self.tools.db.set_clock()).await {
            tracing::debug!(error = observe::chain(&error), "the database's clock");
        }
    }

    fn database_fails(&self, reason: String) {
        let sentence = format!("the database does not take the worker's lease: {reason}");
        self.trouble.raise(Source::Database, sentence);
        self.tools.host_disk.free_ballast();
    }
}
