//! Events that a platform sends as HTTP requests: each is with the inbox before it is answered.
//!
//! The sender gives up after some three seconds and comes again, so nothing here takes longer. What
//! was stored and comes again changes nothing.

use std::{future::Future, time::Duration};

use async_trait::async_trait;
use mayfly_domain::{Inbox, InboxError};
use reqwest::header::HeaderMap;

use crate::signature::Refused;

/// Slack waits three seconds for an answer.
const PATIENCE: Duration = Duration::from_millis(2500);

/// What a request is answered with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The inbox has it: 200 without a body.
    Taken,
    /// The platform wants to read this: 200.
    Text(String),
    /// It did not come from the platform, or is a recording: 401.
    Refused(Refused),
    /// It came from the platform and is nothing it sends: 400.
    Malformed,
    /// It is not stored, so that it has to come again: 503 with a reason.
    Later(String),
}

/// A platform that sends requests.
#[async_trait]
pub trait Hook: Send + Sync {
    /// The platform part of thread keys.
    fn platform(&self) -> &'static str;

    /// Judges a request by its headers alone, before its body is read.
    fn admits(&self, headers: &HeaderMap) -> Result<(), Refused>;

    /// A request was answered with 503 unread; it may have been the platform's.
    fn turned_away(&self) {}

    /// Judges one request by its headers and the bytes of its body, and hands it to the inbox.
    async fn receive(&self, headers: &HeaderMap, body: &[u8], inbox: &dyn Inbox) -> Answer;
}

/// Within the time the sender waits.
pub(crate) async fn in_time(answer: impl Future<Output = Answer>) -> Answer {
    match tokio::time::timeout(PATIENCE, answer).await {
        Ok(answer) => answer,
        Err(_) => Answer::Later("it is not stored in time".to_owned()),
    }
}

/// How storing went.
pub(crate) fn stored(done: Result<(), InboxError>) -> Answer {
    match done {
        Ok(()) => Answer::Taken,
        Err(error) => Answer::Later(format!("it is not stored: {error}")),
    }
}
