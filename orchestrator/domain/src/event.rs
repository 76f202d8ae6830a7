//! What happened on a platform, in words that all platforms share.
//!
//! An adapter's `parse` makes these from raw events, purely. What they add up to (which posts are
//! one message, who may speak, which agent answers) is decided in one place for all platforms, by
//! `Inbox`.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Author, ThreadKey, thread::escaped};

/// A channel, chat or direct conversation: a [`ThreadKey`] without its thread.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Channel {
    /// For example `slack`, `discord`, `telegram`.
    pub platform: String,
    /// Slack team, Discord guild (empty in direct messages), the bot's own id on Telegram.
    pub workspace: String,
    /// The platform's id of the channel or chat.
    pub channel: String,
}

impl Channel {
    /// A conversation in this channel; empty where the channel itself is the conversation.
    pub fn thread(&self, thread: impl Into<String>) -> ThreadKey {
        ThreadKey {
            platform: self.platform.clone(),
            workspace: self.workspace.clone(),
            channel: self.channel.clone(),
            thread: thread.into(),
        }
    }
}

/// `platform/workspace/channel`, escaped like a [`ThreadKey`].
impl fmt::Display for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [&self.platform, &self.workspace, &self.channel];
        f.write_str(&parts.map(|part| escaped(part)).join("/"))
    }
}

/// The identity of one post: whatever event speaks of it, it is the same.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PostId {
    /// Where it stands.
    pub channel: Channel,
    /// Slack's `ts`, Discord's snowflake, Telegram's `message_id`.
    pub id: String,
}

/// One platform event, understood.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// The event's own identity: a second one with the same key is a redelivery and changes nothing.
    /// Slack's `event_id`; elsewhere made from kind, post and, for edits, the edit's time.
    pub key: String,
    /// What it says.
    pub happened: Happened,
}

/// What an event says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Happened {
    /// Somebody wrote something.
    Posted(Box<Posted>),
    /// Somebody changed what they wrote. Previews and our own edits are [`Happened::Ignored`].
    Edited(Box<Posted>),
    /// A post is gone.
    Deleted(PostId),
    /// A button was pressed.
    Pressed(Pressed),
    /// A chat has a new id; its threads move with it (Telegram's groups).
    Moved {
        /// The id it had.
        from: Channel,
        /// The id it has.
        to: Channel,
    },
    /// Kept, counted, starts nothing; the word says why, for example `own`, `bot`, `join`.
    Ignored(String),
}

/// Where a post stands in its channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// A conversation of one person with the bot: needs no mention.
    Direct,
    /// In the channel itself: a mention opens a thread.
    Channel,
    /// In a thread of the channel: needs no mention where the bot is part of it.
    Thread,
}

/// A post, as one event tells it. Several events may tell of one post; what they say is joined.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Posted {
    /// Which post.
    pub id: PostId,
    /// The conversation an answer belongs to: the thread it stands in, or the one a mention opens.
    pub thread: ThreadKey,
    /// See [`Place`].
    pub place: Place,
    /// Who wrote it.
    pub author: Author,
    /// Another program wrote it. (Our own posts are [`Happened::Ignored`].)
    pub by_bot: bool,
    /// Roles of the author on the platform, by id (Discord).
    pub roles: Vec<String>,
    /// Whoever wrote the text, where the author only passes it on (Telegram's forwards).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub words_of: Option<Author>,
    /// Plain text: the platform's escapes undone, a mention of the bot at its beginning taken off,
    /// mentions of others as `@name` or left as they came.
    pub text: String,
    /// It speaks to the bot: a mention, a reply to it, or a command of its.
    pub to_us: bool,
    /// What hangs on it.
    pub files: Vec<RemoteFile>,
    /// Another event about the same post may follow (Slack's `app_mention` beside `message`): the
    /// message may start when both were seen or a short time has passed.
    pub twin: Option<Twin>,
    /// Posts with the same group are one message with many files (Telegram's albums).
    pub group: Option<String>,
    /// The post it answers, in the same channel.
    pub answers: Option<String>,
    /// The platform's own time of writing, unix ms.
    pub at: i64,
}

/// Which of two events about one post this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Twin {
    /// Sent because the bot was mentioned.
    Mention,
    /// Sent because the bot is in the channel.
    Message,
}

/// A file on a platform's servers, not yet fetched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteFile {
    /// The platform's id; files of twin events are joined by it.
    pub id: String,
    /// As its author named it: data, never a path.
    pub name: String,
    /// Bytes, where the platform says so.
    pub size: Option<u64>,
    /// What the platform says it is.
    pub media_type: Option<String>,
    /// Where it can be fetched; none where it has to be asked for by its id first.
    pub url: Option<String>,
}

/// A button that was pressed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pressed {
    /// What the button carries: our own opaque one-shot id.
    pub button: String,
    /// The post it hangs on.
    pub on: PostId,
    /// The conversation.
    pub thread: ThreadKey,
    /// Who pressed it.
    pub by: Author,
    /// Roles of that person, by id (Discord).
    pub roles: Vec<String>,
    /// What the platform wants back, so that the button stops to spin.
    pub answer_to: String,
}
