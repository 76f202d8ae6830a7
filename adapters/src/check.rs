//! What `mayfly doctor` asks of a platform.

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// For example `slack: scopes of the bot token`.
    pub what: String,
    /// What was found, or what is wrong with the way out, in a sentence.
    pub result: Result<String, String>,
}

impl Check {
    /// It is as it should be.
    pub fn good(what: impl Into<String>, found: impl Into<String>) -> Check {
        Check {
            what: what.into(),
            result: Ok(found.into()),
        }
    }

    /// It is not.
    pub fn bad(what: impl Into<String>, sentence: impl Into<String>) -> Check {
        Check {
            what: what.into(),
            result: Err(sentence.into()),
        }
    }
}
