//! What people do, and what they see: for tests.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{
    BOT, FakeDiscord,
    state::{Channel, DIRECT, File, Interaction, Message, State, TEXT},
};

/// A message as a person sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// Which.
    pub id: u64,
    /// The bot wrote it.
    pub ours: bool,
    /// What is seen of its words.
    pub text: String,
    /// What it said before, the oldest first.
    pub before: Vec<String>,
    /// Names of its files.
    pub files: Vec<String>,
    /// Ids of its buttons.
    pub buttons: Vec<String>,
    /// Reactions of the bot.
    pub signs: Vec<String>,
    /// The message it answers.
    pub answers: Option<u64>,
    /// Somebody was notified by a mention in it.
    pub pinged: bool,
}

impl FakeDiscord {
    /// A channel of the guild.
    pub fn channel(&self, name: &str) -> u64 {
        self.add(TEXT, name)
    }

    /// A direct conversation with the bot.
    pub fn direct(&self) -> u64 {
        self.add(DIRECT, "")
    }

    fn add(&self, kind: i64, name: &str) -> u64 {
        let mut state = self.kept.lock();
        let id = state.id();
        let channel = Channel {
            kind,
            parent: None,
            name: name.to_owned(),
            archived: false,
            locked: false,
            denied: None,
        };
        state.channels.insert(id, channel);
        if kind != DIRECT {
            let json = state.channel_json(id);
            state.dispatch("CHANNEL_CREATE", &json);
        }
        drop(state);
        self.kept.wake();
        id
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let done = change(&mut self.kept.lock());
        self.kept.wake();
        done
    }

    /// A person writes; returns the message's id.
    pub fn write(&self, channel: u64, by: u64, text: &str) -> u64 {
        self.change(|state| write(state, channel, by, text, Vec::new(), true))
    }

    /// As [`FakeDiscord::write`], and no session hears of it.
    pub fn write_unheard(&self, channel: u64, by: u64, text: &str) -> u64 {
        self.change(|state| write(state, channel, by, text, Vec::new(), false))
    }

    /// A person speaks to the bot.
    pub fn mention(&self, channel: u64, by: u64, text: &str) -> u64 {
        self.write(channel, by, &format!("<@{BOT}> {text}"))
    }

    /// A person sends a file.
    pub fn upload(
        &self,
        channel: u64,
        by: u64,
        text: &str,
        name: &str,
        kind: &str,
        bytes: &[u8],
    ) -> u64 {
        self.change(|state| {
            let id = state.id();
            let file = File {
                channel,
                name: name.to_owned(),
                kind: kind.to_owned(),
                description: None,
                bytes: bytes.to_owned(),
                signature: 1,
            };
            state.files.insert(id, file);
            write(state, channel, by, text, vec![id], true)
        })
    }

    /// A person changes what they wrote.
    pub fn edit(&self, message: u64, text: &str) {
        self.change(|state| {
            let stamp = state.stamp();
            let found = state.messages.get_mut(&message).expect("a message");
            let before = std::mem::replace(&mut found.content, text.to_owned());
            found.edits.push(before);
            found.edited = Some(stamp);
            let event = state.message_event(message);
            state.dispatch("MESSAGE_UPDATE", &event);
        });
    }

    /// A preview is added to a message.
    pub fn preview(&self, message: u64) {
        self.change(|state| {
            let mut event = state.message_event(message);
            event["embeds"] = json!([{"type": "link", "title": "A page"}]);
            state.dispatch("MESSAGE_UPDATE", &event);
        });
    }

    /// A message is removed.
    pub fn delete(&self, message: u64) {
        self.change(|state| state.remove(message));
    }

    /// A person presses a button; returns the interaction's id.
    pub fn press(&self, message: u64, button: &str, by: u64) -> u64 {
        self.change(|state| {
            let channel = state.messages[&message].channel;
            let data = json!({"component_type": 2, "custom_id": button});
            let mut event = interaction(state, 3, channel, by, &data);
            event["message"] = state.message_json(message);
            send(state, event)
        })
    }

    /// A person types a command; returns the interaction's id.
    pub fn command(&self, channel: u64, by: u64, name: &str, text: &str) -> u64 {
        self.change(|state| {
            let option = json!({"name": "text", "type": 3, "value": text});
            let options = if text.is_empty() {
                json!([])
            } else {
                json!([option])
            };
            let data = json!({"id": "1", "name": name, "type": 1, "options": options});
            let event = interaction(state, 2, channel, by, &data);
            send(state, event)
        })
    }

    /// How long an interaction waits for its callback: three seconds unless told.
    pub fn callback_within(&self, within: Duration) {
        self.kept.lock().callback_within = within;
    }

    /// The type of the callback that acknowledged an interaction.
    pub fn acknowledged(&self, interaction: u64) -> Option<i64> {
        self.kept.lock().interactions[&interaction].acknowledged
    }

    /// How long each acknowledgement of an interaction took.
    pub fn took(&self) -> Vec<Duration> {
        let state = self.kept.lock();
        let all = state.interactions.values();
        all.filter_map(|interaction| interaction.took).collect()
    }

    /// What only the person behind an interaction was told.
    pub fn whispered(&self, interaction: u64) -> Vec<String> {
        self.kept.lock().interactions[&interaction].said.clone()
    }

    /// The messages of a channel or thread, without Discord's own.
    pub fn shown(&self, channel: u64) -> Vec<Shown> {
        let state = self.kept.lock();
        let here = state
            .messages
            .iter()
            .filter(|(_, found)| found.channel == channel && matches!(found.kind, 0 | 19));
        here.map(|(id, found)| shown(&state, *id, found)).collect()
    }

    /// A channel's or thread's name, if there is one with this id.
    pub fn name(&self, channel: u64) -> Option<String> {
        self.kept
            .lock()
            .channels
            .get(&channel)
            .map(|channel| channel.name.clone())
    }

    /// Whether a thread is in the archive.
    pub fn is_archived(&self, thread: u64) -> bool {
        self.kept.lock().channels[&thread].archived
    }

    /// Events that were sent, each as `event.NAME`.
    pub fn told(&self) -> Vec<(String, Value)> {
        let state = self.kept.lock();
        let sessions = state.sessions.values();
        let events = sessions.flat_map(|session| session.events.iter());
        events
            .map(|(kind, data)| (format!("event.{kind}"), data.clone()))
            .collect()
    }

    /// Somebody opens a thread from a message.
    pub fn open(&self, parent: u64, message: u64, name: &str) {
        self.change(|state| state.open(parent, message, name));
    }

    /// A thread goes into the archive.
    pub fn archive(&self, thread: u64) {
        self.change(|state| state.channels.get_mut(&thread).expect("a thread").archived = true);
    }

    /// A moderator locks a thread.
    pub fn lock(&self, thread: u64) {
        self.change(|state| {
            let thread = state.channels.get_mut(&thread).expect("a thread");
            (thread.archived, thread.locked) = (true, true);
        });
    }

    /// Writing here is refused with this code.
    pub fn deny(&self, channel: u64, code: i64) {
        self.change(|state| {
            state.channels.get_mut(&channel).expect("a channel").denied = Some(code)
        });
    }

    /// A channel is open again for the bot.
    pub fn readmit(&self, channel: u64) {
        self.change(|state| {
            let channel = state.channels.get_mut(&channel).expect("a channel");
            (channel.archived, channel.locked, channel.denied) = (false, false, None);
        });
    }

    /// A channel is deleted with its messages.
    pub fn drop_channel(&self, channel: u64) {
        self.change(|state| {
            state.channels.remove(&channel);
            state
                .messages
                .retain(|_, message| message.channel != channel);
        });
    }

    /// Repeated nonces are no longer joined.
    pub fn forget_nonces(&self) {
        self.kept.lock().nonces.clear();
    }

    /// Addresses of files so far have expired.
    pub fn expire_files(&self) {
        self.change(|state| {
            state
                .files
                .values_mut()
                .for_each(|file| file.signature += 1)
        });
    }

    /// Where the bot was seen typing.
    pub fn typed(&self) -> Vec<u64> {
        self.kept.lock().typed.clone()
    }

    /// The registered commands.
    pub fn commands(&self) -> Value {
        self.kept.lock().commands.clone()
    }

    /// A file's content as it was sent.
    pub fn content(&self, name: &str) -> Option<Vec<u8>> {
        let state = self.kept.lock();
        let file = state.files.values().find(|file| file.name == name);
        file.map(|file| file.bytes.clone())
    }
}

fn write(
    state: &mut State,
    channel: u64,
    by: u64,
    text: &str,
    files: Vec<u64>,
    heard: bool,
) -> u64 {
    let (id, stamp) = (state.id(), state.stamp());
    let message = Message {
        channel,
        author: by,
        kind: 0,
        content: text.to_owned(),
        edits: Vec::new(),
        stamp,
        edited: None,
        components: json!([]),
        files,
        reactions: Vec::new(),
        nonce: None,
        answers: None,
        pinged: false,
    };
    state.messages.insert(id, message);
    if heard {
        let event = state.message_event(id);
        state.dispatch("MESSAGE_CREATE", &event);
    }
    id
}

fn interaction(state: &mut State, kind: i64, channel: u64, by: u64, data: &Value) -> Value {
    let id = state.id();
    let mut event = json!({
        "id": id.to_string(), "application_id": BOT.to_string(), "type": kind, "version": 1,
        "token": format!("interaction-token-{id}"), "channel_id": channel.to_string(),
        "channel": state.channel_json(channel), "data": data, "locale": "en-US", "entitlements": [],
        "authorizing_integration_owners": {}, "context": 0, "attachment_size_limit": 10_485_760,
        "app_permissions": "309237746752",
    });
    match state.guild_of(channel) {
        Some(guild) => {
            event["guild_id"] = json!(guild.to_string());
            event["member"] = state.member_json(by);
            event["member"]["permissions"] = json!("309237746752");
        }
        None => event["user"] = state.user_json(by),
    }
    event
}

fn send(state: &mut State, event: Value) -> u64 {
    let id = event["id"]
        .as_str()
        .and_then(|id| id.parse().ok())
        .expect("an id");
    let token = event["token"].as_str().expect("a token").to_owned();
    let interaction = Interaction {
        token,
        born: Instant::now(),
        acknowledged: None,
        took: None,
        said: Vec::new(),
    };
    state.interactions.insert(id, interaction);
    state.dispatch("INTERACTION_CREATE", &event);
    id
}

fn shown(state: &State, id: u64, message: &Message) -> Shown {
    let rows = message.components.as_array().cloned().unwrap_or_default();
    let buttons = rows
        .iter()
        .flat_map(|row| row["components"].as_array().cloned().unwrap_or_default());
    let ids = buttons.filter_map(|button| button["custom_id"].as_str().map(str::to_owned));
    Shown {
        id,
        ours: message.author == BOT,
        text: message.content.replace(['\u{200b}', '\u{200c}'], ""),
        before: message.edits.clone(),
        files: message
            .files
            .iter()
            .map(|id| state.files[id].name.clone())
            .collect(),
        buttons: ids.collect(),
        signs: message
            .reactions
            .iter()
            .map(|(emoji, _)| emoji.clone())
            .collect(),
        answers: message.answers,
        pinged: message.pinged,
    }
}
