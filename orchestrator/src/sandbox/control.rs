//! The worker's end of the control socket: typed orders out, notices in, heartbeats while the
//! lease is fresh.
//!
//! Frames of the sandbox are hostile input. A malformed one ends the conversation; an answer, data
//! or output that nobody waits for is dropped; what is kept has a bound: one frame being read,
//! [`PENDING`] events not yet taken, and per `get` the cap its caller named.
//!
//! Who holds a [`Notices`] must keep taking from it: while [`PENDING`] events wait, nothing more is
//! read from the sandbox, answers to orders included. Orders and heartbeats still go out. When all
//! [`Control`]s and the [`Notices`] are dropped the connection closes, and init ends the sandbox.

mod driver;
#[cfg(test)]
mod tests;

use std::{
    collections::{HashMap, HashSet},
    future::Future,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use futures_util::{StreamExt as _, stream};
use mayfly_init::protocol::{
    CHUNK, Exit, Forward, FrameError, Get, Id, MAX_PAYLOAD, Order, Put, Refusal, Signal, Start,
    Stream,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::{mpsc, oneshot},
};
use tokio_util::sync::CancellationToken;

use crate::{clock::Lease, supervise::Supervisor};

/// Events kept for a slow taker; each has at most one frame's payload.
pub const PENDING: usize = 8;
/// Longest wait for the answer to an order that moves no bytes.
const ANSWER: Duration = Duration::from_secs(30);
/// Longest wait for a small file to go in or come out.
const TRANSFER: Duration = Duration::from_secs(120);
/// Slower than this a second is no transfer any more.
const SLOWEST: u64 = 1 << 20;

/// Longest wait for so many bytes to go in or come out.
pub fn transfer_time(bytes: u64) -> Duration {
    TRANSFER + Duration::from_secs(bytes / SLOWEST)
}

/// Why the conversation with init ended or an order failed.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The sandbox is gone.
    #[error("the sandbox closed its control connection")]
    Closed,
    /// Init, or whoever speaks in its place, broke the contract.
    #[error("the sandbox sent a malformed frame")]
    Frame(#[from] FrameError),
    /// Well-formed, and not what the contract allows at this point.
    #[error("the sandbox spoke out of turn: {0}")]
    Turn(&'static str),
    /// Something that is not this sandbox's init connected.
    #[error("a stranger connected to the control socket: {0}")]
    Stranger(String),
    /// Init said no.
    #[error("{0}")]
    Refused(#[from] Refusal),
    /// What was to be put could not be read.
    #[error("a file for the sandbox could not be read")]
    Source(#[source] std::io::Error),
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
    /// The end; the last event of its program.
    Exit(Exit),
}

/// Receives what programs do. `None` is the end of the sandbox.
#[derive(Debug)]
pub struct Notices {
    receiver: mpsc::Receiver<(Id, Event)>,
    shared: Arc<Shared>,
}

impl Notices {
    /// The next event of any program, by its id.
    pub async fn next(&mut self) -> Option<(Id, Event)> {
        self.receiver.recv().await
    }

    /// After the end: what was wrong with it; `None` where the sandbox just closed.
    pub fn fault(&self) -> Option<&ControlError> {
        self.shared.fault.get()
    }
}

/// Sends orders; cheap to clone.
#[derive(Debug, Clone)]
pub struct Control {
    shared: Arc<Shared>,
    orders: mpsc::Sender<Order>,
}

/// What callers and the driver share.
#[derive(Debug, Default)]
struct Shared {
    next: AtomicU32,
    /// `None` once the conversation is over: nobody can begin to wait any more.
    waiting: Mutex<Option<HashMap<Id, Waiting>>>,
    /// Programs whose output is wanted: started, and no exit seen.
    running: Mutex<HashSet<Id>>,
    fault: OnceLock<ControlError>,
    over: CancellationToken,
}

/// One order whose answer is awaited.
#[derive(Debug)]
struct Waiting {
    answer: oneshot::Sender<Result<Vec<u8>, Refusal>>,
    data: Vec<u8>,
    cap: u64,
}

/// An order's place among the waiting; gives it up when dropped.
struct Seat<'a> {
    shared: &'a Shared,
    id: Id,
    answer: oneshot::Receiver<Result<Vec<u8>, Refusal>>,
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        if let Some(waiting) = lock(&self.shared.waiting).as_mut() {
            waiting.remove(&self.id);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl Shared {
    fn seat(&self, id: Id, cap: u64) -> Result<Seat<'_>, ControlError> {
        let (sender, answer) = oneshot::channel();
        let place = Waiting {
            answer: sender,
            data: Vec::new(),
            cap,
        };
        match lock(&self.waiting).as_mut() {
            Some(waiting) => waiting.insert(id, place),
            None => return Err(ControlError::Closed),
        };
        Ok(Seat {
            shared: self,
            id,
            answer,
        })
    }
}

/// Opens the conversation on a fresh connection: waits for init's `Ready`, at most `patience`,
/// then keeps it alive by a task of its own.
pub async fn open<S>(
    mut stream: S,
    supervisor: &Supervisor,
    lease: Lease,
    patience: Duration,
) -> Result<(Control, Notices), ControlError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut reader = driver::Frames::default();
    within(patience, driver::ready(&mut reader, &mut stream)).await?;
    let shared = Arc::new(Shared {
        waiting: Mutex::new(Some(HashMap::new())),
        ..Shared::default()
    });
    let (orders, outbound) = mpsc::channel(PENDING);
    let (inbound, receiver) = mpsc::channel(PENDING);
    supervisor.task(
        "sandbox control",
        driver::drive(stream, reader, shared.clone(), outbound, inbound, lease),
    );
    let control = Control {
        shared: shared.clone(),
        orders,
    };
    Ok((control, Notices { receiver, shared }))
}

async fn within<T>(
    patience: Duration,
    work: impl Future<Output = Result<T, ControlError>>,
) -> Result<T, ControlError> {
    tokio::time::timeout(patience, work)
        .await
        .unwrap_or(Err(ControlError::Late(patience)))
}

impl Control {
    /// Starts a program and returns its id once it runs.
    pub async fn start(&self, start: Start) -> Result<Id, ControlError> {
        let size = serde_json::to_vec(&start).map_or(usize::MAX, |json| json.len());
        if size > MAX_PAYLOAD {
            return Err(too_large("arguments and environment", size).into());
        }
        let id = self.id();
        lock(&self.shared.running).insert(id);
        let begun = self.ask(id, Order::Start(id, start)).await;
        if begun.is_err() {
            lock(&self.shared.running).remove(&id);
        }
        begun.map(|()| id)
    }

    /// Writes to its standard input.
    pub async fn stdin(&self, id: Id, bytes: Vec<u8>) -> Result<(), ControlError> {
        for chunk in bytes.chunks(CHUNK) {
            self.send(Order::Stdin(id, chunk.to_vec())).await?;
        }
        Ok(())
    }

    /// Ends its standard input.
    pub async fn close_stdin(&self, id: Id) -> Result<(), ControlError> {
        self.send(Order::CloseStdin(id)).await
    }

    /// Signals its process group.
    pub async fn signal(&self, id: Id, signal: Signal) -> Result<(), ControlError> {
        self.send(Order::Signal(id, signal)).await
    }

    /// Writes a file as the agent.
    pub async fn put(&self, path: &str, mode: u32, bytes: &[u8]) -> Result<(), ControlError> {
        let put = Put {
            path: checked(path)?,
            mode,
            size: bytes.len() as u64,
        };
        self.put_stream(put, stream::iter([Ok(bytes)])).await
    }

    /// Writes a file as the agent while its content is read; `content` must have `put.size` bytes.
    pub async fn put_stream<B: AsRef<[u8]>>(
        &self,
        put: Put,
        content: impl futures_util::Stream<Item = std::io::Result<B>>,
    ) -> Result<(), ControlError> {
        checked(&put.path)?;
        let patience = transfer_time(put.size);
        let id = self.id();
        let mut seat = self.shared.seat(id, 0)?;
        let sending = async {
            self.send(Order::Put(id, put)).await?;
            let mut content = std::pin::pin!(content);
            while let Some(bytes) = content.next().await {
                let bytes = bytes.map_err(ControlError::Source)?;
                for chunk in bytes.as_ref().chunks(CHUNK) {
                    self.send(Order::Data(id, chunk.to_vec())).await?;
                }
            }
            self.send(Order::Data(id, Vec::new())).await
        };
        within(patience, async {
            tokio::select! {
                biased;
                early = &mut seat.answer => return outcome(early).map(drop),
                sent = sending => sent?,
            }
            outcome((&mut seat.answer).await).map(drop)
        })
        .await
    }

    /// Reads a file as the agent.
    pub async fn get(&self, path: &str, cap: u64) -> Result<Vec<u8>, ControlError> {
        let get = Get {
            path: checked(path)?,
            cap,
        };
        let id = self.id();
        let mut seat = self.shared.seat(id, cap)?;
        within(TRANSFER, async {
            self.send(Order::Get(id, get)).await?;
            outcome((&mut seat.answer).await)
        })
        .await
    }

    /// Stops every process but init.
    pub async fn pause(&self) -> Result<(), ControlError> {
        let id = self.id();
        self.ask(id, Order::Pause(id)).await
    }

    /// Continues them.
    pub async fn resume(&self) -> Result<(), ControlError> {
        let id = self.id();
        self.ask(id, Order::Resume(id)).await
    }

    /// Opens the way from 127.0.0.1:`port` to the gateway socket.
    pub async fn forward(&self, port: u16, cap: u32) -> Result<(), ControlError> {
        let id = self.id();
        self.ask(id, Order::Forward(id, Forward { port, cap }))
            .await
    }

    /// Kills everything and ends the sandbox; returns when it has closed the connection.
    pub async fn end(&self) -> Result<(), ControlError> {
        within(ANSWER, async {
            match self.send(Order::End).await {
                Ok(()) => self.shared.over.cancelled().await,
                Err(ControlError::Closed) => {}
                Err(error) => return Err(error),
            }
            Ok(())
        })
        .await
    }

    /// Resolves when the conversation is over, however it ended.
    pub async fn closed(&self) {
        self.shared.over.cancelled().await;
    }

    fn id(&self) -> Id {
        self.shared.next.fetch_add(1, Ordering::Relaxed) + 1
    }

    async fn send(&self, order: Order) -> Result<(), ControlError> {
        tokio::select! {
            biased;
            () = self.shared.over.cancelled() => Err(ControlError::Closed),
            sent = self.orders.send(order) => sent.map_err(|_| ControlError::Closed),
        }
    }

    async fn ask(&self, id: Id, order: Order) -> Result<(), ControlError> {
        let mut seat = self.shared.seat(id, 0)?;
        within(ANSWER, async {
            self.send(order).await?;
            outcome((&mut seat.answer).await).map(drop)
        })
        .await
    }
}

type Answer = Result<Result<Vec<u8>, Refusal>, oneshot::error::RecvError>;

fn outcome(answer: Answer) -> Result<Vec<u8>, ControlError> {
    Ok(answer.map_err(|_| ControlError::Closed)??)
}

fn checked(path: &str) -> Result<String, ControlError> {
    if path.len() > 4096 {
        return Err(too_large("path", path.len()).into());
    }
    Ok(path.to_owned())
}

fn too_large(what: &str, size: usize) -> Refusal {
    Refusal::new(format!("{what} of {size} bytes do not fit into one order"))
}
