//! The portable form of an agent: an OCI image layout, in a folder or a tar file.
//!
//! ```text
//! oci-layout  index.json  blobs/sha256/…
//!   config    labels dev.mayfly.form|agent|tick|parent|profile|session|image|sandbox|base
//!   layer 0   the base: etc/passwd, etc/group, home/agent/…, work/…   (unless left out)
//!   layer n   what the n-th tick changed: home/agent/…, work/…, with the specification's marks
//!   the last  .mayfly/history.jsonl, .mayfly/transcripts/<tick>.jsonl
//! ```
//!
//! The layout is an image that other tools read, but for its root file system: that stays with the
//! engine, named by the label `image`. Records travel as a layer because every tool that copies an
//! image copies its layers. One state has one form: entries sorted by the bytes of their paths,
//! numbers in octal or else as PAX records in a fixed order, times from the state itself.
//!
//! Kept: content, type, owner, mode, mtime, `user.*` attributes (not `user.overlay.*`) and access
//! lists, holes (a GNU sparse map 1.0), links within a layer and to what older layers show. Import
//! takes nothing on trust; what it refuses is an [`OciError`].

use super::{SealError, StoreError};

mod export;
mod header;
mod history;
mod image;
mod import;
mod layout;
mod links;
mod names;
mod pack;
mod parcel;
mod read;
mod sink;
mod sparse;
mod squeeze;
mod unpack;
mod write;

pub use export::{Export, Exported, TickLayer};
pub use history::{AgentRow, FORM, History, MessageRow, ReplyRow, SnapshotRow, TickRow};
pub use import::{Archive, Imported, Records};
pub use layout::receive;
pub use parcel::Parcel;
pub use read::TarError;
pub use sink::Output;
pub use squeeze::Compress;
pub(crate) use squeeze::digest;
pub use unpack::Budget;

/// The label that says which form it is.
pub const LABEL_FORM: &str = "dev.mayfly.form";

/// Why there is no export, or no import.
#[derive(Debug, thiserror::Error)]
pub enum OciError {
    /// Our own disk.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The stream of entries.
    #[error("the archive: {0}")]
    Tar(#[source] TarError),
    /// Something in the archive is not what it should be.
    #[error("{what}: {reason}")]
    Bad {
        /// Where: a document, a digest, an entry's path.
        what: String,
        /// Why.
        reason: String,
    },
    /// Written by a later version, or by somebody else.
    #[error("the archive is of form {0:?}, which this version does not read: upgrade mayfly")]
    Version(String),
    /// Larger than it may be.
    #[error("the archive is refused: {0}")]
    Limit(String),
}

/// How much of a hostile path is shown.
const SHOWN: usize = 200;

impl OciError {
    /// Whether it is what was written that is wrong, and not who reads it.
    pub(crate) fn is_of_content(&self) -> bool {
        matches!(
            self,
            OciError::Tar(_) | OciError::Bad { .. } | OciError::Version(_)
        )
    }

    fn bad(what: impl Into<String>, reason: impl Into<String>) -> OciError {
        OciError::Bad {
            what: what.into(),
            reason: reason.into(),
        }
    }

    fn entry(path: &[u8], reason: &str) -> OciError {
        let shown = &path[..path.len().min(SHOWN)];
        OciError::bad(format!("entry \"{}\"", shown.escape_ascii()), reason)
    }

    fn seal(error: SealError) -> OciError {
        match error {
            SealError::Store(error) => error.into(),
            other => OciError::bad("the layers", other.to_string()),
        }
    }
}

/// For tests and fuzzers: unpacks one tar stream as a layer, as an import would, into the new
/// folders `out/<slot>`.
pub fn unpack_into(
    stream: &[u8],
    out: &std::path::Path,
    slots: &[super::Slot],
    budget: &mut Budget<'_>,
) -> Result<Vec<String>, OciError> {
    let mut targets = Vec::new();
    for slot in slots {
        let (dir, aside) = (out.join(&slot.name), out.join(format!(".{}", slot.name)));
        super::begin::make(&dir)?;
        super::begin::make(&aside)?;
        targets.push(unpack::Target {
            prefix: export::prefix(slot),
            out: super::tree::Tree::open(&dir)?,
            below: Some(super::stack::Stack { trees: Vec::new() }),
            aside: super::tree::Tree::open(&aside)?.must(b"")?,
        });
    }
    let mut notes = super::notes::Notes::default();
    unpack::unpack(stream, &targets, &Vec::new(), budget, &mut notes)?;
    Ok(notes.finish())
}
