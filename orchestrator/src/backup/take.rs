//! Taking one.

use std::{
    collections::{BTreeMap, HashSet},
    fs::{self, DirBuilder},
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use mayfly_domain::{AgentId, InstallationId};
use tokio_util::sync::CancellationToken;

use super::{
    BackupError, BackupView, ImageLeft, bring,
    manifest::{DATABASE, Item, Manifest},
    place::Place,
};
use crate::{
    blobs::Blobs,
    clock,
    db::{Db, copy::Named, images::ImageInUse},
    depot::Travel,
    faults, observe,
    sandbox::{Backend, disk},
    snapshot::{LayerSize, ReplicaError, Replicator, StoreError, replica},
    worker::host_disk::HostDisk,
};

/// For the manifest, folders and what a file system needs beside the data.
const MORE: u64 = 16 << 20;

/// What is backed up.
pub struct Parts {
    /// Its rows.
    pub db: Db,
    /// Its folders.
    pub data_dir: PathBuf,
    /// Gives images.
    pub backend: Arc<dyn Backend>,
    /// Whose it is.
    pub installation: InstallationId,
    /// Its floor holds where the backup goes to the same disk.
    pub host_disk: HostDisk,
    /// Brings what is in the layer store only.
    pub travel: Travel,
    /// The same for files.
    pub blobs: Blobs,
}

/// Takes a backup into the new folder `target`; given up, without traces, once `stop` is cancelled.
pub async fn take(
    parts: Parts,
    target: &Path,
    with_images: bool,
    stop: CancellationToken,
) -> Result<BackupView, BackupError> {
    let Parts { db, data_dir, .. } = &parts;
    let data_dir = data_dir.canonicalize().unwrap_or_else(|_| data_dir.clone());
    let place = Place::claim(target, &data_dir)?;
    let files = weigh(&data_dir).await?;
    check_room(&place, &parts, &data_dir, files, rows(&data_dir))?;
    let mut manifest = Manifest::new(parts.installation, clock::unix_ms());
    let copied = db.copy_to(&place.aside().join(DATABASE)).await;
    let (named, pin) = copied.map_err(|error| match error.is_full() {
        true => BackupError::Full(place.target().to_owned()),
        false => error.into(),
    })?;
    faults::point("backup.database");
    let weighing = stop.run_until_cancelled(bring::weigh(&parts, &named));
    let fetched = weighing.await.ok_or(BackupError::Stopped)??;
    // The rows are there by now.
    check_room(&place, &parts, &data_dir, files, fetched)?;
    let bringing = stop.run_until_cancelled(bring::all(&parts, &named));
    if bringing.await.ok_or(BackupError::Stopped)?? {
        check_room(&place, &parts, &data_dir, weigh(&data_dir).await?, 0)?;
    }
    if with_images {
        let folder = place.aside().join("images");
        archive(&parts, &data_dir, &named.images, &folder, &stop).await?;
    }
    for image in &named.images {
        if !place.aside().join(archive_name(&image.id)).exists() {
            manifest.images.push(ImageLeft {
                id: image.id.clone(),
                registry: image.registry.clone(),
            });
        }
    }
    let copying = tokio::task::spawn_blocking(move || {
        let bytes = copy(&data_dir, &place, &named, &mut manifest, stop)?;
        let target = place.finish()?;
        Ok(view(target, bytes, manifest))
    });
    let done = copying
        .await
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()));
    drop(pin);
    done
}

/// Bytes of the rows before they are copied.
fn rows(data_dir: &Path) -> u64 {
    let sizes = [DATABASE, "mayfly.db-wal"].map(|file| fs::metadata(data_dir.join(file)));
    sizes.iter().flatten().map(fs::Metadata::len).sum()
}

/// All files that may have to be copied: more than the rows name, never less.
async fn weigh(data_dir: &Path) -> Result<LayerSize, BackupError> {
    let data_dir = data_dir.to_owned();
    let weighing = tokio::task::spawn_blocking(move || {
        let mut weight = replica::Weight::new();
        for folder in ["l", "b", "blobs", "transcripts"] {
            let Ok(entries) = fs::read_dir(data_dir.join(folder)) else {
                continue;
            };
            for entry in entries.flatten() {
                // Layers come and go; what else is wrong is told where it is copied.
                if let Err(error) = weight.add(&entry.path()) {
                    tracing::debug!(%error, "not weighed");
                }
            }
        }
        Ok(weight.sum())
    });
    weighing
        .await
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
}

/// Whether it fits there; `fetched` bytes come onto the disk of the data dir first.
fn check_room(
    place: &Place,
    parts: &Parts,
    data_dir: &Path,
    weight: LayerSize,
    fetched: u64,
) -> Result<(), BackupError> {
    use std::os::unix::fs::MetadataExt as _;
    let at = place.aside();
    let device = |path: &Path| fs::metadata(path).map(|found| found.dev());
    let free = disk::free(at).map_err(|source| StoreError::Io {
        path: at.to_owned(),
        source,
    });
    let (mut free, free_inodes) = free?;
    let (bytes, inodes) = (weight.bytes + fetched + MORE, weight.inodes + 1000);
    if let (Ok(here), Ok(there)) = (device(data_dir), device(at))
        && here == there
    {
        free = free.saturating_sub(parts.host_disk.floor() + fetched);
    }
    // Some file systems do not count files.
    let few = free_inodes < inodes && free_inodes > 0;
    if bytes > free || few {
        return Err(BackupError::NoRoom {
            path: place.target().to_owned(),
            bytes,
            inodes,
            free,
            free_inodes,
        });
    }
    Ok(())
}

fn archive_name(id: &str) -> String {
    let bare = id.strip_prefix("sha256:").unwrap_or(id);
    let short: String = bare.chars().take(12).collect();
    format!("images/{short}.tar")
}

/// Asks the engine for images that are not kept as an archive; one it has lost is left out.
async fn archive(
    parts: &Parts,
    data_dir: &Path,
    images: &[ImageInUse],
    folder: &Path,
    stop: &CancellationToken,
) -> Result<(), BackupError> {
    make(folder)?;
    for image in images {
        let name = archive_name(&image.id);
        let (kept, to) = (data_dir.join(&name), folder.with_file_name(&name));
        if kept.is_file() {
            let mut replicator = Replicator::new(stop.clone());
            let copying = tokio::task::spawn_blocking({
                let to = to.clone();
                move || replicator.copy_file(&kept, &to)
            });
            let copied = copying
                .await
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()));
            copied.map_err(|error| BackupError::of(error, &to))?;
            continue;
        }
        let writing = stop.run_until_cancelled(parts.backend.archive(&image.id, &to));
        match writing.await {
            None => return Err(BackupError::Stopped),
            Some(Err(crate::sandbox::BackendError::NoImage(_))) => {}
            Some(written) => written?,
        }
    }
    Ok(())
}

/// One folder of the data dir, and which of its files.
struct Wanted {
    path: String,
    only: Option<HashSet<String>>,
}

fn wanted(named: &Named) -> Vec<Wanted> {
    let mut transcripts: BTreeMap<AgentId, HashSet<String>> = BTreeMap::new();
    for (agent, tick) in &named.ticks {
        let names = transcripts.entry(*agent).or_default();
        names.insert(format!("{tick}.jsonl"));
    }
    let mut blobs: BTreeMap<&str, HashSet<String>> = BTreeMap::new();
    for blob in &named.blobs {
        let names = blobs.entry(&blob.as_str()[..2]).or_default();
        names.insert(blob.as_str().to_owned());
    }
    let whole = |path: String| Wanted { path, only: None };
    // Bases first: layers link to their files.
    let bases = named.bases.iter().map(|id| whole(format!("b/{id}")));
    let layers = named.layers.iter().map(|id| whole(format!("l/{id}")));
    let transcripts = transcripts.into_iter().map(|(agent, names)| Wanted {
        path: format!("transcripts/{agent}"),
        only: Some(names),
    });
    let blobs = blobs.into_iter().map(|(start, names)| Wanted {
        path: format!("blobs/{start}"),
        only: Some(names),
    });
    bases
        .chain(layers)
        .chain(transcripts)
        .chain(blobs)
        .collect()
}

/// Copies what the rows name, writes the manifest and makes all of it durable.
fn copy(
    data_dir: &Path,
    place: &Place,
    named: &Named,
    manifest: &mut Manifest,
    stop: CancellationToken,
) -> Result<u64, BackupError> {
    let aside = place.aside();
    let mut replicator = Replicator::new(stop);
    for folder in ["b", "l", "transcripts", "blobs"] {
        make(&aside.join(folder))?;
    }
    for (n, Wanted { path, only }) in wanted(named).into_iter().enumerate() {
        if n == 1 {
            faults::point("backup.copying");
        }
        let (from, to) = (data_dir.join(&path), aside.join(&path));
        if let Some(only) = &only {
            let lost = |name: &&String| !from.join(name).exists();
            if path.starts_with("blobs/") {
                let lost = only.iter().filter(lost);
                let lost = lost.map(|name| format!("{path}/{name}"));
                manifest.damaged.extend(lost);
            }
            if !from.exists() {
                continue;
            }
        }
        let keep = |name: &[u8]| {
            let known = |only: &HashSet<String>| {
                std::str::from_utf8(name).is_ok_and(|name| only.contains(name))
            };
            only.as_ref().is_none_or(known)
        };
        match replicator.copy(&from, &to, &keep) {
            Ok(sha256) => manifest.trees.push(Item { path, sha256 }),
            Err(error @ (ReplicaError::Source(_) | ReplicaError::Foreign { .. })) => {
                // The rest is worth keeping all the more.
                tracing::error!(
                    error = observe::chain(&error),
                    path,
                    "damaged: not backed up"
                );
                replica::remove(&to)?;
                manifest.damaged.push(path);
            }
            Err(error) => return Err(BackupError::of(error, place.target())),
        }
    }
    let (mut bytes, mut hasher) = (0, Replicator::new(CancellationToken::new()));
    manifest.database = plain_digest(&mut hasher, &aside.join(DATABASE), &mut bytes)?;
    for image in &named.images {
        let path = archive_name(&image.id);
        let archive = aside.join(&path);
        if archive.exists() && !manifest.archives.iter().any(|known| known.path == path) {
            let sha256 = plain_digest(&mut hasher, &archive, &mut bytes)?;
            manifest.archives.push(Item { path, sha256 });
        }
    }
    let mut weight = replica::Weight::new();
    for folder in ["b", "l", "transcripts", "blobs"] {
        weight.add(&aside.join(folder))?;
    }
    replica::settle(aside)?;
    faults::point("backup.copied");
    manifest.write(aside).map_err(|source| StoreError::Io {
        path: aside.to_owned(),
        source,
    })?;
    faults::point("backup.manifest");
    Ok(bytes + weight.sum().bytes)
}

fn plain_digest(
    replicator: &mut Replicator,
    path: &Path,
    bytes: &mut u64,
) -> Result<String, BackupError> {
    let hashed = replicator.digest_file(path);
    let (sha256, length) = hashed.map_err(|error| BackupError::of(error, path))?;
    *bytes += length;
    Ok(sha256)
}

fn make(folder: &Path) -> Result<(), BackupError> {
    let made = DirBuilder::new().mode(0o700).create(folder);
    Ok(made.map_err(|source| StoreError::Io {
        path: folder.to_owned(),
        source,
    })?)
}

fn view(path: PathBuf, bytes: u64, manifest: Manifest) -> BackupView {
    let layers = manifest
        .trees
        .iter()
        .filter(|item| item.path.starts_with("l/"));
    BackupView {
        layers: layers.count() as u64,
        path,
        bytes,
        damaged: manifest.damaged,
        images: manifest.images,
    }
}
