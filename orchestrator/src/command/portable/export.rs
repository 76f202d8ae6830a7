//! The way out: a state is pinned with all that led to it, then written.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
};

use mayfly_domain::{AgentId, SandboxRef, TickId};
use tokio::sync::OwnedSemaphorePermit;

use super::{Commands, RequestError, blocking};
use crate::{
    agent::transcript,
    db::{agents::Agent, portable::PinnedStates},
    snapshot::{
        Slot, Store, StoreError,
        oci::{
            Compress, Export, Exported, FORM, History, LABEL_FORM, OciError, Output, TickLayer,
            TickRow,
        },
    },
};

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

/// An export whose layers are pinned; nothing is written yet.
pub struct PreparedExport {
    commands: Commands,
    pinned: PinnedStates,
    agent: Agent,
    history: History,
    how: ExportAs,
    /// Given back when it is written or dropped.
    _place: OwnedSemaphorePermit,
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
        let place = self.travel.export()?;
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
        let layers = pinned.states.iter().filter_map(|state| state.layer.clone());
        self.bring(&agent.base, &layers.collect::<Vec<_>>()).await?;
        let history = self.history_of(&agent, at, &pinned, how).await?;
        Ok(PreparedExport {
            commands: self.clone(),
            pinned,
            agent,
            history,
            how,
            _place: place,
        })
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
        let done = self.write_to(Output::Stream { to, aside })?;
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
        let file = File::create_new(&part).map_err(fault)?;
        let written = self.write_to(Output::File(&file, Path::new(&part)));
        let named = written.and_then(|done| {
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
