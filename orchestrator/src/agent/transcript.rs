//! The evidence of a tick: numbered lines of a closed set, written outside as it happens, append
//! only, bounded.

use serde::{Deserialize, Serialize};

/// One numbered event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// From 1, without gaps.
    pub n: u64,
    /// Unix milliseconds.
    pub at: i64,
    /// What happened.
    #[serde(flatten)]
    pub event: Event,
}

/// What can happen in a tick.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The message as the program was given it.
    Prompt {
        /// What the program reads.
        text: String,
    },
    /// The program runs.
    Started {
        /// Program and arguments.
        argv: Vec<String>,
    },
    /// Text from standard output.
    Stdout {
        /// Bytes that are no UTF-8 are replaced.
        text: String,
    },
    /// Text from standard error.
    Stderr {
        /// Bytes that are no UTF-8 are replaced.
        text: String,
    },
    /// Output over the cap was left out here.
    Cut {
        /// Bytes left out.
        bytes: u64,
    },
    /// The program was asked to end.
    Asked {
        /// `interrupt`, `terminate` or `kill`.
        signal: String,
        /// Why.
        reason: String,
    },
    /// The program ended.
    Exit {
        /// Exit code.
        code: Option<i32>,
        /// Signal number.
        signal: Option<i32>,
    },
    /// Something worth knowing, for example an out-of-memory kill of a child.
    Note {
        /// One sentence.
        text: String,
    },
    /// The transcript's own cap is reached; nothing follows but the end.
    Full,
}
