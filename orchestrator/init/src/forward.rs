//! A loopback port that leads to the gateway: each client gets a connection of its own.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use mayfly_init::protocol::{Forward, Refusal};
use rustix::io::{Errno, read};
use rustix::net::sockopt::set_socket_reuseaddr;
use rustix::net::{
    AddressFamily, SendFlags, Shutdown, SocketFlags, SocketType, accept_with, bind, listen, send,
    shutdown, socket_with,
};

use crate::control::dial;

/// More at once are never needed and would use up the handles.
const MOST_CLIENTS: u32 = 256;
const BUFFER: usize = 64 << 10;
const BACKLOG: i32 = 64;
const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

pub(crate) struct Forwarder {
    listener: OwnedFd,
    gateway: String,
    cap: usize,
    joints: Vec<Joint>,
    /// The listener gives an error, such as no handles left: it is asked again, not waited for.
    stuck: bool,
}

impl Forwarder {
    pub(crate) fn new(order: Forward, gateway: String) -> Result<Forwarder, Refusal> {
        if !(1..=MOST_CLIENTS).contains(&order.cap) {
            let reason = format!("A port takes 1 to {MOST_CLIENTS} connections at once.");
            return Err(Refusal::new(reason));
        }
        let listener = listener(order.port).map_err(|error| {
            Refusal::new(format!(
                "Port {} cannot be listened on: {error}.",
                order.port
            ))
        })?;
        Ok(Forwarder {
            listener,
            gateway,
            cap: order.cap as usize,
            joints: Vec::new(),
            stuck: false,
        })
    }

    /// Takes at most a few new clients and moves one buffer each way on every connection.
    pub(crate) fn step(&mut self) {
        for _ in 0..BACKLOG {
            let client = match accept_with(&self.listener, FLAGS) {
                Ok(client) => client,
                Err(error) => {
                    self.stuck = !matches!(error, Errno::AGAIN | Errno::INTR | Errno::CONNABORTED);
                    break;
                }
            };
            // A client over the cap and one the gateway does not take are closed by the drop.
            if self.joints.len() < self.cap
                && let Ok(gateway) = dial(&self.gateway)
            {
                self.joints.push(Joint {
                    ends: [client, gateway],
                    ways: [Way::new(), Way::new()],
                });
            }
        }
        self.joints.retain_mut(|joint| joint.step().is_ok());
    }

    pub(crate) fn wanted_reads(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let sources = self.joints.iter().flat_map(|joint| {
            let wants = |way: usize| {
                joint.ways[way]
                    .wants_bytes()
                    .then(|| joint.ends[way].as_fd())
            };
            [wants(0), wants(1)].into_iter().flatten()
        });
        sources.chain((!self.stuck).then(|| self.listener.as_fd()))
    }

    pub(crate) fn wanted_writes(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.joints.iter().flat_map(|joint| {
            let wants = |way: usize| {
                joint.ways[way]
                    .has_bytes()
                    .then(|| joint.ends[1 - way].as_fd())
            };
            [wants(0), wants(1)].into_iter().flatten()
        })
    }
}

fn listener(port: u16) -> Result<OwnedFd, Errno> {
    let listener = socket_with(AddressFamily::INET, SocketType::STREAM, FLAGS, None)?;
    set_socket_reuseaddr(&listener, true)?;
    bind(&listener, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, port))?;
    listen(&listener, BACKLOG)?;
    Ok(listener)
}

/// A client and its gateway connection; way `n` leads from end `n` to the other.
struct Joint {
    ends: [OwnedFd; 2],
    ways: [Way; 2],
}

/// One direction.
struct Way {
    buffer: Vec<u8>,
    sent: usize,
    source_ended: bool,
    closed: bool,
}

impl Joint {
    /// An error ends both connections.
    fn step(&mut self) -> Result<(), Errno> {
        let [client, gateway] = &self.ends;
        self.ways[0].step(client, gateway)?;
        self.ways[1].step(gateway, client)?;
        if self.ways.iter().all(|way| way.closed) {
            Err(Errno::PIPE)
        } else {
            Ok(())
        }
    }
}

impl Way {
    fn new() -> Way {
        Way {
            buffer: Vec::new(),
            sent: 0,
            source_ended: false,
            closed: false,
        }
    }

    fn wants_bytes(&self) -> bool {
        self.buffer.is_empty() && !self.source_ended
    }

    fn has_bytes(&self) -> bool {
        !self.buffer.is_empty()
    }

    fn step(&mut self, from: &OwnedFd, to: &OwnedFd) -> Result<(), Errno> {
        if self.wants_bytes() {
            let mut chunk = [0; BUFFER];
            match read(from, &mut chunk) {
                Ok(0) => self.source_ended = true,
                Ok(count) => self.buffer.extend_from_slice(&chunk[..count]),
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
        if self.has_bytes() {
            match send(to, &self.buffer[self.sent..], SendFlags::NOSIGNAL) {
                Ok(count) => self.sent += count,
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(error) => return Err(error),
            }
            if self.sent == self.buffer.len() {
                self.buffer = Vec::new();
                self.sent = 0;
            }
        }
        if self.source_ended && self.buffer.is_empty() && !self.closed {
            self.closed = true;
            // A peer that is gone already needs no end of stream.
            let _ = shutdown(to, Shutdown::Write);
        }
        Ok(())
    }
}
