//! Signals as readable events: SIGCHLD only wakes the loop, SIGTERM is the engine's wish to end.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::read;

use crate::kernel;

/// Size of `struct signalfd_siginfo`; the signal's number is its first field.
const RECORD: usize = 128;

pub(crate) struct Signals(OwnedFd);

impl Signals {
    pub(crate) fn watch() -> std::io::Result<Signals> {
        kernel::watch_signals().map(Signals)
    }

    /// Empties the queue. `true`: the engine wants the end.
    pub(crate) fn step(&self) -> bool {
        let mut record = [0; RECORD];
        let mut terminate = false;
        while let Ok(RECORD) = read(&self.0, &mut record) {
            let number = record.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes));
            terminate |= number == Some(libc::SIGTERM as u32);
        }
        terminate
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
