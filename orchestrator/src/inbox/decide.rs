//! What an event means for the messages there are: pure, the same for all platforms.

use std::time::Duration;

use mayfly_domain::{MessageId, Place, Posted, RemoteFile};

use super::access::Verdict;

/// A post whose twin may still come waits so long (Slack sends them about 250 ms apart).
pub const TWIN: Duration = Duration::from_millis(800);
/// An album is whole when nothing of it came for so long.
pub const ALBUM: Duration = Duration::from_millis(1200);

/// How far a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// No tick of it has started.
    Waits,
    /// It was claimed, and no program of it runs: its tick still makes its sandbox, or has to run again.
    Opening,
    /// Its program runs.
    Begun,
    /// It has its outcome.
    Settled,
}

/// A message that a post is part of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// Which.
    pub message: MessageId,
    /// How far it is.
    pub progress: Progress,
}

/// What is known when a post's event comes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    /// What earlier events told of the same post, and what it became part of.
    pub post: Option<(Posted, Option<Part>)>,
    /// The message that other posts of its group are part of.
    pub group: Option<Part>,
    /// An agent belongs to its thread.
    pub bound: bool,
    /// Whether its author may speak here.
    pub verdict: Verdict,
    /// Messages of programs in a row in its thread, and how many there may be.
    pub bot_turns: (u32, u32),
    /// It was written so long ago that nobody waits for an answer.
    pub late: bool,
}

/// What becomes of a post.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Becomes {
    /// A message of its own, which may start after this time.
    Message {
        /// From now.
        after: Duration,
    },
    /// Part of a message that waits; the message may start after this time.
    Joins {
        /// Which.
        message: MessageId,
        /// Files it did not have.
        files: Vec<RemoteFile>,
        /// Text to be added on a line of its own.
        text: Option<String>,
        /// From now.
        after: Duration,
    },
    /// A message that is not run: it comes long after it was written.
    Parked,
    /// Nothing but a word to us: its author is told what can be said.
    Prompted,
    /// Part of a message whose program does not run yet: a tick that was begun begins anew.
    Restarts {
        /// Which.
        message: MessageId,
        /// Files it did not have.
        files: Vec<RemoteFile>,
        /// Text to be added on a line of its own.
        text: Option<String>,
    },
    /// Too late for its message: what is new becomes one more message.
    FollowsUp {
        /// Files that came late.
        files: Vec<RemoteFile>,
        /// Text that came late; of a post that was told before there is none.
        text: String,
    },
}

/// Why a post is not for us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// It is told again, with nothing new.
    Repeated,
    /// Nobody spoke to us.
    NotToUs,
    /// The channel is not served.
    ClosedChannel,
    /// Its author may not speak here.
    Stranger,
    /// Programs have spoken to each other often enough.
    BotTurns,
    /// There is neither text nor file.
    Empty,
}

impl Why {
    /// As stored.
    pub fn as_str(self) -> &'static str {
        match self {
            Why::Repeated => "repeated",
            Why::NotToUs => "not to us",
            Why::ClosedChannel => "channel not served",
            Why::Stranger => "author not allowed",
            Why::BotTurns => "too many messages of programs in a row",
            Why::Empty => "empty",
        }
    }
}

/// What two events tell of one post: a mention in either counts, files are joined by their ids, a
/// text is kept from the one that has it.
pub fn joined(earlier: &Posted, later: &Posted) -> Posted {
    let mut whole = earlier.clone();
    whole.to_us |= later.to_us;
    whole.files.extend(new_files(earlier, later));
    if whole.text.is_empty() {
        whole.text.clone_from(&later.text);
    }
    if later.twin != earlier.twin {
        whole.twin = None;
    }
    whole
}

/// What becomes of a post by the event that has come, or why nothing does for now: a later event about
/// it may change that.
pub fn posted(known: &Known, event: &Posted) -> Result<Becomes, Why> {
    let whole = match &known.post {
        Some((earlier, _)) => joined(earlier, event),
        None => event.clone(),
    };
    if let Some((earlier, Some(part))) = &known.post {
        let files = new_files(earlier, event);
        let completed = whole.twin.is_none() && earlier.twin.is_some();
        return match part.progress {
            Progress::Waits if completed || !files.is_empty() => Ok(Becomes::Joins {
                message: part.message,
                files,
                text: None,
                after: patience(&whole),
            }),
            Progress::Opening if !files.is_empty() => Ok(Becomes::Restarts {
                message: part.message,
                files,
                text: None,
            }),
            Progress::Begun | Progress::Settled if !files.is_empty() => Ok(Becomes::FollowsUp {
                files,
                text: String::new(),
            }),
            _ => Err(Why::Repeated),
        };
    }
    if !is_for_us(known, &whole) {
        return Err(Why::NotToUs);
    }
    match refusal(known, &whole) {
        None => {}
        Some(Why::Empty) if is_call(known, &whole) => return Ok(Becomes::Prompted),
        Some(why) => return Err(why),
    }
    Ok(match known.group {
        Some(Part {
            message,
            progress: Progress::Waits,
        }) => Becomes::Joins {
            message,
            text: Some(whole.text.clone()).filter(|text| !text.is_empty()),
            files: whole.files.clone(),
            after: ALBUM,
        },
        Some(Part {
            message,
            progress: Progress::Opening,
        }) => Becomes::Restarts {
            message,
            text: Some(whole.text.clone()).filter(|text| !text.is_empty()),
            files: whole.files.clone(),
        },
        Some(_) => Becomes::FollowsUp {
            files: whole.files,
            text: whole.text,
        },
        None if known.late => Becomes::Parked,
        None => Becomes::Message {
            after: patience(&whole),
        },
    })
}

/// What an edit means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Edit {
    /// Nothing: by somebody else, without a new text, or too late without a mention.
    Nothing,
    /// The message that waits says this now.
    Replaces(MessageId),
    /// It came too late and speaks to us again: a message of its own.
    Message,
}

/// What becomes of an edit of a post that is part of a message.
pub fn edited(earlier: &Posted, part: Part, event: &Posted) -> Edit {
    let changed = earlier.author.id == event.author.id && earlier.text != event.text;
    match part.progress {
        _ if !changed || event.text.trim().is_empty() => Edit::Nothing,
        Progress::Waits => Edit::Replaces(part.message),
        _ if event.to_us && event.place != Place::Direct => Edit::Message,
        _ => Edit::Nothing,
    }
}

fn is_for_us(known: &Known, whole: &Posted) -> bool {
    known.group.is_some()
        || known.bound && whole.place == Place::Thread
        || whole.to_us
        || whole.place == Place::Direct
}

fn refusal(known: &Known, whole: &Posted) -> Option<Why> {
    match known.verdict {
        Verdict::ClosedChannel => return Some(Why::ClosedChannel),
        Verdict::Stranger => return Some(Why::Stranger),
        Verdict::May => {}
    }
    let (turns, most) = known.bot_turns;
    if whole.by_bot && turns >= most {
        return Some(Why::BotTurns);
    }
    (whole.text.trim().is_empty() && whole.files.is_empty()).then_some(Why::Empty)
}

/// Somebody calls us and says nothing. What a twin may bring is waited for.
fn is_call(known: &Known, whole: &Posted) -> bool {
    let calls = whole.to_us || whole.place == Place::Direct;
    calls && !whole.by_bot && !known.late && known.group.is_none() && whole.twin.is_none()
}

fn patience(whole: &Posted) -> Duration {
    match (&whole.group, whole.twin) {
        (Some(_), _) => ALBUM,
        (None, Some(_)) => TWIN,
        (None, None) => Duration::ZERO,
    }
}

fn new_files(earlier: &Posted, later: &Posted) -> Vec<RemoteFile> {
    let known = |file: &&RemoteFile| earlier.files.iter().all(|had| had.id != file.id);
    later.files.iter().filter(known).cloned().collect()
}
