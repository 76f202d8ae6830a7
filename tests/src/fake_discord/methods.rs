//! The REST API.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use http_body_util::Full;
use hyper::{Response, body::Bytes};
use serde_json::{Value, json};

use super::{
    BOT, FakeDiscord, routes,
    rules::{self, Refusal},
    state::{Channel, File, GUILD, Message, State, TEXT, THREAD},
};
use crate::fake::{self, Answer, Call};

type Done = Result<Answer, Refusal>;

/// How long a nonce joins posts.
const JOINED: Duration = Duration::from_secs(180);
/// What a request may have in files.
const MOST: usize = 25 << 20;

fn unknown_channel() -> Refusal {
    Refusal::new(404, 10_003, "Unknown Channel")
}

fn unknown_message() -> Refusal {
    Refusal::new(404, 10_008, "Unknown Message")
}

fn archived() -> Refusal {
    Refusal::new(400, 50_083, "Thread is archived")
}

fn ok(body: &Value) -> Answer {
    fake::json(200, body.to_string())
}

fn nothing() -> Answer {
    let answer = Response::builder().status(204);
    answer.body(Full::new(Bytes::new())).expect("an answer")
}

impl FakeDiscord {
    pub(super) async fn method(&self, name: &str, call: &Call) -> Done {
        let path = call.uri().path().to_owned();
        let parts = routes::parts(&path);
        let number = |at: usize| {
            parts
                .get(at)
                .and_then(|part| part.parse().ok())
                .unwrap_or(0u64)
        };
        let (body, files) = read(call).await?;
        let query: HashMap<String, String> =
            form_urlencoded::parse(call.uri().query().unwrap_or_default().as_bytes())
                .into_owned()
                .collect();
        let mut state = self.kept.lock();
        let limited = matches!(name, "post" | "edit" | "react" | "unreact");
        let bucket = match limited {
            true => Some(rules::count(&mut state, format!("{name} {}", number(1)))?),
            false => None,
        };
        let mut answer = match name {
            "me" => ok(&state.user_json(BOT)),
            "application" => ok(&application(&state)),
            "gateway" => ok(&gateway(&state)),
            "commands" => {
                state.commands = body.clone();
                ok(&body)
            }
            "member" => ok(&state.member_json(number(3))),
            "channel" => {
                state.channels.get(&number(1)).ok_or_else(unknown_channel)?;
                ok(&state.channel_json(number(1)))
            }
            "wake" => change_channel(&mut state, number(1), &body)?,
            "post" => post(&mut state, number(1), &body, files)?,
            "messages" => messages(&state, number(1), &query)?,
            "message" => {
                here(&state, number(1), number(3))?;
                ok(&state.message_json(number(3)))
            }
            "edit" => edit(&mut state, number(1), number(3), &body)?,
            "delete" => delete(&mut state, number(1), number(3))?,
            "thread" => thread(&mut state, number(1), number(3), &body)?,
            "react" | "unreact" => react(
                &mut state,
                number(1),
                number(3),
                &unescaped(parts[5]),
                name == "react",
            )?,
            "typing" => {
                state.channels.get(&number(1)).ok_or_else(unknown_channel)?;
                state.typed.push(number(1));
                nothing()
            }
            "callback" => call_back(&mut state, number(1), parts[2], &body)?,
            "follow-up" => follow_up(&mut state, parts[2], &body)?,
            "original" => original(&mut state, parts[2], &body)?,
            _ => return Err(Refusal::new(404, 0, "404: Not Found")),
        };
        if let Some((left, reset)) = bucket {
            rules::headers(&mut answer, left, reset);
        }
        drop(state);
        self.kept.wake();
        Ok(answer)
    }

    /// `/cdn/attachments/CHANNEL/FILE/NAME?hm=SIGNATURE`. Whoever sends a token is refused: nobody
    /// else may see it.
    pub(super) fn download(&self, call: &Call) -> Answer {
        let path = call.uri().path();
        let id = path
            .split('/')
            .nth(4)
            .and_then(|id| id.parse::<u64>().ok())
            .unwrap_or(0);
        let query = call.uri().query().unwrap_or_default();
        let state = self.kept.lock();
        let plain = |status: u16, kind: &str, bytes: &[u8]| {
            let answer = Response::builder()
                .status(status)
                .header("content-type", kind);
            answer
                .body(Full::new(Bytes::copy_from_slice(bytes)))
                .expect("an answer")
        };
        if call.headers().contains_key("authorization") {
            return plain(400, "text/plain", b"a token went to the file host");
        }
        match state.files.get(&id) {
            Some(file) if query.ends_with(&format!("hm={}", file.signature)) => {
                plain(200, &file.kind, &file.bytes)
            }
            _ => plain(404, "text/plain", b"This content is no longer available."),
        }
    }
}

/// JSON, or parts with files.
async fn read(call: &Call) -> Result<(Value, Vec<(String, Vec<u8>)>), Refusal> {
    let kind = call
        .headers()
        .get("content-type")
        .and_then(|kind| kind.to_str().ok())
        .unwrap_or_default();
    let body = call.body().clone();
    let bad = |_| Refusal::form("not readable");
    let Ok(boundary) = multer::parse_boundary(kind) else {
        if body.is_empty() {
            return Ok((Value::Null, Vec::new()));
        }
        return Ok((
            serde_json::from_slice(&body).map_err(|_| {
                Refusal::new(400, 50_109, "The request body contains invalid JSON.")
            })?,
            Vec::new(),
        ));
    };
    let stream = futures_util::stream::once(async move { Ok::<_, std::io::Error>(body) });
    let mut parts = multer::Multipart::new(stream, boundary);
    let (mut fields, mut files) = (Value::Null, Vec::new());
    while let Some(part) = parts.next_field().await.map_err(bad)? {
        let name = part.name().unwrap_or_default().to_owned();
        let file = part.file_name().map(str::to_owned);
        let bytes = part.bytes().await.map_err(bad)?;
        match file {
            None if name == "payload_json" => {
                fields =
                    serde_json::from_slice(&bytes).map_err(|_| Refusal::form("payload_json"))?
            }
            Some(file) if name.starts_with("files[") => files.push((file, bytes.to_vec())),
            _ => return Err(Refusal::form("a part without a name")),
        }
    }
    if files.iter().map(|(_, bytes)| bytes.len()).sum::<usize>() > MOST {
        return Err(Refusal::new(413, 40_005, "Request entity too large"));
    }
    Ok((fields, files))
}

fn application(state: &State) -> Value {
    let flags = if state.content_granted { 1 << 19 } else { 0 };
    json!({
        "id": BOT.to_string(), "name": "mayfly", "icon": null, "description": "", "bot_public": false,
        "bot_require_code_grant": false, "flags": flags, "interactions_endpoint_url": null,
        "summary": "", "verify_key": "", "team": null,
    })
}

fn gateway(state: &State) -> Value {
    json!({
        "url": state.gateway_url, "shards": 1,
        "session_start_limit": {"total": 1000, "remaining": state.sessions_left, "reset_after": 14_400_000, "max_concurrency": 1},
    })
}

fn here(state: &State, channel: u64, message: u64) -> Result<(), Refusal> {
    state.channels.get(&channel).ok_or_else(unknown_channel)?;
    let found = state
        .messages
        .get(&message)
        .filter(|message| message.channel == channel);
    found.map(|_| ()).ok_or_else(unknown_message)
}

fn change_channel(state: &mut State, id: u64, body: &Value) -> Done {
    let channel = state.channels.get_mut(&id).ok_or_else(unknown_channel)?;
    if channel.locked {
        return Err(Refusal::new(403, 50_013, "Missing Permissions"));
    }
    if let Some(archived) = body["archived"].as_bool() {
        channel.archived = archived;
    }
    let json = state.channel_json(id);
    state.dispatch("THREAD_UPDATE", &json);
    Ok(ok(&json))
}

fn post(state: &mut State, channel: u64, body: &Value, files: Vec<(String, Vec<u8>)>) -> Done {
    let found = state
        .channels
        .get_mut(&channel)
        .ok_or_else(unknown_channel)?;
    if let Some(code) = found.denied {
        return Err(Refusal::new(403, code, "Missing something"));
    }
    if found.locked {
        return Err(archived());
    }
    rules::message(body, files.len())?;
    let nonce = rules::nonce(body)?;
    if let (Some(nonce), true) = (&nonce, body["enforce_nonce"] == json!(true))
        && let Some((id, at)) = state.nonces.get(nonce)
        && at.elapsed() < JOINED
    {
        let id = *id;
        state.messages.get(&id).ok_or_else(unknown_message)?;
        return Ok(ok(&state.message_answer(id)));
    }
    if let Some(channel) = state.channels.get_mut(&channel) {
        // Writing takes a thread out of the archive.
        channel.archived = false;
    }
    let answers = body["message_reference"]["message_id"]
        .as_str()
        .and_then(|id| id.parse().ok());
    if let Some(answers) = answers
        && state
            .messages
            .get(&answers)
            .is_none_or(|message| message.channel != channel)
        && body["message_reference"]["fail_if_not_exists"] != json!(false)
    {
        return Err(Refusal::form("message_reference: Unknown message"));
    }
    let mut ids = Vec::new();
    for (n, (name, bytes)) in files.into_iter().enumerate() {
        let id = state.id();
        let kind = if name.ends_with(".txt") {
            "text/plain; charset=utf-8"
        } else {
            "application/octet-stream"
        };
        let file = File {
            channel,
            name,
            kind: kind.to_owned(),
            description: body["attachments"][n]["description"]
                .as_str()
                .map(str::to_owned),
            bytes,
            signature: 1,
        };
        state.files.insert(id, file);
        ids.push(id);
    }
    let (id, stamp) = (state.id(), state.stamp());
    let message = Message {
        channel,
        author: BOT,
        kind: if answers.is_some() { 19 } else { 0 },
        content: body["content"]
            .as_str()
            .unwrap_or_default()
            .trim()
            .to_owned(),
        edits: Vec::new(),
        stamp,
        edited: None,
        components: body["components"]
            .as_array()
            .cloned()
            .unwrap_or_default()
            .into(),
        files: ids,
        reactions: Vec::new(),
        nonce: nonce.clone(),
        answers,
        pinged: rules::pings(body),
    };
    state.messages.insert(id, message);
    if let Some(nonce) = nonce {
        state.nonces.insert(nonce, (id, Instant::now()));
    }
    let event = state.message_event(id);
    state.dispatch("MESSAGE_CREATE", &event);
    Ok(ok(&state.message_answer(id)))
}

fn messages(state: &State, channel: u64, query: &HashMap<String, String>) -> Done {
    state.channels.get(&channel).ok_or_else(unknown_channel)?;
    let of = |name: &str| query.get(name).and_then(|value| value.parse::<u64>().ok());
    let limit = usize::try_from(of("limit").unwrap_or(50)).unwrap_or(50);
    if !(1..=100).contains(&limit) {
        return Err(Refusal::form("limit: between 1 and 100"));
    }
    let all = state
        .messages
        .iter()
        .filter(|(_, message)| message.channel == channel)
        .map(|(id, _)| *id);
    let mut page: Vec<u64> = if let Some(after) = of("after") {
        all.filter(|id| *id > after).take(limit).collect()
    } else if let Some(around) = of("around") {
        let mut near: Vec<u64> = all.collect();
        near.sort_by_key(|id| id.abs_diff(around));
        near.truncate(limit);
        near
    } else {
        let mut last: Vec<u64> = all.collect();
        last.drain(..last.len().saturating_sub(limit));
        last
    };
    page.sort_by_key(|id| std::cmp::Reverse(*id));
    let page: Vec<Value> = page.into_iter().map(|id| state.message_json(id)).collect();
    Ok(ok(&Value::Array(page)))
}

fn edit(state: &mut State, channel: u64, id: u64, body: &Value) -> Done {
    here(state, channel, id)?;
    if state.channels[&channel].archived || state.channels[&channel].locked {
        return Err(archived());
    }
    let files = state.messages[&id].files.len();
    rules::message(body, files)?;
    let stamp = state.stamp();
    let message = state.messages.get_mut(&id).expect("it is there");
    if message.author != BOT {
        return Err(Refusal::new(
            403,
            50_005,
            "Cannot edit a message authored by another user",
        ));
    }
    if let Some(content) = body["content"].as_str() {
        let before = std::mem::replace(&mut message.content, content.trim().to_owned());
        message.edits.push(before);
    }
    if let Some(components) = body["components"].as_array() {
        message.components = components.clone().into();
    }
    message.pinged |= rules::pings(body);
    message.edited = Some(stamp);
    let event = state.message_event(id);
    state.dispatch("MESSAGE_UPDATE", &event);
    Ok(ok(&state.message_json(id)))
}

fn delete(state: &mut State, channel: u64, id: u64) -> Done {
    here(state, channel, id)?;
    if state.channels[&channel].archived {
        return Err(archived());
    }
    state.remove(id);
    Ok(nothing())
}

impl State {
    /// A message is gone, and everybody is told.
    pub(super) fn remove(&mut self, id: u64) {
        let Some(message) = self.messages.remove(&id) else {
            return;
        };
        let mut event = json!({"id": id.to_string(), "channel_id": message.channel.to_string()});
        if let Some(guild) = self.guild_of(message.channel) {
            event["guild_id"] = json!(guild.to_string());
        }
        self.dispatch("MESSAGE_DELETE", &event);
    }

    pub(super) fn open(&mut self, parent: u64, message: u64, name: &str) {
        let channel = Channel {
            kind: THREAD,
            parent: Some(parent),
            name: name.to_owned(),
            archived: false,
            locked: false,
            denied: None,
        };
        self.channels.insert(message, channel);
        let mut json = self.channel_json(message);
        json["newly_created"] = json!(true);
        self.dispatch("THREAD_CREATE", &json);
        let (id, stamp) = (self.id(), self.stamp());
        let starter = Message {
            channel: message,
            author: BOT,
            kind: 21,
            content: String::new(),
            edits: Vec::new(),
            stamp,
            edited: None,
            components: json!([]),
            files: Vec::new(),
            reactions: Vec::new(),
            nonce: None,
            answers: None,
            pinged: false,
        };
        self.messages.insert(id, starter);
        let event = self.message_event(id);
        self.dispatch("MESSAGE_CREATE", &event);
    }
}

fn thread(state: &mut State, channel: u64, message: u64, body: &Value) -> Done {
    here(state, channel, message)?;
    if state.channels[&channel].kind != TEXT {
        return Err(Refusal::new(
            400,
            50_024,
            "Cannot execute action on this channel type",
        ));
    }
    if let Some(code) = state.channels[&channel].denied {
        return Err(Refusal::new(403, code, "Missing something"));
    }
    if state.channels.contains_key(&message) {
        return Err(Refusal::new(
            400,
            160_004,
            "A thread has already been created for this message",
        ));
    }
    let name = body["name"].as_str().unwrap_or_default();
    if !(1..=100).contains(&name.trim().chars().count()) {
        return Err(Refusal::form("name: Must be between 1 and 100 in length."));
    }
    let duration = body["auto_archive_duration"].as_i64();
    if duration.is_some_and(|duration| ![60, 1440, 4320, 10_080].contains(&duration)) {
        return Err(Refusal::form("auto_archive_duration"));
    }
    state.open(channel, message, name.trim());
    Ok(fake::json(201, state.channel_json(message).to_string()))
}

fn react(state: &mut State, channel: u64, id: u64, emoji: &str, add: bool) -> Done {
    here(state, channel, id)?;
    if state.channels[&channel].archived {
        return Err(archived());
    }
    let message = state.messages.get_mut(&id).expect("it is there");
    message
        .reactions
        .retain(|(found, by)| !(found == emoji && *by == BOT));
    if add {
        message.reactions.push((emoji.to_owned(), BOT));
    }
    Ok(nothing())
}

fn unescaped(part: &str) -> String {
    let pair = format!("x={part}");
    let mut pairs = form_urlencoded::parse(pair.as_bytes());
    pairs
        .next()
        .map(|(_, value)| value.into_owned())
        .unwrap_or_default()
}

fn call_back(state: &mut State, id: u64, token: &str, body: &Value) -> Done {
    let within = state.callback_within;
    let interaction = state
        .interactions
        .get_mut(&id)
        .filter(|found| found.token == token);
    let interaction =
        interaction.ok_or_else(|| Refusal::new(404, 10_062, "Unknown interaction"))?;
    if interaction.acknowledged.is_some() {
        return Err(Refusal::new(
            400,
            40_060,
            "Interaction has already been acknowledged.",
        ));
    }
    if interaction.born.elapsed() > within {
        return Err(Refusal::new(404, 10_062, "Unknown interaction"));
    }
    let kind = body["type"].as_i64().filter(|kind| (4..=9).contains(kind));
    interaction.acknowledged = Some(kind.ok_or_else(|| Refusal::form("type"))?);
    interaction.took = Some(interaction.born.elapsed());
    if kind == Some(4) {
        let said = body["data"]["content"].as_str().unwrap_or_default();
        interaction.said.push(said.to_owned());
    }
    Ok(nothing())
}

fn webhook<'a>(
    state: &'a mut State,
    token: &str,
) -> Result<&'a mut super::state::Interaction, Refusal> {
    let found = state
        .interactions
        .values_mut()
        .find(|found| found.token == token);
    found
        .filter(|found| found.acknowledged.is_some())
        .ok_or_else(|| Refusal::new(404, 10_015, "Unknown Webhook"))
}

fn follow_up(state: &mut State, token: &str, body: &Value) -> Done {
    rules::message(body, 0)?;
    if body["flags"] != json!(64) {
        return Err(Refusal::form(
            "flags: only the person who pressed is to see it",
        ));
    }
    let said = body["content"].as_str().unwrap_or_default().to_owned();
    webhook(state, token)?.said.push(said);
    let id = state.id();
    Ok(ok(&whisper(state, id, body)))
}

/// What only the person sees who pressed.
fn whisper(state: &State, id: u64, body: &Value) -> Value {
    json!({
        "id": id.to_string(), "channel_id": GUILD.to_string(), "type": 0, "author": state.user_json(BOT),
        "content": body["content"], "timestamp": "2026-11-30T10:00:00.000000+00:00", "edited_timestamp": null,
        "tts": false, "mention_everyone": false, "mentions": [], "mention_roles": [], "attachments": [],
        "embeds": [], "components": [], "pinned": false, "flags": 64,
    })
}

fn original(state: &mut State, token: &str, body: &Value) -> Done {
    rules::message(body, 0)?;
    let said = body["content"].as_str().unwrap_or_default().to_owned();
    let interaction = webhook(state, token)?;
    if interaction.acknowledged != Some(5) {
        return Err(unknown_message());
    }
    interaction.said.push(said);
    Ok(ok(&whisper(state, 1, body)))
}
