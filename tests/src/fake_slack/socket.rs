//! Socket Mode: hello, envelopes with their acknowledgements, and every way a socket ends.

use std::{sync::Arc, time::Duration};

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};
use tokio_tungstenite::tungstenite::Message;

use super::{APP, FakeSlack};
use crate::fake::socket::{Dialled, Socket};

/// What is not acknowledged for so long comes again.
const PATIENCE: Duration = Duration::from_secs(3);

/// A socket whose end was told lives so long, or until another is open.
const WARNED: Duration = Duration::from_secs(10);

/// An event on its way.
#[derive(Debug, Clone)]
pub(super) struct Envelope {
    pub(super) id: String,
    /// The event's id.
    pub(super) key: String,
    pub(super) kind: &'static str,
    pub(super) payload: Value,
    pub(super) attempt: u32,
    /// When it happened, in the minutes of repetitions.
    pub(super) minute: u64,
}

/// How all sockets end that are open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// Slack says that it will close it, for this reason, and does so when another is open or after a while.
    Told(&'static str),
    /// The connection breaks.
    Cut,
    /// It stays open, and nothing comes any more, not even answers to pings.
    Silent,
}

/// What goes wrong with the next envelope.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mishap {
    /// The connection breaks before its acknowledgement is read.
    CutBeforeAck,
    /// The connection breaks right after its acknowledgement.
    CutAfterAck,
    /// It comes twice.
    Twice,
}

/// What waits for its acknowledgement on one socket.
#[derive(Default)]
struct Sent {
    envelopes: Vec<(Envelope, Instant)>,
    cut_after: Option<String>,
}

impl Dialled for FakeSlack {
    async fn speak(self: Arc<Self>, mut socket: Socket, path: String) {
        let ticket = path.split("ticket=").nth(1).unwrap_or_default().to_owned();
        let count = {
            let mut state = self.state.lock();
            if !state.tickets.remove(&ticket) {
                return;
            }
            state.sockets += 1;
            state.sockets_ever += 1;
            state.sockets + state.strangers
        };
        self.state.news.notify_waiters();
        let mut sent = Sent::default();
        let open = Open(&self);
        self.speak_until_its_end(&mut socket, count, &mut sent)
            .await;
        drop(open);
        // What was not acknowledged comes again, on another socket.
        let mut state = self.state.lock();
        for (mut envelope, _) in sent.envelopes.into_iter().rev() {
            envelope.attempt += 1;
            state.waiting.push_front(envelope);
        }
        drop(state);
        self.state.news.notify_waiters();
    }
}

/// Counts a socket as open.
struct Open<'a>(&'a FakeSlack);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.state.lock().sockets -= 1;
    }
}

impl FakeSlack {
    async fn speak_until_its_end(&self, socket: &mut Socket, count: usize, sent: &mut Sent) {
        let mut endings = self.state.endings.subscribe();
        let first = match self.state.lock().link_disabled {
            true => json!({"type": "disconnect", "reason": "link_disabled"}),
            false => json!({
                "type": "hello", "num_connections": count,
                "connection_info": {"app_id": APP},
                "debug_info": {"host": "applink-1", "build_number": 1, "approximate_connection_time": 18_060},
            }),
        };
        // What waits comes together with the greeting.
        let first = Message::Text(first.to_string().into());
        if socket.feed(first).await.is_err()
            || self.send_waiting(socket, sent).await.is_none()
            || socket.flush().await.is_err()
        {
            return;
        }
        let mut until = None;
        loop {
            let news = self.state.news.notified();
            if until.is_some() && self.state.lock().sockets > 1 {
                return;
            }
            if until.is_none() && self.send_waiting(socket, sent).await.is_none() {
                return;
            }
            let late = sent.envelopes.iter().map(|(_, at)| *at + PATIENCE).min();
            // What was ended takes nothing any more, also where both are told at once.
            tokio::select! {
                biased;
                ending = endings.recv() => match ending {
                    Ok(Ending::Told(reason)) => {
                        let said = json!({"type": "disconnect", "reason": reason, "debug_info": {}});
                        if say(socket, &said).await.is_none() {
                            return;
                        }
                        until = Some(Instant::now() + WARNED);
                    }
                    Ok(Ending::Silent) => std::future::pending().await,
                    Ok(Ending::Cut) | Err(_) => return,
                },
                frame = socket.next() => {
                    let Some(Ok(frame)) = frame else { return };
                    if self.heard(&frame, sent).is_none() {
                        return;
                    }
                }
                () = news => {}
                () = then(late) => self.again(sent),
                () = then(until) => return,
            }
        }
    }

    async fn send_waiting(&self, socket: &mut Socket, sent: &mut Sent) -> Option<()> {
        loop {
            let (envelope, mishap) = {
                let mut state = self.state.lock();
                let Some(envelope) = state.waiting.pop_front() else {
                    return Some(());
                };
                (envelope, state.mishaps.pop_front())
            };
            let frame = json!({
                "envelope_id": envelope.id, "type": envelope.kind, "payload": envelope.payload,
                "accepts_response_payload": envelope.kind != "events_api",
                "retry_attempt": envelope.attempt,
                "retry_reason": if envelope.attempt == 0 { "" } else { "timeout" },
            });
            let id = envelope.id.clone();
            sent.envelopes.push((envelope, Instant::now()));
            say(socket, &frame).await?;
            match mishap {
                None => {}
                Some(Mishap::Twice) => say(socket, &frame).await?,
                Some(Mishap::CutBeforeAck) => return None,
                Some(Mishap::CutAfterAck) => sent.cut_after = Some(id),
            }
        }
    }

    fn heard(&self, frame: &Message, sent: &mut Sent) -> Option<()> {
        match frame {
            Message::Text(text) => {
                let ack: Value = serde_json::from_str(text.as_str()).unwrap_or(Value::Null);
                let id = ack["envelope_id"].as_str().unwrap_or_default();
                if let Some(at) = sent.envelopes.iter().position(|(sent, _)| sent.id == id) {
                    let (envelope, since) = sent.envelopes.remove(at);
                    let mut state = self.state.lock();
                    state.acknowledged.push(envelope.key);
                    state.took.push(since.elapsed());
                }
                (sent.cut_after.as_deref() != Some(id)).then_some(())
            }
            Message::Close(_) => None,
            _ => Some(()),
        }
    }

    /// Puts back in line what nobody acknowledged in time.
    fn again(&self, sent: &mut Sent) {
        let mut state = self.state.lock();
        let now = Instant::now();
        let late = |(_, at): &(Envelope, Instant)| *at + PATIENCE <= now;
        for (mut envelope, _) in sent.envelopes.extract_if(.., |sent| late(sent)) {
            envelope.attempt += 1;
            state.waiting.push_back(envelope);
        }
    }
}

async fn say(socket: &mut Socket, frame: &Value) -> Option<()> {
    let frame = Message::Text(frame.to_string().into());
    socket.send(frame).await.ok()
}

async fn then(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}
