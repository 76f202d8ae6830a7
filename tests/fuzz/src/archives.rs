//! What goes into layouts: records, tar streams, and a real export to begin with.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{FileExt, symlink},
    path::Path,
};

use mayfly_domain::{AgentId, BaseId, LayerId, SnapshotId};
use mayfly_orchestrator::snapshot::{
    Caps, Slot, Store,
    oci::{
        AgentRow, Compress, Export, Exported, FORM, History, LABEL_FORM, OciError, Output,
        SnapshotRow, TickLayer,
    },
};
use rustix::fs::{CWD, FileType, XattrFlags, llistxattr, lsetxattr, mknodat};
use tempfile::TempDir;

const BLOCK: usize = 512;

/// Records that are taken are written as they were read.
pub(crate) fn records(bytes: &[u8]) -> bool {
    let Some((layers, lines)) = bytes.split_first() else {
        return false;
    };
    match History::read(lines, usize::from(*layers)) {
        Ok(history) => {
            let again = History::read(&history.to_lines()[..], usize::from(*layers));
            assert_eq!(again.expect("our own records"), history);
            true
        }
        Err(OciError::Store(error)) => panic!("{error:?}"),
        Err(error) => {
            assert!(error.to_string().len() < 4096, "{error}");
            false
        }
    }
}

/// An agent with so many layers, all in one chain.
pub(crate) fn history(layers: usize) -> History {
    let id = |at: usize| format!("0199c0de-0000-7000-8000-{at:012}");
    let snapshot = |at: usize| SnapshotRow {
        id: id(at).parse::<SnapshotId>().expect("an id"),
        tick: None,
        layer: Some(at as u32),
        session: Some("s".to_owned()),
        created_at: 1,
    };
    History {
        agent: AgentRow {
            form: FORM,
            id: id(0).parse::<AgentId>().expect("an id"),
            profile: "shell".to_owned(),
            sandbox: None,
            image: format!("sha256:{}", "0".repeat(64)),
            uid: 1000,
            gid: 1000,
            base: true,
            created_at: 1,
        },
        snapshots: (1..=layers).map(snapshot).collect(),
        messages: Vec::new(),
        ticks: Vec::new(),
        replies: Vec::new(),
    }
}

pub(crate) fn record_seeds() -> Vec<Vec<u8>> {
    let rest = r#"
{"message":{"id":"0199c0de-0000-7000-8000-00000000000a","author":{"id":"u","name":"n"},"text":"t","sandbox":null,"created_at":1,"attempts":0,"outcome":"answered","reason":null,"settled_at":2}}
{"tick":{"id":"0199c0de-0000-7000-8000-00000000000b","message":"0199c0de-0000-7000-8000-00000000000a","retry_of":null,"phase":"destroy","outcome":"done","changes":"kept","notice":null,"exit_code":0,"effects":"none","before":null,"after":null,"image":null,"notes":["x"],"phase_ms":[1,2,3,4,5],"output_bytes":1,"layer_bytes":2,"layer_inodes":3,"started_at":1,"ended_at":2}}
{"reply":{"message":"0199c0de-0000-7000-8000-00000000000a","tick":"0199c0de-0000-7000-8000-00000000000b","answer":true,"text":"t","created_at":3}}
"#;
    let lines = |layers: usize| {
        let lines = history(layers).to_lines();
        [&[layers as u8 + 1][..], &lines].concat()
    };
    vec![
        lines(0),
        lines(2),
        [&lines(1)[..], rest.as_bytes()].concat(),
    ]
}

/// A header as the standard has it, and content.
pub(crate) fn tar(path: &str, flag: u8, content: &[u8]) -> Vec<u8> {
    entry(path, flag, content, "")
}

fn entry(path: &str, flag: u8, content: &[u8], target: &str) -> Vec<u8> {
    let mut block = [0; BLOCK];
    let mut put = |at: usize, text: &[u8]| block[at..at + text.len()].copy_from_slice(text);
    put(0, path.as_bytes());
    put(100, b"0000755\0");
    put(108, b"0001750\0");
    put(116, b"0001750\0");
    put(124, format!("{:011o}\0", content.len()).as_bytes());
    put(136, b"00000000001\0");
    put(156, &[flag]);
    put(157, target.as_bytes());
    put(257, b"ustar\x0000");
    let mut out = block.to_vec();
    out.extend_from_slice(content);
    out.resize(out.len().next_multiple_of(BLOCK), 0);
    mend(&out)
}

fn pax(records: &[(&str, &str)]) -> Vec<u8> {
    let mut text = String::new();
    for (key, value) in records {
        let rest = key.len() + value.len() + 3;
        let length = (rest..).find(|all| rest + all.to_string().len() == *all);
        text += &format!("{} {key}={value}\n", length.expect("a length"));
    }
    entry("pax", b'x', text.as_bytes(), "")
}

/// The stream with right checksums in all that is a header.
pub(crate) fn mend(stream: &[u8]) -> Vec<u8> {
    let mut out = stream.to_vec();
    let mut at = 0;
    while let Some(block) = out.get_mut(at..at + BLOCK) {
        at += BLOCK;
        if !block[257..].starts_with(b"ustar") {
            continue;
        }
        block[148..156].fill(b' ');
        let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        let size = std::str::from_utf8(&block[124..135]).ok();
        let size = size.and_then(|size| usize::from_str_radix(size, 8).ok());
        at = at.saturating_add(size.unwrap_or(0).next_multiple_of(BLOCK));
    }
    out
}

/// Streams of all kinds of entries, links and marks, one list per archive.
pub(crate) fn odd_streams() -> Vec<Vec<Vec<u8>>> {
    let roots = [
        tar("work", b'5', b""),
        tar("home", b'5', b""),
        tar("home/agent", b'5', b""),
    ]
    .concat();
    let with = |entries: &[Vec<u8>]| [&roots, &entries.concat()[..], &[0; 1024]].concat();
    let base = with(&[
        tar("work/d", b'5', b""),
        tar("work/d/f", b'0', b"content"),
        entry("work/s", b'2', b"", "d/f"),
    ]);
    let marks = with(&[
        tar("work/d", b'5', b""),
        tar("work/d/.wh..wh..opq", b'0', b""),
        tar("work/.wh.s", b'0', b""),
        tar("work/%.wh.x", b'0', b""),
    ]);
    let links = with(&[
        pax(&[("MAYFLY.link", "work/d/f")]),
        tar("work/same", b'0', b"content"),
        entry("work/again", b'1', b"", "work/same"),
        entry("work/up", b'2', b"", "../outside"),
        tar("work/fifo", b'6', b""),
    ]);
    let sparse = [&b"2\n4096\n3\n9000\n0\n"[..], &[0; 495][..], b"abc"].concat();
    let sparse = with(&[
        pax(&[
            ("GNU.sparse.major", "1"),
            ("GNU.sparse.minor", "0"),
            ("GNU.sparse.name", "work/sparse"),
            ("GNU.sparse.realsize", "9000"),
            ("SCHILY.xattr.user.a", "v"),
            ("mtime", "-1.5"),
            ("uid", "4000000"),
        ]),
        tar("x", b'0', &sparse),
    ]);
    let bad = |one: Vec<u8>| vec![base.clone(), with(&[one])];
    vec![
        vec![base.clone(), marks, links],
        vec![base.clone(), sparse],
        bad(tar("../../etc/x", b'0', b"")),
        bad(tar("/etc/passwd", b'0', b"")),
        bad(entry("work/l", b'1', b"", "/etc/passwd")),
    ]
}

/// A store with an agent's odd files in two layers, without a mount.
pub(crate) struct Sample {
    dir: TempDir,
    store: Store,
    base: BaseId,
    layers: Vec<LayerId>,
}

impl Sample {
    pub(crate) fn new() -> Sample {
        let dir = folder();
        let store = Store::open(dir.path()).expect("a store");
        let base = BaseId::new();
        let aside = store.begin_base(&base).expect("begun");
        for folder in ["home", "work/d"] {
            fs::create_dir_all(aside.join(folder)).expect("made");
        }
        for file in ["d/a", "d/b", "gone"] {
            fs::write(aside.join("work").join(file), file).expect("written");
        }
        store.finish_base(&base, &Slot::defaults()).expect("a base");
        let mut sample = Sample {
            dir,
            store,
            base,
            layers: Vec::new(),
        };
        sample.tick(first);
        sample.tick(second);
        sample
    }

    fn tick(&mut self, run: fn(&Path)) {
        let (layer, slots) = (LayerId::new(), Slot::defaults());
        let uppers = self.store.begin(&layer, &self.base, &self.layers, &slots);
        let uppers = uppers.expect("begun");
        run(&uppers[0].upper);
        let caps = Caps {
            bytes: 1 << 30,
            inodes: 1 << 20,
            file_bytes: 1 << 30,
        };
        self.store
            .seal(&layer, &self.base, &self.layers, &slots, &caps)
            .expect("sealed");
        self.layers.push(layer);
    }

    /// All layers as they are stored, the base first, the records last.
    pub(crate) fn blobs(&self, compress: Compress) -> Vec<Vec<u8>> {
        let to = self.dir.path().join(format!("{compress:?}"));
        export(&self.store, &self.base, &self.layers, compress, &to).expect("an export");
        let read = |digest: &serde_json::Value| {
            let digest = digest["digest"].as_str().expect("a digest");
            let blob = to.join("blobs").join(digest.replace(':', "/"));
            fs::read(blob).expect("a blob")
        };
        let index = fs::read(to.join("index.json")).expect("an index");
        let index: serde_json::Value = serde_json::from_slice(&index).expect("JSON");
        let manifest: serde_json::Value =
            serde_json::from_slice(&read(&index["manifests"][0])).expect("JSON");
        let layers = manifest["layers"].as_array().expect("layers");
        layers.iter().map(read).collect()
    }

    /// All of it as a tar file.
    pub(crate) fn tar(&self, compress: Compress) -> Vec<u8> {
        let aside = self.dir.path().join(format!("aside-{compress:?}"));
        fs::create_dir(&aside).expect("made");
        let mut out = Vec::new();
        let output = Output::Stream {
            to: &mut out,
            aside: &aside,
        };
        write(&self.store, &self.base, &self.layers, compress, output).expect("an export");
        out
    }

    /// A plain base's layer.
    pub(crate) fn base() -> Vec<u8> {
        odd_streams().swap_remove(0).swap_remove(0)
    }
}

fn first(up: &Path) {
    let long = "n".repeat(200);
    fs::create_dir(up.join(&long)).expect("made");
    fs::write(up.join(&long).join("f"), "deep").expect("written");
    symlink("/etc/alternatives/python", up.join("python")).expect("a link");
    fs::write(up.join(".wh.x"), "looks like a mark").expect("written");
    fs::write(up.join("a"), "linked").expect("written");
    fs::hard_link(up.join("a"), up.join("b")).expect("a link");
    lsetxattr(up.join("a"), "user.mark", b"v\0=", XattrFlags::empty()).expect("set");
    let sparse = fs::File::create(up.join("sparse")).expect("made");
    sparse.set_len(1 << 20).expect("long");
    sparse.write_all_at(b"middle", 8192).expect("written");
}

fn second(up: &Path) {
    for gone in ["gone", "b"] {
        let path = up.join(gone);
        mknodat(CWD, path, FileType::CharacterDevice, 0.into(), 0).expect("a mark");
    }
    fs::create_dir(up.join("d")).expect("made");
    let opaque = "trusted.overlay.opaque";
    lsetxattr(up.join("d"), opaque, b"y", XattrFlags::empty()).expect("set");
    fs::write(up.join("d/new"), "new").expect("written");
}

/// In memory where that is possible: a sync costs nothing there.
pub(crate) fn folder() -> TempDir {
    let mut named = tempfile::Builder::new();
    let named = named.prefix("mz");
    let there = named.tempdir_in("/dev/shm").or_else(|_| named.tempdir());
    there.expect("a folder")
}

/// Into the new folder `to`.
pub(crate) fn export(
    store: &Store,
    base: &BaseId,
    layers: &[LayerId],
    compress: Compress,
    to: &Path,
) -> Result<Exported, OciError> {
    write(store, base, layers, compress, Output::Folder(to))
}

fn write(
    store: &Store,
    base: &BaseId,
    layers: &[LayerId],
    compress: Compress,
    output: Output<'_>,
) -> Result<Exported, OciError> {
    let count = layers.len();
    let layers: Vec<_> = layers
        .iter()
        .map(|layer| TickLayer {
            layer: layer.clone(),
            title: "mayfly tick".to_owned(),
            created_at: 0,
            annotations: BTreeMap::new(),
        })
        .collect();
    let what = Export {
        base,
        with_base: true,
        layers: &layers,
        records: &history(count).to_lines(),
        transcripts: &[],
        labels: BTreeMap::from([(LABEL_FORM.to_owned(), FORM.to_string())]),
        user: "1000:1000".to_owned(),
        created_at: 0,
        compress,
    };
    store.export(&what, &Slot::defaults(), output)
}

pub(crate) fn xattrs(path: &Path) -> Vec<String> {
    let mut list = vec![0; 1 << 16];
    let len = llistxattr(path, &mut list[..]).expect("a list");
    list[..len]
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
        .map(|name| String::from_utf8_lossy(name).into_owned())
        .collect()
}
