//! The connection to the worker. Its frames are hostile input; what goes out is bounded by its
//! users, who produce nothing while it is [full](Control::full).

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::time::Duration;

use mayfly_init::exit::Code;
use mayfly_init::protocol::{Frame, Notice, Order, decode};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, read};
use rustix::net::{
    AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, send, socket_with,
};

use crate::deadline;

/// Past this many unsent bytes nothing more is read from programs and files.
const FULL: usize = 4 << 20;
const READ: usize = 256 << 10;
const BETWEEN_DIALS: rustix::time::Timespec = rustix::time::Timespec {
    tv_sec: 0,
    tv_nsec: 10_000_000,
};

pub(crate) struct Control {
    socket: OwnedFd,
    received: Vec<u8>,
    /// How much of `received` is already decoded.
    taken: usize,
    unsent: VecDeque<u8>,
    chunk: Vec<u8>,
}

/// What one look at the socket brought.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Received {
    /// Perhaps more is waiting.
    Some,
    /// Nothing is waiting.
    Nothing,
    /// The worker will say nothing more.
    End,
}

impl Control {
    /// Dials until somebody listens or the time is over.
    pub(crate) fn connect(path: &str, within: Duration) -> Result<Control, String> {
        let until = deadline::now() + within;
        loop {
            match dial(path) {
                Ok(socket) => {
                    let (received, unsent, chunk) = (Vec::new(), VecDeque::new(), vec![0; READ]);
                    return Ok(Control {
                        socket,
                        received,
                        taken: 0,
                        unsent,
                        chunk,
                    });
                }
                Err(error) if deadline::now() >= until => return Err(format!("{path}: {error}")),
                Err(_) => {
                    let _ = poll(&mut [], Some(&BETWEEN_DIALS));
                }
            }
        }
    }

    pub(crate) fn receive(&mut self) -> Received {
        match read(&self.socket, &mut self.chunk[..]) {
            Ok(0) => Received::End,
            Ok(count) => {
                self.received.drain(..std::mem::take(&mut self.taken));
                self.received.extend_from_slice(&self.chunk[..count]);
                Received::Some
            }
            Err(Errno::AGAIN) => Received::Nothing,
            Err(Errno::INTR) => Received::Some,
            Err(_) => Received::End,
        }
    }

    /// The next whole order.
    pub(crate) fn order(&mut self) -> Result<Option<Order>, (Code, String)> {
        match decode(&self.received[self.taken..]) {
            Ok(Some((order, length))) => {
                self.taken += length;
                Ok(Some(order))
            }
            Ok(None) => Ok(None),
            Err(error) => Err((Code::BadFrame, error.to_string())),
        }
    }

    pub(crate) fn notify(&mut self, notice: &Notice) {
        let mut bytes = Vec::new();
        notice.encode(&mut bytes);
        self.unsent.extend(bytes);
    }

    /// Sends what the socket takes.
    pub(crate) fn flush(&mut self) -> Result<(), (Code, String)> {
        while !self.unsent.is_empty() {
            match send(&self.socket, self.unsent.as_slices().0, SendFlags::NOSIGNAL) {
                Ok(count) => drop(self.unsent.drain(..count)),
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(error) => return Err((Code::ControlClosed, error.to_string())),
            }
        }
        Ok(())
    }

    pub(crate) fn full(&self) -> bool {
        self.unsent.len() > FULL
    }

    /// What to wait for, if anything; `held`: no order is taken for now.
    pub(crate) fn wanted(&self, held: bool) -> Option<PollFd<'_>> {
        let mut flags = if held {
            PollFlags::empty()
        } else {
            PollFlags::IN
        };
        if !self.unsent.is_empty() {
            flags |= PollFlags::OUT;
        }
        // Without a flag a closed connection would still wake the loop, over and over.
        (!flags.is_empty()).then(|| PollFd::new(&self.socket, flags))
    }
}

/// A non-blocking connection to the unix socket at `path`.
pub(crate) fn dial(path: &str) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}
