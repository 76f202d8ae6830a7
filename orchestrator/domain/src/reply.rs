//! What an agent answers.

use serde::{Deserialize, Serialize};

use crate::BlobHash;

/// A reply owed to a thread.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply {
    /// Markdown.
    pub text: String,
    /// Files of this tick, already in the blob store.
    pub files: Vec<ReplyFile>,
}

/// A file sent with a reply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ReplyFile {
    /// Name without folders, as people see it.
    pub name: String,
    /// Where its content is.
    pub blob: BlobHash,
    /// Bytes.
    pub size: u64,
}
