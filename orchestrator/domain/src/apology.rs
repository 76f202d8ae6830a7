//! Everything a person in a thread may be told when there is no reply.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Why a tick did not end with an answer. A closed set with a total `Display`: operators read the
/// chain of errors, people read this and a tick id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Apology {
    /// The program ended well and wrote nothing.
    NoAnswer,
    /// The program ended with a code other than 0.
    Exit {
        /// Exit code.
        code: i32,
        /// The last lines it wrote to standard error.
        stderr: String,
    },
    /// A signal nobody here sent ended the program.
    Killed {
        /// Signal number.
        signal: i32,
    },
    /// The memory limit was passed.
    OutOfMemory {
        /// The limit.
        memory_mib: u64,
    },
    /// The wall-clock limit was passed.
    TimedOut {
        /// The limit in seconds.
        wall_clock_s: u64,
    },
    /// Nothing was written within the first-output limit.
    NoFirstOutput {
        /// The limit in seconds.
        first_output_s: u64,
    },
    /// The tick wrote more than its profile allows.
    StateFull {
        /// The limit in words, for example `2048 MiB` or `200000 files`.
        limit: String,
    },
    /// The host's disk is nearly full.
    HostDiskFull,
    /// What the tick changed could not be sealed.
    NotSealed {
        /// Why, in one sentence.
        reason: String,
    },
    /// A person said `stop`.
    Stopped,
    /// A person said `stop all` before the message ran.
    Withdrawn,
    /// The program could not be started.
    NotStarted {
        /// Why, in one sentence.
        reason: String,
    },
    /// The message's files could not be handed to the program.
    NotReceived {
        /// Why, in one sentence.
        reason: String,
    },
    /// The sandbox or the host went away in the middle.
    Interrupted {
        /// Why, in one sentence.
        reason: String,
    },
    /// A layer or base that the state stands on is missing; the message waits for a person.
    PartMissing {
        /// Which, in words.
        part: String,
        /// Who made it and what can be done, in words.
        way_out: String,
    },
    /// The attempts are used up; the message waits for `mayfly parked retry`.
    GaveUp {
        /// How often it was tried.
        attempts: u32,
        /// Why the last attempt ended.
        reason: String,
    },
    /// The engine or the image is missing; the message waits.
    Waiting {
        /// For what, in one sentence.
        reason: String,
    },
}

impl fmt::Display for Apology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Apology::NoAnswer => write!(f, "no answer"),
            Apology::Exit { code, .. } => write!(f, "exit {code}"),
            Apology::Killed { signal } => write!(f, "killed by signal {signal}"),
            Apology::OutOfMemory { memory_mib } => write!(f, "out of memory ({memory_mib} MiB)"),
            Apology::TimedOut { wall_clock_s } => {
                write!(f, "time limit of {wall_clock_s} s reached")
            }
            Apology::NoFirstOutput { first_output_s } => {
                write!(f, "the program wrote nothing for {first_output_s} s")
            }
            Apology::StateFull { limit } => write!(f, "disk limit of {limit} reached"),
            Apology::HostDiskFull => write!(f, "the host's disk is nearly full"),
            Apology::NotSealed { reason } => write!(f, "the changes could not be kept: {reason}"),
            Apology::Stopped => write!(f, "stopped"),
            Apology::Withdrawn => write!(f, "withdrawn before it ran"),
            Apology::NotStarted { reason } => write!(f, "the program did not start: {reason}"),
            Apology::NotReceived { reason } => {
                write!(f, "the message's files could not be handed over: {reason}")
            }
            Apology::Interrupted { reason } => write!(f, "interrupted: {reason}"),
            Apology::PartMissing { part, way_out } => {
                write!(f, "{part} of this state is missing{way_out}")
            }
            Apology::GaveUp { attempts, reason } => {
                write!(
                    f,
                    "gave up after {attempts} attempts: {reason}; an operator can run it again"
                )
            }
            Apology::Waiting { reason } => write!(f, "waiting: {reason}"),
        }
    }
}

impl Apology {
    /// What helps to understand it, word for word from the program; empty if there is nothing.
    pub fn detail(&self) -> &str {
        match self {
            Apology::Exit { stderr, .. } => stderr,
            _ => "",
        }
    }
}
