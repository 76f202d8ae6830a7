//! What the fake keeps.

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tokio::sync::{broadcast, watch};

use super::{BOT, gateway::Order};

/// The one guild.
pub const GUILD: u64 = 900_000_000_000_000_000;
/// Two people in it.
pub const ANN: u64 = 110_000_000_000_000_000;
/// See [`ANN`].
pub const BEN: u64 = 120_000_000_000_000_000;

/// Types of channels.
pub(super) const TEXT: i64 = 0;
pub(super) const DIRECT: i64 = 1;
pub(super) const THREAD: i64 = 11;

pub(super) struct Kept {
    state: Mutex<State>,
    /// Counts changes, for connections.
    pub(super) changed: watch::Sender<u64>,
    pub(super) orders: broadcast::Sender<Order>,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) gateway_url: String,
    pub(super) own_url: String,
    pub(super) channels: BTreeMap<u64, Channel>,
    pub(super) messages: BTreeMap<u64, Message>,
    pub(super) files: HashMap<u64, File>,
    pub(super) nonces: HashMap<String, (u64, Instant)>,
    pub(super) interactions: HashMap<u64, Interaction>,
    pub(super) commands: Value,
    pub(super) sessions: HashMap<String, Session>,
    pub(super) identified: Vec<Instant>,
    pub(super) resumed: Vec<u64>,
    pub(super) deaf: usize,
    pub(super) refused: VecDeque<Order>,
    pub(super) windows: HashMap<String, (Instant, u32)>,
    pub(super) typed: Vec<u64>,
    pub(super) beat: u64,
    pub(super) content_granted: bool,
    pub(super) sessions_left: u64,
    /// How long an interaction waits for its callback.
    pub(super) callback_within: Duration,
    last: u64,
    stamps: u64,
}

pub(super) struct Channel {
    pub(super) kind: i64,
    pub(super) parent: Option<u64>,
    pub(super) name: String,
    pub(super) archived: bool,
    pub(super) locked: bool,
    /// What writing is refused with.
    pub(super) denied: Option<i64>,
}

pub(super) struct Message {
    pub(super) channel: u64,
    pub(super) author: u64,
    pub(super) kind: i64,
    pub(super) content: String,
    /// What it said before.
    pub(super) edits: Vec<String>,
    pub(super) stamp: String,
    pub(super) edited: Option<String>,
    pub(super) components: Value,
    pub(super) files: Vec<u64>,
    pub(super) reactions: Vec<(String, u64)>,
    pub(super) nonce: Option<String>,
    pub(super) answers: Option<u64>,
    /// It notified somebody.
    pub(super) pinged: bool,
}

pub(super) struct File {
    pub(super) channel: u64,
    pub(super) name: String,
    pub(super) kind: String,
    pub(super) description: Option<String>,
    pub(super) bytes: Vec<u8>,
    /// An address of an older signature has expired.
    pub(super) signature: u32,
}

pub(super) struct Interaction {
    pub(super) token: String,
    pub(super) born: Instant,
    /// The callback's type.
    pub(super) acknowledged: Option<i64>,
    /// How long that took.
    pub(super) took: Option<Duration>,
    /// What only the person sees.
    pub(super) said: Vec<String>,
}

#[derive(Default)]
pub(super) struct Session {
    /// In their order, the first is number 1.
    pub(super) events: Vec<(String, Value)>,
}

impl Kept {
    pub(super) fn new() -> Kept {
        let state = State {
            beat: 41_250,
            content_granted: true,
            sessions_left: 1000,
            callback_within: Duration::from_secs(3),
            commands: json!([]),
            ..State::default()
        };
        Kept {
            state: Mutex::new(state),
            changed: watch::Sender::new(0),
            orders: broadcast::Sender::new(64),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the connections that there is something new.
    pub(super) fn wake(&self) {
        self.changed.send_modify(|changes| *changes += 1);
    }
}

impl State {
    /// A snowflake of now, larger than all before.
    pub(super) fn id(&mut self) -> u64 {
        let since = mayfly_adapters::clock::unix_ms() - 1_420_070_400_000;
        let millis = u64::try_from(since).expect("after 2015");
        self.last = (millis << 22).max(self.last + 1);
        self.last
    }

    /// A time, later than all before.
    pub(super) fn stamp(&mut self) -> String {
        self.stamps += 1;
        format!("2026-11-30T10:00:00.{:06}+00:00", self.stamps)
    }

    /// Gives an event to every session.
    pub(super) fn dispatch(&mut self, kind: &str, data: &Value) {
        for session in self.sessions.values_mut() {
            session.events.push((kind.to_owned(), data.clone()));
        }
    }

    pub(super) fn guild_of(&self, channel: u64) -> Option<u64> {
        let kind = self.channels.get(&channel)?.kind;
        (kind != DIRECT).then_some(GUILD)
    }

    pub(super) fn channel_json(&self, id: u64) -> Value {
        let channel = &self.channels[&id];
        let mut json = json!({
            "id": id.to_string(), "type": channel.kind, "name": channel.name,
            "position": 0, "permission_overwrites": [], "nsfw": false, "topic": null,
            "parent_id": channel.parent.map(|parent| parent.to_string()),
            "rate_limit_per_user": 0, "last_message_id": null, "flags": 0,
        });
        match channel.kind {
            DIRECT => json["recipients"] = json!([self.user_json(ANN)]),
            _ => json["guild_id"] = json!(GUILD.to_string()),
        }
        if channel.kind == THREAD {
            for field in ["position", "permission_overwrites", "nsfw", "topic"] {
                json.as_object_mut().expect("a channel").remove(field);
            }
            json["owner_id"] = json!(BOT.to_string());
            json["message_count"] = json!(0);
            json["member_count"] = json!(2);
            json["thread_metadata"] = json!({
                "archived": channel.archived, "locked": channel.locked, "auto_archive_duration": 10080,
                "archive_timestamp": "2026-11-30T10:00:00.000000+00:00",
            });
        }
        json
    }

    pub(super) fn user_json(&self, id: u64) -> Value {
        let name = match id {
            ANN => "ann",
            BEN => "ben",
            BOT => "mayfly",
            _ => "somebody",
        };
        json!({
            "id": id.to_string(), "username": name, "discriminator": "0", "global_name": null,
            "avatar": null, "bot": id == BOT, "public_flags": 0,
        })
    }

    pub(super) fn member_json(&self, id: u64) -> Value {
        json!({
            "user": self.user_json(id), "nick": null, "avatar": null, "roles": ["777"], "flags": 0,
            "joined_at": "2026-11-01T10:00:00.000000+00:00", "deaf": false, "mute": false, "pending": false,
        })
    }

    /// As REST tells it: without nonce, guild and member.
    pub(super) fn message_json(&self, id: u64) -> Value {
        let message = &self.messages[&id];
        let named: HashSet<u64> = named(&message.content).collect();
        let mentions: Vec<Value> = named.into_iter().map(|id| self.user_json(id)).collect();
        let files: Vec<Value> = message.files.iter().map(|id| self.file_json(*id)).collect();
        let mut json = json!({
            "id": id.to_string(), "channel_id": message.channel.to_string(), "type": message.kind,
            "author": self.user_json(message.author), "content": message.content,
            "timestamp": message.stamp, "edited_timestamp": message.edited, "tts": false,
            "mention_everyone": false, "mentions": mentions, "mention_roles": [], "attachments": files,
            "embeds": [], "components": message.components, "pinned": false, "flags": 0,
        });
        if let Some(answers) = message.answers {
            json["message_reference"] = json!({
                "message_id": answers.to_string(), "channel_id": message.channel.to_string(),
            });
        }
        json
    }

    /// As whoever posts it is answered.
    pub(super) fn message_answer(&self, id: u64) -> Value {
        let mut json = self.message_json(id);
        if let Some(nonce) = &self.messages[&id].nonce {
            json["nonce"] = json!(nonce);
        }
        json
    }

    /// As the gateway tells it.
    pub(super) fn message_event(&self, id: u64) -> Value {
        let mut json = self.message_answer(id);
        let message = &self.messages[&id];
        if let Some(guild) = self.guild_of(message.channel) {
            json["guild_id"] = json!(guild.to_string());
            let mut member = self.member_json(message.author);
            member.as_object_mut().expect("a member").remove("user");
            json["member"] = member;
        }
        json
    }

    fn file_json(&self, id: u64) -> Value {
        let file = &self.files[&id];
        let (own, channel, name, signature) =
            (&self.own_url, file.channel, &file.name, file.signature);
        let mut json = json!({
            "id": id.to_string(), "filename": name, "size": file.bytes.len(), "content_type": file.kind,
            "url": format!("{own}/cdn/attachments/{channel}/{id}/{name}?ex=1&is=2&hm={signature}"),
            "proxy_url": format!("{own}/cdn/attachments/{channel}/{id}/{name}?ex=1&is=2&hm={signature}"),
        });
        if let Some(description) = &file.description {
            json["description"] = json!(description);
        }
        json
    }
}

/// The people that a text mentions.
pub(super) fn named(text: &str) -> impl Iterator<Item = u64> {
    text.split("<@")
        .skip(1)
        .filter_map(|rest| rest.split_once('>')?.0.parse().ok())
}
