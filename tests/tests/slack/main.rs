//! Slack's adapter against a fake of its API, and that fake against the official client.

mod calls;
mod catch_up;
mod client;
mod faults;
mod files;
mod http;
mod kept;
mod listen;
mod setup;

use std::{
    future::Future,
    time::{Duration, Instant},
};

use mayfly_adapters::slack::{Config, Pace, Slack};
use mayfly_domain::{
    Channel, PostId, ThreadKey,
    chat::{CallError, Content, NewPost, Platform as _},
};
use mayfly_tests::fake_slack::{APP_TOKEN, BOT_TOKEN, FakeSlack, Running, TEAM};

/// Far longer than anything takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn fake() -> Running {
    // Another test of this process was first.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let fake = FakeSlack::start();
    fake.channel("C1");
    fake
}

pub(crate) fn config(fake: &Running) -> Config {
    Config {
        api_url: fake.api_url(),
        files_url: fake.files_url(),
        ..Config::new(BOT_TOKEN.into(), Some(APP_TOKEN.into()))
    }
}

/// Waits for answers as long as any machine takes.
pub(crate) fn pace() -> Pace {
    Pace {
        call: PATIENCE,
        upload: PATIENCE,
        settle: Duration::from_millis(300),
        look: Duration::from_millis(100),
        connect: PATIENCE,
        ..Pace::default()
    }
}

pub(crate) fn bot(fake: &Running) -> Slack {
    bot_at(fake, pace())
}

pub(crate) fn bot_at(fake: &Running, pace: Pace) -> Slack {
    Slack::with_pace(config(fake), pace).expect("tokens of the right form")
}

pub(crate) fn channel(id: &str) -> Channel {
    Channel {
        platform: "slack".to_owned(),
        workspace: TEAM.to_owned(),
        channel: id.to_owned(),
    }
}

pub(crate) fn thread(id: &str, root: &str) -> ThreadKey {
    channel(id).thread(root)
}

pub(crate) fn post_id(id: &str, ts: &str) -> PostId {
    PostId {
        channel: channel(id),
        id: ts.to_owned(),
    }
}

pub(crate) fn new_post(thread: &ThreadKey, token: &str, content: Content) -> NewPost {
    NewPost {
        thread: thread.clone(),
        token: token.to_owned(),
        content,
        answers: None,
        unknown_since: None,
    }
}

#[allow(clippy::disallowed_methods)]
pub(crate) fn now() -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    i64::try_from(now.expect("after 1970").as_millis()).expect("before the year 292277026596")
}

/// Does it as the outbox does, until it is done: again where it was not, after the wait that is asked
/// for, and with the time of the first try where that is not known. Returns how the tries went, too.
pub(crate) async fn until_done<T, F: Future<Output = Result<T, CallError>>>(
    mut call: impl FnMut(Option<i64>) -> F,
) -> (T, Vec<CallError>) {
    let began = Instant::now();
    let (mut since, mut failed) = (None, Vec::new());
    loop {
        assert!(began.elapsed() < PATIENCE, "not done: {failed:?}");
        let at = now();
        match call(since).await {
            Ok(done) => return (done, failed),
            Err(error) => {
                match &error {
                    CallError::Unknown(_) => since = since.or(Some(at)),
                    CallError::Limited { after, .. } => tokio::time::sleep(*after).await,
                    CallError::NotDone(_) => tokio::time::sleep(Duration::from_millis(20)).await,
                    other => panic!("{other}"),
                }
                failed.push(error);
            }
        }
    }
}

/// Waits for something that others bring about.
pub(crate) async fn until<T>(wanted: &str, mut seen: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = seen() {
            return found;
        }
        assert!(began.elapsed() < PATIENCE, "not seen: {wanted}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// A reply of one part.
pub(crate) fn said(slack: &Slack, markdown: &str) -> Content {
    slack.render(markdown).parts.remove(0)
}
