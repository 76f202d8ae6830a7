//! An engine of a test's own, that can be restarted and killed: in its own network and mount
//! namespaces, because a second daemon in the host's would take the first one's bridge away.

use std::{
    fs::File,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// Longest wait for a daemon to answer or to end.
const PATIENCE: Duration = Duration::from_secs(60);

/// See the module. Everything in its namespaces ends when it is dropped.
pub struct SecondEngine {
    folder: TempDir,
    /// Holds the namespaces, with a process of its own in them.
    holder: Child,
    /// Their mount namespace; surely not the host's.
    namespace: PathBuf,
    daemon: Option<Child>,
    /// Folder of what it keeps.
    data: &'static str,
    live_restore: bool,
}

impl SecondEngine {
    /// Starts one that has the image `mayfly/tiny` under the name `mayfly/base`.
    pub fn start(live_restore: bool) -> SecondEngine {
        let folder = tempfile::Builder::new()
            .prefix("me")
            .tempdir()
            .expect("a temporary folder");
        let (holder, namespace) = apart();
        let mut engine = SecondEngine {
            folder,
            holder,
            namespace,
            daemon: None,
            data: "data",
            live_restore,
        };
        engine.up();
        engine.load();
        engine
    }

    /// The image that agents are made from.
    fn load(&self) {
        let load = "docker save mayfly/tiny | docker -H \"$0\" load && \
                    docker -H \"$0\" tag mayfly/tiny mayfly/base";
        let loaded = Command::new("sh")
            .args(["-c", load, &self.host()])
            .stdout(Stdio::null())
            .status();
        assert!(loaded.expect("sh").success(), "mayfly/tiny is not here");
    }

    /// Ends the daemon and starts another at the same address: with data and an identity of its own.
    pub fn exchange(&mut self) {
        self.stop();
        // By their versions engines keep their identity with their data, or here.
        let keys = self.path("keys");
        std::fs::create_dir(&keys).expect("a folder");
        let keys = keys.to_str().expect("UTF-8").to_owned();
        self.inside(&["mount", "--bind", &keys, "/etc/docker"]);
        self.data = "other";
        self.up();
        self.load();
    }

    /// Ends the one that came with [`SecondEngine::exchange`] and starts the first again.
    pub fn exchange_back(&mut self) {
        self.stop();
        self.inside(&["umount", "/etc/docker"]);
        self.data = "data";
        self.up();
    }

    /// Runs a command in its namespaces.
    fn inside(&self, command: &[&str]) {
        let holder = self.holder.id().to_string();
        let enter = ["--net", "--mount", "--target", &holder];
        crate::engine::run("nsenter", &[&enter, command].concat());
    }

    /// As in `DOCKER_HOST`.
    pub fn host(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    /// Where it listens.
    pub fn socket(&self) -> PathBuf {
        self.path("socket")
    }

    /// Runs `docker` on it and returns what it wrote, line by line.
    pub fn docker(&self, arguments: &[&str]) -> Vec<String> {
        let host = self.host();
        let text = crate::engine::run("docker", &[&["-H", &host], arguments].concat());
        text.lines().map(str::to_owned).collect()
    }

    /// Containers, in any state, and volumes.
    pub fn left(&self) -> Vec<String> {
        let mut left = self.docker(&["ps", "-a", "--format", "{{.Names}} {{.State}}"]);
        left.extend(self.docker(&["volume", "ls", "--format", "{{.Name}}"]));
        left
    }

    /// Ends the daemon as a service manager does, and starts it again.
    pub fn restart(&mut self) {
        self.stop();
        self.up();
    }

    /// As a host that loses power: everything dies, mounts and `/run` are gone, the disk stays.
    pub fn lose(&mut self) {
        let mut daemon = self.daemon.take().expect("it runs");
        let _ = daemon.kill();
        daemon.wait().expect("it can be waited for");
        self.end_all_but_the_holder();
        self.holder.kill().expect("it runs");
        self.holder.wait().expect("it can be waited for");
        (self.holder, self.namespace) = apart();
        for gone in ["run", "pid"] {
            let path = self.path(gone);
            let removed = std::fs::remove_dir_all(&path).or_else(|_| std::fs::remove_file(&path));
            removed.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        }
    }

    /// `kill -9` of the daemon alone: its containers and their mounts stay, and go on.
    pub fn kill_daemon(&mut self) {
        let mut daemon = self.daemon.take().expect("it runs");
        let _ = daemon.kill();
        daemon.wait().expect("it can be waited for");
    }

    /// Starts the daemon on what it left; again where that does not answer its own containerd in time, as a
    /// service manager does.
    pub fn up(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        self.daemon = Some(self.begun());
        while !self.answers() {
            assert!(Instant::now() < deadline, "no engine: {}", self.log());
            let ended = self.daemon.as_mut().map(Child::try_wait);
            if !matches!(ended, Some(Ok(None))) {
                self.daemon = Some(self.begun());
            }
            sleep(Duration::from_millis(100));
        }
    }

    fn begun(&self) -> Child {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.path("log"))
            .expect("a log file");
        let mut command = Command::new("nsenter");
        command
            .args(["--net", "--mount", "--target"])
            .arg(self.holder.id().to_string())
            .arg("dockerd")
            .args(["--bridge=none", "--iptables=false", "--ip6tables=false"])
            .args(["--shutdown-timeout", "5"])
            .arg("--host")
            .arg(self.host());
        for (option, name) in [
            ("--data-root", self.data),
            ("--exec-root", "run"),
            ("--pidfile", "pid"),
        ] {
            command.arg(option).arg(self.path(name));
        }
        if self.live_restore {
            command.arg("--live-restore");
        }
        let daemon = command
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a second handle"))
            .stderr(log)
            .spawn();
        daemon.expect("dockerd starts")
    }

    fn stop(&mut self) {
        let Some(mut daemon) = self.daemon.take() else {
            return;
        };
        let pid = Pid::from_raw(daemon.id() as i32).expect("a process id");
        let _ = kill_process(pid, Signal::TERM);
        let deadline = Instant::now() + PATIENCE;
        while matches!(daemon.try_wait(), Ok(None)) {
            if Instant::now() > deadline {
                let _ = daemon.kill();
            }
            sleep(Duration::from_millis(50));
        }
    }

    fn answers(&self) -> bool {
        let mut version = Command::new("docker");
        version.args(["-H", &self.host(), "version"]);
        version.stdout(Stdio::null()).stderr(Stdio::null());
        version.status().is_ok_and(|status| status.success())
    }

    fn log(&self) -> String {
        let log = std::fs::read_to_string(self.path("log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(5)..].join("\n")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// By the namespace they are in: nothing of another engine can be meant. Sandboxes have mount
    /// namespaces of their own; they end with their shims, whose signal follows.
    fn end_all_but_the_holder(&self) {
        let holder = self.holder.id();
        let run = self.path("run");
        let deadline = Instant::now() + PATIENCE;
        loop {
            let found: Vec<i32> = processes()
                .filter(|pid| *pid != holder as i32)
                .filter(|pid| {
                    namespace_of(*pid as u32).is_some_and(|found| found == self.namespace)
                        || parent_is_shim_in(*pid, &run)
                })
                .collect();
            if found.is_empty() || Instant::now() > deadline {
                return;
            }
            for pid in found {
                let _ = Pid::from_raw(pid).map(|pid| kill_process(pid, Signal::KILL));
            }
            sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for SecondEngine {
    fn drop(&mut self) {
        self.stop();
        self.end_all_but_the_holder();
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// A process in namespaces of its own, and its mount namespace. It begins in the host's: nothing
/// may enter before it has left them.
fn apart() -> (Child, PathBuf) {
    let holder = Command::new("unshare")
        .args(["--net", "--mount", "sleep", "infinity"])
        .stdin(Stdio::null())
        .spawn()
        .expect("namespaces of its own");
    let host = namespace_of(std::process::id()).expect("it has one");
    let deadline = Instant::now() + PATIENCE;
    loop {
        match namespace_of(holder.id()) {
            Some(found) if found != host => return (holder, found),
            _ => assert!(Instant::now() < deadline, "no namespaces of its own"),
        }
        sleep(Duration::from_millis(5));
    }
}

fn namespace_of(pid: u32) -> Option<PathBuf> {
    std::fs::read_link(format!("/proc/{pid}/ns/mnt")).ok()
}

fn processes() -> impl Iterator<Item = i32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Whether this process was started by a containerd shim of the engine with this exec root.
fn parent_is_shim_in(pid: i32, run: &Path) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let parent = status
        .lines()
        .find_map(|line| line.strip_prefix("PPid:"))
        .map_or("0", str::trim);
    let arguments = std::fs::read(format!("/proc/{parent}/cmdline")).unwrap_or_default();
    let arguments = String::from_utf8_lossy(&arguments);
    arguments.contains("shim") && arguments.contains(&run.display().to_string())
}
