//! Collects every process that ended, also those whose parents left them to PID 1.

use rustix::io::Errno;
use rustix::process::{Pid, WaitOptions, WaitStatus, wait};

/// Most in one turn, so that a fork bomb cannot keep init from its deadlines.
const BATCH: usize = 512;

pub(crate) struct Reaped {
    pub(crate) ended: Vec<(Pid, WaitStatus)>,
    /// No process is left at all.
    pub(crate) alone: bool,
    /// The batch was full.
    pub(crate) more: bool,
}

pub(crate) fn reap() -> Reaped {
    let mut reaped = Reaped {
        ended: Vec::new(),
        alone: false,
        more: true,
    };
    while reaped.ended.len() < BATCH {
        match wait(WaitOptions::NOHANG) {
            Ok(Some(end)) => reaped.ended.push(end),
            Err(Errno::INTR) => {}
            result => {
                reaped.alone = result.is_err();
                reaped.more = false;
                break;
            }
        }
    }
    reaped
}
