//! Images in use stay at hand. Idle agents have no container, so the engine takes their image for
//! unused and a prune removes it: each image in use is marked on the engine, and one that no
//! registry can give again is kept as an archive, `data_dir/images/<id12>.tar`. An image that the
//! engine has lost in spite of that is brought back when a tick asks for it.

pub mod breaker;

use std::{
    collections::{HashMap, HashSet},
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use mayfly_domain::{InstallationId, SandboxRef};

use self::breaker::Breaker;
use crate::{
    clock,
    db::{Db, DbError},
    sandbox::{Backend, BackendError, Image, Origin},
    worker::host_disk::HostDisk,
};

/// An agent that was made to try something out costs no archive, and a first message does not
/// share the disk with one.
const SETTLED: Duration = Duration::from_secs(60);
/// On a busy host no archive is written before this.
const OVERDUE: Duration = Duration::from_secs(600);
/// An image that was asked for is about to be used, though no row says so yet.
const LATELY: Duration = Duration::from_secs(60);

/// Why images could not be kept.
#[derive(Debug, thiserror::Error)]
pub enum ImagesError {
    /// The engine.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// The rows.
    #[error(transparent)]
    Db(#[from] DbError),
    /// The archives.
    #[error("{path}: {source}")]
    File {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// See the module; cheap to clone.
#[derive(Clone)]
pub struct Images {
    db: Db,
    backend: Arc<dyn Backend>,
    installation: InstallationId,
    folder: PathBuf,
    host_disk: HostDisk,
    bringing_back: Arc<tokio::sync::Mutex<()>>,
    seen: Arc<Mutex<Seen>>,
    /// Images whose sandboxes do not start.
    pub breaker: Breaker,
}

#[derive(Debug, Default)]
struct Seen {
    /// When an image was last asked for, by the boot clock.
    asked: HashMap<String, Duration>,
    /// What was in use at the last release.
    released: Option<Vec<String>>,
    /// Images said to have no room.
    no_room: HashSet<String>,
}

impl Images {
    /// Over these; the archives lie below `data_dir`.
    pub fn new(
        db: Db,
        backend: Arc<dyn Backend>,
        installation: InstallationId,
        data_dir: &Path,
        host_disk: HostDisk,
    ) -> Self {
        Images {
            db,
            backend,
            installation,
            folder: data_dir.join("images"),
            host_disk,
            bringing_back: Arc::default(),
            seen: Arc::default(),
            breaker: Breaker::default(),
        }
    }

    /// Finds an image as [`Backend::resolve`] does; one named by its id is brought back if the
    /// engine has lost it and an archive or a registry has it.
    pub async fn resolve(&self, reference: &SandboxRef) -> Result<Image, BackendError> {
        let found = match self.backend.resolve(reference).await {
            Err(BackendError::NoImage(name)) => match id_of(reference) {
                Some(id) => self.bring_back(id, name).await,
                None => Err(BackendError::NoImage(name)),
            },
            other => other,
        };
        if let Ok(image) = &found {
            let now = clock::boot_time();
            self.seen(|seen| seen.asked.insert(image.id.clone(), now));
        }
        found
    }

    async fn bring_back(&self, id: &str, name: String) -> Result<Image, BackendError> {
        let _turn = self.bringing_back.lock().await;
        let by_id = SandboxRef::Docker {
            image: id.to_owned(),
            id: None,
        };
        // Somebody else's turn may have done it.
        match self.backend.resolve(&by_id).await {
            Err(BackendError::NoImage(_)) => {}
            other => return other,
        }
        let lost = || BackendError::NoImage(name.clone());
        let origin = match self.archive_of(id) {
            archive if archive.is_file() => Origin::Archive(archive),
            _ => match self.db.registry_of(id).await {
                Ok(Some(name)) => Origin::Registry(name),
                _ => return Err(lost()),
            },
        };
        tracing::warn!(image = id, ?origin, "the engine has lost an image in use");
        match self.backend.restore(id, &origin).await {
            Ok(()) => {}
            Err(BackendError::NoImage(_)) => return Err(lost()),
            Err(error) => return Err(error),
        }
        self.backend.keep(self.installation, id).await?;
        self.backend.resolve(&by_id).await
    }

    /// Marks every image in use and writes at most one archive that is missing. `at_rest`: no tick
    /// runs.
    pub async fn keep(&self, at_rest: bool) -> Result<(), ImagesError> {
        let mut missing = None;
        for image in self.db.images_in_use().await? {
            let kept = match self.backend.keep(self.installation, &image.id).await {
                Ok(kept) => kept,
                // Brought back when a tick asks for it.
                Err(BackendError::NoImage(_)) => continue,
                Err(error) => return Err(error.into()),
            };
            if let Some(registry) = &kept.registry
                && image.registry.as_ref() != Some(registry)
            {
                self.db.set_registry(&image.id, registry).await?;
            }
            let again = kept.registry.or_else(|| image.registry.clone()).is_some();
            if !again
                && due(self.db.now() - image.since, at_rest)
                && !self.archive_of(&image.id).exists()
            {
                missing.get_or_insert((image.id, kept.bytes));
            }
        }
        match missing {
            Some((image, bytes)) if self.has_room(&image, bytes) => self.write(&image).await,
            _ => Ok(()),
        }
    }

    /// Removes marks and archives that no living agent needs, and what an interrupted writer left.
    pub async fn forget(&self) -> Result<(), ImagesError> {
        let in_use = self.db.images_in_use().await?;
        let mut in_use: Vec<String> = in_use.into_iter().map(|image| image.id).collect();
        let now = clock::boot_time();
        in_use.extend(self.seen(|seen| {
            seen.asked
                .retain(|_, asked| now.saturating_sub(*asked) < LATELY);
            seen.asked.keys().cloned().collect::<Vec<_>>()
        }));
        in_use.sort();
        in_use.dedup();
        let wanted: Vec<PathBuf> = in_use.iter().map(|id| self.archive_of(id)).collect();
        for path in self.files()? {
            if !wanted.contains(&path) {
                fs::remove_file(&path).map_err(|error| at(&path, error))?;
            }
        }
        if self.seen(|seen| seen.released.as_ref() != Some(&in_use)) {
            self.backend.release(self.installation, &in_use).await?;
            self.seen(|seen| seen.released = Some(in_use));
        }
        Ok(())
    }

    /// How many archives no living agent needs; a removal takes them.
    pub async fn unneeded(&self) -> Result<u64, ImagesError> {
        let in_use = self.db.images_in_use().await?;
        let wanted: Vec<PathBuf> = in_use.iter().map(|i| self.archive_of(&i.id)).collect();
        let files = self.files()?;
        Ok(files.iter().filter(|path| !wanted.contains(path)).count() as u64)
    }

    async fn write(&self, image: &str) -> Result<(), ImagesError> {
        let (path, begun) = (self.archive_of(image), clock::boot_time());
        let aside = path.with_extension("part");
        fs::create_dir_all(&self.folder).map_err(|error| at(&self.folder, error))?;
        let written = self.backend.archive(image, &aside).await;
        let named = written.map_err(ImagesError::from).and_then(|()| {
            fs::rename(&aside, &path)
                .and_then(|()| File::open(&self.folder)?.sync_all())
                .map_err(|error| at(&path, error))
        });
        if named.is_err() {
            // What stays is removed by the next `forget`.
            let _ = fs::remove_file(&aside);
        } else {
            let ms = (clock::boot_time() - begun).as_millis() as u64;
            tracing::info!(
                image,
                ms,
                "kept as an archive: no registry can give it again"
            );
        }
        named
    }

    fn has_room(&self, image: &str, bytes: u64) -> bool {
        let room = self.host_disk.has_room_for(bytes);
        if !room && self.seen(|seen| seen.no_room.insert(image.to_owned())) {
            tracing::warn!(
                image,
                bytes,
                "no room for its archive: a prune would lose it"
            );
        }
        room
    }

    fn files(&self) -> Result<Vec<PathBuf>, ImagesError> {
        let entries = match fs::read_dir(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other.map_err(|error| at(&self.folder, error))?,
        };
        entries
            .map(|entry| Ok(entry?.path()))
            .collect::<io::Result<_>>()
            .map_err(|error| at(&self.folder, error))
    }

    fn archive_of(&self, id: &str) -> PathBuf {
        let bare = id.strip_prefix("sha256:").unwrap_or(id);
        let short: String = bare.chars().take(12).collect();
        self.folder.join(format!("{short}.tar"))
    }

    fn seen<T>(&self, with: impl FnOnce(&mut Seen) -> T) -> T {
        with(&mut self.seen.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn at(path: &Path, source: io::Error) -> ImagesError {
    ImagesError::File {
        path: path.to_owned(),
        source,
    }
}

fn id_of(reference: &SandboxRef) -> Option<&str> {
    let SandboxRef::Docker { image, id } = reference;
    let named = image.starts_with("sha256:").then_some(image);
    id.as_ref().or(named).map(String::as_str)
}

fn due(age: i64, at_rest: bool) -> bool {
    let wait = if at_rest { SETTLED } else { OVERDUE };
    age >= wait.as_millis() as i64
}
