//! What every case needs: a backend, a spec on fresh folders, a program run to its end.

use std::{
    fs,
    os::unix::fs::chown,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use mayfly_domain::{InstallationId, Limits, SandboxRef, TickId};
use mayfly_init::protocol::{Exit, Start, Stream};
use mayfly_orchestrator::{
    clock::{Lease, RENEWAL, boot_time},
    sandbox::{
        Backend, Control, Image, Live, Names, Notices, Owner, SandboxSpec, SlotMount,
        control::Event,
        docker::{Docker, DockerOptions},
        fake::Fake,
        init,
    },
    supervise::Supervisor,
};

pub(crate) const UID: u32 = 1000;
const PATIENCE: Duration = Duration::from_secs(60);

/// One test's installation. What it leaves on the engine fails the test.
pub(crate) struct Stage {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) installation: InstallationId,
    pub(crate) image: Image,
    pub(crate) dir: tempfile::TempDir,
}

/// One attempt: its spec and the folders behind its one slot.
pub(crate) struct Attempt {
    pub(crate) spec: SandboxSpec,
    pub(crate) upper: PathBuf,
    pub(crate) lower: PathBuf,
}

/// What a program left.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    pub(crate) exit: Exit,
}

impl Ran {
    pub(crate) fn out(&self) -> &str {
        std::str::from_utf8(&self.stdout).expect("text")
    }
}

fn supervised() -> (Supervisor, Lease) {
    let (supervisor, lease) = (Supervisor::default(), Lease::default());
    let renewed = lease.clone();
    renewed.confirm(boot_time());
    supervisor.standing("lease of a test", async move {
        loop {
            renewed.confirm(boot_time());
            tokio::time::sleep(RENEWAL).await;
        }
        #[allow(unreachable_code)]
        Ok::<(), String>(())
    });
    (supervisor, lease)
}

pub(crate) fn docker() -> Docker {
    let (supervisor, lease) = supervised();
    Docker::new(DockerOptions {
        host: None,
        supervisor,
        lease,
    })
}

pub(crate) fn fake() -> Fake {
    let (supervisor, lease) = supervised();
    Fake::new(supervisor, lease)
}

impl Stage {
    pub(crate) async fn docker() -> Stage {
        Stage::on(Arc::new(docker()), "docker:mayfly/tiny").await
    }

    pub(crate) async fn fake() -> Stage {
        Stage::on(Arc::new(fake()), "docker:mayfly/tiny").await
    }

    pub(crate) async fn on(backend: Arc<dyn Backend>, image: &str) -> Stage {
        let reference: SandboxRef = image.parse().expect("a reference");
        if let Err(error) = backend.engine().await {
            panic!(
                "these tests need a container engine that answers: {}",
                chain(&error)
            );
        }
        let image = match backend.resolve(&reference).await {
            Ok(image) => image,
            Err(error) => panic!(
                "build the images first (deploy/images/build): {}",
                chain(&error)
            ),
        };
        Stage {
            backend,
            installation: InstallationId::new(),
            image,
            dir: tempfile::Builder::new()
                .prefix("mf")
                .tempdir()
                .expect("a folder"),
        }
    }

    /// Whose labels everything carries.
    pub(crate) fn owner(&self) -> Owner {
        self.owned_by("w")
    }

    /// The same of another worker of this installation.
    pub(crate) fn owned_by(&self, worker: &str) -> Owner {
        Owner {
            installation: self.installation,
            worker: worker.to_owned(),
        }
    }

    /// A fresh attempt with one slot `/work` on an empty lower.
    pub(crate) fn attempt(&self) -> Attempt {
        let id = TickId::new();
        let place = self.dir.path().join(id.short());
        let [upper, lower, work] = ["u", "l", "w"].map(|name| place.join(name));
        for folder in [&upper, &lower, &work] {
            fs::create_dir_all(folder).expect("a folder");
            chown(folder, Some(UID), Some(UID)).expect("root");
        }
        self.attempt_on(id, &place, vec![lower], upper, work)
    }

    /// The attempt that follows: the last one's upper is now the topmost lower.
    pub(crate) fn after(&self, last: &Attempt) -> Attempt {
        let mut lowers = vec![last.upper.clone()];
        lowers.extend(last.spec.slots[0].lowers.iter().cloned());
        let mut next = self.attempt();
        next.spec.slots[0].lowers = lowers;
        next
    }

    fn attempt_on(
        &self,
        tick: TickId,
        place: &Path,
        lowers: Vec<PathBuf>,
        upper: PathBuf,
        work: PathBuf,
    ) -> Attempt {
        let (passwd, group) = (place.join("passwd"), place.join("group"));
        fs::write(
            &passwd,
            "root:x:0:0::/:/bin/sh\nagent:x:1000:1000::/work:/bin/sh\n",
        )
        .unwrap();
        fs::write(&group, "root:x:0:\nagent:x:1000:\n").unwrap();
        let container = format!("{}{}", Names::prefix(self.installation), tick.short());
        let spec = SandboxSpec {
            owner: self.owner(),
            tick,
            names: Names {
                volumes: vec![format!("{container}-work")],
                sockets: PathBuf::from(format!(
                    "/run/mayfly/{}/{}",
                    self.installation.short(),
                    tick.short()
                )),
                container,
            },
            image: self.image.clone(),
            uid: UID,
            gid: UID,
            slots: vec![SlotMount {
                name: "work".into(),
                path: "/work".into(),
                lowers: lowers.clone(),
                upper: upper.clone(),
                work,
            }],
            passwd,
            group,
            init: init::install(self.dir.path()).expect("init"),
            runtime: None,
            limits: Limits {
                memory_mib: 256,
                cpus: 2.0,
                ..Limits::default()
            },
            ceiling: Duration::from_secs(120),
        };
        let lower = lowers.last().expect("one lower").clone();
        Attempt { spec, upper, lower }
    }

    pub(crate) async fn spawn(&self, attempt: &Attempt) -> Live {
        match self.backend.spawn(&attempt.spec).await {
            Ok(live) => live,
            Err(error) => {
                let text = chain(&error);
                self.remove(attempt).await;
                panic!("{text}");
            }
        }
    }

    pub(crate) async fn remove(&self, attempt: &Attempt) {
        if let Err(error) = self.backend.remove(&attempt.spec.names, PATIENCE).await {
            panic!("{}", chain(&error));
        }
        assert!(!attempt.spec.names.sockets.exists());
    }

    /// Runs one script in a sandbox of its own and takes that away.
    pub(crate) async fn tick(&self, attempt: &Attempt, script: &str) -> Ran {
        let mut live = self.spawn(attempt).await;
        let ran = sh(&mut live, script).await;
        live.control.end().await.expect("ended");
        self.remove(attempt).await;
        ran
    }

    /// Takes back the tag that keeps the image, where an engine gave one.
    pub(crate) async fn untag(&self) {
        if self.backend.engine().await.expect("an engine").kind == "docker" {
            let short = &self.image.id[7..19];
            let tag = format!("mayfly/keep-{}:{short}", self.installation.short());
            let client = bollard::Docker::connect_with_unix_defaults().expect("a socket");
            let client = client.negotiate_version().await.expect("an engine");
            let options = None::<bollard::query_parameters::RemoveImageOptions>;
            client
                .remove_image(&tag, options, None)
                .await
                .expect("untagged");
        }
    }

    /// Every test ends with this.
    pub(crate) async fn nothing_left(self) {
        let left = self.backend.found(&self.owner()).await.expect("a list");
        assert_eq!(left, []);
        let sockets = format!("/run/mayfly/{}", self.installation.short());
        fs::remove_dir(sockets).ok();
    }
}

pub(crate) fn program(argv: &[&str]) -> Start {
    Start {
        argv: argv.iter().map(|text| (*text).to_owned()).collect(),
        env: vec![("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into())],
        cwd: "/work".into(),
        head: 64 << 20,
        tail: 0,
    }
}

/// Runs a script with no input.
pub(crate) async fn sh(live: &mut Live, script: &str) -> Ran {
    let id = live.control.start(program(&["sh", "-c", script])).await;
    let id = id.expect("started");
    live.control.close_stdin(id).await.expect("closed");
    until_exit(&mut live.notices, id).await
}

pub(crate) async fn until_exit(notices: &mut Notices, id: u32) -> Ran {
    let mut ran = Ran {
        stdout: Vec::new(),
        stderr: Vec::new(),
        exit: Exit {
            code: None,
            signal: None,
            oom: false,
        },
    };
    loop {
        match notices.next().await {
            Some((of, event)) if of == id => match event {
                Event::Output(Stream::Stdout, bytes) => ran.stdout.extend(bytes),
                Event::Output(Stream::Stderr, bytes) => ran.stderr.extend(bytes),
                Event::Output(..) => panic!("output was cut"),
                Event::Exit(exit) => {
                    ran.exit = exit;
                    return ran;
                }
            },
            Some(_) => {}
            None => panic!("the sandbox ended first: {:?}, {ran:?}", notices.fault()),
        }
    }
}

/// Feeds a program and hears it at once, so that neither waits for the other.
pub(crate) async fn feed(control: &Control, id: u32, bytes: Vec<u8>) {
    control.stdin(id, bytes).await.expect("fed");
    control.close_stdin(id).await.expect("closed");
}

pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}
