//! What faces can ask for: chat, command line, API and page call these functions and no others.

mod agents;
pub mod attachments;
mod backup;
pub mod follow;
mod history;
mod messages;
mod pairing;
pub mod portable;
mod states;

use std::{path::PathBuf, sync::Arc, time::Duration};

use mayfly_domain::{AttachmentLimits, Author, InstallationId, NewFile, SandboxRef};
use tokio::sync::{Mutex, RwLock, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::{
    agent::profile::Profiles,
    bases::Bases,
    bell::Bell,
    blobs::Blobs,
    db::{Db, DbError, ticks::Tick},
    depot,
    images::Images,
    inbox::{DurableInbox, route::Accesses},
    observe,
    queue::Lanes,
    retention::{Ask, Keeper},
    role::Role,
    sandbox::Backend,
    snapshot::{Store, StoreError},
    supervise::Supervisor,
    tick::TickError,
    trouble::{Source, Trouble},
    view::{GcView, ReadyView},
    worker::{Worker, host_disk::HostDisk, reserves::Reserves, running::Running},
};

/// A sandbox that is not removed for so long after its tick is told to the operator.
const STUCK: Duration = Duration::from_secs(5 * 60);
/// Whoever asks whether all is well waits so long for the database.
const SOON: Duration = Duration::from_secs(3);

/// Why a request was not carried out. `Display` is one sentence for a person: the thing, and the
/// way out.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// Nothing has this name or id.
    #[error("there is no {kind} \"{text}\"{hint}")]
    NotFound {
        /// `agent`, `tick`, `message` or `profile`.
        kind: &'static str,
        /// What was asked for.
        text: String,
        /// Empty, or ` (did you mean …?)`, or where to look.
        hint: String,
    },
    /// A suffix that several ids end with.
    #[error("\"{text}\" is the end of several {kind} ids: give more digits")]
    Ambiguous {
        /// What was looked for.
        kind: &'static str,
        /// What was given.
        text: String,
    },
    /// The request itself is wrong.
    #[error("{0}")]
    Invalid(String),
    /// More than may come in, or than there is room for.
    #[error("{0}")]
    TooLarge(String),
    /// Right, but not now.
    #[error("{0}")]
    Conflict(String),
    /// The engine, an image or the disk is missing.
    #[error("{0}")]
    Unavailable(String),
    /// The database did not answer: what was asked for is done, or not.
    #[error("{0}")]
    Unanswered(String),
    /// Ours to mend; the chain is logged.
    #[error("internal error: {0}")]
    Internal(String),
}

/// A new agent.
#[derive(Debug, Clone, Default)]
pub struct NewAgent {
    /// Profile name; `shell` if none.
    pub profile: Option<String>,
    /// Image in place of the profile's.
    pub sandbox: Option<SandboxRef>,
}

/// A message by command line, API or page.
#[derive(Debug, Clone)]
pub struct Send {
    /// What is said; may be empty where files come with it.
    pub text: String,
    /// What comes with it, uploaded before.
    pub files: Vec<NewFile>,
    /// Who says it.
    pub author: Author,
    /// A second send with the same key and agent is the first one again.
    pub idempotency_key: Option<String>,
    /// Image for this tick only.
    pub sandbox: Option<SandboxRef>,
}

/// Which messages `stop` means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopScope {
    /// The running tick.
    Running,
    /// Also those that wait.
    All,
}

/// The functions; cheap to clone.
#[derive(Clone)]
pub struct Commands {
    db: Db,
    store: Arc<Store>,
    backend: Arc<dyn Backend>,
    images: Images,
    bases: Bases,
    role: Role,
    inbox: DurableInbox,
    blobs: Blobs,
    limits: AttachmentLimits,
    uploads: Arc<Semaphore>,
    lanes: Lanes,
    reserves: Reserves,
    profiles: Arc<Profiles>,
    accesses: Arc<Accesses>,
    running: Running,
    bell: Bell,
    trouble: Trouble,
    begun: CancellationToken,
    keeper: Keeper,
    installation: InstallationId,
    data_dir: PathBuf,
    making: Arc<RwLock<()>>,
    host_disk: HostDisk,
    supervisor: Supervisor,
    /// Two imports of one archive must not both find its ids free.
    importing: Arc<Mutex<()>>,
    travel: Arc<portable::Travel>,
    depot: depot::Travel,
}

impl Commands {
    /// The functions over a worker's parts.
    pub fn new(worker: &Worker, limits: AttachmentLimits) -> Self {
        let tools = &worker.tools;
        Commands {
            db: tools.db.clone(),
            store: tools.store.clone(),
            backend: tools.backend.clone(),
            images: tools.images.clone(),
            bases: worker.bases.clone(),
            role: worker.role,
            inbox: worker.inbox(limits),
            blobs: tools.blobs.clone(),
            limits,
            uploads: Arc::new(Semaphore::new(attachments::UPLOADS)),
            lanes: worker.lanes.clone(),
            reserves: worker.places.reserves.clone(),
            profiles: worker.profiles.clone(),
            accesses: worker.accesses.clone(),
            running: tools.running.clone(),
            bell: worker.bell.clone(),
            trouble: worker.trouble.clone(),
            begun: worker.begun.clone(),
            keeper: tools.keeper.clone(),
            installation: tools.installation,
            data_dir: tools.data_dir.clone(),
            making: tools.making.clone(),
            host_disk: tools.host_disk.clone(),
            supervisor: tools.supervisor.clone(),
            importing: Arc::default(),
            travel: Arc::default(),
            depot: tools.travel.clone(),
        }
    }

    /// The inbox that platforms hand arrivals to.
    pub fn inbox(&self) -> &DurableInbox {
        &self.inbox
    }

    /// Whether messages would be run.
    pub async fn ready(&self) -> ReadyView {
        if self.role.has_engine() {
            match self.backend.engine().await {
                Ok(_) => self.trouble.clear(Source::Engine),
                Err(error) => self.trouble.raise(Source::Engine, error.to_string()),
            }
        }
        let mut problems = self.trouble.all();
        let mut warnings = Vec::new();
        match tokio::time::timeout(SOON, self.db.count_owed()).await {
            Ok(Ok(_)) => warnings = self.stuck().await,
            Ok(Err(error)) => problems.push(error.to_string()),
            Err(_) => problems.push("database: it does not answer".to_owned()),
        }
        ReadyView {
            ready: problems.is_empty(),
            problems,
            warnings,
        }
    }
}

impl Commands {
    /// Removes what nothing needs any more, or says what would go.
    pub async fn gc(&self, ask: Ask) -> Result<GcView, RequestError> {
        let view = match self.keeper.collect(ask).await {
            Ok(view) => view,
            Err(TickError::Db(error)) => return Err(error.into()),
            Err(error) => return Err(internal(&error)),
        };
        if !ask.dry_run && view.held.is_none() {
            // Beside this: there may be millions, and what is marked now goes in an hour.
            self.depot.list_again();
        }
        Ok(view)
    }

    /// Sandboxes whose removal has been tried for long; messages run all the same.
    async fn stuck(&self) -> Vec<String> {
        let before = self.db.now() - STUCK.as_millis() as i64;
        let stuck = self.db.unremoved().await.unwrap_or_default();
        let sentence = |tick: Tick| {
            format!(
                "the sandbox {} of tick {} cannot be removed: look at its container and volumes \
                 on the engine; restarting the engine mends most",
                tick.names.container,
                tick.id.short()
            )
        };
        let old = |tick: &Tick| tick.ended_at.is_some_and(|ended| ended < before);
        stuck.into_iter().filter(old).map(sentence).collect()
    }
}

impl From<DbError> for RequestError {
    fn from(error: DbError) -> Self {
        match error {
            error if error.is_full_at_server() => RequestError::Unavailable(
                "the disk of the PostgreSQL server is full: free some space on it, then ask again"
                    .to_owned(),
            ),
            error if error.is_full() => RequestError::Unavailable(
                "the disk of the data dir is full: free some space on it, then ask again"
                    .to_owned(),
            ),
            error if error.is_down() => {
                RequestError::Unanswered(format!("{error}: ask again in a moment"))
            }
            DbError::Over => RequestError::Unavailable(error.to_string()),
            DbError::NoCopy => RequestError::Conflict(error.to_string()),
            error => internal(&error),
        }
    }
}

impl From<StoreError> for RequestError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Missing { .. } => RequestError::Unavailable(error.to_string()),
            other => internal(&other),
        }
    }
}

/// Logged once, here; a person sees the first sentence.
pub(crate) fn internal(error: &dyn std::error::Error) -> RequestError {
    tracing::error!(error = observe::chain(error), "request failed");
    RequestError::Internal(error.to_string())
}

fn not_found(kind: &'static str, text: impl ToString, hint: impl ToString) -> RequestError {
    RequestError::NotFound {
        kind,
        text: text.to_string(),
        hint: hint.to_string(),
    }
}

/// One id out of those that end with what a person gave.
fn only<T: Copy>(
    kind: &'static str,
    text: &str,
    found: &[T],
    hint: &str,
) -> Result<T, RequestError> {
    match found {
        [one] => Ok(*one),
        [] => Err(not_found(kind, text, hint)),
        _ => Err(RequestError::Ambiguous {
            kind,
            text: text.to_owned(),
        }),
    }
}

/// Digits of an id's end by which something may be changed.
const TO_CHANGE: usize = 4;

/// What is changed wants more than the one or two digits that happen to be unique: a slip must not
/// name another.
fn enough(kind: &'static str, text: &str) -> Result<(), RequestError> {
    match text.chars().filter(|c| *c != '-').count() < TO_CHANGE {
        true => Err(RequestError::Invalid(format!(
            "\"{text}\" is too little to change something by: give at least the last {TO_CHANGE} \
             digits of the {kind}'s id"
        ))),
        false => Ok(()),
    }
}

/// The end of an id as a person writes it: hexadecimal digits, dashes ignored.
fn suffix(kind: &'static str, text: &str, hint: &str) -> Result<String, RequestError> {
    let digits: String = text
        .chars()
        .filter(|c| *c != '-')
        .collect::<String>()
        .to_lowercase();
    let hex = digits.chars().all(|c| c.is_ascii_hexdigit());
    if digits.is_empty() || digits.len() > 32 || !hex {
        let shown: String = text.chars().take(64).collect();
        return Err(not_found(kind, shown, hint));
    }
    Ok(digits)
}
