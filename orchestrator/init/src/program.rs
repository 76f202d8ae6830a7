//! One program of the agent: from its start to its `Exit`.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use mayfly_init::protocol::{CHUNK, Exit, Id, Notice, Refusal, Signal, Start, Stream};
use rustix::io::{Errno, read};
use rustix::process::{Pid, Signal as Number, WaitStatus, kill_process_group};

use crate::control::Control;
use crate::cut::Cut;
use crate::feed::Feed;
use crate::spawn::{self, Plan, Report, User};
use crate::{oom, processes};

/// Most bytes a program's unread standard input may take.
const LONGEST_STDIN: usize = 8 << 20;
/// Most bytes that may be kept of a stream's end.
const LONGEST_TAIL: u64 = 16 << 20;
/// How long a pipe that something else still holds is read after the program's end.
const GRACE: Duration = Duration::from_millis(500);

pub(crate) struct Program {
    pub(crate) id: Id,
    pid: Pid,
    /// There until the program runs.
    report: Option<Report>,
    stdin: Feed,
    streams: [Output; 2],
    oom: u64,
    ended: Option<(WaitStatus, Duration)>,
}

impl Program {
    pub(crate) fn start(id: Id, start: &Start, user: User) -> Result<Program, Refusal> {
        if start.tail > LONGEST_TAIL {
            let reason = format!("At most {LONGEST_TAIL} bytes are kept of a stream's end.");
            return Err(Refusal::new(reason));
        }
        let plan = Plan::new(start)?;
        let oom = oom::kills();
        let (stdin, child_stdin) = spawn::to_child()?;
        let (stdout, child_stdout) = spawn::from_child()?;
        let (stderr, child_stderr) = spawn::from_child()?;
        let stdio = [child_stdin, child_stdout, child_stderr];
        let (pid, report) = spawn::child(user, stdio, || Err(plan.exec()))?;
        let output = |pipe, stream, cut_stream| {
            let cut = Cut::new(start.head, start.tail as usize);
            Output {
                pipe: Some(pipe),
                stream,
                cut_stream,
                cut,
            }
        };
        let streams = [
            output(stdout, Stream::Stdout, Stream::StdoutCut),
            output(stderr, Stream::Stderr, Stream::StderrCut),
        ];
        Ok(Program {
            id,
            pid,
            report: Some(report),
            stdin: Feed::new(stdin),
            streams,
            oom,
            ended: None,
        })
    }

    /// Tells the worker once whether the program runs. `false`: it could not be started.
    pub(crate) fn announce(&mut self, control: &mut Control) -> bool {
        let Some(result) = self.report.as_mut().and_then(Report::step) else {
            return true;
        };
        self.report = None;
        let runs = result.is_ok();
        control.notify(&Notice::Done(self.id, result));
        runs
    }

    /// `false`: the input was not taken, the program does not read.
    pub(crate) fn stdin(&mut self, bytes: &[u8]) -> bool {
        if self.stdin.pending() + bytes.len() > LONGEST_STDIN {
            self.stdin.abandon();
            return false;
        }
        self.stdin.push(bytes);
        true
    }

    pub(crate) fn close_stdin(&mut self) {
        self.stdin.end();
    }

    /// To the whole process group, as long as its number is surely the program's.
    pub(crate) fn signal(&self, signal: Signal) {
        let number = match signal {
            Signal::Interrupt => Number::INT,
            Signal::Terminate => Number::TERM,
            Signal::Kill => Number::KILL,
        };
        if self.running() {
            // Before the child's `setsid` there is no such group: then nothing runs yet.
            let _ = kill_process_group(self.pid, number);
        }
    }

    pub(crate) fn running(&self) -> bool {
        self.ended.is_none()
    }

    /// Whether the agent's code ran, or runs.
    pub(crate) fn started(&self) -> bool {
        self.report.is_none()
    }

    /// Takes note if `pid` is this program's.
    pub(crate) fn reaped(&mut self, pid: Pid, status: WaitStatus, now: Duration) {
        if pid == self.pid && self.running() {
            self.ended = Some((status, now));
            self.stdin.abandon();
        }
    }

    /// Moves bytes once in each direction; `cleared`: everything that could write is dead.
    pub(crate) fn step(&mut self, control: &mut Control, cleared: bool) {
        self.stdin.step();
        if !self.started() {
            // Its `Done` comes first.
            return;
        }
        for stream in &mut self.streams {
            let mut more = cleared || !control.full();
            while more {
                more = stream.step(self.id, control) && cleared;
            }
        }
    }

    /// Whether nothing more will come: the program ended, and so did its session and its pipes,
    /// or the grace is over. `cleared`: everything in the sandbox is dead.
    pub(crate) fn finished(&self, control: &Control, now: Duration, cleared: bool) -> bool {
        let Some((_, since)) = self.ended else {
            return false;
        };
        let alone = cleared || processes::kill_session(self.pid);
        let drained = self.streams.iter().all(|stream| stream.pipe.is_none());
        (alone && drained) || (now >= since + GRACE && (cleared || !control.full()))
    }

    /// Sends what was kept of the output, and how it ended.
    pub(crate) fn farewell(mut self, control: &mut Control) {
        let Some((status, _)) = self.ended else {
            return;
        };
        for stream in &mut self.streams {
            stream.end(self.id, control);
        }
        let exit = Exit {
            code: status.exit_status(),
            signal: status.terminating_signal(),
            oom: oom::kills() > self.oom,
        };
        control.notify(&Notice::Exit(self.id, exit));
    }

    pub(crate) fn wanted_reads(&self, full: bool) -> impl Iterator<Item = BorrowedFd<'_>> {
        let pipes = self
            .streams
            .iter()
            .filter(move |_| !full)
            .filter_map(|s| s.pipe.as_ref());
        pipes
            .map(AsFd::as_fd)
            .chain(self.report.as_ref().map(AsFd::as_fd))
    }

    pub(crate) fn wanted_writes(&self) -> Option<BorrowedFd<'_>> {
        self.stdin.wanted()
    }
}

/// One output stream.
struct Output {
    pipe: Option<OwnedFd>,
    stream: Stream,
    cut_stream: Stream,
    cut: Cut,
}

impl Output {
    /// Reads once. `true`: perhaps there is more.
    fn step(&mut self, id: Id, control: &mut Control) -> bool {
        let Some(pipe) = &self.pipe else { return false };
        let mut buffer = [0; CHUNK];
        match read(pipe, &mut buffer) {
            Ok(count) if count > 0 => {
                let now = self.cut.take(&buffer[..count]);
                if !now.is_empty() {
                    control.notify(&Notice::Output(id, self.stream, now.to_vec()));
                }
                true
            }
            Err(Errno::INTR) => true,
            Err(Errno::AGAIN) => false,
            Ok(_) | Err(_) => {
                self.pipe = None;
                false
            }
        }
    }

    fn end(&mut self, id: Id, control: &mut Control) {
        self.pipe = None;
        let (dropped, tail) = self.cut.finish();
        if dropped > 0 {
            let count = dropped.to_be_bytes().to_vec();
            control.notify(&Notice::Output(id, self.cut_stream, count));
        }
        for chunk in tail.chunks(CHUNK) {
            control.notify(&Notice::Output(id, self.stream, chunk.to_vec()));
        }
    }
}
