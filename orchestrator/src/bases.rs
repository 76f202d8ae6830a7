//! One base per image: the slots' content as the image has it, extracted once.

use std::sync::Arc;

use mayfly_domain::{BaseId, InstallationId};
use tokio::sync::{Mutex, RwLock};

use crate::{
    db::{Db, DbError, agents::Base},
    faults,
    sandbox::{Backend, BackendError, Image},
    snapshot::{Slot, Store, StoreError},
};

/// Why a base could not be made.
#[derive(Debug, thiserror::Error)]
pub enum BaseError {
    /// The engine.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// The folders.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The row.
    #[error(transparent)]
    Db(#[from] DbError),
}

/// Makes bases on demand; cheap to clone.
#[derive(Clone)]
pub struct Bases {
    db: Db,
    store: Arc<Store>,
    backend: Arc<dyn Backend>,
    installation: InstallationId,
    one_at_a_time: Arc<Mutex<()>>,
    making: Arc<RwLock<()>>,
}

impl Bases {
    /// Over these.
    pub fn new(
        db: Db,
        store: Arc<Store>,
        backend: Arc<dyn Backend>,
        installation: InstallationId,
        making: Arc<RwLock<()>>,
    ) -> Self {
        Bases {
            db,
            store,
            backend,
            installation,
            one_at_a_time: Arc::default(),
            making,
        }
    }

    /// The base of an image, extracted now if this is the image's first agent.
    pub async fn ensure(&self, image: &Image) -> Result<Base, BaseError> {
        // Whoever has one does not wait for another image's.
        if let Some(base) = self.db.base_of_image(&image.id).await? {
            return Ok(base);
        }
        let _turn = self.one_at_a_time.lock().await;
        if let Some(base) = self.db.base_of_image(&image.id).await? {
            return Ok(base);
        }
        let _making = self.making.read().await;
        let id = match self.db.gone_base_of_image(&image.id).await? {
            Some(id) => id,
            None => BaseId::new(),
        };
        let slots = Slot::defaults();
        let into = self.store.begin_base(&id)?;
        faults::point("base.begun");
        let named: Vec<(String, String)> = slots
            .iter()
            .map(|slot| (slot.name.clone(), slot.path.clone()))
            .collect();
        let facts = self
            .backend
            .extract_base(self.installation, image, &named, &into)
            .await?;
        faults::point("base.extracted");
        let (store, base, sealed) = (self.store.clone(), id.clone(), slots);
        tokio::task::spawn_blocking(move || store.finish_base(&base, &sealed))
            .await
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))?;
        faults::point("base.finished");
        self.db.insert_base(&id, &image.id, &facts).await?;
        faults::point("base.after");
        Ok(Base {
            id,
            image: image.id.clone(),
            uid: facts.uid,
            gid: facts.gid,
        })
    }
}
