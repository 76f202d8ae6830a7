//! The methods, with the rules each has.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use http_body_util::Full;
use hyper::Response;
use serde_json::{Value, json};

use super::{
    BOT, FakeTelegram, Refusal, TOKEN,
    form::Form,
    html,
    state::{Shown, State, file_id, user},
};
use crate::fake::Answer;

/// Most scalars in a text.
const MAX_TEXT: usize = 4096;
/// Most scalars in a caption.
const MAX_CAPTION: usize = 1024;
/// Most bytes a bot may fetch.
const MAX_DOWNLOAD: usize = 20 << 20;
/// Most bytes a bot may send.
const MAX_UPLOAD: usize = 50 << 20;
/// Longest poll that is served, in seconds.
const MAX_POLL: u64 = 50;

/// Some of what may be a reaction; a tick, for example, may not.
const REACTIONS: [&str; 12] = [
    "👍", "👎", "❤", "🔥", "🎉", "🤔", "😢", "👌", "💔", "👀", "✍", "🤷",
];

type Done = Result<Value, Refusal>;

impl FakeTelegram {
    pub(super) async fn method(self: &Arc<Self>, name: &str, form: &Form) -> Done {
        if name == "getupdates" {
            return self.updates(form).await;
        }
        let mut state = self.state.lock();
        match name {
            "getme" => {
                let mut me = user(BOT);
                me["can_join_groups"] = json!(true);
                me["can_read_all_group_messages"] = json!(!state.privacy);
                me["supports_inline_queries"] = json!(false);
                me["can_connect_to_business"] = json!(false);
                for ability in [
                    "has_main_web_app",
                    "has_topics_enabled",
                    "allows_users_to_create_topics",
                    "can_manage_bots",
                    "supports_join_request_queries",
                ] {
                    me[ability] = json!(false);
                }
                Ok(me)
            }
            "sendmessage" => state.send(form),
            "editmessagetext" => state.edit(form),
            "deletemessage" => state.delete(form),
            "senddocument" => state.send_document(form),
            "sendchataction" => state.act(form),
            "setmessagereaction" => state.react(form),
            "answercallbackquery" => state.answer(form),
            "getfile" => state.file(form),
            "getchat" => state.describe(form),
            "createforumtopic" => state.create_topic(form),
            "setmycommands" => state.set_commands(form),
            "getmycommands" => Ok(match state.commands.clone() {
                Value::Null => json!([]),
                commands => commands,
            }),
            "setwebhook" => {
                let url = form.text("url").unwrap_or_default();
                let secret = form.text("secret_token").unwrap_or_default();
                if !url.is_empty() && !url.starts_with("https://") {
                    return Err(Refusal::bad(
                        "bad webhook: An HTTPS URL must be provided for webhook",
                    ));
                }
                let port = url.parse::<hyper::Uri>().ok();
                let port = port.and_then(|url| url.port_u16()).unwrap_or(443);
                if ![443, 80, 88, 8443].contains(&port) {
                    return Err(Refusal::bad(
                        "bad webhook: Webhook can be set up only on ports 80, 88, 443 or 8443",
                    ));
                }
                let letter = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
                if secret.len() > 256 || !secret.bytes().all(letter) {
                    return Err(Refusal::bad("secret token contains unallowed characters"));
                }
                state.webhook = (!url.is_empty()).then_some((url, secret));
                drop(state);
                self.state.news.notify_waiters();
                Ok(json!(true))
            }
            "deletewebhook" => {
                state.webhook = None;
                Ok(json!(true))
            }
            "getwebhookinfo" => {
                let url = state.webhook.as_ref().map_or("", |(url, _)| url);
                let waiting = state.updates.len();
                let mut told = json!({
                    "url": url, "has_custom_certificate": false, "pending_update_count": waiting,
                });
                if let Some((at, why)) = &state.failed {
                    told["last_error_date"] = json!(at);
                    told["last_error_message"] = json!(why);
                }
                Ok(told)
            }
            _ => Err(Refusal {
                status: 404,
                description: "Not Found: method not found".to_owned(),
                parameters: Value::Null,
            }),
        }
    }

    /// The offset confirms what is below it; a second poller ends the first.
    async fn updates(&self, form: &Form) -> Done {
        let wait = form
            .number("timeout")
            .unwrap_or(0)
            .clamp(0, MAX_POLL as i64) as u64;
        let most = form.number("limit").unwrap_or(100).clamp(1, 100) as usize;
        let mine = {
            let mut state = self.state.lock();
            if state.webhook.is_some() {
                return Err(conflict(
                    "can't use getUpdates method while webhook is active; use deleteWebhook to delete the webhook first",
                ));
            }
            if let Some(offset) = form.number("offset").filter(|offset| *offset > 0) {
                state.updates.retain(|update| update.id >= offset);
                let given = std::mem::take(&mut state.given);
                let (open, done) = given.into_iter().partition(|(id, _)| *id >= offset);
                state.given = open;
                let done: Vec<(i64, Instant)> = done;
                state.took.extend(done.iter().map(|(_, at)| at.elapsed()));
            }
            state.poller += 1;
            state.poller
        };
        self.state.news.notify_waiters();
        let deadline = tokio::time::Instant::now() + Duration::from_secs(wait);
        loop {
            let news = self.state.news.notified();
            {
                let mut state = self.state.lock();
                if state.poller != mine {
                    return Err(conflict(
                        "terminated by other getUpdates request; make sure that only one bot instance is running",
                    ));
                }
                let found: Vec<Value> = state
                    .updates
                    .iter()
                    .take(most)
                    .map(|update| update.body.clone())
                    .collect();
                let ids: Vec<i64> = state.updates.iter().take(most).map(|u| u.id).collect();
                for id in ids {
                    if !state.given.iter().any(|(given, _)| *given == id) {
                        state.given.push((id, Instant::now()));
                    }
                }
                if !found.is_empty() || wait == 0 {
                    return Ok(Value::Array(found));
                }
            }
            if tokio::time::timeout_at(deadline, news).await.is_err() {
                return Ok(json!([]));
            }
        }
    }

    pub(super) fn download(&self, rest: &str) -> Answer {
        let (token, path) = rest.split_once('/').unwrap_or((rest, ""));
        if token != TOKEN {
            return super::refused(401, "Unauthorized");
        }
        let id = path.rsplit('/').next().unwrap_or_default();
        let state = self.state.lock();
        match state.files.get(id) {
            Some((_, content)) => Response::new(Full::new(content.clone().into())),
            None => super::refused(404, "Not Found"),
        }
    }
}

fn conflict(description: &str) -> Refusal {
    Refusal {
        status: 409,
        description: format!("Conflict: {description}"),
        parameters: Value::Null,
    }
}

impl State {
    /// The chat a call names, if the bot may write there.
    fn open_chat(&self, form: &Form) -> Result<i64, Refusal> {
        let id = form
            .number("chat_id")
            .ok_or_else(|| Refusal::bad("chat_id is empty"))?;
        let chat = self
            .chats
            .get(&id)
            .ok_or_else(|| Refusal::bad("chat not found"))?;
        if let Some(to) = chat.moved_to {
            return Err(Refusal {
                status: 400,
                description: "Bad Request: group chat was upgraded to a supergroup chat".to_owned(),
                parameters: json!({"migrate_to_chat_id": to}),
            });
        }
        match chat.closed {
            Some(told) => Err(Refusal {
                status: 403,
                description: format!("Forbidden: {told}"),
                parameters: Value::Null,
            }),
            None => Ok(id),
        }
    }

    /// Topics have to be there; General is named by leaving the id out.
    fn topic(&self, chat: i64, form: &Form) -> Result<Option<i64>, Refusal> {
        match form.number("message_thread_id") {
            None => Ok(None),
            Some(topic) if self.chats[&chat].topics.contains(&topic) => Ok(Some(topic)),
            Some(_) => Err(Refusal::bad("message thread not found")),
        }
    }

    /// As [`State::open_chat`], unless too much was written there in the last minute.
    fn writable(&mut self, form: &Form) -> Result<i64, Refusal> {
        let id = self.open_chat(form)?;
        let chat = self.chats.get_mut(&id).expect("an open chat");
        let Some((most, writes)) = &mut chat.flood else {
            return Ok(id);
        };
        writes.retain(|at| at.elapsed() < Duration::from_secs(60));
        if writes.len() < *most {
            writes.push(Instant::now());
            return Ok(id);
        }
        let wait = 60 - writes[0].elapsed().as_secs();
        Err(Refusal {
            status: 429,
            description: format!("Too Many Requests: retry after {wait}"),
            parameters: json!({"retry_after": wait}),
        })
    }

    fn send(&mut self, form: &Form) -> Done {
        let chat = self.writable(form)?;
        let topic = self.topic(chat, form)?;
        let source = form.text("text").unwrap_or_default();
        let text = seen(
            &source,
            form,
            MAX_TEXT,
            "message text is empty",
            "message is too long",
        )?;
        self.place(chat, topic, form, text, source, None)
    }

    fn send_document(&mut self, form: &Form) -> Done {
        let chat = self.writable(form)?;
        let topic = self.topic(chat, form)?;
        let source = form.text("caption").unwrap_or_default();
        let text = match source.is_empty() {
            true => String::new(),
            false => seen(
                &source,
                form,
                MAX_CAPTION,
                "",
                "message caption is too long",
            )?,
        };
        let file = form
            .file("document")
            .ok_or_else(|| Refusal::bad("there is no document in the request"))?;
        if file.1.is_empty() {
            return Err(Refusal::bad("file must be non-empty"));
        }
        if file.1.len() > MAX_UPLOAD {
            return Err(Refusal {
                status: 413,
                description: "Request Entity Too Large".to_owned(),
                parameters: Value::Null,
            });
        }
        self.place(chat, topic, form, text, source, Some(file.clone()))
    }

    fn place(
        &mut self,
        chat: i64,
        topic: Option<i64>,
        form: &Form,
        text: String,
        source: String,
        file: Option<(String, Vec<u8>)>,
    ) -> Done {
        let reply = form.value("reply_parameters");
        let answers = reply
            .as_ref()
            .and_then(|reply| reply["message_id"].as_i64());
        let lenient = reply
            .as_ref()
            .is_some_and(|reply| reply["allow_sending_without_reply"] == true);
        let kept = self.chats.get_mut(&chat).expect("an open chat");
        let answers = match answers {
            Some(post) if kept.posts.contains_key(&post) => Some(post),
            Some(_) if !lenient => return Err(Refusal::bad("message to be replied not found")),
            _ => None,
        };
        kept.last += 1;
        let id = kept.last;
        let shown = Shown {
            id,
            from: BOT,
            text,
            source,
            topic,
            answers,
            buttons: buttons(form)?,
            file: file.clone(),
            history: Vec::new(),
            notified: form.text("disable_notification").as_deref() != Some("true"),
        };
        kept.posts.insert(id, shown);
        if let Some(file) = file {
            self.files.insert(file_id(chat, id), file);
        }
        Ok(self.post(chat, id))
    }

    fn edit(&mut self, form: &Form) -> Done {
        let chat = self.writable(form)?;
        let id = form.number("message_id").unwrap_or_default();
        let source = form.text("text").unwrap_or_default();
        let text = seen(
            &source,
            form,
            MAX_TEXT,
            "message text is empty",
            "MESSAGE_TOO_LONG",
        )?;
        let buttons = buttons(form)?;
        let kept = self.chats.get_mut(&chat).expect("an open chat");
        let shown = kept
            .posts
            .get_mut(&id)
            .ok_or_else(|| Refusal::bad("message to edit not found"))?;
        if shown.from != BOT {
            return Err(Refusal::bad("message can't be edited"));
        }
        if shown.file.is_some() {
            return Err(Refusal::bad("there is no text in the message to edit"));
        }
        if shown.source == source && shown.buttons == buttons {
            return Err(Refusal::bad(
                "message is not modified: specified new message content and reply markup are exactly the same as a current content and reply markup of the message",
            ));
        }
        shown.history.push(std::mem::take(&mut shown.text));
        (shown.text, shown.source, shown.buttons) = (text, source, buttons);
        Ok(self.post(chat, id))
    }

    fn delete(&mut self, form: &Form) -> Done {
        let chat = self.open_chat(form)?;
        let id = form.number("message_id").unwrap_or_default();
        let kept = self.chats.get_mut(&chat).expect("an open chat");
        match kept.posts.get(&id).map(|post| post.from) {
            Some(BOT) => {}
            Some(_) => return Err(Refusal::bad("message can't be deleted")),
            None => return Err(Refusal::bad("message to delete not found")),
        }
        kept.posts.remove(&id);
        Ok(json!(true))
    }

    fn answer(&mut self, form: &Form) -> Done {
        let id = form.text("callback_query_id").unwrap_or_default();
        if !self.presses.remove(&id) {
            return Err(Refusal::bad(
                "query is too old and response timeout expired or query ID is invalid",
            ));
        }
        let said = form.text("text").unwrap_or_default();
        if said.chars().count() > 200 {
            return Err(Refusal::bad("MESSAGE_TOO_LONG"));
        }
        self.answered.insert(id, said);
        Ok(json!(true))
    }

    fn describe(&self, form: &Form) -> Done {
        let chat = self.open_chat(form)?;
        let mut chat = self.chat(chat);
        chat["accent_color_id"] = json!(0);
        chat["max_reaction_count"] = json!(11);
        chat["accepted_gift_types"] = json!({
            "unlimited_gifts": false, "limited_gifts": false, "unique_gifts": false,
            "premium_subscription": false, "gifts_from_channels": false,
        });
        Ok(chat)
    }

    /// A topic's number is that of the note which makes it.
    fn create_topic(&mut self, form: &Form) -> Done {
        let id = self.writable(form)?;
        let chat = self.chats.get_mut(&id).expect("an open chat");
        if !chat.forum {
            return Err(Refusal::bad("the chat is not a forum"));
        }
        let name = form.text("name").unwrap_or_default();
        if !(1..=128).contains(&name.chars().count()) {
            return Err(Refusal::bad("TOPIC_TITLE_EMPTY"));
        }
        chat.last += 1;
        chat.topics.insert(chat.last);
        Ok(json!({"message_thread_id": chat.last, "name": name, "icon_color": 7_322_096}))
    }

    fn set_commands(&mut self, form: &Form) -> Done {
        let commands = form.value("commands").unwrap_or_default();
        let letter = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
        for command in commands.as_array().into_iter().flatten() {
            let name = command["command"].as_str().unwrap_or_default();
            if !(1..=32).contains(&name.len()) || !name.bytes().all(letter) {
                return Err(Refusal::bad("BOT_COMMAND_INVALID"));
            }
        }
        self.commands = commands;
        Ok(json!(true))
    }

    fn act(&mut self, form: &Form) -> Done {
        let chat = self.open_chat(form)?;
        let topic = self.topic(chat, form)?;
        let action = form.text("action").unwrap_or_default();
        self.actions.push((chat, topic, action));
        Ok(json!(true))
    }

    fn react(&mut self, form: &Form) -> Done {
        let chat = self.open_chat(form)?;
        let post = form.number("message_id").unwrap_or_default();
        if !self.chats[&chat].posts.contains_key(&post) {
            return Err(Refusal::bad("message to react not found"));
        }
        let given = form.value("reaction").unwrap_or_default();
        if given.as_array().is_some_and(|given| given.len() > 1) {
            return Err(Refusal::bad("REACTIONS_TOO_MANY"));
        }
        if given[0].get("type").is_some_and(|kind| kind != "emoji") {
            return Err(Refusal::bad("REACTION_INVALID"));
        }
        match given[0]["emoji"].as_str() {
            Some(emoji) if !REACTIONS.contains(&emoji) => {
                return Err(Refusal::bad("REACTION_INVALID"));
            }
            Some(emoji) => self.reactions.insert((chat, post), emoji.to_owned()),
            None => self.reactions.remove(&(chat, post)),
        };
        Ok(json!(true))
    }

    fn file(&mut self, form: &Form) -> Done {
        let id = form.text("file_id").unwrap_or_default();
        let (_, content) = self
            .files
            .get(&id)
            .ok_or_else(|| Refusal::bad("invalid file_id"))?;
        if content.len() > MAX_DOWNLOAD {
            return Err(Refusal::bad("file is too big"));
        }
        Ok(json!({
            "file_id": id, "file_unique_id": format!("u{id}"), "file_size": content.len(),
            "file_path": format!("documents/{id}"),
        }))
    }
}

/// What people would see of a text, within the limit.
fn seen(
    source: &str,
    form: &Form,
    most: usize,
    empty: &str,
    too_long: &str,
) -> Result<String, Refusal> {
    let text = match form.text("parse_mode").as_deref() {
        None | Some("") => source.to_owned(),
        Some(mode) if mode.eq_ignore_ascii_case("html") => {
            html::read(source).map_err(Refusal::bad)?.text
        }
        Some(mode) => return Err(Refusal::bad(format!("unsupported parse_mode {mode}"))),
    };
    let text = text.trim().to_owned();
    if text.is_empty() {
        return Err(Refusal::bad(empty));
    }
    match text.chars().count() > most {
        true => Err(Refusal::bad(too_long)),
        false => Ok(text),
    }
}

fn buttons(form: &Form) -> Result<Vec<(String, String)>, Refusal> {
    let markup = form.value("reply_markup").unwrap_or_default();
    let rows = markup["inline_keyboard"].as_array().cloned();
    let mut buttons = Vec::new();
    for button in rows.into_iter().flatten().flat_map(|row| match row {
        Value::Array(buttons) => buttons,
        _ => Vec::new(),
    }) {
        let word = |name: &str| button[name].as_str().unwrap_or_default().to_owned();
        let data = word("callback_data");
        if data.is_empty() || data.len() > 64 {
            return Err(Refusal::bad("BUTTON_DATA_INVALID"));
        }
        buttons.push((word("text"), data));
    }
    Ok(buttons)
}
