//! What it would take on this disk to bring here what only the layer store has.

use mayfly_domain::{AgentId, BaseId, BlobHash, LayerId, TickId};

use super::{DepotError, Travel};
use crate::agent::transcript;

impl Travel {
    /// Bytes of a layer; 0 where it is here, or nobody knows of it.
    pub(crate) async fn lacks_of_layer(&self, layer: &LayerId) -> Result<u64, DepotError> {
        if self.store.present(layer) {
            return Ok(0);
        }
        let found = self.db.layer_is(layer).await?;
        Ok(found.map_or(0, |found| found.bytes))
    }

    /// The same of a base.
    pub(crate) async fn lacks_of_base(&self, base: &BaseId) -> Result<u64, DepotError> {
        if base.is_promised() || self.store.base_dir(base).is_dir() {
            return Ok(0);
        }
        let found = self.db.base_is(base).await?;
        Ok(found.map_or(0, |found| found.bytes))
    }

    /// The same of a transcript.
    pub(crate) async fn lacks_of_transcript(
        &self,
        agent: AgentId,
        tick: TickId,
    ) -> Result<u64, DepotError> {
        if transcript::path(&self.data_dir, agent, tick).exists() {
            return Ok(0);
        }
        let found = self.db.transcript_is(tick).await?;
        Ok(found.map_or(0, |parcel| parcel.size))
    }

    /// The same of a file that is not here.
    pub(crate) async fn lacks_of_blob(&self, hash: &BlobHash) -> Result<u64, DepotError> {
        let found = self.found_blob(hash).await?;
        Ok(found.map_or(0, |(_, size)| size))
    }
}
