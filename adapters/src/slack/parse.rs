//! What Slack's events say.
//!
//! Reads a Socket Mode frame as well as the body of an HTTP request: the payload inside is the same.
//! Never fails: what cannot be read is ignored with a reason, and the raw bytes are kept elsewhere.

use mayfly_domain::{
    Author, Channel, Event, Happened, Place, PostId, Posted, Pressed, RemoteFile, Twin,
};
use serde_json::Value;

use crate::json::{at, id, items, number, text};

/// Who we are in the workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Me {
    /// Our bot's user id, for example `U0BOT`.
    pub user: String,
    /// Our app's id, for example `A0APP`.
    pub app: String,
}

/// Understands one raw event.
pub fn parse(raw: &[u8], me: &Me) -> Event {
    let Ok(frame) = serde_json::from_slice::<Value>(raw) else {
        return ignored(String::new(), "unreadable");
    };
    match text(&frame, &["type"]) {
        Some("hello" | "disconnect") => ignored(String::new(), "protocol"),
        Some("events_api") => callback(at(&frame, &["payload"]).unwrap_or(&Value::Null), me),
        Some("event_callback") => callback(&frame, me),
        Some("interactive") => press(at(&frame, &["payload"]).unwrap_or(&Value::Null)),
        Some("block_actions") => press(&frame),
        Some("slash_commands") => command(at(&frame, &["payload"]).unwrap_or(&Value::Null)),
        Some("url_verification" | "app_rate_limited") => ignored(String::new(), "protocol"),
        _ if text(&frame, &["command"]).is_some() => command(&frame),
        _ => ignored(String::new(), "unknown"),
    }
}

fn ignored(key: String, why: &str) -> Event {
    Event {
        key,
        happened: Happened::Ignored(why.to_owned()),
    }
}

fn callback(payload: &Value, me: &Me) -> Event {
    let key = id(payload, &["event_id"]).unwrap_or_default();
    let Some(event) = at(payload, &["event"]) else {
        return ignored(key, "unreadable");
    };
    let team = id(payload, &["team_id"])
        .or_else(|| id(event, &["team"]))
        .unwrap_or_default();
    // With Socket Mode the app's token names the app, by HTTP only the event does.
    let me = &Me {
        user: me.user.clone(),
        app: match me.app.is_empty() {
            true => id(payload, &["api_app_id"]).unwrap_or_default(),
            false => me.app.clone(),
        },
    };
    let happened = match text(event, &["type"]) {
        Some("app_mention") if at(event, &["edited"]).is_some() => {
            posted(event, &team, me, Twin::Mention).map(Happened::Edited)
        }
        Some("app_mention") => posted(event, &team, me, Twin::Mention).map(Happened::Posted),
        Some("message") => message(event, &team, me),
        Some("pin_added" | "pin_removed" | "member_joined_channel" | "member_left_channel") => {
            Err("system")
        }
        _ => Err("unknown"),
    };
    match happened {
        Ok(happened) => Event { key, happened },
        Err(why) => ignored(key, why),
    }
}

fn message(event: &Value, team: &str, me: &Me) -> Result<Happened, &'static str> {
    match text(event, &["subtype"]) {
        None | Some("file_share" | "me_message" | "thread_broadcast" | "bot_message") => {
            posted(event, team, me, Twin::Message).map(Happened::Posted)
        }
        Some("message_changed") => changed(event, team, me),
        Some("message_deleted") => {
            let channel = channel(event, team)?;
            let id = id(event, &["deleted_ts"])
                .or_else(|| id(event, &["previous_message", "ts"]))
                .ok_or("unreadable")?;
            Ok(Happened::Deleted(PostId { channel, id }))
        }
        Some(
            "channel_join"
            | "channel_leave"
            | "channel_topic"
            | "channel_purpose"
            | "channel_name"
            | "channel_archive"
            | "channel_unarchive"
            | "channel_posting_permissions"
            | "group_join"
            | "group_leave"
            | "group_topic"
            | "group_purpose"
            | "group_name"
            | "group_archive"
            | "group_unarchive"
            | "pinned_item"
            | "message_replied"
            | "ekm_access_denied"
            | "reminder_add"
            | "tombstone",
        ) => Err("system"),
        Some(_) => Err("unknown"),
    }
}

/// Previews and our own edits come as changes, too: only another text by its author is an edit.
fn changed(event: &Value, team: &str, me: &Me) -> Result<Happened, &'static str> {
    let new = at(event, &["message"]).ok_or("unreadable")?;
    let old = at(event, &["previous_message"]);
    if text(new, &["subtype"]) == Some("tombstone") {
        let channel = channel(event, team)?;
        let id = id(new, &["ts"]).ok_or("unreadable")?;
        return Ok(Happened::Deleted(PostId { channel, id }));
    }
    let same = old.is_some_and(|old| text(old, &["text"]) == text(new, &["text"]));
    if same || at(new, &["edited"]).is_none() {
        return Err("not_an_edit");
    }
    let mut merged = new.clone();
    if let Some(fields) = merged.as_object_mut() {
        for name in ["channel", "channel_type"] {
            if let Some(value) = event.get(name) {
                fields.insert(name.to_owned(), value.clone());
            }
        }
    }
    posted(&merged, team, me, Twin::Message).map(Happened::Edited)
}

fn channel(event: &Value, team: &str) -> Result<Channel, &'static str> {
    Ok(Channel {
        platform: "slack".to_owned(),
        workspace: team.to_owned(),
        channel: id(event, &["channel"]).ok_or("unreadable")?,
    })
}

fn posted(event: &Value, team: &str, me: &Me, twin: Twin) -> Result<Box<Posted>, &'static str> {
    let channel = channel(event, team)?;
    let ts = text(event, &["ts"]).ok_or("unreadable")?;
    let user = id(event, &["user"]);
    let bot = id(event, &["bot_id"]);
    let ours = text(event, &["app_id"]).or_else(|| text(event, &["bot_profile", "app_id"]));
    if user.as_deref() == Some(me.user.as_str()) || ours == Some(me.app.as_str()) {
        return Err("own");
    }
    let author = user.or_else(|| bot.clone()).ok_or("bot")?;
    let direct = text(event, &["channel_type"]) == Some("im") || channel.channel.starts_with('D');
    let root = text(event, &["thread_ts"]);
    let in_thread = root.is_some_and(|root| root != ts);
    let (place, thread) = match (direct, root) {
        (true, None) => (Place::Direct, ""),
        (true, Some(root)) => (Place::Direct, root),
        (false, Some(root)) if in_thread => (Place::Thread, root),
        (false, _) => (Place::Channel, ts),
    };
    let written = text(event, &["text"]).unwrap_or_default();
    let mention = format!("<@{}", me.user);
    let mentioned = written
        .split(&mention)
        .skip(1)
        .any(|after| after.starts_with(['>', '|']));
    let files: Vec<RemoteFile> = items(event, &["files"]).filter_map(file).collect();
    if written.trim().is_empty() && files.is_empty() {
        return Err("empty");
    }
    let name = text(event, &["user_profile", "display_name"])
        .filter(|name| !name.is_empty())
        .or_else(|| text(event, &["user_profile", "real_name"]))
        .or_else(|| text(event, &["username"]))
        .unwrap_or(&author);
    Ok(Box::new(Posted {
        thread: channel.thread(thread),
        id: PostId {
            channel,
            id: ts.to_owned(),
        },
        place,
        author: Author {
            id: author.clone(),
            name: name.to_owned(),
        },
        by_bot: bot.is_some(),
        roles: Vec::new(),
        text: readable(written, &mention),
        to_us: mentioned || twin == Twin::Mention || direct,
        files,
        twin: (!direct).then_some(twin),
        words_of: None,
        group: None,
        answers: None,
        at: millis(ts),
    }))
}

fn file(file: &Value) -> Option<RemoteFile> {
    if text(file, &["mode"]) == Some("tombstone") {
        return None;
    }
    Some(RemoteFile {
        id: id(file, &["id"])?,
        name: text(file, &["name"])
            .or_else(|| text(file, &["title"]))
            .unwrap_or("file")
            .to_owned(),
        size: number(file, &["size"]).and_then(|size| u64::try_from(size).ok()),
        media_type: text(file, &["mimetype"]).map(str::to_owned),
        // In shared channels there is only a stub: `files.info` has to be asked.
        url: text(file, &["url_private_download"])
            .or_else(|| text(file, &["url_private"]))
            .filter(|_| text(file, &["file_access"]) != Some("check_file_info"))
            .map(str::to_owned),
    })
}

/// The text a person wrote: entities undone, addresses without brackets, our mention in front gone.
fn readable(written: &str, mention: &str) -> String {
    let mut text = written.trim_start();
    if let Some(after) = text.strip_prefix(mention)
        && let Some(end) = after.find('>')
    {
        text = after[end + 1..].trim_start_matches([' ', ':', ',']);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find('<') {
        out.push_str(&rest[..start]);
        rest = &rest[start..];
        let Some(end) = rest.find('>') else {
            break;
        };
        out.push_str(&reference(&rest[1..end]));
        rest = &rest[end + 1..];
    }
    out.push_str(rest);
    out.replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&amp;", "&")
}

fn reference(inner: &str) -> String {
    let (target, label) = match inner.split_once('|') {
        Some((target, label)) => (target, Some(label)),
        None => (inner, None),
    };
    match (target.chars().next(), label) {
        (Some('@'), Some(name)) => format!("@{name}"),
        (Some('@'), None) => format!("<{target}>"),
        (Some('#'), Some(name)) => format!("#{name}"),
        (Some('!'), Some(name)) => name.to_owned(),
        (Some('!'), None) => format!("@{}", &target[1..]),
        (_, Some(label)) if label != target && !target.ends_with(label) => {
            format!("{label} ({target})")
        }
        _ => target.to_owned(),
    }
}

fn millis(ts: &str) -> i64 {
    let (seconds, fraction) = ts.split_once('.').unwrap_or((ts, ""));
    let seconds: i64 = seconds.parse().unwrap_or(0);
    let millis: i64 = fraction.get(..3).and_then(|f| f.parse().ok()).unwrap_or(0);
    seconds.saturating_mul(1000).saturating_add(millis)
}

fn press(payload: &Value) -> Event {
    let pressed = || -> Option<(String, Pressed)> {
        let action = items(payload, &["actions"]).next()?;
        let user = id(payload, &["user", "id"])?;
        let name =
            text(payload, &["user", "name"]).or_else(|| text(payload, &["user", "username"]));
        let channel = Channel {
            platform: "slack".to_owned(),
            workspace: id(payload, &["team", "id"])
                .or_else(|| id(payload, &["user", "team_id"]))?,
            channel: id(payload, &["channel", "id"])
                .or_else(|| id(payload, &["container", "channel_id"]))?,
        };
        let ts = id(payload, &["container", "message_ts"])
            .or_else(|| id(payload, &["message", "ts"]))?;
        let root = id(payload, &["message", "thread_ts"])
            .or_else(|| id(payload, &["container", "thread_ts"]));
        let direct = channel.channel.starts_with('D');
        let thread = root.unwrap_or_else(|| if direct { String::new() } else { ts.clone() });
        let key = [
            "press",
            &ts,
            text(action, &["action_id"]).unwrap_or_default(),
            &user,
            text(action, &["action_ts"]).unwrap_or_default(),
        ]
        .join(" ");
        Some((
            key,
            Pressed {
                button: text(action, &["value"])?.to_owned(),
                thread: channel.thread(thread),
                on: PostId { channel, id: ts },
                by: Author {
                    name: name.unwrap_or(&user).to_owned(),
                    id: user,
                },
                roles: Vec::new(),
                answer_to: text(payload, &["response_url"])
                    .unwrap_or_default()
                    .to_owned(),
            },
        ))
    };
    match (text(payload, &["type"]), pressed()) {
        (Some("block_actions"), Some((key, pressed))) => Event {
            key,
            happened: Happened::Pressed(pressed),
        },
        (Some("block_actions"), None) => ignored(String::new(), "unreadable"),
        _ => ignored(String::new(), "unknown"),
    }
}

/// A native command is a post that speaks to us; Slack cannot use it within a thread.
fn command(payload: &Value) -> Event {
    let posted = || -> Option<Posted> {
        let channel = Channel {
            platform: "slack".to_owned(),
            workspace: id(payload, &["team_id"])?,
            channel: id(payload, &["channel_id"])?,
        };
        let user = id(payload, &["user_id"])?;
        let trigger = id(payload, &["trigger_id"])?;
        let direct = channel.channel.starts_with('D');
        let said = text(payload, &["text"]).unwrap_or_default().trim();
        Some(Posted {
            // There is no message to hang a thread on: all of a channel's commands are one conversation.
            thread: channel.thread(""),
            id: PostId {
                channel,
                id: trigger,
            },
            place: if direct {
                Place::Direct
            } else {
                Place::Channel
            },
            author: Author {
                name: text(payload, &["user_name"]).unwrap_or(&user).to_owned(),
                id: user,
            },
            by_bot: false,
            roles: Vec::new(),
            text: match said {
                "" => "/help".to_owned(),
                said => format!("/mayfly {said}"),
            },
            to_us: true,
            files: Vec::new(),
            twin: None,
            words_of: None,
            group: None,
            answers: None,
            at: 0,
        })
    };
    match posted() {
        Some(posted) => Event {
            key: format!("command {}", posted.id.id),
            happened: Happened::Posted(Box::new(posted)),
        },
        None => ignored(String::new(), "unreadable"),
    }
}
