//! stub
use super::*;
use crate::{clock::Lease, supervise::Supervisor};
#[derive(Debug)]
pub struct Fake;
impl Fake {
    pub fn new(_: Supervisor, _: Lease) -> Self {
        Fake
    }
}
#[async_trait]
impl Backend for Fake {
    async fn engine(&self) -> Result<Engine, BackendError> {
        todo!()
    }
    async fn resolve(&self, _: &SandboxRef) -> Result<Image, BackendError> {
        todo!()
    }
    async fn extract_base(
        &self,
        _: InstallationId,
        _: &Image,
        _: &[(String, String)],
        _: &Path,
    ) -> Result<BaseFacts, BackendError> {
        todo!()
    }
    async fn spawn(&self, _: &SandboxSpec) -> Result<Live, BackendError> {
        todo!()
    }
    async fn remove(&self, _: &Names, _: std::time::Duration) -> Result<(), BackendError> {
        todo!()
    }
    async fn found(&self, _: InstallationId) -> Result<Vec<Found>, BackendError> {
        todo!()
    }
}
