//! The installation as a whole.

use std::path::Path;

use tokio_util::sync::CancellationToken;

use super::{Commands, RequestError, internal};
use crate::backup::{
    self, BackupError, BackupView, Manifest, Parts,
    inspect::{self, LayersView},
};

impl Commands {
    /// Takes a backup into a new folder of this host, while everything goes on; given up where the
    /// caller goes away or `stopping` is cancelled.
    pub async fn backup(
        &self,
        into: &Path,
        with_images: bool,
        stopping: &CancellationToken,
    ) -> Result<BackupView, RequestError> {
        let stop = stopping.child_token();
        let _gone = stop.clone().drop_guard();
        let parts = Parts {
            db: self.db.clone(),
            data_dir: self.data_dir.clone(),
            backend: self.backend.clone(),
            installation: self.installation,
            host_disk: self.host_disk.clone(),
            travel: self.depot.clone(),
            blobs: self.blobs.clone(),
        };
        Ok(backup::take(parts, into, with_images, stop).await?)
    }

    /// Whether layers and bases are what their rows, and the digests of a backup, say.
    pub async fn layers(
        &self,
        against: Option<&Path>,
        stopping: &CancellationToken,
    ) -> Result<LayersView, RequestError> {
        let manifest = against.map(Manifest::read).transpose();
        let manifest = manifest.map_err(|error| RequestError::Invalid(error.to_string()))?;
        let stop = stopping.child_token();
        let _gone = stop.clone().drop_guard();
        let data_dir = self.data_dir.clone();
        let looked = inspect::layers(&self.db, data_dir, manifest, stop.clone()).await?;
        match stop.is_cancelled() {
            true => Err(RequestError::Unavailable(
                "the server stops: look at the layers again".to_owned(),
            )),
            false => Ok(looked),
        }
    }
}

impl From<BackupError> for RequestError {
    fn from(error: BackupError) -> Self {
        match error {
            BackupError::Target { .. } => RequestError::Conflict(error.to_string()),
            BackupError::NoRoom { .. }
            | BackupError::NoRoomToFetch { .. }
            | BackupError::Full(_)
            | BackupError::FileSystem(_)
            | BackupError::NotHere { .. }
            | BackupError::Stopped
            | BackupError::Image(_) => RequestError::Unavailable(error.to_string()),
            BackupError::Db(error) => error.into(),
            BackupError::Store(error) => internal(&error),
        }
    }
}
