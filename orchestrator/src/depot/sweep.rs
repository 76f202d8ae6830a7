//! What no row needs leaves the store: marked first, removed after a time of grace. From time to time all
//! objects are listed, for those whose worker died between putting and naming them.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use super::{DepotError, Travel};
use crate::{clock, db::doomed::Kind, faults};

/// Between the mark and the removal, in milliseconds: whoever has put something has so long to name it.
pub const GRACE_MS: i64 = 60 * 60 * 1000;
/// An upload that no message names is kept at least so long.
const UPLOAD_MS: i64 = 24 * 60 * 60 * 1000;
/// Between two lists of all objects.
const LISTED: Duration = Duration::from_secs(24 * 60 * 60);

/// When all objects were listed last, by the boot clock.
#[derive(Debug, Default)]
pub(super) struct Swept(Mutex<Option<Duration>>);

impl Swept {
    fn is_due(&self) -> bool {
        let last = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last.is_none_or(|last| clock::boot_time().saturating_sub(last) >= LISTED)
    }

    fn done(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(clock::boot_time());
    }
}

impl Travel {
    /// Removes what was marked long enough ago; answers how many objects that were.
    pub async fn sweep(&self) -> Result<u64, DepotError> {
        let Some(objects) = &self.objects else {
            return Ok(0);
        };
        if self.swept.is_due() {
            self.mark_unnamed().await?;
            self.swept.done();
        }
        let now = clock::unix_ms();
        let mut count = 0;
        for object in self.db.doomed(now - GRACE_MS).await? {
            if self.db.begin_removal(&object, now - UPLOAD_MS).await? {
                faults::point("depot.removing");
                objects.remove(&object).await?;
                self.db.removed(&object).await?;
                count += 1;
            }
        }
        Ok(count)
    }

    /// Marks objects that are older than the time of grace and that no row names.
    pub async fn mark_unnamed(&self) -> Result<(), DepotError> {
        let Some(objects) = &self.objects else {
            return Ok(());
        };
        let now = clock::unix_ms();
        for folder in ["layers", "blobs"] {
            for (object, at) in objects.list(folder).await? {
                let old = at < now - GRACE_MS && Kind::of(&object).is_some();
                if old && !self.db.is_named(&object, now - UPLOAD_MS).await? {
                    self.db.doom(&object).await?;
                }
            }
        }
        Ok(())
    }
}
