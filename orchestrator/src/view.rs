//! What faces show: the JSON of the API and of `--json`, the same for every face.
//!
//! Times are unix milliseconds. Fields are only ever added.

use mayfly_domain::{
    AgentId, Attachment, BlobHash, MessageId, MessageOutcome, ReplyFile, SnapshotId, TickId,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::tick::outcome::{Changes, TickOutcome};

mod page;
mod states;

pub use page::{Page, Wanted};

/// One agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AgentView {
    /// Its id.
    pub id: AgentId,
    /// The last 8 digits of the id.
    pub short: String,
    /// The profile it was made from.
    pub profile: String,
    /// The sandbox of its first tick, for people.
    pub sandbox: String,
    /// When it was made.
    pub created_at: i64,
    /// The snapshot its next tick starts from; none before the first tick.
    pub head: Option<SnapshotId>,
    /// The tick that made the head, where one did.
    pub head_tick: Option<TickId>,
    /// The tick that runs now.
    pub running: Option<TickId>,
    /// Messages that wait.
    pub waiting: u64,
    /// Messages that wait for a person.
    pub parked: u64,
    /// Ticks so far.
    pub ticks: u64,
    /// Layers below the head, the base not counted.
    pub layers: u64,
    /// The agent it was forked from.
    pub forked_from: Option<AgentId>,
    /// What its states take on disk; only where one agent is shown.
    #[serde(default)]
    pub disk: Option<DiskView>,
    /// What could not be delivered to its thread, newest first, at most 20; only where one agent is
    /// shown.
    #[serde(default)]
    pub undelivered: Vec<UndeliveredView>,
}

/// Something that a thread was to be told, and could not be.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct UndeliveredView {
    /// The message it belongs to: retried, it is sent again. None where it answers a command given
    /// in the thread; `!retry` there sends it again.
    pub message: Option<MessageId>,
    /// Since when it is owed.
    pub since: i64,
    /// Why, with the way out.
    pub reason: String,
    /// First line of its text, at most 120 characters.
    pub title: String,
}

/// One message and what became of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct MessageView {
    /// Its id.
    pub id: MessageId,
    /// Whose lane it is in.
    pub agent: AgentId,
    /// Its place in the thread.
    pub seq: i64,
    /// Who wrote it, by name.
    pub author: String,
    /// What was written.
    pub text: String,
    /// What came with it, as the agent finds it in its `received` folder.
    #[serde(default)]
    pub files: Vec<Attachment>,
    /// When it was accepted.
    pub created_at: i64,
    /// Its outcome; none while it waits or runs.
    pub outcome: Option<MessageOutcome>,
    /// Why it is parked or withdrawn.
    pub reason: Option<String>,
    /// The message whose tick it became part of, and whose reply is its reply.
    #[serde(default)]
    pub merged_into: Option<MessageId>,
    /// How often a tick for it was interrupted.
    pub attempts: u32,
    /// Messages of its agent before it that have no outcome yet.
    pub ahead: u64,
    /// Its newest tick.
    pub tick: Option<TickId>,
    /// What its newest tick does right now.
    pub progress: Option<String>,
    /// What the thread was told.
    pub reply: Option<ReplyView>,
    /// Why that could not be delivered, with the way out; none where it was, or is under way.
    #[serde(default)]
    pub undelivered: Option<String>,
}

/// A code that lets somebody in, once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PairingView {
    /// Where.
    pub platform: String,
    /// To be said to the bot in a direct conversation: `/pair CODE`.
    pub code: String,
    /// Until when, unix ms.
    pub expires_at: i64,
}

/// Somebody who was let in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PairedView {
    /// Where.
    pub platform: String,
    /// The platform's id of the person.
    pub person: String,
    /// As the person is called there.
    pub name: String,
    /// Since when, unix ms.
    pub since: i64,
}

/// A file that was uploaded; a message may name it within a day.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UploadView {
    /// Its hash.
    pub blob: BlobHash,
    /// Its bytes.
    pub size: u64,
}

/// What a thread was told.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ReplyView {
    /// Markdown.
    pub text: String,
    /// Files sent with it.
    pub files: Vec<ReplyFile>,
}

/// One tick.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TickView {
    /// Its id.
    pub id: TickId,
    /// Whose.
    pub agent: AgentId,
    /// For which message.
    pub message: MessageId,
    /// The tick this is a re-run of.
    pub retry_of: Option<TickId>,
    /// Where it is or ended.
    pub phase: String,
    /// How it ended; none while it runs.
    pub outcome: Option<TickOutcome>,
    /// Whether its files were kept.
    pub changes: Option<Changes>,
    /// What the thread was told when there was no plain answer.
    pub notice: Option<String>,
    /// The program's exit code.
    pub exit_code: Option<i32>,
    /// When it was claimed.
    pub started_at: i64,
    /// When it ended.
    pub ended_at: Option<i64>,
    /// The head it started from.
    pub before: Option<SnapshotId>,
    /// The snapshot it made or kept.
    pub after: Option<SnapshotId>,
    /// The image it ran in: the engine's id.
    pub image: Option<String>,
    /// What the seal dropped or stripped.
    pub notes: Vec<String>,
    /// What it used.
    pub usage: UsageView,
    /// First line of the message, at most 120 characters.
    pub title: String,
    /// True if this tick's state is below (or is) the agent's head.
    pub in_head: bool,
    /// `kept` or `expired`: whether its state can be gone back to; none where it left none.
    #[serde(default)]
    pub state: Option<String>,
}

/// What one tick used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UsageView {
    /// Milliseconds in each phase: spawn, scope, run, report, commit.
    pub phase_ms: [i64; 5],
    /// Bytes the program wrote to its standard output and error.
    pub output_bytes: i64,
    /// Bytes of the sealed layer on disk.
    pub layer_bytes: i64,
    /// Files and folders of the sealed layer.
    pub layer_inodes: i64,
}

/// A tick with its transcript.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TickDetail {
    /// The tick.
    pub tick: TickView,
    /// Its transcript's lines, numbered from 1.
    pub transcript: Vec<crate::agent::transcript::Line>,
}

/// A difference between two states.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DiffView {
    /// Entries, by path.
    pub changes: Vec<ChangeView>,
    /// Further entries that are not listed.
    #[serde(default)]
    pub more: u64,
    /// What was guessed or left out, one sentence each.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// One entry of a difference.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ChangeView {
    /// Path in the sandbox; bytes that are no UTF-8 are replaced.
    pub path: String,
    /// The path with its bytes percent-encoded, where it is no UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_encoded: Option<String>,
    /// `added`, `removed`, `modified`, `type`, `mode` or `renamed`.
    pub kind: String,
    /// The name before, of what was renamed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Entries below a folder that was renamed whole.
    #[serde(default)]
    pub below: u64,
    /// Type and permissions before, as `st_mode`.
    #[serde(default)]
    pub mode_before: Option<u32>,
    /// Type and permissions after.
    #[serde(default)]
    pub mode_after: Option<u32>,
    /// Lines added; none for binary content.
    pub added: Option<u64>,
    /// Lines removed; none for binary content.
    pub removed: Option<u64>,
    /// Bytes before.
    pub bytes_before: Option<u64>,
    /// Bytes after.
    pub bytes_after: Option<u64>,
    /// Hunks of a unified diff, where asked for; bytes that are no UTF-8 are replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Why there is no text: `binary`, `large` or `left out`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_text: Option<String>,
}

/// One file, link or folder of a state.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FileView {
    /// Path in the sandbox; bytes that are no UTF-8 are replaced.
    pub path: String,
    /// The path with its bytes percent-encoded, where it is no UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_encoded: Option<String>,
    /// `file`, `folder` or `link`.
    pub kind: String,
    /// Type and permissions, as `st_mode`.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Owner's group.
    pub gid: u32,
    /// Bytes of a file, holes included.
    pub size: u64,
    /// When it was last written, unix seconds.
    pub mtime: i64,
    /// And nanoseconds.
    pub mtime_ns: u32,
    /// Where a link points; it is never followed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
}

/// A link, or a folder and one page of what is in it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ListingView {
    /// What was asked for.
    pub entry: FileView,
    /// What is in it; a folder comes before what is in it, names are in the order of their bytes.
    pub entries: Vec<FileView>,
    /// There is more than is listed.
    pub more: bool,
    /// The next page's `after`: a path, percent-encoded; none on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// All states of an agent, and where its head is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct GraphView {
    /// Whose.
    pub agent: AgentId,
    /// The state its next tick starts from; none is the image's own files.
    pub head: Option<SnapshotId>,
    /// Newest first; none comes after one it came from.
    pub nodes: Vec<NodeView>,
    /// Rollbacks of this agent and forks from it, oldest first.
    pub moves: Vec<MoveView>,
}

/// One tick in the tree of states.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NodeView {
    /// The state it left; none where its changes were not kept.
    pub state: Option<SnapshotId>,
    /// The state it started from; none is the image's own files.
    pub parent: Option<SnapshotId>,
    /// Whether `mayfly agent rollback` can go there.
    pub kept: bool,
    /// The tick; none where its agent was removed.
    pub tick: Option<TickView>,
}

/// A head that was moved, or a fork made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct MoveView {
    /// Whose head: the agent's own, or a fork's.
    pub agent: AgentId,
    /// When.
    pub at: i64,
    /// From which state.
    pub from: Option<SnapshotId>,
    /// To which state.
    pub to: Option<SnapshotId>,
    /// `rollback` or `fork`.
    pub reason: String,
}

/// What a rollback did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RollbackView {
    /// The agent, with its new head.
    pub agent: AgentView,
    /// The tick whose state is now the head; none for the state before the first.
    pub to: Option<TickId>,
    /// The tick whose state was left behind; `rollback` to it goes forward again.
    pub left: Option<TickId>,
}

/// What a `stop` did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct StopView {
    /// The tick that is being ended.
    pub stopping: Option<TickId>,
    /// Messages that were withdrawn (`stop all`).
    pub withdrawn: Vec<MessageId>,
    /// Messages that wait and will run.
    #[serde(default)]
    pub waiting: u64,
}

/// Whether the service can work.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ReadyView {
    /// True if every part is.
    pub ready: bool,
    /// What is wrong, one sentence each.
    pub problems: Vec<String>,
    /// What an operator should look at although messages run, one sentence each.
    #[serde(default)]
    pub warnings: Vec<String>,
}

/// What `gc` removed, or would remove.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct GcView {
    /// Nothing was removed, only counted.
    pub dry_run: bool,
    /// Why nothing was removed, in one sentence; none where it was.
    pub held: Option<String>,
    /// States that cannot be gone back to any more.
    pub states: u64,
    /// Layers.
    pub layers: u64,
    /// Files that no message and no delivery names.
    pub blobs: u64,
    /// Bases that no agent stands on.
    pub bases: u64,
    /// Archives of images that no agent stands on.
    pub images: u64,
    /// Bytes on disk of layers, blobs and bases.
    pub bytes: u64,
}

/// What an agent's states take on disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DiskView {
    /// Bytes of layers that only this agent needs.
    pub own_bytes: u64,
    /// Bytes of layers that other agents need too.
    pub shared_bytes: u64,
    /// Bytes of its base, which all agents of its image stand on.
    pub base_bytes: u64,
}

/// What an import made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ImportView {
    /// The agent.
    pub agent: AgentView,
    /// Its id in the archive.
    pub was: AgentId,
    /// What was dropped, and what is missing for its next message, one sentence each.
    pub notes: Vec<String>,
}
