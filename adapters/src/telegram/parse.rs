//! What Telegram's updates say.
//!
//! Never fails: what cannot be read is ignored with a reason, and the raw bytes are kept elsewhere.

use mayfly_domain::{
    Author, Channel, Event, Happened, Place, PostId, Posted, Pressed, RemoteFile, ThreadKey,
};
use serde_json::Value;

use crate::json::{at, id, is, items, number, text};

/// Which bot we are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Me {
    /// Its id, the number before the colon of its token.
    pub id: String,
    /// Its user name, without `@`.
    pub username: String,
}

/// Notes of the platform itself, each a field of a message.
const SERVICE: [&str; 18] = [
    "new_chat_members",
    "left_chat_member",
    "new_chat_title",
    "new_chat_photo",
    "delete_chat_photo",
    "group_chat_created",
    "supergroup_chat_created",
    "channel_chat_created",
    "message_auto_delete_timer_changed",
    "pinned_message",
    "forum_topic_created",
    "forum_topic_edited",
    "forum_topic_closed",
    "forum_topic_reopened",
    "general_forum_topic_hidden",
    "general_forum_topic_unhidden",
    "video_chat_started",
    "video_chat_ended",
];

/// Understands one update.
pub fn parse(raw: &[u8], me: &Me) -> Event {
    let Ok(update) = serde_json::from_slice::<Value>(raw) else {
        return ignored("unreadable");
    };
    let happened = if let Some(message) = at(&update, &["message"]) {
        new(message, me)
    } else if let Some(message) = at(&update, &["edited_message"]) {
        posted(message, me).map(Happened::Edited)
    } else if let Some(query) = at(&update, &["callback_query"]) {
        press(query, me).ok_or("unreadable")
    } else if at(&update, &["update_id"]).is_some() {
        Err("unknown")
    } else {
        Err("unreadable")
    };
    match happened {
        Ok(happened) => Event {
            key: key(&happened, &update),
            happened,
        },
        Err(why) => ignored(why),
    }
}

fn ignored(why: &str) -> Event {
    Event {
        key: String::new(),
        happened: Happened::Ignored(why.to_owned()),
    }
}

/// Never the `update_id`: after a quiet week it may begin anew, lower.
fn key(happened: &Happened, update: &Value) -> String {
    match happened {
        Happened::Posted(posted) => {
            format!("posted {} {}", posted.id.channel.channel, posted.id.id)
        }
        Happened::Edited(posted) => {
            let at = number(update, &["edited_message", "edit_date"]).unwrap_or(0);
            format!("edited {} {} {at}", posted.id.channel.channel, posted.id.id)
        }
        Happened::Pressed(pressed) => format!("pressed {}", pressed.answer_to),
        Happened::Moved { from, to } => format!("moved {} {}", from.channel, to.channel),
        Happened::Deleted(_) | Happened::Ignored(_) => String::new(),
    }
}

fn channel(message: &Value, me: &Me) -> Option<Channel> {
    Some(of_chat(id(message, &["chat", "id"])?, me))
}

fn of_chat(chat: String, me: &Me) -> Channel {
    Channel {
        platform: "telegram".to_owned(),
        workspace: me.id.clone(),
        channel: chat,
    }
}

fn new(message: &Value, me: &Me) -> Result<Happened, &'static str> {
    let channel = channel(message, me).ok_or("unreadable")?;
    if let Some(to) = id(message, &["migrate_to_chat_id"]) {
        let to = of_chat(to, me);
        return Ok(Happened::Moved { from: channel, to });
    }
    if let Some(from) = id(message, &["migrate_from_chat_id"]) {
        let from = of_chat(from, me);
        return Ok(Happened::Moved { from, to: channel });
    }
    posted(message, me).map(Happened::Posted)
}

/// A topic has a thread of its own; plain replies in ordinary groups carry the same field and have
/// none. Sending to the general topic by its number is refused, so it has no number here.
fn thread(message: &Value, channel: &Channel) -> (bool, ThreadKey) {
    let topic = id(message, &["message_thread_id"])
        .filter(|topic| is(message, &["is_topic_message"]) && topic != "1");
    (topic.is_some(), channel.thread(topic.unwrap_or_default()))
}

fn posted(message: &Value, me: &Me) -> Result<Box<Posted>, &'static str> {
    let channel = channel(message, me).ok_or("unreadable")?;
    let number_of = id(message, &["message_id"]).ok_or("unreadable")?;
    if SERVICE.iter().any(|field| at(message, &[field]).is_some())
        || is(message, &["is_automatic_forward"])
    {
        return Err("system");
    }
    if id(message, &["via_bot", "id"]).as_deref() == Some(me.id.as_str()) {
        return Err("own");
    }
    if at(message, &["sender_chat"]).is_some() {
        return Err("anonymous");
    }
    let author = id(message, &["from", "id"]).ok_or("unreadable")?;
    if author == me.id {
        return Err("own");
    }
    let written = text(message, &["text"]).or_else(|| text(message, &["caption"]));
    let written = written.unwrap_or_default();
    let files = files(message);
    if written.trim().is_empty() && files.is_empty() {
        return Err("empty");
    }
    let direct = text(message, &["chat", "type"]) == Some("private");
    let (topic, thread) = thread(message, &channel);
    let answered = answered(message);
    let to_bot =
        answered.is_some_and(|to| id(to, &["from", "id"]).as_deref() == Some(me.id.as_str()));
    Ok(Box::new(Posted {
        id: PostId {
            channel,
            id: number_of,
        },
        thread,
        place: match (direct, topic) {
            (true, _) => Place::Direct,
            (false, true) => Place::Thread,
            (false, false) => Place::Channel,
        },
        author: person(message, &["from"]).unwrap_or_else(|| Author::local(&author)),
        by_bot: is(message, &["from", "is_bot"]),
        roles: Vec::new(),
        text: without_mention(written, me),
        to_us: direct || to_bot || named(message, written, me),
        files,
        twin: None,
        words_of: passed_on(message, &author),
        group: id(message, &["media_group_id"]),
        answers: answered.and_then(|to| id(to, &["message_id"])),
        at: number(message, &["date"]).unwrap_or(0).saturating_mul(1000),
    }))
}

/// Whoever wrote what somebody else forwards; people may hide their id there.
fn passed_on(message: &Value, author: &str) -> Option<Author> {
    let origin = at(message, &["forward_origin"])?;
    let known = person(origin, &["sender_user"]).or_else(|| {
        let chat = at(origin, &["sender_chat"]).or_else(|| at(origin, &["chat"]))?;
        let (id, name) = (
            id(chat, &["id"])?,
            text(chat, &["title"]).unwrap_or_default(),
        );
        Some(Author {
            name: if name.is_empty() {
                id.clone()
            } else {
                name.to_owned()
            },
            id,
        })
    });
    let hidden = || Author {
        id: "unknown".to_owned(),
        name: text(origin, &["sender_user_name"])
            .unwrap_or("unknown")
            .to_owned(),
    };
    Some(known.unwrap_or_else(hidden)).filter(|writer| writer.id != author)
}

/// Every message in a topic "answers" the note that made the topic: that is no answer.
fn answered(message: &Value) -> Option<&Value> {
    at(message, &["reply_to_message"]).filter(|to| at(to, &["forum_topic_created"]).is_none())
}

fn person(holder: &Value, path: &[&str]) -> Option<Author> {
    let user = at(holder, path)?;
    let id = id(user, &["id"])?;
    let first = text(user, &["first_name"]).unwrap_or_default();
    let last = text(user, &["last_name"]).unwrap_or_default();
    let name = format!("{first} {last}").trim().to_owned();
    let name = if name.is_empty() { id.clone() } else { name };
    Some(Author { id, name })
}

fn named(message: &Value, written: &str, me: &Me) -> bool {
    let entities = items(message, &["entities"]).chain(items(message, &["caption_entities"]));
    for entity in entities {
        let part = || {
            let (start, length) = (number(entity, &["offset"])?, number(entity, &["length"])?);
            utf16(written, start, length)
        };
        let ours = match text(entity, &["type"]) {
            Some("mention") => part().is_some_and(|part| is_name(&part, me)),
            Some("text_mention") => id(entity, &["user", "id"]).as_deref() == Some(me.id.as_str()),
            Some("bot_command") => part().is_some_and(|part| match part.split_once('@') {
                Some((_, name)) => name.eq_ignore_ascii_case(&me.username),
                None => true,
            }),
            _ => false,
        };
        if ours {
            return true;
        }
    }
    false
}

fn is_name(mention: &str, me: &Me) -> bool {
    mention
        .strip_prefix('@')
        .is_some_and(|name| name.eq_ignore_ascii_case(&me.username))
}

/// Telegram counts in UTF-16 units.
fn utf16(text: &str, start: i64, length: i64) -> Option<String> {
    let (start, length) = (usize::try_from(start).ok()?, usize::try_from(length).ok()?);
    let units: Vec<u16> = text.encode_utf16().skip(start).take(length).collect();
    (units.len() == length).then(|| String::from_utf16_lossy(&units))
}

/// `@bot do` is `do`; `/status@bot` is `/status`.
fn without_mention(written: &str, me: &Me) -> String {
    let written = written.trim_start();
    let (first, rest) = written
        .find(char::is_whitespace)
        .map_or((written, ""), |end| written.split_at(end));
    if is_name(first.trim_end_matches([',', ':']), me) {
        return rest.trim_start().to_owned();
    }
    match first.split_once('@') {
        Some((command, name))
            if command.starts_with('/') && name.eq_ignore_ascii_case(&me.username) =>
        {
            format!("{command}{rest}")
        }
        _ => written.to_owned(),
    }
}

fn files(message: &Value) -> Vec<RemoteFile> {
    let mut files = Vec::new();
    let largest = items(message, &["photo"]).max_by_key(|photo| {
        number(photo, &["width"])
            .unwrap_or(0)
            .saturating_mul(number(photo, &["height"]).unwrap_or(0))
    });
    files.extend(largest.and_then(|photo| file(photo, "photo.jpg")));
    for (field, name) in [
        ("document", "document"),
        ("video", "video.mp4"),
        ("audio", "audio.mp3"),
        ("voice", "voice.ogg"),
        ("video_note", "video.mp4"),
    ] {
        files.extend(at(message, &[field]).and_then(|found| file(found, name)));
    }
    files
}

fn file(file: &Value, name: &str) -> Option<RemoteFile> {
    Some(RemoteFile {
        id: id(file, &["file_id"])?,
        name: text(file, &["file_name"]).unwrap_or(name).to_owned(),
        size: number(file, &["file_size"]).and_then(|size| u64::try_from(size).ok()),
        media_type: text(file, &["mime_type"]).map(str::to_owned),
        url: None,
    })
}

fn press(query: &Value, me: &Me) -> Option<Happened> {
    let message = at(query, &["message"])?;
    let channel = channel(message, me)?;
    let (_, thread) = thread(message, &channel);
    Some(Happened::Pressed(Pressed {
        button: text(query, &["data"])?.to_owned(),
        on: PostId {
            channel,
            id: id(message, &["message_id"])?,
        },
        thread,
        by: person(query, &["from"])?,
        roles: Vec::new(),
        answer_to: id(query, &["id"])?,
    }))
}
