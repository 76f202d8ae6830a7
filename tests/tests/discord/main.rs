//! Discord's adapter against the fake: what is posted is seen once, what is said is stored once.

mod client;
mod files;
mod inbox;
mod listening;
mod posts;
mod setup;

use std::time::Duration;

use mayfly_adapters::discord::{Discord, config::Config};
use mayfly_domain::{
    Channel, ThreadKey,
    chat::{CallError, Content, NewPost, Platform},
};
use mayfly_tests::fake_discord::{self, FakeDiscord, GUILD, Running};

/// Longest time anything is waited for.
const PATIENCE: Duration = Duration::from_secs(60);

fn config(fake: &Running) -> Config {
    let mut config = Config::new(fake_discord::token());
    config.api_url = fake.rest.url();
    config.file_hosts = vec![fake.rest.url()];
    config
}

/// An adapter without anything in memory, as after a start.
fn adapter(fake: &Running) -> Discord {
    let _ = rustls::crypto::ring::default_provider().install_default();
    Discord::new(config(fake)).expect("good settings")
}

fn start() -> (Running, Discord) {
    let fake = FakeDiscord::start();
    let discord = adapter(&fake);
    (fake, discord)
}

fn guild(channel: u64) -> Channel {
    Channel {
        platform: "discord".to_owned(),
        workspace: GUILD.to_string(),
        channel: channel.to_string(),
    }
}

/// The conversation that a message opens.
fn thread(channel: u64, message: u64) -> ThreadKey {
    guild(channel).thread(message.to_string())
}

/// A conversation without threads.
fn direct(channel: u64) -> ThreadKey {
    let channel = Channel {
        workspace: String::new(),
        ..guild(channel)
    };
    channel.thread("")
}

fn said(discord: &Discord, markdown: &str) -> Content {
    discord.render(markdown).parts.remove(0)
}

fn new_post(thread: &ThreadKey, token: &str, content: Content) -> NewPost {
    NewPost {
        thread: thread.clone(),
        token: token.to_owned(),
        content,
        answers: None,
        unknown_since: None,
    }
}

/// Texts of a channel or thread by the bot.
fn texts(fake: &Running, channel: u64) -> Vec<String> {
    let ours = fake.shown(channel).into_iter().filter(|shown| shown.ours);
    ours.map(|shown| shown.text).collect()
}

/// Whether it may have been done.
fn open(error: &CallError) -> bool {
    matches!(error, CallError::Unknown(_))
}

/// Looks again until it is so; fails after a minute with what was wanted.
async fn until(wanted: &str, seen: impl Fn() -> bool) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while !seen() {
        assert!(
            tokio::time::Instant::now() < deadline,
            "not within {PATIENCE:?}: {wanted}"
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
