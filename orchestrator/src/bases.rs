//! One base per image: the slots' content as the image has it. Each worker has a copy of its own, extracted
//! when it first needs one; one row stands for all.
//!
//! A process without an engine makes agents all the same: theirs is [`BaseId::promised`] until a worker has
//! their first tick.

use std::sync::Arc;

use mayfly_domain::{BaseId, SandboxRef};
use tokio::sync::{Mutex, RwLock};

use crate::{
    db::{
        Db, DbError,
        agents::{Agent, Base},
    },
    depot::{DepotError, Travel},
    faults,
    images::Images,
    observe,
    sandbox::{Backend, BackendError, BaseFacts, Image, Owner},
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
    /// The layer store.
    #[error(transparent)]
    Depot(#[from] DepotError),
    /// It came with an import, so no image has it.
    #[error(
        "base {0} came with an import and lies only where that was: bring b/{0} over from there"
    )]
    OnlyThere(BaseId),
}

/// What a new agent begins with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Beginning {
    /// The engine's id of the image; its name where that is not known yet.
    pub image: String,
    /// Its base.
    pub base: BaseId,
}

/// Makes bases on demand; cheap to clone.
#[derive(Clone)]
pub struct Bases {
    /// The rows.
    pub db: Db,
    /// This worker's folders.
    pub store: Arc<Store>,
    /// Copies files out of images.
    pub backend: Arc<dyn Backend>,
    /// Finds images.
    pub images: Images,
    /// Whose labels a container has meanwhile.
    pub owner: Owner,
    /// See [`crate::tick::Tools::making`].
    pub making: Arc<RwLock<()>>,
    /// Whether there is an engine.
    pub has_engine: bool,
    /// The way of bases between workers.
    pub travel: Travel,
    /// Two of one image would be made twice.
    pub one_at_a_time: Arc<Mutex<()>>,
}

impl Bases {
    /// What an agent in this image begins with.
    pub async fn beginning(&self, reference: &SandboxRef) -> Result<Beginning, BaseError> {
        if !self.has_engine {
            let base = self.db.promise_base().await?;
            let SandboxRef::Docker { image, .. } = reference;
            return Ok(Beginning {
                image: image.clone(),
                base,
            });
        }
        let image = self.images.resolve(reference).await?;
        let Base { image, id, .. } = self.ensure(&image).await?;
        Ok(Beginning { image, base: id })
    }

    /// The agent with a base that lies here. Where it was promised one it gets it, in its own image or its
    /// `profile`'s; what another worker has extracted comes from the layer store, or is extracted here too: also
    /// where the store lacks it or gives something else, and then it is owed again.
    pub async fn bring(&self, agent: Agent, profile: &SandboxRef) -> Result<Agent, BaseError> {
        if agent.base.is_promised() {
            let reference = agent.sandbox.as_ref().unwrap_or(profile);
            let begins = self.beginning(reference).await?;
            self.db.keep_promise(agent.id, &begins).await?;
            return Ok(Agent {
                image: begins.image,
                base: begins.base,
                ..agent
            });
        }
        if self.is_here(&agent.base) {
            return Ok(agent);
        }
        let base = self.db.base(&agent.base).await?;
        // What is extracted here is not fetched meanwhile.
        let turn = self.travel.turn(base.id.as_str());
        let _alone = turn.lock().await;
        let has_image = base.image == agent.image;
        let lost = match self.travel.fetch_base_in_turn(&base).await {
            Ok(true) => return Ok(agent),
            Ok(false) => None,
            Err(error) if has_image && error.is_of_object() => Some(error),
            Err(error) => return Err(error.into()),
        };
        let Base { image, id, .. } = base;
        if !has_image {
            return Err(BaseError::OnlyThere(id));
        }
        let image = SandboxRef::Docker { image, id: None };
        let image = self.images.resolve(&image).await?;
        let _turn = self.one_at_a_time.lock().await;
        let _making = self.making.read().await;
        if !self.is_here(&agent.base) {
            self.extract(&agent.base, &image).await?;
        }
        if let Some(error) = lost {
            tracing::warn!(base = %id, error = observe::chain(&error), "extracted again, and owed to the store");
            self.db.owe_base(&id).await?;
        }
        Ok(agent)
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
        let facts = self.extract(&id, image).await?;
        faults::point("base.finished");
        let named = self.db.insert_base(&id, &image.id, &facts).await?;
        faults::point("base.after");
        if named.id != id {
            // Another worker was first. It has its copy, and this one is the same under its name.
            let (store, ours, theirs) = (self.store.clone(), id, named.id.clone());
            self.blocking(move || store.rename_base(&ours, &theirs))
                .await?;
        }
        Ok(named)
    }

    /// What could not be finished does not stay: the next try may have another id.
    async fn extract(&self, id: &BaseId, image: &Image) -> Result<BaseFacts, BaseError> {
        let made = self.try_to_extract(id, image).await;
        if made.is_err() {
            let (store, base) = (self.store.clone(), id.clone());
            let abandoned = self.blocking(move || store.abandon_base(&base)).await;
            abandoned.unwrap_or_else(|error| {
                tracing::warn!(base = %id, error = observe::chain(&error), "left to the next start");
            });
        }
        made
    }

    async fn try_to_extract(&self, id: &BaseId, image: &Image) -> Result<BaseFacts, BaseError> {
        let slots = Slot::defaults();
        let into = self.store.begin_base(id)?;
        faults::point("base.begun");
        let named: Vec<(String, String)> = slots
            .iter()
            .map(|slot| (slot.name.clone(), slot.path.clone()))
            .collect();
        let facts = self
            .backend
            .extract_base(&self.owner, image, &named, &into)
            .await?;
        faults::point("base.extracted");
        let (store, base) = (self.store.clone(), id.clone());
        self.blocking(move || store.finish_base(&base, &slots))
            .await?;
        Ok(facts)
    }

    fn is_here(&self, base: &BaseId) -> bool {
        self.store.base_dir(base).is_dir()
    }

    async fn blocking(
        &self,
        work: impl FnOnce() -> Result<(), StoreError> + Send + 'static,
    ) -> Result<(), StoreError> {
        tokio::task::spawn_blocking(work)
            .await
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
    }
}
