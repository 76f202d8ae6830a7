//! How many agents travel at once: each holds a thread for as long as its other end is slow.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::RequestError;

/// Imports, and exports, at once.
const AT_ONCE: usize = 4;

/// Places for imports and for exports; none is waited for.
pub(crate) struct Travel {
    imports: Arc<Semaphore>,
    exports: Arc<Semaphore>,
}

impl Default for Travel {
    fn default() -> Self {
        let places = || Arc::new(Semaphore::new(AT_ONCE));
        Travel {
            imports: places(),
            exports: places(),
        }
    }
}

impl Travel {
    pub(super) fn import(&self) -> Result<OwnedSemaphorePermit, RequestError> {
        place(&self.imports, "imports")
    }

    pub(super) fn export(&self) -> Result<OwnedSemaphorePermit, RequestError> {
        place(&self.exports, "exports")
    }
}

fn place(places: &Arc<Semaphore>, what: &str) -> Result<OwnedSemaphorePermit, RequestError> {
    places.clone().try_acquire_owned().map_err(|_| {
        let told = format!("{AT_ONCE} {what} are under way: try again when one has ended");
        RequestError::Unavailable(told)
    })
}
