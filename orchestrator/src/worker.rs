//! The worker: takes lanes from the queue, claims their next message and runs its tick.

mod affinity;
mod guard;
pub mod host_disk;
pub mod host_memory;
mod lane;
mod lease;
mod next;
pub mod places;
pub mod reserves;
pub mod running;
pub mod suspects;
mod together;

use std::{sync::Arc, time::Duration};

use mayfly_domain::AttachmentLimits;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::{
    places::{Place, Places},
    suspects::Suspects,
};
use crate::{
    agent::profile::Profiles,
    bases::Bases,
    bell::Bell,
    clock,
    db::DbError,
    inbox::{DurableInbox, route::Accesses},
    queue::{Lanes, Work},
    role::Role,
    tick::{Tools, state::Cause},
    trouble::Trouble,
};

/// Limits on what one worker runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WorkerConfig {
    /// Ticks at once.
    pub max_running: u32,
    /// Ticks of one person at once, on all workers together; no limit if none.
    pub max_per_user: Option<u32>,
    /// Mebibytes of memory that all ticks at once may take by their limits; what the host has for them if none.
    pub memory_mib: Option<u64>,
    /// Interrupted ticks per message before it is parked.
    pub attempts: u32,
    /// Seconds that running ticks get to end by themselves when the worker is shut down.
    pub grace_s: u64,
}

impl Default for WorkerConfig {
    fn default() -> Self {
        WorkerConfig {
            max_running: 4,
            max_per_user: None,
            memory_mib: None,
            attempts: 3,
            grace_s: 20,
        }
    }
}

impl WorkerConfig {
    /// Mebibytes of memory that all ticks at once may take; none where neither configuration nor host tells.
    pub fn memory(&self) -> Option<u64> {
        self.memory_mib.or_else(host_memory::for_ticks)
    }
}

/// Who this worker is, in which of its starts.
#[derive(Debug, Clone)]
pub struct Identity {
    /// Lives in the data dir.
    pub id: String,
    /// + 1 per start.
    pub epoch: i64,
}

/// See the module; cheap to clone.
#[derive(Clone)]
pub struct Worker {
    /// What ticks work with.
    pub tools: Tools,
    /// What this process is there for.
    pub role: Role,
    /// What agents begin with.
    pub bases: Bases,
    /// Who may have work.
    pub lanes: Lanes,
    /// Profiles as configured.
    pub profiles: Arc<Profiles>,
    /// Who this is.
    pub identity: Identity,
    /// Who may speak on which platform.
    pub accesses: Arc<Accesses>,
    /// Limits.
    pub config: WorkerConfig,
    /// Rung whenever an outcome is written.
    pub bell: Bell,
    /// Why no tick starts.
    pub trouble: Trouble,
    /// Where ticks run; all of them free means rest.
    pub places: Places,
    /// Cancelled when no new tick may start.
    pub resting: CancellationToken,
    /// Cancelled when the first tick may start.
    pub begun: CancellationToken,
    /// Messages that were interrupted before.
    pub suspects: Suspects,
}

const NOT_ALLOWED: &str = "Not run: its author may not speak here any more.";
const SOON: Duration = Duration::from_millis(500);
/// A program that is told to end is killed by then.
const ENDS_WITHIN: Duration = Duration::from_secs(7);
const WAIT: Duration = Duration::from_secs(2);

impl Worker {
    /// Where what arrives becomes this worker's work.
    pub fn inbox(&self, limits: AttachmentLimits) -> DurableInbox {
        DurableInbox::new(
            self.tools.db.clone(),
            self.lanes.clone(),
            limits,
            self.bell.clone(),
            self.trouble.clone(),
        )
    }

    /// Takes lanes until the process comes to rest.
    pub async fn serve(self) -> Result<(), DbError> {
        let stopping = self.tools.supervisor.stopping();
        loop {
            let Some((work, place)) = self.resting.run_until_cancelled(self.next_work()).await
            else {
                self.lanes.leave().await;
                stopping.cancelled().await;
                return Ok(());
            };
            let lane = work.lane;
            if self.resting.is_cancelled() {
                // Both came at once.
                self.lanes.done(lane, Some(Duration::ZERO)).await;
                continue;
            }
            let (worker, supervisor) = (self.clone(), self.tools.supervisor.clone());
            supervisor.task("lane", async move {
                let mut place = place;
                let again = match worker.until_kept(lane, &mut place.share).await {
                    Ok(()) => worker.clone().survive_lane(lane).await,
                    Err(again) => again,
                };
                worker.lanes.done(lane, again).await;
            });
        }
    }

    /// The next lane, as soon as there is a place for it.
    async fn next_work(&self) -> (Work, Place) {
        self.begun.cancelled().await;
        loop {
            let room = self.places.free().await;
            // Whoever cannot renew its lease leaves the lanes to others.
            self.until_lease(true).await;
            tokio::select! {
                work = self.lanes.take(&room) => {
                    let place = self.places.take(&work);
                    return (work, place);
                }
                () = self.places.other_than(&room) => {}
                () = self.until_lease(false) => {}
            }
        }
    }

    /// Starts no new tick, lets running ones end within the grace period, then hands their
    /// messages back. Returns when none runs and what only this host has is stored, as far as the time allows; false
    /// where some ticks cannot be closed since the database is away: then their sandboxes end with the process, and
    /// the next start closes them.
    pub async fn drain(&self) -> bool {
        let over = Instant::now() + Duration::from_secs(self.config.grace_s);
        if !self.end_ticks(over).await {
            return false;
        }
        let left = over.saturating_duration_since(Instant::now());
        self.tools.travel.put_last(left).await;
        true
    }

    async fn end_ticks(&self, over: Instant) -> bool {
        self.resting.cancel();
        let rest = self.places.rest();
        tokio::pin!(rest);
        if tokio::time::timeout_at(over, &mut rest).await.is_ok() {
            return true;
        }
        tracing::info!("the grace period is over: running ticks are handed back");
        self.tools.travel.hurry().cancel();
        let mut again = tokio::time::interval(SOON);
        let over = clock::boot_time();
        loop {
            tokio::select! {
                _ = &mut rest => return true,
                // A tick that was still starting can be asked only now.
                _ = again.tick() => self.tools.running.ask_all(&Cause::Drained),
            }
            let asked = clock::boot_time().saturating_sub(over);
            if asked > ENDS_WITHIN && !self.tools.lease.fresh() {
                tracing::warn!("the database is away: what ran is closed by the next start");
                return false;
            }
        }
    }

    /// Whoever comes next need not wait for the lease. Legal when all else has ended.
    pub async fn leave(&self) {
        if !self.is_at_rest() {
            return;
        }
        let (db, Identity { id, epoch }) = (&self.tools.db, &self.identity);
        let leave = async {
            // Others would close these at once, and nobody has proved that their sandboxes have ended.
            let orphans = db.orphans().await?;
            let owns = db.is_shared() && orphans.iter().any(|tick| tick.worker == *id);
            if !owns {
                db.end_worker(id, *epoch).await?;
            }
            Ok::<bool, DbError>(owns)
        };
        if !matches!(tokio::time::timeout(WAIT, leave).await, Ok(Ok(false))) {
            tracing::warn!("the worker's lease is not given back: it ends by itself");
        }
    }

    /// Whether this process has run for so long, and been heard of by the database all the time.
    pub(crate) fn is_steady(&self, since: Duration) -> bool {
        let lately = clock::boot_time().saturating_sub(since);
        !self.tools.lease.lapsed_since(lately) && self.tools.began <= lately
    }

    /// Whether no tick runs.
    pub fn is_at_rest(&self) -> bool {
        self.places.are_free()
    }
}
