//! Exit codes, and the only place that ends the process before `main` returns.

use std::{collections::BTreeMap, process::ExitCode};

use mayfly_domain::MessageOutcome;
use mayfly_orchestrator::command::RequestError;

/// How `mayfly` ended. The numbers are an interface: they are only ever added to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    Ok = 0,
    CheckFailed = 1,
    Usage = 2,
    NotFound = 3,
    Refused = 4,
    Configuration = 5,
    DataDir = 6,
    Unavailable = 7,
    Notice = 8,
    Timeout = 9,
    Internal = 10,
    Parked = 11,
    Unknown = 12,
    NotRoot = 13,
    Damaged = 14,
    NoBackup = 15,
    Interrupted = 130,
}

impl Exit {
    const ALL: [(Exit, &str); 17] = [
        (Exit::Ok, "done; for a message: answered"),
        (
            Exit::CheckFailed,
            "doctor found something that must be mended",
        ),
        (Exit::Usage, "the command line cannot be understood"),
        (
            Exit::NotFound,
            "no such agent, tick, message or profile, or several fit",
        ),
        (
            Exit::Refused,
            "not now, or not like this: a bad message, a running tick, forks",
        ),
        (
            Exit::Configuration,
            "mayfly.toml or the environment is wrong",
        ),
        (
            Exit::DataDir,
            "the data dir cannot be used: in use, foreign, read-only, bad path, copied, newer",
        ),
        (
            Exit::Unavailable,
            "the container engine or an image is missing, the server does not answer, or the disk is full",
        ),
        (
            Exit::Notice,
            "the message ended with a notice instead of an answer, or was withdrawn",
        ),
        (
            Exit::Timeout,
            "--timeout is over; the message is still on its way",
        ),
        (
            Exit::Internal,
            "a fault of Mayfly; standard error has the reason",
        ),
        (
            Exit::Parked,
            "the message waits for a person: mayfly parked list",
        ),
        (
            Exit::Unknown,
            "the server went away while it was asked to change something: look whether it did",
        ),
        (Exit::NotRoot, "only root can run agents"),
        (
            Exit::Damaged,
            "a backup or a layer is damaged; standard error names the file",
        ),
        (
            Exit::NoBackup,
            "the folder is no whole backup: unfinished, something else, or of a newer version",
        ),
        (Exit::Interrupted, "interrupted by a signal"),
    ];

    /// One line per code, as `mayfly help exit-codes` prints it.
    pub fn table() -> String {
        let line = |(exit, meaning): &(Exit, &str)| format!("{:>5}  {meaning}\n", *exit as u8);
        Self::ALL.iter().map(line).collect()
    }

    /// The same by code, for programs.
    pub(crate) fn meanings() -> BTreeMap<u8, &'static str> {
        let entry = |(exit, meaning): &(Exit, &'static str)| (*exit as u8, *meaning);
        Self::ALL.iter().map(entry).collect()
    }

    /// Ends the process at once: for the second signal, when a person no longer wants to wait.
    #[allow(clippy::disallowed_methods)]
    pub fn now(self) -> ! {
        std::process::exit(i32::from(self as u8))
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit as u8)
    }
}

impl From<&RequestError> for Exit {
    fn from(error: &RequestError) -> Self {
        match error {
            RequestError::NotFound { .. } | RequestError::Ambiguous { .. } => Exit::NotFound,
            RequestError::Invalid(_) | RequestError::TooLarge(_) | RequestError::Conflict(_) => {
                Exit::Refused
            }
            RequestError::Unavailable(_) | RequestError::Unanswered(_) => Exit::Unavailable,
            RequestError::Internal(_) => Exit::Internal,
        }
    }
}

impl From<MessageOutcome> for Exit {
    fn from(outcome: MessageOutcome) -> Self {
        match outcome {
            MessageOutcome::Answered | MessageOutcome::Merged => Exit::Ok,
            MessageOutcome::Noticed | MessageOutcome::Withdrawn => Exit::Notice,
            MessageOutcome::Parked => Exit::Parked,
        }
    }
}

/// Why a command ended badly: the sentence for standard error and the code.
#[derive(Debug, thiserror::Error)]
#[error("{sentence}")]
pub struct Failure {
    pub exit: Exit,
    pub sentence: String,
    /// The server ended in between, and the command can be begun again without harm.
    pub server_gone: bool,
}

impl Failure {
    pub fn new(exit: Exit, sentence: impl ToString) -> Self {
        Failure {
            exit,
            sentence: sentence.to_string(),
            server_gone: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_documented_once() {
        let codes: std::collections::BTreeSet<u8> =
            Exit::ALL.iter().map(|(exit, _)| *exit as u8).collect();
        assert_eq!(codes.len(), Exit::ALL.len());
        assert!(Exit::table().contains("    9  --timeout is over"));
    }

    #[test]
    fn a_person_and_a_script_can_tell_outcomes_apart() {
        assert_eq!(Exit::from(MessageOutcome::Answered), Exit::Ok);
        assert_eq!(Exit::from(MessageOutcome::Noticed), Exit::Notice);
        assert_eq!(Exit::from(MessageOutcome::Parked), Exit::Parked);
    }
}
