//! Image layouts: their layers as tar streams, their documents, and whole ones as an upload. Digests are made
//! right around the bytes given, so that what lies behind them is reached.

use std::{
    fs,
    io::Read,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::{Path, PathBuf},
};

use mayfly_domain::{BaseId, LayerId};
use mayfly_orchestrator::snapshot::{
    Slot, Store,
    oci::{Archive, Budget, Compress, OciError, receive},
};
use serde_json::json;
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use crate::archives::{self, Sample, history, mend, tar};

/// Parts an input in sections.
pub(crate) const NEXT: &[u8] = b"<next>";
const BYTES: u64 = 4 << 20;
const INODES: u64 = 512;
const KINDS: [Compress; 3] = [Compress::None, Compress::Gzip, Compress::Zstd];

/// A store, a layout, and beside them what nobody may touch.
struct Cage {
    dir: TempDir,
    store: Store,
}

impl Cage {
    fn new() -> Cage {
        let dir = archives::folder();
        for folder in ["data", "oci/blobs/sha256", "aside"] {
            fs::create_dir_all(dir.path().join(folder)).expect("made");
        }
        fs::write(dir.path().join("outside"), "outside").expect("written");
        let store = Store::open(&dir.path().join("data")).expect("a store");
        Cage { dir, store }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn put(&self, content: &[u8]) -> String {
        let digest = hex::encode(Sha256::digest(content));
        let blobs = self.path("oci/blobs/sha256");
        fs::write(blobs.join(&digest), content).expect("written");
        format!("sha256:{digest}")
    }

    /// As an import does it. Whatever the archive holds, our own disk is not at fault.
    fn import(&self) -> Result<(BaseId, Vec<LayerId>), OciError> {
        let done = self.try_import();
        match &done {
            Ok(_) => self.judge_files(),
            Err(OciError::Store(error)) => panic!("the archive's fault as ours: {error:?}"),
            Err(_) => self.assert_empty(),
        }
        self.assert_untouched();
        done
    }

    fn try_import(&self) -> Result<(BaseId, Vec<LayerId>), OciError> {
        let archive = Archive::open(&self.path("oci"))?;
        let mut budget = Budget::new(BYTES, INODES, &|_| true);
        let records = archive.records(&self.path("aside"), &mut budget)?;
        let rows = records.history.snapshots.iter();
        let ids: Vec<_> = rows
            .filter(|row| row.layer.is_some())
            .map(|_| LayerId::new())
            .collect();
        let (base, slots) = (BaseId::new(), Slot::defaults());
        self.store
            .import_base(&archive, &base, &slots, &mut budget)?;
        let done = self
            .store
            .import_layers(&archive, 1, &base, &ids, &slots, &mut budget);
        if let Err(error) = done {
            self.store.remove_base(&base)?;
            return Err(error);
        }
        Ok((base, ids))
    }

    fn assert_empty(&self) {
        for folder in ["b", "l", "u", "t"] {
            let left: Vec<_> = fs::read_dir(self.path("data").join(folder))
                .expect("a folder")
                .collect();
            assert!(left.is_empty(), "{left:?}");
        }
    }

    fn assert_untouched(&self) {
        let names = fs::read_dir(self.dir.path()).expect("a folder");
        let mut names: Vec<_> = names
            .map(|item| item.expect("a name").file_name())
            .collect();
        names.sort();
        assert_eq!(names, ["aside", "data", "oci", "outside"]);
        let outside = self.path("outside");
        assert_eq!(fs::read(&outside).expect("readable"), b"outside");
        let meta = fs::symlink_metadata(&outside).expect("there");
        assert_eq!((meta.nlink(), meta.mode() & 0o7022), (1, 0));
    }

    /// No file of a layer is more than an agent may have.
    fn judge_files(&self) {
        for folder in ["b", "l"] {
            let mut folders = vec![self.path("data").join(folder)];
            while let Some(folder) = folders.pop() {
                for item in fs::read_dir(&folder).expect("a folder") {
                    let path = item.expect("a name").path();
                    judge(&path);
                    if path.symlink_metadata().expect("there").is_dir() {
                        folders.push(path);
                    }
                }
            }
        }
    }
}

fn judge(path: &Path) {
    let meta = path.symlink_metadata().expect("there");
    let kind = meta.file_type();
    let odd = kind.is_block_device() || kind.is_fifo() || kind.is_socket();
    let mark = kind.is_char_device() && meta.rdev() == 0;
    assert!(!odd && (!kind.is_char_device() || mark), "{path:?}");
    assert!(!kind.is_file() || meta.mode() & 0o6000 == 0, "{path:?}");
    for name in archives::xattrs(path) {
        let users = name.starts_with("user.") && !name.starts_with("user.overlay.");
        let ours = name == "trusted.overlay.opaque" && kind.is_dir();
        let list = name.starts_with("system.posix_acl_");
        assert!(users || ours || list, "{path:?}: {name}");
    }
}

fn sections(bytes: &[u8]) -> Vec<&[u8]> {
    let mut found = Vec::new();
    let mut rest = bytes;
    while let Some(at) = rest.windows(NEXT.len()).position(|part| part == NEXT) {
        found.push(&rest[..at]);
        rest = &rest[at + NEXT.len()..];
    }
    found.push(rest);
    found
}

/// A base and up to three layers. The first byte says how they are stored, and whether the checksums of their
/// headers are made right.
pub(crate) fn layers(bytes: &[u8]) -> bool {
    let Some((flags, rest)) = bytes.split_first() else {
        return false;
    };
    let cage = Cage::new();
    let kind = KINDS[usize::from(flags >> 1) % KINDS.len()];
    let (mut layers, mut diff_ids) = (Vec::new(), Vec::new());
    let mut add = |kind: Compress, stored: &[u8]| {
        let plain = plain(kind, stored);
        diff_ids.push(format!("sha256:{}", hex::encode(Sha256::digest(&plain))));
        layers.push(descriptor(
            &media_type(kind),
            &cage.put(stored),
            stored.len(),
        ));
    };
    let sections: Vec<_> = sections(rest).into_iter().take(4).collect();
    for section in &sections {
        match (kind, flags & 1) {
            (Compress::None, 1) => add(kind, &mend(section)),
            _ => add(kind, section),
        }
    }
    let records = history(sections.len() - 1).to_lines();
    add(Compress::None, &records_layer(&records));
    let config = config(&json!(diff_ids)).to_string();
    let manifest = manifest(
        descriptor("c", &cage.put(config.as_bytes()), config.len()),
        &json!(layers),
    );
    let manifest = manifest.to_string();
    let index = index(descriptor(
        MANIFEST,
        &cage.put(manifest.as_bytes()),
        manifest.len(),
    ));
    fs::write(cage.path("oci/index.json"), index.to_string()).expect("written");
    fs::write(cage.path("oci/oci-layout"), LAYOUT).expect("written");
    match cage.import() {
        Ok((base, ids)) => travels_on(&cage, &base, &ids),
        Err(_) => return false,
    }
    true
}

/// What was imported can be exported, and imported again.
fn travels_on(cage: &Cage, base: &BaseId, ids: &[LayerId]) {
    let next = Cage::new();
    fs::remove_dir_all(next.path("oci")).expect("removed");
    archives::export(&cage.store, base, ids, Compress::None, &next.path("oci"))
        .expect("what came in goes out");
    // What is told twice, as a file and its record of a link, counts twice.
    match next.import() {
        Ok(_) | Err(OciError::Limit(_)) => {}
        Err(error) => panic!("our own archive: {error}"),
    }
}

const LAYOUT: &str = r#"{"imageLayoutVersion":"1.0.0"}"#;
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

fn media_type(kind: Compress) -> String {
    let end = match kind {
        Compress::None => "",
        Compress::Gzip => "+gzip",
        Compress::Zstd => "+zstd",
    };
    format!("application/vnd.oci.image.layer.v1.tar{end}")
}

fn plain(kind: Compress, stored: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    // What does not unpack has no right digest.
    let _ = match kind {
        Compress::None => return stored.to_vec(),
        Compress::Gzip => flate2::bufread::MultiGzDecoder::new(stored)
            .take(BYTES)
            .read_to_end(&mut plain),
        Compress::Zstd => match zstd::Decoder::new(stored) {
            Ok(from) => from.take(BYTES).read_to_end(&mut plain),
            Err(error) => Err(error),
        },
    };
    plain
}

fn descriptor(kind: &str, digest: &str, size: usize) -> serde_json::Value {
    json!({"mediaType": kind, "digest": digest, "size": size})
}

fn config(diff_ids: &serde_json::Value) -> serde_json::Value {
    json!({"created": "", "architecture": "amd64", "os": "linux",
        "config": {"Labels": {"dev.mayfly.form": "1"}},
        "rootfs": {"type": "layers", "diff_ids": diff_ids}})
}

fn manifest(config: serde_json::Value, layers: &serde_json::Value) -> serde_json::Value {
    json!({"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers})
}

fn index(image: serde_json::Value) -> serde_json::Value {
    json!({"schemaVersion": 2, "manifests": [image]})
}

fn records_layer(records: &[u8]) -> Vec<u8> {
    let entries = [
        tar(".mayfly/", b'5', b""),
        tar(".mayfly/history.jsonl", b'0', records),
    ];
    let mut stream = entries.concat();
    stream.extend_from_slice(&[0; 1024]);
    stream
}

pub(crate) fn layer_seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for (at, kind) in KINDS.into_iter().enumerate() {
        let blobs = Sample::new().blobs(kind);
        let files = &blobs[..blobs.len() - 1];
        seeds.push([&[(at as u8) << 1 | 1], &files.join(NEXT)[..]].concat());
    }
    for odd in archives::odd_streams() {
        seeds.push([&[1], &odd.join(NEXT)[..]].concat());
    }
    seeds
}

/// The layout's mark, index, manifest, config and records, each with holes for the digests of the others.
pub(crate) fn documents(bytes: &[u8]) -> bool {
    let [mark, index, manifest, config, records] = sections(bytes)[..] else {
        return false;
    };
    let cage = Cage::new();
    let base = Sample::base();
    let records = records_layer(records);
    let fill = |text: &[u8], holes: &[(&str, &[u8])]| {
        let mut text = text.to_vec();
        for (name, content) in holes {
            let digest = hex::encode(Sha256::digest(content));
            text = replace(&text, &format!("@{name}.digest"), &digest);
            text = replace(
                &text,
                &format!("\"@{name}.size\""),
                &content.len().to_string(),
            );
        }
        text
    };
    let layers: [(&str, &[u8]); 2] = [("base", &base), ("records", &records)];
    let config = fill(config, &layers);
    let manifest = fill(manifest, &[layers[0], layers[1], ("config", &config)]);
    let index = fill(index, &[("manifest", &manifest)]);
    for blob in [&base, &records, &config, &manifest] {
        cage.put(blob);
    }
    fs::write(cage.path("oci/index.json"), index).expect("written");
    fs::write(cage.path("oci/oci-layout"), mark).expect("written");
    cage.import().is_ok()
}

fn replace(text: &[u8], hole: &str, with: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = text;
    let find = |rest: &[u8]| {
        rest.windows(hole.len())
            .position(|part| part == hole.as_bytes())
    };
    while let Some(at) = find(rest) {
        out.extend_from_slice(&rest[..at]);
        out.extend_from_slice(with.as_bytes());
        rest = &rest[at + hole.len()..];
    }
    out.extend_from_slice(rest);
    out
}

pub(crate) fn document_seeds() -> Vec<Vec<u8>> {
    let hole = |name: &str, kind: &str| {
        json!({"mediaType": kind, "digest": format!("sha256:@{name}.digest"),
            "size": format!("@{name}.size")})
    };
    let tar = media_type(Compress::None);
    let config = config(&json!(["sha256:@base.digest", "sha256:@records.digest"]));
    let manifest = manifest(
        hole("config", "application/vnd.oci.image.config.v1+json"),
        &json!([hole("base", &tar), hole("records", &tar)]),
    );
    let index = index(hole("manifest", MANIFEST));
    let records = history(0).to_lines();
    let all = [
        LAYOUT.as_bytes(),
        index.to_string().as_bytes(),
        manifest.to_string().as_bytes(),
        config.to_string().as_bytes(),
        &records,
    ]
    .join(NEXT);
    vec![all]
}

/// A layout as a tar file. The first byte says whether the checksums of its headers are made right.
pub(crate) fn upload(bytes: &[u8]) -> bool {
    let Some((flags, stream)) = bytes.split_first() else {
        return false;
    };
    let cage = Cage::new();
    let stream = if flags & 1 == 1 {
        mend(stream)
    } else {
        stream.to_vec()
    };
    fs::remove_dir_all(cage.path("oci")).expect("removed");
    fs::create_dir(cage.path("oci")).expect("made");
    let mut budget = Budget::new(BYTES, INODES, &|_| true);
    let received = receive(&stream[..], &cage.path("oci"), &mut budget);
    cage.assert_untouched();
    for item in fs::read_dir(cage.path("oci")).expect("a folder") {
        let item = item.expect("a name");
        let known = ["blobs", "index.json", "oci-layout"].map(std::ffi::OsString::from);
        assert!(known.contains(&item.file_name()), "{item:?}");
    }
    match received {
        Ok(()) => cage.import().is_ok(),
        Err(OciError::Store(error)) => panic!("the archive's fault as ours: {error:?}"),
        Err(_) => false,
    }
}

pub(crate) fn upload_seeds() -> Vec<Vec<u8>> {
    let sample = Sample::new();
    KINDS
        .map(|kind| [vec![1], sample.tar(kind)].concat())
        .to_vec()
}
