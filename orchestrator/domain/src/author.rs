//! Who wrote a message.

use serde::{Deserialize, Serialize};

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
}
