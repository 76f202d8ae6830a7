//! What the server keeps: chats with their posts, updates that wait, files, signs of life.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    net::SocketAddr,
    sync::{Mutex, MutexGuard},
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tokio::sync::Notify;

use super::{BOT, BOT_NAME};

/// An update as it is given to the poller.
#[derive(Debug, Clone, PartialEq)]
pub struct Update {
    /// Counts up.
    pub id: i64,
    /// With `update_id`.
    pub body: Value,
}

/// A post as people see it.
#[derive(Debug, Clone, PartialEq)]
pub struct Shown {
    /// Its id in the chat.
    pub id: i64,
    /// Who wrote it: the bot's id or a person's.
    pub from: i64,
    /// Without tags.
    pub text: String,
    /// As it was sent.
    pub source: String,
    /// The topic it stands in.
    pub topic: Option<i64>,
    /// The post it answers.
    pub answers: Option<i64>,
    /// Buttons: what is written on them, what they carry.
    pub buttons: Vec<(String, String)>,
    /// Name and content of its file.
    pub file: Option<(String, Vec<u8>)>,
    /// What it said before, oldest first: one for each edit.
    pub history: Vec<String>,
    /// Whether people's devices made a sound.
    pub notified: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) chats: BTreeMap<i64, Chat>,
    pub(super) updates: VecDeque<Update>,
    pub(super) last_update: i64,
    pub(super) files: HashMap<String, (String, Vec<u8>)>,
    /// Presses that still spin.
    pub(super) presses: BTreeSet<String>,
    /// Presses that were answered, and what was said.
    pub(super) answered: BTreeMap<String, String>,
    /// The bot is shown only commands and answers to itself in groups.
    pub(super) privacy: bool,
    /// Chat, topic and action of each sign of life.
    pub(super) actions: Vec<(i64, Option<i64>, String)>,
    /// Emoji on posts, by the bot.
    pub(super) reactions: BTreeMap<(i64, i64), String>,
    pub(super) commands: Value,
    pub(super) webhook: Option<(String, String)>,
    /// What the webhook's address leads to.
    pub(super) requests_to: Option<SocketAddr>,
    /// When a request failed last (unix seconds), and why.
    pub(super) failed: Option<(i64, String)>,
    /// How long each update took until it was acknowledged, from its first sending.
    pub(super) took: Vec<Duration>,
    /// Updates that a poller was given, and when.
    pub(super) given: Vec<(i64, Instant)>,
    /// Counts pollers, so that a second one ends the first.
    pub(super) poller: u64,
}

/// One chat.
#[derive(Debug, Default)]
pub(super) struct Chat {
    /// `private`, `group` or `supergroup`.
    pub(super) kind: &'static str,
    pub(super) forum: bool,
    pub(super) topics: BTreeSet<i64>,
    pub(super) posts: BTreeMap<i64, Shown>,
    pub(super) last: i64,
    /// The supergroup it became.
    pub(super) moved_to: Option<i64>,
    /// The bot was blocked or thrown out: what it is told.
    pub(super) closed: Option<&'static str>,
    /// Most writes a minute, and when the last ones were.
    pub(super) flood: Option<(usize, Vec<Instant>)>,
}

/// The state, and who waits for updates.
#[derive(Debug, Default)]
pub(super) struct Kept {
    state: Mutex<State>,
    pub(super) news: Notify,
}

impl Kept {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl State {
    /// Queues an update with this content.
    pub(super) fn push(&mut self, kind: &str, content: Value) {
        self.last_update += 1;
        let id = self.last_update;
        let body = json!({"update_id": id, kind: content});
        self.updates.push_back(Update { id, body });
    }

    /// Whether the bot is told of a person's post.
    pub(super) fn shows(&self, chat: i64, post: &Value) -> bool {
        let to_bot = post["reply_to_message"]["from"]["id"] == BOT
            && post["reply_to_message"]
                .get("forum_topic_created")
                .is_none();
        let command = post["entities"][0]["type"] == "bot_command";
        !self.privacy || self.chats[&chat].kind == "private" || to_bot || command
    }

    /// A chat as updates and answers name it.
    pub(super) fn chat(&self, id: i64) -> Value {
        let chat = &self.chats[&id];
        let mut named = json!({"id": id, "type": chat.kind});
        match chat.kind {
            "private" => named["first_name"] = json!(format!("Person {id}")),
            _ => named["title"] = json!(format!("Chat {id}")),
        }
        if chat.forum {
            named["is_forum"] = json!(true);
        }
        named
    }

    /// A post as updates and answers name it.
    pub(super) fn post(&self, chat: i64, id: i64) -> Value {
        let shown = &self.chats[&chat].posts[&id];
        let mut post = json!({
            "message_id": id, "date": now(), "chat": self.chat(chat), "from": user(shown.from),
        });
        match &shown.file {
            None => post["text"] = json!(shown.text),
            Some((name, content)) => {
                post["document"] = document(chat, id, name, content.len());
                if !shown.text.is_empty() {
                    post["caption"] = json!(shown.text);
                }
            }
        }
        let kept = &self.chats[&chat];
        let answered = shown.answers.filter(|post| kept.posts.contains_key(post));
        if let Some(topic) = shown.topic {
            post["message_thread_id"] = json!(topic);
            post["is_topic_message"] = json!(true);
            // Who answers nobody there answers the note that made the topic.
            post["reply_to_message"] = json!({
                "message_id": topic, "date": now(), "chat": self.chat(chat), "from": user(BOT),
                "message_thread_id": topic, "is_topic_message": true,
                "forum_topic_created": {"name": format!("Topic {topic}"), "icon_color": 7_322_096},
            });
        } else if let Some(answered) = answered.filter(|_| kept.kind == "supergroup") {
            // A chain of answers has a number too, and is no topic.
            post["message_thread_id"] = json!(answered);
        }
        if let Some(answered) = answered {
            let mut quoted = self.post(chat, answered);
            if let Some(quoted) = quoted.as_object_mut() {
                quoted.remove("reply_to_message");
            }
            post["reply_to_message"] = quoted;
        }
        if !shown.buttons.is_empty() {
            post["reply_markup"] = keyboard(&shown.buttons);
        }
        if !shown.history.is_empty() {
            post["edit_date"] = json!(now());
        }
        post
    }
}

/// A user as the API names it.
pub(super) fn user(id: i64) -> Value {
    match id {
        BOT => json!({"id": BOT, "is_bot": true, "first_name": "Mayfly", "username": BOT_NAME}),
        _ => json!({"id": id, "is_bot": false, "first_name": format!("Person {id}")}),
    }
}

/// The id a file of this post has.
pub(super) fn file_id(chat: i64, post: i64) -> String {
    format!("file{}x{post}", chat.unsigned_abs())
}

fn document(chat: i64, post: i64, name: &str, size: usize) -> Value {
    let id = file_id(chat, post);
    json!({
        "file_id": id, "file_unique_id": format!("u{id}"), "file_name": name, "file_size": size,
        "mime_type": "application/octet-stream",
    })
}

fn keyboard(buttons: &[(String, String)]) -> Value {
    let row: Vec<Value> = buttons
        .iter()
        .map(|(label, data)| json!({"text": label, "callback_data": data}))
        .collect();
    json!({"inline_keyboard": [row]})
}

/// Unix seconds.
pub(super) fn now() -> i64 {
    mayfly_adapters::clock::unix_ms() / 1000
}
