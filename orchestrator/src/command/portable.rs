//! Agents that travel: out into an image layout, in from one, also on another machine.
//!
//! An import keeps the ids of the archive where none of them is in use here; else the agent and all
//! of its history get new ones. Messages that wait stay behind, and nothing is sent again. What
//! needs the engine comes last: the image itself is looked for at the next tick.

use std::{
    collections::{BTreeMap, HashMap},
    fs::{self, File},
    io::{BufReader, Read, Write},
    path::{Path, PathBuf},
};

use mayfly_domain::{AgentId, BaseId, LayerId, MessageId, SandboxRef, SnapshotId, TickId};

use super::{Commands, RequestError, agents::unavailable, internal};
use crate::{
    agent::transcript,
    bases::BaseError,
    db::{
        agents::{Agent, Base},
        portable::{NewHistory, PinnedStates},
        ticks::Tick,
    },
    observe,
    snapshot::{
        Slot, Store, StoreError,
        oci::{
            AgentRow, Archive, Budget, Compress, Export, Exported, FORM, History, LABEL_FORM,
            MessageRow, OciError, Output, Records, ReplyRow, SnapshotRow, TickLayer, TickRow,
            receive,
        },
    },
    view::ImportView,
};

/// The most that one import may bring, and bring with it; the host's free space binds sooner.
const IMPORT_BYTES: u64 = 1 << 40;
const IMPORT_INODES: u64 = 8 << 20;

/// How an export is made.
#[derive(Debug, Clone, Copy)]
pub struct ExportAs {
    /// How layers are stored.
    pub compress: Compress,
    /// Whether the slots' content of the image is included, for machines without the image.
    pub with_base: bool,
}

impl Default for ExportAs {
    fn default() -> Self {
        ExportAs {
            compress: Compress::default(),
            with_base: true,
        }
    }
}

/// Where an export goes.
pub enum ExportTo {
    /// A folder that does not exist yet.
    Folder(PathBuf),
    /// A file that does not exist yet.
    File(PathBuf),
    /// The bytes of a tar file.
    Tar(Box<dyn Write + Send>),
}

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

/// An export whose layers are pinned; nothing is written yet.
pub struct PreparedExport {
    commands: Commands,
    pinned: PinnedStates,
    agent: Agent,
    history: History,
    how: ExportAs,
}

impl Commands {
    /// Looks up the state after a tick of the agent's history, else the newest one, and everything
    /// that led to it.
    pub async fn prepare_export(
        &self,
        id: AgentId,
        at: Option<TickId>,
        how: ExportAs,
    ) -> Result<PreparedExport, RequestError> {
        let agent = self.row(id).await?;
        let last = match at {
            Some(tick) => Some(self.state_after(id, tick).await?),
            None => agent.head,
        };
        let Some(pinned) = self.db.pin_states(&agent.base, last).await? else {
            return Err(RequestError::Conflict(
                "the state's layers are not kept any more: export a later one".to_owned(),
            ));
        };
        let history = self.history_of(&agent, at, &pinned, how).await?;
        Ok(PreparedExport {
            commands: self.clone(),
            pinned,
            agent,
            history,
            how,
        })
    }

    async fn history_of(
        &self,
        agent: &Agent,
        at: Option<TickId>,
        pinned: &PinnedStates,
        how: ExportAs,
    ) -> Result<History, RequestError> {
        let base = self.db.base(&agent.base).await?;
        let mut ticks = Vec::new();
        for state in &pinned.states {
            // Those of the agent that this one was forked from.
            if let Some(tick) = state.tick
                && let Some(tick) = self.db.tick(tick).await?
                && tick.agent != agent.id
            {
                ticks.push(tick);
            }
        }
        let own = self.db.ticks_of(agent.id).await?;
        let until = |tick: &Tick| at.is_none_or(|at| tick.id <= at);
        ticks.extend(own.into_iter().filter(until));
        let mut settled: HashMap<MessageId, Option<i64>> = HashMap::new();
        let mut order = Vec::new();
        let mut owners: Vec<AgentId> = ticks.iter().map(|tick| tick.agent).collect();
        owners.push(agent.id);
        owners.dedup();
        for owner in owners {
            for (message, settled_at) in self.db.settled(owner).await? {
                let told = ticks.iter().any(|tick| tick.message == message);
                let whole = owner == agent.id && at.is_none();
                if (told || whole) && settled.insert(message, settled_at).is_none() {
                    order.push(message);
                }
            }
        }
        ticks.retain(|tick| settled.contains_key(&tick.message));
        let mut history = History {
            agent: AgentRow {
                form: FORM,
                id: agent.id,
                profile: agent.profile.clone(),
                sandbox: agent.sandbox.clone(),
                image: agent.image.clone(),
                uid: base.uid,
                gid: base.gid,
                base: how.with_base,
                created_at: agent.created_at,
            },
            snapshots: snapshots(pinned, how),
            messages: Vec::new(),
            ticks: Vec::new(),
            replies: Vec::new(),
        };
        for id in order {
            let Some(message) = self.db.message(id).await? else {
                continue;
            };
            let Some(outcome) = message.outcome else {
                continue;
            };
            history.messages.push(MessageRow {
                id,
                author: message.author,
                text: message.text,
                sandbox: message.sandbox,
                created_at: message.created_at,
                attempts: message.attempts,
                outcome,
                reason: message.reason,
                settled_at: settled.get(&id).copied().flatten(),
            });
            history.replies.extend(self.db.told(id).await?);
        }
        history.ticks = ticks.into_iter().filter_map(tick_row).collect();
        only_what_is_there(&mut history);
        Ok(history)
    }

    /// Makes an agent of a layout. Answers with its id, which may be a new one. It goes on, or
    /// cleans up after itself, where the caller goes away.
    pub async fn import(&self, from: ImportFrom) -> Result<ImportView, RequestError> {
        let commands = self.clone();
        let import = async move { commands.import_whole(from).await };
        let done = self.supervisor.task("import", import).await;
        done.map_err(|panic| internal(&panic))?
    }

    async fn import_whole(&self, from: ImportFrom) -> Result<ImportView, RequestError> {
        let staging = self.store.stage()?;
        let (aside, disk) = (staging.path().to_owned(), self.host_disk.clone());
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
                    Archive::open(&layout)?
                }
                ImportFrom::Tar { from, length } => {
                    if length.is_some_and(|length| length > IMPORT_BYTES || !room(length)) {
                        let reason = "the disk has no room for it";
                        return Err(OciError::Limit(reason.to_owned()));
                    }
                    receive(BufReader::new(from), &layout, &mut budget)?;
                    Archive::open(&layout)?
                }
            };
            let records = archive.records(&transcripts, &mut budget)?;
            Ok((archive, records))
        })
        .await?;
        let turn = self.importing.lock().await;
        // Reconcilers must not take what is in the making for what a crash left.
        let making = self.making.read().await;
        let done = self.import_from(archive, records).await;
        drop((making, turn));
        let ended = blocking(move || Ok(staging.end()?)).await;
        let view = done?;
        ended.map(|()| view)
    }

    async fn import_from(
        &self,
        archive: Archive,
        records: Records,
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
        let (base, known) = self.base_for(&archive, &history).await?;
        let placed = self
            .place(archive, &history, &base, known, &transcripts, &names)
            .await;
        let mut notes = match placed {
            Ok(notes) => notes,
            Err(error) => {
                let folder = transcripts_of(&self.data_dir, history.agent.id);
                let _ = fs::remove_dir_all(folder);
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
            let base = base.map_err(|error| match error {
                BaseError::Backend(error) => unavailable(error),
                BaseError::Store(error) => internal(&error),
                BaseError::Db(error) => internal(&error),
            })?;
            return Ok((base.id, true));
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
        transcripts: &Path,
        names: &HashMap<TickId, TickId>,
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
            installation: self.installation,
        };
        let folder = transcripts_of(&self.data_dir, history.agent.id);
        let written = match move_transcripts(transcripts, &folder, names) {
            Ok(()) => self.db.insert_history(&new).await.map_err(Into::into),
            Err(error) => Err(internal(&error)),
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

impl PreparedExport {
    /// Writes the layout. Legal once.
    pub async fn write(self, to: ExportTo) -> Result<Exported, RequestError> {
        blocking(move || match to {
            ExportTo::Folder(path) => self.write_to(Output::Folder(&path)),
            ExportTo::File(path) => self.write_file(&path),
            ExportTo::Tar(mut to) => self.write_tar(&mut *to),
        })
        .await
    }

    fn write_tar(&self, to: &mut dyn Write) -> Result<Exported, OciError> {
        let staging = self.commands.store.stage()?;
        let aside = staging.path();
        let done = self.write_to(Output::Tar { to, aside })?;
        staging.end()?;
        Ok(done)
    }

    /// Under another name until it is whole.
    fn write_file(&self, path: &Path) -> Result<Exported, OciError> {
        let fault = |source| {
            let path = path.to_owned();
            OciError::from(StoreError::Io { path, source })
        };
        let mut part = path.as_os_str().to_owned();
        part.push(".part");
        if path.symlink_metadata().is_ok() {
            return Err(fault(std::io::ErrorKind::AlreadyExists.into()));
        }
        let mut file = File::create_new(&part).map_err(fault)?;
        let named = self.write_tar(&mut file).and_then(|done| {
            let named = file.sync_all().and_then(|()| fs::rename(&part, path));
            named.map(|()| done).map_err(fault)
        });
        if named.is_err() {
            // Its name says that it is not whole.
            let _ = fs::remove_file(&part);
        }
        named
    }

    fn write_to(&self, output: Output<'_>) -> Result<Exported, OciError> {
        let layers = layers(&self.pinned, &self.history);
        let commands = &self.commands;
        let (store, data_dir) = (&commands.store, &commands.data_dir);
        let (agent, history) = (&self.agent, &self.history);
        write(store, agent, history, &layers, self.how, data_dir, output)
    }
}

fn write(
    store: &Store,
    agent: &Agent,
    history: &History,
    layers: &[TickLayer],
    how: ExportAs,
    data_dir: &Path,
    output: Output<'_>,
) -> Result<Exported, OciError> {
    let transcripts = transcripts(history, agent, data_dir);
    let last = history.snapshots.last();
    let what = Export {
        base: &agent.base,
        with_base: how.with_base,
        layers,
        records: &history.to_lines(),
        transcripts: &transcripts,
        labels: labels(history),
        user: format!("{}:{}", history.agent.uid, history.agent.gid),
        created_at: last.map_or(agent.created_at, |row| row.created_at),
        compress: how.compress,
    };
    store.export(&what, &Slot::defaults(), output)
}

fn snapshots(pinned: &PinnedStates, how: ExportAs) -> Vec<SnapshotRow> {
    let mut next = u32::from(how.with_base);
    let mut layer = || {
        next += 1;
        next - 1
    };
    let states = pinned.states.iter();
    states
        .map(|state| SnapshotRow {
            id: state.id,
            tick: state.tick,
            layer: state.layer.as_ref().map(|_| layer()),
            session: state.session.clone(),
            created_at: state.created_at,
        })
        .collect()
}

fn tick_row(tick: Tick) -> Option<TickRow> {
    Some(TickRow {
        id: tick.id,
        message: tick.message,
        retry_of: tick.retry_of,
        phase: tick.phase,
        outcome: tick.outcome?,
        changes: tick.changes,
        notice: tick.notice,
        exit_code: tick.exit_code,
        effects: tick.effects,
        before: tick.before,
        after: tick.after,
        image: tick.image,
        notes: tick.notes,
        phase_ms: tick.phase_ms,
        output_bytes: tick.output_bytes,
        layer_bytes: tick.layer_bytes,
        layer_inodes: tick.layer_inodes,
        started_at: tick.started_at,
        ended_at: tick.ended_at,
    })
}

/// References to states and ticks that do not travel are left out.
fn only_what_is_there(history: &mut History) {
    let states: Vec<SnapshotId> = history.snapshots.iter().map(|row| row.id).collect();
    let there = |state: &mut Option<SnapshotId>| *state = state.filter(|id| states.contains(id));
    for row in &mut history.ticks {
        there(&mut row.before);
        there(&mut row.after);
    }
    let ticks: Vec<TickId> = history.ticks.iter().map(|row| row.id).collect();
    let there = |tick: &mut Option<TickId>| *tick = tick.filter(|id| ticks.contains(id));
    for row in &mut history.ticks {
        there(&mut row.retry_of);
    }
    for row in &mut history.snapshots {
        there(&mut row.tick);
    }
    for row in &mut history.replies {
        there(&mut row.tick);
    }
}

/// Gives everything a new id, in the same order; answers the ticks' new ids.
fn renew(history: &mut History) -> HashMap<TickId, TickId> {
    let snapshots = history
        .snapshots
        .iter()
        .map(|row| (row.id, SnapshotId::new()));
    let snapshots: HashMap<_, _> = snapshots.collect();
    let messages = history
        .messages
        .iter()
        .map(|row| (row.id, MessageId::new()));
    let messages: HashMap<_, _> = messages.collect();
    let mut ids: Vec<_> = history.ticks.iter().map(|row| row.id).collect();
    ids.sort();
    let ticks: HashMap<_, _> = ids.into_iter().map(|id| (id, TickId::new())).collect();
    let state = |id: Option<SnapshotId>| id.and_then(|id| snapshots.get(&id).copied());
    let tick = |id: Option<TickId>| id.and_then(|id| ticks.get(&id).copied());
    history.agent.id = AgentId::new();
    for row in &mut history.snapshots {
        row.id = snapshots[&row.id];
        row.tick = tick(row.tick);
    }
    for row in &mut history.messages {
        row.id = messages[&row.id];
    }
    for row in &mut history.ticks {
        row.id = ticks[&row.id];
        row.message = messages[&row.message];
        row.retry_of = tick(row.retry_of);
        row.before = state(row.before);
        row.after = state(row.after);
    }
    for row in &mut history.replies {
        let row: &mut ReplyRow = row;
        row.message = messages[&row.message];
        row.tick = tick(row.tick);
    }
    ticks
}

fn labels(history: &History) -> BTreeMap<String, String> {
    let agent = &history.agent;
    let states = &history.snapshots;
    let tick_at = |back: usize| {
        let at = states.len().checked_sub(back)?;
        states.get(at)?.tick.map(|tick| tick.to_string())
    };
    let session = states.last().and_then(|row| row.session.clone());
    let sandbox = agent.sandbox.as_ref().map(SandboxRef::to_string);
    let base = if agent.base { "included" } else { "left out" };
    let told = [
        ("agent", Some(agent.id.to_string())),
        ("base", Some(base.to_owned())),
        ("image", Some(agent.image.clone())),
        ("parent", tick_at(2)),
        ("profile", Some(agent.profile.clone())),
        ("sandbox", sandbox),
        ("session", session),
        ("tick", tick_at(1)),
    ];
    let told = told
        .into_iter()
        .filter_map(|(name, value)| Some((format!("dev.mayfly.{name}"), value?)));
    let form = (LABEL_FORM.to_owned(), FORM.to_string());
    told.chain([form]).collect()
}

/// The layers of the image, each with what it is told of it.
fn layers(pinned: &PinnedStates, history: &History) -> Vec<TickLayer> {
    let mut parent: Option<TickId> = None;
    let mut layers = Vec::new();
    for (state, row) in pinned.states.iter().zip(&history.snapshots) {
        let told = [
            ("parent", parent.map(|tick| tick.to_string())),
            ("session", row.session.clone()),
            ("tick", row.tick.map(|tick| tick.to_string())),
        ];
        let told = told
            .into_iter()
            .filter_map(|(name, value)| Some((format!("dev.mayfly.{name}"), value?)));
        parent = row.tick;
        if let Some(layer) = &state.layer {
            layers.push(TickLayer {
                layer: layer.clone(),
                title: match row.tick {
                    Some(tick) => format!("mayfly tick {tick}"),
                    None => "mayfly tick".to_owned(),
                },
                created_at: row.created_at,
                annotations: told.collect(),
            });
        }
    }
    layers
}

fn transcripts(history: &History, agent: &Agent, data_dir: &Path) -> Vec<(TickId, PathBuf)> {
    let path = |row: &TickRow| (row.id, transcript::path(data_dir, agent.id, row.id));
    let mut found: Vec<_> = history.ticks.iter().map(path).collect();
    found.sort();
    found
}

fn transcripts_of(data_dir: &Path, agent: AgentId) -> PathBuf {
    let any = transcript::path(data_dir, agent, TickId::new());
    any.parent().map(Path::to_owned).unwrap_or_default()
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
    let synced = File::open(to).and_then(|folder| folder.sync_all());
    synced.map_err(|error| fault(to, error))
}

fn made(folder: &Path) -> Result<(), OciError> {
    use std::os::unix::fs::DirBuilderExt as _;
    let made = fs::DirBuilder::new().mode(0o700).create(folder);
    made.map_err(|source| {
        let path = folder.to_owned();
        StoreError::Io { path, source }.into()
    })
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, OciError> + Send + 'static,
) -> Result<T, RequestError> {
    let done = tokio::task::spawn_blocking(work).await;
    Ok(done.map_err(|panic| internal(&panic))??)
}

impl From<OciError> for RequestError {
    fn from(error: OciError) -> Self {
        match error {
            OciError::Store(error) => error.into(),
            OciError::Limit(_) => RequestError::TooLarge(error.to_string()),
            _ => RequestError::Invalid(format!("this is no agent to import: {error}")),
        }
    }
}
