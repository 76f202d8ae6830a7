//! Docker as a backend, by its HTTP interface: each verb in a file of its own.
//!
//! Nothing here attaches to a container or reads its logs: what programs read and write goes over
//! the control socket.

mod archive;
mod base;
mod connect;
mod create;
mod found;
mod image;
mod passwd;
mod paths;
mod remove;
mod sanitise;
mod seccomp;
mod spawn;

use std::{collections::HashMap, path::Path, time::Duration};

use async_trait::async_trait;
use bollard::{Docker as Client, errors::Error};
use mayfly_domain::{InstallationId, SandboxRef};
use tokio::sync::{Mutex, OnceCell};

use super::{
    Backend, BackendError, BaseFacts, Engine, Found, Image, Kept, Live, Names, Origin, Owner,
    Removal, SandboxSpec,
};
use crate::{clock::Lease, supervise::Supervisor};
use connect::Connection;
use paths::Paths;
pub(crate) use paths::is_beside_sandboxes;

/// Label of everything created: whose it is.
pub const INSTALLATION_LABEL: &str = "mayfly.installation";
/// Label of everything created: by which worker.
pub const WORKER_LABEL: &str = "mayfly.worker";
/// Label of everything a tick created.
pub const TICK_LABEL: &str = "mayfly.tick";

/// What the backend needs from outside.
#[derive(Debug)]
pub struct DockerOptions {
    /// The engine's address as in `DOCKER_HOST`: `unix://…` or `tcp://…`; the engine's usual
    /// socket where there is none.
    pub host: Option<String>,
    /// Runs the conversations with the sandboxes.
    pub supervisor: Supervisor,
    /// Heartbeats go out while it is fresh.
    pub lease: Lease,
}

/// See the module.
#[derive(Debug)]
pub struct Docker {
    connection: Connection,
    paths: OnceCell<Paths>,
    /// Whether a registry answers to a name.
    registries: Mutex<HashMap<String, bool>>,
    supervisor: Supervisor,
    lease: Lease,
}

impl Docker {
    /// Connects at the first use, and again after the engine was down.
    pub fn new(options: DockerOptions) -> Self {
        Docker {
            connection: Connection::new(options.host),
            paths: OnceCell::new(),
            registries: Mutex::default(),
            supervisor: options.supervisor,
            lease: options.lease,
        }
    }

    async fn client(&self) -> Result<Client, BackendError> {
        self.connection.client().await
    }

    /// Names what failed; an engine that no longer answers is met afresh by the next call.
    async fn failed(&self, error: Error, action: &'static str, name: &str) -> BackendError {
        let error = self.connection.reached(error, action, name);
        if matches!(error, BackendError::Down { .. }) {
            self.connection.forget().await;
        }
        error
    }
}

fn failed_io(error: std::io::Error, action: &'static str, path: &Path) -> BackendError {
    BackendError::Failed {
        action,
        name: path.display().to_string(),
        source: Box::new(error),
    }
}

#[async_trait]
impl Backend for Docker {
    async fn engine(&self) -> Result<Engine, BackendError> {
        let client = self.client().await?.with_timeout(connect::ANSWER);
        let info = match client.info().await {
            Ok(info) => info,
            Err(error) => return Err(self.failed(error, "describe", "itself").await),
        };
        Ok(Engine {
            kind: "docker",
            version: info.server_version.unwrap_or_default(),
            id: info.id.unwrap_or_default(),
        })
    }

    async fn resolve(&self, reference: &SandboxRef) -> Result<Image, BackendError> {
        let SandboxRef::Docker { image, id } = reference;
        self.find_image(image, id.as_deref()).await
    }

    async fn extract_base(
        &self,
        owner: &Owner,
        image: &Image,
        slots: &[(String, String)],
        into: &Path,
    ) -> Result<BaseFacts, BackendError> {
        self.copy_base(owner, image, slots, into).await
    }

    async fn keep(&self, installation: InstallationId, image: &str) -> Result<Kept, BackendError> {
        self.tag_and_tell(installation, image).await
    }

    async fn release(
        &self,
        installation: InstallationId,
        in_use: &[String],
    ) -> Result<(), BackendError> {
        self.untag(installation, in_use).await
    }

    async fn archive(&self, image: &str, into: &Path) -> Result<(), BackendError> {
        self.save(image, into).await
    }

    async fn restore(&self, image: &str, from: &Origin) -> Result<(), BackendError> {
        self.bring_back(image, from).await
    }

    async fn spawn(&self, spec: &SandboxSpec) -> Result<Live, BackendError> {
        self.bring_up(spec).await
    }

    async fn remove(&self, names: &Names, patience: Duration) -> Result<Removal, BackendError> {
        self.tear_down(names, patience).await
    }

    async fn found(&self, owner: &Owner) -> Result<Vec<Found>, BackendError> {
        self.list(owner).await
    }
}
