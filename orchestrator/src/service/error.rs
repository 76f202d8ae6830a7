//! Why a service does not start.

use std::{io, path::PathBuf};

use crate::{
    blobs::BlobError, clock::LEASE, db::DbError, queue::QueueError, snapshot::StoreError,
    tick::TickError, worker::reserves::TooLarge,
};

/// Why a service does not start. `Display` is one sentence for a person.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The database.
    #[error(transparent)]
    Db(#[from] DbError),
    /// The queue.
    #[error(transparent)]
    Queue(#[from] QueueError),
    /// The folders.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The blob store.
    #[error(transparent)]
    Blobs(#[from] BlobError),
    /// A file of the data dir.
    #[error("{path}: {source}")]
    File {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The layer store, as configured.
    #[error("the layer store: {0}")]
    Depot(String),
    /// The folder of the layer store is not there: it comes with its file system.
    #[error("the layer store's folder {path} is not there: mount it, or correct store.url")]
    NoStore {
        /// Which.
        path: PathBuf,
    },
    /// The data dir is bound to another place.
    #[error(
        "data dir {data_dir} was made {elsewhere}: if it is a copy or has moved for good, run `mayfly adopt`; never run both"
    )]
    Copied {
        /// Here.
        data_dir: PathBuf,
        /// `on another machine`, `at /other/path`, `with another container engine`.
        elsewhere: String,
    },
    /// One of two processes keeps the queue, or the files, to itself.
    #[error(
        "database {database} is in use by another mayfly (worker {worker}), and two need one queue and one store for files: name a Redis in [queue] url and the store in [store] url of both; or end that one first, of one that died it is free after {} s",
        LEASE.as_secs()
    )]
    Alone {
        /// Which database.
        database: String,
        /// Whose lease holds.
        worker: String,
    },
    /// What is to be adopted is not dead.
    #[error(
        "database {database} is in use by another mayfly as worker {worker}, which this data dir is too: end that one first; of one that died it is free after {} s",
        LEASE.as_secs()
    )]
    InUse {
        /// Which database.
        database: String,
        /// Whose lease holds.
        worker: String,
    },
    /// Nothing to adopt.
    #[error("data dir {data_dir} is at home here: there is nothing to adopt")]
    AtHome {
        /// Here.
        data_dir: PathBuf,
    },
    /// Real agents would run on pretended sandboxes, or the other way round.
    #[error(
        "data dir {data_dir} is for {belongs}: name another with --data-dir, or use `mayfly serve{flag}`"
    )]
    OtherKind {
        /// Here.
        data_dir: PathBuf,
        /// `simulated agents` or `real agents`.
        belongs: &'static str,
        /// With which it would start.
        flag: &'static str,
    },
    /// The database asks for a newer program.
    #[error(
        "data dir {data_dir} needs mayfly {needs} or later, this is {ours}: install that version, or restore the backup made before its upgrade"
    )]
    TooOld {
        /// Here.
        data_dir: PathBuf,
        /// The stored minimum.
        needs: String,
        /// This program.
        ours: &'static str,
    },
    /// A profile's limits are beyond the host.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
    /// What an earlier start left could not be closed.
    #[error("an earlier start could not be cleaned up after")]
    Reconcile(#[source] Box<TickError>),
}
