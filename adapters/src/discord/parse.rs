//! What Discord's gateway frames say.
//!
//! Never fails: what cannot be read is ignored with a reason, and the raw bytes are kept elsewhere.

use mayfly_domain::{Author, Channel, Event, Happened, Place, PostId, Posted, Pressed, RemoteFile};
use serde_json::Value;

use crate::json::{at, id, is, items, number, text};

/// Messages that people write: ordinary ones and replies.
const WRITTEN: [i64; 2] = [0, 19];

/// What has to be known to understand a frame.
pub struct Known<'a> {
    /// Our user id.
    pub me: &'a str,
    /// The channel a thread belongs to; none for what is no thread. (A message says only the
    /// thread's own id.)
    pub parent: &'a dyn Fn(&str) -> Option<String>,
}

/// Understands one frame.
pub fn parse(raw: &[u8], known: &Known<'_>) -> Event {
    let Ok(frame) = serde_json::from_slice::<Value>(raw) else {
        return ignored("unreadable");
    };
    if number(&frame, &["op"]) != Some(0) {
        let why = if at(&frame, &["op"]).is_some() {
            "protocol"
        } else {
            "unreadable"
        };
        return ignored(why);
    }
    let data = at(&frame, &["d"]).unwrap_or(&Value::Null);
    let happened = match text(&frame, &["t"]) {
        Some("MESSAGE_CREATE") => posted(data, known).map(Happened::Posted),
        Some("MESSAGE_UPDATE") => edited(data, known),
        Some("MESSAGE_DELETE") => deleted(data),
        Some("INTERACTION_CREATE") => interaction(data, known),
        Some("READY" | "RESUMED") => Err("protocol"),
        Some(
            "GUILD_CREATE"
            | "GUILD_DELETE"
            | "GUILD_UPDATE"
            | "CHANNEL_CREATE"
            | "CHANNEL_UPDATE"
            | "CHANNEL_DELETE"
            | "THREAD_CREATE"
            | "THREAD_UPDATE"
            | "THREAD_DELETE"
            | "THREAD_LIST_SYNC"
            | "THREAD_MEMBER_UPDATE"
            | "THREAD_MEMBERS_UPDATE"
            | "TYPING_START"
            | "MESSAGE_REACTION_ADD"
            | "MESSAGE_REACTION_REMOVE",
        ) => Err("system"),
        _ => Err("unknown"),
    };
    match happened {
        Ok(happened) => Event {
            key: key(&happened, data),
            happened,
        },
        Err(why) => ignored(why),
    }
}

/// The posts that a `MESSAGE_DELETE_BULK` takes away, each as an event of its own; none for others.
pub fn deleted_in_bulk(raw: &[u8]) -> Vec<Event> {
    let Ok(frame) = serde_json::from_slice::<Value>(raw) else {
        return Vec::new();
    };
    if text(&frame, &["t"]) != Some("MESSAGE_DELETE_BULK") {
        return Vec::new();
    }
    let Some(channel) = at(&frame, &["d"]).and_then(channel) else {
        return Vec::new();
    };
    items(&frame, &["d", "ids"])
        .filter_map(Value::as_str)
        .map(|id| Event {
            key: format!("deleted {id}"),
            happened: Happened::Deleted(PostId {
                channel: channel.clone(),
                id: id.to_owned(),
            }),
        })
        .collect()
}

fn ignored(why: &str) -> Event {
    Event {
        key: String::new(),
        happened: Happened::Ignored(why.to_owned()),
    }
}

fn key(happened: &Happened, data: &Value) -> String {
    match happened {
        Happened::Posted(posted) => format!("posted {}", posted.id.id),
        Happened::Edited(posted) => {
            let at = text(data, &["edited_timestamp"]).unwrap_or_default();
            format!("edited {} {at}", posted.id.id)
        }
        Happened::Deleted(post) => format!("deleted {}", post.id),
        Happened::Pressed(_) => format!("pressed {}", id(data, &["id"]).unwrap_or_default()),
        Happened::Moved { .. } | Happened::Ignored(_) => String::new(),
    }
}

fn channel(data: &Value) -> Option<Channel> {
    Some(Channel {
        platform: "discord".to_owned(),
        workspace: id(data, &["guild_id"]).unwrap_or_default(),
        channel: id(data, &["channel_id"])?,
    })
}

fn deleted(data: &Value) -> Result<Happened, &'static str> {
    let channel = channel(data).ok_or("unreadable")?;
    let id = id(data, &["id"]).ok_or("unreadable")?;
    Ok(Happened::Deleted(PostId { channel, id }))
}

/// Previews, pins and thread flags come as updates, too: only they lack a time of editing.
fn edited(data: &Value, known: &Known<'_>) -> Result<Happened, &'static str> {
    if text(data, &["edited_timestamp"]).is_none() {
        return Err("not_an_edit");
    }
    posted(data, known).map(Happened::Edited)
}

/// The conversation of a post: where it stands, and the thread it belongs to or would open.
fn place(channel: &Channel, message: &str, known: &Known<'_>) -> (Place, mayfly_domain::ThreadKey) {
    if channel.workspace.is_empty() {
        return (Place::Direct, channel.thread(""));
    }
    match (known.parent)(&channel.channel) {
        Some(parent) => {
            let thread = channel.channel.clone();
            let parent = Channel {
                channel: parent,
                ..channel.clone()
            };
            (Place::Thread, parent.thread(thread))
        }
        None => (Place::Channel, channel.thread(message)),
    }
}

fn posted(data: &Value, known: &Known<'_>) -> Result<Box<Posted>, &'static str> {
    let channel = channel(data).ok_or("unreadable")?;
    let message = id(data, &["id"]).ok_or("unreadable")?;
    let author = id(data, &["author", "id"]).ok_or("unreadable")?;
    if author == known.me {
        return Err("own");
    }
    if at(data, &["webhook_id"]).is_some() {
        return Err("bot");
    }
    if !WRITTEN.contains(&number(data, &["type"]).unwrap_or(0)) {
        return Err("system");
    }
    let written = text(data, &["content"]).unwrap_or_default();
    let files: Vec<RemoteFile> = items(data, &["attachments"]).filter_map(file).collect();
    if written.trim().is_empty() && files.is_empty() {
        // The content permission is off, or it is a forward, a poll or a sticker.
        return Err("empty");
    }
    let named = items(data, &["mentions"]).any(|user| text(user, &["id"]) == Some(known.me));
    let answered = text(data, &["referenced_message", "author", "id"]) == Some(known.me);
    let (place, thread) = place(&channel, &message, known);
    Ok(Box::new(Posted {
        id: PostId {
            channel,
            id: message.clone(),
        },
        thread,
        place,
        author: Author {
            name: name(data, &["author"]).unwrap_or_else(|| author.clone()),
            id: author,
        },
        by_bot: is(data, &["author", "bot"]),
        roles: roles(data),
        text: without_mention(written, known.me),
        to_us: named || answered || place == Place::Direct,
        files,
        twin: None,
        words_of: None,
        group: None,
        answers: id(data, &["message_reference", "message_id"])
            .filter(|_| number(data, &["type"]) == Some(19)),
        at: written_at(&message),
    }))
}

fn name(data: &Value, user: &[&str]) -> Option<String> {
    let of = |field: &str| {
        let path: Vec<&str> = user.iter().copied().chain([field]).collect();
        text(data, &path)
    };
    text(data, &["member", "nick"])
        .or_else(|| of("global_name"))
        .or_else(|| of("username"))
        .map(str::to_owned)
}

fn roles(data: &Value) -> Vec<String> {
    let roles = items(data, &["member", "roles"]);
    roles.filter_map(Value::as_str).map(str::to_owned).collect()
}

fn file(file: &Value) -> Option<RemoteFile> {
    Some(RemoteFile {
        id: id(file, &["id"])?,
        name: text(file, &["filename"]).unwrap_or("file").to_owned(),
        size: number(file, &["size"]).and_then(|size| u64::try_from(size).ok()),
        media_type: text(file, &["content_type"]).map(str::to_owned),
        url: text(file, &["url"]).map(str::to_owned),
    })
}

fn without_mention(written: &str, me: &str) -> String {
    let written = written.trim_start();
    [format!("<@{me}>"), format!("<@!{me}>")]
        .iter()
        .find_map(|mention| written.strip_prefix(mention.as_str()))
        .map_or(written, |rest| rest.trim_start_matches([' ', ':', ',']))
        .to_owned()
}

/// A snowflake holds its time, counted from the first second of 2015.
fn written_at(snowflake: &str) -> i64 {
    let bits: u64 = snowflake.parse().unwrap_or(0);
    i64::try_from((bits >> 22) + 1_420_070_400_000).unwrap_or(0)
}

/// What has to be answered within three seconds: the interaction's id and token, joined by a space.
fn answer_to(data: &Value) -> Option<String> {
    Some(format!(
        "{} {}",
        id(data, &["id"])?,
        text(data, &["token"])?
    ))
}

fn interaction(data: &Value, known: &Known<'_>) -> Result<Happened, &'static str> {
    // In a guild the person stands in `member`, in a direct conversation in `user`.
    let user: &[&str] = match at(data, &["member", "user"]) {
        Some(_) => &["member", "user"],
        None => &["user"],
    };
    let person = at(data, user)
        .and_then(|user| id(user, &["id"]))
        .ok_or("unreadable")?;
    let by = Author {
        name: name(data, user).unwrap_or_else(|| person.clone()),
        id: person,
    };
    let channel = channel(data).ok_or("unreadable")?;
    match number(data, &["type"]) {
        Some(3) => {
            let message = id(data, &["message", "id"]).ok_or("unreadable")?;
            let (_, thread) = place(&channel, &message, known);
            Ok(Happened::Pressed(Pressed {
                button: text(data, &["data", "custom_id"])
                    .ok_or("unreadable")?
                    .to_owned(),
                on: PostId {
                    channel,
                    id: message,
                },
                thread,
                by,
                roles: roles(data),
                answer_to: answer_to(data).ok_or("unreadable")?,
            }))
        }
        Some(2) => {
            let id = id(data, &["id"]).ok_or("unreadable")?;
            let (place, thread) = place(&channel, &id, known);
            let mut said = format!("/{}", text(data, &["data", "name"]).ok_or("unreadable")?);
            for option in items(data, &["data", "options"]) {
                if let Some(value) = crate::json::id(option, &["value"]) {
                    said.push(' ');
                    said.push_str(&value);
                }
            }
            Ok(Happened::Posted(Box::new(Posted {
                at: written_at(&id),
                id: PostId { channel, id },
                thread,
                place,
                author: by,
                by_bot: false,
                roles: roles(data),
                text: said,
                to_us: true,
                files: Vec::new(),
                twin: None,
                words_of: None,
                group: None,
                answers: None,
            })))
        }
        Some(1) => Err("protocol"),
        _ => Err("unknown"),
    }
}
