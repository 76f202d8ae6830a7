//! One Socket Mode connection: opened and greeted within a deadline, pinged, read, acknowledged.

use std::time::Duration;

use futures_util::{FutureExt as _, SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::{
    net::TcpStream,
    time::{Instant, sleep_until, timeout},
};
use tokio_tungstenite::{
    MaybeTlsStream, WebSocketStream, connect_async_with_config,
    tungstenite::{self, Message, protocol::WebSocketConfig},
};

use super::{api::Api, config::Pace, words::sentence};
use crate::{
    http::{answer::Failure, redact::redact},
    json::{number, text},
};

/// Largest frame that is read.
const MAX_FRAME: usize = 16 << 20;
/// Most frames that are stored together.
const BATCH: usize = 100;

type Stream = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// See the module.
pub(super) struct Socket {
    stream: Stream,
    heard: Instant,
    ping_at: Instant,
    /// Came with the greeting.
    early: Vec<String>,
}

/// Why there is no socket.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NoSocket {
    /// Trying again may help; a sentence, and how long Slack wants silence.
    Later(String, Option<Duration>),
    /// It cannot; a sentence with the way out.
    Never(String),
}

/// What came.
#[derive(Debug)]
pub(super) enum Heard {
    /// Frames in their order, at least one.
    Frames(Vec<String>),
    /// The socket is at its end.
    Over(String),
}

impl Socket {
    /// Opens one; returns it with how many the app has then.
    pub(super) async fn open(api: &Api, pace: &Pace) -> Result<(Box<Socket>, i64), NoSocket> {
        match timeout(pace.connect, Socket::opened(api, pace)).await {
            Ok(opened) => opened,
            Err(_) => Err(later("no socket opened in time")),
        }
    }

    async fn opened(api: &Api, pace: &Pace) -> Result<(Box<Socket>, i64), NoSocket> {
        let url = api.connections_open().await.map_err(refused)?;
        let config = WebSocketConfig::default()
            .max_message_size(Some(MAX_FRAME))
            .max_frame_size(Some(MAX_FRAME));
        let (stream, _) = connect_async_with_config(url.as_str(), Some(config), true)
            .await
            .map_err(|error| later(&shown(&error)))?;
        let mut socket = Box::new(Socket {
            stream,
            heard: Instant::now(),
            ping_at: Instant::now() + pace.ping,
            early: Vec::new(),
        });
        loop {
            let greeting = match socket.hear(pace).await {
                Heard::Over(why) => return Err(later(&why)),
                Heard::Frames(frames) => frames,
            };
            // Nothing but the greeting comes before it, but events may come with it.
            let mut greeting = greeting.into_iter();
            while let Some(frame) = greeting.next() {
                let frame = serde_json::from_str(&frame).unwrap_or(Value::Null);
                match (text(&frame, &["type"]), text(&frame, &["reason"])) {
                    (Some("hello"), _) => {
                        let count = number(&frame, &["num_connections"]).unwrap_or(1);
                        socket.early = greeting.collect();
                        return Ok((socket, count));
                    }
                    (Some("disconnect"), Some("link_disabled")) => {
                        return Err(NoSocket::Never(super::words::way_out("link_disabled")));
                    }
                    (Some("disconnect"), reason) => {
                        let reason = reason.unwrap_or("no reason");
                        return Err(later(&format!("Slack closes it at once: {reason}")));
                    }
                    _ => {}
                }
            }
        }
    }

    /// Waits for something. May be dropped at any `await` without losing a frame.
    pub(super) async fn hear(&mut self, pace: &Pace) -> Heard {
        if !self.early.is_empty() {
            return Heard::Frames(std::mem::take(&mut self.early));
        }
        loop {
            let frame = tokio::select! {
                frame = self.stream.next() => frame,
                () = sleep_until(self.ping_at) => {
                    if let Some(why) = self.ping(pace).await {
                        return Heard::Over(why);
                    }
                    continue;
                }
            };
            match self.read(frame) {
                Ok(None) => {}
                Ok(Some(text)) => return self.with_more(text),
                Err(why) => return Heard::Over(why),
            }
        }
    }

    /// The frames that are there already are stored with the first one.
    fn with_more(&mut self, first: String) -> Heard {
        let mut frames = vec![first];
        while frames.len() < BATCH {
            let Some(frame) = self.stream.next().now_or_never() else {
                break;
            };
            match self.read(frame) {
                Ok(None) => {}
                Ok(Some(text)) => frames.push(text),
                // It is said again at the next look.
                Err(_) => break,
            }
        }
        Heard::Frames(frames)
    }

    fn read(
        &mut self,
        frame: Option<Result<Message, tungstenite::Error>>,
    ) -> Result<Option<String>, String> {
        match frame {
            None => Err("Slack closed the connection".to_owned()),
            Some(Err(error)) => Err(shown(&error)),
            Some(Ok(Message::Close(_))) => Err("Slack closed the socket".to_owned()),
            Some(Ok(message)) => {
                self.heard = Instant::now();
                match message {
                    Message::Text(text) => Ok(Some(text.as_str().to_owned())),
                    _ => Ok(None),
                }
            }
        }
    }

    /// Why the socket is dead, if it is.
    async fn ping(&mut self, pace: &Pace) -> Option<String> {
        self.ping_at = Instant::now() + pace.ping;
        if self.heard.elapsed() >= pace.silence {
            return Some(HALF_OPEN.to_owned());
        }
        self.send(Message::Ping(Vec::new().into()), pace)
            .await
            .err()
    }

    /// Says that an envelope is safe.
    pub(super) async fn acknowledge(&mut self, id: &str, pace: &Pace) -> Result<(), String> {
        let frame = json!({"envelope_id": id}).to_string();
        self.send(Message::Text(frame.into()), pace).await
    }

    async fn send(&mut self, message: Message, pace: &Pace) -> Result<(), String> {
        match timeout(pace.silence, self.stream.send(message)).await {
            Ok(sent) => sent.map_err(|error| shown(&error)),
            Err(_) => Err(HALF_OPEN.to_owned()),
        }
    }
}

/// Half-open: nobody closed it, and nothing comes.
pub(super) const HALF_OPEN: &str = "Slack does not answer to pings";

fn shown(error: &tungstenite::Error) -> String {
    redact(&error.to_string(), &[])
}

fn later(why: &str) -> NoSocket {
    NoSocket::Later(why.to_owned(), None)
}

fn refused(failure: Failure) -> NoSocket {
    match failure {
        Failure::Permanent { .. } => NoSocket::Never(sentence(failure)),
        Failure::NotDone { why, wait } => NoSocket::Later(why, wait),
        other => NoSocket::Later(sentence(other), None),
    }
}
