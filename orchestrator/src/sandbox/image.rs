//! What a tick must know of an image.

use serde::{Deserialize, Serialize};

/// A resolved image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    /// The engine's image id, `sha256:…`: identity.
    pub id: String,
    /// The reference it was found by, for people.
    pub name: String,
    /// The image's `USER`, verbatim.
    pub user: String,
    /// Folders the image declares as `VOLUME`.
    pub volumes: Vec<String>,
    /// The image's environment.
    pub env: Vec<(String, String)>,
}

/// What extracting a base told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BaseFacts {
    /// The agent's user id in this image, never 0.
    pub uid: u32,
    /// The agent's group id, never 0.
    pub gid: u32,
    /// Devices dropped, setuid bits stripped and the like; for people.
    pub notes: Vec<String>,
}
