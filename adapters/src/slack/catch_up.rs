//! After a gap: one look at each conversation that was used lately, for what came meanwhile.

use std::{future::Future, time::Duration};

use mayfly_domain::{Inbox, InboxError, Incoming, Recent};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::{NAME, Slack, api::Query, is_ts, parse, root, words::code};
use crate::{
    http::{answer::Failure, wait::back_off},
    json::{items, text},
};

/// Most conversations that are looked at.
const THREADS: usize = 50;
/// Most attempts for one, waits that Slack asks for not counted.
const TRIES: u32 = 4;
/// A pass that takes longer ends; unlisted apps may look once a minute.
const LONGEST: Duration = Duration::from_secs(3600);

impl Slack {
    /// Hands what came to the inbox, as the events that were missed would have told it. It does not end
    /// before the inbox has it: whoever waits may then say that nothing is missing.
    pub(super) async fn catch_up(&self, me: &parse::Me, inbox: &dyn Inbox) {
        let until = Instant::now() + LONGEST;
        let recent = insist(|| inbox.recent(NAME, THREADS)).await;
        let (mut looked, mut found) = (0, 0);
        // Where the newest is a slash command there is no time to look from, and nothing to be missed.
        let threads = recent.iter().filter(|recent| is_ts(&recent.newest));
        for recent in threads.take(THREADS) {
            match self.missed(recent, until).await {
                Ok(messages) => {
                    looked += 1;
                    found += messages.len();
                    let events = messages
                        .iter()
                        .map(|message| event(recent, message, me))
                        .collect::<Vec<_>>();
                    if !events.is_empty() {
                        insist(|| inbox.take(events.clone(), None)).await;
                    }
                }
                Err(why) => {
                    let thread = recent.thread.to_string();
                    tracing::warn!(
                        platform = NAME,
                        thread,
                        why,
                        "the gap is not caught up over"
                    );
                }
            }
        }
        tracing::info!(platform = NAME, looked, found, "caught up over a gap");
    }

    /// Messages that are newer than what is known.
    async fn missed(&self, recent: &Recent, until: Instant) -> Result<Vec<Value>, String> {
        let thread = &recent.thread;
        let mut query: Query<'_> = vec![
            ("channel", Some(thread.channel.as_str())),
            ("oldest", Some(recent.newest.as_str())),
            ("limit", Some("100")),
        ];
        let method = match root(thread) {
            Some(root) => {
                query.push(("ts", Some(root)));
                "conversations.replies"
            }
            None => "conversations.history",
        };
        let mut tries = 0;
        let page: Value = loop {
            let pause = match self.api.read(method, &query).await {
                Ok(page) => break page,
                Err(failure) if code(&failure).is_some() => {
                    return Err(super::words::sentence(failure));
                }
                Err(Failure::NotDone {
                    wait: Some(wait), ..
                }) => wait,
                Err(failure) => {
                    tries += 1;
                    if tries == TRIES {
                        return Err(failure.to_string());
                    }
                    back_off(tries, rand::random())
                }
            };
            if Instant::now() + pause >= until {
                return Err("it takes too long".to_owned());
            }
            sleep(pause).await;
        };
        let newest = order(&recent.newest);
        let mut messages: Vec<Value> = items(&page, &["messages"])
            .filter(|message| text(message, &["ts"]).is_some_and(|ts| order(ts) > newest))
            .cloned()
            .collect();
        messages.sort_by_key(|message| order(text(message, &["ts"]).unwrap_or_default()));
        Ok(messages)
    }
}

/// Asks the inbox until it does it.
async fn insist<T, F: Future<Output = Result<T, InboxError>>>(mut ask: impl FnMut() -> F) -> T {
    let mut failed = 0;
    loop {
        match ask().await {
            Ok(done) => return done,
            Err(error) => {
                tracing::warn!(platform = NAME, %error, "the gap is not caught up over yet");
                sleep(back_off(failed, rand::random())).await;
                failed += 1;
            }
        }
    }
}

/// When a message was written, in an order.
fn order(ts: &str) -> (u64, u64) {
    let (seconds, fraction) = ts.split_once('.').unwrap_or((ts, ""));
    (seconds.parse().unwrap_or(0), fraction.parse().unwrap_or(0))
}

/// The event that was missed. Its key is the message's, so that a second pass changes nothing; that
/// the live event tells of the same message is found by the message's id.
fn event(recent: &Recent, message: &Value, me: &parse::Me) -> Incoming {
    let thread = &recent.thread;
    let mut inner = message.clone();
    if let Some(fields) = inner.as_object_mut() {
        fields.insert("type".to_owned(), json!("message"));
        fields.insert("channel".to_owned(), json!(thread.channel));
        if thread.channel.starts_with('D') {
            fields.insert("channel_type".to_owned(), json!("im"));
        }
    }
    let ts = text(message, &["ts"]).unwrap_or_default();
    let raw = json!({
        "type": "event_callback",
        "team_id": thread.workspace,
        "api_app_id": me.app,
        "event_id": format!("missed {} {} {ts}", thread.workspace, thread.channel),
        "event": inner,
    });
    let raw = raw.to_string().into_bytes();
    Incoming {
        platform: NAME.to_owned(),
        event: Ok(parse::parse(&raw, me)),
        raw,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_ordered_by_both_parts() {
        assert!(order("1700000000.000100") < order("1700000000.000101"));
        assert!(order("999999999.999999") < order("1700000000.000000"));
        assert_eq!(order("x"), (0, 0));
    }
}
