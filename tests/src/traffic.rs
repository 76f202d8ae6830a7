//! People who write without a pause on one platform, and how long it takes until that is acknowledged.
//!
//! Most of what they write is said among themselves; every tenth post speaks to the bot and starts a
//! tick. On Discord, where messages need no acknowledgement, that tenth is a command.

mod discord;
mod slack;
mod telegram;

use std::{
    thread,
    time::{Duration, Instant},
};

use crate::server::Server;

/// Longest until what was written is acknowledged, or stored and understood.
const PATIENCE: Duration = Duration::from_secs(120);

/// How a platform's events come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Slack by Socket Mode.
    SlackSocket,
    /// Slack by requests.
    SlackRequests,
    /// Discord by its gateway.
    Discord,
    /// Telegram by polling.
    TelegramPolling,
    /// Telegram by requests.
    TelegramRequests,
}

impl Way {
    /// All of them.
    pub const ALL: [Way; 5] = [
        Way::SlackSocket,
        Way::SlackRequests,
        Way::Discord,
        Way::TelegramPolling,
        Way::TelegramRequests,
    ];

    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Way::SlackSocket => "slack by socket",
            Way::SlackRequests => "slack by requests",
            Way::Discord => "discord",
            Way::TelegramPolling => "telegram by polling",
            Way::TelegramRequests => "telegram by requests",
        }
    }

    /// A fake with people on it.
    pub fn crowd(self) -> Box<dyn Crowd> {
        match self {
            Way::SlackSocket => slack::crowd(false),
            Way::SlackRequests => slack::crowd(true),
            Way::Discord => discord::crowd(),
            Way::TelegramPolling => telegram::crowd(false),
            Way::TelegramRequests => telegram::crowd(true),
        }
    }
}

/// People on a fake.
pub trait Crowd {
    /// What the program is told of the platform; ADA may speak everywhere.
    fn environment(&self) -> Vec<(&'static str, String)>;
    /// Waits until the program that has started hears what is said.
    fn reach(&self, server: &Server);
    /// Somebody writes to others.
    fn chatter(&self, n: usize);
    /// Somebody who may speaks to the bot, in a conversation of its own.
    fn speak(&self, n: usize);
    /// Somebody does what has to be acknowledged, where that is no message.
    fn press(&self, n: usize);
    /// How long each acknowledgement took so far.
    fn took(&self) -> Vec<Duration>;
    /// How many acknowledgements the first so many of [`post`] want.
    fn wanted(&self, posts: usize) -> usize;
}

/// One in ten speaks to the bot or presses something.
const TO_THE_BOT: usize = 10;

/// The n-th thing that people do.
pub fn post(crowd: &dyn Crowd, n: usize) {
    match n % TO_THE_BOT {
        0 => crowd.press(n),
        _ => crowd.chatter(n),
    }
}

/// Writes so much a second, for so many posts, whatever the program does; returns how long each
/// acknowledgement took.
pub fn steady(crowd: &dyn Crowd, a_second: u32, posts: usize) -> Vec<Duration> {
    let (had, began) = (crowd.took().len(), Instant::now());
    for n in 0..posts {
        let at = Duration::from_secs_f64(n as f64 / f64::from(a_second));
        thread::sleep(at.saturating_sub(began.elapsed()));
        post(crowd, n);
    }
    let wanted = had + crowd.wanted(posts);
    let since = Instant::now();
    while crowd.took().len() < wanted {
        assert!(
            since.elapsed() < PATIENCE,
            "{} of {wanted} acknowledgements",
            crowd.took().len()
        );
        thread::sleep(Duration::from_millis(10));
    }
    crowd.took().split_off(had)
}

/// Waits until everything that came is understood, and so many events came at least.
pub fn applied(server: &Server, at_least: u64) {
    let since = Instant::now();
    loop {
        let told = server.sql("SELECT count(*) || ' ' || sum(state = 'new') FROM arrivals");
        let mut words = told.split(' ').map(|word| word.parse().unwrap_or(0u64));
        if words.next() >= Some(at_least) && words.next() == Some(0) {
            return;
        }
        assert!(
            since.elapsed() < PATIENCE,
            "{told} of {at_least}: {}",
            server.log()
        );
        thread::sleep(Duration::from_millis(20));
    }
}

/// Events that came so far.
pub fn events(server: &Server) -> u64 {
    let told = server.sql("SELECT value FROM counters WHERE name = 'arrivals'");
    told.parse().expect("a number")
}

/// Waits until so many events came in all and nothing is under way any more: no message, no command,
/// no reply that is owed.
pub fn quiet(server: &Server, came: u64) {
    let since = Instant::now();
    while events(server) < came {
        assert!(
            since.elapsed() < PATIENCE,
            "{came} events: {}",
            server.log()
        );
        thread::sleep(Duration::from_millis(20));
    }
    let open = "SELECT (SELECT count(*) FROM messages WHERE outcome IS NULL)
        + (SELECT count(*) FROM orders WHERE state != 'done')
        + (SELECT count(*) FROM deliveries WHERE state = 'owed')
        + (SELECT count(*) FROM progress)
        + (SELECT count(*) FROM arrivals WHERE state = 'new')";
    while server.sql(open) != "0" {
        assert!(since.elapsed() < PATIENCE, "no rest: {}", server.log());
        thread::sleep(Duration::from_millis(20));
    }
}
