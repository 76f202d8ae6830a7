//! Builds a root file system over the host's own, with one slot, and starts init in it.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use std::{fs, thread};

use mayfly_init::arguments::Arguments;
use mayfly_init::protocol::{Exit, Frame, Id, Notice, Order, Refusal, Start, Stream, decode};

/// Longer than anything a test waits for.
const PATIENCE: Duration = Duration::from_secs(20);

/// `$1` folder of this test, `$2` the binary; the rest are init's arguments.
const STAGE: &str = r#"
set -e
dir=$1 binary=$2; shift 2
mount --make-rprivate /
mkdir $dir/stage; mount -t tmpfs stage $dir/stage; cd $dir/stage
mkdir upper work slot-upper slot-work slot-lower root
mount -t overlay -o lowerdir=/,upperdir=upper,workdir=work root root
mkdir -p root/mayfly/run root/mayfly/bin root/slot root/plain
touch root/mayfly/bin/mayfly-init
mount --bind $binary root/mayfly/bin/mayfly-init
mount --bind $dir/run root/mayfly/run
mount -o remount,bind,ro root/mayfly/run
chown 1000:1000 slot-upper
mount -t overlay -o lowerdir=slot-lower,upperdir=$dir/stage/slot-upper,workdir=slot-work slot root/slot
mount -t tmpfs -o mode=1777 tmp root/tmp
mount -t proc proc root/proc
mount --bind /dev root/dev
exec chroot root setpriv --no-new-privs --inh-caps=-all \
    --bounding-set=-all,+setuid,+setgid,+kill /mayfly/bin/mayfly-init "$@"
"#;

pub(crate) struct Sandbox {
    pub(crate) dir: PathBuf,
    pub(crate) arguments: Arguments,
    process: Option<Child>,
    control: Option<UnixStream>,
    received: Vec<u8>,
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            // `unshare --kill-child` takes PID 1 with it.
            let _ = process.kill();
            let _ = process.wait();
        }
        let _ = fs::remove_dir_all(&self.dir);
    }
}

impl Sandbox {
    /// A sandbox that is not started.
    pub(crate) fn prepare() -> Sandbox {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let uid = fs::read_to_string("/proc/self/status").unwrap();
        assert!(
            uid.contains("\nUid:\t0\t0\t"),
            "these tests make namespaces and mounts: run them as root"
        );
        let name = format!(
            "mayfly-init-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        let dir = std::env::temp_dir().join(name);
        fs::create_dir_all(dir.join("run")).unwrap();
        let upper = dir.join("stage/slot-upper").to_str().unwrap().to_owned();
        let arguments = Arguments {
            uid: 1000,
            gid: 1000,
            ceiling: Duration::from_secs(60),
            heartbeat: Duration::from_secs(30),
            connect: Duration::from_secs(5),
            slots: vec![("/slot".into(), upper)],
        };
        Sandbox {
            dir,
            arguments,
            process: None,
            control: None,
            received: Vec::new(),
        }
    }

    /// Starts init without waiting for anything.
    pub(crate) fn launch(&mut self) {
        let unshare = ["--pid", "--fork", "--kill-child", "--mount", "--mount-proc"];
        let process = Command::new("unshare")
            .args(unshare)
            .args(["sh", "-c", STAGE, "stage"])
            .arg(&self.dir)
            .arg(env!("CARGO_BIN_EXE_mayfly-init"))
            .args(self.arguments.to_argv())
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        self.process = Some(process);
    }

    /// Starts init and takes its `Ready`.
    pub(crate) fn run(&mut self) {
        let listener = UnixListener::bind(self.dir.join("run/control")).unwrap();
        self.launch();
        let (control, _) = listener.accept().unwrap();
        control.set_read_timeout(Some(PATIENCE)).unwrap();
        self.control = Some(control);
        assert!(matches!(self.notice(), Notice::Ready(_)));
    }

    pub(crate) fn started() -> Sandbox {
        let mut sandbox = Sandbox::prepare();
        sandbox.run();
        sandbox
    }

    pub(crate) fn order(&mut self, order: &Order) {
        let mut bytes = Vec::new();
        order.encode(&mut bytes);
        self.raw(&bytes);
    }

    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.control.as_mut().unwrap().write_all(bytes).unwrap();
    }

    pub(crate) fn hang_up(&mut self) {
        self.control = None;
    }

    pub(crate) fn notice(&mut self) -> Notice {
        loop {
            if let Some((notice, length)) = decode::<Notice>(&self.received).unwrap() {
                self.received.drain(..length);
                return notice;
            }
            let mut chunk = [0; 64 << 10];
            let count = self
                .control
                .as_mut()
                .unwrap()
                .read(&mut chunk)
                .expect("a notice in time");
            assert!(count > 0, "init hung up");
            self.received.extend_from_slice(&chunk[..count]);
        }
    }

    pub(crate) fn done(&mut self, id: Id) -> Result<(), Refusal> {
        match self.notice() {
            Notice::Done(found, result) if found == id => result,
            other => panic!("{other:?} instead of Done({id})"),
        }
    }

    /// Starts a program that has to run.
    pub(crate) fn start(&mut self, id: Id, argv: &[&str]) {
        self.order(&Order::Start(id, start(argv)));
        self.done(id).unwrap();
    }

    /// Everything a program says until its `Exit`.
    pub(crate) fn outcome(&mut self, id: Id) -> Outcome {
        let mut outcome = Outcome::default();
        loop {
            match self.notice() {
                Notice::Output(found, stream, bytes) if found == id => match stream {
                    Stream::Stdout => outcome.stdout.extend(bytes),
                    Stream::Stderr => outcome.stderr.extend(bytes),
                    Stream::StdoutCut | Stream::StderrCut => {
                        outcome
                            .dropped
                            .push(u64::from_be_bytes(bytes.try_into().unwrap()));
                        outcome.head = outcome.stdout.len();
                    }
                },
                Notice::Exit(found, exit) if found == id => {
                    outcome.exit = Some(exit);
                    return outcome;
                }
                other => panic!("unexpected {other:?}"),
            }
        }
    }

    /// A shell script of the agent's from start to end.
    pub(crate) fn script(&mut self, script: &str) -> Outcome {
        self.start(7, &["sh", "-c", script]);
        self.outcome(7)
    }

    /// Init's exit code, once it ends by itself.
    pub(crate) fn exit_code(&mut self) -> i32 {
        let process = self.process.as_mut().unwrap();
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = process.try_wait().unwrap() {
                return status.code().expect("an exit code");
            }
            assert!(Instant::now() < until, "init does not end");
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// The host's number of PID 1.
    pub(crate) fn pid(&self) -> u32 {
        let outer = self.process.as_ref().unwrap().id();
        let children = fs::read_to_string(format!("/proc/{outer}/task/{outer}/children")).unwrap();
        children.trim().parse().unwrap()
    }

    pub(crate) fn socket(&self, name: &str) -> PathBuf {
        Path::new(&self.dir).join("run").join(name)
    }
}

#[derive(Default, Debug)]
pub(crate) struct Outcome {
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    /// Counts of the cut notices.
    pub(crate) dropped: Vec<u64>,
    /// Bytes of standard output before the last cut notice.
    pub(crate) head: usize,
    pub(crate) exit: Option<Exit>,
}

impl Outcome {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    pub(crate) fn code(&self) -> Option<i32> {
        self.exit.unwrap().code
    }
}

pub(crate) fn start(argv: &[&str]) -> Start {
    Start {
        argv: argv.iter().map(|text| (*text).to_owned()).collect(),
        env: vec![
            ("PATH".into(), "/usr/bin:/bin".into()),
            ("A".into(), "b c".into()),
        ],
        cwd: "/slot".into(),
        head: 1 << 20,
        tail: 1 << 20,
    }
}
