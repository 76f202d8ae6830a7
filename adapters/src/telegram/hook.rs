//! Updates by requests: Telegram is told the URL and the secret, and looked at now and then.
//!
//! The secret is made from the bot's token, so it needs no place to be kept and is the same after a
//! restart, when updates of before come again.

use std::{convert::Infallible, time::Duration};

use async_trait::async_trait;
use hmac::{Hmac, Mac as _};
use mayfly_domain::{Inbox, Incoming, Link, Mark};
use reqwest::{Url, header::HeaderMap};
use serde_json::Value;
use sha2::Sha256;
use teloxide_core::payloads::{DeleteWebhook, GetWebhookInfo, SetWebhook, setters::*};

use super::{
    Telegram,
    listen::{Line, PLATFORM, Trouble},
    parse::parse,
};
use crate::{
    hook::{self, Answer, Hook},
    http::answer::Failure,
    json::{number, text},
    signature::{self, Refused},
};

/// The header that carries the secret which `setWebhook` was given.
const SECRET: &str = "x-telegram-bot-api-secret-token";

/// The mark that says which webhook is of our making.
const MARK: &str = "webhook";
/// The bucket of these calls.
const BUCKET: &str = "webhook";
/// A failed delivery that is older is over.
const RECENT_S: i64 = 60;

/// Sets the webhook and looks at it until dropped; the error is why nobody should try again.
pub(super) async fn listen(
    bot: &Telegram,
    inbox: &dyn Inbox,
    url: &Url,
) -> Result<Infallible, String> {
    let mut line = Line::new(inbox);
    let mut is_set = false;
    let mut undelivered = None;
    loop {
        let seen = match is_set {
            false => set(bot, inbox, url).await.map(|()| Ok(())),
            true => look(bot, url).await.map_err(Trouble::of),
        };
        match seen {
            Ok(Ok(())) => {
                is_set = true;
                undelivered = None;
                line.up();
            }
            Ok(Err(Amiss::NotOurs(why))) => {
                is_set = false;
                tracing::warn!(why, "the webhook of Telegram is not ours");
                line.tell(Link::Down(why));
            }
            // Not a lost connection: a proxy that goes by /readyz would keep updates away for good.
            Ok(Err(Amiss::NotDelivered(why))) => {
                if undelivered.as_ref() != Some(&why) {
                    tracing::warn!(why, "updates of Telegram wait");
                }
                undelivered = Some(why);
                line.up();
            }
            Err(trouble) => {
                line.failed(trouble?).await;
                continue;
            }
        }
        tokio::time::sleep(Duration::from_secs(u64::from(bot.poll_s))).await;
    }
}

/// What is wrong with a webhook that was set.
enum Amiss {
    /// Somebody changed it.
    NotOurs(String),
    /// Updates wait.
    NotDelivered(String),
}

type Set = Result<(), Result<Trouble, String>>;

async fn set(bot: &Telegram, inbox: &dyn Inbox, url: &Url) -> Set {
    bot.known().await.map_err(Trouble::of)?;
    // Noted first, so that it is known as ours whatever happens in between.
    let mark = Mark {
        platform: PLATFORM.to_owned(),
        name: MARK.to_owned(),
        value: url.to_string(),
    };
    let noted = inbox.take(Vec::new(), Some(mark)).await;
    noted.map_err(|error| Ok(Trouble::ours(&error)))?;
    let asked = SetWebhook::new(url.clone())
        .secret_token(bot.secret(url))
        .allowed_updates([]);
    let done = bot.api.call(BUCKET, &asked).await;
    done.map(drop).map_err(Trouble::of)
}

async fn look(bot: &Telegram, url: &Url) -> Result<Result<(), Amiss>, Failure> {
    let told = bot.api.call(BUCKET, &GetWebhookInfo::new()).await?;
    Ok(judge(&told, url, (bot.clock)() / 1000))
}

/// `now` is unix seconds.
fn judge(told: &Value, url: &Url, now: i64) -> Result<(), Amiss> {
    if text(told, &["url"]) != Some(url.as_str()) {
        return Err(Amiss::NotOurs(
            "another program has taken the webhook away or changed it: it is set again; stop that \
             program, or renew the token at @BotFather"
                .to_owned(),
        ));
    }
    let waiting = number(told, &["pending_update_count"]).unwrap_or_default();
    let failed_at = number(told, &["last_error_date"]).unwrap_or_default();
    if waiting > 0 && now.saturating_sub(failed_at) < RECENT_S {
        let why = text(told, &["last_error_message"]).unwrap_or("it does not say why");
        return Err(Amiss::NotDelivered(format!(
            "Telegram cannot deliver updates to the webhook ({why}): its address has to lead to \
             POST /hooks/telegram on hooks.listen"
        )));
    }
    Ok(())
}

/// Takes a webhook away that an earlier start of ours has set; true if it did.
pub(super) async fn take_away(bot: &Telegram, inbox: &dyn Inbox) -> bool {
    let Ok(Some((ours, _))) = inbox.mark(PLATFORM, MARK).await else {
        return false;
    };
    let Ok(told) = bot.api.call(BUCKET, &GetWebhookInfo::new()).await else {
        return false;
    };
    if text(&told, &["url"]) != Some(ours.as_str()) {
        return false;
    }
    tracing::info!("updates of Telegram come by polling from now on: its webhook is taken away");
    bot.api.call(BUCKET, &DeleteWebhook::new()).await.is_ok()
}

impl Telegram {
    /// What Telegram shows with each update; nobody without the token can make it.
    fn secret(&self, url: &Url) -> String {
        let mut mac =
            Hmac::<Sha256>::new_from_slice(self.api.token().as_bytes()).expect("any key will do");
        mac.update(b"mayfly webhook ");
        mac.update(url.as_str().as_bytes());
        hex::encode(mac.finalize().into_bytes())
    }

    async fn store(&self, body: &[u8], inbox: &dyn Inbox) -> Answer {
        let me = match self.known().await {
            Ok(me) => me,
            Err(error) => return Answer::Later(format!("who we are is not known yet: {error}")),
        };
        let incoming = Incoming {
            platform: PLATFORM.to_owned(),
            raw: body.to_vec(),
            event: Ok(parse(body, me)),
        };
        hook::stored(inbox.take(vec![incoming], None).await)
    }
}

fn authentic(headers: &HeaderMap, secret: &str) -> Result<(), Refused> {
    let given = headers.get_all(SECRET).iter();
    signature::telegram(secret.as_bytes(), given.map(|value| value.as_bytes()))
}

fn is_update(body: &[u8]) -> bool {
    let update = serde_json::from_slice::<Value>(body).unwrap_or(Value::Null);
    number(&update, &["update_id"]).is_some()
}

#[async_trait]
impl Hook for Telegram {
    fn platform(&self) -> &'static str {
        PLATFORM
    }

    fn admits(&self, headers: &HeaderMap) -> Result<(), Refused> {
        let url = self.webhook.as_ref().ok_or(Refused::Wrong)?;
        authentic(headers, &self.secret(url))
    }

    async fn receive(&self, headers: &HeaderMap, body: &[u8], inbox: &dyn Inbox) -> Answer {
        match self.admits(headers) {
            Err(refused) => Answer::Refused(refused),
            Ok(()) if !is_update(body) => Answer::Malformed,
            Ok(()) => hook::in_time(self.store(body, inbox)).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_webhook_that_fails_or_was_changed_is_told() {
        let url: Url = "https://b.example/hooks/telegram".parse().unwrap();
        let told = |url: &str, waiting: i64, failed_at: i64| {
            json!({"url": url, "pending_update_count": waiting, "last_error_date": failed_at,
                   "last_error_message": "Connection refused"})
        };
        let ours = url.as_str();
        assert!(judge(&told(ours, 0, 990), &url, 1000).is_ok());
        assert!(judge(&told(ours, 3, 900), &url, 1000).is_ok());
        let failing = judge(&told(ours, 3, 990), &url, 1000);
        assert!(matches!(failing, Err(Amiss::NotDelivered(why)) if why.contains("refused")));
        for other in ["", "https://b.example/hooks/other"] {
            let changed = judge(&told(other, 0, 0), &url, 1000);
            assert!(matches!(changed, Err(Amiss::NotOurs(_))), "{other}");
        }
    }
}
