//! A simulated backend for `--simulate` and tests: no engine, no processes, the real wire protocol.
//!
//! Each sandbox is a task that speaks as init does ([`guest`]), runs a small subset of `sh`
//! ([`shell`]) on files kept in memory ([`tree`]), and leaves its changes in the spec's uppers in
//! overlayfs form. It passes the conformance suite of real backends; what that suite cannot make
//! happen on demand is told to it by a [`Script`].

mod guest;
mod shell;
mod tree;

use std::{
    collections::{HashMap, HashSet, VecDeque},
    fs,
    os::unix::fs::{PermissionsExt, chown},
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use mayfly_domain::{InstallationId, SandboxRef};
use sha2::{Digest, Sha256};
use tokio::net::UnixStream;
use tokio_util::sync::CancellationToken;

use super::{
    Backend, BackendError, BaseFacts, Engine, Found, Image, Kept, Live, Names, Origin, Owner,
    Removal, SandboxSpec, control, sockets,
};
use crate::{clock::Lease, supervise::Supervisor};
use guest::Guest;
use tree::Tree;

/// The identity of every simulated engine.
pub const SIMULATED: &str = "fake";

const UID: u32 = 1000;
/// A test should not wait as long as people do.
const READY: Duration = Duration::from_millis(500);
/// Longest that a sandbox is being made.
const SLOWEST: Duration = Duration::from_secs(60);
const FIRST_PAUSE: Duration = Duration::from_millis(5);

/// What goes wrong, and when.
#[derive(Debug, Clone, Default)]
pub struct Script {
    /// While true, nobody answers.
    pub down: bool,
    /// While true, another engine answers.
    pub exchanged: bool,
    /// So many spawns fail at their start, after everything was created.
    pub start_fails: u32,
    /// Init connects and never says `Ready`.
    pub never_ready: bool,
    /// While true, sandboxes are still being made.
    pub slow: bool,
    /// What the next removals of a container are answered with, instead of being done.
    pub removals: VecDeque<u16>,
    /// Programs die by SIGKILL out of memory, at once.
    pub out_of_memory: bool,
    /// Programs start, say nothing and do not end by themselves.
    pub silent: bool,
    /// Ids of images whose sandboxes do not start.
    pub broken: HashSet<String>,
    /// Ids of images that a prune took away.
    pub lost: HashSet<String>,
    /// A registry can give all images again.
    pub registry: bool,
    /// Names of images that are being fetched, without an end.
    pub fetched: HashSet<String>,
}

/// See the module; a clone is the same engine.
#[derive(Debug, Clone)]
pub struct Fake {
    supervisor: Supervisor,
    lease: Lease,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    script: Script,
    containers: HashMap<String, Container>,
    volumes: HashMap<String, Owner>,
    kept: HashSet<(InstallationId, String)>,
}

#[derive(Debug)]
struct Container {
    owner: Owner,
    /// Cancelled by a removal: the sandbox ends without keeping anything.
    killed: CancellationToken,
    guest: Option<tokio::task::JoinHandle<()>>,
}

/// An answer like an engine's.
#[derive(Debug, thiserror::Error)]
#[error("the simulated engine answered {0}")]
struct Answer(u16);

impl Fake {
    /// An engine on which nothing has gone wrong yet.
    pub fn new(supervisor: Supervisor, lease: Lease) -> Self {
        Fake {
            supervisor,
            lease,
            state: Arc::default(),
        }
    }

    /// Ids of the images that an installation keeps.
    pub fn kept(&self, installation: InstallationId) -> Vec<String> {
        let state = self.state();
        let ours = state
            .kept
            .iter()
            .filter(|(owner, _)| *owner == installation);
        ours.map(|(_, image)| image.clone()).collect()
    }

    /// Changes what goes wrong from now on.
    pub fn script(&self, change: impl FnOnce(&mut Script)) {
        change(&mut self.state().script);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn made_in_time(&self) -> Result<(), BackendError> {
        let deadline = tokio::time::Instant::now() + SLOWEST;
        while self.state().script.slow {
            if tokio::time::Instant::now() > deadline {
                return Err(failed("create container", "in time", Answer(504)));
            }
            tokio::time::sleep(FIRST_PAUSE).await;
        }
        Ok(())
    }

    fn up(&self) -> Result<MutexGuard<'_, State>, BackendError> {
        let state = self.state();
        if state.script.down {
            return Err(BackendError::Down {
                address: "fake".to_owned(),
                source: "the script says so".into(),
            });
        }
        Ok(state)
    }

    /// Takes a container away, or says what the script wants said. The guest has ended when this
    /// returns: the slots are at rest.
    async fn remove_container(&self, name: &str) -> Result<Removal, BackendError> {
        let (killed, guest) = {
            let mut state = self.up()?;
            if let Some(status) = state.script.removals.pop_front()
                && status != 204
                && status != 404
            {
                return Err(failed("remove container", name, Answer(status)));
            }
            match state.containers.get_mut(name) {
                Some(container) => (container.killed.clone(), container.guest.take()),
                None => return Ok(Removal::SomeUnknown),
            }
        };
        killed.cancel();
        if let Some(guest) = guest
            && let Err(panic) = guest.await
        {
            return Err(failed("end", name, panic));
        }
        self.state().containers.remove(name);
        Ok(Removal::Whole)
    }
}

fn failed(
    action: &'static str,
    name: &str,
    source: impl std::error::Error + Send + Sync + 'static,
) -> BackendError {
    BackendError::Failed {
        action,
        name: name.to_owned(),
        source: Box::new(source),
    }
}

fn id_of(image: &str) -> String {
    format!("sha256:{}", hex::encode(Sha256::digest(image)))
}

#[async_trait]
impl Backend for Fake {
    async fn engine(&self) -> Result<Engine, BackendError> {
        let exchanged = self.up()?.script.exchanged;
        let id = if exchanged { "another" } else { SIMULATED };
        Ok(Engine {
            kind: "fake",
            version: env!("CARGO_PKG_VERSION").to_owned(),
            id: id.to_owned(),
        })
    }

    /// Every image exists but those whose name ends in `missing`.
    async fn resolve(&self, reference: &SandboxRef) -> Result<Image, BackendError> {
        let SandboxRef::Docker { image, id } = reference;
        while self.up()?.script.fetched.contains(image) {
            tokio::time::sleep(FIRST_PAUSE).await;
        }
        let state = self.up()?;
        let found = match image.strip_prefix("sha256:") {
            Some(_) => image.clone(),
            None => id_of(image),
        };
        if image.ends_with("missing") || state.script.lost.contains(&found) {
            return Err(BackendError::NoImage(image.clone()));
        }
        match id {
            Some(wanted) if *wanted != found => Err(BackendError::OtherImage {
                name: image.clone(),
                wanted: wanted.clone(),
                found,
            }),
            _ => Ok(Image {
                id: found,
                name: image.clone(),
                user: format!("{UID}:{UID}"),
                volumes: Vec::new(),
                env: Vec::new(),
            }),
        }
    }

    async fn extract_base(
        &self,
        owner: &Owner,
        image: &Image,
        slots: &[(String, String)],
        into: &Path,
    ) -> Result<BaseFacts, BackendError> {
        self.keep(owner.installation, &image.id).await?;
        let write = || -> std::io::Result<()> {
            for (slot, _) in slots {
                let folder = into.join(slot);
                fs::create_dir(&folder)?;
                chown(&folder, Some(UID), Some(UID))?;
                fs::set_permissions(&folder, fs::Permissions::from_mode(0o755))?;
            }
            let home = slots.iter().find(|(name, _)| name == "home");
            let home = home.map_or("/", |(_, path)| path);
            let agent = format!("root:x:0:0::/:/bin/sh\nagent:x:{UID}:{UID}::{home}:/bin/sh\n");
            fs::write(into.join("passwd"), agent)?;
            fs::write(into.join("group"), format!("root:x:0:\nagent:x:{UID}:\n"))
        };
        write().map_err(|error| failed("write the base in", &into.display().to_string(), error))?;
        Ok(BaseFacts {
            uid: UID,
            gid: UID,
            notes: Vec::new(),
        })
    }

    async fn keep(&self, installation: InstallationId, image: &str) -> Result<Kept, BackendError> {
        let mut state = self.up()?;
        if state.script.lost.contains(image) {
            return Err(BackendError::NoImage(image.to_owned()));
        }
        state.kept.insert((installation, image.to_owned()));
        let registry = state.script.registry;
        Ok(Kept {
            registry: registry.then(|| format!("simulated@{image}")),
            bytes: 0,
        })
    }

    async fn release(
        &self,
        installation: InstallationId,
        in_use: &[String],
    ) -> Result<(), BackendError> {
        let mut state = self.up()?;
        let ours = |owner: &InstallationId| *owner == installation;
        state
            .kept
            .retain(|(owner, image)| !ours(owner) || in_use.contains(image));
        Ok(())
    }

    async fn archive(&self, image: &str, into: &Path) -> Result<(), BackendError> {
        if self.up()?.script.lost.contains(image) {
            return Err(BackendError::NoImage(image.to_owned()));
        }
        fs::write(into, image).map_err(|error| failed("archive", image, error))
    }

    async fn restore(&self, image: &str, from: &Origin) -> Result<(), BackendError> {
        let mut state = self.up()?;
        let found = match from {
            Origin::Archive(path) => {
                fs::read_to_string(path).map_err(|error| failed("restore", image, error))?
            }
            Origin::Registry(name) => name.replacen("simulated@", "", 1),
        };
        state.script.lost.remove(&found);
        match found == image {
            true => Ok(()),
            false => Err(BackendError::NoImage(image.to_owned())),
        }
    }

    async fn spawn(&self, spec: &SandboxSpec) -> Result<Live, BackendError> {
        let name = &spec.names.container;
        self.made_in_time().await?;
        sockets::make_sockets_dir(&spec.names.sockets)
            .map_err(|error| failed("make", &spec.names.sockets.display().to_string(), error))?;
        let tree = Tree::mount(spec).map_err(|error| failed("mount the slots of", name, error))?;
        let (ours, theirs) = UnixStream::pair().map_err(|error| failed("connect", name, error))?;
        {
            let mut state = self.up()?;
            if state.containers.contains_key(name) {
                return Err(failed("create container", name, Answer(409)));
            }
            let killed = CancellationToken::new();
            for volume in &spec.names.volumes {
                state.volumes.insert(volume.clone(), spec.owner.clone());
            }
            let broken = state.script.broken.contains(&spec.image.id);
            let starts = state.script.start_fails == 0 && !broken;
            let guest = starts.then(|| {
                let supervisor = self.supervisor.clone();
                let guest = Guest::new(spec, tree, state.script.clone(), killed.clone());
                self.supervisor
                    .task("simulated sandbox", guest.run(theirs, supervisor))
            });
            let container = Container {
                owner: spec.owner.clone(),
                killed,
                guest,
            };
            state.containers.insert(name.clone(), container);
            if !starts {
                state.script.start_fails = state.script.start_fails.saturating_sub(1);
                return Err(failed("start container", name, Answer(500)));
            }
        }
        match control::open(ours, &self.supervisor, self.lease.clone(), READY).await {
            Ok((control, notices)) => Ok(Live {
                control,
                notices,
                init_pid: None,
            }),
            Err(error) => Err(BackendError::NotReady {
                name: name.clone(),
                reason: error.to_string(),
            }),
        }
    }

    async fn remove(&self, names: &Names, patience: Duration) -> Result<Removal, BackendError> {
        let until = tokio::time::Instant::now() + patience;
        let mut pause = FIRST_PAUSE;
        let mut removal = Removal::Whole;
        while !names.container.is_empty() {
            match self.remove_container(&names.container).await {
                Ok(met) => {
                    removal = met;
                    break;
                }
                Err(error) if tokio::time::Instant::now() + pause > until => return Err(error),
                Err(_) => tokio::time::sleep(pause).await,
            }
            pause *= 2;
        }
        let mut state = self.up()?;
        for volume in &names.volumes {
            if state.volumes.remove(volume).is_none() {
                removal = Removal::SomeUnknown;
            }
        }
        drop(state);
        match fs::remove_dir_all(&names.sockets) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(failed(
                "remove",
                &names.sockets.display().to_string(),
                error,
            )),
            _ => Ok(removal),
        }
    }

    async fn found(&self, owner: &Owner) -> Result<Vec<Found>, BackendError> {
        let state = self.up()?;
        let containers = state.containers.iter();
        let containers = containers
            .filter(|(_, container)| container.owner == *owner)
            .map(|(name, _)| Found::Container(name.clone()));
        let volumes = state.volumes.iter();
        let volumes = volumes
            .filter(|(_, made_by)| *made_by == owner)
            .map(|(name, _)| Found::Volume(name.clone()));
        Ok(containers.chain(volumes).collect())
    }
}
