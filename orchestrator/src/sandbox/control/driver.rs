//! The one task behind a conversation: reads frames and routes them, writes orders and heartbeats.
//! The two directions never wait for each other, so a slow taker of events stops no heartbeat.

use std::sync::Arc;

use mayfly_init::protocol::{self, HEADER, Id, MAX_PAYLOAD, Notice, Order, Refusal};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    sync::mpsc,
    time::MissedTickBehavior,
};

use super::{ControlError, Event, Shared, lock};
use crate::clock::{HEARTBEAT, Lease};

const READ: usize = 64 << 10;

/// Cuts a byte stream into frames; holds at most one frame and one read.
#[derive(Default)]
pub(super) struct Frames {
    buffer: Vec<u8>,
    taken: usize,
}

impl Frames {
    /// The next frame; `None` is the end of the stream, also in the middle of a frame.
    async fn next(
        &mut self,
        stream: &mut (impl AsyncRead + Unpin),
    ) -> Result<Option<Notice>, ControlError> {
        loop {
            if let Some((notice, size)) = protocol::decode(&self.buffer[self.taken..])? {
                self.taken += size;
                return Ok(Some(notice));
            }
            self.buffer.drain(..self.taken);
            self.taken = 0;
            let room = READ.min(HEADER + MAX_PAYLOAD + READ - self.buffer.len());
            self.buffer.reserve(room);
            match stream.take(room as u64).read_buf(&mut self.buffer).await {
                Ok(0) => return Ok(None),
                Ok(_) => {}
                // A peer that died with unread orders in its queue resets instead of closing.
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {
                    return Ok(None);
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Takes the first frame, which must be `Ready`.
pub(super) async fn ready(
    frames: &mut Frames,
    stream: &mut (impl AsyncRead + Unpin),
) -> Result<(), ControlError> {
    match frames.next(stream).await? {
        Some(Notice::Ready(_)) => Ok(()),
        Some(_) => Err(ControlError::Turn("its first frame is not Ready")),
        None => Err(ControlError::Closed),
    }
}

pub(super) async fn drive<S: AsyncRead + AsyncWrite>(
    stream: S,
    frames: Frames,
    shared: Arc<Shared>,
    orders: mpsc::Receiver<Order>,
    events: mpsc::Sender<(Id, Event)>,
    lease: Lease,
) {
    let (reader, writer) = tokio::io::split(stream);
    let end = tokio::select! {
        end = read(reader, frames, &shared, &events) => end,
        () = write(writer, orders, lease, &events) => Ok(()),
    };
    if let Err(error) = end {
        tracing::warn!(
            error = &error as &dyn std::error::Error,
            "sandbox conversation broken off"
        );
        shared.fault.set(error).ok();
    }
    lock(&shared.waiting).take();
    lock(&shared.running).clear();
    shared.over.cancel();
}

async fn read(
    mut stream: impl AsyncRead + Unpin,
    mut frames: Frames,
    shared: &Shared,
    events: &mpsc::Sender<(Id, Event)>,
) -> Result<(), ControlError> {
    while let Some(notice) = frames.next(&mut stream).await? {
        let event = match notice {
            Notice::Ready(_) => return Err(ControlError::Turn("a second Ready")),
            Notice::Done(id, result) => {
                answer(shared, id, result);
                continue;
            }
            Notice::Data(id, bytes) => {
                collect(shared, id, &bytes);
                continue;
            }
            Notice::Output(id, stream, bytes) => {
                if !lock(&shared.running).contains(&id) {
                    continue;
                }
                (id, Event::Output(stream, bytes))
            }
            Notice::Exit(id, exit) => {
                if !lock(&shared.running).remove(&id) {
                    continue;
                }
                (id, Event::Exit(exit))
            }
        };
        // Nobody takes events any more: programs may go on, their output is not wanted.
        events.send(event).await.ok();
    }
    Ok(())
}

fn answer(shared: &Shared, id: Id, result: Result<(), Refusal>) {
    let place = lock(&shared.waiting)
        .as_mut()
        .and_then(|waiting| waiting.remove(&id));
    if let Some(place) = place {
        place.answer.send(result.map(|()| place.data)).ok();
    }
}

/// More than the caller's cap is answered at once, so that it is never held.
fn collect(shared: &Shared, id: Id, bytes: &[u8]) {
    let mut waiting = lock(&shared.waiting);
    let Some(place) = waiting.as_mut().and_then(|all| all.get_mut(&id)) else {
        return;
    };
    if (place.data.len() + bytes.len()) as u64 <= place.cap {
        place.data.extend_from_slice(bytes);
        return;
    }
    let cap = place.cap;
    drop(waiting);
    let refusal = Refusal::new(format!("more than {cap} bytes came out of the sandbox"));
    answer(shared, id, Err(refusal));
}

/// Ends when every `Control` and the `Notices` are dropped. A socket that takes nothing more is
/// left to the reader, which still finds what the sandbox said before it closed.
async fn write(
    mut stream: impl AsyncWrite + Unpin,
    mut orders: mpsc::Receiver<Order>,
    lease: Lease,
    events: &mpsc::Sender<(Id, Event)>,
) {
    let mut beat = tokio::time::interval(HEARTBEAT);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut wanted = true;
    let mut frame = Vec::new();
    loop {
        frame.clear();
        tokio::select! {
            biased;
            _ = beat.tick() => {
                if lease.fresh() {
                    protocol::Frame::encode(&Order::Heartbeat, &mut frame);
                }
            }
            order = orders.recv(), if wanted => match order {
                Some(order) => protocol::Frame::encode(&order, &mut frame),
                None => wanted = false,
            },
            () = events.closed(), if !wanted => return,
        }
        if stream.write_all(&frame).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
