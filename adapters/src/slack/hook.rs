//! Events by HTTP: what Slack signed is stored, then answered.

use std::{convert::Infallible, sync::atomic::Ordering};

use async_trait::async_trait;
use mayfly_domain::{Inbox, Link};
use reqwest::header::HeaderMap;

use super::{
    NAME, Slack,
    events::{HttpAnswer, http_event, http_head},
    listen::{heard, marked},
    parse,
};
use crate::{
    clock,
    hook::{self, Answer, Hook},
    signature::Refused,
};

impl Slack {
    /// Closes the gap since events came last, and each that a refused event may leave: Slack gives one
    /// up that is refused for some six minutes.
    pub(super) async fn await_requests(&self, me: &parse::Me, inbox: &dyn Inbox) -> Infallible {
        self.gapless.store(false, Ordering::Release);
        let last = marked(inbox).await;
        inbox.link(NAME, Link::Up);
        let mut now = clock::unix_ms();
        let gap = last.map(|(value, at)| now.saturating_sub(value.parse().unwrap_or(at)));
        let mut long =
            gap.is_some_and(|gap| u128::from(gap.unsigned_abs()) > self.pace.gap.as_millis());
        loop {
            if long {
                self.catch_up(me, inbox).await;
            }
            self.gapless.store(true, Ordering::Release);
            if let Err(error) = inbox.take(Vec::new(), Some(heard(now))).await {
                tracing::warn!(platform = NAME, %error, "the mark is not stored");
            }
            self.refused.notified().await;
            self.gapless.store(false, Ordering::Release);
            // Most come again in this time, and passes do not follow each other more closely.
            tokio::time::sleep(self.pace.gap).await;
            (long, now) = (true, clock::unix_ms());
        }
    }

    async fn store(&self, raw: Vec<u8>, inbox: &dyn Inbox) -> Answer {
        let incoming = match self.incoming(raw).await {
            Ok(incoming) => incoming,
            Err(error) => return Answer::Later(format!("who we are is not known yet: {error}")),
        };
        let gapless = self.gapless.load(Ordering::Acquire);
        let mark = gapless.then(|| heard(clock::unix_ms()));
        hook::stored(inbox.take(vec![incoming], mark).await)
    }
}

#[async_trait]
impl Hook for Slack {
    fn platform(&self) -> &'static str {
        NAME
    }

    fn admits(&self, headers: &HeaderMap) -> Result<(), Refused> {
        http_head(headers, clock::unix_ms() / 1000)
    }

    fn turned_away(&self) {
        self.gapless.store(false, Ordering::Release);
        self.refused.notify_one();
    }

    async fn receive(&self, headers: &HeaderMap, body: &[u8], inbox: &dyn Inbox) -> Answer {
        let secret = self.config.signing_secret.as_ref();
        let secret = secret.map_or("", |secret| secret.expose());
        let now = clock::unix_ms() / 1000;
        match http_event(headers, body, secret.as_bytes(), now) {
            Err(refused) => Answer::Refused(refused),
            Ok(HttpAnswer::Challenge(text)) => Answer::Text(text),
            Ok(HttpAnswer::Unreadable) => Answer::Malformed,
            Ok(HttpAnswer::Event(raw)) => {
                let answer = hook::in_time(self.store(raw, inbox)).await;
                if let Answer::Later(_) = answer {
                    self.turned_away();
                }
                answer
            }
        }
    }
}
