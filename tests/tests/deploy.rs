//! What `deploy/` gives to whoever runs Mayfly is tried as it stands there: the unit by systemd's own judges and by
//! a tick under what it takes away, the composition by starting it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
    time::{Duration, Instant},
};

use mayfly_orchestrator::worker::WorkerConfig;
use mayfly_tests::{engine::run, server::Server};

const PROGRAM: &str = env!("CARGO_BIN_EXE_mayfly-under-test");
/// Exposure by `systemd-analyze security`, in tenths: root with Docker's socket cannot come far below.
const EXPOSED: u32 = 52;
const PATIENCE: Duration = Duration::from_secs(180);

fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy")
}

fn unit() -> String {
    fs::read_to_string(deploy().join("systemd/mayfly.service")).expect("the unit")
}

/// The one value of a setting.
fn setting(unit: &str, name: &str) -> String {
    let mut values = unit
        .lines()
        .filter_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    let value = values.next().unwrap_or_else(|| panic!("no {name}="));
    assert_eq!(values.next(), None, "{name} twice");
    value.to_owned()
}

fn said(output: &Output) -> String {
    let both = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8_lossy(&both).into_owned()
}

#[test]
fn systemd_takes_the_unit_and_finds_it_hardened() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("mayfly.service");
    // Where nothing is installed, the program is another one.
    let installed = unit().replace("/usr/local/bin/mayfly", PROGRAM);
    fs::write(&path, installed).expect("written");
    let judge = |arguments: &[&str]| {
        let mut command = Command::new("systemd-analyze");
        let done = command.args(arguments).arg(&path).output();
        done.expect("systemd-analyze runs")
    };
    let verified = judge(&["verify", "--man=no"]);
    assert!(verified.status.success(), "{}", said(&verified));
    let secured = judge(&["security", "--offline=true", "--no-pager"]);
    let told = said(&secured);
    let exposure = told.lines().find_map(|line| {
        line.split("Overall exposure level for mayfly.service: ")
            .nth(1)
    });
    let exposure = exposure.unwrap_or_else(|| panic!("{told}"));
    let figure = exposure.split(' ').next().unwrap_or_default();
    let tenths: u32 = figure.replace('.', "").parse().expect("a number");
    assert!(tenths <= EXPOSED, "{exposure}");
}

#[test]
fn the_unit_gives_running_ticks_their_grace() {
    let stop: u64 = setting(&unit(), "TimeoutStopSec").parse().expect("seconds");
    // Then what is handed back is removed, for at most a minute.
    let grace = WorkerConfig::default().grace_s;
    assert!(stop >= grace + 60, "{stop} s, and grace is {grace} s");
}

/// With the unit's capabilities, no new privileges, and a file system that is read-only but for its two folders.
#[test]
fn a_tick_runs_with_what_the_unit_leaves() {
    let unit = unit();
    for (name, value) in [("NoNewPrivileges", "yes"), ("ProtectSystem", "strict")] {
        assert_eq!(setting(&unit, name), value);
    }
    let bounding: String = setting(&unit, "CapabilityBoundingSet")
        .split(' ')
        .map(|one| format!(",+{}", one.trim_start_matches("CAP_").to_lowercase()))
        .collect();
    fs::create_dir_all("/run/mayfly").expect("the unit's runtime folder");
    let folder = tempfile::Builder::new().prefix("mu").tempdir();
    let folder = folder.expect("a folder");
    let data_dir = folder.path().join("d");
    fs::create_dir(&data_dir).expect("a folder");
    let wrapper = folder.path().join("hardened");
    let script = format!(
        "#!/bin/sh\nset -e\nfor dir in {data} /run/mayfly; do mount --bind $dir $dir; done\n\
         mount -o remount,bind,ro /\n\
         exec setpriv --bounding-set=-all{bounding} --inh-caps=-all --no-new-privs -- {PROGRAM} \"$@\"\n",
        data = data_dir.display(),
    );
    fs::write(&wrapper, script).expect("written");
    run("chmod", &["755", wrapper.to_str().expect("UTF-8")]);
    let outside = folder.path().join("outer");
    let script = format!(
        "#!/bin/sh\nexec unshare --mount --propagation slave {} \"$@\"\n",
        wrapper.display()
    );
    fs::write(&outside, script).expect("written");
    run("chmod", &["755", outside.to_str().expect("UTF-8")]);
    let mut server = Server::new(outside.to_str().expect("UTF-8")).at(&data_dir);
    server.start();
    let caps = fs::read_to_string(format!("/proc/{}/status", server.pid())).expect("its status");
    assert!(caps.contains("NoNewPrivs:\t1"), "{caps}");
    let agent = server.agent();
    let text = "echo kept > f; mkdir -p d; mv d e; rm -rf /work/received; id -u; cat f";
    let first = server.json(&["agent", "send", &agent, text]);
    let reply = first["reply"]["text"].as_str().unwrap_or_default();
    assert!(reply.ends_with("\nkept"), "{first}");
    let second = server.json(&["agent", "send", &agent, "rm -r e; cat f"]);
    assert_eq!(second["reply"]["text"], "kept", "{second}");
    server.stop();
    server.assert_nothing_left();
}

/// Removes what a composition has made.
struct Composed {
    project: String,
    folder: tempfile::TempDir,
}

impl Composed {
    fn compose(&self, arguments: &[&str]) -> Output {
        let file = deploy().join("compose.yaml");
        let mut command = Command::new("docker-compose");
        command
            .args(["--project-name", &self.project, "--file"])
            .arg(file);
        command
            .arg("--env-file")
            .arg(self.folder.path().join("settings"))
            .args(arguments);
        command.output().expect("docker-compose runs")
    }

    fn did(&self, arguments: &[&str]) -> String {
        let done = self.compose(arguments);
        assert!(done.status.success(), "{arguments:?}: {}", said(&done));
        String::from_utf8_lossy(&done.stdout).into_owned()
    }

    fn log(&self) -> String {
        said(&self.compose(&["logs", "--no-color", "--tail", "60"]))
    }

    fn mayfly(&self, service: &str, arguments: &[&str]) -> Output {
        let exec = ["exec", "-T", service, "mayfly"];
        self.compose(&[&exec[..], arguments].concat())
    }
}

impl Drop for Composed {
    fn drop(&mut self) {
        self.compose(&["down", "--volumes", "--timeout", "30"]);
    }
}

/// A message to the bot is answered by a worker, and again after one of them is gone for good.
#[test]
fn the_composition_starts_and_answers() {
    let root = deploy().join("..");
    run(
        root.join("deploy/images/build").to_str().expect("UTF-8"),
        &["base", "redis", "postgres"],
    );
    let folder = tempfile::Builder::new().prefix("mc").tempdir();
    let folder = folder.expect("a folder");
    let at = |name: &str| folder.path().join(name).display().to_string();
    fs::write(at("none.env"), "").expect("written");
    fs::create_dir_all("/run/mayfly").expect("the runtime folder");
    let settings = format!(
        "MAYFLY_DATABASE_PASSWORD=one\nMAYFLY_REDIS_PASSWORD=two\nMAYFLY_WORKER_MEMORY_MIB=2048\n\
         MAYFLY_BOT_ENV={none}\nMAYFLY_WORKER_ENV={none}\nMAYFLY_PORT=0\nMAYFLY_DATA={data}\nMAYFLY_PROGRAM={PROGRAM}\n",
        none = at("none.env"),
        data = folder.path().display(),
    );
    fs::write(at("settings"), settings).expect("written");
    let composed = Composed {
        project: format!("mayflytest{}", std::process::id()),
        folder,
    };
    composed.did(&["config", "--quiet"]);
    composed.did(&["up", "--detach"]);
    let deadline = Instant::now() + PATIENCE;
    let answered = |text: &str| loop {
        let sent = composed.mayfly("bot", &["agent", "new", "-m", text]);
        if sent.status.success() {
            return said(&sent);
        }
        let now = Instant::now();
        assert!(now < deadline, "{}\n{}", said(&sent), composed.log());
        std::thread::sleep(Duration::from_secs(1));
    };
    let first = answered("echo composed");
    assert!(first.contains("composed"), "{first}");
    let containers = composed.did(&["ps", "--quiet", "worker-1"]);
    let id = containers.trim();
    let pid_mode = run(
        "docker",
        &["inspect", "--format", "{{.HostConfig.PidMode}}", id],
    );
    assert_eq!(pid_mode.trim(), "host");
    composed.did(&["rm", "--stop", "--force", "worker-1"]);
    let second = answered("echo by the other");
    assert!(second.contains("by the other"), "{second}");
}

/// What the sizing page names is there: benches by their verb, figures by the bench that prints them, settings by the
/// example.
#[test]
fn the_sizing_page_names_what_there_is() {
    let read = |path: &str| {
        let path = deploy().join(path);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    };
    let (page, example) = (read("SIZING.md"), read("mayfly.example.toml"));
    let quoted: Vec<&str> = page.split('`').skip(1).step_by(2).collect();
    let mut verb = None;
    let (mut figures, mut settings) = (0, 0);
    for word in quoted {
        if let Some(rest) = word.strip_prefix("tests/bench ") {
            verb = rest.split(' ').next();
            let known = read("../tests/bench");
            assert!(
                known.contains(&format!("tests/bench {}", verb.unwrap())),
                "{word}"
            );
        } else if let Some((section, key)) = word
            .split_once('.')
            .filter(|(section, _)| ["worker", "disk", "limits", "retention"].contains(section))
        {
            let has = |head: &str| example.contains(head);
            assert!(
                has(&format!("[{section}]")) || has(&format!(".{section}]")),
                "{word}"
            );
            let stands = |line: &str| {
                line.trim_start_matches(['#', ' '])
                    .starts_with(&format!("{key} ="))
            };
            assert!(example.lines().any(stands), "{word} is no setting");
            settings += 1;
        } else if let Some(verb) = verb
            && word.starts_with(|first: char| first.is_ascii_lowercase())
            && !word.contains(['.', '_', '='])
            && !["noeviction", "mayfly agent show"].contains(&word)
        {
            // A figure whose name is made of parts is known by its first word.
            let source = read(&format!("../tests/src/bench/{verb}.rs"));
            let first = word.split([' ', ',']).next().unwrap();
            assert!(source.contains(first), "{word} of {verb}");
            figures += 1;
        }
    }
    assert!(figures >= 8 && settings >= 8, "{figures} {settings}");
}
