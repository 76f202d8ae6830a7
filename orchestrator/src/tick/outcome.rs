//! How a tick ends.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How a tick ended, as stored and shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum TickOutcome {
    /// The program answered.
    Done,
    /// The program or the seal failed.
    Failed,
    /// A time limit ended it.
    TimedOut,
    /// A budget or disk limit ended it.
    OverBudget,
    /// A person ended it.
    Cancelled,
    /// The sandbox, the worker or the engine went away; the message may run again.
    Interrupted,
}

impl TickOutcome {
    const ALL: [TickOutcome; 6] = [
        TickOutcome::Done,
        TickOutcome::Failed,
        TickOutcome::TimedOut,
        TickOutcome::OverBudget,
        TickOutcome::Cancelled,
        TickOutcome::Interrupted,
    ];

    /// As stored.
    pub fn as_str(self) -> &'static str {
        match self {
            TickOutcome::Done => "done",
            TickOutcome::Failed => "failed",
            TickOutcome::TimedOut => "timed_out",
            TickOutcome::OverBudget => "over_budget",
            TickOutcome::Cancelled => "cancelled",
            TickOutcome::Interrupted => "interrupted",
        }
    }

    /// From its stored form.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|outcome| outcome.as_str() == text)
    }
}

/// Whether a tick's files became part of the head; said in every notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Changes {
    /// The head moved to this tick's state.
    Kept,
    /// The head stayed.
    Discarded,
}

impl Changes {
    /// As stored, and as said in a notice: `changes kept`.
    pub fn as_str(self) -> &'static str {
        match self {
            Changes::Kept => "kept",
            Changes::Discarded => "discarded",
        }
    }

    /// From its stored form.
    pub fn parse(text: &str) -> Option<Self> {
        [Changes::Kept, Changes::Discarded]
            .into_iter()
            .find(|changes| changes.as_str() == text)
    }
}
