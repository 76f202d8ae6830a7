//! Events in: stored in their order together with where we stand, then acknowledged.
//!
//! After a session that could not be resumed there is a gap. It is caught up conversation by
//! conversation, beside the connection; meanwhile (for a short time) what comes live waits, so that
//! a conversation keeps its order, and no mark is written, so that a crash finds the gap again.

use std::{collections::VecDeque, convert::Infallible, future::pending, time::Duration};

use futures_util::{FutureExt as _, StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use mayfly_domain::{Inbox, Incoming, Link, Recent, chat::CallError};
use reqwest::Method;
use serde_json::Value;
use serenity::all::Route;
use tokio::{
    pin, select,
    time::{Instant, sleep, sleep_until},
};

use super::{
    Discord, NAME,
    api::{Ask, Error},
    catch_up::CONVERSATIONS,
    connection::{Connection, End, Frame},
    parse::{Known, deleted_in_bulk, parse},
    refusal,
    session::{MARK, Session, sequence},
    setup::content_switch,
    thread::number,
};
use crate::{
    http::wait::back_off,
    json::{at, number as integer, text},
};

/// Least time between two identifies.
const IDENTIFY_PAUSE: Duration = Duration::from_millis(5_100);
/// A connection that held this long was a good one.
const HELD_WELL: Duration = Duration::from_secs(30);
/// Longest time that live events wait for a gap to be caught up, and most of them.
const HOLD: Duration = Duration::from_secs(30);
const HELD_MOST: usize = 5_000;
/// Dispatches that are nothing to store are marked so seldom.
const MARK_EVERY: u64 = 100;
const LOG_PAUSE: Duration = Duration::from_secs(1);

/// See [`mayfly_domain::chat::Platform::listen`].
pub(crate) async fn listen(discord: &Discord, inbox: &dyn Inbox) -> Result<Infallible, String> {
    let mut stream = Stream::new(discord, inbox);
    stream.live = stream.stored().await;
    let mut failed = 0;
    loop {
        stream.up_since = None;
        let end = stream.connected().await;
        stream.release().await;
        let held_well = stream
            .up_since
            .is_some_and(|since| since.elapsed() >= HELD_WELL);
        failed = if held_well { 0 } else { failed + 1 };
        let why = match end {
            End::Asked if stream.up_since.is_some() && failed <= 1 => continue,
            End::Asked => "Discord asks for a new connection".to_owned(),
            End::Lost(why) => why,
            End::Forgotten(why) => {
                stream.live = None;
                why
            }
            End::Shut(code) => return Err(stream.shut(shut(discord, code).await)),
            End::Fatal(sentence) => return Err(stream.shut(sentence)),
        };
        stream.down(&why);
        stream.pause(back_off(failed, rand::random())).await;
    }
}

/// The sentence for a close code that must not be tried again.
async fn shut(discord: &Discord, code: u16) -> String {
    match code {
        4004 => refusal::TOKEN.to_owned(),
        4011 => "the bot is in more servers than one connection may serve (close code 4011): take it out of some, Mayfly has one connection".to_owned(),
        4014 => {
            let application = discord.me().await.map_or_else(|_| "APPLICATION".to_owned(), |me| me.application);
            format!("Discord does not grant the bot what people write (close code 4014): {}", content_switch(&application))
        }
        _ => format!("Discord refuses the connection as this version of Mayfly makes it (close code {code}): update Mayfly"),
    }
}

/// What one conversation lacked.
type Missed = (Recent, Result<Vec<Incoming>, CallError>);

struct Stream<'a> {
    discord: &'a Discord,
    inbox: &'a dyn Inbox,
    /// Where a new connection goes on: up to here everything is stored.
    live: Option<Session>,
    /// The number that the last mark holds.
    marked: u64,
    /// Conversations that are still to be caught up.
    gap: VecDeque<Recent>,
    step: Option<BoxFuture<'a, Missed>>,
    tries: u32,
    /// How long Discord wants not to be asked.
    rest: Duration,
    /// Live events wait until then.
    hold: Option<Instant>,
    held: Vec<Incoming>,
    held_seq: u64,
    acknowledging: FuturesUnordered<BoxFuture<'a, ()>>,
    identified: Option<Instant>,
    up_since: Option<Instant>,
    link: Option<Link>,
    logged: Option<Instant>,
}

/// Does `work` while interactions are acknowledged.
async fn beside<T>(
    acknowledging: &mut FuturesUnordered<BoxFuture<'_, ()>>,
    work: impl Future<Output = T>,
) -> T {
    pin!(work);
    loop {
        select! {
            done = &mut work => return done,
            Some(()) = acknowledging.next(), if !acknowledging.is_empty() => {}
        }
    }
}

enum Next {
    Heard(Vec<Frame>, Option<End>),
    CaughtUp(Missed),
    HeldLongEnough,
}

impl<'a> Stream<'a> {
    fn new(discord: &'a Discord, inbox: &'a dyn Inbox) -> Self {
        Stream {
            discord,
            inbox,
            live: None,
            marked: 0,
            gap: VecDeque::new(),
            step: None,
            tries: 0,
            rest: Duration::ZERO,
            hold: None,
            held: Vec::new(),
            held_seq: 0,
            acknowledging: FuturesUnordered::new(),
            identified: None,
            up_since: None,
            link: None,
            logged: None,
        }
    }

    /// The session that was stored, as soon as the inbox can be asked.
    async fn stored(&mut self) -> Option<Session> {
        for failed in 0.. {
            match self.inbox.mark(NAME, MARK).await {
                Ok(mark) => return Session::of_mark(&mark?.0),
                Err(error) => self.down(&error.to_string()),
            }
            sleep(back_off(failed, rand::random())).await;
        }
        None
    }

    async fn pause(&mut self, pause: Duration) {
        beside(&mut self.acknowledging, sleep(pause)).await;
    }

    fn up(&mut self) {
        self.up_since.get_or_insert_with(Instant::now);
        self.say(Link::Up);
    }

    fn down(&mut self, why: &str) {
        let why = self.discord.api.clean(why);
        if self
            .logged
            .is_none_or(|logged| logged.elapsed() >= LOG_PAUSE)
        {
            self.logged = Some(Instant::now());
            tracing::warn!(%why, "no connection to Discord's gateway");
        }
        self.say(Link::Down(why));
    }

    fn shut(&mut self, sentence: String) -> String {
        self.down(&sentence);
        sentence
    }

    fn say(&mut self, link: Link) {
        if self.link.as_ref() != Some(&link) {
            self.inbox.link(NAME, link.clone());
            self.link = Some(link);
        }
    }

    async fn connected(&mut self) -> End {
        let mut connection = match self.dial().await {
            Ok(connection) => connection,
            Err(end) => return end,
        };
        loop {
            self.catch_up();
            let step = self.step.as_mut();
            let hold = self.hold;
            let next = select! {
                Some(()) = self.acknowledging.next(), if !self.acknowledging.is_empty() => continue,
                (frames, end) = connection.next() => Next::Heard(frames, end),
                missed = async { match step { Some(step) => step.await, None => pending().await } } => Next::CaughtUp(missed),
                () = async { match hold { Some(until) => sleep_until(until).await, None => pending().await } } => Next::HeldLongEnough,
            };
            let done = match next {
                Next::Heard(frames, end) => match (self.heard(frames).await, end) {
                    (Ok(()), None) => Ok(()),
                    (Ok(()), Some(end)) | (Err(end), _) => Err(end),
                },
                Next::CaughtUp(missed) => self.caught_up(missed).await,
                Next::HeldLongEnough => self.store_held().await,
            };
            if let Err(end) = done {
                return end;
            }
        }
    }

    /// A connection that resumes, or identifies within Discord's limits.
    async fn dial(&mut self) -> Result<Connection, End> {
        let discord = self.discord;
        let url = match &self.live {
            Some(session) => session.url.clone(),
            None => self.allowed().await?,
        };
        let Some(url) = address(&url, discord.api.plain()) else {
            self.live = None;
            return Err(End::Lost("the gateway's address is none".to_owned()));
        };
        if let Some(session) = &self.live {
            let _ = discord.me.set(session.me());
        } else {
            self.identified = Some(Instant::now());
        }
        Ok(Connection::new(
            discord.api.token(),
            url,
            self.live.as_ref(),
        ))
    }

    /// Waits until another identify is allowed, and says where.
    async fn allowed(&mut self) -> Result<String, End> {
        if let Some(at) = self.identified {
            beside(&mut self.acknowledging, sleep_until(at + IDENTIFY_PAUSE)).await;
        }
        let asked = self
            .discord
            .api
            .call(Ask::new(Method::GET, Route::GatewayBot));
        let answer = beside(&mut self.acknowledging, asked)
            .await
            .map_err(|error| match error.told("") {
                CallError::Refused(sentence) => End::Fatal(sentence),
                CallError::Limited { reason, after } => {
                    End::Lost(format!("{reason}, for {} s", after.as_secs()))
                }
                error => End::Lost(error.to_string()),
            })?;
        let limit = |name| integer(&answer, &["session_start_limit", name]);
        if limit("remaining") == Some(0) {
            let wait = Duration::from_millis(
                limit("reset_after")
                    .and_then(|ms| u64::try_from(ms).ok())
                    .unwrap_or(60_000),
            );
            self.down(&format!(
                "all sessions of today are used up; the next is possible in {} min",
                wait.as_secs() / 60
            ));
            self.pause(wait).await;
        }
        let url = text(&answer, &["url"]);
        url.map(str::to_owned)
            .ok_or_else(|| End::Lost("Discord names no gateway".to_owned()))
    }

    /// Understands frames and stores them.
    async fn heard(&mut self, frames: Vec<Frame>) -> Result<(), End> {
        let mut events = Vec::new();
        let mut interactions = Vec::new();
        let mut seq = 0;
        for frame in frames {
            let kind = text(&frame.value, &["t"]).unwrap_or_default();
            let data = at(&frame.value, &["d"]).unwrap_or(&Value::Null);
            match kind {
                "READY" => self.begin(&frame.value).await?,
                "RESUMED" => self.up(),
                _ => {}
            }
            self.discord.known.learn(kind, data);
            if let Some(channel) = self.discord.known.missing(kind, data) {
                self.ask(&channel).await?;
            }
            seq = sequence(&frame.value).unwrap_or(0).max(seq);
            let understood = self.understood(&frame);
            if kind == "INTERACTION_CREATE" {
                interactions.push(data.clone());
            }
            if kind == "INTERACTION_CREATE" && self.hold.is_some() {
                // Somebody waits for a word, three seconds: it does not wait for a gap.
                take(&mut self.acknowledging, self.inbox, understood, None).await?;
            } else {
                events.extend(understood);
            }
        }
        if self.hold.is_some() {
            self.held.extend(events);
            self.held_seq = self.held_seq.max(seq);
            if self.held.len() >= HELD_MOST {
                self.store_held().await?;
            }
        } else {
            self.store(events, seq).await?;
        }
        let discord = self.discord;
        for data in interactions {
            self.acknowledging.push(discord.acknowledge(data).boxed());
        }
        Ok(())
    }

    /// A new session: whatever came since the last one is a gap.
    async fn begin(&mut self, ready: &Value) -> Result<(), End> {
        let session = Session::of_ready(ready)
            .ok_or_else(|| End::Lost("the greeting is not understood".to_owned()))?;
        let recent = beside(
            &mut self.acknowledging,
            self.inbox.recent(NAME, CONVERSATIONS),
        )
        .await;
        let recent = recent.map_err(|error| End::Lost(error.to_string()))?;
        for conversation in recent {
            if !self
                .gap
                .iter()
                .any(|known| known.thread == conversation.thread)
            {
                self.gap.push_back(conversation);
            }
        }
        self.hold = (!self.gap.is_empty()).then(|| Instant::now() + HOLD);
        let _ = self.discord.me.set(session.me());
        self.live = Some(session);
        self.marked = 0;
        self.up();
        Ok(())
    }

    /// Whether a channel is a thread, and of which.
    async fn ask(&mut self, channel: &str) -> Result<(), End> {
        let Ok(id) = number(channel) else {
            return Ok(());
        };
        let asked = self.discord.channel(id.into());
        match beside(&mut self.acknowledging, asked).await {
            Ok(_) => Ok(()),
            Err(Error::Call(CallError::Refused(sentence))) => Err(End::Fatal(sentence)),
            Err(Error::Call(error)) => Err(End::Lost(format!("a channel is not known: {error}"))),
            Err(Error::Code(..)) => {
                self.discord.known.no_thread(channel);
                Ok(())
            }
        }
    }

    /// What a frame is to the inbox: nothing where it only keeps the connection, or tells of our own
    /// posts and of what is not written by people.
    fn understood(&self, frame: &Frame) -> Vec<Incoming> {
        let raw = frame.raw.as_bytes();
        let incoming = |event| Incoming {
            platform: NAME.to_owned(),
            raw: raw.to_vec(),
            event,
        };
        if frame.value.is_null() {
            return vec![incoming(Err("no JSON".to_owned()))];
        }
        let bulk = deleted_in_bulk(raw);
        if !bulk.is_empty() {
            return bulk.into_iter().map(|event| incoming(Ok(event))).collect();
        }
        let me = self
            .live
            .as_ref()
            .map(|session| session.user.as_str())
            .unwrap_or_default();
        let parent = |channel: &str| self.discord.known.parent(channel).flatten();
        let event = parse(
            raw,
            &Known {
                me,
                parent: &parent,
            },
        );
        match &event.happened {
            mayfly_domain::Happened::Ignored(why)
                if matches!(why.as_str(), "protocol" | "system" | "own" | "not_an_edit") =>
            {
                Vec::new()
            }
            _ => vec![incoming(Ok(event))],
        }
    }

    /// Stores live events, with where we stand then.
    async fn store(&mut self, events: Vec<Incoming>, seq: u64) -> Result<(), End> {
        let Some(session) = self.live.as_ref().filter(|session| session.seq <= seq) else {
            return take(&mut self.acknowledging, self.inbox, events, None).await;
        };
        let session = Session {
            seq,
            ..session.clone()
        };
        let due = !events.is_empty() || self.marked == 0 || seq >= self.marked + MARK_EVERY;
        let mark = (due && self.gap.is_empty()).then(|| session.mark());
        let marked = mark.is_some();
        if marked || !events.is_empty() {
            take(&mut self.acknowledging, self.inbox, events, mark).await?;
        }
        if marked {
            self.marked = seq;
        }
        self.live = Some(session);
        Ok(())
    }

    /// Ends the waiting of live events.
    async fn store_held(&mut self) -> Result<(), End> {
        self.hold = None;
        let held = std::mem::take(&mut self.held);
        let seq = self
            .live
            .as_ref()
            .map_or(0, |session| session.seq)
            .max(self.held_seq);
        self.held_seq = 0;
        self.store(held, seq).await
    }

    /// What waits is stored before the connection is given up.
    async fn release(&mut self) {
        if self.hold.is_some()
            && let Err(End::Lost(why)) = self.store_held().await
        {
            self.down(&why);
        }
    }

    /// Starts on the next conversation.
    fn catch_up(&mut self) {
        if self.step.is_some() || self.live.is_none() {
            return;
        }
        let Some(recent) = self.gap.front().cloned() else {
            return;
        };
        let me = self
            .live
            .as_ref()
            .map(|session| session.user.clone())
            .unwrap_or_default();
        let pause = match self.tries {
            0 => Duration::ZERO,
            tries => back_off(tries, rand::random()).max(self.rest),
        };
        self.rest = Duration::ZERO;
        let discord = self.discord;
        let step = async move {
            sleep(pause).await;
            let missed = discord.missed(&recent, &me).await;
            (recent, missed)
        };
        self.step = Some(step.boxed());
    }

    async fn caught_up(&mut self, (recent, missed): Missed) -> Result<(), End> {
        self.step = None;
        match missed {
            Ok(events) => {
                if !events.is_empty() {
                    take(&mut self.acknowledging, self.inbox, events, None).await?;
                }
            }
            Err(CallError::Refused(why) | CallError::Gone(why)) => {
                tracing::warn!(thread = %recent.thread, %why, "a conversation cannot be caught up");
            }
            Err(error) => {
                tracing::warn!(thread = %recent.thread, %error, "a conversation is caught up later");
                self.tries += 1;
                if let CallError::Limited { after, .. } = error {
                    self.rest = after;
                }
                return Ok(());
            }
        }
        self.tries = 0;
        self.gap.retain(|other| other.thread != recent.thread);
        if self.gap.is_empty() {
            self.store_held().await?;
        }
        Ok(())
    }
}

async fn take(
    acknowledging: &mut FuturesUnordered<BoxFuture<'_, ()>>,
    inbox: &dyn Inbox,
    events: Vec<Incoming>,
    mark: Option<mayfly_domain::Mark>,
) -> Result<(), End> {
    if events.is_empty() && mark.is_none() {
        return Ok(());
    }
    let taken = beside(acknowledging, inbox.take(events, mark)).await;
    taken.map_err(|error| End::Lost(format!("events cannot be stored: {error}")))
}

/// The gateway's address without a path; encrypted unless the API is not either.
fn address(url: &str, plain: bool) -> Option<String> {
    let url = reqwest::Url::parse(url).ok()?;
    let scheme = match url.scheme() {
        "wss" => "wss",
        "ws" if plain => "ws",
        _ => return None,
    };
    let host = url.host_str()?;
    Some(match url.port() {
        Some(port) => format!("{scheme}://{host}:{port}"),
        None => format!("{scheme}://{host}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn se_05_a_token_goes_to_an_encrypted_gateway_only() {
        assert_eq!(
            address("wss://gateway.discord.gg/?v=9", false).as_deref(),
            Some("wss://gateway.discord.gg")
        );
        assert_eq!(
            address("ws://127.0.0.1:80/", true).as_deref(),
            Some("ws://127.0.0.1")
        );
        assert_eq!(
            address("ws://127.0.0.1:81/", true).as_deref(),
            Some("ws://127.0.0.1:81")
        );
        for wrong in [
            "ws://gateway.discord.gg",
            "https://gateway.discord.gg",
            "",
            "wss://",
        ] {
            assert_eq!(address(wrong, false), None, "{wrong}");
        }
    }
}
