//! Discord: events by its gateway, posts by its REST API.
//!
//! ```text
//! in:  listen -> connection -> parse (with what known says of threads) -> Inbox -> acknowledge
//! out: post, file, thread -> content (JSON that pings nobody) -> api (one judged call)
//! ```

mod acknowledge;
mod api;
mod catch_up;
pub mod config;
mod connection;
mod content;
mod file;
mod known;
mod listen;
pub mod parse;
mod post;
mod refusal;
mod session;
pub mod setup;
mod thread;

use std::{convert::Infallible, time::Duration};

use async_trait::async_trait;
use mayfly_domain::{
    Channel, Inbox, PostId, Pressed, RemoteFile, ThreadKey,
    chat::{Body, Button, CallError, Content, FileOut, NewPost, Platform, Rendered, Sign, Staged},
};
use reqwest::{Method, redirect};
use serde_json::Value;
use serenity::all::{ChannelId, MessageId, ReactionType, Route};
use tokio::sync::OnceCell;

use self::{
    api::{Api, Ask},
    config::Config,
    known::Known,
    thread::{Place, number},
};
use crate::json::id;

/// The platform's name in keys.
pub const NAME: &str = "discord";

/// Longest silence of a file host.
const FILE_SILENCE: Duration = Duration::from_secs(30);
/// Discord shows typing for ten seconds.
const TYPING: Duration = Duration::from_secs(8);

/// Who we are.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Me {
    /// Our user's id.
    user: String,
    application: String,
}

/// See the module.
pub struct Discord {
    api: Api,
    /// For files: without our token.
    files: reqwest::Client,
    file_hosts: Vec<String>,
    known: Known,
    me: OnceCell<Me>,
}

impl Discord {
    /// An adapter with these settings. Opens no connection.
    pub fn new(config: Config) -> Result<Discord, String> {
        config.check()?;
        let files = reqwest::Client::builder()
            .connect_timeout(api::PATIENCE)
            .read_timeout(FILE_SILENCE)
            .redirect(redirect::Policy::none())
            .build()
            .map_err(|error| format!("no HTTP client: {}", error.without_url()))?;
        let origins = config
            .file_hosts
            .iter()
            .filter_map(|host| config::origin(host));
        Ok(Discord {
            api: Api::new(&config)?,
            files,
            file_hosts: origins.collect(),
            known: Known::default(),
            me: OnceCell::new(),
        })
    }

    async fn me(&self) -> Result<Me, CallError> {
        let asked = async {
            let ask = |route| self.api.call(Ask::new(Method::GET, route));
            let told = |error: api::Error| error.told("");
            let user = ask(Route::UserMe).await.map_err(told)?;
            let application = ask(Route::Oauth2ApplicationCurrent).await.map_err(told)?;
            match (id(&user, &["id"]), id(&application, &["id"])) {
                (Some(user), Some(application)) => Ok(Me { user, application }),
                _ => Err(CallError::NotDone(
                    "Discord does not say who the bot is".to_owned(),
                )),
            }
        };
        self.me.get_or_try_init(|| asked).await.cloned()
    }

    async fn react(&self, method: Method, post: &PostId, sign: Sign) -> Result<(), api::Error> {
        let emoji = ReactionType::Unicode(
            match sign {
                Sign::Seen => "👀",
                Sign::Answered => "✅",
                Sign::Failed => "❌",
            }
            .to_owned(),
        );
        let of = |id| number(id).map_err(api::Error::Call);
        let route = Route::ChannelMessageReactionMe {
            channel_id: ChannelId::new(of(&post.channel.channel)?),
            message_id: MessageId::new(of(&post.id)?),
            reaction: &emoji.as_data(),
        };
        self.api.call(Ask::new(method, route)).await.map(drop)
    }
}

#[async_trait]
impl Platform for Discord {
    fn name(&self) -> &'static str {
        NAME
    }

    fn patience(&self) -> Duration {
        6 * api::PATIENCE
    }

    fn file_patience(&self, _size: u64) -> Duration {
        api::UPLOAD_PATIENCE + 8 * api::PATIENCE
    }

    fn edit_pause(&self, _thread: &ThreadKey) -> Duration {
        Duration::from_millis(1500)
    }

    fn max_file(&self) -> u64 {
        file::MOST
    }

    fn render(&self, markdown: &str) -> Rendered {
        content::render(markdown)
    }

    fn line(&self, text: &str, buttons: &[Button]) -> Content {
        content::line(text, buttons)
    }

    async fn listen(&self, inbox: &dyn Inbox) -> Result<Infallible, String> {
        listen::listen(self, inbox).await
    }

    async fn post(&self, post: &NewPost) -> Result<String, CallError> {
        self.make(post).await
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
        self.delete(thread, post).await
    }

    async fn stage_file(&self, _file: &FileOut, body: Body) -> Result<Staged, CallError> {
        Ok(Staged::Body(body))
    }

    async fn post_file(&self, file: &FileOut, staged: Staged) -> Result<String, CallError> {
        self.upload(file, staged).await
    }

    async fn busy(&self, thread: &ThreadKey) -> Result<Duration, CallError> {
        let place = Place::of(thread)?;
        let typing = |channel_id| {
            self.api
                .call(Ask::new(Method::POST, Route::ChannelTyping { channel_id }))
        };
        self.within(place, typing)
            .await
            .map_err(|error| error.told(thread::WRITING))?;
        Ok(TYPING)
    }

    async fn sign(&self, post: &PostId, sign: Sign) -> Result<(), CallError> {
        let told = |error: api::Error| error.told("Add Reactions and Read Message History");
        self.react(Method::PUT, post, sign).await.map_err(told)?;
        if sign != Sign::Seen {
            match self.react(Method::DELETE, post, Sign::Seen).await {
                Ok(()) | Err(api::Error::Code(..)) => {}
                Err(error) => return Err(told(error)),
            }
        }
        Ok(())
    }

    async fn answer(&self, pressed: &Pressed, text: &str) -> Result<(), CallError> {
        self.whisper(&pressed.answer_to, text).await
    }

    /// A message in the parent channel, and the thread that starts from it: so a repeated call is
    /// joined like any repeated post.
    async fn open(
        &self,
        beside: &ThreadKey,
        title: &str,
        token: &str,
        unknown_since: Option<i64>,
    ) -> Result<(ThreadKey, String), CallError> {
        let (channel, guild) = (&beside.channel, &beside.workspace);
        if guild.is_empty() {
            return Err(CallError::Refused(
                "Discord has no threads in direct messages: ask in a server's channel".to_owned(),
            ));
        }
        let parent = Channel {
            platform: NAME.to_owned(),
            workspace: guild.clone(),
            channel: channel.clone(),
        };
        let first = NewPost {
            thread: parent.thread(""),
            token: token.to_owned(),
            content: content::line(title, &[]),
            answers: None,
            unknown_since,
        };
        let message = self.make(&first).await?;
        let (channel_id, message_id) = (
            ChannelId::new(number(channel)?),
            MessageId::new(number(&message)?),
        );
        let named = self
            .start_named(channel_id, message_id, &content::thread_name(title))
            .await;
        if let Err(error) = named {
            return Err(self
                .unopened(&first.thread, &message, error.told("Create Public Threads"))
                .await);
        }
        let link = format!("https://discord.com/channels/{guild}/{message}");
        Ok((parent.thread(message), link))
    }

    async fn fetch(&self, file: &RemoteFile) -> Result<Body, CallError> {
        self.download(file).await
    }
}

/// A frame's text as JSON; null where it is none.
fn frame(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or(Value::Null)
}
