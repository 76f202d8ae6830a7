//! The methods, with the rules each has.

use serde_json::{Value, json};

use super::{
    APP, APP_TOKEN, BOT, BOT_TOKEN, FakeSlack, Refusal, TEAM,
    args::Args,
    state::{Channel, File, Message, State},
};

/// Slack splits a longer text into several messages.
const MAX_TEXT: usize = 4040;
/// All markdown blocks of a message.
const MAX_MARKDOWN: usize = 12_000;
/// A section's text.
const MAX_SECTION: usize = 3000;
/// Most blocks.
const MAX_BLOCKS: usize = 50;
/// A button's label and value.
const MAX_LABEL: usize = 75;

type Done = Result<Value, Refusal>;

/// The scopes a method needs, one of which is enough.
fn needed(method: &str) -> &'static [&'static str] {
    match method {
        "chat.postMessage"
        | "chat.update"
        | "chat.delete"
        | "chat.postEphemeral"
        | "assistant.threads.setStatus" => &["chat:write"],
        "conversations.replies" | "conversations.history" => &["channels:history"],
        "reactions.add" | "reactions.remove" => &["reactions:write"],
        "files.getUploadURLExternal" | "files.completeUploadExternal" | "files.delete" => {
            &["files:write"]
        }
        "files.info" => &["files:read"],
        "users.info" | "bots.info" => &["users:read"],
        _ => &[],
    }
}

impl FakeSlack {
    pub(super) fn method(&self, state: &mut State, method: &str, args: &Args) -> Done {
        let wanted = match method {
            "apps.connections.open" => APP_TOKEN,
            _ => BOT_TOKEN,
        };
        match args.token.as_deref() {
            None => return Err("not_authed".into()),
            Some(token) if token == wanted => {}
            Some(BOT_TOKEN | APP_TOKEN) => return Err("not_allowed_token_type".into()),
            Some(_) => return Err("invalid_auth".into()),
        }
        let needed = needed(method);
        if !needed.is_empty()
            && !needed
                .iter()
                .any(|scope| state.scopes.iter().any(|s| s == scope))
        {
            return Err(Refusal {
                error: "missing_scope",
                more: json!({"needed": needed[0], "provided": state.scopes.join(",")}),
            });
        }
        match method {
            "api.test" => Ok(json!({})),
            "auth.test" => Ok(json!({
                "url": "https://fake.slack.com/", "team": "Fake", "user": "mayfly",
                "team_id": TEAM, "user_id": BOT, "bot_id": "B0BOT", "is_enterprise_install": false,
            })),
            "bots.info" => {
                Ok(json!({"bot": {"id": "B0BOT", "app_id": APP, "user_id": BOT, "name": "mayfly"}}))
            }
            "users.info" => {
                let id = args.text("user").ok_or("user_not_found")?;
                Ok(json!({"user": {"id": id, "name": id, "profile": {"display_name": id}}}))
            }
            "apps.connections.open" => {
                let ticket = format!("ticket-{}", state.next());
                let url = format!("{}/link/?ticket={ticket}", state.socket_url);
                state.tickets.insert(ticket);
                Ok(json!({"url": url}))
            }
            "chat.postMessage" => state.post(args),
            "chat.update" => state.update(args),
            "chat.delete" => state.delete(args),
            "chat.postEphemeral" => state.whisper(args),
            "chat.getPermalink" => {
                let (channel, ts) = state.found(args, "message_ts")?;
                let link = format!(
                    "https://fake.slack.com/archives/{channel}/p{}",
                    ts.replace('.', "")
                );
                Ok(json!({"channel": channel, "permalink": link}))
            }
            "conversations.replies" => state.replies(args),
            "conversations.history" => state.history(args),
            "reactions.add" => state.react(args, true),
            "reactions.remove" => state.react(args, false),
            "assistant.threads.setStatus" => {
                let channel = args.text("channel_id").ok_or("channel_not_found")?;
                let root = args.text("thread_ts").ok_or("invalid_thread_ts")?;
                state.open_channel(&channel)?;
                let status = args.text("status").unwrap_or_default();
                state.statuses.push((channel, root, status));
                Ok(json!({}))
            }
            "files.getUploadURLExternal" => state.upload_place(args),
            "files.completeUploadExternal" => state.complete(args),
            "files.info" => state.file_info(args),
            "files.delete" => {
                let id = args.text("file").ok_or("file_not_found")?;
                let file = state.files.remove(&id).ok_or("file_not_found")?;
                for (channel, _, ts) in file.shares {
                    if let Some(channel) = state.channels.get_mut(&channel) {
                        channel.messages.remove(&ts);
                    }
                }
                Ok(json!({}))
            }
            _ => Err("unknown_method".into()),
        }
    }
}

fn many(text: &str) -> usize {
    text.chars().count()
}

/// What blocks may not be.
fn check_blocks(blocks: &Value) -> Result<(), Refusal> {
    let Some(blocks) = blocks.as_array() else {
        return Err("invalid_blocks_format".into());
    };
    let text = |value: &Value| many(value.as_str().unwrap_or_default());
    let mut markdown = 0;
    for block in blocks {
        let fits = match block["type"].as_str() {
            Some("markdown") => {
                markdown += text(&block["text"]);
                text(&block["text"]) > 0
            }
            Some("section") => (1..=MAX_SECTION).contains(&text(&block["text"]["text"])),
            Some("actions") => {
                let elements = block["elements"].as_array().map_or(&[][..], Vec::as_slice);
                (1..=25).contains(&elements.len())
                    && elements.iter().all(|element| {
                        (1..=MAX_LABEL).contains(&text(&element["text"]["text"]))
                            && (1..=255).contains(&text(&element["action_id"]))
                            && text(&element["value"]) <= 2000
                    })
            }
            Some("divider" | "rich_text" | "context" | "header") => true,
            _ => false,
        };
        if !fits {
            return Err("invalid_blocks".into());
        }
    }
    if blocks.len() > MAX_BLOCKS {
        return Err("invalid_blocks".into());
    }
    if markdown > MAX_MARKDOWN {
        return Err("msg_too_long".into());
    }
    Ok(())
}

impl State {
    /// A channel the bot may write in.
    fn open_channel(&mut self, id: &str) -> Result<&mut Channel, Refusal> {
        let channel = self.channels.get_mut(id).ok_or("channel_not_found")?;
        if channel.archived {
            return Err("is_archived".into());
        }
        if channel.left {
            return Err("not_in_channel".into());
        }
        Ok(channel)
    }

    /// Channel and id of a message that is there.
    fn found(&mut self, args: &Args, name: &str) -> Result<(String, String), Refusal> {
        let id = args.text("channel").ok_or("channel_not_found")?;
        let channel = self.channels.get(&id).ok_or("channel_not_found")?;
        let ts = args.text(name).unwrap_or_default();
        match channel.messages.contains_key(&ts) {
            true => Ok((id, ts)),
            false => Err("message_not_found".into()),
        }
    }

    fn said(args: &Args) -> Result<(String, Value), Refusal> {
        let text = args.text("text").unwrap_or_default();
        let blocks = args.value("blocks").filter(|blocks| *blocks != json!([]));
        let blocks = blocks.unwrap_or(Value::Null);
        if !blocks.is_null() {
            check_blocks(&blocks)?;
        }
        match text.is_empty() && blocks.is_null() {
            true => Err("no_text".into()),
            false => Ok((text, blocks)),
        }
    }

    fn post(&mut self, args: &Args) -> Done {
        let id = args.text("channel").ok_or("channel_not_found")?;
        let channel = self.open_channel(&id)?;
        let root = args.text("thread_ts");
        if let Some(root) = &root {
            let found = channel.messages.get(root).ok_or("thread_not_found")?;
            if found.root.is_some() {
                return Err("thread_not_found".into());
            }
        }
        let (text, blocks) = State::said(args)?;
        let metadata = args.value("metadata").unwrap_or(Value::Null);
        let letters: Vec<char> = text.chars().collect();
        let mut pieces: Vec<String> = match blocks.is_null() {
            true => letters
                .chunks(MAX_TEXT)
                .map(|piece| piece.iter().collect())
                .collect(),
            false => vec![text],
        };
        let first = pieces.remove(0);
        let message = self.place(&id, BOT, first, blocks, root.clone(), metadata);
        for piece in pieces {
            self.place(&id, BOT, piece, Value::Null, root.clone(), Value::Null);
        }
        Ok(json!({"channel": id, "ts": message.ts, "message": self.shown(&message, true)}))
    }

    /// Makes a message and tells of it.
    pub(super) fn place(
        &mut self,
        channel: &str,
        user: &str,
        text: String,
        blocks: Value,
        root: Option<String>,
        metadata: Value,
    ) -> Message {
        let message = Message {
            ts: self.ts(),
            user: user.to_owned(),
            text,
            blocks,
            root,
            metadata,
            files: Vec::new(),
            before: Vec::new(),
            reactions: Default::default(),
        };
        self.keep(channel, message.clone());
        message
    }

    /// Puts a message of the bot or a person where people see it.
    pub(super) fn keep(&mut self, channel: &str, message: Message) {
        if message.user == BOT {
            let mut event = self.shown(&message, false);
            event["channel"] = json!(channel);
            event["event_ts"] = json!(message.ts);
            event["channel_type"] = json!(if channel.starts_with('D') {
                "im"
            } else {
                "channel"
            });
            self.event(event);
        }
        if let Some(channel) = self.channels.get_mut(channel) {
            channel.messages.insert(message.ts.clone(), message);
        }
    }

    fn update(&mut self, args: &Args) -> Done {
        let (id, ts) = self.found(args, "ts")?;
        self.open_channel(&id)?;
        let (text, blocks) = State::said(args)?;
        if many(&text) > MAX_TEXT && blocks.is_null() {
            return Err("msg_too_long".into());
        }
        let channel = self.open_channel(&id)?;
        let message = channel.messages.get_mut(&ts).ok_or("message_not_found")?;
        if message.user != BOT {
            return Err("cant_update_message".into());
        }
        let before =
            json!({"type": "message", "text": message.text, "ts": ts, "user": BOT, "team": TEAM});
        message.before.push(seen(&message.text, &message.blocks));
        message.text = text;
        // Without blocks the old ones go.
        message.blocks = blocks;
        let message = message.clone();
        let shown = self.shown(&message, false);
        let at = self.ts();
        let told = json!({
            "type": "message", "subtype": "message_changed", "hidden": true, "channel": id,
            "channel_type": "channel", "ts": at, "event_ts": at, "message": shown, "previous_message": before,
        });
        self.event(told);
        Ok(json!({"channel": id, "ts": ts, "text": message.text}))
    }

    fn delete(&mut self, args: &Args) -> Done {
        let (id, ts) = self.found(args, "ts")?;
        let channel = self.open_channel(&id)?;
        match channel.messages.get(&ts) {
            Some(message) if message.user == BOT => {
                channel.messages.remove(&ts);
                Ok(json!({"channel": id, "ts": ts}))
            }
            _ => Err("cant_delete_message".into()),
        }
    }

    fn whisper(&mut self, args: &Args) -> Done {
        let id = args.text("channel").ok_or("channel_not_found")?;
        self.open_channel(&id)?;
        let user = args.text("user").ok_or("user_not_in_channel")?;
        let (text, _) = State::said(args)?;
        self.whispers.push((id, user, text));
        Ok(json!({"message_ts": self.ts()}))
    }

    /// Messages of a page, oldest first, and where the next one begins.
    fn page(&self, all: Vec<&Message>, args: &Args) -> Value {
        let limit: usize = args
            .text("limit")
            .and_then(|n| n.parse().ok())
            .unwrap_or(100);
        let from: usize = args
            .text("cursor")
            .and_then(|n| n.parse().ok())
            .unwrap_or(0);
        let to = (from + limit).min(all.len());
        let metadata = args.is("include_all_metadata");
        let messages: Vec<Value> = all[from.min(to)..to]
            .iter()
            .map(|message| self.shown(message, metadata))
            .collect();
        let more = to < all.len();
        let next = if more { to.to_string() } else { String::new() };
        json!({"messages": messages, "has_more": more, "response_metadata": {"next_cursor": next}})
    }

    fn replies(&mut self, args: &Args) -> Done {
        let id = args.text("channel").ok_or("channel_not_found")?;
        let root = args.text("ts").ok_or("thread_not_found")?;
        let channel = self.channels.get(&id).ok_or("channel_not_found")?;
        if channel.left {
            return Err("not_in_channel".into());
        }
        if !channel.messages.contains_key(&root) {
            return Err("thread_not_found".into());
        }
        let all = channel.messages.values().filter(|message| {
            message.ts == root || (message.root.as_ref() == Some(&root) && between(message, args))
        });
        Ok(self.page(all.collect(), args))
    }

    fn history(&mut self, args: &Args) -> Done {
        let id = args.text("channel").ok_or("channel_not_found")?;
        let channel = self.channels.get(&id).ok_or("channel_not_found")?;
        if channel.left {
            return Err("not_in_channel".into());
        }
        let all = channel.messages.values().rev();
        let all = all.filter(|message| message.root.is_none() && between(message, args));
        Ok(self.page(all.collect(), args))
    }

    fn react(&mut self, args: &Args, add: bool) -> Done {
        let (id, ts) = self.found(args, "timestamp")?;
        let name = args.text("name").ok_or("invalid_name")?;
        let channel = self.open_channel(&id)?;
        let message = channel.messages.get_mut(&ts).ok_or("message_not_found")?;
        let mark = (name, BOT.to_owned());
        match (add, message.reactions.contains(&mark)) {
            (true, true) => Err("already_reacted".into()),
            (false, false) => Err("no_reaction".into()),
            (true, false) => {
                message.reactions.insert(mark);
                Ok(json!({}))
            }
            (false, true) => {
                message.reactions.remove(&mark);
                Ok(json!({}))
            }
        }
    }

    fn upload_place(&mut self, args: &Args) -> Done {
        let name = args.text("filename").ok_or("invalid_arguments")?;
        let length: usize = args
            .text("length")
            .and_then(|n| n.parse().ok())
            .unwrap_or(0);
        if length == 0 {
            return Err("invalid_arguments".into());
        }
        let id = format!("F{:08}", self.next());
        let file = File {
            name,
            media_type: "text/plain".to_owned(),
            length,
            content: None,
            complete: false,
            shares: Vec::new(),
        };
        self.files.insert(id.clone(), file);
        Ok(json!({"upload_url": format!("{}/upload/{id}", self.url), "file_id": id}))
    }

    /// One message for all files; the answer does not say which.
    fn complete(&mut self, args: &Args) -> Done {
        let files = args.value("files").unwrap_or_default();
        let ids: Vec<String> = files
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|file| Some(file["id"].as_str()?.to_owned()))
            .collect();
        let known = ids.iter().all(|id| {
            let file = self.files.get(id);
            file.is_some_and(|file| file.content.is_some())
        });
        if ids.is_empty() || !known {
            return Err("file_not_found".into());
        }
        let channel = args.text("channel_id").or_else(|| args.text("channels"));
        let root = args.text("thread_ts");
        if let Some(id) = channel {
            let channel = self.open_channel(&id)?;
            if root
                .as_ref()
                .is_some_and(|root| !channel.messages.contains_key(root))
            {
                return Err("thread_not_found".into());
            }
            let text = args.text("initial_comment").unwrap_or_default();
            let mut message = self.place(&id, BOT, text, Value::Null, root.clone(), Value::Null);
            message.files = ids.clone();
            for file in &ids {
                let file = self.files.get_mut(file).ok_or("file_not_found")?;
                file.shares
                    .push((id.clone(), root.clone(), message.ts.clone()));
            }
            self.keep(&id, message);
        }
        for id in &ids {
            self.files.get_mut(id).ok_or("file_not_found")?.complete = true;
        }
        let files: Vec<Value> = ids
            .iter()
            .map(|id| json!({"id": id, "shares": {}}))
            .collect();
        Ok(json!({"files": files}))
    }

    fn file_info(&mut self, args: &Args) -> Done {
        let id = args.text("file").ok_or("file_not_found")?;
        self.files
            .get(&id)
            .filter(|file| file.complete)
            .ok_or("file_not_found")?;
        let mut shown = self.file(&id);
        if self.no_shares || self.slow_shares > 0 {
            self.slow_shares = self.slow_shares.saturating_sub(1);
            shown["shares"] = json!({});
        }
        Ok(json!({"file": shown}))
    }
}

/// Whether it lies in the time that is asked for.
fn between(message: &Message, args: &Args) -> bool {
    let after = args.text("oldest").is_none_or(|oldest| message.ts > oldest);
    after && args.text("latest").is_none_or(|latest| message.ts < latest)
}

/// What people see of a message's text: the blocks, where there are any.
pub(super) fn seen(text: &str, blocks: &Value) -> String {
    let Some(blocks) = blocks.as_array() else {
        return text.to_owned();
    };
    let texts = blocks
        .iter()
        .filter_map(|block| match block["type"].as_str() {
            Some("markdown") => block["text"].as_str(),
            Some("section") => block["text"]["text"].as_str(),
            _ => None,
        });
    texts.collect::<Vec<_>>().join("\n")
}
