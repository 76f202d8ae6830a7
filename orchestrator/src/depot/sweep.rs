//! What no row needs leaves the store: marked first, removed after a time of grace. From time to time all
//! objects are listed, page by page, for those whose worker died between putting and naming them.
//!
//! A removal is begun by a row, and done at once or not at all: whoever was frozen in between leaves it to others.
//! What somebody needs again meanwhile is put under another name, see [`Travel::put_blob`].

use std::{
    convert::Infallible,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use super::{DepotError, Travel};
use crate::{
    clock,
    db::doomed::{GRACE_MS, Kind},
    faults,
    supervise::Supervisor,
};

/// Between two lists of all objects.
const LISTED: Duration = Duration::from_secs(24 * 60 * 60);
/// Between two rounds.
const PERIOD: Duration = Duration::from_secs(5);
/// So long a right to remove something is used; after ten minutes others take it for given up.
const AT_ONCE: Duration = Duration::from_secs(60);

/// When all objects were listed last, by the boot clock.
#[derive(Debug, Default)]
pub(super) struct Swept(Mutex<Option<Duration>>);

impl Swept {
    fn is_due(&self) -> bool {
        let last = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last.is_none_or(|last| clock::boot_time().saturating_sub(last) >= LISTED)
    }

    fn not_yet(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn done(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(clock::boot_time());
    }
}

impl Travel {
    /// Keeps the store clean until the process comes to rest: beside what puts, because a list of many objects takes
    /// long.
    pub async fn serve_sweep(self, supervisor: Supervisor) -> Result<(), Infallible> {
        let stopping = supervisor.stopping();
        let rounds = async {
            loop {
                tokio::time::sleep(PERIOD).await;
                if self.away().is_some() {
                    continue;
                }
                if self.swept.is_due() && self.note("list", self.mark_unnamed().await) {
                    self.swept.done();
                }
                self.note("sweep", self.sweep().await.map(drop));
            }
        };
        let _: Option<()> = stopping.run_until_cancelled(rounds).await;
        Ok(())
    }

    /// All objects are listed soon.
    pub(crate) fn list_again(&self) {
        self.swept.not_yet();
    }

    /// Removes what was marked long enough ago; answers how many objects that were.
    pub async fn sweep(&self) -> Result<u64, DepotError> {
        let Some(objects) = &self.objects else {
            return Ok(0);
        };
        let mut count = 0;
        let mut kept = None;
        for object in self.db.doomed().await? {
            let asked = clock::boot_time();
            if !self.db.begin_removal(&object).await? {
                continue;
            }
            faults::point("depot.removing");
            if clock::boot_time().saturating_sub(asked) > AT_ONCE {
                tracing::warn!(object, "left to others: this process stood still");
                continue;
            }
            match objects.remove(&object).await {
                Ok(()) => {}
                Err(error @ DepotError::NotRemoved { .. }) => {
                    kept = Some(error);
                    continue;
                }
                Err(error) => return Err(error),
            }
            self.db.removed(&object).await?;
            count += 1;
        }
        kept.map_or(Ok(count), Err)
    }

    /// Marks objects that no row names. What is young is looked at another time.
    pub async fn mark_unnamed(&self) -> Result<(), DepotError> {
        let Some(objects) = &self.objects else {
            return Ok(());
        };
        for folder in Kind::FOLDERS {
            let mut pages = objects.list(folder);
            while let Some(page) = pages.next().await? {
                self.mark_page(page).await?;
            }
        }
        Ok(())
    }

    async fn mark_page(&self, page: Vec<(String, i64)>) -> Result<(), DepotError> {
        let before = self.db.wall_clock().await? - GRACE_MS;
        let old = page.into_iter().filter(|(_, at)| *at < before);
        let old: Vec<String> = old.map(|(object, _)| object).collect();
        let unnamed = self.db.unnamed(&old).await?;
        Ok(self.db.doom(&unnamed).await?)
    }
}
