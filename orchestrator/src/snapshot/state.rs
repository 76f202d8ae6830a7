//! What a state is made of, for readers.

use std::path::PathBuf;

use mayfly_domain::{BaseId, LayerId};

use super::{Store, StoreError};

/// A base and the layers on it, oldest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    /// The image's own files.
    pub base: BaseId,
    /// What ticks added.
    pub layers: Vec<LayerId>,
}

impl State {
    /// The lower folders of one slot, topmost first. A layer that lacks is an error: without it
    /// another state would be shown.
    pub(super) fn roots(&self, store: &Store, slot: &str) -> Result<Vec<PathBuf>, StoreError> {
        match self.layers.iter().find(|layer| !store.present(layer)) {
            None => Ok(store.lowers(&self.base, &self.layers, slot)),
            Some(layer) => Err(StoreError::Missing {
                layer: layer.clone(),
            }),
        }
    }
}
