//! The processes of one installation and what they share.

use std::path::PathBuf;

use mayfly_tests::{cutter::Cutter, second_engine::SecondEngine, server::Server};

use crate::{
    kind::Kind,
    stores::Stores,
    truth::{PATIENCE, Truth, until},
    witness::Watcher,
};

/// Real sandboxes, and who watches them.
pub(crate) struct Engine {
    pub(crate) daemon: SecondEngine,
    pub(crate) network: Cutter,
    pub(crate) watcher: Watcher,
}

/// See the module.
pub(crate) struct Fleet {
    pub(crate) kind: Kind,
    pub(crate) workers: Vec<Server>,
    /// Of the workers' hosts.
    pub(crate) clocks: Vec<Clock>,
    pub(crate) stores: Option<Stores>,
    pub(crate) engine: Option<Engine>,
}

/// Workers whose lease holds.
const LIVE: &str =
    "SELECT count(*) FROM workers WHERE expires_at > extract(epoch FROM clock_timestamp()) * 1000";
const LIBRARY: &str = "/usr/$LIB/faketime/libfaketime.so.1";

impl Fleet {
    pub(crate) fn start(kind: Kind) -> Fleet {
        let stores = kind.shares().then(Stores::start);
        let engine = kind.real().then(Engine::start);
        let worker = |_| {
            let program = env!("CARGO_BIN_EXE_mayfly-under-test");
            let server = match &engine {
                None => Server::simulated(program),
                Some(engine) => Server::new(program).env("MAYFLY__DOCKER__HOST", &engine.host()),
            };
            match &stores {
                None => server,
                Some(stores) => stores.used_by(server),
            }
        };
        let mut workers: Vec<Server> = (0..kind.workers()).map(worker).collect();
        let clocks: Vec<Clock> = workers.iter_mut().map(Clock::of).collect();
        workers.iter_mut().for_each(Server::start);
        Fleet {
            kind,
            workers,
            clocks,
            stores,
            engine,
        }
    }

    /// Where rows can be looked at whatever happens to the processes.
    pub(crate) fn truth(&self) -> Truth {
        match &self.stores {
            None => Truth::File(self.workers[0].data_dir().join("mayfly.db")),
            Some(stores) => Truth::Server(stores.rows()),
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
        let left = self.engine.as_ref().map(|engine| engine.daemon.left());
        assert_eq!(left.unwrap_or_default(), Vec::<String>::new());
    }
}

impl Engine {
    fn start() -> Engine {
        let daemon = SecondEngine::start(false);
        Engine {
            network: Cutter::before_socket(&daemon.socket()),
            daemon,
            watcher: Watcher::start(),
        }
    }

    /// As in `DOCKER_HOST`.
    fn host(&self) -> String {
        format!("unix://{}", self.network.address())
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
