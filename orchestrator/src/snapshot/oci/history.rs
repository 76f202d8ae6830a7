//! What a layout carries beside files: who the agent is, its states, ticks, messages and replies,
//! one JSON record a line, in the last layer. Read back as hostile text: every record is of a known
//! kind, every id is one, every reference leads to a record before it.

use std::{
    collections::HashSet,
    io::{BufRead, Read as _},
};

use mayfly_domain::{
    AgentId, Author, MAX_TEXT, MessageId, MessageOutcome, SandboxRef, SnapshotId, TickId,
};
use serde::{Deserialize, Serialize};

use super::OciError;
use crate::tick::outcome::{Changes, TickOutcome};

/// In the archive.
pub(super) const FOLDER: &str = ".mayfly/";
pub(super) const RECORDS: &str = ".mayfly/history.jsonl";
pub(super) const TRANSCRIPTS: &str = ".mayfly/transcripts/";

/// The version of everything that is ours in a layout.
pub const FORM: u32 = 1;
/// No line may be longer: a message's text where JSON escapes each byte, and some.
const LINE_MAX: usize = 6 * MAX_TEXT + (64 << 10);
const RECORDS_MAX: usize = 1 << 20;
/// Of all lines: they are held in memory.
pub(super) const BYTES_MAX: usize = 256 << 20;
/// Of one tick; a seal keeps fewer.
const NOTES_MAX: usize = 100;
/// Of a name, a reason, an id of another system.
const SHORT_MAX: usize = 4096;
/// Of a notice or a reply.
const TEXT_MAX: usize = 4 * MAX_TEXT;

/// See the module.
#[derive(Debug, Clone, PartialEq)]
pub struct History {
    /// Whose state it is.
    pub agent: AgentRow,
    /// Its states, oldest first, each the next one's parent.
    pub snapshots: Vec<SnapshotRow>,
    /// By their place in the conversation.
    pub messages: Vec<MessageRow>,
    /// Oldest first.
    pub ticks: Vec<TickRow>,
    /// What the thread was told.
    pub replies: Vec<ReplyRow>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Record {
    Agent(Box<AgentRow>),
    Snapshot(SnapshotRow),
    Message(MessageRow),
    Tick(Box<TickRow>),
    Reply(ReplyRow),
}

/// The agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentRow {
    /// See [`FORM`].
    pub form: u32,
    /// Its id.
    pub id: AgentId,
    /// Profile name.
    pub profile: String,
    /// The reference that was given in place of the profile's.
    pub sandbox: Option<SandboxRef>,
    /// The engine's id of its image.
    pub image: String,
    /// The agent's ids in its files.
    pub uid: u32,
    /// See `uid`.
    pub gid: u32,
    /// Whether the first layer is the base.
    pub base: bool,
    /// Unix ms.
    pub created_at: i64,
}

/// One state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SnapshotRow {
    /// Its id.
    pub id: SnapshotId,
    /// The tick that made it.
    pub tick: Option<TickId>,
    /// The image's layer that it adds, counted from 0; none where the tick changed nothing.
    pub layer: Option<u32>,
    /// The agent program's session for exactly these files.
    pub session: Option<String>,
    /// Unix ms.
    pub created_at: i64,
}

/// One message that has its outcome.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MessageRow {
    /// Its id.
    pub id: MessageId,
    /// Who wrote it.
    pub author: Author,
    /// What was written.
    pub text: String,
    /// Image for its tick only.
    pub sandbox: Option<SandboxRef>,
    /// Unix ms.
    pub created_at: i64,
    /// Interrupted ticks.
    pub attempts: u32,
    /// What became of it.
    pub outcome: MessageOutcome,
    /// Why it is parked or withdrawn.
    pub reason: Option<String>,
    /// The message whose tick it became part of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merged_into: Option<MessageId>,
    /// Whoever wrote what its author only passes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub words_of: Option<Author>,
    /// Unix ms.
    pub settled_at: Option<i64>,
}

/// One tick that is over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TickRow {
    /// Its id.
    pub id: TickId,
    /// For which message.
    pub message: MessageId,
    /// The tick it is a re-run of.
    pub retry_of: Option<TickId>,
    /// Where it ended.
    pub phase: String,
    /// How it ended.
    pub outcome: TickOutcome,
    /// Whether files were kept.
    pub changes: Option<Changes>,
    /// In place of a plain answer.
    pub notice: Option<String>,
    /// Exit code.
    pub exit_code: Option<i64>,
    /// `none` or `possible`.
    pub effects: String,
    /// The state it started from.
    pub before: Option<SnapshotId>,
    /// The state it left.
    pub after: Option<SnapshotId>,
    /// The engine's image id.
    pub image: Option<String>,
    /// What the seal dropped or stripped.
    pub notes: Vec<String>,
    /// Milliseconds per phase.
    pub phase_ms: [i64; 5],
    /// Bytes written by the program.
    pub output_bytes: i64,
    /// Bytes of its layer.
    pub layer_bytes: i64,
    /// Entries of its layer.
    pub layer_inodes: i64,
    /// Unix ms.
    pub started_at: i64,
    /// Unix ms.
    pub ended_at: Option<i64>,
}

/// What the thread was told about a message; files are not carried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplyRow {
    /// Which message.
    pub message: MessageId,
    /// The tick that made it.
    pub tick: Option<TickId>,
    /// Whether it is the agent's own answer, or a notice.
    pub answer: bool,
    /// Markdown.
    pub text: String,
    /// Unix ms.
    pub created_at: i64,
}

impl History {
    /// One record a line.
    pub fn to_lines(&self) -> Vec<u8> {
        let agent = [Record::Agent(Box::new(self.agent.clone()))].into_iter();
        let snapshots = self.snapshots.iter().cloned().map(Record::Snapshot);
        let messages = self.messages.iter().cloned().map(Record::Message);
        let ticks = self.ticks.iter().cloned();
        let ticks = ticks.map(|tick| Record::Tick(Box::new(tick)));
        let replies = self.replies.iter().cloned().map(Record::Reply);
        let all = agent.chain(snapshots).chain(messages).chain(ticks);
        let mut out = Vec::new();
        for record in all.chain(replies) {
            out.extend(serde_json::to_vec(&record).expect("records are plain"));
            out.push(b'\n');
        }
        out
    }

    /// The way back. `layers` is how many layers of files the image has.
    pub fn read(mut lines: impl BufRead, layers: usize) -> Result<History, OciError> {
        let (mut history, mut line, mut bytes) = (None, Vec::new(), 0);
        for at in 1.. {
            let bad = |reason: String| OciError::bad(format!("record {at}"), reason);
            line.clear();
            let most = LINE_MAX as u64 + 1;
            let length = (&mut lines).take(most).read_until(b'\n', &mut line);
            let length = length.map_err(|error| bad(error.to_string()))?;
            bytes += length;
            if length == 0 {
                break;
            }
            if line.len() > LINE_MAX || at > RECORDS_MAX || bytes > BYTES_MAX {
                return Err(OciError::Limit(format!("record {at} is one too many")));
            }
            if line == b"\n" {
                continue;
            }
            let record = serde_json::from_slice(&line);
            let record: Record = record.map_err(|error| bad(error.to_string()))?;
            add(&mut history, record).map_err(|reason| bad(reason.to_owned()))?;
        }
        let history = history.ok_or_else(|| OciError::bad("the records", "there are none"))?;
        history.check(layers)?;
        Ok(history)
    }

    fn check(&self, layers: usize) -> Result<(), OciError> {
        let ok = |right: bool, what: &str| match right {
            true => Ok(()),
            false => Err(OciError::bad("the records", what)),
        };
        let agent = &self.agent;
        if agent.form != FORM {
            return Err(OciError::Version(agent.form.to_string()));
        }
        let image: Result<SandboxRef, _> = format!("docker:{}", agent.image).parse();
        ok(image.is_ok(), "the image is no image id")?;
        let person = |id: u32| id != 0 && id != u32::MAX;
        ok(
            person(agent.uid),
            "the agent's user id is not one an agent may have",
        )?;
        ok(agent.gid != u32::MAX, "the agent's group id is none")?;
        ok(short(&agent.profile), "the profile's name is too long")?;
        self.check_states(layers)?;
        let messages: HashSet<_> = self.messages.iter().map(|row| row.id).collect();
        ok(
            messages.len() == self.messages.len(),
            "two messages have one id",
        )?;
        let states: HashSet<_> = self.snapshots.iter().map(|row| row.id).collect();
        let state = |id: &Option<SnapshotId>| id.is_none_or(|id| states.contains(&id));
        let mut ticks = HashSet::new();
        for tick in &self.ticks {
            ok(ticks.insert(tick.id), "two ticks have one id")?;
            ok(messages.contains(&tick.message), "a tick has no message")?;
            ok(
                state(&tick.before) && state(&tick.after),
                "a tick has no state",
            )?;
            ok(short(&tick.phase), "a tick's phase is too long")?;
            let effects = ["none", "possible"].contains(&tick.effects.as_str());
            ok(effects, "a tick's effects are of no known kind")?;
        }
        for row in &self.snapshots {
            let known = row.tick.is_none_or(|tick| ticks.contains(&tick));
            ok(known, "a state has no tick")?;
        }
        let merged = self.messages.iter().filter(|row| row.merged_into.is_some());
        let merged: HashSet<_> = merged.map(|row| row.id).collect();
        for row in &self.messages {
            ok(row.text.len() <= MAX_TEXT, "a message is too long")?;
            let stands = |first| messages.contains(&first) && !merged.contains(&first);
            let right = row
                .merged_into
                .is_none_or(|first| row.outcome == MessageOutcome::Merged && stands(first));
            ok(right, "a message is part of none that stands for itself")?;
            let mut authors = std::iter::once(&row.author).chain(&row.words_of);
            let author = authors.all(|author| short(&author.id) && short(&author.name));
            ok(
                author,
                "an author's name is too long, or holds control characters",
            )?;
        }
        for row in &self.replies {
            ok(messages.contains(&row.message), "a reply has no message")?;
            let known = row.tick.is_none_or(|tick| ticks.contains(&tick));
            ok(known, "a reply has no tick")?;
            ok(row.text.len() <= TEXT_MAX, "a reply is too long")?;
        }
        Ok(())
    }

    fn check_states(&self, layers: usize) -> Result<(), OciError> {
        let bad = |what: &str| Err(OciError::bad("the records", what));
        let mut next = usize::from(self.agent.base);
        let mut seen = HashSet::new();
        for row in &self.snapshots {
            if !seen.insert(row.id) {
                return bad("two states have one id");
            }
            match row.layer {
                Some(layer) if layer as usize == next => next += 1,
                Some(_) => return bad("a state's layer is out of order"),
                None => {}
            }
            if row.session.as_ref().is_some_and(|session| !short(session)) {
                return bad("a session's id is too long");
            }
        }
        match next == layers {
            true => Ok(()),
            false => bad("there are layers that belong to no state"),
        }
    }
}

/// Held at once: what many small parts would make of few bytes is refused record by record.
fn add(history: &mut Option<History>, record: Record) -> Result<(), &'static str> {
    match (record, history) {
        (Record::Agent(row), history @ None) => {
            *history = Some(History {
                agent: *row,
                snapshots: Vec::new(),
                messages: Vec::new(),
                ticks: Vec::new(),
                replies: Vec::new(),
            });
        }
        (_, None) => return Err("the agent's is missing"),
        (Record::Agent(_), Some(_)) => return Err("a second agent"),
        (Record::Tick(row), Some(_)) if row.notes.len() > NOTES_MAX => {
            return Err("the tick has too many notes");
        }
        (Record::Tick(row), Some(history)) => history.ticks.push(*row),
        (Record::Snapshot(row), Some(history)) => history.snapshots.push(row),
        (Record::Message(row), Some(history)) => history.messages.push(row),
        (Record::Reply(row), Some(history)) => history.replies.push(row),
    }
    Ok(())
}

fn short(text: &str) -> bool {
    text.len() <= SHORT_MAX && !text.contains(char::is_control)
}
