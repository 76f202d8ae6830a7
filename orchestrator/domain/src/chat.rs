//! The seam to chat systems.
//!
//! An adapter speaks one platform and decides nothing: what a reply is made of, in which order it
//! is written and what happens after a crash is the outbox's, the same for all. Contents are made
//! once by [`Platform::render`] and [`Platform::line`], stored, and given back unchanged.

use std::{convert::Infallible, pin::Pin, time::Duration};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use tokio::io::AsyncRead;

use crate::{Channel, Inbox, PostId, Pressed, RemoteFile, ThreadKey};

/// Why a call did not do what was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// It has certainly done nothing (no connection, a server that is down); trying again may help.
    #[error("the platform is not reachable: {0}")]
    NotDone(String),
    /// It may have been done: the connection broke after it was asked, or no answer came in time.
    #[error("the platform did not say whether it was done: {0}")]
    Unknown(String),
    /// The platform says when to come again (a rate limit) and has done nothing; trying earlier
    /// makes it worse.
    #[error("the platform asks to wait {} s: {reason}", after.as_secs())]
    Limited {
        /// What it said.
        reason: String,
        /// How long from now.
        after: Duration,
    },
    /// The post that was to be changed is not there any more.
    #[error("the post is gone: {0}")]
    Gone(String),
    /// The chat has a new id (Telegram's groups).
    #[error("the chat has moved to {0}")]
    Moved(Channel),
    /// Trying again cannot help; a sentence for operator and thread's owner, with the way out.
    #[error("the platform refuses: {0}")]
    Refused(String),
}

/// What a post says, in the platform's own words (JSON of the adapter's choice).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Content(pub String);

/// Most posts that one reply is split into.
pub const MAX_PARTS: usize = 3;

/// A reply as it will be shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rendered {
    /// At most [`MAX_PARTS`], each within the platform's limits; none where nothing can be seen.
    pub parts: Vec<Content>,
    /// The text did not fit: the parts are its beginning and say so, and this file, with name and
    /// content, comes with them.
    pub whole: Option<(String, String)>,
}

/// A button under a post.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Button {
    /// What comes back when it is pressed: our own opaque id, at most 64 bytes of ASCII.
    pub id: String,
    /// What it says, at most 30 characters.
    pub label: String,
    /// It destroys something: shown so where the platform can.
    pub danger: bool,
}

/// A post that is to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewPost {
    /// Where.
    pub thread: ThreadKey,
    /// Its identity: however often it is asked for, one post is made where the platform can tell.
    pub token: String,
    /// What it says.
    pub content: Content,
    /// The post it answers, shown as its quote where that is the platform's custom.
    pub answers: Option<PostId>,
    /// It was asked for before at this time (unix ms, by the clock that all hosts share) and may be there: it is looked
    /// for first, where the platform can look.
    pub unknown_since: Option<i64>,
}

/// A file that is to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileOut {
    /// Where.
    pub thread: ThreadKey,
    /// Like [`NewPost::token`].
    pub token: String,
    /// As people see it.
    pub name: String,
    /// Bytes.
    pub size: u64,
    /// Like [`NewPost::answers`].
    pub answers: Option<PostId>,
    /// Like [`NewPost::unknown_since`].
    pub unknown_since: Option<i64>,
}

/// Content of a file on its way.
pub type Body = Pin<Box<dyn AsyncRead + Send>>;

/// What the author of a post is shown of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sign {
    /// It was received.
    Seen,
    /// It was answered.
    Answered,
    /// There is no answer, a notice says why.
    Failed,
}

/// A chat system.
///
/// Each call makes at most one attempt and may be dropped at any `await`.
#[async_trait]
pub trait Platform: Send + Sync {
    /// The platform part of its threads' keys.
    fn name(&self) -> &'static str;

    /// Longest time one call may take, well above what the platform's own client waits for one
    /// request; a call that takes longer is dropped and counts as [`CallError::Unknown`].
    fn patience(&self) -> Duration {
        Duration::from_secs(60)
    }

    /// The same for a call that carries so many bytes of a file.
    fn file_patience(&self, _size: u64) -> Duration {
        self.patience()
    }

    /// Least time between two edits of one post in this thread that only show progress.
    fn edit_pause(&self, thread: &ThreadKey) -> Duration;

    /// Largest file that can be sent, in bytes.
    fn max_file(&self) -> u64;

    /// A reply of an agent, given as Markdown. Pings nobody.
    fn render(&self, markdown: &str) -> Rendered;

    /// A short text of ours without markup, with buttons under it.
    fn line(&self, text: &str, buttons: &[Button]) -> Content;

    /// Receives events until it is dropped: each is handed to the inbox, and acknowledged when that
    /// has it. Reconnects by itself; returns what must not be tried again (a token that is not
    /// accepted, an intent that is not granted), in a sentence with the way out.
    async fn listen(&self, inbox: &dyn Inbox) -> Result<Infallible, String>;

    /// Makes a post and returns the platform's id of it.
    async fn post(&self, post: &NewPost) -> Result<String, CallError>;

    /// Makes a post say something else. Saying the same again is no error.
    async fn edit(
        &self,
        thread: &ThreadKey,
        post: &str,
        content: &Content,
    ) -> Result<(), CallError>;

    /// Removes a post of ours. One that is gone already is no error.
    async fn remove(&self, thread: &ThreadKey, post: &str) -> Result<(), CallError>;

    /// Brings a file to the platform without showing it, where that is a step of its own. What is
    /// returned is stored and given to [`Platform::post_file`], also after a crash.
    async fn stage_file(&self, file: &FileOut, body: Body) -> Result<Staged, CallError>;

    /// Shows a file that was staged and returns the platform's id of the post. Where there is no
    /// way to find out whether an earlier call did it ([`FileOut::unknown_since`]), it is
    /// [`CallError::Unknown`] again, and the outbox asks a person.
    async fn post_file(&self, file: &FileOut, staged: Staged) -> Result<String, CallError>;

    /// Shows that somebody works on an answer, and returns after what time that has to be renewed.
    async fn busy(&self, thread: &ThreadKey) -> Result<Duration, CallError>;

    /// Marks a post of somebody else (a reaction), in place of the mark before.
    async fn sign(&self, post: &PostId, sign: Sign) -> Result<(), CallError>;

    /// Stops a button's spinning and tells the person who pressed it something, where it can.
    async fn answer(&self, pressed: &Pressed, text: &str) -> Result<(), CallError>;

    /// Opens a new conversation beside this one, where the platform has such, and returns its key
    /// and a link to it (empty where the platform has none). [`CallError::NotDone`] and
    /// [`CallError::Limited`] mean that nothing of it stands. `token` and `unknown_since` are those
    /// of [`NewPost`].
    async fn open(
        &self,
        beside: &ThreadKey,
        title: &str,
        token: &str,
        unknown_since: Option<i64>,
    ) -> Result<(ThreadKey, String), CallError>;

    /// Whether [`Platform::open`] finds what an earlier call with its token has opened. Where it
    /// does not, it is not asked twice, and a person decides.
    fn finds_opened(&self) -> bool {
        true
    }

    /// The post whose answers are a conversation that [`Platform::open`] made, where that is how it
    /// goes on.
    fn root(&self, _opened: &ThreadKey) -> Option<String> {
        None
    }

    /// Fetches a file; its author's word on the size is not trusted, the caller counts.
    async fn fetch(&self, file: &RemoteFile) -> Result<Body, CallError>;
}

/// What [`Platform::stage_file`] leaves.
pub enum Staged {
    /// The platform keeps it under this name; survives a crash.
    Kept(String),
    /// Nothing was sent yet: the content goes with the post itself.
    Body(Body),
}
