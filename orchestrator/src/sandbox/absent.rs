//! In the place of an engine where there is none: a process that only speaks with platforms.

use std::{path::Path, time::Duration};

use async_trait::async_trait;
use mayfly_domain::{InstallationId, SandboxRef};

use super::{
    Backend, BackendError, BaseFacts, Engine, Found, Image, Kept, Live, Names, Origin, Owner,
    Removal, SandboxSpec,
};

/// See the module.
#[derive(Debug)]
pub struct Absent;

#[async_trait]
impl Backend for Absent {
    async fn engine(&self) -> Result<Engine, BackendError> {
        Err(BackendError::Absent)
    }

    async fn resolve(&self, _: &SandboxRef) -> Result<Image, BackendError> {
        Err(BackendError::Absent)
    }

    async fn extract_base(
        &self,
        _: &Owner,
        _: &Image,
        _: &[(String, String)],
        _: &Path,
    ) -> Result<BaseFacts, BackendError> {
        Err(BackendError::Absent)
    }

    async fn keep(&self, _: InstallationId, _: &str) -> Result<Kept, BackendError> {
        Err(BackendError::Absent)
    }

    async fn release(&self, _: InstallationId, _: &[String]) -> Result<(), BackendError> {
        Err(BackendError::Absent)
    }

    async fn archive(&self, _: &str, _: &Path) -> Result<(), BackendError> {
        Err(BackendError::Absent)
    }

    async fn restore(&self, _: &str, _: &Origin) -> Result<(), BackendError> {
        Err(BackendError::Absent)
    }

    async fn spawn(&self, _: &SandboxSpec) -> Result<Live, BackendError> {
        Err(BackendError::Absent)
    }

    async fn remove(&self, _: &Names, _: Duration) -> Result<Removal, BackendError> {
        Err(BackendError::Absent)
    }

    async fn found(&self, _: &Owner) -> Result<Vec<Found>, BackendError> {
        Err(BackendError::Absent)
    }
}
