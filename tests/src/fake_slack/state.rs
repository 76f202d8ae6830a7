//! What the server keeps.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    net::SocketAddr,
    sync::{Mutex, MutexGuard},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use serde_json::{Value, json};
use tokio::sync::{Notify, broadcast};

use super::{
    APP, BOT, TEAM,
    socket::{Ending, Envelope, Mishap},
};

/// One message.
#[derive(Debug, Clone)]
pub(super) struct Message {
    pub(super) ts: String,
    /// Who wrote it.
    pub(super) user: String,
    pub(super) text: String,
    pub(super) blocks: Value,
    /// Its thread's root, if it is a reply.
    pub(super) root: Option<String>,
    pub(super) metadata: Value,
    pub(super) files: Vec<String>,
    /// What it said before.
    pub(super) before: Vec<String>,
    /// Name and by whom.
    pub(super) reactions: BTreeSet<(String, String)>,
}

/// One channel or direct conversation.
#[derive(Debug, Default)]
pub(super) struct Channel {
    pub(super) messages: BTreeMap<String, Message>,
    pub(super) archived: bool,
    /// The bot is not in it.
    pub(super) left: bool,
}

/// A file on its way or whole.
#[derive(Debug, Clone)]
pub(super) struct File {
    pub(super) name: String,
    pub(super) media_type: String,
    pub(super) length: usize,
    pub(super) content: Option<Vec<u8>>,
    /// An upload that was not completed is no file yet.
    pub(super) complete: bool,
    /// Channel, root and message.
    pub(super) shares: Vec<(String, Option<String>, String)>,
}

/// Events that are kept to be looked at.
const KEPT: usize = 500;

/// See the module.
pub(super) struct State {
    pub(super) url: String,
    pub(super) socket_url: String,
    pub(super) channels: BTreeMap<String, Channel>,
    pub(super) files: HashMap<String, File>,
    pub(super) scopes: Vec<String>,
    /// Events as they were told; the first so many.
    pub(super) told: Vec<(String, Value)>,
    pub(super) last: u64,
    /// Tickets of sockets that were not opened yet.
    pub(super) tickets: BTreeSet<String>,
    pub(super) link_disabled: bool,
    /// Envelopes that wait for a socket.
    pub(super) waiting: VecDeque<Envelope>,
    /// Event ids of acknowledged envelopes, in their order.
    pub(super) acknowledged: Vec<String>,
    /// How long each of them took.
    pub(super) took: Vec<Duration>,
    /// Where events go as requests.
    pub(super) requests_to: Option<SocketAddr>,
    /// Passed, as far as repetitions go.
    pub(super) minutes: u64,
    /// Event ids that were repeated in vain.
    pub(super) given_up: Vec<String>,
    pub(super) sockets: usize,
    pub(super) sockets_ever: usize,
    /// Counted besides the ones that are there.
    pub(super) strangers: usize,
    pub(super) mishaps: VecDeque<Mishap>,
    /// Events are dropped where nobody listens.
    pub(super) forgetful: bool,
    /// Channel, user and text.
    pub(super) whispers: Vec<(String, String, String)>,
    /// Channel, thread and status.
    pub(super) statuses: Vec<(String, String, String)>,
    /// Shares come only after so many looks.
    pub(super) slow_shares: usize,
    /// A share that comes never.
    pub(super) no_shares: bool,
    /// Where downloads are sent on to.
    pub(super) files_moved_to: Option<String>,
}

/// The state and what is told of it.
pub(super) struct Kept {
    state: Mutex<State>,
    /// Something waits for a socket.
    pub(super) news: Notify,
    /// How sockets end.
    pub(super) endings: broadcast::Sender<Ending>,
}

impl Default for Kept {
    fn default() -> Self {
        let scopes = mayfly_adapters::slack::SCOPES.map(|(scope, _)| scope.to_owned());
        Kept {
            state: Mutex::new(State {
                told: Vec::new(),
                url: String::new(),
                socket_url: String::new(),
                channels: BTreeMap::new(),
                files: HashMap::new(),
                scopes: scopes.to_vec(),
                last: 0,
                tickets: BTreeSet::new(),
                link_disabled: false,
                waiting: VecDeque::new(),
                acknowledged: Vec::new(),
                took: Vec::new(),
                requests_to: None,
                minutes: 0,
                given_up: Vec::new(),
                sockets: 0,
                sockets_ever: 0,
                strangers: 0,
                mishaps: VecDeque::new(),
                forgetful: false,
                whispers: Vec::new(),
                statuses: Vec::new(),
                slow_shares: 0,
                no_shares: false,
                files_moved_to: None,
            }),
            news: Notify::new(),
            endings: broadcast::channel(64).0,
        }
    }
}

impl Kept {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl State {
    /// A number nobody had.
    pub(super) fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// The time of a message, which is its id.
    #[allow(clippy::disallowed_methods)]
    pub(super) fn ts(&mut self) -> String {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let seconds = now.map_or(0, |now| now.as_secs()) + 60 * self.minutes;
        format!("{seconds}.{:06}", self.next())
    }

    /// Puts an envelope in line.
    pub(super) fn tell(&mut self, kind: &'static str, key: String, payload: Value) {
        if self.forgetful && self.sockets == 0 {
            return;
        }
        let told = (format!("event.{kind}"), payload.clone());
        if self.told.len() < KEPT {
            self.told.push(told);
        }
        let id = format!("envelope-{}", self.next());
        self.waiting.push_back(Envelope {
            id,
            key,
            kind,
            payload,
            attempt: 0,
            minute: self.minutes,
        });
    }

    /// Tells of an event.
    pub(super) fn event(&mut self, event: Value) {
        let key = format!("Ev{}", self.next());
        let payload = json!({
            "token": "verification", "team_id": TEAM, "api_app_id": APP, "type": "event_callback",
            "event_id": key, "event_time": 1_700_000_000, "event": event,
            "authorizations": [{
                "enterprise_id": null, "team_id": TEAM, "user_id": BOT, "is_bot": true,
                "is_enterprise_install": false,
            }],
        });
        self.tell("events_api", key, payload);
    }

    /// A message as the API shows it.
    pub(super) fn shown(&self, message: &Message, metadata: bool) -> Value {
        let mut shown = json!({
            "type": "message", "user": message.user, "ts": message.ts, "text": message.text,
            "team": TEAM,
        });
        if message.user == BOT {
            shown["bot_id"] = json!("B0BOT");
            shown["app_id"] = json!(APP);
        }
        if !message.blocks.is_null() {
            shown["blocks"] = message.blocks.clone();
        }
        if let Some(root) = &message.root {
            shown["thread_ts"] = json!(root);
        }
        if metadata && !message.metadata.is_null() {
            shown["metadata"] = message.metadata.clone();
        }
        if !message.files.is_empty() {
            let files: Vec<Value> = message.files.iter().map(|id| self.file(id)).collect();
            shown["files"] = json!(files);
        }
        if !message.before.is_empty() {
            shown["edited"] = json!({"user": message.user, "ts": message.ts});
        }
        shown
    }

    /// A file as the API shows it.
    pub(super) fn file(&self, id: &str) -> Value {
        let Some(file) = self.files.get(id) else {
            return json!({"id": id, "mode": "tombstone"});
        };
        let mut shares = json!({});
        for (channel, root, ts) in &file.shares {
            let mut share = json!({"ts": ts, "channel_name": channel});
            if let Some(root) = root {
                share["thread_ts"] = json!(root);
            }
            shares["public"][channel] = json!([share]);
        }
        let address = format!("{}/files-pri/{TEAM}-{id}/download/{}", self.url, file.name);
        json!({
            "id": id, "name": file.name, "title": file.name, "mimetype": file.media_type,
            "filetype": "binary", "pretty_type": "Binary", "created": 1_700_000_000,
            "timestamp": 1_700_000_000, "user": "U1", "user_team": TEAM, "editable": false,
            "size": file.length, "mode": "hosted", "is_external": false, "external_type": "",
            "is_public": true, "public_url_shared": false, "display_as_bot": false, "username": "",
            "url_private": address, "url_private_download": address,
            "permalink": format!("https://team.slack.com/files/U1/{id}"), "shares": shares,
            "permalink_public": "https://slack-files.com/T1-F1-1", "is_starred": false,
            "has_rich_preview": false, "media_display_type": "unknown", "file_access": "visible",
        })
    }
}
