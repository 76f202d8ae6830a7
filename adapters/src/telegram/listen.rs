//! The loop that takes updates in.
//!
//! An offset acknowledges what is below it, so it is only sent when the inbox has that. It is stored
//! with the events before it, and forgotten after six quiet days: after a week Telegram may begin to
//! count anew, lower.

use std::{
    convert::Infallible,
    time::{Duration, Instant},
};

use mayfly_domain::{Inbox, Incoming, Link, Mark};

use super::{Telegram, api::Polled, hook, parse, trouble::refuses};
use crate::http::{answer::Failure, wait};

pub(super) const PLATFORM: &str = "telegram";
const OFFSET: &str = "offset";
/// In ms.
const QUIET: i64 = 6 * 24 * 60 * 60 * 1000;
/// Most updates of one poll.
const BATCH: u8 = 100;
/// Least time between two lines in the log.
const LINE: Duration = Duration::from_secs(1);

/// Takes updates in until it is dropped; the error is why nobody should try again.
pub(crate) async fn listen(bot: &Telegram, inbox: &dyn Inbox) -> Result<Infallible, String> {
    let mut line = Line::new(inbox);
    let me = loop {
        match bot.known().await {
            Ok(me) => break me,
            Err(failure) => line.failed(Trouble::of(failure)?).await,
        }
    };
    let mut offset = loop {
        match Offset::stored(inbox).await {
            Ok(offset) => break offset,
            Err(trouble) => line.failed(trouble).await,
        }
    };
    let mut limit = BATCH;
    loop {
        let asked = Instant::now();
        let from = offset.get((bot.clock)());
        let polled = match bot.api.poll(from, limit, bot.poll_s).await {
            Ok(polled) => polled,
            Err(failure) if is_webhook(&failure) && hook::take_away(bot, inbox).await => continue,
            Err(failure) => {
                // An update too large to be read in company is read alone.
                limit = if matches!(failure, Failure::Unknown { .. }) {
                    1
                } else {
                    limit
                };
                line.failed(Trouble::of(failure)?).await;
                continue;
            }
        };
        limit = BATCH;
        let Some(next) = polled
            .updates
            .iter()
            .map(|(id, _)| id.saturating_add(1))
            .max()
        else {
            line.up();
            unhurried(asked, bot.poll_s).await;
            continue;
        };
        let events = understood(polled, me);
        let mark = Mark {
            platform: PLATFORM.to_owned(),
            name: OFFSET.to_owned(),
            value: next.to_string(),
        };
        match inbox.take(events, Some(mark)).await {
            Ok(()) => {
                offset = Offset::now(next, (bot.clock)());
                line.up();
            }
            Err(error) => line.failed(Trouble::ours(&error)).await,
        }
    }
}

fn understood(polled: Polled, me: &parse::Me) -> Vec<Incoming> {
    let understood = |(_, raw): (i64, Vec<u8>)| Incoming {
        platform: PLATFORM.to_owned(),
        event: Ok(parse::parse(&raw, me)),
        raw,
    };
    polled.updates.into_iter().map(understood).collect()
}

/// A server that answers at once although there is nothing new is not asked in a rush.
async fn unhurried(asked: Instant, poll_s: u8) {
    if asked.elapsed() < Duration::from_secs(u64::from(poll_s)) / 2 {
        tokio::time::sleep(LINE).await;
    }
}

/// The next update's number, and when the last one came.
struct Offset(Option<(i64, i64)>);

impl Offset {
    async fn stored(inbox: &dyn Inbox) -> Result<Offset, Trouble> {
        let mark = inbox.mark(PLATFORM, OFFSET).await;
        let mark = mark.map_err(|error| Trouble::ours(&error))?;
        Ok(Offset(mark.and_then(|(value, at)| {
            value.parse().ok().map(|next| (next, at))
        })))
    }

    fn now(next: i64, at: i64) -> Offset {
        Offset(Some((next, at)))
    }

    fn get(&self, now: i64) -> Option<i64> {
        let (next, at) = self.0?;
        (now.saturating_sub(at) < QUIET).then_some(next)
    }
}

fn is_webhook(failure: &Failure) -> bool {
    refuses(failure, &["webhook is active"])
}

/// Why updates do not come.
pub(super) struct Trouble {
    why: String,
    wait: Option<Duration>,
}

impl Trouble {
    /// The error is for what must not be tried again.
    pub(super) fn of(failure: Failure) -> Result<Trouble, String> {
        if refuses(&failure, &["Unauthorized", "HTTP status 401"])
            || matches!(&failure, Failure::Permanent { reason } if reason == "Not Found")
        {
            return Err(
                "Telegram does not accept the token: take the current one from @BotFather"
                    .to_owned(),
            );
        }
        let (why, wait) = match failure {
            failure if is_webhook(&failure) => (
                "a webhook is set, so Telegram gives no updates to polls: call deleteWebhook, or \
                 receive them at its URL"
                    .to_owned(),
                None,
            ),
            Failure::Permanent { reason } if reason.starts_with("Conflict") => (
                "another program polls with the same token and takes its updates: stop one of both, \
                 or renew the token at @BotFather"
                    .to_owned(),
                None,
            ),
            Failure::NotDone { why, wait } => (why, wait),
            Failure::Unknown { why } | Failure::Permanent { reason: why } => (why, None),
            Failure::Moved { to } => (format!("an answer about a chat, {to}"), None),
        };
        Ok(Trouble { why, wait })
    }

    pub(super) fn ours(error: &dyn std::error::Error) -> Trouble {
        Trouble {
            why: format!("updates cannot be kept: {error}"),
            wait: None,
        }
    }
}

/// What was said of the connection, so that only changes are.
pub(super) struct Line<'a> {
    inbox: &'a dyn Inbox,
    told: Option<Link>,
    failures: u32,
    logged: Option<Instant>,
}

impl<'a> Line<'a> {
    pub(super) fn new(inbox: &'a dyn Inbox) -> Line<'a> {
        Line {
            inbox,
            told: None,
            failures: 0,
            logged: None,
        }
    }

    pub(super) fn up(&mut self) {
        self.failures = 0;
        self.tell(Link::Up);
    }

    /// Waits before the next try.
    pub(super) async fn failed(&mut self, trouble: Trouble) {
        if self.logged.is_none_or(|logged| logged.elapsed() >= LINE) {
            tracing::warn!(why = trouble.why, "no updates from Telegram");
            self.logged = Some(Instant::now());
        }
        self.tell(Link::Down(trouble.why));
        let pause = wait::back_off(self.failures, rand::random());
        self.failures = self.failures.saturating_add(1);
        tokio::time::sleep(trouble.wait.map_or(pause, |wait| wait.max(pause))).await;
    }

    pub(super) fn tell(&mut self, link: Link) {
        if self.told.as_ref() != Some(&link) {
            self.told = Some(link.clone());
            self.inbox.link(PLATFORM, link);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ev_06_an_offset_is_forgotten_after_six_quiet_days() {
        let day = QUIET / 6;
        let offset = Offset::now(505, 1000);
        assert_eq!(offset.get(1000 + 6 * day - 1), Some(505));
        assert_eq!(offset.get(1000 + 6 * day), None);
        // A clock that was set back is no quiet day.
        assert_eq!(offset.get(0), Some(505));
        assert_eq!(Offset(None).get(0), None);
    }
}
