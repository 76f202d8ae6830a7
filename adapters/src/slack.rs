//! Slack: events by Socket Mode or HTTP, replies by the Web API.
//!
//! A post carries its identity as metadata, so what an unanswered call did is looked up in the thread
//! instead of guessed. Nothing here decides what a reply is made of; see `mayfly_domain::chat`.

mod api;
mod catch_up;
mod config;
mod connector;
mod content;
mod events;
mod files;
mod hook;
mod listen;
pub mod parse;
mod post;
mod setup;
mod signs;
mod socket;
mod words;

use std::{convert::Infallible, sync::atomic::AtomicBool, time::Duration};

use async_trait::async_trait;
use mayfly_domain::{
    Inbox, Incoming, PostId, Pressed, RemoteFile, ThreadKey,
    chat::{Body, Button, CallError, Content, FileOut, NewPost, Platform, Rendered, Sign, Staged},
};
use serde_json::json;
use tokio::sync::{Notify, OnceCell};

pub use config::{Config, Pace};
pub use events::{HttpAnswer, http_event};
pub use setup::{SCOPES, check, manifest, request_url};

use crate::http::answer::Failure;

/// The platform part of thread keys.
pub(crate) const NAME: &str = "slack";

/// Slack takes 1 GB; more than this does not pass in the time one call has.
const MAX_FILE: u64 = 256 << 20;

/// `chat.update` is good for some 50 calls a minute.
const EDIT_PAUSE: Duration = Duration::from_millis(1500);

/// A status vanishes after two minutes.
const BUSY: Duration = Duration::from_secs(90);

/// Where no status can be shown it is not asked for more often than this.
const NEVER_BUSY: Duration = Duration::from_secs(600);

/// One workspace's Slack.
pub struct Slack {
    config: Config,
    pace: Pace,
    api: api::Api,
    me: OnceCell<parse::Me>,
    signs: signs::Signs,
    /// Nothing that a gap hid is missing, so far as events come by HTTP.
    gapless: AtomicBool,
    /// An event that came by HTTP was not stored.
    refused: Notify,
}

impl Slack {
    /// Checks the tokens' form, without a call.
    pub fn new(config: Config) -> Result<Slack, String> {
        Slack::with_pace(config, Pace::default())
    }

    /// As [`Slack::new`], with other times.
    pub fn with_pace(config: Config, pace: Pace) -> Result<Slack, String> {
        config.check()?;
        let api = api::Api::new(&config, &pace)?;
        Ok(Slack {
            config,
            pace,
            api,
            me: OnceCell::new(),
            signs: signs::Signs::default(),
            gapless: AtomicBool::new(false),
            refused: Notify::new(),
        })
    }

    /// A raw event with what it says, as the inbox takes it.
    pub async fn incoming(&self, raw: Vec<u8>) -> Result<Incoming, CallError> {
        let me = self.me().await.map_err(words::told)?;
        Ok(Incoming {
            platform: NAME.to_owned(),
            event: Ok(parse::parse(&raw, me)),
            raw,
        })
    }

    /// Who we are; asked for once.
    async fn me(&self) -> Result<&parse::Me, Failure> {
        self.me
            .get_or_try_init(|| async {
                let told = self.api.auth_test().await?;
                Ok(parse::Me {
                    user: told.user_id.0,
                    app: self.config.app_id().unwrap_or_default().to_owned(),
                })
            })
            .await
    }
}

/// The thread's root, where it has one: a direct conversation has none, and neither has the one of a
/// channel's slash commands.
fn root(thread: &ThreadKey) -> Option<&str> {
    is_ts(&thread.thread).then_some(&thread.thread)
}

/// Whether it is the id of a message, which is its time.
fn is_ts(text: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let parts = text.split_once('.');
    parts.is_some_and(|(seconds, fraction)| {
        digits(seconds) && digits(fraction) && fraction.len() == 6
    })
}

#[async_trait]
impl Platform for Slack {
    fn name(&self) -> &'static str {
        NAME
    }

    fn patience(&self) -> Duration {
        self.pace.settle + 4 * self.pace.call
    }

    fn file_patience(&self, _size: u64) -> Duration {
        self.pace.upload + self.pace.settle + 6 * self.pace.call
    }

    fn edit_pause(&self, _: &ThreadKey) -> Duration {
        EDIT_PAUSE
    }

    fn max_file(&self) -> u64 {
        MAX_FILE
    }

    fn render(&self, markdown: &str) -> Rendered {
        content::reply(markdown)
    }

    fn line(&self, text: &str, buttons: &[Button]) -> Content {
        content::line(text, buttons)
    }

    async fn listen(&self, inbox: &dyn Inbox) -> Result<Infallible, String> {
        self.serve(inbox).await
    }

    async fn post(&self, post: &NewPost) -> Result<String, CallError> {
        self.make_post(post).await
    }

    async fn edit(
        &self,
        thread: &ThreadKey,
        post: &str,
        content: &Content,
    ) -> Result<(), CallError> {
        self.change(thread, post, content).await
    }

    async fn remove(&self, thread: &ThreadKey, post: &str) -> Result<(), CallError> {
        self.take_away(thread, post).await
    }

    async fn stage_file(&self, file: &FileOut, body: Body) -> Result<Staged, CallError> {
        self.upload(file, body).await.map(Staged::Kept)
    }

    async fn post_file(&self, file: &FileOut, staged: Staged) -> Result<String, CallError> {
        match staged {
            Staged::Kept(id) => self.share(file, &id).await,
            Staged::Body(_) => Err(CallError::Refused(
                "a file goes to Slack in two steps, and the first one is missing".to_owned(),
            )),
        }
    }

    async fn busy(&self, thread: &ThreadKey) -> Result<Duration, CallError> {
        let Some(root) = root(thread) else {
            return Ok(NEVER_BUSY);
        };
        let body = json!({
            "channel_id": thread.channel, "thread_ts": root, "status": "is working on it…",
        });
        let set = self.api.write("assistant.threads.setStatus", "", &body);
        match set.await {
            Ok(_) => Ok(BUSY),
            Err(Failure::Permanent { .. }) => Ok(NEVER_BUSY),
            Err(failure) => Err(words::told(failure)),
        }
    }

    async fn sign(&self, post: &PostId, sign: Sign) -> Result<(), CallError> {
        self.mark(post, sign).await
    }

    /// A press is acknowledged with its event; the text is shown to that person alone.
    async fn answer(&self, pressed: &Pressed, text: &str) -> Result<(), CallError> {
        if text.trim().is_empty() {
            return Ok(());
        }
        let mut body = json!({
            "channel": pressed.on.channel.channel,
            "user": pressed.by.id,
            "text": content::escaped(text),
        });
        if let Some(root) = root(&pressed.thread) {
            body["thread_ts"] = json!(root);
        }
        let told = self.api.write("chat.postEphemeral", "", &body).await;
        told.map(drop).map_err(words::told)
    }

    async fn open(
        &self,
        beside: &ThreadKey,
        title: &str,
        token: &str,
        unknown_since: Option<i64>,
    ) -> Result<(ThreadKey, String), CallError> {
        self.open_beside(beside, title, token, unknown_since).await
    }

    async fn fetch(&self, file: &RemoteFile) -> Result<Body, CallError> {
        self.download(file).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn th_03_only_a_threads_root_is_written_below() {
        let key = |thread: &str| ThreadKey {
            platform: NAME.to_owned(),
            workspace: "T1".to_owned(),
            channel: "C1".to_owned(),
            thread: thread.to_owned(),
        };
        assert_eq!(root(&key("1700000000.000100")), Some("1700000000.000100"));
        for other in [
            "",
            "1700000000",
            "398738663015.47445629121.803a0bc8",
            "a.000100",
        ] {
            assert_eq!(root(&key(other)), None, "{other}");
        }
    }
}
