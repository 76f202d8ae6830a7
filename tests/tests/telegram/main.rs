//! Telegram's adapter against a fake of its API, and that fake against a client of others.

mod calls;
mod client;
mod emulator;
mod faults;
mod files;
mod kept;
mod listen;
mod pairing;
mod setup;

use std::{
    future::Future,
    time::{Duration, Instant},
};

use mayfly_adapters::telegram::{
    Telegram,
    config::{Config, Token},
};
use mayfly_domain::{
    Channel, PostId, ThreadKey,
    chat::{Body, CallError, Content, NewPost, Platform as _},
};
use mayfly_tests::{
    fake::Served,
    fake_telegram::{BOT, FakeTelegram, TOKEN},
};

pub(crate) type Fake = Served<FakeTelegram>;

/// Far longer than anything takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn config(fake: &Fake) -> Config {
    let token = Token::try_from(TOKEN.to_owned()).expect("a token");
    Config {
        api: fake.url().parse().expect("an address"),
        poll_s: 1,
        timeout_s: 60,
        ..Config::new(token)
    }
}

pub(crate) fn bot(fake: &Fake) -> Telegram {
    Telegram::new(&config(fake)).expect("a bot")
}

pub(crate) fn channel(chat: i64) -> Channel {
    Channel {
        platform: "telegram".to_owned(),
        workspace: BOT.to_string(),
        channel: chat.to_string(),
    }
}

pub(crate) fn chat(chat: i64) -> ThreadKey {
    channel(chat).thread("")
}

pub(crate) fn topic(in_chat: i64, topic: i64) -> ThreadKey {
    channel(in_chat).thread(topic.to_string())
}

pub(crate) fn post_id(chat: i64, id: i64) -> PostId {
    PostId {
        channel: channel(chat),
        id: id.to_string(),
    }
}

pub(crate) fn new_post(thread: &ThreadKey, content: Content) -> NewPost {
    NewPost {
        thread: thread.clone(),
        token: "token".to_owned(),
        content,
        answers: None,
        unknown_since: None,
    }
}

/// A file's content.
pub(crate) fn body(content: &'static [u8]) -> Body {
    Box::pin(content)
}

/// Posts a line.
pub(crate) async fn say(
    bot: &Telegram,
    thread: &ThreadKey,
    text: &str,
) -> Result<String, CallError> {
    bot.post(&new_post(thread, bot.line(text, &[]))).await
}

/// The texts people see in a chat.
pub(crate) fn texts(fake: &Fake, chat: i64) -> Vec<String> {
    let shown = fake.platform.shown(chat);
    shown.into_iter().map(|post| post.text).collect()
}

/// Looks again until it is so; fails with what was wanted.
pub(crate) async fn until(wanted: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "not in time: {wanted}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Fails if it takes too long.
pub(crate) async fn in_time<T>(wanted: &str, work: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(PATIENCE, work).await;
    done.unwrap_or_else(|_| panic!("not in time: {wanted}"))
}
