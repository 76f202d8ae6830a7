//! The wire contract between a worker and PID 1 of a sandbox.
//!
//! Both sides treat the other's frames as hostile input: a frame of another version, of an unknown
//! kind, over its length cap or with a malformed payload is an error, never a guess.
//!
//! A frame is a 10-byte header and a payload:
//!
//! | bytes | field |
//! |---|---|
//! | 4 | payload length, big endian, at most [`MAX_PAYLOAD`] |
//! | 1 | [`VERSION`] |
//! | 1 | kind |
//! | 4 | id, big endian: the process or transfer the frame is about, 0 where neither |
//! | n | payload: raw bytes for streams, JSON for structures, nothing for signals of life |
//!
//! The worker speaks [`Order`]s, init speaks [`Notice`]s. Ids are chosen by the worker.

use serde::{Deserialize, Serialize};

/// Version of the wire contract. Both sides refuse any other.
pub const VERSION: u8 = 1;
/// Bytes in a frame's header.
pub const HEADER: usize = 10;
/// Most bytes in one frame's payload. Longer streams are cut into several frames.
pub const MAX_PAYLOAD: usize = 1 << 20;
/// Most bytes a sender of a stream should put into one frame.
pub const CHUNK: usize = 64 << 10;

/// A process inside the sandbox, or a transfer into or out of it; chosen by the worker.
pub type Id = u32;

/// What the worker asks of init.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Order {
    /// Run a program as the agent's user. Answered by `Done` when it runs (or could not be
    /// started), then by `Output` frames and one `Exit`.
    Start(Id, Start),
    /// Bytes for the program's standard input.
    Stdin(Id, Vec<u8>),
    /// The end of the program's standard input.
    CloseStdin(Id),
    /// Send this signal to the program's process group.
    Signal(Id, Signal),
    /// Stop every process but init, repeated until all are stopped. Answered by `Done`.
    Pause(Id),
    /// Continue every process. Answered by `Done`.
    Resume(Id),
    /// Begin a file; its bytes follow as `Data`, its end as an empty `Data`. Written by a child
    /// with the agent's uid. Answered by `Done` after the end.
    Put(Id, Put),
    /// Bytes of the `Put` with this id; empty means end.
    Data(Id, Vec<u8>),
    /// Send a file's bytes as `Data`, an empty `Data`, then `Done`. Read by a child with the
    /// agent's uid, links not followed.
    Get(Id, Get),
    /// The worker lives and holds its claim. Without one for the heartbeat limit, init kills all.
    Heartbeat,
    /// Listen on this loopback port; each client is joined to a fresh connection to the gateway
    /// socket. Answered by `Done`.
    Forward(Id, Forward),
    /// Kill everything and exit with code 0.
    End,
}

/// What init tells the worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// Mounts are as promised; orders are awaited. The first frame of a connection.
    Ready(Ready),
    /// Bytes the program wrote.
    Output(Id, Stream, Vec<u8>),
    /// The program ended, its leftover children are killed and its output is drained.
    Exit(Id, Exit),
    /// The order with this id is carried out, or why it could not be.
    Done(Id, Result<(), Refusal>),
    /// Bytes of the `Get` with this id; empty means end.
    Data(Id, Vec<u8>),
}

/// A program to run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Start {
    /// Program and arguments; the first is searched in `PATH` of `env`.
    pub argv: Vec<String>,
    /// The whole environment.
    pub env: Vec<(String, String)>,
    /// Working directory, absolute; entered after the change of user.
    pub cwd: String,
    /// Most bytes sent of each stream from its beginning; past them only the last `tail` bytes
    /// are kept and sent at the end, after a `Stream::Cut` notice that tells the dropped count.
    pub head: u64,
    /// Bytes kept of the end of each stream once `head` is passed.
    pub tail: u64,
}

/// A file to write.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Put {
    /// Absolute path; missing folders are made, links in it are followed as the agent would.
    pub path: String,
    /// Permission bits.
    pub mode: u32,
    /// Bytes to come; more or fewer is an error.
    pub size: u64,
}

/// A file to read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Get {
    /// Absolute path of a regular file.
    pub path: String,
    /// Most bytes; a longer file is refused.
    pub cap: u64,
}

/// A loopback listener that leads to the gateway socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Forward {
    /// Port on 127.0.0.1.
    pub port: u16,
    /// Most connections at once; more are closed at once.
    pub cap: u32,
}

/// Init's first words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ready {
    /// Init's package version, for people.
    pub build: String,
}

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exit {
    /// Exit code, where the program ended by itself.
    pub code: Option<i32>,
    /// Signal number, where a signal ended it.
    pub signal: Option<i32>,
    /// The sandbox's out-of-memory counter rose while the program ran.
    pub oom: bool,
}

/// A stream of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// Not bytes of the program: 8 bytes, big endian, the count dropped from standard output;
    /// sent before the kept tail.
    StdoutCut,
    /// The same of standard error.
    StderrCut,
}

/// Signals a worker may send to a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Signal {
    /// SIGINT.
    Interrupt,
    /// SIGTERM.
    Terminate,
    /// SIGKILL.
    Kill,
}

/// Why an order could not be carried out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(deny_unknown_fields)]
#[error("{reason}")]
pub struct Refusal {
    /// One sentence.
    pub reason: String,
}

impl Refusal {
    /// A refusal with this sentence.
    pub fn new(reason: impl Into<String>) -> Self {
        Refusal {
            reason: reason.into(),
        }
    }
}

/// What is wrong with a frame. Each ends the connection.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The peer speaks another version of this contract.
    #[error("frame of version {0}, this side speaks {VERSION}")]
    Version(u8),
    /// The peer's length field passes the cap.
    #[error("frame of {0} bytes, at most {MAX_PAYLOAD} are allowed")]
    TooLong(u32),
    /// No frame of this direction has this kind.
    #[error("unknown frame kind {0}")]
    Kind(u8),
    /// The payload is not what the kind promises.
    #[error("malformed payload in a frame of kind {kind}: {detail}")]
    Payload {
        /// The frame's kind.
        kind: u8,
        /// What was found.
        detail: String,
    },
}

/// One direction of the conversation.
pub trait Frame: Sized {
    /// Appends the frame's bytes to `out`.
    fn encode(&self, out: &mut Vec<u8>);
    /// Reads a frame whose header is already checked.
    fn from_parts(kind: u8, id: Id, payload: &[u8]) -> Result<Self, FrameError>;
}

/// Takes one frame from the front of `buffer`. `Ok(None)` means more bytes are needed; the
/// header is judged before its payload is waited for.
pub fn decode<F: Frame>(buffer: &[u8]) -> Result<Option<(F, usize)>, FrameError> {
    let Some(header) = buffer.first_chunk::<HEADER>() else {
        return Ok(None);
    };
    let length = u32::from_be_bytes([header[0], header[1], header[2], header[3]]);
    if header[4] != VERSION {
        return Err(FrameError::Version(header[4]));
    }
    if length as usize > MAX_PAYLOAD {
        return Err(FrameError::TooLong(length));
    }
    let end = HEADER + length as usize;
    let Some(payload) = buffer.get(HEADER..end) else {
        return Ok(None);
    };
    let id = u32::from_be_bytes([header[6], header[7], header[8], header[9]]);
    Ok(Some((F::from_parts(header[5], id, payload)?, end)))
}

fn put(out: &mut Vec<u8>, kind: u8, id: Id, payload: &[u8]) {
    debug_assert!(payload.len() <= MAX_PAYLOAD);
    out.extend_from_slice(&(payload.len() as u32).to_be_bytes());
    out.extend_from_slice(&[VERSION, kind]);
    out.extend_from_slice(&id.to_be_bytes());
    out.extend_from_slice(payload);
}

fn put_json(out: &mut Vec<u8>, kind: u8, id: Id, value: &impl Serialize) {
    let json = serde_json::to_vec(value).expect("wire structures hold nothing JSON cannot");
    put(out, kind, id, &json);
}

fn json<'a, T: Deserialize<'a>>(kind: u8, payload: &'a [u8]) -> Result<T, FrameError> {
    serde_json::from_slice(payload).map_err(|error| FrameError::Payload {
        kind,
        detail: error.to_string(),
    })
}

fn empty(kind: u8, payload: &[u8]) -> Result<(), FrameError> {
    if payload.is_empty() {
        return Ok(());
    }
    Err(FrameError::Payload {
        kind,
        detail: format!("{} bytes where none belong", payload.len()),
    })
}

impl Frame for Order {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Order::Start(id, start) => put_json(out, 1, *id, start),
            Order::Stdin(id, bytes) => put(out, 2, *id, bytes),
            Order::CloseStdin(id) => put(out, 3, *id, &[]),
            Order::Signal(id, signal) => put_json(out, 4, *id, signal),
            Order::Pause(id) => put(out, 5, *id, &[]),
            Order::Resume(id) => put(out, 6, *id, &[]),
            Order::Put(id, file) => put_json(out, 7, *id, file),
            Order::Data(id, bytes) => put(out, 8, *id, bytes),
            Order::Get(id, file) => put_json(out, 9, *id, file),
            Order::Heartbeat => put(out, 10, 0, &[]),
            Order::Forward(id, forward) => put_json(out, 11, *id, forward),
            Order::End => put(out, 12, 0, &[]),
        }
    }

    fn from_parts(kind: u8, id: Id, payload: &[u8]) -> Result<Self, FrameError> {
        Ok(match kind {
            1 => Order::Start(id, json(kind, payload)?),
            2 => Order::Stdin(id, payload.to_vec()),
            3 => empty(kind, payload).map(|()| Order::CloseStdin(id))?,
            4 => Order::Signal(id, json(kind, payload)?),
            5 => empty(kind, payload).map(|()| Order::Pause(id))?,
            6 => empty(kind, payload).map(|()| Order::Resume(id))?,
            7 => Order::Put(id, json(kind, payload)?),
            8 => Order::Data(id, payload.to_vec()),
            9 => Order::Get(id, json(kind, payload)?),
            10 => empty(kind, payload).map(|()| Order::Heartbeat)?,
            11 => Order::Forward(id, json(kind, payload)?),
            12 => empty(kind, payload).map(|()| Order::End)?,
            other => return Err(FrameError::Kind(other)),
        })
    }
}

const STREAMS: [Stream; 4] = [
    Stream::Stdout,
    Stream::Stderr,
    Stream::StdoutCut,
    Stream::StderrCut,
];
const OUTPUT: u8 = 34;

impl Frame for Notice {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Notice::Ready(ready) => put_json(out, 33, 0, ready),
            Notice::Output(id, stream, bytes) => put(out, OUTPUT + *stream as u8, *id, bytes),
            Notice::Exit(id, exit) => put_json(out, 38, *id, exit),
            Notice::Done(id, result) => put_json(out, 39, *id, &result.as_ref().err()),
            Notice::Data(id, bytes) => put(out, 40, *id, bytes),
        }
    }

    fn from_parts(kind: u8, id: Id, payload: &[u8]) -> Result<Self, FrameError> {
        Ok(match kind {
            33 => Notice::Ready(json(kind, payload)?),
            34..=37 => {
                let stream = STREAMS[(kind - OUTPUT) as usize];
                if matches!(stream, Stream::StdoutCut | Stream::StderrCut) && payload.len() != 8 {
                    let detail = format!("a count of {} bytes instead of 8", payload.len());
                    return Err(FrameError::Payload { kind, detail });
                }
                Notice::Output(id, stream, payload.to_vec())
            }
            38 => Notice::Exit(id, json(kind, payload)?),
            39 => Notice::Done(
                id,
                json::<Option<Refusal>>(kind, payload)?.map_or(Ok(()), Err),
            ),
            40 => Notice::Data(id, payload.to_vec()),
            other => return Err(FrameError::Kind(other)),
        })
    }
}
