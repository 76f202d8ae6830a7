//! Telegram, by the Bot API.
//!
//! Updates come by long polling (`listen`) or at a URL (`hook`). Telegram has neither keys for
//! posts nor a history to look into: a post whose outcome is unknown may be made twice (an empty
//! placeholder), a file never is.

mod api;
pub mod config;
mod file;
mod hook;
mod listen;
pub mod parse;
mod place;
mod said;
pub mod setup;
mod trouble;

use std::{
    collections::HashMap,
    convert::Infallible,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use mayfly_domain::{
    Channel, Inbox, PostId, Pressed, RemoteFile, ThreadKey,
    chat::{Body, Button, CallError, Content, FileOut, NewPost, Platform, Rendered, Sign, Staged},
};
use reqwest::multipart::Form;
use serde_json::Value;
use teloxide_core::{
    payloads::{
        AnswerCallbackQuery, CreateForumTopic, DeleteMessage, EditMessageText, GetChat, GetMe,
        SendChatAction, SendMessage, SetMessageReaction, setters::*,
    },
    types::{
        CallbackQueryId, ChatAction, LinkPreviewOptions, MessageId, ParseMode, ReactionType,
        ReplyMarkup, ReplyParameters,
    },
};
use tokio::sync::OnceCell;

use self::{
    api::Api,
    config::Config,
    parse::Me,
    place::{Place, message_id, thread_id},
    said::Said,
    trouble::{bad_tags, no_topic, refuses, told},
};
use crate::{
    clock::unix_ms,
    http::answer::Failure,
    json::{id, is, text},
};

/// Tells the time in unix ms.
pub type Clock = Arc<dyn Fn() -> i64 + Send + Sync>;

/// A sign of life is shown for five seconds.
const BUSY: Duration = Duration::from_secs(4);
/// For how long a topic that was not found is not asked for again.
const TOPIC_LOST: Duration = Duration::from_secs(60 * 60);
/// Longest text shown to somebody who pressed a button.
const MAX_ANSWER: usize = 200;
/// Longest name of a topic.
const MAX_TITLE: usize = 128;

/// One bot.
pub struct Telegram {
    api: Api,
    poll_s: u8,
    clock: Clock,
    me: OnceCell<Me>,
    lost: Mutex<HashMap<(i64, i32), Instant>>,
    /// Where updates come to; by polling if none.
    webhook: Option<reqwest::Url>,
}

impl Telegram {
    /// A bot that has said nothing yet. The error is a sentence for the operator.
    pub fn new(config: &Config) -> Result<Telegram, String> {
        Ok(Telegram {
            api: Api::new(config)?,
            poll_s: config.poll_s.clamp(1, 50),
            clock: Arc::new(unix_ms),
            me: OnceCell::new(),
            lost: Mutex::default(),
            webhook: config.webhook_url.clone(),
        })
    }

    /// The same with another clock.
    pub fn with_clock(self, clock: Clock) -> Telegram {
        Telegram { clock, ..self }
    }

    /// Who the bot is; asked for once.
    pub async fn me(&self) -> Result<&Me, CallError> {
        self.known().await.map_err(|failure| self.told(failure))
    }

    async fn known(&self) -> Result<&Me, Failure> {
        let asked = || async {
            let me = self.api.call("me", &GetMe::new()).await?;
            let username = text(&me, &["username"]).unwrap_or_default().to_owned();
            Ok(Me {
                id: self.api.bot().to_owned(),
                username,
            })
        };
        self.me.get_or_try_init(asked).await
    }

    fn told(&self, failure: Failure) -> CallError {
        told(failure, self.api.bot())
    }

    fn place(&self, thread: &ThreadKey) -> Result<Place, CallError> {
        let mut place = Place::of(thread, self.api.bot())?;
        place.topic = place
            .topic
            .filter(|topic| !self.is_lost(place.chat, *topic));
        Ok(place)
    }

    fn is_lost(&self, chat: i64, topic: i32) -> bool {
        let mut lost = self.lost.lock().unwrap_or_else(|p| p.into_inner());
        lost.retain(|_, since| since.elapsed() < TOPIC_LOST);
        lost.contains_key(&(chat, topic))
    }

    /// From now on what goes to this topic goes to its chat.
    fn lose(&self, chat: i64, topic: i32) {
        tracing::warn!(chat, topic, "the topic is gone: writing to its chat");
        let mut lost = self.lost.lock().unwrap_or_else(|p| p.into_inner());
        lost.insert((chat, topic), Instant::now());
    }

    /// Sends a message; without tags where they are refused, without topic where that is gone.
    async fn say(
        &self,
        mut place: Place,
        said: &Said,
        answers: Option<MessageId>,
    ) -> Result<String, CallError> {
        let keyboard = said.keyboard()?;
        let mut html = said.html.as_ref();
        loop {
            let written = html.unwrap_or(&said.plain);
            let mut message = SendMessage::new(place.recipient(), written);
            message.link_preview_options = Some(no_preview());
            message.parse_mode = html.map(|_| ParseMode::Html);
            message.message_thread_id = place.topic.map(thread_id);
            message.reply_parameters = answers.map(answering);
            message.reply_markup = keyboard.clone().map(ReplyMarkup::InlineKeyboard);
            match self.api.call(&place.bucket(), &message).await {
                Ok(sent) => return post_of(&sent),
                Err(failure) if html.is_some() && bad_tags(&failure) => html = None,
                Err(failure) => match place.topic {
                    Some(topic) if no_topic(&failure) => {
                        self.lose(place.chat, topic);
                        place.topic = None;
                    }
                    _ => return Err(self.told(failure)),
                },
            }
        }
    }

    /// What a post quotes: the one it answers, or the one its conversation began with.
    fn answered(
        &self,
        place: &Place,
        answers: Option<&PostId>,
    ) -> Result<Option<MessageId>, CallError> {
        let here = place.chat.to_string();
        match answers.filter(|post| post.channel.channel == here) {
            Some(post) => message_id(&post.id).map(Some),
            None => Ok(place.root.map(MessageId)),
        }
    }

    async fn topic(&self, place: &Place, title: &str) -> Result<i32, CallError> {
        let asked = CreateForumTopic::new(place.recipient(), title);
        let made = self.api.call(&place.bucket(), &asked).await;
        let made = made.map_err(|failure| self.told(failure))?;
        number(&made, "message_thread_id")
    }
}

/// Addresses in an agent's reply are not fetched by anybody.
fn no_preview() -> LinkPreviewOptions {
    LinkPreviewOptions {
        is_disabled: true,
        url: None,
        prefer_small_media: false,
        prefer_large_media: false,
        show_above_text: false,
    }
}

fn answering(post: MessageId) -> ReplyParameters {
    ReplyParameters::new(post).allow_sending_without_reply()
}

fn post_of(sent: &Value) -> Result<String, CallError> {
    number(sent, "message_id").map(|id| id.to_string())
}

/// It was done, so that what is missing must not be asked for again blindly.
fn number(answer: &Value, field: &str) -> Result<i32, CallError> {
    id(answer, &[field])
        .and_then(|id| id.parse().ok())
        .ok_or_else(|| CallError::Unknown(format!("the answer has no {field}")))
}

#[async_trait]
impl Platform for Telegram {
    fn name(&self) -> &'static str {
        "telegram"
    }

    fn patience(&self) -> Duration {
        // A text may be refused twice before it is taken.
        3 * self.api.timeout() + Duration::from_secs(5)
    }

    fn file_patience(&self, size: u64) -> Duration {
        file::upload_time(size) + self.patience()
    }

    fn edit_pause(&self, thread: &ThreadKey) -> Duration {
        let group = Place::of(thread, self.api.bot()).is_ok_and(|place| place.is_group());
        Duration::from_millis(if group { 3000 } else { 1500 })
    }

    fn max_file(&self) -> u64 {
        file::MAX_SENT
    }

    fn render(&self, markdown: &str) -> Rendered {
        said::render(markdown)
    }

    fn line(&self, text: &str, buttons: &[Button]) -> Content {
        said::line(text, buttons)
    }

    async fn listen(&self, inbox: &dyn Inbox) -> Result<Infallible, String> {
        match &self.webhook {
            Some(url) => hook::listen(self, inbox, url).await,
            None => listen::listen(self, inbox).await,
        }
    }

    /// There is nothing to look an earlier one up by: it is made again.
    async fn post(&self, post: &NewPost) -> Result<String, CallError> {
        let place = self.place(&post.thread)?;
        let said = Said::read(&post.content)?;
        let answers = self.answered(&place, post.answers.as_ref())?;
        self.say(place, &said, answers).await
    }

    async fn edit(
        &self,
        thread: &ThreadKey,
        post: &str,
        content: &Content,
    ) -> Result<(), CallError> {
        let place = self.place(thread)?;
        let said = Said::read(content)?;
        let keyboard = said.keyboard()?;
        let post = message_id(post)?;
        let mut html = said.html.as_ref();
        loop {
            let written = html.unwrap_or(&said.plain);
            let mut edit = EditMessageText::new(place.recipient(), post, written);
            edit.link_preview_options = Some(no_preview());
            edit.parse_mode = html.map(|_| ParseMode::Html);
            edit.reply_markup = keyboard.clone();
            match self.api.call(&place.bucket(), &edit).await {
                Ok(_) => return Ok(()),
                Err(failure) if html.is_some() && bad_tags(&failure) => html = None,
                Err(failure) => return Err(self.told(failure)),
            }
        }
    }

    async fn remove(&self, thread: &ThreadKey, post: &str) -> Result<(), CallError> {
        let place = self.place(thread)?;
        let asked = DeleteMessage::new(place.recipient(), message_id(post)?);
        match self.api.call(&place.bucket(), &asked).await {
            Err(failure) if !refuses(&failure, &["message to delete not found"]) => {
                Err(self.told(failure))
            }
            _ => Ok(()),
        }
    }

    /// A file comes with its post: there is no step before.
    async fn stage_file(&self, file: &FileOut, body: Body) -> Result<Staged, CallError> {
        file::sendable(&file.name, file.size)?;
        Ok(Staged::Body(body))
    }

    async fn post_file(&self, file: &FileOut, staged: Staged) -> Result<String, CallError> {
        if file.unknown_since.is_some() {
            return Err(CallError::Unknown(
                "Telegram does not tell whether a file was sent".to_owned(),
            ));
        }
        let Staged::Body(body) = staged else {
            return Err(CallError::Refused(
                "Telegram keeps no files before they are sent".to_owned(),
            ));
        };
        file::sendable(&file.name, file.size)?;
        let place = self.place(&file.thread)?;
        let (part, left) = file::part(&file.name, file.size, body);
        let mut form = Form::new()
            .percent_encode_noop()
            .text("chat_id", place.chat.to_string())
            .text("disable_content_type_detection", "true");
        if let Some(topic) = place.topic {
            form = form.text("message_thread_id", topic.to_string());
        }
        if let Some(post) = self.answered(&place, file.answers.as_ref())? {
            let reply = serde_json::to_string(&answering(post)).expect("numbers are JSON");
            form = form.text("reply_parameters", reply);
        }
        let form = form.part("document", part);
        let time = file::upload_time(file.size);
        let bucket = place.bucket();
        let sent = self.api.upload(&bucket, "sendDocument", form, time);
        match sent.await.map_err(|failure| left.judge(failure)) {
            Ok(sent) => post_of(&sent),
            Err(failure) => match place.topic {
                Some(topic) if no_topic(&failure) => {
                    self.lose(place.chat, topic);
                    Err(CallError::NotDone("the topic is gone".to_owned()))
                }
                _ => Err(self.told(failure)),
            },
        }
    }

    async fn busy(&self, thread: &ThreadKey) -> Result<Duration, CallError> {
        let place = self.place(thread)?;
        let mut asked = SendChatAction::new(place.recipient(), ChatAction::Typing);
        asked.message_thread_id = place.topic.map(thread_id);
        match self.api.call(&place.bucket(), &asked).await {
            Ok(_) => Ok(BUSY),
            Err(failure) => {
                if let Some(topic) = place.topic.filter(|_| no_topic(&failure)) {
                    self.lose(place.chat, topic);
                }
                Err(self.told(failure))
            }
        }
    }

    /// A bot has one reaction on a message; a new one takes the place of the old.
    async fn sign(&self, post: &PostId, sign: Sign) -> Result<(), CallError> {
        let emoji = match sign {
            Sign::Seen => "👀",
            Sign::Answered => "👌",
            Sign::Failed => "💔",
        };
        let place = self.place(&post.channel.thread(""))?;
        let mut asked = SetMessageReaction::new(place.recipient(), message_id(&post.id)?);
        asked.reaction = Some(vec![ReactionType::Emoji {
            emoji: emoji.to_owned(),
        }]);
        let done = self.api.call(&place.bucket(), &asked).await;
        done.map(drop).map_err(|failure| self.told(failure))
    }

    async fn answer(&self, pressed: &Pressed, text: &str) -> Result<(), CallError> {
        let id = CallbackQueryId(pressed.answer_to.clone());
        let mut asked = AnswerCallbackQuery::new(id);
        if !text.trim().is_empty() {
            asked = asked.text(text.chars().take(MAX_ANSWER).collect::<String>());
        }
        match self.api.call("presses", &asked).await {
            Err(failure) if !refuses(&failure, &["query is too old", "query id is invalid"]) => {
                Err(self.told(failure))
            }
            _ => Ok(()),
        }
    }

    /// A topic where the chat has such, else a message whose answers are the conversation. The link
    /// is empty where Telegram has none (groups that are no supergroups).
    async fn open(
        &self,
        beside: &ThreadKey,
        title: &str,
        _token: &str,
        _unknown_since: Option<i64>,
    ) -> Result<(ThreadKey, String), CallError> {
        let place = self.place(beside)?;
        let title = titled(title);
        let asked = GetChat::new(place.recipient());
        let chat = self.api.call(&place.bucket(), &asked).await;
        let chat = chat.map_err(|failure| nothing_done(self.told(failure)))?;
        let channel = Channel {
            platform: beside.platform.clone(),
            workspace: beside.workspace.clone(),
            channel: beside.channel.clone(),
        };
        if is(&chat, &["is_forum"]) {
            let topic = self.topic(&place, &title).await?;
            let link = link(&chat, topic).unwrap_or_default();
            return Ok((channel.thread(topic.to_string()), link));
        }
        // Asked before anything stands.
        let private = match text(&chat, &["type"]) == Some("private") {
            true => format!(
                "https://t.me/{}",
                self.me().await.map_err(nothing_done)?.username
            ),
            false => String::new(),
        };
        let said = Said {
            html: None,
            plain: title,
            buttons: Vec::new(),
        };
        let root = self.say(place, &said, None).await?;
        let root = root.parse().map_err(|_| {
            CallError::Unknown("the message that opens a conversation has no number".to_owned())
        })?;
        let link = link(&chat, root).unwrap_or(private);
        Ok((Place::rooted(&channel, root), link))
    }

    /// There is no way to ask for messages or topics of before.
    fn finds_opened(&self) -> bool {
        false
    }

    fn root(&self, opened: &ThreadKey) -> Option<String> {
        let place = self.place(opened).ok()?;
        place.root.map(|root| root.to_string())
    }

    async fn fetch(&self, file: &RemoteFile) -> Result<Body, CallError> {
        file::fetch(&self.api, file).await
    }
}

/// A question that comes before what is to be done: whatever became of it, that was not done.
fn nothing_done(error: CallError) -> CallError {
    match error {
        CallError::Unknown(why) => CallError::NotDone(why),
        other => other,
    }
}

fn titled(title: &str) -> String {
    let shown: String = title.trim().chars().take(MAX_TITLE).collect();
    match shown.is_empty() {
        true => "New conversation".to_owned(),
        false => shown,
    }
}

/// Only supergroups have links to what is in them.
fn link(chat: &Value, post: i32) -> Option<String> {
    if text(chat, &["type"]) != Some("supergroup") {
        return None;
    }
    if let Some(name) = text(chat, &["username"]) {
        return Some(format!("https://t.me/{name}/{post}"));
    }
    let id = id(chat, &["id"])?;
    let id = id.strip_prefix("-100")?;
    Some(format!("https://t.me/c/{id}/{post}"))
}
