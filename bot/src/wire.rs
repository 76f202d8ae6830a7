//! Construction: the only place that sees everything.

use std::sync::Arc;

use mayfly_adapters::hook::Hook;
use mayfly_domain::Inbox;
use mayfly_orchestrator::{
    clock::Lease,
    command::Commands,
    db::{DbError, postgres::Refused},
    sandbox::{
        Backend,
        absent::Absent,
        docker::{Docker, DockerOptions},
        fake::Fake,
        init,
    },
    service::{self, Begin, Parts, Service},
    snapshot::StoreError,
    supervise::Supervisor,
};

use crate::{chats, config::Config, data_dir::DataDir, exit::Exit};

/// Why the service did not start; each is one sentence with the way out.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Service(#[from] service::StartError),
    #[error("{0}")]
    Chats(String),
    #[error("database.url: {0}")]
    Database(String),
    #[error("data dir {path}: the sandboxes' init could not be written: {source}")]
    Init {
        path: String,
        source: std::io::Error,
    },
}

impl StartError {
    pub fn exit(&self) -> Exit {
        use service::StartError as Cause;
        match self {
            StartError::Init { .. } => Exit::DataDir,
            StartError::Chats(_) | StartError::Database(_) => Exit::Configuration,
            StartError::Service(cause) => match cause {
                Cause::Db(error) if error.is_full() => Exit::Unavailable,
                Cause::Db(DbError::Postgres(Refused::Absent { .. })) => Exit::Unavailable,
                Cause::Db(DbError::Postgres(_)) => Exit::Configuration,
                Cause::Db(DbError::Sql(_) | DbError::Row { .. }) => Exit::Internal,
                Cause::Reconcile(_) => Exit::Internal,
                Cause::Queue(_) | Cause::TooLarge(_) | Cause::Depot(_) => Exit::Configuration,
                Cause::InUse { .. } | Cause::Alone { .. } | Cause::NoStore { .. } => {
                    Exit::Unavailable
                }
                Cause::Store(StoreError::Io { .. }) => Exit::DataDir,
                _ => Exit::DataDir,
            },
        }
    }
}

/// A service that takes messages.
pub struct Running {
    pub commands: Commands,
    pub supervisor: Supervisor,
    /// Platforms that send requests, for who serves them.
    pub hooks: Vec<Arc<dyn Hook>>,
    /// What those requests are stored in.
    pub inbox: Arc<dyn Inbox>,
    service: Service,
    /// Held until everything else has ended.
    _data_dir: DataDir,
}

/// Builds and starts everything but the listeners.
///
/// `simulate` takes the fake engine in place of Docker.
pub async fn start(
    config: &Config,
    data_dir: DataDir,
    simulate: bool,
    begin: Begin,
) -> Result<Running, StartError> {
    let supervisor = Supervisor::default();
    let lease = Lease::default();
    let path = data_dir.path().to_owned();
    let init = init::install(&path).map_err(|source| StartError::Init {
        path: path.display().to_string(),
        source,
    })?;
    let role = config.serve.role;
    let backend: Arc<dyn Backend> = if !role.has_engine() {
        Arc::new(Absent)
    } else if simulate {
        Arc::new(Fake::new(supervisor.clone(), lease.clone()))
    } else {
        Arc::new(Docker::new(DockerOptions {
            host: Some(config.docker.host.clone()),
            supervisor: supervisor.clone(),
            lease: lease.clone(),
        }))
    };
    let chats = chats::build(config).map_err(StartError::Chats)?;
    let database = config.database.place(&path).map_err(StartError::Database)?;
    let service = Service::start(Parts {
        data_dir: path,
        queue: config.queue.clone(),
        store: config.store.clone(),
        database,
        worker: config.worker,
        disk: config.disk,
        attachments: config.attachments,
        profiles: config.whole_profiles(),
        backend,
        init,
        lease,
        supervisor: supervisor.clone(),
        platforms: chats.platforms,
        hold: chats.hold,
        role,
        accesses: chats.accesses,
        begin,
    })
    .await?;
    Ok(Running {
        commands: service.commands.clone(),
        supervisor,
        hooks: chats.hooks,
        inbox: Arc::new(service.worker().inbox(config.attachments)),
        service,
        _data_dir: data_dir,
    })
}

impl Running {
    /// Claims nothing new and waits until no tick runs; what waits stays for the next start. False where
    /// some tick cannot be closed now.
    pub async fn drain(&self) -> bool {
        self.service.drain().await
    }

    /// Gives back what this process had for itself. Legal when everything else has ended.
    pub async fn leave(&self) {
        self.service.leave().await;
    }
}
