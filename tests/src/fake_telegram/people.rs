//! What people do in the chats, and what they see there: for tests.

use std::{net::SocketAddr, time::Duration};

use serde_json::{Value, json};

use super::{
    BOT_NAME, FakeTelegram,
    state::{Chat, Shown, file_id, now, user},
};

/// Somebody who writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Person(pub i64);

impl FakeTelegram {
    /// A conversation of a person with the bot; its id is the person's.
    pub fn private(&self, person: Person) -> i64 {
        self.add(person.0, "private", false);
        person.0
    }

    /// A group the bot is in.
    pub fn group(&self, id: i64) -> i64 {
        self.add(id, "group", false);
        id
    }

    /// A supergroup without topics.
    pub fn supergroup(&self, id: i64) -> i64 {
        self.add(id, "supergroup", false);
        id
    }

    /// A supergroup with topics.
    pub fn forum(&self, id: i64, topics: &[i64]) -> i64 {
        self.add(id, "supergroup", true);
        let mut state = self.state.lock();
        let chat = state.chats.get_mut(&id).expect("just made");
        chat.topics.extend(topics);
        // General is 1, and topics are numbered like posts.
        chat.last = topics.iter().copied().max().unwrap_or(1);
        id
    }

    fn add(&self, id: i64, kind: &'static str, forum: bool) {
        let chat = Chat {
            kind,
            forum,
            ..Chat::default()
        };
        self.state.lock().chats.insert(id, chat);
    }

    /// A person writes; returns the post's id. `/commands` and `@mentions` get their entities.
    pub fn write(&self, chat: i64, by: Person, text: &str) -> i64 {
        self.write_as(chat, by, text, |_| {})
    }

    /// As [`FakeTelegram::write`], in a topic.
    pub fn write_in_topic(&self, chat: i64, topic: i64, by: Person, text: &str) -> i64 {
        self.write_as(chat, by, text, |shown| shown.topic = Some(topic))
    }

    /// As [`FakeTelegram::write`], as an answer to a post.
    pub fn answer(&self, chat: i64, to: i64, by: Person, text: &str) -> i64 {
        self.write_as(chat, by, text, |shown| shown.answers = Some(to))
    }

    /// A person sends a file with a caption.
    pub fn send_file(
        &self,
        chat: i64,
        by: Person,
        caption: &str,
        name: &str,
        content: &[u8],
    ) -> i64 {
        self.write_as(chat, by, caption, |shown| {
            shown.file = Some((name.to_owned(), content.to_vec()));
        })
    }

    /// A person sends files as one album, with the caption on the given one.
    pub fn send_album(
        &self,
        chat: i64,
        by: Person,
        caption: (usize, &str),
        files: &[(&str, &[u8])],
    ) {
        let group = format!("album{}", now());
        for (place, (name, content)) in files.iter().enumerate() {
            let caption = if place == caption.0 { caption.1 } else { "" };
            let id = self.keep(chat, by, caption, |shown| {
                shown.file = Some(((*name).to_owned(), content.to_vec()));
            });
            let mut state = self.state.lock();
            let mut post = state.post(chat, id);
            post["media_group_id"] = json!(group);
            state.push("message", post);
        }
        self.news();
    }

    fn write_as(&self, chat: i64, by: Person, text: &str, more: impl FnOnce(&mut Shown)) -> i64 {
        let id = self.keep(chat, by, text, more);
        let mut state = self.state.lock();
        let mut post = state.post(chat, id);
        let entities = entities(text);
        if !entities.is_empty() {
            let field = if post.get("text").is_some() {
                "entities"
            } else {
                "caption_entities"
            };
            post[field] = Value::Array(entities);
        }
        if state.shows(chat, &post) {
            state.push("message", post);
        }
        drop(state);
        self.news();
        id
    }

    fn keep(&self, chat: i64, by: Person, text: &str, more: impl FnOnce(&mut Shown)) -> i64 {
        let mut state = self.state.lock();
        let kept = state.chats.get_mut(&chat).expect("a chat");
        kept.last += 1;
        let id = kept.last;
        let mut shown = Shown {
            id,
            from: by.0,
            text: text.to_owned(),
            source: text.to_owned(),
            topic: None,
            answers: None,
            buttons: Vec::new(),
            file: None,
            history: Vec::new(),
            notified: true,
        };
        more(&mut shown);
        if let Some(file) = &shown.file {
            let file = file.clone();
            kept.posts.insert(id, shown);
            state.files.insert(file_id(chat, id), file);
        } else {
            kept.posts.insert(id, shown);
        }
        id
    }

    /// A person changes a post of theirs.
    pub fn edit(&self, chat: i64, post: i64, text: &str) {
        let mut state = self.state.lock();
        let shown = state
            .chats
            .get_mut(&chat)
            .and_then(|chat| chat.posts.get_mut(&post));
        let shown = shown.expect("a post");
        shown.history.push(std::mem::take(&mut shown.text));
        (shown.text, shown.source) = (text.to_owned(), text.to_owned());
        let body = state.post(chat, post);
        state.push("edited_message", body);
        drop(state);
        self.news();
    }

    /// A person presses the button with this label on a post; returns the callback's id.
    pub fn press(&self, chat: i64, post: i64, label: &str, by: Person) -> String {
        let mut state = self.state.lock();
        let shown = &state.chats[&chat].posts[&post];
        let data = shown.buttons.iter().find(|(written, _)| written == label);
        let data = data
            .unwrap_or_else(|| panic!("no button \"{label}\""))
            .1
            .clone();
        let id = format!("press{}", state.last_update + 1);
        let body = json!({
            "id": id, "from": user(by.0), "message": state.post(chat, post),
            "chat_instance": "1", "data": data,
        });
        state.push("callback_query", body);
        state.presses.insert(id.clone());
        drop(state);
        self.news();
        id
    }

    /// Presses that were not answered stop to spin by themselves.
    pub fn time_out_presses(&self) {
        self.state.lock().presses.clear();
    }

    /// A person takes a post away. Bots are not told.
    pub fn delete(&self, chat: i64, post: i64) {
        let mut state = self.state.lock();
        let kept = state.chats.get_mut(&chat).expect("a chat");
        kept.posts.remove(&post).expect("a post");
    }

    /// A topic is deleted with all that is in it. Bots are not told.
    pub fn delete_topic(&self, chat: i64, topic: i64) {
        let mut state = self.state.lock();
        let kept = state.chats.get_mut(&chat).expect("a chat");
        kept.topics.remove(&topic);
        kept.posts.retain(|_, post| post.topic != Some(topic));
    }

    /// Privacy mode, as @BotFather switches it.
    pub fn set_privacy(&self, on: bool) {
        self.state.lock().privacy = on;
    }

    /// The URL that updates go to; empty for polling.
    pub fn set_webhook(&self, url: &str) {
        let set = (url.to_owned(), String::new());
        self.state.lock().webhook = (!url.is_empty()).then_some(set);
    }

    /// The URL that updates go to, as the bot has set it.
    pub fn webhook(&self) -> Option<String> {
        let state = self.state.lock();
        state.webhook.as_ref().map(|(url, _)| url.clone())
    }

    /// A request to the webhook has failed.
    pub fn delivery_failed(&self) -> bool {
        self.state.lock().failed.is_some()
    }

    /// The webhook's secret.
    pub fn webhook_secret(&self) -> Option<String> {
        let state = self.state.lock();
        state.webhook.as_ref().map(|(_, secret)| secret.clone())
    }

    /// What any webhook's address leads to: the proxy in front of the bot, which takes TLS away.
    pub fn requests_to(&self, address: SocketAddr) {
        self.state.lock().requests_to = Some(address);
        self.news();
    }

    /// How long each acknowledgement took, from the first sending of its update.
    pub fn took(&self) -> Vec<Duration> {
        self.state.lock().took.clone()
    }

    /// From now on the bot may write so often a minute in a chat.
    pub fn limit(&self, chat: i64, a_minute: usize) {
        let mut state = self.state.lock();
        state.chats.get_mut(&chat).expect("a chat").flood = Some((a_minute, Vec::new()));
    }

    /// Updates are counted from here on, also downwards.
    pub fn count_updates_from(&self, id: i64) {
        self.state.lock().last_update = id - 1;
    }

    /// The last two updates change places.
    pub fn swap_last_updates(&self) {
        let mut state = self.state.lock();
        let last = state.updates.len() - 1;
        state.updates.swap(last - 1, last);
        for place in [last - 1, last] {
            let id = state.last_update + place as i64 - last as i64;
            state.updates[place].id = id;
            state.updates[place].body["update_id"] = json!(id);
        }
    }

    /// A group becomes a supergroup with a new id.
    pub fn migrate(&self, from: i64, to: i64) {
        self.add(to, "supergroup", false);
        for (chat, field, other) in [
            (from, "migrate_to_chat_id", to),
            (to, "migrate_from_chat_id", from),
        ] {
            let id = self.keep(chat, Person(1), "", |_| {});
            let mut state = self.state.lock();
            let mut post = state.post(chat, id);
            post.as_object_mut().expect("an object").remove("text");
            post[field] = json!(other);
            state.push("message", post);
        }
        let mut state = self.state.lock();
        state.chats.get_mut(&from).expect("a chat").moved_to = Some(to);
        drop(state);
        self.news();
    }

    /// The bot may not write there any more, and is told this.
    pub fn close(&self, chat: i64, told: &'static str) {
        let mut state = self.state.lock();
        state.chats.get_mut(&chat).expect("a chat").closed = Some(told);
    }

    /// The bot may write there again.
    pub fn readmit(&self, chat: i64) {
        let mut state = self.state.lock();
        state.chats.get_mut(&chat).expect("a chat").closed = None;
    }

    /// Any update, as it would come.
    pub fn update(&self, kind: &str, content: Value) {
        self.state.lock().push(kind, content);
        self.news();
    }

    /// The same update once more, as after a lost confirmation.
    pub fn repeat_last_update(&self, kind: &str) {
        let mut state = self.state.lock();
        let last = state.updates.back().map(|update| update.body[kind].clone());
        if let Some(content) = last {
            state.push(kind, content);
        }
        drop(state);
        self.news();
    }

    /// What people see in a chat now, oldest first.
    pub fn shown(&self, chat: i64) -> Vec<Shown> {
        let state = self.state.lock();
        state.chats[&chat].posts.values().cloned().collect()
    }

    /// Signs of life so far: chat, topic, action.
    pub fn actions(&self) -> Vec<(i64, Option<i64>, String)> {
        self.state.lock().actions.clone()
    }

    /// The bot's emoji on a post.
    pub fn reaction(&self, chat: i64, post: i64) -> Option<String> {
        self.state.lock().reactions.get(&(chat, post)).cloned()
    }

    /// What was said to who pressed, so that the button stopped to spin.
    pub fn answered(&self, press: &str) -> Option<String> {
        self.state.lock().answered.get(press).cloned()
    }

    /// All updates that wait, as they will come.
    pub fn waiting(&self) -> Vec<Value> {
        let state = self.state.lock();
        state
            .updates
            .iter()
            .map(|update| update.body.clone())
            .collect()
    }

    /// Commands the bot registered.
    pub fn commands(&self) -> Value {
        self.state.lock().commands.clone()
    }

    /// Updates that no poller has confirmed.
    pub fn unconfirmed(&self) -> usize {
        self.state.lock().updates.len()
    }

    fn news(&self) {
        self.state.news.notify_waiters();
    }
}

/// Commands at the beginning, and mentions of the bot, in UTF-16 units as the API counts.
fn entities(text: &str) -> Vec<Value> {
    let units = |text: &str| text.encode_utf16().count();
    let mut found = Vec::new();
    if text.starts_with('/') {
        let word = text.split_whitespace().next().unwrap_or_default();
        found.push(json!({"type": "bot_command", "offset": 0, "length": units(word)}));
    }
    let mention = format!("@{BOT_NAME}");
    for (at, _) in text.match_indices(&mention) {
        let glued = at > 0 && !text[..at].ends_with(char::is_whitespace);
        if !glued {
            found.push(json!({
                "type": "mention", "offset": units(&text[..at]), "length": units(&mention),
            }));
        }
    }
    found
}
