//! What a person may say, and what becomes of it.

use serde::{Deserialize, Serialize};

use crate::{Author, SandboxRef};

/// Most bytes in one message's text: 1 MiB. Longer content belongs into a file.
pub const MAX_TEXT: usize = 1 << 20;

/// A message on its way in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewMessage {
    /// What was written; see [`check_text`].
    pub text: String,
    /// Who wrote it.
    pub author: Author,
    /// Runs this message's tick in another image; files and identity stay.
    pub sandbox: Option<SandboxRef>,
}

/// Why a text cannot be a message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TextError {
    /// Nothing was said.
    #[error("the message is empty: write some text")]
    Empty,
    /// Past [`MAX_TEXT`].
    #[error("the message has {0} bytes, at most {MAX_TEXT} fit: send long content as a file")]
    TooLong(usize),
    /// Programs and databases cut text at a NUL.
    #[error("the message holds a NUL byte at offset {0}: send binary content as a file")]
    Nul(usize),
    /// The bytes are no text.
    #[error("the message is not valid UTF-8 at offset {0}: send binary content as a file")]
    NotUtf8(usize),
}

/// Judges raw bytes as a message's text.
pub fn check_text(bytes: &[u8]) -> Result<&str, TextError> {
    if bytes.len() > MAX_TEXT {
        return Err(TextError::TooLong(bytes.len()));
    }
    let text =
        std::str::from_utf8(bytes).map_err(|error| TextError::NotUtf8(error.valid_up_to()))?;
    if let Some(offset) = bytes.iter().position(|byte| *byte == 0) {
        return Err(TextError::Nul(offset));
    }
    if text.trim().is_empty() {
        return Err(TextError::Empty);
    }
    Ok(text)
}

/// The one visible outcome of an accepted message (promise P1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum MessageOutcome {
    /// The agent's reply is owed or posted.
    Answered,
    /// A notice says why there is no reply.
    Noticed,
    /// It runs as part of another message.
    Merged,
    /// Its author, or `stop all`, took it back.
    Withdrawn,
    /// It waits for a person, with a reason.
    Parked,
}

impl MessageOutcome {
    /// As stored.
    pub fn as_str(self) -> &'static str {
        match self {
            MessageOutcome::Answered => "answered",
            MessageOutcome::Noticed => "noticed",
            MessageOutcome::Merged => "merged",
            MessageOutcome::Withdrawn => "withdrawn",
            MessageOutcome::Parked => "parked",
        }
    }

    /// From its stored form.
    pub fn parse(text: &str) -> Option<Self> {
        use MessageOutcome::*;
        [Answered, Noticed, Merged, Withdrawn, Parked]
            .into_iter()
            .find(|o| o.as_str() == text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_text_is_refused_by_name() {
        assert_eq!(check_text(b""), Err(TextError::Empty));
        assert_eq!(check_text(b" \n\t"), Err(TextError::Empty));
        assert_eq!(check_text(b"a\0b"), Err(TextError::Nul(1)));
        assert_eq!(check_text(b"ab\xff"), Err(TextError::NotUtf8(2)));
        assert_eq!(
            check_text(&vec![b'a'; MAX_TEXT + 1]),
            Err(TextError::TooLong(MAX_TEXT + 1))
        );
        assert!(check_text(&vec![b'a'; MAX_TEXT]).is_ok());
    }
}
