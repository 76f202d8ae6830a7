//! The way in: files first, rows last, and nothing is left of an import that failed.

use std::{
    collections::HashMap,
    fs::{self, File},
    io::{BufReader, Read},
    path::{Path, PathBuf},
    time::Duration,
};

use mayfly_domain::{AgentId, BaseId, LayerId, SandboxRef, TickId};

use super::{
    super::agents::{no_base, unavailable},
    Commands, RequestError, blocking, internal, made,
    renew::renew,
    transcripts_of,
};
use crate::{
    db::{agents::Base, portable::NewHistory},
    observe,
    snapshot::{
        Slot, StoreError,
        oci::{Archive, Budget, History, OciError, Records, receive},
    },
    view::ImportView,
};

/// The most that one import may bring, and bring with it; the host's free space binds sooner.
const IMPORT_BYTES: u64 = 1 << 40;
const IMPORT_INODES: u64 = 8 << 20;
/// Between two readings of a row whose commit's answer was lost.
const REREAD: Duration = Duration::from_millis(500);

/// Where an import comes from.
pub enum ImportFrom {
    /// A layout in a folder, or a tar file of one.
    Path(PathBuf),
    /// The bytes of a tar file.
    Tar {
        /// Gives them; an early end is an error.
        from: Box<dyn Read + Send>,
        /// How many, where that is told.
        length: Option<u64>,
    },
}

impl Commands {
    /// Makes an agent of a layout. Answers with its id, which may be a new one. It goes on, or
    /// cleans up after itself, where the caller goes away.
    pub async fn import(&self, from: ImportFrom) -> Result<ImportView, RequestError> {
        let place = self.travel.import()?;
        let commands = self.clone();
        let import = async move {
            let done = commands.import_whole(from).await;
            drop(place);
            done
        };
        let done = self.supervisor.task("import", import).await;
        done.map_err(|panic| internal(&panic))?
    }

    async fn import_whole(&self, from: ImportFrom) -> Result<ImportView, RequestError> {
        let store = self.store.clone();
        let staging = blocking(move || Ok(store.stage()?)).await?;
        let done = self.import_staged(from, staging.path().to_owned()).await;
        let ended = blocking(move || Ok(staging.end()?)).await;
        let view = done?;
        ended?;
        // Its chain may be long, and its states beyond the rule here.
        self.keeper.touch(view.agent.id);
        self.bell.ring();
        Ok(view)
    }

    /// What comes is put aside first, into a folder that the caller removes.
    async fn import_staged(
        &self,
        from: ImportFrom,
        aside: PathBuf,
    ) -> Result<ImportView, RequestError> {
        let disk = self.host_disk.clone();
        // Whoever sends may be slow: nobody waits for this part.
        let (archive, records) = blocking(move || {
            let room = |bytes| disk.has_room_for(bytes);
            let mut budget = Budget::new(IMPORT_BYTES, IMPORT_INODES, &room);
            let (layout, transcripts) = (aside.join("oci"), aside.join("transcripts"));
            for folder in [&layout, &transcripts] {
                made(folder)?;
            }
            let archive = match from {
                ImportFrom::Path(path) if path.is_dir() => Archive::open(&path)?,
                ImportFrom::Path(path) => {
                    let file = File::open(&path);
                    let file = file.map_err(|source| StoreError::Io { path, source })?;
                    receive(BufReader::new(file), &layout, &mut budget)?;
                    Archive::received(&layout)?
                }
                ImportFrom::Tar { from, length } => {
                    if length.is_some_and(|length| length > IMPORT_BYTES || !room(length)) {
                        let reason = "the disk has no room for it";
                        return Err(OciError::Limit(reason.to_owned()));
                    }
                    receive(BufReader::new(from), &layout, &mut budget)?;
                    Archive::received(&layout)?
                }
            };
            let records = archive.records(&transcripts, &mut budget)?;
            Ok((archive, records))
        })
        .await?;
        let _turn = self.importing.lock().await;
        // Before the lock below: it takes that itself where it makes one, and whoever waits to write would hold both up.
        let base = self.base_for(&archive, &records.history).await?;
        // Reconcilers must not take what is in the making for what a crash left.
        let _making = self.making.read().await;
        self.import_from(archive, records, base).await
    }

    async fn import_from(
        &self,
        archive: Archive,
        records: Records,
        (base, known): (BaseId, bool),
    ) -> Result<ImportView, RequestError> {
        let Records {
            mut history,
            transcripts,
        } = records;
        let was = history.agent.id;
        let new_ids = self.db.knows_any_of(&history).await?;
        let names = match new_ids {
            true => renew(&mut history),
            false => history.ticks.iter().map(|row| (row.id, row.id)).collect(),
        };
        let placed = self
            .place(archive, &history, &base, known, transcripts, names)
            .await;
        let mut notes = match placed {
            Ok(notes) => notes,
            Err(error) => {
                let folder = transcripts_of(&self.data_dir, history.agent.id);
                let remove = move || {
                    let _ = fs::remove_dir_all(folder);
                    Ok(())
                };
                blocking(remove).await?;
                return Err(error);
            }
        };
        if new_ids {
            notes.push(format!(
                "agent {} is here already: the import has new ids",
                was.short()
            ));
        }
        notes.extend(self.missing(&history).await);
        Ok(ImportView {
            agent: self.agent(history.agent.id).await?,
            was,
            notes,
        })
    }

    /// The base to use, and whether it is here already: that of the same image, if it is the same.
    async fn base_for(
        &self,
        archive: &Archive,
        history: &History,
    ) -> Result<(BaseId, bool), RequestError> {
        let image = &history.agent.image;
        let here: Option<Base> = self.db.base_of_image(image).await?;
        if !history.agent.base {
            let reference = SandboxRef::Docker {
                image: image.clone(),
                id: None,
            };
            let image = self.images.resolve(&reference).await.map_err(unavailable)?;
            let base = self.bases.ensure(&image).await;
            return Ok((base.map_err(no_base)?.id, true));
        }
        let Some(here) = here else {
            return Ok((BaseId::new(), false));
        };
        let (store, base) = (self.store.clone(), here.id.clone());
        let found = blocking(move || match store.base_dir(&base).is_dir() {
            true => store.base_diff_id(&base, &Slot::defaults()).map(Some),
            false => Ok(None),
        });
        let same = found.await?.as_deref() == Some(archive.base_diff_id());
        let owner = (here.uid, here.gid) == (history.agent.uid, history.agent.gid);
        Ok(match same && owner {
            true => (here.id, true),
            false => (BaseId::new(), false),
        })
    }

    /// Files first, rows last; on failure no file is left.
    async fn place(
        &self,
        archive: Archive,
        history: &History,
        base: &BaseId,
        known: bool,
        transcripts: PathBuf,
        names: HashMap<TickId, TickId>,
    ) -> Result<Vec<String>, RequestError> {
        let count = history.snapshots.iter().filter(|row| row.layer.is_some());
        let ids: Vec<LayerId> = count.map(|_| LayerId::new()).collect();
        let first = usize::from(history.agent.base);
        let (store, disk) = (self.store.clone(), self.host_disk.clone());
        let (base_id, layer_ids) = (base.clone(), ids.clone());
        let imported = blocking(move || {
            let room = |bytes| disk.has_room_for(bytes);
            let mut budget = Budget::new(IMPORT_BYTES, IMPORT_INODES, &room);
            let slots = Slot::defaults();
            let mut notes = Vec::new();
            if !known {
                notes = store.import_base(&archive, &base_id, &slots, &mut budget)?;
            }
            let ids = &layer_ids;
            let done = store.import_layers(&archive, first, &base_id, ids, &slots, &mut budget);
            if done.is_err() && !known {
                store.remove_base(&base_id)?;
            }
            let done = done?;
            notes.extend(done.notes);
            Ok((done.sizes, notes))
        });
        let (sizes, notes) = imported.await?;
        let layers: Vec<_> = ids.into_iter().zip(sizes).collect();
        let new = NewHistory {
            history,
            layers: &layers,
            base,
            new_base: !known,
            holder: self.depot.worker(),
            installation: self.installation,
        };
        let folder = transcripts_of(&self.data_dir, history.agent.id);
        let moved = blocking(move || Ok(move_transcripts(&transcripts, &folder, &names)?)).await;
        let written = match moved {
            Ok(()) => self.insert(&new).await,
            Err(error) => Err(error),
        };
        if written.is_err() {
            let (store, base) = (self.store.clone(), (!known).then(|| base.clone()));
            blocking(move || {
                for (layer, _) in &layers {
                    store.remove_layer(layer)?;
                }
                Ok(base.map_or(Ok(()), |base| store.remove_base(&base))?)
            })
            .await?;
        }
        written.map(|()| notes)
    }

    /// `Err` only where no row is there. After a commit whose answer was lost the row is read
    /// again on a fresh connection, for as long as it takes: files are removed on an error.
    async fn insert(&self, new: &NewHistory<'_>) -> Result<(), RequestError> {
        let id = new.history.agent.id;
        let Err(error) = self.db.insert_history(new).await else {
            return Ok(());
        };
        tracing::error!(agent = %id, %error, "import without an answer");
        match self.is_here(id).await {
            true => Ok(()),
            false => Err(error.into()),
        }
    }

    async fn is_here(&self, id: AgentId) -> bool {
        loop {
            tokio::time::sleep(REREAD).await;
            match self.db.agent(id).await {
                Ok(agent) => return agent.is_some(),
                Err(error) => tracing::error!(agent = %id, %error, "row not readable"),
            }
        }
    }

    /// What the next message would wait for.
    async fn missing(&self, history: &History) -> Vec<String> {
        let agent = &history.agent;
        let mut notes = Vec::new();
        if !self.profiles.0.contains_key(&agent.profile) {
            let name = &agent.profile;
            notes.push(format!(
                "the configuration has no profile \"{name}\": add it before the next message"
            ));
        }
        let reference = SandboxRef::Docker {
            image: agent.image.clone(),
            id: None,
        };
        if let Err(error) = self.images.resolve(&reference).await {
            let name = agent.sandbox.as_ref().map(SandboxRef::to_string);
            let name = name.map(|name| format!(" ({name})")).unwrap_or_default();
            notes.push(format!(
                "the image {}{name} is not at hand, load it before the next message: {}",
                agent.image,
                observe::chain(&error)
            ));
        }
        notes
    }
}

/// Those of ticks that the history has; another one is nobody's.
fn move_transcripts(
    from: &Path,
    to: &Path,
    names: &HashMap<TickId, TickId>,
) -> Result<(), StoreError> {
    let fault = |path: &Path, source| StoreError::Io {
        path: path.to_owned(),
        source,
    };
    fs::create_dir_all(to).map_err(|error| fault(to, error))?;
    for (old, new) in names {
        let old = from.join(format!("{old}.jsonl"));
        if old.is_file() {
            let new = to.join(format!("{new}.jsonl"));
            let moved = fs::rename(&old, &new).and_then(|()| File::open(&new)?.sync_all());
            moved.map_err(|error| fault(&new, error))?;
        }
    }
    // With the names of the agent's folder, and of the folder of all agents.
    for folder in to.ancestors().take(3) {
        let synced = File::open(folder).and_then(|folder| folder.sync_all());
        synced.map_err(|error| fault(folder, error))?;
    }
    Ok(())
}
