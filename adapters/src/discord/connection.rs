//! One connection to the gateway, with an end to every silence.
//!
//! `twilight-gateway` dials, identifies or resumes, and beats. Whatever ends the connection ends this:
//! when and how to dial again is decided in one place, by what is stored.

use std::time::Duration;

use futures_util::{FutureExt as _, StreamExt as _};
use serde_json::Value;
use tokio::time::{Instant, timeout_at};
use twilight_gateway::{
    ConfigBuilder, Message, Session as Resumed, Shard, ShardId, error::ReceiveMessageErrorType,
};

use super::{frame, session::Session, setup::INTENTS};
use crate::json::{at, number, text};

/// Dialling and the greeting.
const GREETING: Duration = Duration::from_secs(20);
/// From the greeting, or the last replayed event, to `READY` or `RESUMED`.
const SETTLING: Duration = Duration::from_secs(60);
/// Most frames that are stored at once.
const BATCH: usize = 64;

/// Why a connection ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum End {
    /// Discord asked for a new one.
    Asked,
    /// It broke.
    Lost(String),
    /// Discord knows the session no longer: what came meanwhile has to be caught up.
    Forgotten(String),
    /// Close code that must not be tried again.
    Shut(u16),
    /// Anything else that must not be tried again, as a sentence.
    Fatal(String),
}

/// A frame as it came.
pub(crate) struct Frame {
    pub(crate) raw: String,
    /// Null where it is no JSON.
    pub(crate) value: Value,
}

/// See the module.
pub(crate) struct Connection {
    shard: Shard,
    /// Longest silence: somewhat more than the time between two beats, each of which is answered.
    silence: Duration,
    heard_by: Instant,
    settled_by: Option<Instant>,
}

impl Connection {
    /// Dials when it is first asked for frames. `url` is known to be an address.
    pub(crate) fn new(token: &str, url: String, session: Option<&Session>) -> Connection {
        let mut config = ConfigBuilder::new(token.to_owned(), INTENTS).proxy_url(url.clone());
        if let Some(session) = session {
            config = config
                .session(Resumed::new(session.seq, session.id.clone()))
                .resume_url(url);
        }
        Connection {
            shard: Shard::with_config(ShardId::ONE, config.build()),
            silence: GREETING,
            heard_by: Instant::now() + GREETING,
            settled_by: None,
        }
    }

    /// What came since, at least one frame or the end. May be dropped at any time.
    pub(crate) async fn next(&mut self) -> (Vec<Frame>, Option<End>) {
        let by = self
            .settled_by
            .map_or(self.heard_by, |by| by.min(self.heard_by));
        let mut item = match timeout_at(by, self.shard.next()).await {
            Ok(item) => item,
            Err(_) => {
                return (
                    Vec::new(),
                    Some(End::Lost("nothing was heard for too long".to_owned())),
                );
            }
        };
        let mut frames = Vec::new();
        loop {
            match self.heard(item) {
                Ok(frame) => {
                    let end = ends(&frame.value);
                    frames.push(frame);
                    if end.is_some() {
                        return (frames, end);
                    }
                }
                Err(end) => return (frames, Some(end)),
            }
            if frames.len() >= BATCH {
                return (frames, None);
            }
            match self.shard.next().now_or_never() {
                Some(more) => item = more,
                None => return (frames, None),
            }
        }
    }

    fn heard(
        &mut self,
        item: Option<Result<Message, twilight_gateway::error::ReceiveMessageError>>,
    ) -> Result<Frame, End> {
        let raw = match item {
            Some(Ok(Message::Text(raw))) => raw,
            Some(Ok(Message::Close(close))) => return Err(closed(close.map(|close| close.code))),
            Some(Err(error)) => match error.kind() {
                // It is kept like any event that is not understood.
                ReceiveMessageErrorType::Deserializing { event } => event.clone(),
                _ => return Err(End::Lost(causes(&error))),
            },
            None => return Err(End::Lost("the connection ended".to_owned())),
        };
        let value = frame(&raw);
        self.note(&value);
        Ok(Frame { raw, value })
    }

    fn note(&mut self, value: &Value) {
        let now = Instant::now();
        if let Some(beat) = number(value, &["d", "heartbeat_interval"])
            .filter(|_| number(value, &["op"]) == Some(10))
        {
            let beat = Duration::from_millis(u64::try_from(beat).unwrap_or(0));
            self.silence = (beat + beat / 4).max(Duration::from_secs(1));
            self.settled_by = Some(now + SETTLING);
        }
        if number(value, &["op"]) == Some(0) {
            let settled = self.settled_by.is_none()
                || matches!(text(value, &["t"]), Some("READY" | "RESUMED"));
            self.settled_by = (!settled).then(|| now + SETTLING);
        }
        self.heard_by = now + self.silence;
    }
}

/// Frames after which Discord wants another connection.
fn ends(value: &Value) -> Option<End> {
    match number(value, &["op"])? {
        7 => Some(End::Asked),
        9 if at(value, &["d"]).and_then(Value::as_bool) == Some(true) => {
            Some(End::Lost("the session is to be resumed again".to_owned()))
        }
        9 => Some(End::Forgotten("the session is no longer known".to_owned())),
        _ => None,
    }
}

fn closed(code: Option<u16>) -> End {
    match code {
        Some(code @ (4004 | 4010..=4014)) => End::Shut(code),
        Some(code @ (4007 | 4009)) => End::Forgotten(format!("closed with code {code}")),
        Some(code) => End::Lost(format!("closed with code {code}")),
        None => End::Lost("closed without a code".to_owned()),
    }
}

fn causes(error: &dyn std::error::Error) -> String {
    let mut said = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        said = format!("{said}: {error}");
        cause = error.source();
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_that_must_not_reconnect_are_told_from_others() {
        for code in [4004, 4010, 4011, 4012, 4013, 4014] {
            assert_eq!(closed(Some(code)), End::Shut(code));
        }
        for code in [4007, 4009] {
            assert!(matches!(closed(Some(code)), End::Forgotten(_)));
        }
        for code in [1000, 1001, 1006, 4000, 4001, 4002, 4003, 4005, 4008] {
            assert!(matches!(closed(Some(code)), End::Lost(_)));
        }
    }
}
