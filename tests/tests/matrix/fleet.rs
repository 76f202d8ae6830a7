//! The processes of one installation and what they share.

use std::{
    fmt,
    net::TcpListener,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use mayfly_tests::{
    cutter::Cutter,
    engine,
    postgres::{self, Cluster},
    redis_server::RedisServer,
    second_engine::SecondEngine,
    server::Server,
};
use tempfile::TempDir;

/// What is shared, and by how many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// SQLite and the queue in the process.
    Own,
    /// The same, with real sandboxes on an engine that can be hit too.
    Engine,
    /// PostgreSQL and Redis.
    Shared { workers: usize },
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = match self {
            Kind::Own => "SQLite, 1 worker".to_owned(),
            Kind::Engine => "SQLite, 1 worker, Docker".to_owned(),
            Kind::Shared { workers: 1 } => "PostgreSQL and Redis, 1 worker".to_owned(),
            Kind::Shared { workers } => format!("PostgreSQL and Redis, {workers} workers"),
        };
        f.pad(&shown)
    }
}

/// Stores of several processes, each behind a network that can be cut.
pub(crate) struct Shared {
    pub(crate) postgres: Cluster,
    pub(crate) redis: RedisServer,
    pub(crate) to_postgres: Cutter,
    pub(crate) to_redis: Cutter,
    /// Of layers, as a folder that all have mounted.
    store: TempDir,
}

/// See the module.
pub(crate) struct Fleet {
    pub(crate) workers: Vec<Server>,
    /// Of the workers' hosts.
    pub(crate) clocks: Vec<Clock>,
    pub(crate) shared: Option<Shared>,
    pub(crate) engine: Option<SecondEngine>,
}

const DATABASE: &str = "matrix";
/// Workers whose lease holds.
const LIVE: &str =
    "SELECT count(*) FROM workers WHERE expires_at > extract(epoch FROM clock_timestamp()) * 1000";
const LIBRARY: &str = "/usr/$LIB/faketime/libfaketime.so.1";
/// A database that crashed answers after this time.
const PATIENCE: Duration = Duration::from_secs(60);

impl Fleet {
    pub(crate) fn start(kind: Kind) -> Fleet {
        let program = env!("CARGO_BIN_EXE_mayfly-under-test");
        let simulated = || Server::simulated(program);
        let (mut engine, mut shared) = (None, None);
        let mut workers = match kind {
            Kind::Own => vec![simulated()],
            Kind::Engine => {
                let engine = engine.insert(SecondEngine::start(false));
                vec![Server::new(program).env("MAYFLY__DOCKER__HOST", &engine.host())]
            }
            Kind::Shared { workers } => {
                let shared = shared.insert(Shared::start());
                (0..workers).map(|_| shared.used_by(simulated())).collect()
            }
        };
        let clocks: Vec<Clock> = workers.iter_mut().map(Clock::of).collect();
        workers.iter_mut().for_each(Server::start);
        Fleet {
            workers,
            clocks,
            shared,
            engine,
        }
    }

    /// Where rows can be looked at whatever happens to the processes.
    pub(crate) fn truth(&self) -> Truth {
        match &self.shared {
            None => Truth::File(self.workers[0].data_dir().join("mayfly.db")),
            Some(shared) => Truth::Server(shared.postgres.url(DATABASE)),
        }
    }

    /// Waits until all work. One that others have declared dead ends itself, and is started again as by a
    /// service manager.
    pub(crate) fn stand(&mut self) {
        let truth = self.truth();
        let many = self.workers.len();
        until(PATIENCE, || {
            for worker in &mut self.workers {
                if !worker.running() {
                    assert!(many > 1, "{}", worker.log());
                    worker.wait_dead();
                    worker.start();
                }
            }
            match many == 1 || truth.count(LIVE) == many {
                true => Ok(()),
                false => Err(format!("not all of {many} workers live")),
            }
        });
    }

    pub(crate) fn end(mut self) {
        for worker in &mut self.workers {
            assert_eq!(worker.stop().code(), Some(0), "{}", worker.log());
        }
        let left = self.engine.as_ref().map(SecondEngine::left);
        assert_eq!(left.unwrap_or_default(), Vec::<String>::new());
    }
}

impl Shared {
    fn start() -> Shared {
        let [postgres_port, redis_port] = [free_port(), free_port()];
        let listen = [
            "listen_addresses=127.0.0.1",
            &format!("port={postgres_port}"),
        ];
        let postgres = Cluster::start(&listen);
        postgres.database(DATABASE);
        let redis = RedisServer::start(&["--port", &redis_port, "--bind", "127.0.0.1"]);
        Shared {
            to_postgres: Cutter::before(&format!("127.0.0.1:{postgres_port}")),
            to_redis: Cutter::before(&format!("127.0.0.1:{redis_port}")),
            postgres,
            redis,
            store: TempDir::with_prefix("mayfly-store").expect("a temporary folder"),
        }
    }

    fn used_by(&self, server: Server) -> Server {
        let store = format!("file://{}", self.store.path().display());
        let database = format!(
            "postgres://mayfly@{}/{DATABASE}",
            self.to_postgres.address()
        );
        let queue = format!("redis://{}", self.to_redis.address());
        server
            .env("MAYFLY__DATABASE__URL", &database)
            .env("MAYFLY__QUEUE__URL", &queue)
            .env("MAYFLY__STORE__URL", &store)
    }
}

/// The wall clock that one process sees, by the distribution's libfaketime.
pub(crate) struct Clock(PathBuf);

impl Clock {
    fn of(worker: &mut Server) -> Clock {
        let folder = worker.data_dir().parent().expect("a temporary folder");
        let clock = Clock(folder.join("clock"));
        clock.set(0);
        worker.set_env("LD_PRELOAD", LIBRARY);
        worker.set_env("FAKETIME_TIMESTAMP_FILE", &clock.0.display().to_string());
        worker.set_env("FAKETIME_NO_CACHE", "1");
        worker.set_env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        clock
    }

    /// So many days off.
    pub(crate) fn set(&self, days: i8) {
        let fresh = self.0.with_extension("new");
        std::fs::write(&fresh, format!("{days:+}d\n")).expect("its folder is there");
        std::fs::rename(&fresh, &self.0).expect("its folder is there");
    }
}

fn free_port() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener
        .local_addr()
        .expect("it has an address")
        .port()
        .to_string()
}

/// The database, asked past everything.
#[derive(Debug, Clone)]
pub(crate) enum Truth {
    File(PathBuf),
    Server(String),
}

impl Truth {
    /// Columns by `|`, rows by lines.
    pub(crate) fn ask(&self, query: &str) -> String {
        match self {
            Truth::File(path) => engine::sql(Path::new(path), query),
            Truth::Server(url) => until(PATIENCE, || postgres::asked(url, query)),
        }
    }

    pub(crate) fn count(&self, query: &str) -> usize {
        self.ask(query).parse().expect("a number")
    }

    pub(crate) fn settled(&self) -> usize {
        self.count("SELECT count(*) FROM messages WHERE outcome IS NOT NULL")
    }

    pub(crate) fn until_settled(&self, wanted: usize, patience: Duration) {
        until(patience, || match self.settled() {
            settled if settled < wanted => Err(format!("{settled} of {wanted} are settled")),
            _ => Ok(()),
        });
    }

    /// No message that a blow has interrupted waits any more: after three times it would be parked.
    pub(crate) fn until_none_is_struck(&self, patience: Duration) {
        let query = "SELECT count(*) FROM messages WHERE outcome IS NULL AND attempts > 0";
        until(patience, || match self.count(query) {
            0 => Ok(()),
            struck => Err(format!("{struck} wait for another try")),
        });
    }
}

/// Looks again until it has what it wants; else fails with what it found last.
pub(crate) fn until<T>(patience: Duration, mut look: impl FnMut() -> Result<T, String>) -> T {
    let deadline = Instant::now() + patience;
    loop {
        match look() {
            Ok(found) => return found,
            Err(found) => assert!(Instant::now() < deadline, "{found}"),
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}
