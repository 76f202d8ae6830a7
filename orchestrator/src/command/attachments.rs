//! Files of messages and of replies: in before a message names them, out again at any time. Their
//! content passes piece by piece.

use std::time::Duration;

use mayfly_domain::{Attachment, AttachmentError, AttachmentLimits, BlobHash, MessageId};
use tokio::sync::OwnedSemaphorePermit;

use super::{Commands, RequestError, internal, not_found};
use crate::{
    blobs::{BlobError, Incoming, Outgoing},
    db::shown::ShownMessage,
    faults,
    view::UploadView,
};

/// Uploads at once; others wait a little for their turn. Each holds a piece in memory.
pub(super) const UPLOADS: usize = 8;

/// How long one waits for its turn.
const TURN: Duration = Duration::from_secs(5);

/// A file on its way in; dropped, it leaves nothing.
pub struct Upload {
    commands: Commands,
    incoming: Incoming,
    /// Bytes at which the disk is looked at next.
    look: u64,
    _turn: OwnedSemaphorePermit,
}

/// How often an upload looks at the disk.
const LOOK: u64 = 8 << 20;

/// A file on its way out.
pub struct Fetched {
    /// What it is.
    pub file: Attachment,
    /// Its bytes.
    pub content: Outgoing,
}

impl Commands {
    /// What people may attach.
    pub fn attachment_limits(&self) -> AttachmentLimits {
        self.limits
    }

    /// Begins an upload of `told` bytes, where that is known.
    pub async fn begin_upload(&self, told: Option<u64>) -> Result<Upload, RequestError> {
        self.check_upload(told.unwrap_or(0))?;
        self.check_disk(told.unwrap_or(0))?;
        let turn = tokio::time::timeout(TURN, self.uploads.clone().acquire_owned()).await;
        let turn = turn
            .map_err(|_| busy())?
            .map_err(|error| internal(&error))?;
        Ok(Upload {
            incoming: self.blobs.begin().await?,
            commands: self.clone(),
            look: LOOK,
            _turn: turn,
        })
    }

    /// The n-th file that came with a message, from 0.
    pub async fn attachment(&self, id: MessageId, n: usize) -> Result<Fetched, RequestError> {
        let file = self.message_shown(id).await?.files.into_iter().nth(n);
        self.fetch(id, n, file).await
    }

    /// The n-th file that was sent in reply to a message, from 0.
    pub async fn reply_file(&self, id: MessageId, n: usize) -> Result<Fetched, RequestError> {
        let reply = self.message_shown(id).await?.reply;
        let file = reply.and_then(|reply| reply.files.into_iter().nth(n));
        let file = file.map(|file| Attachment {
            name: file.name,
            blob: file.blob,
            size: file.size,
        });
        self.fetch(id, n, file).await
    }

    async fn message_shown(&self, id: MessageId) -> Result<ShownMessage, RequestError> {
        let shown = self.db.shown_message(id).await?;
        shown.ok_or_else(|| not_found("message", id, ""))
    }

    async fn fetch(
        &self,
        id: MessageId,
        n: usize,
        file: Option<Attachment>,
    ) -> Result<Fetched, RequestError> {
        let hint = format!(
            " of message {}: it lists its files, counted from 0",
            id.short()
        );
        let file = file.ok_or_else(|| not_found("file", n, hint))?;
        let content = self.blobs.read(&file.blob).await?;
        if content.size != file.size {
            let (blob, size, wanted) = (&file.blob, content.size, file.size);
            let told = format!("blob {blob} has {size} bytes in place of {wanted}");
            return Err(internal(&*Box::<dyn std::error::Error>::from(told)));
        }
        Ok(Fetched { file, content })
    }

    fn check_upload(&self, bytes: u64) -> Result<(), RequestError> {
        match bytes > self.limits.file_bytes() {
            true => Err(AttachmentError::UploadTooLarge {
                most_mib: self.limits.file_mib,
            }
            .into()),
            false => Ok(()),
        }
    }

    fn check_disk(&self, bytes: u64) -> Result<(), RequestError> {
        match self.host_disk.has_room_for(bytes) {
            true => Ok(()),
            false => Err(full()),
        }
    }
}

impl Upload {
    /// More of its content.
    pub async fn push(&mut self, bytes: &[u8]) -> Result<(), RequestError> {
        let size = self.incoming.size() + bytes.len() as u64;
        self.commands.check_upload(size)?;
        if size >= self.look {
            self.commands.check_disk(LOOK)?;
            self.look = size + LOOK;
        }
        Ok(self.incoming.push(bytes).await?)
    }

    /// It is whole: durable, and free to be named by a message, when this returns.
    pub async fn finish(self) -> Result<UploadView, RequestError> {
        // Until it has its row its age keeps it.
        let (blob, size): (BlobHash, u64) = self.incoming.finish().await?;
        faults::point("upload.stored");
        self.commands.db.record_upload(&blob, size).await?;
        Ok(UploadView { blob, size })
    }
}

fn busy() -> RequestError {
    RequestError::Unavailable(format!(
        "{UPLOADS} files are on their way in already, and more do not come at once: send it again in a moment"
    ))
}

fn full() -> RequestError {
    RequestError::Unavailable(
        "the disk of the data dir is nearly full: free some space on it, then send the file again"
            .to_owned(),
    )
}

impl From<BlobError> for RequestError {
    fn from(error: BlobError) -> Self {
        match error.is_full() {
            true => full(),
            false => internal(&error),
        }
    }
}

impl From<AttachmentError> for RequestError {
    fn from(error: AttachmentError) -> Self {
        match &error {
            AttachmentError::TooLarge { .. }
            | AttachmentError::TooMuch { .. }
            | AttachmentError::UploadTooLarge { .. } => RequestError::TooLarge(error.to_string()),
            AttachmentError::TooMany { .. } => RequestError::Invalid(error.to_string()),
            AttachmentError::Unknown(_) => RequestError::Conflict(error.to_string()),
        }
    }
}
