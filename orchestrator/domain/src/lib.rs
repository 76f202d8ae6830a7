#![doc = include_str!("../README.md")]
#![warn(missing_docs)]

mod apology;
mod attachment;
mod author;
pub mod chat;
mod event;
mod id;
mod inbox;
mod limits;
mod message;
mod reply;
mod sandbox_ref;
#[cfg(feature = "schema")]
mod schema;
mod thread;

pub use apology::Apology;
pub use attachment::{
    Attachment, AttachmentError, AttachmentLimits, NewFile, file_names, free_name,
};
pub use author::Author;
pub use event::{Channel, Event, Happened, Place, PostId, Posted, Pressed, RemoteFile, Twin};
#[cfg(feature = "faults")]
pub use id::simulated;
pub use id::{
    AgentId, BaseId, BlobHash, DeliveryId, IdError, InstallationId, LayerId, MessageId, SnapshotId,
    ThreadId, TickId,
};
pub use inbox::{Accepted, Arrival, Inbox, InboxError, Incoming, Link, Mark, Recent};
pub use limits::Limits;
pub use message::{MAX_TEXT, MessageOutcome, NewMessage, TextError, check_caption, check_text};
pub use reply::{Reply, ReplyFile};
pub use sandbox_ref::{SandboxRef, SandboxRefError};
pub use thread::ThreadKey;
