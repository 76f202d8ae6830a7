//! Whether the layers and bases of an installation are what their rows say.
//!
//! A row knows how much its layer added. Files that it shares with others are not in that number, so
//! a layer may well have more, and one with less is damaged. Bytes are allocated ones, which another
//! file system counts otherwise: there only much less counts. Content is compared only with a
//! backup, which knows each layer's digest.

use std::{
    collections::HashMap,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use mayfly_domain::AgentId;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;
use utoipa::ToSchema;

use super::Manifest;
use crate::{
    db::{Db, DbError, depot::Whereabouts},
    observe,
    snapshot::{LayerSize, ReplicaError, Replicator, StoreError, replica},
};

/// Another file system may need so much less for each file.
const SLACK: u64 = 8192;

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LayersView {
    /// Layers and bases that were looked at.
    pub looked_at: u64,
    /// Those whose content was compared with the backup.
    pub compared: u64,
    /// What is wrong.
    pub damaged: Vec<Damage>,
}

/// One damaged folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Damage {
    /// `l/<layer>` or `b/<base>`.
    pub folder: String,
    /// One sentence.
    pub damage: String,
    /// The agents whose files now need it.
    pub agents: Vec<AgentId>,
    /// Those that need it to go back to earlier ticks only.
    pub earlier: Vec<AgentId>,
}

/// Looks at everything that rows name and that is not in the layer store only; with a backup's manifest its
/// digests are compared too.
pub async fn layers(
    db: &Db,
    data_dir: PathBuf,
    against: Option<Manifest>,
    stop: CancellationToken,
) -> Result<LayersView, DbError> {
    let digests: HashMap<String, String> = against
        .map(|manifest| manifest.trees)
        .unwrap_or_default()
        .into_iter()
        .map(|item| (item.path, item.sha256))
        .collect();
    let mut view = LayersView {
        looked_at: 0,
        compared: 0,
        damaged: Vec::new(),
    };
    for base in db.kept_bases().await? {
        let folder = format!("b/{base}");
        if is_stored_only(&data_dir.join(&folder), db.base_is(&base)).await? {
            continue;
        }
        let found = look(&data_dir, &folder, None, &digests, &stop).await;
        if let Some(damage) = view.note(found) {
            // It may have been removed since.
            if db.kept_bases().await?.contains(&base) {
                let agents = db.agents_on_base(&base).await?;
                view.add(folder, damage, agents, Vec::new());
            }
        }
    }
    for (layer, size) in db.layer_sizes().await? {
        let folder = format!("l/{layer}");
        if is_stored_only(&data_dir.join(&folder), db.layer_is(&layer)).await? {
            continue;
        }
        let found = look(&data_dir, &folder, Some(size), &digests, &stop).await;
        if let Some(damage) = view.note(found)
            && db.knows_layer(&layer).await?
        {
            let (mut now, mut earlier) = (Vec::new(), Vec::new());
            for agent in db.agents_on_layer(&layer).await? {
                let head = db.agent(agent).await?.and_then(|agent| agent.head);
                match db.layers_of(head).await?.contains(&layer) {
                    true => now.push(agent),
                    false => earlier.push(agent),
                }
            }
            view.add(folder, damage, now, earlier);
        }
    }
    Ok(view)
}

impl LayersView {
    fn note(&mut self, found: Found) -> Option<String> {
        self.looked_at += 1;
        self.compared += u64::from(found.compared);
        found.damage
    }

    fn add(&mut self, folder: String, damage: String, agents: Vec<AgentId>, earlier: Vec<AgentId>) {
        self.damaged.push(Damage {
            folder,
            damage,
            agents,
            earlier,
        });
    }
}

struct Found {
    damage: Option<String>,
    compared: bool,
}

/// Whether what a row tells of is not at this place, but in the layer store.
async fn is_stored_only(
    place: &Path,
    row: impl Future<Output = Result<Option<Whereabouts>, DbError>>,
) -> Result<bool, DbError> {
    Ok(!place.exists() && row.await?.is_some_and(|found| found.parcel.is_some()))
}

async fn look(
    data_dir: &Path,
    folder: &str,
    row: Option<LayerSize>,
    digests: &HashMap<String, String>,
    stop: &CancellationToken,
) -> Found {
    let path = data_dir.join(folder);
    let (known, stop) = (digests.get(folder).cloned(), stop.clone());
    let looking = tokio::task::spawn_blocking(move || judge(&path, row, known, stop));
    looking
        .await
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
}

fn judge(
    path: &Path,
    row: Option<LayerSize>,
    known: Option<String>,
    stop: CancellationToken,
) -> Found {
    let mut found = Found {
        damage: None,
        compared: false,
    };
    let wrong = |found: &mut Found, damage: String| found.damage = Some(damage);
    match path.symlink_metadata() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            wrong(&mut found, "it is missing".to_owned());
            return found;
        }
        Ok(folder) if folder.uid() != 0 => {
            let damage = format!("it belongs to user id {}, not to root", folder.uid());
            wrong(&mut found, damage);
            return found;
        }
        _ => {}
    }
    if let Some(row) = row {
        match weigh(path).map(|most| less(row, most)) {
            Ok(None) => {}
            Ok(damage) => {
                found.damage = damage;
                return found;
            }
            Err(error) => wrong(&mut found, observe::chain(&error)),
        }
    }
    let mut replicator = Replicator::new(stop);
    let answer = match &known {
        Some(_) => replicator.digest(path).map(Some),
        None => replicator.kinds(path).map(|()| None),
    };
    match (answer, known) {
        (Ok(Some(now)), Some(then)) => {
            found.compared = true;
            if now != then {
                let damage = "its content is not what was backed up";
                wrong(&mut found, damage.to_owned());
            }
        }
        (Err(error @ ReplicaError::Foreign { .. }), _) => wrong(&mut found, error.to_string()),
        (Err(ReplicaError::Source(error)), _) => wrong(&mut found, observe::chain(&error)),
        _ => {}
    }
    found
}

/// All slots of a layer, whatever shares its files.
fn weigh(layer: &Path) -> Result<LayerSize, StoreError> {
    let mut weight = replica::Weight::new();
    let entries = std::fs::read_dir(layer).map_err(|source| StoreError::Io {
        path: layer.to_owned(),
        source,
    })?;
    for slot in entries.flatten() {
        weight.add(&slot.path())?;
    }
    Ok(weight.sum())
}

fn less(row: LayerSize, most: LayerSize) -> Option<String> {
    if most.inodes < row.inodes {
        return Some(format!("it has {} files, not {}", most.inodes, row.inodes));
    }
    (most.bytes + SLACK * (most.inodes + 1) < row.bytes).then(|| {
        let (found, wanted) = (super::size(most.bytes), super::size(row.bytes));
        format!("it has {found}, not {wanted}")
    })
}
