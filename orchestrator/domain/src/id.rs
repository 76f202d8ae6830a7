//! Every identity is a type of its own: two kinds of id never meet in a signature.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Why a text is not an id of the wanted kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("\"{text}\" is not a {kind} id: {detail}")]
pub struct IdError {
    /// What was wanted, for example `agent`.
    pub kind: &'static str,
    /// What was given, cut to 64 characters.
    pub text: String,
    /// What would be right.
    pub detail: &'static str,
}

impl IdError {
    fn new(kind: &'static str, text: &str, detail: &'static str) -> Self {
        IdError {
            kind,
            text: text.chars().take(64).collect(),
            detail,
        }
    }
}

fn later() -> Uuid {
    #[cfg(feature = "faults")]
    if let Some(id) = simulated::later() {
        return id;
    }
    Uuid::now_v7()
}

fn random() -> Uuid {
    #[cfg(feature = "faults")]
    if let Some(id) = simulated::random() {
        return id;
    }
    Uuid::new_v4()
}

/// Ids that a simulation can make again, on its own thread only.
#[cfg(feature = "faults")]
pub mod simulated {
    use std::cell::Cell;

    use uuid::{Builder, Uuid};

    thread_local! {
        static NOW: Cell<Option<u64>> = const { Cell::new(None) };
        static MADE: Cell<u64> = const { Cell::new(0) };
    }

    /// From now on ids hold this time (unix ms) and how many were made before them, on this thread.
    pub fn set(unix_ms: u64) {
        NOW.set(Some(unix_ms));
    }

    /// The next id is the first one again.
    pub fn begin() {
        MADE.set(0);
    }

    pub(super) fn later() -> Option<Uuid> {
        let now = NOW.get()?;
        let mut tail = [0; 10];
        tail[2..].copy_from_slice(&next().to_be_bytes());
        Some(Builder::from_unix_timestamp_millis(now, &tail).into_uuid())
    }

    pub(super) fn random() -> Option<Uuid> {
        NOW.get()?;
        // Twelve digits of it are used.
        Some(Uuid::from_u128(u128::from(next()) << 80))
    }

    fn next() -> u64 {
        MADE.set(MADE.get() + 1);
        MADE.get()
    }
}

macro_rules! uuid_id {
    ($(#[$doc:meta])* $name:ident, $kind:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Uuid);

        impl $name {
            /// A new id; later ids sort after earlier ones (UUIDv7, RFC 9562).
            #[allow(clippy::new_without_default)]
            pub fn new() -> Self {
                $name(later())
            }

            /// The last 8 hexadecimal digits, as people read it.
            pub fn short(&self) -> String {
                let text = self.0.simple().to_string();
                text[text.len() - 8..].to_owned()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.hyphenated().fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                Uuid::parse_str(text)
                    .map($name)
                    .map_err(|_| IdError::new($kind, text, "a UUID is wanted"))
            }
        }
    };
}

uuid_id! {
    /// One agent. People may give any unique suffix of it.
    AgentId, "agent"
}
uuid_id! {
    /// One tick: one bounded revival of an agent for one message.
    TickId, "tick"
}
uuid_id! {
    /// One message: what arrivals add up to when its tick starts.
    MessageId, "message"
}
uuid_id! {
    /// One conversation on a platform.
    ThreadId, "thread"
}
uuid_id! {
    /// One immutable state: base, layers and the agent program's session.
    SnapshotId, "snapshot"
}
uuid_id! {
    /// One reply owed to a thread.
    DeliveryId, "delivery"
}
uuid_id! {
    /// One installation of Mayfly: its database and data dir.
    InstallationId, "installation"
}

macro_rules! short_id {
    ($(#[$doc:meta])* $name:ident, $kind:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// A new random id: 12 hexadecimal digits, short because overlay mount options must
            /// fit one page.
            #[allow(clippy::new_without_default)]
            pub fn new() -> Self {
                let random = random().simple().to_string();
                $name(random[..12].to_owned())
            }

            /// The id as text; also its folder's name.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                let hex = text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
                if text.len() == 12 && hex {
                    return Ok($name(text.to_owned()));
                }
                Err(IdError::new($kind, text, "12 lower-case hexadecimal digits are wanted"))
            }
        }

        impl TryFrom<String> for $name {
            type Error = IdError;
            fn try_from(text: String) -> Result<Self, IdError> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> String {
                id.0
            }
        }
    };
}

short_id! {
    /// The sealed difference one tick made.
    LayerId, "layer"
}
short_id! {
    /// The slots' content in one image.
    BaseId, "base"
}

/// A random id is this once in 2^48.
const PROMISED: &str = "000000000000";

impl BaseId {
    /// Stands for the base of an agent whose image was not looked at yet.
    pub fn promised() -> BaseId {
        BaseId(PROMISED.to_owned())
    }

    /// See [`BaseId::promised`].
    pub fn is_promised(&self) -> bool {
        self.0 == PROMISED
    }
}

/// The SHA-256 of a blob's content, 64 lower-case hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct BlobHash(String);

impl BlobHash {
    /// The hash as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for BlobHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for BlobHash {
    type Err = IdError;
    fn from_str(text: &str) -> Result<Self, IdError> {
        let hex = text
            .bytes()
            .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        if text.len() == 64 && hex {
            return Ok(BlobHash(text.to_owned()));
        }
        Err(IdError::new(
            "blob",
            text,
            "64 lower-case hexadecimal digits are wanted",
        ))
    }
}

impl TryFrom<String> for BlobHash {
    type Error = IdError;
    fn try_from(text: String) -> Result<Self, IdError> {
        text.parse()
    }
}

impl From<BlobHash> for String {
    fn from(hash: BlobHash) -> String {
        hash.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_short_form_is_the_end_of_the_long_one() {
        let id = AgentId::new();
        assert!(id.to_string().ends_with(&id.short()));
        assert_eq!(id.short().len(), 8);
    }

    #[test]
    fn a_folder_name_is_never_taken_for_a_layer() {
        for bad in ["", "..", "../../etc/x", "0123456789AB", "0123456789abc"] {
            assert!(bad.parse::<LayerId>().is_err(), "{bad}");
        }
        let id = LayerId::new();
        assert_eq!(id.as_str().parse(), Ok(id.clone()));
    }
}
