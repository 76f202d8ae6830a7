//! PostgreSQL for tests: one server per run where `tests/run` started it, else one per test process;
//! one database per data dir.

use std::{
    collections::BTreeSet,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Mutex, MutexGuard, OnceLock, PoisonError},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

/// What tells tests of PostgreSQL.
pub const VARIABLES: [&str; 2] = ["MAYFLY_TESTS_DATABASE", "MAYFLY_TESTS_POSTGRES"];

const PATIENCE: Duration = Duration::from_secs(60);

/// Whether tests that have no opinion run on PostgreSQL.
#[allow(clippy::disallowed_methods)]
pub fn wanted() -> bool {
    std::env::var(VARIABLES[0]).is_ok_and(|kind| kind == "postgres")
}

/// The address of a data dir's database, which is made where it is not there.
pub fn url_of(data_dir: &Path) -> String {
    let name = name_of(data_dir);
    let mut made = made();
    if made.insert(name.clone()) {
        in_shared(&format!("CREATE DATABASE {name}"));
    }
    url(shared(), None, &name)
}

/// Asks the database of a data dir; columns by `|`, rows by lines.
pub fn sql(data_dir: &Path, query: &str) -> String {
    psql(&url(shared(), None, &name_of(data_dir)), query)
}

/// Whether a data dir has one.
pub fn is_made(data_dir: &Path) -> bool {
    made().contains(&name_of(data_dir))
}

/// The database of a data dir is not needed any more.
pub fn forget(data_dir: &Path) {
    let name = name_of(data_dir);
    if made().remove(&name) {
        in_shared(&format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)"));
    }
}

fn made() -> MutexGuard<'static, BTreeSet<String>> {
    static MADE: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    MADE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn name_of(data_dir: &Path) -> String {
    let mut hash = DefaultHasher::new();
    data_dir.hash(&mut hash);
    format!("m{:016x}", hash.finish())
}

/// The folder of the server that all tests of this process use.
#[allow(clippy::disallowed_methods)]
fn shared() -> &'static Path {
    static SHARED: OnceLock<(PathBuf, Option<Cluster>)> = OnceLock::new();
    let (folder, _) = SHARED.get_or_init(|| match std::env::var_os(VARIABLES[1]) {
        Some(folder) => (folder.into(), None),
        None => {
            let own = Cluster::start(&[]);
            (own.folder.clone(), Some(own))
        }
    });
    folder
}

fn in_shared(statement: &str) {
    psql(&url(shared(), None, "postgres"), statement);
}

fn url(folder: &Path, port: Option<u16>, database: &str) -> String {
    let port = port.map_or(String::new(), |port| format!("&port={port}"));
    let host = folder.display();
    format!("postgres:///{database}?host={host}&user=mayfly{port}")
}

/// [`asked`], where it must answer.
pub fn psql(url: &str, query: &str) -> String {
    asked(url, query).unwrap_or_else(|said| panic!("psql {url} {query}: {said}"))
}

/// Asks a database; columns by `|`, rows by lines; else what the client said.
pub fn asked(url: &str, query: &str) -> Result<String, String> {
    let output = Command::new("psql")
        .args(["-XqAt", "-v", "ON_ERROR_STOP=1", "-d", url, "-c", query])
        .output()
        .expect("psql is installed");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    match output.status.success() {
        true => Ok(text(&output.stdout)),
        false => Err(text(&output.stderr)),
    }
}

/// A server of a test's own, which ends with it.
pub struct Cluster {
    folder: PathBuf,
    port: Option<u16>,
    child: Child,
}

impl Cluster {
    /// With these settings, each `name=value`.
    pub fn start(settings: &[&str]) -> Cluster {
        // The script removes it, also where this process is killed.
        let folder = tempfile::Builder::new().prefix("mp").tempdir();
        let folder = folder.expect("a temporary folder").keep();
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("postgres");
        let child = Command::new(script)
            .arg(&folder)
            .args(settings)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // A runner that kills the test's group leaves it the time to clean up.
            .process_group(0)
            .spawn()
            .expect("tests/postgres starts");
        let port = settings
            .iter()
            .find_map(|setting| setting.strip_prefix("port="));
        let port = port.map(|port| port.parse().expect("a port"));
        let cluster = Cluster {
            folder,
            port,
            child,
        };
        cluster.wait_ready();
        cluster
    }

    /// The address of a database on it, through its socket.
    pub fn url(&self, database: &str) -> String {
        url(&self.folder, self.port, database)
    }

    /// Makes a database and returns its address.
    pub fn database(&self, name: &str) -> String {
        self.sql("postgres", &format!("CREATE DATABASE {name}"));
        self.url(name)
    }

    /// Asks a database; columns by `|`, rows by lines.
    pub fn sql(&self, database: &str, query: &str) -> String {
        psql(&self.url(database), query)
    }

    /// Where its files are.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Ends the server as by pulling its plug, until [`Cluster::start_again`].
    pub fn crash(&self) {
        std::fs::write(self.folder.join("stopped"), "").expect("its folder is there");
        let pid = std::fs::read_to_string(self.folder.join("data/postmaster.pid"));
        let pid = pid.expect("it runs");
        let pid = pid.lines().next().and_then(|line| line.parse().ok());
        let pid = pid.and_then(Pid::from_raw).expect("a process id");
        kill_process(pid, Signal::QUIT).expect("it can be signalled");
        self.until("it ends", || !self.answers());
    }

    /// Starts the server again and waits until it answers.
    pub fn start_again(&self) {
        let _ = std::fs::remove_file(self.folder.join("stopped"));
        self.wait_ready();
    }

    fn wait_ready(&self) {
        self.until("it answers", || self.answers());
    }

    fn answers(&self) -> bool {
        asked(&self.url("postgres"), "SELECT 1").is_ok()
    }

    fn until(&self, what: &str, mut holds: impl FnMut() -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !holds() {
            let logs = ["initdb.log", "server.log"].map(|name| self.folder.join(name));
            let log: String = logs
                .iter()
                .filter_map(|log| std::fs::read_to_string(log).ok())
                .collect();
            assert!(Instant::now() < deadline, "PostgreSQL, {what}: {log}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let pid = Pid::from_raw(self.child.id() as i32);
        let _ = pid.map(|pid| kill_process(pid, Signal::TERM));
        let _ = self.child.wait();
    }
}
