//! The evidence of a tick: numbered lines of a closed set, written outside as it happens, append
//! only, bounded.

pub mod tail;

use std::{
    fs::{DirBuilder, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use mayfly_domain::{AgentId, TickId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::clock;

/// One numbered event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
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
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
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

impl Event {
    /// Its kind, as written.
    pub fn kind(&self) -> &'static str {
        match self {
            Event::Prompt { .. } => "prompt",
            Event::Started { .. } => "started",
            Event::Stdout { .. } => "stdout",
            Event::Stderr { .. } => "stderr",
            Event::Cut { .. } => "cut",
            Event::Asked { .. } => "asked",
            Event::Exit { .. } => "exit",
            Event::Note { .. } => "note",
            Event::Full => "full",
        }
    }
}

/// Where a tick's transcript lies.
pub fn path(data_dir: &Path, agent: AgentId, tick: TickId) -> PathBuf {
    data_dir
        .join("transcripts")
        .join(agent.to_string())
        .join(format!("{tick}.jsonl"))
}

/// Appends lines; each is on its way to disk when `write` returns.
#[derive(Debug)]
pub struct Transcript {
    file: File,
    next: u64,
    left: u64,
    full: bool,
}

/// Kept free of the cap, so that the end is always told.
const RESERVE: u64 = 4096;

impl Transcript {
    /// A new transcript of at most `cap` bytes.
    pub fn create(path: &Path, cap: u64) -> io::Result<Transcript> {
        let folder = path.parent().unwrap_or(Path::new("/"));
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)?;
        let file = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(path)?;
        Ok(Transcript {
            file,
            next: 1,
            left: cap.max(RESERVE) - RESERVE,
            full: false,
        })
    }

    /// Appends one line, or the mark that the cap is reached.
    pub fn write(&mut self, event: Event) -> io::Result<()> {
        let closes = matches!(event, Event::Exit { .. } | Event::Asked { .. });
        if self.full && !closes {
            return Ok(());
        }
        let line = self.render(event);
        if line.len() as u64 > self.left && !closes {
            self.full = true;
            let mark = self.render(Event::Full);
            return self.append(&mark);
        }
        self.left = self.left.saturating_sub(line.len() as u64);
        self.append(&line)
    }

    /// Makes what was written durable.
    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn render(&self, event: Event) -> Vec<u8> {
        let line = Line {
            n: self.next,
            at: clock::unix_ms(),
            event,
        };
        let mut bytes = serde_json::to_vec(&line).expect("events are plain");
        bytes.push(b'\n');
        bytes
    }

    fn append(&mut self, line: &[u8]) -> io::Result<()> {
        self.file.write_all(line)?;
        self.next += 1;
        Ok(())
    }
}

/// Reads a transcript; a last line that a crash cut short is left out.
pub fn read(path: &Path) -> io::Result<Vec<Line>> {
    let bytes = match std::fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    Ok(bytes
        .split(|byte| *byte == b'\n')
        .filter_map(|line| serde_json::from_slice(line).ok())
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transcript_is_bounded_and_its_end_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/t.jsonl");
        let mut transcript = Transcript::create(&path, RESERVE + 300).unwrap();
        for _ in 0..10 {
            transcript
                .write(Event::Stdout {
                    text: "x".repeat(80),
                })
                .unwrap();
        }
        transcript
            .write(Event::Exit {
                code: Some(0),
                signal: None,
            })
            .unwrap();
        let lines = read(&path).unwrap();
        assert!(lines.len() < 8, "{}", lines.len());
        assert!(lines.iter().any(|line| line.event == Event::Full));
        assert_eq!(
            lines.last().unwrap().event,
            Event::Exit {
                code: Some(0),
                signal: None
            }
        );
        assert!(
            lines
                .iter()
                .enumerate()
                .all(|(i, line)| line.n == i as u64 + 1)
        );
    }
}
