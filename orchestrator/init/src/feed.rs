//! Bytes on their way into a pipe that may be slow, full or closed.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::{Errno, write};

/// The writing end of a non-blocking pipe and what it has not taken yet.
pub(crate) struct Feed {
    pipe: Option<OwnedFd>,
    pending: VecDeque<u8>,
    ending: bool,
}

impl Feed {
    pub(crate) fn new(pipe: OwnedFd) -> Feed {
        Feed {
            pipe: Some(pipe),
            pending: VecDeque::new(),
            ending: false,
        }
    }

    /// Bytes after the end or into a closed pipe are dropped.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        if self.pipe.is_some() && !self.ending {
            self.pending.extend(bytes);
        }
    }

    /// The pipe is closed once it took what is pending.
    pub(crate) fn end(&mut self) {
        self.ending = true;
    }

    /// Closes the pipe now and drops what is pending.
    pub(crate) fn abandon(&mut self) {
        self.pipe = None;
        self.pending = VecDeque::new();
    }

    pub(crate) fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Writes once if the pipe takes it; a reader that is gone is no error. Returns the count.
    pub(crate) fn step(&mut self) -> usize {
        let Some(pipe) = &self.pipe else { return 0 };
        let mut written = 0;
        if !self.pending.is_empty() {
            match write(pipe, self.pending.as_slices().0) {
                Ok(count) => {
                    self.pending.drain(..count);
                    written = count;
                }
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(_) => self.abandon(),
            }
        }
        if self.ending && self.pending.is_empty() {
            self.pipe = None;
        }
        written
    }

    /// What to wait for, if anything.
    pub(crate) fn wanted(&self) -> Option<BorrowedFd<'_>> {
        let idle = self.pending.is_empty() && !self.ending;
        self.pipe.as_ref().filter(|_| !idle).map(AsFd::as_fd)
    }
}
