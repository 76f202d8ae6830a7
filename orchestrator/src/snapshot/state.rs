//! What a state is made of, for readers.

use std::path::PathBuf;

use mayfly_domain::{BaseId, LayerId};

use super::Store;

/// A base and the layers on it, oldest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    /// The image's own files.
    pub base: BaseId,
    /// What ticks added.
    pub layers: Vec<LayerId>,
}

impl State {
    /// The lower folders of one slot, topmost first.
    pub(super) fn roots(&self, store: &Store, slot: &str) -> Vec<PathBuf> {
        store.lowers(&self.base, &self.layers, slot)
    }
}
