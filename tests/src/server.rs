//! The program itself, as a process that can be killed, on a data dir of its own.

use std::{
    fs::File,
    io::{Read as _, Write as _},
    net::SocketAddr,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Output, Stdio},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::{
    engine,
    http::{get, on_socket},
    postgres,
};

/// Longest a test waits for a server to be ready or to end.
const PATIENCE: Duration = Duration::from_secs(60);

/// Longest a test waits for what a server does: an edit of unknown outcome is waited for a minute
/// before another is made.
const WORK: Duration = Duration::from_secs(150);

/// A data dir and, while it runs, the server on it.
pub struct Server {
    program: PathBuf,
    folder: TempDir,
    data_dir: PathBuf,
    child: Option<Child>,
    environment: Vec<(String, String)>,
    verb: Vec<&'static str>,
    /// Length of the log at the latest start.
    logged: usize,
}

impl Server {
    /// A data dir without a server; `program` is `env!("CARGO_BIN_EXE_mayfly-under-test")`.
    pub fn new(program: &str) -> Server {
        let folder = tempfile::Builder::new()
            .prefix("ms")
            .tempdir()
            .expect("a temporary folder");
        let data_dir = folder.path().join("d");
        Server {
            program: program.into(),
            folder,
            data_dir,
            child: None,
            environment: vec![
                ("MAYFLY__HTTP__LISTEN".to_owned(), "off".to_owned()),
                ("MAYFLY__DISK__FLOOR_MIB".to_owned(), "64".to_owned()),
                ("MAYFLY__DISK__BALLAST_MIB".to_owned(), "1".to_owned()),
            ],
            verb: vec!["serve"],
            logged: 0,
        }
    }

    /// With the simulated engine, and on TCP at a free port.
    pub fn simulated(program: &str) -> Server {
        let mut server = Server::new(program).env("MAYFLY__HTTP__LISTEN", "127.0.0.1:0");
        server.verb.push("--simulate");
        server
    }

    /// The data dir lies elsewhere.
    pub fn at(mut self, data_dir: &Path) -> Server {
        self.data_dir = data_dir.to_owned();
        self
    }

    /// Sets a variable for the server and the commands.
    pub fn env(mut self, name: &str, value: &str) -> Server {
        self.set_env(name, value);
        self
    }

    /// See [`Server::env`].
    pub fn set_env(&mut self, name: &str, value: &str) {
        self.environment.retain(|(key, _)| key != name);
        self.environment.push((name.to_owned(), value.to_owned()));
    }

    /// Where everything lies.
    pub fn data_dir(&self) -> &Path {
        &self.data_dir
    }

    /// Asks the database.
    pub fn sql(&self, query: &str) -> String {
        engine::sql(&self.data_dir.join("mayfly.db"), query)
    }

    /// Changes the database, as time or another program would have.
    pub fn change(&self, statement: &str) {
        engine::change(&self.data_dir.join("mayfly.db"), statement)
    }

    /// Waits until a query gives this answer; none in time fails the test with the server's log.
    pub fn until_sql(&self, query: &str, wanted: &str) {
        self.until(query, || {
            let found = self.sql(query);
            if found == wanted { Ok(()) } else { Err(found) }
        });
    }

    /// Waits until `look` finds what it wants, else says what it found; fails with both and the
    /// server's log.
    pub fn until(&self, what: &str, mut look: impl FnMut() -> Result<(), String>) {
        let deadline = Instant::now() + WORK;
        while let Err(found) = look() {
            assert!(
                Instant::now() < deadline,
                "{what}: {found:?}: {}",
                self.log()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The prefix of everything this installation makes on the engine.
    pub fn prefix(&self) -> String {
        let id = self.sql("SELECT id FROM installation").replace('-', "");
        format!("mayfly-{}-", &id[id.len() - 8..])
    }

    /// Some tests leave no database that can be read.
    fn prefix_if_readable(&self) -> Option<String> {
        if postgres::wanted() {
            return postgres::is_made(&self.data_dir).then(|| self.prefix());
        }
        let database = self.data_dir.join("mayfly.db");
        let output = Command::new("sqlite3")
            .arg("-readonly")
            .arg(database)
            .arg("SELECT id FROM installation")
            .output();
        let id = String::from_utf8(output.ok()?.stdout)
            .ok()?
            .trim()
            .replace('-', "");
        let short = id.get(id.len().checked_sub(8)?..)?;
        Some(format!("mayfly-{short}-"))
    }

    /// Starts the server and waits until it answers.
    pub fn start(&mut self) {
        let before = self.log().len();
        self.spawn();
        self.wait_answering();
        // It answers a moment before it says where.
        let deadline = Instant::now() + PATIENCE;
        while !self.log()[before..].contains("mayfly listens on ") {
            assert!(self.running(), "the server ended: {}", self.log());
            assert!(Instant::now() < deadline, "it is silent: {}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Starts the server with a fault armed; it may die before it answers.
    pub fn start_with_fault(&mut self, point: &str) {
        self.set_env("MAYFLY_FAULT", point);
        self.spawn();
        self.environment.retain(|(key, _)| key != "MAYFLY_FAULT");
        self.wait_answering();
    }

    /// A command must not come first: without a server it takes the data dir itself.
    fn wait_answering(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        while self.running() && !self.answers() {
            assert!(Instant::now() < deadline, "not ready: {}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn answers(&self) -> bool {
        let Ok(mut stream) = UnixStream::connect(self.data_dir.join("mayfly.sock")) else {
            return false;
        };
        let request = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
        let mut answer = String::new();
        stream
            .set_read_timeout(Some(Duration::from_secs(5)))
            .is_ok()
            && stream.write_all(request).is_ok()
            && stream.read_to_string(&mut answer).is_ok()
            && answer.starts_with("HTTP/1.1 200")
    }

    /// Starts the server without waiting for it.
    pub fn spawn(&mut self) {
        assert!(self.child.is_none(), "a server runs already");
        self.logged = self.log().len();
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.folder.path().join("log"))
            .expect("a log file");
        let child = self
            .command(&self.verb)
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a second handle"))
            .stderr(log)
            .spawn();
        self.child = Some(child.expect("the program starts"));
    }

    /// What the server wrote so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Where it listens on TCP, as its latest start says.
    pub fn address(&self) -> String {
        self.said("listens on http://", ' ')
    }

    /// Where it takes requests of platforms, as its latest start says.
    pub fn requests_address(&self) -> SocketAddr {
        let said = self.said("come to http://", '/');
        said.parse().expect("an address")
    }

    /// What its latest start says between these.
    fn said(&self, from: &str, to: char) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            // It may answer on the socket a moment before it says where else.
            let log = self.log();
            let said = log[self.logged..].rsplit_once(from);
            if let Some((said, _)) = said.and_then(|(_, rest)| rest.split_once(to)) {
                return said.to_owned();
            }
            assert!(Instant::now() < deadline, "it does not say {from}: {log}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Whether the server process lives.
    pub fn running(&mut self) -> bool {
        self.child
            .as_mut()
            .is_some_and(|child| matches!(child.try_wait(), Ok(None)))
    }

    /// The server's process id.
    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("a server runs").id()
    }

    /// `kill -9`.
    pub fn kill(&mut self) {
        let mut child = self.child.take().expect("a server runs");
        let _ = child.kill();
        child.wait().expect("it can be waited for");
    }

    /// Waits for a server that dies by itself, for example at an armed fault.
    pub fn wait_dead(&mut self) -> ExitStatus {
        let deadline = Instant::now() + PATIENCE;
        while self.running() {
            assert!(Instant::now() < deadline, "it does not die: {}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
        let mut child = self.child.take().expect("a server runs");
        child.wait().expect("it can be waited for")
    }

    /// What it takes the time for, in unix milliseconds: the date of its answers, to the second.
    pub fn clock(&self) -> i64 {
        let answer = on_socket(&self.data_dir, &get("/healthz"));
        let date = answer.header("date").expect("each answer has one");
        let seconds = engine::run("date", &["-u", "-d", date, "+%s"]);
        let seconds: i64 = seconds.trim().parse().expect("a number");
        seconds * 1000
    }

    /// SIGTERM, then waits for the end.
    pub fn stop(&mut self) -> ExitStatus {
        self.terminate();
        self.wait_dead()
    }

    /// SIGTERM.
    pub fn terminate(&self) {
        let pid = Pid::from_raw(self.pid() as i32).expect("a process id");
        kill_process(pid, Signal::TERM).expect("it can be signalled");
    }

    /// A command of the program on this data dir.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command
            .arg("--data-dir")
            .arg(&self.data_dir)
            .args(arguments);
        // They would be warned of as unknown.
        for name in postgres::VARIABLES {
            command.env_remove(name);
        }
        if postgres::wanted() {
            command.env("MAYFLY__DATABASE__URL", postgres::url_of(&self.data_dir));
        }
        command.envs(self.environment.iter().cloned());
        command
    }

    /// Runs a command to its end.
    pub fn mayfly(&self, arguments: &[&str]) -> Output {
        let output = self.command(arguments).stdin(Stdio::null()).output();
        output.expect("the program starts")
    }

    /// Runs a command that must succeed and returns its JSON.
    pub fn json(&self, arguments: &[&str]) -> Value {
        let output = self.mayfly(&[&["--json"], arguments].concat());
        let text = String::from_utf8_lossy(&output.stdout);
        let stderr = String::from_utf8_lossy(&output.stderr);
        serde_json::from_str(&text)
            .unwrap_or_else(|error| panic!("{arguments:?}: {error}: {text:?} {stderr}"))
    }

    /// Makes an agent of the `shell` profile and returns its id.
    pub fn agent(&self) -> String {
        let view = self.json(&["agent", "new"]);
        view["agent"]["id"].as_str().expect("an id").to_owned()
    }

    /// Fails if anything of this installation is left on the engine or mounted.
    pub fn assert_nothing_left(&self) {
        let prefix = self.prefix();
        assert_eq!(engine::containers(&prefix), Vec::<String>::new());
        assert_eq!(engine::volumes(&prefix), Vec::<String>::new());
        let path = self
            .data_dir
            .to_str()
            .expect("test paths are UTF-8")
            .to_owned();
        let upper: Vec<String> = engine::mounts(&path)
            .into_iter()
            .filter(|line| line.starts_with("overlay"))
            .collect();
        assert_eq!(upper, Vec::<String>::new());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        if let Some(prefix) = self.prefix_if_readable() {
            engine::forget_images(&prefix);
        }
        postgres::forget(&self.data_dir);
    }
}

/// Gives a command the environment that another one would have.
pub fn pass_environment(from: &Command, to: &mut Command) {
    for (name, value) in from.get_envs() {
        match value {
            Some(value) => to.env(name, value),
            None => to.env_remove(name),
        };
    }
}
