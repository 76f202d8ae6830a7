//! The engine this data dir is bound to, and no other: who answers is asked again whenever it may
//! have changed, so that another engine's "there is no such thing" never counts as a proof.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use mayfly_domain::{InstallationId, SandboxRef};
use tokio::{sync::Mutex, time::Instant};

use crate::{
    db::Db,
    observe,
    sandbox::{
        Backend, BackendError, BaseFacts, Engine, Found, Image, Kept, Live, Names, Origin, Owner,
        Removal, SandboxSpec,
    },
};

/// An engine can be exchanged in a removal that takes longer than this.
const LONG: Duration = Duration::from_secs(1);
/// Until an engine that did not say who it is, is asked again.
const ASK_AGAIN: Duration = Duration::from_millis(500);

/// A backend that refuses to work while another engine answers than the one of the data dir.
pub struct BoundEngine {
    inner: Arc<dyn Backend>,
    db: Db,
    worker: String,
    /// The engine's own identity; none until one answered for the first time.
    expected: Mutex<Option<String>>,
    /// False from a failed connection until the engine has said who it is.
    known: AtomicBool,
}

impl BoundEngine {
    /// Bound to `expected`, or to the first engine that answers.
    pub fn new(inner: Arc<dyn Backend>, db: Db, worker: String, expected: Option<String>) -> Self {
        BoundEngine {
            inner,
            db,
            worker,
            expected: Mutex::new(expected),
            known: AtomicBool::new(false),
        }
    }

    async fn checked(&self) -> Result<&dyn Backend, BackendError> {
        if !self.known.load(Ordering::Acquire) {
            self.engine().await?;
        }
        Ok(&*self.inner)
    }

    fn noted<T>(&self, answer: Result<T, BackendError>) -> Result<T, BackendError> {
        if matches!(answer, Err(BackendError::Down { .. })) {
            self.known.store(false, Ordering::Release);
        }
        answer
    }

    async fn removed(&self, names: &Names, until: Instant) -> Result<Removal, BackendError> {
        let inner = self.checked().await?;
        let since = Instant::now();
        let patience = until.saturating_duration_since(since);
        let removal = self.noted(inner.remove(names, patience).await)?;
        // "No such container" is a proof only from the engine that had it.
        if removal == Removal::SomeUnknown || since.elapsed() > LONG {
            self.engine().await?;
        }
        Ok(removal)
    }

    async fn is_expected(&self, found: &str) -> bool {
        let mut expected = self.expected.lock().await;
        if let Some(expected) = &*expected {
            return expected == found;
        }
        match self.db.bind_engine(&self.worker, found).await {
            Ok(()) => *expected = Some(found.to_owned()),
            Err(error) => {
                tracing::warn!(
                    error = observe::chain(&error),
                    "engine not written down yet"
                );
            }
        }
        true
    }
}

#[async_trait]
impl Backend for BoundEngine {
    async fn engine(&self) -> Result<Engine, BackendError> {
        let engine = self.noted(self.inner.engine().await)?;
        let expected = self.is_expected(&engine.id).await;
        self.known.store(expected, Ordering::Release);
        match expected {
            true => Ok(engine),
            false => Err(BackendError::OtherEngine),
        }
    }

    async fn resolve(&self, reference: &SandboxRef) -> Result<Image, BackendError> {
        self.noted(self.checked().await?.resolve(reference).await)
    }

    async fn extract_base(
        &self,
        owner: &Owner,
        image: &Image,
        slots: &[(String, String)],
        into: &Path,
    ) -> Result<BaseFacts, BackendError> {
        let inner = self.checked().await?;
        self.noted(inner.extract_base(owner, image, slots, into).await)
    }

    async fn keep(&self, installation: InstallationId, image: &str) -> Result<Kept, BackendError> {
        self.noted(self.checked().await?.keep(installation, image).await)
    }

    async fn release(
        &self,
        installation: InstallationId,
        in_use: &[String],
    ) -> Result<(), BackendError> {
        self.noted(self.checked().await?.release(installation, in_use).await)
    }

    async fn archive(&self, image: &str, into: &Path) -> Result<(), BackendError> {
        self.noted(self.checked().await?.archive(image, into).await)
    }

    async fn restore(&self, image: &str, from: &Origin) -> Result<(), BackendError> {
        self.noted(self.checked().await?.restore(image, from).await)
    }

    async fn spawn(&self, spec: &SandboxSpec) -> Result<Live, BackendError> {
        self.noted(self.checked().await?.spawn(spec).await)
    }

    async fn remove(&self, names: &Names, patience: Duration) -> Result<Removal, BackendError> {
        let until = Instant::now() + patience;
        loop {
            let error = match self.removed(names, until).await {
                Ok(removal) => return Ok(removal),
                Err(error) => error,
            };
            // What cannot be removed has had its patience; who answers may be told in a moment.
            if !error.is_away() || Instant::now() + ASK_AGAIN > until {
                return Err(error);
            }
            tokio::time::sleep(ASK_AGAIN).await;
        }
    }

    async fn found(&self, owner: &Owner) -> Result<Vec<Found>, BackendError> {
        self.noted(self.checked().await?.found(owner).await)
    }
}
