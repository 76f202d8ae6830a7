//! What people do in the chats, and what they see there: for tests.

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

    /// A supergroup with topics.
    pub fn forum(&self, id: i64, topics: &[i64]) -> i64 {
        self.add(id, "supergroup", true);
        let mut state = self.state.lock();
        let chat = state.chats.get_mut(&id).expect("just made");
        chat.topics.extend(topics);
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
        state.push("message", post);
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
            edits: 0,
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
        (shown.text, shown.source) = (text.to_owned(), text.to_owned());
        shown.edits += 1;
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
        drop(state);
        self.news();
        id
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

    /// Whether a press was answered, so that the button stopped to spin.
    pub fn answered(&self, press: &str) -> bool {
        self.state.lock().answered.contains(press)
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
