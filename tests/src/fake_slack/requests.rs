//! Events as signed requests: each is sent at once, repeated at once where it was not answered with
//! 200, then after one and after five more minutes, and then given up. Minutes pass when a test says so.

use std::{sync::Arc, time::Instant};

use super::{FakeSlack, signed, socket::Envelope};
use crate::fake::requests::post;

/// When repetitions are due, in minutes after it happened.
const DUE: [u64; 3] = [0, 1, 6];

/// Sends what waits, where requests are wanted.
#[allow(clippy::disallowed_methods)]
pub(super) async fn send(slack: Arc<FakeSlack>) {
    loop {
        let news = slack.state.news.notified();
        while let Some(envelope) = slack.next_request() {
            let slack = slack.clone();
            tokio::spawn(async move { slack.request(envelope).await });
        }
        news.await;
    }
}

impl FakeSlack {
    fn next_request(&self) -> Option<Envelope> {
        let mut state = self.state.lock();
        state.requests_to?;
        state.waiting.pop_front()
    }

    async fn request(&self, envelope: Envelope) {
        let since = Instant::now();
        let mut failed = match self.attempt(&envelope, None).await {
            Ok(()) => return self.answered(envelope.key, since),
            Err(why) => why,
        };
        for (number, due) in (1..).zip(DUE) {
            self.until_minute(envelope.minute + due).await;
            failed = match self.attempt(&envelope, Some((number, failed))).await {
                Ok(()) => return self.answered(envelope.key, since),
                Err(why) => why,
            };
        }
        self.state.lock().given_up.push(envelope.key);
    }

    fn answered(&self, key: String, since: Instant) {
        let mut state = self.state.lock();
        state.acknowledged.push(key);
        state.took.push(since.elapsed());
    }

    async fn until_minute(&self, minute: u64) {
        loop {
            let news = self.state.news.notified();
            if self.state.lock().minutes >= minute {
                return;
            }
            news.await;
        }
    }

    async fn attempt(
        &self,
        envelope: &Envelope,
        again: Option<(u32, &'static str)>,
    ) -> Result<(), &'static str> {
        let address = self.state.lock().requests_to.ok_or("connection_failed")?;
        let (kind, body) = written(envelope);
        let at = mayfly_adapters::clock::unix_ms() / 1000;
        let mut headers = vec![
            ("content-type", kind.to_owned()),
            ("x-slack-request-timestamp", at.to_string()),
            ("x-slack-signature", signed(at, body.as_bytes())),
        ];
        if let Some((number, why)) = again {
            headers.push(("x-slack-retry-num", number.to_string()));
            headers.push(("x-slack-retry-reason", why.to_owned()));
        }
        match post(address, "/hooks/slack", &headers, body.as_bytes()).await? {
            200 => Ok(()),
            _ => Err("http_error"),
        }
    }
}

/// Content type and body.
fn written(envelope: &Envelope) -> (&'static str, String) {
    const FORM: &str = "application/x-www-form-urlencoded";
    let payload = envelope.payload.to_string();
    let mut form = form_urlencoded::Serializer::new(String::new());
    match envelope.kind {
        "events_api" => ("application/json", payload),
        "interactive" => (FORM, form.append_pair("payload", &payload).finish()),
        _ => {
            for (name, value) in envelope.payload.as_object().into_iter().flatten() {
                form.append_pair(name, value.as_str().unwrap_or_default());
            }
            (FORM, form.finish())
        }
    }
}
