//! A state and its history as an image layout: the base, one layer per tick, and last the layer of
//! records and transcripts. The same state makes the same bytes.

use std::{
    collections::BTreeMap,
    fs::File,
    io::Write,
    path::{Path, PathBuf},
};

use mayfly_domain::{BaseId, LayerId, TickId};
use serde::{Deserialize, Serialize};
use sha2::Digest;
use utoipa::ToSchema;

use super::{
    super::{Slot, Store, StoreError, checked, tree::Tree},
    Compress, OciError,
    header::Meta,
    history,
    image::{self, Config, Descriptor, Index, Inner, LAYERS_MAX, Manifest, RootFs},
    links::Links,
    pack::pack,
    sink::{Output, Sink},
    squeeze::{Feeder, squeeze},
    write::{Body, Writer},
};

/// Where a base's files beside its slots appear in a sandbox.
pub(super) const BESIDE: [(&str, &str); 2] = [("etc/group", "group"), ("etc/passwd", "passwd")];

/// What is exported.
pub struct Export<'a> {
    /// What the layers lie on.
    pub base: &'a BaseId,
    /// Whether the base is the first layer.
    pub with_base: bool,
    /// Oldest first.
    pub layers: &'a [TickLayer],
    /// See [`super::History::to_lines`].
    pub records: &'a [u8],
    /// Where each tick's transcript lies; one that is missing is left out.
    pub transcripts: &'a [(TickId, PathBuf)],
    /// Of the image, `dev.mayfly.…`.
    pub labels: BTreeMap<String, String>,
    /// `uid:gid`.
    pub user: String,
    /// When the state was made, unix ms.
    pub created_at: i64,
    /// How layers are stored.
    pub compress: Compress,
}

/// A layer and what is told of it.
#[derive(Debug, Clone)]
pub struct TickLayer {
    /// Which.
    pub layer: LayerId,
    /// In the image's history, for people.
    pub title: String,
    /// Unix ms.
    pub created_at: i64,
    /// Of its descriptor, `dev.mayfly.…`.
    pub annotations: BTreeMap<String, String>,
}

/// What an export made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Exported {
    /// The manifest's, `sha256:…`: the name of exactly this state and history.
    pub digest: String,
    /// Layers, that of the records included.
    pub layers: usize,
    /// Bytes of all blobs.
    pub bytes: u64,
}

impl Store {
    /// Writes the layout. Its layers must be pinned. On failure a folder that was begun is removed.
    pub fn export(
        &self,
        what: &Export<'_>,
        slots: &[Slot],
        output: Output<'_>,
    ) -> Result<Exported, OciError> {
        checked(slots)?;
        let begun = match &output {
            Output::Folder(path) if !path.exists() => Some(path.to_path_buf()),
            _ => None,
        };
        let done = Exporter::new(self, what, slots, output).and_then(Exporter::run);
        if let (Err(_), Some(path)) = (&done, begun) {
            // What cannot be removed is told apart by its missing index.
            let _ = std::fs::remove_dir_all(path);
        }
        done
    }

    /// The `diff_id` that the base would have as a layer.
    pub fn base_diff_id(&self, base: &BaseId, slots: &[Slot]) -> Result<String, OciError> {
        struct Sum(sha2::Sha256);
        impl Write for Sum {
            fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
                self.0.update(bytes);
                Ok(bytes.len())
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        checked(slots)?;
        let dir = self.base_dir(base);
        let mut parts = Part::of(slots);
        for part in &mut parts {
            part.trees.push(Tree::open(&dir.join(&part.slot.name))?);
        }
        let mut writer = Writer::new(Sum(sha2::Sha256::new()));
        base_layer(&mut writer, &dir, &mut parts)?;
        let sum = writer
            .finish()
            .map_err(|error| StoreError::io(dir, error))?;
        Ok(format!("sha256:{}", hex::encode(sum.0.finalize())))
    }
}

/// One slot on its way through the layers.
pub(super) struct Part<'a> {
    pub(super) slot: &'a Slot,
    prefix: Vec<u8>,
    /// Its folder in each layer so far, oldest first.
    pub(super) trees: Vec<Tree>,
    links: Links,
}

impl<'a> Part<'a> {
    /// By their place in the archive.
    pub(super) fn of(slots: &'a [Slot]) -> Vec<Part<'a>> {
        let part = |slot: &'a Slot| Part {
            slot,
            prefix: prefix(slot),
            trees: Vec::new(),
            links: Links::default(),
        };
        let mut parts: Vec<_> = slots.iter().map(part).collect();
        parts.sort_by(|a, b| a.prefix.cmp(&b.prefix));
        parts
    }
}

pub(super) fn prefix(slot: &Slot) -> Vec<u8> {
    slot.path.trim_matches('/').as_bytes().to_vec()
}

struct Exporter<'a, 'o> {
    store: &'a Store,
    what: &'a Export<'a>,
    parts: Vec<Part<'a>>,
    sink: Sink<'o>,
    layers: Vec<Descriptor>,
    diff_ids: Vec<String>,
    history: Vec<image::History>,
}

impl<'a, 'o> Exporter<'a, 'o> {
    fn new(
        store: &'a Store,
        what: &'a Export<'a>,
        slots: &'a [Slot],
        output: Output<'o>,
    ) -> Result<Self, OciError> {
        if what.layers.len() + 2 > LAYERS_MAX {
            return Err(OciError::Limit(format!(
                "the state has {} layers, an image at most {LAYERS_MAX}",
                what.layers.len()
            )));
        }
        if what.records.len() > history::BYTES_MAX {
            let reason = "its records have more than 256 MiB: export an earlier tick";
            return Err(OciError::Limit(reason.to_owned()));
        }
        Ok(Exporter {
            store,
            what,
            parts: Part::of(slots),
            sink: Sink::open(output)?,
            layers: Vec::new(),
            diff_ids: Vec::new(),
            history: Vec::new(),
        })
    }

    fn run(mut self) -> Result<Exported, OciError> {
        let dir = self.store.base_dir(self.what.base);
        for part in &mut self.parts {
            part.trees.push(Tree::open(&dir.join(&part.slot.name))?);
        }
        let (mut parts, what) = (std::mem::take(&mut self.parts), self.what);
        if what.with_base {
            self.layer("mayfly base", what.created_at, BTreeMap::new(), |writer| {
                base_layer(writer, &dir, &mut parts)
            })?;
        } else {
            // Older names are needed to tell which files are linked.
            let mut nowhere = Writer::new(std::io::sink());
            base_layer(&mut nowhere, &dir, &mut parts)?;
        }
        for tick in what.layers {
            let dir = self.store.layer_dir(&tick.layer);
            if !dir.is_dir() {
                let layer = tick.layer.clone();
                return Err(StoreError::Missing { layer }.into());
            }
            let annotations = tick.annotations.clone();
            self.layer(&tick.title, tick.created_at, annotations, |writer| {
                tick_layer(writer, &dir, &mut parts)
            })?;
        }
        self.layer(
            "mayfly records",
            what.created_at,
            BTreeMap::new(),
            |writer| records_layer(writer, what),
        )?;
        self.documents()
    }

    fn layer(
        &mut self,
        title: &str,
        created_at: i64,
        annotations: BTreeMap<String, String>,
        fill: impl FnOnce(&mut Writer<Feeder>) -> Result<(), OciError>,
    ) -> Result<(), OciError> {
        let blob = self.sink.begin()?;
        let path = &blob.path;
        let squeezed = squeeze(self.what.compress, &blob.file, |feeder| {
            let mut writer = Writer::new(feeder);
            fill(&mut writer)?;
            let ended = writer.finish();
            ended.map_err(|error| OciError::from(StoreError::io(path, error)))
        });
        let squeezed = squeezed.map_err(|error| StoreError::io(path, error))??;
        self.sink.keep(&blob, &squeezed.digest, squeezed.size)?;
        self.layers.push(Descriptor {
            media_type: self.what.compress.media_type(),
            digest: format!("sha256:{}", squeezed.digest),
            size: squeezed.size,
            annotations,
        });
        self.diff_ids.push(format!("sha256:{}", squeezed.diff_id));
        self.history.push(image::History {
            created: time(created_at),
            created_by: title.to_owned(),
            comment: String::new(),
            empty_layer: false,
        });
        Ok(())
    }

    fn documents(mut self) -> Result<Exported, OciError> {
        let config = Config {
            created: time(self.what.created_at),
            architecture: image::architecture().to_owned(),
            os: "linux".to_owned(),
            config: Inner {
                user: self.what.user.clone(),
                working_dir: "/".to_owned(),
                labels: self.what.labels.clone(),
            },
            rootfs: RootFs {
                kind: "layers".to_owned(),
                diff_ids: self.diff_ids,
            },
            history: self.history,
        };
        let config = document(&config)?;
        let config = self.sink.blob(image::CONFIG, &config)?;
        let (layers, sizes) = (self.layers.len(), self.layers.iter().map(|l| l.size));
        let mut bytes = config.size + sizes.sum::<u64>();
        let manifest = Manifest {
            schema_version: 2,
            media_type: image::MANIFEST.to_owned(),
            config,
            layers: self.layers,
            annotations: self.what.labels.clone(),
        };
        let manifest = document(&manifest)?;
        let mut manifest = self.sink.blob(image::MANIFEST, &manifest)?;
        bytes += manifest.size;
        let digest = manifest.digest.clone();
        let name = (image::NAME.to_owned(), "latest".to_owned());
        manifest.annotations = BTreeMap::from([name]);
        self.sink.finish(&Index {
            schema_version: 2,
            media_type: image::INDEX.to_owned(),
            manifests: vec![manifest],
        })?;
        Ok(Exported {
            digest,
            layers,
            bytes,
        })
    }
}

fn document(document: &impl serde::Serialize) -> Result<Vec<u8>, OciError> {
    let content = serde_json::to_vec(document).expect("documents are plain");
    match content.len() as u64 > image::DOCUMENT_MAX {
        true => Err(OciError::Limit(
            "the state has more layers than an image can list".to_owned(),
        )),
        false => Ok(content),
    }
}

/// The slots as the image has them, the folders on the way to them, and passwd and group.
pub(super) fn base_layer<W: Write>(
    writer: &mut Writer<W>,
    dir: &Path,
    parts: &mut [Part<'_>],
) -> Result<(), OciError> {
    let fault = |error| OciError::from(StoreError::io(dir, error));
    let mut beside = Vec::new();
    for (shown, name) in BESIDE {
        if let Ok(content) = std::fs::read(dir.join(name)) {
            beside.push((shown, content));
        }
    }
    let mut folders: Vec<Vec<u8>> = Vec::new();
    let shown = beside.iter().map(|(shown, _)| shown.as_bytes());
    let inside = parts.iter().map(|part| &part.prefix[..]).chain(shown);
    for path in inside {
        let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        folders.extend(ends.map(|(at, _)| path[..=at].to_vec()));
    }
    folders.sort();
    folders.dedup();
    let mut parts = parts.iter_mut().peekable();
    let mut beside = beside.into_iter().peekable();
    let mut folders = folders.into_iter().peekable();
    loop {
        let folder = folders.peek().map(|path| &path[..]);
        let file = beside.peek().map(|(path, _)| path.as_bytes());
        let slot = parts.peek().map(|part| &part.prefix[..]);
        let Some(first) = [folder, file, slot].into_iter().flatten().min() else {
            return Ok(());
        };
        if folder == Some(first) {
            let meta = Meta::plain(0o755);
            if let Some(path) = folders.next() {
                writer.folder(&path, meta, &Vec::new()).map_err(fault)?;
            }
        } else if file == Some(first) {
            if let Some((path, content)) = beside.next() {
                let meta = Meta::plain(0o644);
                writer
                    .bytes(path.as_bytes(), meta, &content)
                    .map_err(fault)?;
            }
        } else if let Some(part) = parts.next() {
            pack(writer, &part.prefix, &part.trees, &mut part.links)?;
        }
    }
}

pub(super) fn tick_layer<W: Write>(
    writer: &mut Writer<W>,
    dir: &Path,
    parts: &mut [Part<'_>],
) -> Result<(), OciError> {
    for part in parts {
        let path = dir.join(&part.slot.name);
        if path.is_dir() {
            part.trees.push(Tree::open(&path)?);
            pack(writer, &part.prefix, &part.trees, &mut part.links)?;
        }
    }
    Ok(())
}

fn records_layer<W: Write>(writer: &mut Writer<W>, what: &Export<'_>) -> Result<(), OciError> {
    let at = |error| OciError::from(StoreError::io(history::RECORDS, error));
    let (folder, file) = (Meta::plain(0o700), Meta::plain(0o600));
    let none = Vec::new();
    writer
        .folder(history::FOLDER.as_bytes(), folder, &none)
        .map_err(at)?;
    writer
        .bytes(history::RECORDS.as_bytes(), file, what.records)
        .map_err(at)?;
    writer
        .folder(history::TRANSCRIPTS.as_bytes(), folder, &none)
        .map_err(at)?;
    for (tick, path) in what.transcripts {
        let Ok(from) = File::open(path) else { continue };
        let shown = format!("{}{tick}.jsonl", history::TRANSCRIPTS);
        let written = from.metadata().and_then(|meta| {
            let body = Body {
                from: &from,
                length: meta.len(),
                pieces: None,
            };
            writer.file(shown.as_bytes(), file, &none, &body, None)
        });
        written.map_err(|error| StoreError::io(path, error))?;
    }
    Ok(())
}

/// RFC 3339, as images tell times.
fn time(unix_ms: i64) -> String {
    jiff::Timestamp::from_millisecond(unix_ms)
        .unwrap_or(jiff::Timestamp::UNIX_EPOCH)
        .to_string()
}
