//! The worker's end of the control socket: typed orders out, notices in, heartbeats while the
//! lease is fresh.

use std::time::Duration;

use mayfly_init::protocol::{Exit, FrameError, Refusal, Signal, Start, Stream};
use tokio::sync::mpsc;

/// Why the conversation with init ended or an order failed.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The sandbox is gone.
    #[error("the sandbox closed its control connection")]
    Closed,
    /// Init, or whoever speaks in its place, broke the contract.
    #[error("the sandbox sent a malformed frame")]
    Frame(#[from] FrameError),
    /// Something that is not this sandbox's init connected.
    #[error("a stranger connected to the control socket: {0}")]
    Stranger(String),
    /// Init said no.
    #[error("{0}")]
    Refused(#[from] Refusal),
    /// No answer in time.
    #[error("no answer from the sandbox within {0:?}")]
    Late(Duration),
    /// The socket failed.
    #[error("the control connection failed")]
    Io(#[from] std::io::Error),
}

/// What a running program does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Bytes of a stream, or the count of bytes cut from it.
    Output(Stream, Vec<u8>),
    /// The end.
    Exit(Exit),
}

/// Receives what programs do. `None` is the end of the sandbox.
#[derive(Debug)]
pub struct Notices {
    receiver: mpsc::Receiver<(u32, Event)>,
}

impl Notices {
    /// The next event of any program, by its id.
    pub async fn next(&mut self) -> Option<(u32, Event)> {
        self.receiver.recv().await
    }
}

/// Sends orders; cheap to clone.
#[derive(Debug, Clone)]
pub struct Control {}

impl Control {
    /// Starts a program and returns its id once it runs.
    pub async fn start(&self, _start: Start) -> Result<u32, ControlError> {
        unimplemented!()
    }
    /// Writes to its standard input.
    pub async fn stdin(&self, _id: u32, _bytes: Vec<u8>) -> Result<(), ControlError> {
        unimplemented!()
    }
    /// Ends its standard input.
    pub async fn close_stdin(&self, _id: u32) -> Result<(), ControlError> {
        unimplemented!()
    }
    /// Signals its process group.
    pub async fn signal(&self, _id: u32, _signal: Signal) -> Result<(), ControlError> {
        unimplemented!()
    }
    /// Writes a file as the agent.
    pub async fn put(&self, _path: &str, _mode: u32, _bytes: &[u8]) -> Result<(), ControlError> {
        unimplemented!()
    }
    /// Reads a file as the agent.
    pub async fn get(&self, _path: &str, _cap: u64) -> Result<Vec<u8>, ControlError> {
        unimplemented!()
    }
    /// Stops every process but init.
    pub async fn pause(&self) -> Result<(), ControlError> {
        unimplemented!()
    }
    /// Continues them.
    pub async fn resume(&self) -> Result<(), ControlError> {
        unimplemented!()
    }
    /// Opens the way from 127.0.0.1:`port` to the gateway socket.
    pub async fn forward(&self, _port: u16, _cap: u32) -> Result<(), ControlError> {
        unimplemented!()
    }
    /// Kills everything and ends the sandbox.
    pub async fn end(&self) -> Result<(), ControlError> {
        unimplemented!()
    }
}
