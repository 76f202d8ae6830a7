//! Agent programs: what they are made from, how the worker speaks with them, what they said.
//!
//! To add a protocol: one file below `agent/`, one variant of [`profile::ProtocolKind`], one arm
//! in [`protocol`], and its line in the contract suite.

pub mod plain;
pub mod profile;
pub mod prompt;
pub mod transcript;

use async_trait::async_trait;
use mayfly_init::protocol::Start;

use crate::sandbox::{Control, ControlError};

pub use prompt::{Prompt, Said};

/// How the worker speaks with a kind of program.
#[async_trait]
pub trait Protocol: Send + Sync {
    /// Hands the prompt to a program that has just started. Chat text is data: it goes by
    /// standard input, never as an argument.
    async fn prompt(&self, control: &Control, id: u32, prompt: &Prompt)
    -> Result<(), ControlError>;

    /// The reply in what the program wrote.
    fn reply(&self, output: &Output) -> String;
}

/// Everything a program wrote, with its middle cut where it passed the cap.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Output {
    /// Standard output.
    pub stdout: Captured,
    /// Standard error.
    pub stderr: Captured,
}

/// One stream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Captured {
    /// From the beginning.
    pub head: Vec<u8>,
    /// Bytes left out between head and tail.
    pub cut: u64,
    /// Up to the end, where something was left out.
    pub tail: Vec<u8>,
}

impl Captured {
    /// Adds bytes in the order init sends them.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.cut == 0 {
            &mut self.head
        } else {
            &mut self.tail
        }
        .extend_from_slice(bytes);
    }

    /// Bytes the program wrote, the cut ones counted.
    pub fn total(&self) -> u64 {
        self.head.len() as u64 + self.cut + self.tail.len() as u64
    }

    /// As text for people; bytes that are no UTF-8 are replaced, the cut is said.
    pub fn text(&self) -> String {
        let mut text = String::from_utf8_lossy(&self.head).into_owned();
        if self.cut > 0 {
            text.push_str(&format!("\n[… {} bytes left out …]\n", self.cut));
            text.push_str(&String::from_utf8_lossy(&self.tail));
        }
        text
    }

    /// The last lines, at most this many bytes.
    pub fn last(&self, bytes: usize) -> String {
        let text = self.text();
        let text = text.trim();
        let mut from = text.len().saturating_sub(bytes);
        while !text.is_char_boundary(from) {
            from += 1;
        }
        text[from..].to_owned()
    }
}

/// The protocol of a profile.
pub fn protocol(kind: profile::ProtocolKind) -> &'static dyn Protocol {
    match kind {
        profile::ProtocolKind::Plain => &plain::Plain,
    }
}

/// How a program is started: the profile's command in the agent's home world.
pub fn start(profile: &profile::Profile, image_env: &[(String, String)]) -> Start {
    let mut env: std::collections::BTreeMap<String, String> = image_env.iter().cloned().collect();
    env.entry("PATH".to_owned()).or_insert_with(|| {
        "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_owned()
    });
    env.insert("HOME".to_owned(), "/home/agent".to_owned());
    env.insert("USER".to_owned(), "agent".to_owned());
    env.extend(profile.env.clone());
    let half = profile.limits.output_bytes / 2;
    Start {
        argv: profile.command.clone(),
        env: env.into_iter().collect(),
        cwd: "/work".to_owned(),
        head: profile.limits.output_bytes - half,
        tail: half,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_of_long_output_is_left_out_and_its_size_told() {
        let mut captured = Captured::default();
        captured.push(b"start");
        captured.cut = 7;
        captured.push(b"end");
        assert_eq!(captured.text(), "start\n[… 7 bytes left out …]\nend");
        assert_eq!(captured.total(), 15);
        assert_eq!(captured.last(3), "end");
    }
}
