//! A layout that anybody may have made becomes layers and a base: built aside, durable, then
//! visible. Each layer's two digests are checked: what is stored before a byte is unpacked, what was
//! unpacked before anything is visible. A failed import leaves nothing.

use std::{
    collections::HashSet,
    io::{self, BufReader, Read},
    path::{Path, PathBuf},
};

use mayfly_domain::{BaseId, LayerId, TickId};

use super::{
    super::{
        LayerSize, Slot, Store, StoreError, begin::make, checked, durable, measure::Measure,
        notes::Notes, seal::ready_dir, stack::Stack, tree::Tree,
    },
    Compress, LABEL_FORM, OciError,
    export::{BESIDE, prefix},
    history::{self, FORM, History},
    image::{Config, Descriptor, INDEX, Index, LAYERS_MAX, Layout, MANIFEST, Manifest},
    layout::{Source, keep},
    read::{Entry, Kind, Reader, TarError},
    squeeze::unsqueeze,
    unpack::{Budget, Target, unpack},
};

/// A layout whose documents were read and checked.
pub struct Archive {
    folder: PathBuf,
    blobs: Blobs,
    /// The records' is the last one.
    layers: Vec<Layer>,
}

/// Whose the stored layers are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Blobs {
    /// Somebody's folder.
    Theirs,
    /// [`super::receive`] wrote them for this import.
    Received,
}

struct Layer {
    stored: Descriptor,
    compress: Compress,
    diff_id: String,
}

/// What came with the layers.
pub struct Records {
    /// Checked.
    pub history: History,
    /// A file per tick of the history, `<tick>.jsonl`; its content is not checked, as nothing depends on it.
    pub transcripts: PathBuf,
}

/// What an import made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Imported {
    /// Of each layer, in the order given.
    pub sizes: Vec<LayerSize>,
    /// What was dropped or stripped, for people.
    pub notes: Vec<String>,
}

impl Archive {
    /// Reads the documents of the layout in a folder.
    pub fn open(folder: &Path) -> Result<Archive, OciError> {
        let source = Source(folder);
        let layout: Layout = parse("oci-layout", &source.layout()?)?;
        if layout.image_layout_version != "1.0.0" {
            return Err(OciError::Version(layout.image_layout_version));
        }
        let index: Index = parse("index.json", &source.index()?)?;
        of_version("index.json", index.schema_version, &index.media_type, INDEX)?;
        let images = index.manifests.iter();
        let images: Vec<_> = images.filter(|of| of.media_type == MANIFEST).collect();
        let [image] = images[..] else {
            let reason = format!("it names {} images, not one", images.len());
            return Err(OciError::bad("index.json", reason));
        };
        let manifest: Manifest = parse("the manifest", &source.document(image)?)?;
        let version = manifest.schema_version;
        of_version("the manifest", version, &manifest.media_type, MANIFEST)?;
        if manifest.layers.len() > LAYERS_MAX {
            let count = manifest.layers.len();
            return Err(OciError::Limit(format!("its image has {count} layers")));
        }
        let config: Config = parse("the config", &source.document(&manifest.config)?)?;
        match config.config.labels.get(LABEL_FORM) {
            Some(form) if *form == FORM.to_string() => {}
            Some(form) => return Err(OciError::Version(form.chars().take(40).collect())),
            None => return Err(OciError::bad("the config", "it is no exported agent")),
        }
        if config.rootfs.kind != "layers" {
            let reason = "its root file system is of another kind than \"layers\"";
            return Err(OciError::bad("the config", reason));
        }
        if config.rootfs.diff_ids.len() != manifest.layers.len() || manifest.layers.is_empty() {
            let reason = "it lists other layers than the manifest";
            return Err(OciError::bad("the config", reason));
        }
        let pairs = manifest.layers.into_iter().zip(config.rootfs.diff_ids);
        let layer = |(stored, diff_id): (Descriptor, String)| {
            let compress = Compress::of_media_type(&stored.media_type)
                .ok_or_else(|| OciError::bad(&stored.digest, "a layer of unknown kind"))?;
            Ok(Layer {
                stored,
                compress,
                diff_id,
            })
        };
        Ok(Archive {
            folder: folder.to_owned(),
            blobs: Blobs::Theirs,
            layers: pairs.map(layer).collect::<Result<_, OciError>>()?,
        })
    }

    /// [`Archive::open`] of what was received; serves one import.
    pub fn received(folder: &Path) -> Result<Archive, OciError> {
        Ok(Archive {
            blobs: Blobs::Received,
            ..Archive::open(folder)?
        })
    }

    /// Layers of files: all but the records'.
    pub fn layers(&self) -> usize {
        self.layers.len() - 1
    }

    /// The first layer's `diff_id`: the base's, where it is included.
    pub fn base_diff_id(&self) -> &str {
        &self.layers[0].diff_id
    }

    /// Reads the records; transcripts go into `aside`, an empty folder.
    pub fn records(&self, aside: &Path, budget: &mut Budget<'_>) -> Result<Records, OciError> {
        let layer = &self.layers[self.layers()];
        let file = Source(&self.folder).blob(&layer.stored)?;
        let stream = unsqueeze(layer.compress, file).map_err(|error| layer.fault(error))?;
        let mut reader = Reader::new(stream);
        let mut received = Received::default();
        while let Some(entry) = reader.next().map_err(OciError::Tar)? {
            budget.take_entry(&entry)?;
            let bad = |reason| OciError::entry(&entry.path, reason);
            match received.place_of(&entry).map_err(bad)? {
                Place::Folder => {}
                Place::History => {
                    budget.take(entry.length)?;
                    let lines = BufReader::with_capacity(1 << 16, Content(&mut reader));
                    received.put(History::read(lines, self.layers())?);
                }
                Place::Transcript(tick) => {
                    let to = aside.join(format!("{tick}.jsonl"));
                    keep(&mut reader, &entry.path, &to, budget)?;
                }
            }
        }
        layer.check(reader.finish().map_err(OciError::Tar)?.diff_id())?;
        let missing = || OciError::bad("the records", "they are missing");
        Ok(Records {
            history: received.history.ok_or_else(missing)?,
            transcripts: aside.to_owned(),
        })
    }

    /// Stored layers that were received go before the sync, so that the disk is spared them.
    fn spend(&self) -> Result<(), OciError> {
        if self.blobs == Blobs::Theirs {
            return Ok(());
        }
        let source = Source(&self.folder);
        self.layers
            .iter()
            .try_for_each(|layer| source.remove(&layer.stored))
    }

    fn unpack(
        &self,
        at: usize,
        targets: &[Target],
        beside: &super::unpack::Beside,
        budget: &mut Budget<'_>,
        notes: &mut Notes,
    ) -> Result<Vec<bool>, OciError> {
        let layer = &self.layers[at];
        let file = Source(&self.folder).blob(&layer.stored)?;
        let stream = unsqueeze(layer.compress, file).map_err(|error| layer.fault(error))?;
        let unpacked = unpack(stream, targets, beside, budget, notes);
        let (stream, used) = unpacked.map_err(|error| layer.within(error))?;
        layer.check(stream.diff_id())?;
        Ok(used)
    }
}

/// What of the records has come; each part comes once.
#[derive(Default)]
struct Received {
    folders: HashSet<Vec<u8>>,
    history: Option<History>,
    /// Those of the history whose transcript has not come.
    ticks: HashSet<TickId>,
}

/// Where an entry of the records goes.
enum Place {
    Folder,
    History,
    Transcript(TickId),
}

impl Received {
    /// Or why it goes nowhere.
    fn place_of(&mut self, entry: &Entry) -> Result<Place, &'static str> {
        let name = std::str::from_utf8(&entry.path).map_err(|_| "is no record")?;
        let is_folder = [history::FOLDER, history::TRANSCRIPTS]
            .iter()
            .any(|folder| folder.strip_suffix('/') == Some(name));
        match entry.kind {
            Kind::Folder if is_folder => match self.folders.insert(entry.path.clone()) {
                true => Ok(Place::Folder),
                false => Err("is there twice"),
            },
            Kind::File if name == history::RECORDS => match self.history {
                None => Ok(Place::History),
                Some(_) => Err("is there twice"),
            },
            Kind::File => self.transcript(name),
            _ => Err("is no record"),
        }
    }

    /// As many as the history has ticks.
    fn transcript(&mut self, name: &str) -> Result<Place, &'static str> {
        let tick = name.strip_prefix(history::TRANSCRIPTS);
        let tick = tick.and_then(|name| name.strip_suffix(".jsonl"));
        let tick = tick.and_then(|tick| tick.parse().ok());
        let tick: TickId = tick.ok_or("is no record")?;
        match self.ticks.remove(&tick) {
            true => Ok(Place::Transcript(tick)),
            false => Err("is there twice, or the transcript of no tick in the history before it"),
        }
    }

    fn put(&mut self, history: History) {
        self.ticks = history.ticks.iter().map(|row| row.id).collect();
        self.history = Some(history);
    }
}

/// The current entry's content.
struct Content<'a, R>(&'a mut Reader<R>);

impl<R: Read> Read for Content<'_, R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.read(into).map_err(|error| match error {
            TarError::Io(error) => error,
            TarError::Bad(reason) => io::Error::other(reason),
        })
    }
}

impl Layer {
    fn check(&self, found: String) -> Result<(), OciError> {
        match self.diff_id.strip_prefix("sha256:") == Some(&found) {
            true => Ok(()),
            false => Err(OciError::bad(
                &self.stored.digest,
                "it unpacks to other content than the config says",
            )),
        }
    }

    fn fault(&self, error: std::io::Error) -> OciError {
        OciError::bad(&self.stored.digest, error.to_string())
    }

    fn within(&self, error: OciError) -> OciError {
        match error {
            OciError::Tar(error) => OciError::bad(&self.stored.digest, error.to_string()),
            other => other,
        }
    }
}

impl Store {
    /// Makes the new base `base` of an archive's first layer. On failure nothing is left.
    pub fn import_base(
        &self,
        archive: &Archive,
        base: &BaseId,
        slots: &[Slot],
        budget: &mut Budget<'_>,
    ) -> Result<Vec<String>, OciError> {
        checked(slots)?;
        let aside = self.begin_base(base)?;
        let done = self.fill_base(archive, base, &aside, slots, budget);
        if done.is_err() {
            self.throw_away(&aside)?;
            self.remove_base(base)?;
        }
        done
    }

    fn fill_base(
        &self,
        archive: &Archive,
        base: &BaseId,
        aside: &Path,
        slots: &[Slot],
        budget: &mut Budget<'_>,
    ) -> Result<Vec<String>, OciError> {
        let copies = aside.join(".copies");
        make(&copies)?;
        let mut targets = Vec::new();
        for slot in slots {
            let out = aside.join(&slot.name);
            make(&out)?;
            targets.push(Target {
                prefix: prefix(slot),
                out: Tree::open(&out)?,
                below: None,
                aside: Tree::open(&copies)?.must(b"")?,
            });
        }
        let beside = BESIDE.map(|(shown, name)| (shown.as_bytes(), aside.join(name)));
        let mut notes = Notes::default();
        let used = archive.unpack(0, &targets, &beside.into(), budget, &mut notes)?;
        if used.contains(&false) {
            return Err(OciError::bad("the base", "it lacks a slot"));
        }
        super::super::trash::remove(&copies)?;
        self.finish_base(base, slots)?;
        Ok(notes.finish())
    }

    /// Makes the new layers `ids` of an archive's layers from `first` on. They are visible together
    /// at the end; on failure nothing is left. Legal when `base` is what they lie on.
    pub fn import_layers(
        &self,
        archive: &Archive,
        first: usize,
        base: &BaseId,
        ids: &[LayerId],
        slots: &[Slot],
        budget: &mut Budget<'_>,
    ) -> Result<Imported, OciError> {
        checked(slots)?;
        let done = self.fill_layers(archive, first, base, ids, slots, budget);
        if done.is_err() {
            for id in ids {
                self.discard(id)?;
                self.remove_layer(id)?;
            }
        }
        done
    }

    fn fill_layers(
        &self,
        archive: &Archive,
        first: usize,
        base: &BaseId,
        ids: &[LayerId],
        slots: &[Slot],
        budget: &mut Budget<'_>,
    ) -> Result<Imported, OciError> {
        let mut notes = Notes::default();
        let mut sizes = Vec::new();
        for (at, id) in ids.iter().enumerate() {
            let dir = self.upper_dir(id);
            let (ready, copies) = (ready_dir(&dir), dir.join("copies"));
            for path in [&dir, &ready, &copies] {
                make(path)?;
            }
            let mut targets = Vec::new();
            for slot in slots {
                let out = ready.join(&slot.name);
                make(&out)?;
                targets.push(Target {
                    prefix: prefix(slot),
                    out: Tree::open(&out)?,
                    below: Some(self.below(base, &ids[..at], &slot.name)?),
                    aside: Tree::open(&copies)?.must(b"")?,
                });
            }
            let used = archive.unpack(first + at, &targets, &Vec::new(), budget, &mut notes)?;
            let mut measure = Measure::new(None);
            for ((slot, target), used) in slots.iter().zip(&targets).zip(used) {
                match used {
                    true => measure.add(&target.out).map_err(OciError::seal)?,
                    false => super::super::trash::remove(&ready.join(&slot.name))?,
                }
            }
            sizes.push(measure.own().map_err(OciError::seal)?);
        }
        archive.spend()?;
        let trees = ids.iter().map(|id| Tree::open(&self.upper_dir(id)));
        let trees: Vec<_> = trees.collect::<Result<_, _>>()?;
        let count = sizes.iter().map(|size: &LayerSize| size.inodes).sum();
        durable::all(&trees, count)?;
        crate::faults::point("import.built");
        for id in ids {
            self.publish(id)?;
        }
        Ok(Imported {
            sizes,
            notes: notes.finish(),
        })
    }

    /// A slot in layers that are still being made, topmost first, then in the base.
    fn below(&self, base: &BaseId, made: &[LayerId], slot: &str) -> Result<Stack, StoreError> {
        let made = made.iter().rev();
        let made = made.map(|id| ready_dir(&self.upper_dir(id)).join(slot));
        let all = made.filter(|path| path.is_dir());
        let roots: Vec<_> = all.chain([self.base_dir(base).join(slot)]).collect();
        Stack::open(&roots)
    }
}

/// Both documents have been of version 2 since they exist; the media type may be left out.
fn of_version(what: &str, version: u32, kind: &str, wanted: &str) -> Result<(), OciError> {
    if version != 2 {
        let reason = format!("it is of schema version {version}, not 2");
        return Err(OciError::bad(what, reason));
    }
    match kind.is_empty() || kind == wanted {
        true => Ok(()),
        false => Err(OciError::bad(what, "its media type is another document's")),
    }
}

fn parse<T: serde::de::DeserializeOwned>(what: &str, content: &[u8]) -> Result<T, OciError> {
    serde_json::from_slice(content).map_err(|error| OciError::bad(what, error.to_string()))
}
