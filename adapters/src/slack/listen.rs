//! Events by Socket Mode: each is with the inbox before it is acknowledged.
//!
//! There is one socket, and for a moment two: when Slack announces an end, the next one is opened
//! first and the old one read until it closes. What was stored and not acknowledged comes again and
//! changes nothing.

use std::{
    convert::Infallible,
    future::{Future, pending},
    pin::Pin,
    time::{Duration, Instant},
};

use mayfly_domain::{Inbox, Incoming, Link, Mark};
use serde_json::Value;
use tokio::time::{sleep, timeout};

use super::{
    NAME, Slack, parse,
    socket::{HALF_OPEN, Heard, NoSocket, Socket},
    words::{code, sentence},
};
use crate::{clock, http::wait::back_off, json::text};

/// The mark that says until when events came.
pub(super) const MARK: &str = "heard";
/// A socket that lived so long was a good one: the next attempt does not wait longer for it.
const GOOD: Duration = Duration::from_secs(10);

type Opening<'a> = Pin<Box<dyn Future<Output = Result<(Box<Socket>, i64), NoSocket>> + Send + 'a>>;
type Pass<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// What a look at the sockets gave.
enum Woken {
    Current(Heard),
    Old(Heard),
    Opened(Result<(Box<Socket>, i64), NoSocket>),
    OldEnds,
    Passed,
}

/// What is to be done after frames.
enum Then {
    Listen,
    /// This socket ends soon: open the next.
    Renew,
    /// This socket is no good any more.
    Leave(String),
    Stop(String),
}

struct Listener<'a> {
    slack: &'a Slack,
    me: &'a parse::Me,
    inbox: &'a dyn Inbox,
    current: Option<Box<Socket>>,
    old: Option<(Box<Socket>, tokio::time::Instant)>,
    opening: Option<Opening<'a>>,
    /// That is for a socket which is still there, and its first attempt.
    renewing: bool,
    pass: Option<Pass<'a>>,
    /// Attempts since a socket opened.
    failed: u32,
    /// Sockets, one after the other, that did not live long.
    short: u32,
    opened_at: Instant,
    /// When something came last, unix ms.
    heard: Option<i64>,
    half_open: bool,
    log: Quiet,
}

impl Slack {
    pub(super) async fn serve(&self, inbox: &dyn Inbox) -> Result<Infallible, String> {
        let me = self.known(inbox).await?;
        if self.config.is_by_http() {
            return Ok(self.await_requests(me, inbox).await);
        }
        let heard = marked(inbox).await;
        let mut listener = Listener {
            slack: self,
            me,
            inbox,
            current: None,
            old: None,
            opening: None,
            renewing: false,
            pass: None,
            failed: 0,
            short: 0,
            opened_at: Instant::now(),
            heard: heard.map(|(value, at)| value.parse().unwrap_or(at)),
            half_open: false,
            log: Quiet::default(),
        };
        listener.open(Duration::ZERO);
        loop {
            let woken = listener.wake().await;
            listener.handle(woken).await?;
        }
    }

    /// Who we are, asked for until Slack says it.
    async fn known(&self, inbox: &dyn Inbox) -> Result<&parse::Me, String> {
        let mut failed = 0;
        let mut log = Quiet::default();
        loop {
            let failure = match self.me().await {
                Ok(me) => return Ok(me),
                Err(failure) => failure,
            };
            if code(&failure).is_some() {
                return Err(sentence(failure));
            }
            let wait = match &failure {
                crate::http::answer::Failure::NotDone { wait, .. } => *wait,
                _ => None,
            };
            let why = failure.to_string();
            log.warn(&why);
            inbox.link(NAME, Link::Down(why));
            sleep(
                wait.unwrap_or_default()
                    .max(back_off(failed, rand::random())),
            )
            .await;
            failed += 1;
        }
    }
}

/// Events came until this time, unix ms.
pub(super) fn heard(at: i64) -> Mark {
    Mark {
        platform: NAME.to_owned(),
        name: MARK.to_owned(),
        value: at.to_string(),
    }
}

/// When something came last, as the inbox has it.
pub(super) async fn marked(inbox: &dyn Inbox) -> Option<(String, i64)> {
    let (mut failed, mut log) = (0, Quiet::default());
    loop {
        match inbox.mark(NAME, MARK).await {
            Ok(mark) => return mark,
            Err(error) => log.warn(&format!("Slack's last mark is not readable: {error}")),
        }
        sleep(back_off(failed, rand::random())).await;
        failed += 1;
    }
}

impl<'a> Listener<'a> {
    /// Begins to open the next socket, unless that is under way.
    fn open(&mut self, after: Duration) {
        if self.opening.is_some() {
            return;
        }
        let (api, pace) = (&self.slack.api, &self.slack.pace);
        self.opening = Some(Box::pin(async move {
            sleep(after).await;
            Socket::open(api, pace).await
        }));
    }

    async fn wake(&mut self) -> Woken {
        let pace = &self.slack.pace;
        let (old, until) = match &mut self.old {
            Some((old, until)) => (Some(old.as_mut()), Some(*until)),
            None => (None, None),
        };
        tokio::select! {
            heard = hear(self.current.as_deref_mut(), pace) => Woken::Current(heard),
            heard = hear(old, pace) => Woken::Old(heard),
            opened = or_never(self.opening.as_mut()) => Woken::Opened(opened),
            () = until_then(until) => Woken::OldEnds,
            () = or_never(self.pass.as_mut()) => Woken::Passed,
        }
    }

    async fn handle(&mut self, woken: Woken) -> Result<(), String> {
        match woken {
            Woken::Current(Heard::Frames(frames)) => {
                let Some(mut socket) = self.current.take() else {
                    return Ok(());
                };
                match self.frames(&mut socket, frames).await {
                    Then::Listen => self.current = Some(socket),
                    Then::Renew => {
                        self.current = Some(socket);
                        self.renewing |= self.opening.is_none();
                        self.open(Duration::ZERO);
                    }
                    Then::Leave(why) => self.lost(why),
                    Then::Stop(why) => return Err(why),
                }
            }
            Woken::Current(Heard::Over(why)) => {
                self.current = None;
                self.lost(why);
            }
            Woken::Old(Heard::Frames(frames)) => {
                let Some((mut socket, until)) = self.old.take() else {
                    return Ok(());
                };
                match self.frames(&mut socket, frames).await {
                    Then::Listen | Then::Renew => self.old = Some((socket, until)),
                    Then::Leave(_) => {}
                    Then::Stop(why) => return Err(why),
                }
            }
            Woken::Old(Heard::Over(_)) | Woken::OldEnds => self.old = None,
            Woken::Opened(opened) => {
                self.opening = None;
                self.renewing = false;
                match opened {
                    Ok((socket, count)) => self.opened(socket, count).await,
                    Err(NoSocket::Never(why)) => return Err(why),
                    Err(NoSocket::Later(why, wait)) => self.not_opened(why, wait),
                }
            }
            Woken::Passed => {
                self.pass = None;
                self.store(Vec::new()).await;
            }
        }
        Ok(())
    }

    async fn opened(&mut self, socket: Box<Socket>, count: i64) {
        let had = i64::from(self.current.is_some()) + i64::from(self.old.is_some());
        if count > had + 1 {
            self.log.warn(&format!(
                "Slack counts {count} sockets of this app and {} are ours: if this stays so, another \
                 instance listens with the same app token and takes a part of the events",
                had + 1
            ));
        }
        let until = tokio::time::Instant::now() + self.slack.pace.overlap;
        let renewed = self.current.replace(socket);
        let gapless = renewed.is_some();
        self.old = renewed.map(|old| (old, until)).or(self.old.take());
        self.opened_at = Instant::now();
        self.failed = 0;
        self.inbox.link(NAME, Link::Up);
        let gap = self
            .heard
            .map(|heard| clock::unix_ms().saturating_sub(heard));
        let long =
            gap.is_some_and(|gap| u128::from(gap.unsigned_abs()) > self.slack.pace.gap.as_millis());
        if !gapless && (long || self.half_open) && self.pass.is_none() {
            let (slack, me, inbox) = (self.slack, self.me, self.inbox);
            self.pass = Some(Box::pin(slack.catch_up(me, inbox)));
        }
        self.half_open = false;
        self.store(Vec::new()).await;
    }

    fn not_opened(&mut self, why: String, wait: Option<Duration>) {
        self.log
            .warn(&format!("Slack's socket does not open: {why}"));
        if self.current.is_none() {
            self.inbox.link(NAME, Link::Down(why));
        }
        let pause = back_off(self.failed.max(self.short), rand::random());
        self.failed = self.failed.saturating_add(1);
        self.open(wait.unwrap_or_default().max(pause));
    }

    /// The current socket is gone.
    fn lost(&mut self, why: String) {
        self.log.warn(&format!("Slack's socket is lost: {why}"));
        self.half_open |= why == HALF_OPEN;
        self.heard = Some(clock::unix_ms())
            .filter(|_| why != HALF_OPEN)
            .or(self.heard);
        if self.renewing {
            // The next one is as good as there; if it is not, that is said then.
            return;
        }
        self.inbox.link(NAME, Link::Down(why));
        if self.opened_at.elapsed() >= GOOD {
            self.short = 0;
        }
        let pause = back_off(self.short, rand::random());
        self.short = self.short.saturating_add(1);
        self.open(pause);
    }

    /// Stores events, then acknowledges them.
    async fn frames(&mut self, socket: &mut Socket, frames: Vec<String>) -> Then {
        let (mut events, mut ids, mut then) = (Vec::new(), Vec::new(), Then::Listen);
        for raw in frames {
            let frame: Value = serde_json::from_str(&raw).unwrap_or(Value::Null);
            match text(&frame, &["type"]) {
                Some("hello") => continue,
                Some("disconnect") => {
                    then = ending(text(&frame, &["reason"]).unwrap_or_default());
                    continue;
                }
                _ => {}
            }
            if let Some(id) = text(&frame, &["envelope_id"]) {
                ids.push(id.to_owned());
            }
            events.push(Incoming {
                platform: NAME.to_owned(),
                event: Ok(parse::parse(raw.as_bytes(), self.me)),
                raw: raw.into_bytes(),
            });
        }
        if !events.is_empty() && !self.store(events).await {
            return Then::Leave("the inbox does not take events".to_owned());
        }
        for id in ids {
            if let Err(why) = socket.acknowledge(&id, &self.slack.pace).await {
                return Then::Leave(why);
            }
        }
        then
    }

    /// Hands events to the inbox, with how far we are; while a gap is open, that is not yet said.
    async fn store(&mut self, events: Vec<Incoming>) -> bool {
        let now = clock::unix_ms();
        let mark = self.pass.is_none().then(|| heard(now));
        if events.is_empty() && mark.is_none() {
            return true;
        }
        let taking = self.inbox.take(events, mark);
        match timeout(self.slack.pace.store, taking).await {
            Ok(Ok(())) => {
                self.heard = Some(now);
                true
            }
            Ok(Err(error)) => {
                self.log
                    .warn(&format!("an event of Slack is not stored: {error}"));
                false
            }
            Err(_) => {
                self.log.warn("an event of Slack is not stored in time");
                false
            }
        }
    }
}

/// What a `disconnect` frame asks for.
fn ending(reason: &str) -> Then {
    match reason {
        "link_disabled" => Then::Stop(super::words::way_out(reason)),
        // Another one would be closed, too: first let go, then come back later.
        "too_many_websockets" => Then::Leave("Slack says there are too many sockets".to_owned()),
        _ => Then::Renew,
    }
}

async fn hear(socket: Option<&mut Socket>, pace: &super::Pace) -> Heard {
    match socket {
        Some(socket) => socket.hear(pace).await,
        None => pending().await,
    }
}

async fn or_never<T>(future: Option<&mut Pin<Box<dyn Future<Output = T> + Send + '_>>>) -> T {
    match future {
        Some(future) => future.await,
        None => pending().await,
    }
}

async fn until_then(until: Option<tokio::time::Instant>) {
    match until {
        Some(until) => tokio::time::sleep_until(until).await,
        None => pending().await,
    }
}

/// At most one line a second.
#[derive(Default)]
struct Quiet {
    last: Option<Instant>,
    left_out: u64,
}

impl Quiet {
    fn warn(&mut self, what: &str) {
        if self
            .last
            .is_some_and(|last| last.elapsed() < Duration::from_secs(1))
        {
            self.left_out += 1;
            return;
        }
        let left_out = std::mem::take(&mut self.left_out);
        self.last = Some(Instant::now());
        tracing::warn!(platform = NAME, left_out, "{what}");
    }
}
