//! A folder for what an import or an export needs meanwhile. It lies where layers in the making do, so that it goes
//! after a crash; until then whoever looks for what a crash left does not see it, however long it takes.

use std::path::{Path, PathBuf};

use mayfly_domain::LayerId;

use super::{Store, StoreError, begin::make};

/// Goes with all that is in it when dropped.
pub struct Staging {
    store: Store,
    id: LayerId,
    path: PathBuf,
}

impl Store {
    /// A new folder, for root only.
    pub fn stage(&self) -> Result<Staging, StoreError> {
        let id = LayerId::new();
        self.staged().insert(id.clone());
        let staging = Staging {
            path: self.upper_dir(&id),
            store: self.clone(),
            id,
        };
        make(&staging.path)?;
        Ok(staging)
    }
}

impl Staging {
    /// Where it lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes it; drop does so too, and cannot tell.
    pub fn end(self) -> Result<(), StoreError> {
        self.store.discard(&self.id)
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        if let Err(error) = self.store.discard(&self.id) {
            tracing::warn!(error = %error, "left for the next look at folders");
        }
        self.store.staged().remove(&self.id);
    }
}
