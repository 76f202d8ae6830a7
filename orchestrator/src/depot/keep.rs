//! What is owed to the layer store is put there, after the reply and after a restart, for as long as it
//! takes; and the store is looked at, so that lanes wait while it is away.

use std::{convert::Infallible, time::Duration};

use super::{DepotError, Travel, cache};
use crate::{agent::transcript, bell::Bell, observe, supervise::Supervisor};

/// Transcripts put in one round.
const TRANSCRIPTS: i64 = 100;
/// Between two rounds.
const PERIOD: Duration = Duration::from_secs(5);

impl Travel {
    /// Looks after the store until the process comes to rest.
    pub async fn serve(
        self,
        supervisor: Supervisor,
        bell: Bell,
        cache_mib: u64,
    ) -> Result<(), Infallible> {
        let stopping = supervisor.stopping();
        let rounds = async {
            loop {
                let rung = bell.next();
                if self.note("look", self.look().await) {
                    self.note("owed", self.put_owed().await);
                    self.note("cache", cache::evict(&self, cache_mib << 20).await);
                }
                // A tick that ended may owe something; more often than this the store is not looked at.
                tokio::time::sleep(PERIOD / 10).await;
                let _ = tokio::time::timeout(PERIOD, rung).await;
            }
        };
        let _: Option<()> = stopping.run_until_cancelled(rounds).await;
        Ok(())
    }

    /// Whether the store is there and ours.
    pub async fn look(&self) -> Result<(), DepotError> {
        let Some(objects) = &self.objects else {
            return Ok(());
        };
        let (id, in_use) = self.db.store_id().await?;
        objects.look(&id, in_use).await
    }

    /// Before this worker goes: puts what only it has, for as long as that may take, so that others need not wait
    /// for its return.
    pub async fn put_last(&self, patience: Duration) {
        if self.objects.is_none() {
            return;
        }
        match tokio::time::timeout(patience, self.put_owed()).await {
            Ok(put) => {
                self.note("owed", put);
            }
            Err(_) => tracing::warn!(
                "the grace period is over: what is not stored is put after the next start"
            ),
        }
    }

    /// Puts all that is here and that nobody has stored. One that cannot be packed does not keep the others.
    pub async fn put_owed(&self) -> Result<(), DepotError> {
        let _alone = self.owed.lock().await;
        let mut last = Ok(());
        for base in self.db.bases_owed().await? {
            if !self.store.base_dir(&base).is_dir() {
                continue;
            }
            let put = async {
                if let Some(parcel) = self.put_base(&base).await? {
                    self.db.base_stored(&base, &parcel).await?;
                }
                Ok(())
            };
            last = kept(last, put.await)?;
        }
        for layer in self.db.layers_owed().await? {
            if !self.store.present(&layer) {
                continue;
            }
            let put = async {
                if let Some(parcel) = self.put_layer(&layer).await? {
                    self.db.layer_stored(&layer, &parcel).await?;
                }
                Ok(())
            };
            last = kept(last, put.await)?;
        }
        for (tick, agent) in self.db.transcripts_owed(&self.worker, TRANSCRIPTS).await? {
            let path = transcript::path(&self.data_dir, agent, tick);
            let put = self.put_transcript(tick, agent, path);
            last = kept(last, put.await)?;
        }
        last
    }

    /// Answers whether it was done.
    pub(super) fn note(&self, what: &'static str, done: Result<(), DepotError>) -> bool {
        match done {
            Ok(()) => true,
            // Said by whoever found it out.
            Err(DepotError::Away { .. }) => false,
            Err(error) => {
                let error = observe::chain(&error);
                tracing::warn!(what, error, "left to the next round");
                false
            }
        }
    }
}

/// Goes on after a failure of one, but not where the store itself is away.
fn kept(
    last: Result<(), DepotError>,
    now: Result<(), DepotError>,
) -> Result<Result<(), DepotError>, DepotError> {
    match now {
        Err(error @ DepotError::Away { .. }) => Err(error),
        now => Ok(last.and(now)),
    }
}
