//! Transcripts of closed ticks go into the store after the reply, and are read from there on a worker
//! that did not run the tick.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
};

use mayfly_domain::{AgentId, TickId};

use super::{DepotError, Object, Travel, blocking};
use crate::{
    agent::transcript,
    snapshot::oci::{Parcel, digest},
};

impl Travel {
    /// Puts the transcript of a closed tick of this worker.
    pub(super) async fn put_transcript(
        &self,
        tick: TickId,
        agent: AgentId,
        path: PathBuf,
    ) -> Result<(), DepotError> {
        let Some(objects) = &self.objects else {
            return Ok(());
        };
        let from = path.clone();
        let parcel = blocking(move || match File::open(&from) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            file => {
                let summed = file.and_then(digest);
                let (digest, size) =
                    summed.map_err(|source| DepotError::File { path: from, source })?;
                Ok(Some(Parcel { digest, size }))
            }
        })
        .await?;
        if let Some(parcel) = &parcel {
            let object = object(agent, tick, parcel.clone());
            objects.put(&object, &path).await?;
        }
        self.db.transcript_stored(tick, parcel.as_ref()).await?;
        Ok(())
    }

    /// Brings the transcript of a tick here that another worker ran. What is not stored yet, or was never
    /// written, stays missing.
    pub async fn fetch_transcript(&self, agent: AgentId, tick: TickId) -> Result<(), DepotError> {
        let path = transcript::path(&self.data_dir, agent, tick);
        let Some(objects) = self.objects.as_ref().filter(|_| !path.exists()) else {
            return Ok(());
        };
        let Some(parcel) = self.db.transcript_is(tick).await? else {
            return Ok(());
        };
        let store = self.store.clone();
        let staging = blocking(move || Ok(store.stage()?)).await?;
        let aside = staging.path().join("transcript");
        let object = object(agent, tick, parcel);
        objects.get(&object, &aside).await?;
        objects.was_good(&object);
        blocking(move || {
            place(&aside, &path).map_err(|source| DepotError::File { path, source })?;
            Ok(staging.end()?)
        })
        .await
    }
}

fn place(aside: &Path, path: &Path) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    File::open(aside)?.sync_all()?;
    fs::rename(aside, path)
}

fn object(agent: AgentId, tick: TickId, parcel: Parcel) -> Object {
    Object {
        name: format!("transcripts/{agent}/{tick}.{}", parcel.digest),
        parcel,
    }
}
