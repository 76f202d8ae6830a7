//! Who wrote a message.

use serde::{Deserialize, Serialize};

use crate::attachment::is_hidden;

/// Most characters of a name that are shown.
const LONGEST: usize = 64;

/// A person or program on a platform. Data, never trusted text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Author {
    /// The platform's own id; identity.
    pub id: String,
    /// The name shown to people; decoration.
    pub name: String,
}

impl Author {
    /// Whoever holds the installation's token or its socket.
    pub fn local(name: impl Into<String>) -> Self {
        let name = name.into();
        Author {
            id: name.clone(),
            name,
        }
    }

    /// The name on one line, without what cannot be seen, at most 64 characters; the id where nothing
    /// is left of it.
    pub fn shown_name(&self) -> String {
        let name = plain(&self.name);
        match name.is_empty() {
            true => self.shown_id(),
            false => name,
        }
    }

    /// The id by the same rule.
    pub fn shown_id(&self) -> String {
        plain(&self.id)
    }
}

fn plain(text: &str) -> String {
    let spaced = text.chars().map(|c| match c.is_whitespace() {
        true => ' ',
        false => c,
    });
    let seen: String = spaced.filter(|c| !is_hidden(*c)).collect();
    let words: Vec<&str> = seen.split(' ').filter(|word| !word.is_empty()).collect();
    let line: String = words.join(" ").chars().take(LONGEST).collect();
    line.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_short_line_that_hides_nothing() {
        let shown = |name: &str| {
            let id = "U1".to_owned();
            let name = name.to_owned();
            Author { id, name }.shown_name()
        };
        assert_eq!(shown(" Ada\n\tLove\u{202e}lace\u{200b} "), "Ada Lovelace");
        assert_eq!(shown("\u{202e}\u{e0041}\n"), "U1");
        assert_eq!(shown(&"é".repeat(100)).chars().count(), LONGEST);
    }
}
