//! A Redis of the test's own: the distribution's server on a socket or a port of its own, without a
//! service, ended with the test.

use std::{
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use tempfile::TempDir;

/// How long a start may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// See the module.
#[derive(Debug)]
pub struct RedisServer {
    folder: TempDir,
    options: Vec<String>,
    process: Option<Child>,
}

impl RedisServer {
    /// Starts one with these options beside the usual ones, `--maxmemory 3mb` for example.
    pub fn start(options: &[&str]) -> RedisServer {
        let mut server = RedisServer {
            folder: TempDir::with_prefix("mayfly-redis").expect("a folder can be made"),
            options: options.iter().map(|&option| option.to_owned()).collect(),
            process: None,
        };
        server.run();
        server
    }

    /// Starts it again after [`RedisServer::kill`], with the folder it had.
    pub fn run(&mut self) {
        self.spawn();
        let began = Instant::now();
        while self.raw(&["PING"]).is_err() {
            let ended = self.process.as_mut().expect("just spawned").try_wait();
            assert!(
                matches!(ended, Ok(None)) && began.elapsed() < PATIENCE,
                "redis-server does not start: {}",
                std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Starts its process and waits for nothing.
    pub fn spawn(&mut self) {
        let folder = self.folder.path().to_str().expect("a plain path");
        let process = Command::new("redis-server")
            .args(["--port", "0", "--unixsocket", &format!("{folder}/socket")])
            .args(["--dir", folder, "--logfile", &format!("{folder}/log")])
            .args(["--save", "", "--appendonly", "no"])
            .args(&self.options)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn();
        self.process = Some(process.expect("redis-server is installed"));
    }

    /// Ends it as `kill -9` does.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().expect("it is ours");
            process.wait().expect("it is ours");
        }
    }

    /// Its process, to stop and continue it.
    pub fn pid(&self) -> u32 {
        self.process.as_ref().expect("it runs").id()
    }

    /// Where it answers.
    pub fn url(&self) -> String {
        format!("redis+unix://{}", self.socket().display())
    }

    /// Runs one command by the distribution's client, which logs in as nobody.
    pub fn command(&self, words: &[&str]) -> String {
        self.raw(words)
            .unwrap_or_else(|said| panic!("redis-cli {words:?}: {said}"))
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    fn raw(&self, words: &[&str]) -> Result<String, String> {
        let output = Command::new("redis-cli")
            .arg("-s")
            .arg(self.socket())
            .args(words)
            .output()
            .expect("redis-cli is installed");
        let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        match output.status.success() && !said.starts_with("LOADING") {
            true => Ok(said),
            false => Err(said + &String::from_utf8_lossy(&output.stderr)),
        }
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill();
    }
}
