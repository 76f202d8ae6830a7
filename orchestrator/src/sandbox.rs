//! One live instance of an agent's container, behind the seam `Backend`.
//!
//! Everything a sandbox needs is in its [`SandboxSpec`], everything it leaves behind is in its
//! [`Names`], which are written to the database before anything is created. There is one teardown
//! path, [`Backend::remove`]: only its `Ok` proves that nothing can write to the slots any more.
//!
//! To add a backend: a file beside `docker.rs` that implements [`Backend`] (the conversation with
//! init is `control::open`, the sockets' rules are in `sockets`), a line in `tests/backend.rs`, and
//! its construction in the binary's `wire.rs`.

pub mod absent;
pub mod control;
pub mod disk;
pub mod docker;
pub mod fake;
pub mod image;
pub mod init;
pub mod sockets;
pub mod spec;
mod walk;

use std::path::{Path, PathBuf};

use async_trait::async_trait;
use mayfly_domain::{InstallationId, SandboxRef};

pub use control::{Control, ControlError, Notices};
pub use image::{BaseFacts, Image};
pub use spec::{Names, SandboxSpec, SlotMount};

/// Who made something on the engine: its labels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// Of all that this installation made, on whichever host.
    pub installation: InstallationId,
    /// Of what this worker made: several may share an engine.
    pub worker: String,
}

/// What the worker knows of its engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Engine {
    /// `docker` or `fake`.
    pub kind: &'static str,
    /// The engine's version, as it tells it.
    pub version: String,
    /// The engine's own identity; a data dir is bound to it.
    pub id: String,
}

/// A sandbox whose init is ready and whose program is not started.
#[derive(Debug)]
pub struct Live {
    /// Sends orders to init.
    pub control: Control,
    /// What init tells; ends when the sandbox does.
    pub notices: Notices,
    /// Init's process id on this host, to look at open files; `None` where it cannot be known.
    pub init_pid: Option<u32>,
}

/// A thing found on the engine that carries its owner's labels and name prefix.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Found {
    /// A container, by name.
    Container(String),
    /// A volume, by name.
    Volume(String),
}

impl Found {
    /// As names to remove.
    pub fn names(&self) -> Names {
        match self {
            Found::Container(name) => Names {
                container: name.clone(),
                ..Names::none()
            },
            Found::Volume(name) => Names {
                volumes: vec![name.clone()],
                ..Names::none()
            },
        }
    }
}

/// What the engine tells of an image that it keeps.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Kept {
    /// The name by which a registry gives exactly this image again; none where no registry can.
    pub registry: Option<String>,
    /// About the size of its archive.
    pub bytes: u64,
}

/// What gives an image again that the engine has lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// A registry, asked by a name that holds the content's digest.
    Registry(String),
    /// An archive that [`Backend::archive`] wrote.
    Archive(PathBuf),
}

/// Why the engine did not do as asked.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    /// No engine answers. Not an attempt: the lane waits.
    #[error("the container engine at {address} does not answer")]
    Down {
        /// Where it was looked for.
        address: String,
        /// What the connection said.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// This process has none.
    #[error(
        "this process speaks with chat platforms only (role bot): ask for it on the host of a worker"
    )]
    Absent,
    /// Another engine answers than the one the data dir belongs to. Not an attempt: the lane waits.
    #[error(
        "another container engine answers than the one of this data dir: give the old one its data \
         back, or stop mayfly and run `mayfly adopt` if what it held is gone for good"
    )]
    OtherEngine,
    /// The image is not on this host and could not be fetched. Not an attempt: the lane waits.
    #[error(
        "image {0} is not on this host: pull it, build it with deploy/images/build, or name another"
    )]
    NoImage(String),
    /// Its sandboxes failed one after the other. Not an attempt: the lane waits.
    #[error(
        "sandboxes of image {image} do not start: mend the image or name another, it is tried again by itself; \
         the last time {reason}"
    )]
    Failing {
        /// The image.
        image: String,
        /// What the last one met.
        reason: String,
    },
    /// The image's id is not the promised one.
    #[error("image {name} is now {found}, {wanted} was asked for")]
    OtherImage {
        /// The name asked for.
        name: String,
        /// The id asked for.
        wanted: String,
        /// The id found.
        found: String,
    },
    /// The image cannot be used safely.
    #[error("image {image} cannot be used: {reason}")]
    BadImage {
        /// The image.
        image: String,
        /// Why and what to do, in one sentence.
        reason: String,
    },
    /// The engine took the request and failed.
    #[error("the container engine could not {action} {name}")]
    Failed {
        /// For example `create container`.
        action: &'static str,
        /// What it was about.
        name: String,
        /// What the engine said.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The sandbox started and init did not become ready.
    #[error("sandbox {name} did not become ready: {reason}")]
    NotReady {
        /// Container name.
        name: String,
        /// Init's exit code in words, or what was missing.
        reason: String,
    },
}

impl BackendError {
    /// Whether the engine of this data dir does not answer; another one may.
    pub fn is_away(&self) -> bool {
        matches!(self, BackendError::Down { .. } | BackendError::OtherEngine)
    }
}

/// What a removal met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removal {
    /// All of it was there.
    Whole,
    /// The engine did not know some of it, as an engine does that never had it.
    SomeUnknown,
}

/// A container engine. Real: Docker. Shipped for tests and `--simulate`: the fake.
#[async_trait]
pub trait Backend: Send + Sync + 'static {
    /// Who answers, or that nobody does.
    async fn engine(&self) -> Result<Engine, BackendError>;

    /// Finds the image a reference names and what the tick must know of it: id, user, VOLUMEs.
    async fn resolve(&self, reference: &SandboxRef) -> Result<Image, BackendError>;

    /// Copies each slot's folder as the image has it to `into/<slot name>`, and the image's
    /// passwd and group with the agent's line to `into/passwd` and `into/group`. `into` exists
    /// and is empty; devices and setuid bits are already stripped when this returns; a slot
    /// folder that the image lacks, or that somebody else owns, belongs to the agent. The image is
    /// kept (see [`Backend::keep`]). An image that would lose what agents write is refused: a
    /// `VOLUME` outside the slots or below one, a slot's folder that is a link.
    async fn extract_base(
        &self,
        owner: &Owner,
        image: &Image,
        slots: &[(String, String)],
        into: &Path,
    ) -> Result<BaseFacts, BackendError>;

    /// Marks an image, by id, as used by an installation, so that a prune keeps it: idle agents have no
    /// container, so the engine takes their image for unused. Repeatable.
    async fn keep(&self, installation: InstallationId, image: &str) -> Result<Kept, BackendError>;

    /// Takes back every mark of this installation but those of `in_use`. An image that nothing
    /// else names is then gone from the engine; one that a container uses keeps its mark.
    async fn release(
        &self,
        installation: InstallationId,
        in_use: &[String],
    ) -> Result<(), BackendError>;

    /// Writes an image, by id, to a file that does not exist yet. On an error the caller removes
    /// what is there; after `Ok` the file is whole and its data durable, its name is not yet.
    async fn archive(&self, image: &str, into: &Path) -> Result<(), BackendError>;

    /// Brings an image back. `Ok` only if the engine now has this very id.
    async fn restore(&self, image: &str, from: &Origin) -> Result<(), BackendError>;

    /// Creates and starts the sandbox and waits for init's `Ready`. On an error the caller still
    /// owes a [`Backend::remove`] of the names.
    async fn spawn(&self, spec: &SandboxSpec) -> Result<Live, BackendError>;

    /// Removes the container, then each slot's volume by a call of its own, then the sockets'
    /// folder. Repeatable; what is already gone counts as removed. `Ok` is the proof that nothing
    /// can write to the slots any more, if this is the engine that made them; retried with back-off
    /// for up to `patience`.
    async fn remove(
        &self,
        names: &Names,
        patience: std::time::Duration,
    ) -> Result<Removal, BackendError>;

    /// Everything on the engine that carries the labels and prefix of this owner. What has no worker's label
    /// was made before there were any, and is the installation's one worker's.
    async fn found(&self, owner: &Owner) -> Result<Vec<Found>, BackendError>;
}
