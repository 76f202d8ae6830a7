//! Updates as requests to the webhook, one after the other; one that is not answered with 2xx comes
//! again, after longer and longer pauses.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::state::{Kept, State, Update, now};
use crate::fake::requests::post;

/// Longest pause; the real one is longer.
const LONGEST: Duration = Duration::from_secs(1);
const SHORTEST: Duration = Duration::from_millis(50);

/// Sends what waits, where a webhook is set.
pub(super) async fn send(kept: Arc<Kept>) {
    let mut pause = SHORTEST;
    let mut first: Option<(i64, Instant)> = None;
    loop {
        let news = kept.news.notified();
        let next = next(&kept.lock());
        let Some((update, url, secret)) = next else {
            news.await;
            continue;
        };
        let since = match first {
            Some((id, since)) if id == update.id => since,
            _ => Instant::now(),
        };
        first = Some((update.id, since));
        match attempt(&kept, &update, &url, secret).await {
            Ok(()) => {
                pause = SHORTEST;
                let mut state = kept.lock();
                state.updates.retain(|kept| kept.id != update.id);
                state.took.push(since.elapsed());
            }
            Err(why) => {
                kept.lock().failed = Some((now(), why));
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST);
            }
        }
    }
}

fn next(state: &State) -> Option<(Update, String, String)> {
    let (url, secret) = state.webhook.clone()?;
    Some((state.updates.front()?.clone(), url, secret))
}

async fn attempt(kept: &Kept, update: &Update, url: &str, secret: String) -> Result<(), String> {
    let address = kept.lock().requests_to.ok_or("Connection refused")?;
    let url: hyper::Uri = url.parse().map_err(|_| "Failed to resolve host")?;
    let mut headers = vec![("content-type", "application/json".to_owned())];
    if !secret.is_empty() {
        headers.push(("x-telegram-bot-api-secret-token", secret));
    }
    let body = update.body.to_string();
    match post(address, url.path(), &headers, body.as_bytes()).await {
        Ok(200..=299) => Ok(()),
        Ok(status) => Err(format!("Wrong response from the webhook: {status}")),
        Err("http_timeout") => Err("Read timeout expired".to_owned()),
        Err(_) => Err("Connection refused".to_owned()),
    }
}
