//! A Redis of the test's own: the distribution's server on a socket or a port of its own, without a
//! service, ended with the test.

use std::{
    net::TcpListener,
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

/// A Redis Cluster of three nodes, each with a third of the slots.
#[derive(Debug)]
pub struct RedisCluster {
    nodes: Vec<(u16, RedisServer)>,
}

impl RedisCluster {
    /// Returns when all of them know each other.
    pub fn start() -> RedisCluster {
        let node = |_| {
            let [port, bus] = free_ports().map(|port| port.to_string());
            let options = [
                "--cluster-enabled",
                "yes",
                "--port",
                &port,
                "--cluster-port",
                &bus,
            ];
            let server = RedisServer::start(&[&options[..], &["--bind", "127.0.0.1"][..]].concat());
            (port.parse().expect("a port"), server)
        };
        let cluster = RedisCluster {
            nodes: (0..3).map(node).collect(),
        };
        let addresses = cluster
            .nodes
            .iter()
            .map(|(port, _)| format!("127.0.0.1:{port}"));
        let made = Command::new("redis-cli")
            .args(["--cluster", "create"])
            .args(addresses)
            .arg("--cluster-yes")
            .output()
            .expect("redis-cli is installed");
        let said = String::from_utf8_lossy(&made.stdout);
        assert!(made.status.success(), "{said}");
        let began = Instant::now();
        for (port, node) in &cluster.nodes {
            while !node
                .command(&["CLUSTER", "INFO"])
                .contains("cluster_state:ok")
            {
                assert!(
                    began.elapsed() < PATIENCE,
                    "node {port} does not join: {said}"
                );
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        cluster
    }

    /// The address of each node.
    pub fn urls(&self) -> Vec<String> {
        let ports = self.nodes.iter().map(|(port, _)| port);
        ports
            .map(|port| format!("redis://127.0.0.1:{port}"))
            .collect()
    }

    /// Which node has this key.
    pub fn owner(&self, key: &str) -> usize {
        let owns =
            |(_, node): &(u16, RedisServer)| node.command(&["EXISTS", key]).parse::<u8>().is_ok();
        let owner = self.nodes.iter().position(owns);
        owner.expect("all slots are somebody's")
    }

    /// Gives the slot of this key, with all that is in it, to another node.
    pub fn move_slot(&self, key: &str, to: usize) {
        let from = self.owner(key);
        let slot = self.nodes[from].1.command(&["CLUSTER", "KEYSLOT", key]);
        let [source, target] = [from, to].map(|at| &self.nodes[at].1);
        let [source_id, target_id] =
            [source, target].map(|node| node.command(&["CLUSTER", "MYID"]));
        target.command(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &source_id]);
        source.command(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target_id]);
        let keys = source.command(&["CLUSTER", "GETKEYSINSLOT", &slot, "1000"]);
        let port = self.nodes[to].0.to_string();
        let mut words = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
        words.extend(keys.lines());
        if !keys.is_empty() {
            source.command(&words);
        }
        for node in [target, source] {
            node.command(&["CLUSTER", "SETSLOT", &slot, "NODE", &target_id]);
        }
    }
}

/// Two that nobody has now.
fn free_ports() -> [u16; 2] {
    let held = [0; 2].map(|_| TcpListener::bind("127.0.0.1:0").expect("a free port"));
    held.map(|port| port.local_addr().expect("it is bound").port())
}
