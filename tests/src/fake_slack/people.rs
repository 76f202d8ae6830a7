//! What people do in the channels, and what they see there: for tests.

use std::{net::SocketAddr, time::Duration};

use serde_json::{Value, json};

use super::{
    APP, BOT, FakeSlack, Mishap, TEAM,
    methods::seen,
    socket::Ending,
    state::{Channel, File, Message, State},
};

/// A message as people see it.
#[derive(Debug, Clone, PartialEq)]
pub struct Shown {
    /// Its time, which is its id.
    pub ts: String,
    /// Who wrote it.
    pub user: String,
    /// What the blocks say, or the text where there are none.
    pub text: String,
    /// The text beside the blocks.
    pub fallback: String,
    /// Buttons: what is written on them, what they carry.
    pub buttons: Vec<(String, String)>,
    /// Name and content of its files.
    pub files: Vec<(String, Vec<u8>)>,
    /// Reactions of the bot, in their alphabet.
    pub reactions: Vec<String>,
    /// What it said before, the oldest first.
    pub before: Vec<String>,
}

impl FakeSlack {
    /// A channel the bot is in, or a direct conversation where the id begins with `D`.
    pub fn channel(&self, id: &str) {
        let mut state = self.state.lock();
        state.channels.insert(id.to_owned(), Channel::default());
    }

    /// Somebody writes; returns the message's id. In a channel a mention of the bot is told twice.
    pub fn write(&self, channel: &str, user: &str, text: &str) -> String {
        self.write_with(channel, None, user, text, Vec::new(), false)
    }

    /// As [`FakeSlack::write`], in a thread.
    pub fn reply(&self, channel: &str, root: &str, user: &str, text: &str) -> String {
        self.write_with(channel, Some(root), user, text, Vec::new(), false)
    }

    /// As [`FakeSlack::write`], the mention's event last.
    pub fn write_mention_last(&self, channel: &str, user: &str, text: &str) -> String {
        self.write_with(channel, None, user, text, Vec::new(), true)
    }

    /// Somebody sends a file with a text.
    pub fn send_file(
        &self,
        channel: &str,
        root: Option<&str>,
        user: &str,
        text: &str,
        (name, media_type, content): (&str, &str, &[u8]),
    ) -> String {
        let mut state = self.state.lock();
        let id = format!("F{:08}", state.next());
        let file = File {
            name: name.to_owned(),
            media_type: media_type.to_owned(),
            length: content.len(),
            content: Some(content.to_vec()),
            complete: true,
            shares: Vec::new(),
        };
        state.files.insert(id.clone(), file);
        drop(state);
        self.write_with(channel, root, user, text, vec![id], false)
    }

    fn write_with(
        &self,
        channel: &str,
        root: Option<&str>,
        user: &str,
        text: &str,
        files: Vec<String>,
        mention_last: bool,
    ) -> String {
        let mut state = self.state.lock();
        let message = Message {
            ts: state.ts(),
            user: user.to_owned(),
            text: text.to_owned(),
            blocks: Value::Null,
            root: root.map(str::to_owned),
            metadata: Value::Null,
            files,
            before: Vec::new(),
            reactions: Default::default(),
        };
        let ts = message.ts.clone();
        let mut events = told(&state, channel, &message);
        if mention_last {
            events.reverse();
        }
        state.keep(channel, message);
        for event in events {
            state.event(event);
        }
        drop(state);
        self.state.news.notify_waiters();
        ts
    }

    /// Its author changes a message.
    pub fn edit(&self, channel: &str, ts: &str, text: &str) {
        self.change(channel, ts, |message| {
            message.before.push(message.text.clone());
            message.text = text.to_owned();
        });
    }

    /// Slack adds a preview of a link.
    pub fn preview(&self, channel: &str, ts: &str) {
        self.change(channel, ts, |_| {});
    }

    fn change(&self, channel: &str, ts: &str, change: impl FnOnce(&mut Message)) {
        let mut state = self.state.lock();
        let message = state.message(channel, ts);
        let old = message.clone();
        change(message);
        let new = message.clone();
        let (old, new) = (state.shown(&old, false), state.shown(&new, false));
        let event = json!({
            "type": "message", "subtype": "message_changed", "hidden": true, "channel": channel,
            "channel_type": "channel", "ts": state.ts(), "message": new, "previous_message": old,
        });
        state.event(event);
        drop(state);
        self.state.news.notify_waiters();
    }

    /// Somebody deletes a message, the bot's too.
    pub fn delete(&self, channel: &str, ts: &str) {
        let mut state = self.state.lock();
        let message = state.message(channel, ts).clone();
        let old = state.shown(&message, false);
        let kept = state.channels.get_mut(channel).expect("a known channel");
        kept.messages.remove(ts);
        let event = json!({
            "type": "message", "subtype": "message_deleted", "hidden": true, "channel": channel,
            "channel_type": "channel", "ts": state.ts(), "deleted_ts": ts, "previous_message": old,
        });
        state.event(event);
        drop(state);
        self.state.news.notify_waiters();
    }

    /// Somebody presses a button.
    pub fn press(&self, channel: &str, ts: &str, user: &str, button: &str) {
        let mut state = self.state.lock();
        let message = state.message(channel, ts).clone();
        let blocks = message.blocks.as_array().cloned().unwrap_or_default();
        let element = blocks
            .iter()
            .flat_map(|block| block["elements"].as_array().cloned().unwrap_or_default())
            .find(|element| element["text"]["text"] == button)
            .unwrap_or_else(|| panic!("no button {button} under {ts}"));
        let trigger = format!("1.2.{}", state.next());
        let payload = json!({
            "type": "block_actions", "team": {"id": TEAM, "domain": "fake"},
            "user": {"id": user, "username": user, "name": user, "team_id": TEAM},
            "api_app_id": APP, "token": "verification",
            "container": {"type": "message", "message_ts": ts, "channel_id": channel, "is_ephemeral": false},
            "trigger_id": trigger, "channel": {"id": channel, "name": channel},
            "message": state.shown(&message, false),
            "response_url": "https://hooks.slack.com/actions/T1/1/x",
            "actions": [{
                "action_id": element["action_id"], "block_id": "b", "value": element["value"],
                "type": "button", "text": element["text"], "action_ts": state.ts(),
            }],
        });
        state.tell("interactive", trigger, payload);
        drop(state);
        self.state.news.notify_waiters();
    }

    /// Somebody uses the slash command.
    pub fn command(&self, channel: &str, user: &str, text: &str) {
        let mut state = self.state.lock();
        let trigger = format!("398738663015.47445629121.{:032}", state.next());
        let payload = json!({
            "token": "verification", "team_id": TEAM, "team_domain": "fake", "channel_id": channel,
            "channel_name": channel, "user_id": user, "user_name": user, "command": "/mayfly",
            "text": text, "api_app_id": APP, "trigger_id": trigger,
            "response_url": "https://hooks.slack.com/commands/T1/1/x",
        });
        state.tell("slash_commands", trigger, payload);
        drop(state);
        self.state.news.notify_waiters();
    }

    /// Events, presses and commands that were told, each as `event.KIND`.
    pub fn told(&self) -> Vec<(String, Value)> {
        self.state.lock().told.clone()
    }

    /// An event as it is given.
    pub fn event(&self, event: Value) {
        self.state.lock().event(event);
        self.state.news.notify_waiters();
    }

    /// The address of the socket is told so from now on.
    pub fn tell_socket(&self, url: String) {
        self.state.lock().socket_url = url;
    }

    /// The channel is closed for all.
    pub fn archive(&self, channel: &str) {
        let mut state = self.state.lock();
        let channel = state.channels.get_mut(channel).expect("a known channel");
        channel.archived = true;
    }

    /// The channel is open again, and the bot in it.
    pub fn readmit(&self, channel: &str) {
        let mut state = self.state.lock();
        let channel = state.channels.get_mut(channel).expect("a known channel");
        (channel.archived, channel.left) = (false, false);
    }

    /// The bot is thrown out.
    pub fn kick(&self, channel: &str) {
        let mut state = self.state.lock();
        let channel = state.channels.get_mut(channel).expect("a known channel");
        channel.left = true;
    }

    /// The app lacks a scope.
    pub fn without_scope(&self, scope: &str) {
        self.state.lock().scopes.retain(|have| have != scope);
    }

    /// Somebody switches Socket Mode off.
    pub fn disable_link(&self) {
        self.state.lock().link_disabled = true;
        self.end_sockets(Ending::Told("link_disabled"));
    }

    /// All open sockets end so.
    pub fn end_sockets(&self, ending: Ending) {
        // Nobody listens where no socket is open.
        let _ = self.state.endings.send(ending);
    }

    /// The next envelopes go wrong so.
    pub fn mishaps(&self, mishaps: impl IntoIterator<Item = Mishap>) {
        self.state.lock().mishaps.extend(mishaps);
    }

    /// Events that come while no socket is open are lost.
    pub fn forget_while_deaf(&self) {
        self.state.lock().forgetful = true;
    }

    /// So many sockets of others are counted, too.
    pub fn strangers(&self, count: usize) {
        self.state.lock().strangers = count;
    }

    /// Where a file is shown is told after so many looks.
    pub fn slow_shares(&self, looks: usize) {
        self.state.lock().slow_shares = looks;
    }

    /// Where a file is shown is never told.
    pub fn hide_shares(&self) {
        self.state.lock().no_shares = true;
    }

    /// Downloads are answered with a redirect to there.
    pub fn redirect_files(&self, to: &str) {
        self.state.lock().files_moved_to = Some(to.to_owned());
    }

    /// The file that came last.
    pub fn newest_file(&self) -> String {
        let state = self.state.lock();
        state.files.keys().max().expect("there is a file").clone()
    }

    /// Where a file is fetched from.
    pub fn file_url(&self, id: &str) -> String {
        let state = self.state.lock();
        format!("{}/files-pri/{TEAM}-{id}/download/x", state.url)
    }

    /// Open sockets.
    pub fn sockets(&self) -> usize {
        self.state.lock().sockets
    }

    /// Sockets that were ever opened.
    pub fn sockets_ever(&self) -> usize {
        self.state.lock().sockets_ever
    }

    /// How many envelopes were acknowledged.
    pub fn acknowledged(&self) -> usize {
        self.state.lock().acknowledged.len()
    }

    /// How long each acknowledgement took, from the event's first sending.
    pub fn took(&self) -> Vec<Duration> {
        self.state.lock().took.clone()
    }

    /// From now on events go to `/hooks/slack` there as requests, as a proxy in front would pass them
    /// on. The first and second repetition of what was sent before are due.
    pub fn requests_to(&self, address: SocketAddr) {
        let mut state = self.state.lock();
        state.requests_to = Some(address);
        state.minutes += 1;
        drop(state);
        self.state.news.notify_waiters();
    }

    /// As far as repetitions and the dates of messages go, so much time passes.
    pub fn minutes_pass(&self, minutes: u64) {
        self.state.lock().minutes += minutes;
        self.state.news.notify_waiters();
    }

    /// Ids of events that were repeated in vain.
    pub fn given_up(&self) -> Vec<String> {
        self.state.lock().given_up.clone()
    }

    /// What the bot told a person alone: channel, user, text.
    pub fn whispers(&self) -> Vec<(String, String, String)> {
        self.state.lock().whispers.clone()
    }

    /// Signs of life: channel, thread, text.
    pub fn statuses(&self) -> Vec<(String, String, String)> {
        self.state.lock().statuses.clone()
    }

    /// What stands in a channel itself, or in a thread with its root.
    pub fn seen(&self, channel: &str, root: Option<&str>) -> Vec<Shown> {
        let state = self.state.lock();
        let messages = state.channels[channel].messages.values();
        let there = messages.filter(|message| match root {
            None => message.root.is_none(),
            Some(root) => message.root.as_deref() == Some(root) || message.ts == root,
        });
        there.map(|message| state.as_seen(message)).collect()
    }

    /// As [`FakeSlack::seen`], what the bot wrote.
    pub fn by_bot(&self, channel: &str, root: Option<&str>) -> Vec<Shown> {
        let seen = self.seen(channel, root).into_iter();
        seen.filter(|shown| shown.user == BOT).collect()
    }
}

/// The events of a new message.
fn told(state: &State, channel: &str, message: &Message) -> Vec<Value> {
    let direct = channel.starts_with('D');
    let mut event = state.shown(message, false);
    event["channel"] = json!(channel);
    event["event_ts"] = json!(message.ts);
    let mut mention = event.clone();
    event["channel_type"] = json!(if direct { "im" } else { "channel" });
    event["client_msg_id"] = json!(format!("client-{}", message.ts));
    if !message.files.is_empty() {
        event["subtype"] = json!("file_share");
        // The mention's event may lack them.
        if let Some(fields) = mention.as_object_mut() {
            fields.remove("files");
        }
    }
    let mentioned = !direct && message.text.contains(&format!("<@{BOT}>"));
    mention["type"] = json!("app_mention");
    match mentioned {
        true => vec![mention, event],
        false => vec![event],
    }
}

impl State {
    fn message(&mut self, channel: &str, ts: &str) -> &mut Message {
        let channel = self.channels.get_mut(channel).expect("a known channel");
        channel.messages.get_mut(ts).expect("a known message")
    }

    fn as_seen(&self, message: &Message) -> Shown {
        let blocks = message.blocks.as_array().cloned().unwrap_or_default();
        let buttons = blocks
            .iter()
            .flat_map(|block| block["elements"].as_array().cloned().unwrap_or_default())
            .filter(|element| element["type"] == "button")
            .map(|element| {
                let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                (word(&element["text"]["text"]), word(&element["value"]))
            });
        let files = message.files.iter().filter_map(|id| self.files.get(id));
        Shown {
            ts: message.ts.clone(),
            user: message.user.clone(),
            text: seen(&message.text, &message.blocks),
            fallback: message.text.clone(),
            buttons: buttons.collect(),
            files: files
                .map(|file| (file.name.clone(), file.content.clone().unwrap_or_default()))
                .collect(),
            reactions: message
                .reactions
                .iter()
                .map(|(name, _)| name.clone())
                .collect(),
            before: message.before.clone(),
        }
    }
}
