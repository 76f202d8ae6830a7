//! A service in this process, on a data dir of its own, with real Docker or the simulated engine.
//!
//! A world must be ended: [`World::end`] fails the test if a sandbox lives, a claim is held, a
//! delivery is owed or a mount is left.

use std::{path::PathBuf, sync::Arc, time::Duration};

use mayfly_domain::{AgentId, AttachmentLimits, Author, Limits, chat::Platform};
use mayfly_orchestrator::{
    agent::profile::{Profile, Profiles, SHELL},
    clock::Lease,
    command::{Commands, NewAgent, RequestError, Send},
    db::{Place, Server},
    depot::StoreConfig,
    inbox::route::Accesses,
    outbox::Platforms,
    queue::QueueConfig,
    retention::Ask,
    role::Role,
    sandbox::{
        Backend, Names,
        docker::{Docker, DockerOptions},
        fake::Fake,
        init,
    },
    service::{Begin, Parts, Service},
    supervise::Supervisor,
    view::{GcView, MessageView},
    worker::{WorkerConfig, host_disk::DiskConfig},
};
use tempfile::TempDir;

use crate::{engine, postgres};

/// Longest a test waits for one message.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// Where the rows of a world are.
pub enum Rows {
    /// Where this run wants them.
    AsWanted,
    /// On PostgreSQL, whatever this run wants: several could share them.
    OnPostgres,
    /// In the PostgreSQL database at this address.
    At(String),
}

/// What a world may differ in.
pub struct Setup {
    /// Ceilings of the `shell` profile.
    pub limits: Limits,
    /// Who has work is told by this.
    pub queue: QueueConfig,
    /// Where its rows are.
    pub rows: Rows,
    /// Where layers go.
    pub store: StoreConfig,
    /// Limits of the worker.
    pub worker: WorkerConfig,
    /// Limits of the host's disk.
    pub disk: DiskConfig,
    /// What may be attached.
    pub attachments: AttachmentLimits,
    /// Further profiles.
    pub profiles: Vec<(String, Profile)>,
    /// The engine's address, where it is not the usual one.
    pub docker_host: Option<String>,
    /// Platforms beside the local one.
    pub platforms: Vec<Arc<dyn Platform>>,
    /// Who may speak there.
    pub accesses: Accesses,
}

impl Default for Setup {
    fn default() -> Self {
        Setup {
            limits: Limits {
                wall_clock_s: 60,
                ..Limits::default()
            },
            queue: QueueConfig::default(),
            rows: Rows::AsWanted,
            store: StoreConfig::default(),
            worker: WorkerConfig {
                grace_s: 5,
                ..WorkerConfig::default()
            },
            disk: DiskConfig {
                floor_mib: 64,
                ballast_mib: 1,
            },
            attachments: AttachmentLimits::default(),
            profiles: Vec::new(),
            docker_host: None,
            platforms: Vec::new(),
            accesses: Accesses::default(),
        }
    }
}

/// See the module.
pub struct World {
    service: Option<Service>,
    supervisor: Supervisor,
    folder: Option<TempDir>,
    data_dir: PathBuf,
    /// Of its PostgreSQL database.
    url: Option<String>,
    real: bool,
}

impl World {
    /// On real Docker, with the defaults.
    pub async fn docker() -> World {
        World::docker_with(Setup::default()).await
    }

    /// On real Docker.
    pub async fn docker_with(setup: Setup) -> World {
        let folder = tempfile::Builder::new()
            .prefix("mw")
            .tempdir()
            .expect("a temporary folder");
        World::start(setup, folder, None).await
    }

    /// On real Docker, with a data dir in this folder.
    pub async fn docker_in(setup: Setup, parent: &std::path::Path) -> World {
        let folder = tempfile::Builder::new()
            .prefix("mw")
            .tempdir_in(parent)
            .expect("a folder");
        World::start(setup, folder, None).await
    }

    /// On the simulated engine.
    pub async fn fake(setup: Setup, fake: impl FnOnce(Supervisor, Lease) -> Fake) -> World {
        World::fake_in(setup, fake, &std::env::temp_dir()).await
    }

    /// On the simulated engine, with a data dir in this folder.
    pub async fn fake_in(
        setup: Setup,
        fake: impl FnOnce(Supervisor, Lease) -> Fake,
        parent: &std::path::Path,
    ) -> World {
        let folder = tempfile::Builder::new()
            .prefix("mw")
            .tempdir_in(parent)
            .expect("a folder");
        let (supervisor, lease) = (Supervisor::default(), Lease::default());
        let backend = Arc::new(fake(supervisor.clone(), lease.clone()));
        World::start(setup, folder, Some((backend, supervisor, lease))).await
    }

    async fn start(
        setup: Setup,
        folder: TempDir,
        fake: Option<(Arc<dyn Backend>, Supervisor, Lease)>,
    ) -> World {
        let data_dir = folder.path().to_owned();
        let real = fake.is_none();
        let (backend, supervisor, lease) = fake.unwrap_or_else(|| {
            let (supervisor, lease) = (Supervisor::default(), Lease::default());
            let docker = Docker::new(DockerOptions {
                host: setup.docker_host.clone(),
                supervisor: supervisor.clone(),
                lease: lease.clone(),
            });
            (Arc::new(docker) as Arc<dyn Backend>, supervisor, lease)
        });
        let shell = Profile {
            limits: setup.limits,
            ..Profile::default()
        };
        let mut profiles = Profiles::default();
        profiles.0.insert(SHELL.to_owned(), shell);
        profiles.0.extend(setup.profiles);
        let url = match setup.rows {
            Rows::At(url) => Some(url),
            Rows::OnPostgres => Some(postgres::url_of(&data_dir)),
            Rows::AsWanted => postgres::wanted().then(|| postgres::url_of(&data_dir)),
        };
        let database = match &url {
            Some(url) => Place::Postgres(Server::parse(url, None).expect("an address")),
            None => Place::embedded(&data_dir),
        };
        let service = Service::start(Parts {
            data_dir: data_dir.clone(),
            queue: setup.queue,
            store: setup.store,
            database,
            worker: setup.worker,
            disk: setup.disk,
            attachments: setup.attachments,
            profiles,
            backend,
            init: init::install(&data_dir).expect("init is written"),
            lease,
            supervisor: supervisor.clone(),
            platforms: setup
                .platforms
                .into_iter()
                .map(|platform| (platform.name(), platform))
                .collect::<Platforms>(),
            accesses: setup.accesses,
            hold: Vec::new(),
            role: Role::All,
            begin: Begin::AtOnce,
        })
        .await
        .unwrap_or_else(|error| panic!("the service does not start: {error}"));
        World {
            service: Some(service),
            supervisor,
            folder: Some(folder),
            data_dir,
            url,
            real,
        }
    }

    /// What faces call.
    pub fn commands(&self) -> &Commands {
        &self.service().commands
    }

    /// To look inside.
    pub fn service(&self) -> &Service {
        self.service.as_ref().expect("the world has not ended")
    }

    /// Where everything lies.
    pub fn data_dir(&self) -> &std::path::Path {
        &self.data_dir
    }

    /// The prefix of everything this world makes on the engine.
    pub fn prefix(&self) -> String {
        Names::prefix(self.service().worker().tools.installation)
    }

    /// Asks the database.
    pub fn sql(&self, query: &str) -> String {
        match &self.url {
            Some(url) => postgres::psql(url, query),
            None => engine::sql(&self.data_dir.join("mayfly.db"), query),
        }
    }

    /// Changes the database, as time or another program would have.
    pub fn change(&self, statement: &str) {
        match &self.url {
            Some(url) => drop(postgres::psql(url, statement)),
            None => engine::change(&self.data_dir.join("mayfly.db"), statement),
        }
    }

    /// From now on rows of this table that are like this cannot be written; `NEW` is the row.
    pub fn refuse(&self, table: &str, when: &str) {
        self.change(&match self.url.is_some() {
            true => format!(
                "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
                   'BEGIN RAISE EXCEPTION ''no''; END';
                 CREATE TRIGGER poison BEFORE INSERT ON {table} FOR EACH ROW WHEN ({when})
                   EXECUTE FUNCTION refuse()"
            ),
            false => format!(
                "CREATE TRIGGER poison BEFORE INSERT ON {table} WHEN {when}
                 BEGIN SELECT RAISE(ABORT, 'no'); END"
            ),
        });
    }

    /// Takes [`World::refuse`] back.
    pub fn refuse_no_more(&self, table: &str) {
        self.change(&match self.url.is_some() {
            true => format!("DROP TRIGGER poison ON {table}"),
            false => "DROP TRIGGER poison".to_owned(),
        });
    }

    /// Lets states expire and removes what nothing needs.
    pub async fn gc(&self) -> GcView {
        self.commands()
            .gc(Ask::default())
            .await
            .unwrap_or_else(|error| panic!("{error}"))
    }

    /// A new agent of the `shell` profile.
    pub async fn shell(&self) -> AgentId {
        let new = self.commands().create_agent(NewAgent::default()).await;
        new.unwrap_or_else(|error| panic!("no agent: {error}")).id
    }

    /// A new agent of a profile.
    pub async fn agent(&self, profile: &str) -> Result<AgentId, RequestError> {
        let new = NewAgent {
            profile: Some(profile.to_owned()),
            sandbox: None,
        };
        Ok(self.commands().create_agent(new).await?.id)
    }

    /// Sends without waiting.
    pub async fn post(&self, agent: AgentId, text: &str) -> MessageView {
        let send = Send {
            text: text.to_owned(),
            files: Vec::new(),
            author: Author::local("tester"),
            idempotency_key: None,
            sandbox: None,
        };
        self.commands()
            .send(agent, send)
            .await
            .unwrap_or_else(|error| panic!("{error}"))
    }

    /// Sends and waits for the outcome.
    pub async fn say(&self, agent: AgentId, text: &str) -> MessageView {
        let posted = self.post(agent, text).await;
        self.outcome(&posted).await
    }

    /// Waits for a message's outcome; none within [`PATIENCE`] fails the test.
    pub async fn outcome(&self, message: &MessageView) -> MessageView {
        let settled = self
            .commands()
            .wait(message.id, PATIENCE)
            .await
            .expect("it exists");
        assert!(
            settled.outcome.is_some(),
            "no outcome for {:?}: {settled:?}",
            message.text
        );
        settled
    }

    /// Sends, waits, and returns the text of the reply.
    pub async fn reply(&self, agent: AgentId, text: &str) -> String {
        self.say(agent, text)
            .await
            .reply
            .map(|reply| reply.text)
            .unwrap_or_default()
    }

    /// Waits until a query gives this answer; at most [`PATIENCE`].
    pub async fn until_sql(&self, query: &str, wanted: &str) {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            let found = self.sql(query);
            if found == wanted {
                return;
            }
            assert!(
                tokio::time::Instant::now() < deadline,
                "{query}: {found:?}, not {wanted:?}"
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Ends every loop of the service; what faces ask is answered still, and nothing else is at work.
    pub async fn rest(&self) {
        self.service().drain().await;
        let ended = self.supervisor.stop(Duration::from_secs(30)).await;
        assert!(ended, "tasks are left");
    }

    /// Comes to rest and fails if anything is left.
    pub async fn end(self) {
        self.end_owing(0).await;
    }

    /// [`World::end`], with so many deliveries still owed.
    pub async fn end_owing(mut self, deliveries: u32) {
        // An outcome is told before its delivery is.
        let owed = "SELECT count(*) FROM deliveries WHERE state = 'owed'";
        self.until_sql(owed, &deliveries.to_string()).await;
        let prefix = self.prefix();
        let service = self.service.take().expect("ended once");
        service.drain().await;
        assert!(
            self.supervisor.stop(Duration::from_secs(30)).await,
            "tasks are left"
        );
        service.leave().await;
        let open = "SELECT count(*) FROM ticks WHERE outcome IS NULL OR removed_at IS NULL";
        assert_eq!(
            self.sql(open),
            "0",
            "a claim is held or a sandbox is not proved to be gone"
        );
        if self.real {
            assert_eq!(engine::containers(&prefix), Vec::<String>::new());
            assert_eq!(engine::volumes(&prefix), Vec::<String>::new());
            engine::forget_images(&prefix);
        }
        let path = self
            .data_dir
            .to_str()
            .expect("test paths are UTF-8")
            .to_owned();
        assert_eq!(engine::mounts(&path), Vec::<String>::new());
        self.folder
            .take()
            .expect("ended once")
            .close()
            .expect("the data dir can be removed");
    }
}

impl Drop for World {
    fn drop(&mut self) {
        postgres::forget(&self.data_dir);
        if self.service.is_some() && !std::thread::panicking() {
            panic!("a world was dropped without `end`: nothing was checked");
        }
    }
}
