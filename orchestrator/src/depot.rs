//! The layer store: a bucket, or a folder that several workers share, so that a state outlives the disk
//! it was made on. Without one everything is local, and nothing of this is done.
//!
//! ```text
//! mayfly-store                          whose it is
//! layers/<layer>.<sha256>               a sealed layer, packed
//! bases/<base>.<sha256>                 the slots of an image, packed
//! transcripts/<agent>/<tick>.<sha256>   the evidence of a closed tick
//! blobs/<2>/<sha256>                    a file
//! anew/<sha256>/<id>                    a file that was put while somebody may have been removing it
//! ```
//!
//! An object's name holds the digest of its bytes, so what comes back is compared with what was put. It
//! holds the layer's id too: that id is never used again, so whoever removes an object late removes
//! nothing that somebody has put there anew.
//!
//! The folders of `data_dir` are the cache of it: [`cache`] says what may leave them.

pub mod cache;
mod config;
mod evidence;
mod gate;
mod http;
pub mod keep;
mod lack;
mod objects;
pub mod sweep;
pub mod travel;

pub use config::StoreConfig;
pub use objects::{Object, Objects};
pub use travel::Travel;

use crate::{
    db::DbError,
    snapshot::{StoreError, oci::OciError},
};

/// So often an object is unpacked in vain until it counts as lost.
pub(crate) const TRIES: u32 = 3;
/// So often it comes with other bytes: what is between here and the store may cut all for a while, half a minute of pauses.
pub(crate) const WRONG_TRIES: u32 = 6;

/// Why something did not get into the layer store, or out of it.
#[derive(Debug, thiserror::Error)]
pub enum DepotError {
    /// It does not answer, or refuses: it is asked again, ever more slowly.
    #[error("the layer store {store} {reason}")]
    Away {
        /// Which.
        store: String,
        /// What it said.
        reason: String,
    },
    /// It answers, and what it gives is not what was put there.
    #[error("the layer store {store} gives {object} not as it was put there: {reason}")]
    Wrong {
        /// Which.
        store: String,
        /// The object's name.
        object: String,
        /// How often it was so in a row.
        tries: u32,
        /// How it shows.
        reason: String,
    },
    /// It gives what was put there, and that is nothing that can be unpacked.
    #[error(
        "{object} of the layer store {store} cannot be unpacked, tried {tries} times: {reason}"
    )]
    Unusable {
        /// Which.
        store: String,
        /// The object's name.
        object: String,
        /// How often it was tried in a row.
        tries: u32,
        /// Why.
        reason: String,
    },
    /// It has no such object.
    #[error("the layer store {store} has no {object} any more")]
    Lacks {
        /// Which.
        store: String,
        /// The object's name.
        object: String,
    },
    /// It answers, and may not or will not remove this.
    #[error("{object} stays in the layer store {store}, which {reason}")]
    NotRemoved {
        /// Which.
        store: String,
        /// The object's name.
        object: String,
        /// What it said.
        reason: String,
    },
    /// There is none, and a row says that something is in one.
    #[error("{object} is in a layer store, and none is configured: set store.url")]
    NotConfigured {
        /// What.
        object: String,
    },
    /// It lies with whoever made it, and is not in the store yet.
    #[error("{object} is not in the layer store yet: try again in a minute")]
    NotStored {
        /// What.
        object: String,
    },
    /// The only copy is on a worker that has not stored it yet.
    #[error("the only copy of layer {layer} is on worker {worker}, which has not stored it yet")]
    Elsewhere {
        /// Which.
        layer: mayfly_domain::LayerId,
        /// Who has it.
        worker: String,
        /// For how long nothing was heard of that worker; none where there is none of that name.
        silence: Option<std::time::Duration>,
    },
    /// Our own disk has no room for it.
    #[error("{0}")]
    NoRoom(String),
    /// A file of ours could not be read or written.
    #[error("{path}: {source}")]
    File {
        /// Which.
        path: std::path::PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// It could not be packed or unpacked.
    #[error(transparent)]
    Oci(#[from] OciError),
    /// The folders.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The rows.
    #[error(transparent)]
    Db(#[from] DbError),
    /// A helper panicked.
    #[error("a part of the layer store panicked: {0}")]
    Panic(String),
}

impl DepotError {
    /// Whether nobody has it, or what there is of it is good for nothing: whoever reads it later gets no more. What
    /// comes with other bytes than were put once may have been cut on its way.
    pub(crate) fn is_lost(&self) -> bool {
        match self {
            DepotError::Lacks { .. }
            | DepotError::Elsewhere { .. }
            | DepotError::Store(StoreError::Missing { .. }) => true,
            DepotError::Wrong { tries, .. } => *tries >= WRONG_TRIES,
            DepotError::Unusable { tries, .. } => *tries >= TRIES,
            _ => false,
        }
    }

    /// Whether the store answers, and what it says of this object is of no use.
    pub(crate) fn is_of_object(&self) -> bool {
        matches!(
            self,
            DepotError::Lacks { .. } | DepotError::Wrong { .. } | DepotError::Unusable { .. }
        )
    }

    /// Whether the store itself is at fault, so that waiting may help.
    pub fn is_away(&self) -> bool {
        match self {
            DepotError::Away { .. } => true,
            DepotError::Wrong { tries, .. } => *tries < WRONG_TRIES,
            // Its rows are asked before it.
            DepotError::Db(error) => error.is_down(),
            _ => false,
        }
    }
}

/// Runs blocking work of the layer store.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, DepotError> + Send + 'static,
) -> Result<T, DepotError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|panic| DepotError::Panic(panic.to_string()))?
}
