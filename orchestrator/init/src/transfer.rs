//! One `Put` or `Get`: bytes between the worker and a child with the agent's user.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use mayfly_init::protocol::{CHUNK, Get, Id, Notice, Put, Refusal};
use rustix::io::{Errno, read};
use rustix::process::{Pid, Signal, WaitStatus, kill_process};

use crate::control::Control;
use crate::feed::Feed;
use crate::spawn::{self, Report, User};
use crate::{deadline, files};

/// A child that moves nothing for so long is killed: the agent can stop it.
const PATIENCE: Duration = Duration::from_secs(30);
/// While a `Put` has more than this unwritten, no order is taken.
const UNWRITTEN: usize = 4 << 20;

pub(crate) struct Transfer {
    pub(crate) id: Id,
    pid: Pid,
    report: Report,
    side: Side,
    moved: Duration,
    late: bool,
    ended: Option<WaitStatus>,
}

enum Side {
    Put(Feed),
    Get { pipe: Option<OwnedFd>, left: u64 },
}

impl Transfer {
    pub(crate) fn put(id: Id, order: Put, user: User) -> Result<Transfer, Refusal> {
        check(&order.path)?;
        let (ours, theirs) = spawn::to_child()?;
        let stdio = [theirs, spawn::null()?, spawn::null()?];
        let (pid, report) = spawn::child(user, stdio, || files::put(&order))?;
        Ok(Transfer::new(id, pid, report, Side::Put(Feed::new(ours))))
    }

    pub(crate) fn get(id: Id, order: Get, user: User) -> Result<Transfer, Refusal> {
        check(&order.path)?;
        let (ours, theirs) = spawn::from_child()?;
        let stdio = [spawn::null()?, theirs, spawn::null()?];
        let (pid, report) = spawn::child(user, stdio, || files::get(&order))?;
        Ok(Transfer::new(
            id,
            pid,
            report,
            Side::Get {
                pipe: Some(ours),
                left: order.cap,
            },
        ))
    }

    fn new(id: Id, pid: Pid, report: Report, side: Side) -> Transfer {
        Transfer {
            id,
            pid,
            report,
            side,
            moved: deadline::now(),
            late: false,
            ended: None,
        }
    }

    /// Bytes of a `Put`; none mean its end.
    pub(crate) fn data(&mut self, bytes: &[u8]) {
        if let Side::Put(feed) = &mut self.side {
            self.moved = deadline::now();
            if bytes.is_empty() {
                feed.end()
            } else {
                feed.push(bytes)
            }
        }
    }

    pub(crate) fn reaped(&mut self, pid: Pid, status: WaitStatus) {
        if pid == self.pid && self.ended.is_none() {
            self.ended = Some(status);
        }
    }

    /// Moves bytes once. `Some` is the outcome; then the transfer is over.
    pub(crate) fn step(
        &mut self,
        control: &mut Control,
        now: Duration,
    ) -> Option<Result<(), Refusal>> {
        let waits_for_worker = match &mut self.side {
            Side::Put(feed) => {
                if feed.step() > 0 {
                    self.moved = now;
                }
                false
            }
            Side::Get { .. } if control.full() => true,
            Side::Get { pipe, left } => {
                if let Some(count) = pump(self.id, pipe, left, control) {
                    self.moved = now;
                    // A child that sends past the cap is not our code any more.
                    self.late |= count.is_err();
                }
                false
            }
        };
        if waits_for_worker {
            self.moved = now;
        }
        if now >= self.until() && self.ended.is_none() {
            self.late = true;
            self.moved = now;
        }
        if self.late && self.ended.is_none() {
            let _ = kill_process(self.pid, Signal::KILL);
        }
        let status = self.ended?;
        let drained = !matches!(&self.side, Side::Get { pipe: Some(_), .. });
        if status.exit_status() == Some(0) && !drained && !self.late {
            return None;
        }
        let report = self.report.step();
        Some(match (status.exit_status(), report) {
            _ if self.late => Err(Refusal::new("The transfer stood still and was given up.")),
            (Some(0), _) => Ok(()),
            (_, Some(Err(refusal))) => Err(refusal),
            _ => Err(Refusal::new("The transfer was killed inside the sandbox.")),
        })
    }

    /// The child, until it is reaped.
    pub(crate) fn running(&self) -> Option<Pid> {
        self.ended.is_none().then_some(self.pid)
    }

    /// Tells the worker how it went.
    pub(crate) fn farewell(&self, result: Result<(), Refusal>, control: &mut Control) {
        if result.is_ok() && matches!(self.side, Side::Get { .. }) {
            control.notify(&Notice::Data(self.id, Vec::new()));
        }
        control.notify(&Notice::Done(self.id, result));
    }

    /// When it has to have moved.
    pub(crate) fn until(&self) -> Duration {
        self.moved + PATIENCE
    }

    /// No more orders until the child has written some.
    pub(crate) fn holds(&self) -> bool {
        matches!(&self.side, Side::Put(feed) if feed.pending() > UNWRITTEN)
    }

    pub(crate) fn wanted_reads(&self, full: bool) -> Option<BorrowedFd<'_>> {
        match &self.side {
            Side::Get { pipe, .. } if !full => pipe.as_ref().map(AsFd::as_fd),
            _ => None,
        }
    }

    pub(crate) fn wanted_writes(&self) -> Option<BorrowedFd<'_>> {
        match &self.side {
            Side::Put(feed) => feed.wanted(),
            Side::Get { .. } => None,
        }
    }
}

/// Passes on one chunk. `None`: nothing came; an error: more than allowed came.
fn pump(
    id: Id,
    pipe: &mut Option<OwnedFd>,
    left: &mut u64,
    control: &mut Control,
) -> Option<Result<(), ()>> {
    let mut buffer = [0; CHUNK];
    match read(pipe.as_ref()?, &mut buffer) {
        Ok(0) => *pipe = None,
        Ok(count) if count as u64 <= *left => {
            *left -= count as u64;
            control.notify(&Notice::Data(id, buffer[..count].to_vec()));
        }
        Ok(_) => return Some(Err(())),
        Err(Errno::AGAIN | Errno::INTR) => return None,
        Err(_) => *pipe = None,
    }
    Some(Ok(()))
}

fn check(path: &str) -> Result<(), Refusal> {
    if !path.starts_with('/') || path.contains('\0') {
        return Err(Refusal::new(format!(
            "The path {path:?} is not an absolute path."
        )));
    }
    Ok(())
}
