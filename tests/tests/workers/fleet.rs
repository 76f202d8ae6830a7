//! Several processes of one installation: one PostgreSQL database, one Redis, one folder of files, a data dir each.

use std::path::Path;

use mayfly_tests::{fake_telegram, postgres, redis_server::RedisServer, server::Server};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// See the module.
pub(crate) struct Fleet {
    redis: RedisServer,
    /// Stands for the database.
    folder: TempDir,
    /// Layers and files.
    store: TempDir,
    url: String,
}

impl Fleet {
    /// Without a process.
    pub(crate) fn new() -> Fleet {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let url = postgres::url_of(folder.path());
        Fleet {
            redis: RedisServer::start(&[]),
            folder,
            store: tempfile::tempdir().expect("a temporary folder"),
            url,
        }
    }

    /// A process of this role, not started.
    pub(crate) fn process(&self, role: &str) -> Server {
        Server::simulated(env!("CARGO_BIN_EXE_mayfly-under-test"))
            .env("MAYFLY__DATABASE__URL", &self.url)
            .env("MAYFLY__QUEUE__URL", &self.redis.url())
            .env(
                "MAYFLY__STORE__URL",
                &format!("file://{}", self.store.path().display()),
            )
            .env("MAYFLY__SERVE__ROLE", role)
            .env("MAYFLY__WORKER__GRACE_S", "5")
    }

    /// A bot that speaks with the fake Telegram at this address, not started.
    pub(crate) fn bot(&self, api: &str) -> Server {
        self.process("bot")
            .env("TELEGRAM_BOT_TOKEN", fake_telegram::TOKEN)
            .env("MAYFLY__TELEGRAM__API_URL", api)
            .env("MAYFLY__TELEGRAM__ALLOWED_USERS", "[\"everyone\"]")
    }

    /// Asks the database.
    pub(crate) fn sql(&self, query: &str) -> String {
        postgres::sql(self.folder.path(), query)
    }

    /// Waits until a query gives this answer.
    pub(crate) fn until_sql(&self, of: &Server, query: &str, wanted: &str) {
        of.until(query, || {
            let found = self.sql(query);
            if found == wanted { Ok(()) } else { Err(found) }
        });
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        postgres::forget(self.folder.path());
    }
}

/// The worker that lives in a data dir.
pub(crate) fn worker_of(data_dir: &Path) -> String {
    let id = std::fs::read_to_string(data_dir.join("worker"));
    id.expect("it was started").trim().to_owned()
}

pub(crate) fn signal(server: &Server, signal: Signal) {
    let pid = Pid::from_raw(server.pid() as i32).expect("a process id");
    kill_process(pid, signal).expect("it can be signalled");
}
