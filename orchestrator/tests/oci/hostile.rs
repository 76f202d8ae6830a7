//! Archives made to harm: each is refused with a reason or made harmless, nothing is written
//! outside, nothing is left.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

use mayfly_orchestrator::snapshot::{
    Slot,
    oci::{Archive, Budget, Compress, OciError, receive, unpack_into},
};
use proptest::prelude::*;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    archive::{export, import, import_within},
    picture::{assert_same, take},
    round_trip::odd_world,
    world::World,
};

/// A header as the standard has it, written by other code than ours.
pub(crate) fn entry(path: &str, flag: u8, content: &[u8], target: &str) -> Vec<u8> {
    let mut block = [0; 512];
    let mut put = |at: usize, text: &[u8]| block[at..at + text.len()].copy_from_slice(text);
    put(0, path.as_bytes());
    put(100, b"0004755\0");
    put(108, b"0001750\0");
    put(116, b"0001750\0");
    put(124, format!("{:011o}\0", content.len()).as_bytes());
    put(136, b"00000000000\0");
    put(148, b"        ");
    put(156, &[flag]);
    put(157, target.as_bytes());
    put(257, b"ustar\x0000");
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    let mut out = block.to_vec();
    out.extend_from_slice(content);
    out.resize(out.len().next_multiple_of(512), 0);
    out
}

pub(crate) fn pax(records: &[(&str, &str)]) -> Vec<u8> {
    let mut text = String::new();
    for (key, value) in records {
        let rest = key.len() + value.len() + 3;
        let length = (rest..).find(|all| rest + all.to_string().len() == *all);
        text += &format!("{} {key}={value}\n", length.unwrap());
    }
    entry("pax", b'x', text.as_bytes(), "")
}

pub(crate) fn folder(path: &str) -> Vec<u8> {
    entry(path, b'5', b"", "")
}

pub(crate) fn file(path: &str) -> Vec<u8> {
    entry(path, b'0', b"content", "")
}

pub(crate) fn stream(entries: &[Vec<u8>]) -> Vec<u8> {
    let mut all = entries.concat();
    all.extend_from_slice(&[0; 1024]);
    all
}

/// A folder with one above it, to see whether anything gets out.
struct Cage {
    dir: TempDir,
}

impl Cage {
    fn new() -> Cage {
        let dir = tempfile::Builder::new().prefix("mc").tempdir().unwrap();
        fs::create_dir(dir.path().join("in")).unwrap();
        fs::write(dir.path().join("outside"), "outside").unwrap();
        Cage { dir }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("in")
    }

    fn unpack(&self, stream: &[u8]) -> Result<Vec<String>, OciError> {
        let mut budget = Budget::new(1 << 20, 1000, &|_| true);
        let done = unpack_into(stream, &self.path(), &Slot::defaults(), &mut budget);
        let mut names: Vec<_> = fs::read_dir(self.dir.path())
            .unwrap()
            .map(|item| item.unwrap().file_name())
            .collect();
        names.sort();
        assert_eq!(names, ["in", "outside"]);
        let outside = self.dir.path().join("outside");
        assert_eq!(fs::read(&outside).unwrap(), b"outside");
        assert_eq!(fs::metadata(&outside).unwrap().nlink(), 1);
        done
    }
}

pub(crate) fn refused(entries: &[Vec<u8>]) -> String {
    let mut all = vec![folder("work/")];
    all.extend_from_slice(entries);
    Cage::new().unpack(&stream(&all)).unwrap_err().to_string()
}

#[test]
fn sn_07_nothing_is_written_outside_of_the_slots() {
    let out = entry("work/out", b'2', b"", "/etc");
    let up = entry("work/up", b'2', b"", "../../outside");
    for (entries, wanted) in [
        (vec![file("../../etc/x")], "no path of names"),
        (vec![file("/etc/passwd")], "no path of names"),
        (vec![file("work/../../x")], "no path of names"),
        (vec![file("work//x")], "no path of names"),
        (vec![file("work/./x")], "no path of names"),
        (vec![file("etc/passwd")], "outside of the slots"),
        (vec![folder("usr/")], "outside of the slots"),
        (vec![file("workx")], "outside of the slots"),
        (
            vec![out.clone(), file("work/out/passwd")],
            "in what is no folder",
        ),
        (vec![up.clone(), file("work/up")], "is there twice"),
        (vec![up, folder("work/up/")], "is there twice"),
        (vec![file("work/a/b")], "before its folder"),
        (
            vec![file("work/a"), file("work/a/b")],
            "in what is no folder",
        ),
        (vec![file("work/a"), file("work/a")], "is there twice"),
        (vec![folder("work/")], "is there twice"),
        (vec![file("work/.wh..wh..opq")], "hides a whole slot"),
        (vec![file(".wh.work")], "outside of the slots"),
        (vec![file("work/.wh.")], "not understood"),
        (vec![file("work/.wh..")], "not understood"),
        (vec![file("work/.wh...")], "not understood"),
        (vec![file("work/.wh..wh.plnk")], "not understood"),
        (
            vec![folder("work/d"), file("work/.wh.d/x")],
            "a mark where a folder belongs",
        ),
        (vec![file("work/a"), file("work/.wh.a")], "is there twice"),
        (
            vec![entry("work/l", b'1', b"", "/etc/passwd")],
            "out of its slot",
        ),
        (
            vec![entry("work/l", b'1', b"", "work/../../outside")],
            "out of its slot",
        ),
        (vec![entry("work/l", b'1', b"", "work/none")], "not there"),
        (vec![entry("work/l", b'1', b"", "work/l")], "not there"),
        (
            vec![folder("work/d"), entry("work/l", b'1', b"", "work/d")],
            "no file",
        ),
        (
            vec![out, entry("work/l", b'1', b"", "work/out/passwd")],
            "not there",
        ),
        (
            vec![entry("work/s", b'2', b"", "")],
            "attributes that no file can have",
        ),
        (vec![entry("work/x", b'7', b"", "")], "unknown kind"),
        (vec![entry("work/x", b'g', b"", "")], "unknown kind"),
        (
            vec![entry("work/x", b'5', b"content", "")],
            "content of what has none",
        ),
        (vec![entry("", b'0', b"", "")], "no path of names"),
        (
            vec![pax(&[("path", "work/\u{0}x")]), file("y")],
            "impossible path",
        ),
        (
            vec![pax(&[("path", "../x")]), file("work/y")],
            "no path of names",
        ),
        (
            vec![pax(&[("uid", "4294967295")]), file("work/y")],
            "impossible id",
        ),
        (
            vec![pax(&[("uid", "-1")]), file("work/y")],
            "malformed record",
        ),
        (
            vec![pax(&[("size", "9223372036854775808")]), file("work/y")],
            "malformed record",
        ),
        (
            vec![pax(&[("size", "9999")]), file("work/y")],
            "cannot be read",
        ),
        (
            vec![pax(&[("mtime", "1e9")]), file("work/y")],
            "malformed record",
        ),
        (
            vec![pax(&[("path", "a"), ("path", "b")]), file("work/y")],
            "malformed record",
        ),
        (
            vec![pax(&[("GNU.sparse.map", "0,1")]), file("work/y")],
            "malformed record",
        ),
        (
            vec![pax(&[("GNU.sparse.major", "0")]), file("work/y")],
            "another form than 1.0",
        ),
        (vec![pax(&[("path", "work/a")])], "records of no entry"),
    ] {
        let told = refused(&entries);
        assert!(told.contains(wanted), "{told:?}, not {wanted:?}");
    }
}

#[test]
fn sn_07_what_only_root_may_have_is_dropped_and_told() {
    let cage = Cage::new();
    let dropped = [
        ("SCHILY.xattr.trusted.overlay.redirect", "/"),
        ("SCHILY.xattr.user.overlay.opaque", "y"),
        ("SCHILY.xattr.security.capability", "x"),
        ("SCHILY.xattr.user.kept", "v"),
    ];
    let entries = [
        folder("work/"),
        entry("work/tty", b'3', b"", ""),
        entry("work/disk", b'4', b"", ""),
        entry("work/fifo", b'6', b"", ""),
        pax(&dropped),
        file("work/su"),
    ];
    let notes = cage.unpack(&stream(&entries)).unwrap();
    assert_eq!(notes.len(), 4, "{notes:?}");
    assert!(
        notes[3].contains("stripped setuid from /work/su"),
        "{notes:?}"
    );
    let work = cage.path().join("work");
    let names: Vec<_> = fs::read_dir(&work).unwrap().collect();
    assert_eq!(names.len(), 1);
    let mode = fs::metadata(work.join("su")).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o755);
    let xattrs = crate::picture::xattrs(&work.join("su"));
    assert_eq!(xattrs, [("user.kept".to_owned(), b"v".to_vec())]);
}

#[test]
fn caps_hold_before_the_disk_is_full() {
    let within = |bytes, inodes, entries: &[Vec<u8>]| {
        let cage = Cage::new();
        let mut budget = Budget::new(bytes, inodes, &|_| true);
        let done = unpack_into(
            &stream(entries),
            &cage.path(),
            &Slot::defaults(),
            &mut budget,
        );
        done.unwrap_err().to_string()
    };
    let big = entry("work/big", b'0', &vec![0; 5000], "");
    let told = within(4096, 9, &[folder("work/"), big.clone()]);
    assert!(told.contains("more bytes"), "{told}");
    let told = within(
        1 << 20,
        2,
        &[folder("work/"), file("work/a"), file("work/b")],
    );
    assert!(told.contains("more files"), "{told}");
    let cage = Cage::new();
    let mut budget = Budget::new(1 << 40, 9, &|_| false);
    let full = stream(&[folder("work/"), big]);
    let told = unpack_into(&full, &cage.path(), &Slot::defaults(), &mut budget);
    assert!(told.unwrap_err().to_string().contains("no room"));
    // Records are capped by what they say, before they are read.
    let mut huge = pax(&[("path", "x")]);
    huge[124..136].copy_from_slice(b"77777777777\0");
    let sum: u32 = huge[..148]
        .iter()
        .chain(&huge[156..512])
        .map(|b| u32::from(*b))
        .sum();
    huge[148..156].copy_from_slice(format!("{:06o}\0 ", sum + 8 * 32).as_bytes());
    assert!(refused(&[huge]).contains("records larger"));
}

/// A layout that can be changed and made consistent again.
pub(crate) struct Layout {
    path: PathBuf,
    pub(crate) manifest: Value,
    pub(crate) config: Value,
    pub(crate) index_version: u32,
}

impl Layout {
    fn open(path: &Path) -> Layout {
        let manifest = crate::random::manifest(path);
        let config = blob(path, manifest["config"]["digest"].as_str().unwrap());
        Layout {
            path: path.to_owned(),
            manifest,
            config: serde_json::from_slice(&fs::read(config).unwrap()).unwrap(),
            index_version: 2,
        }
    }

    pub(crate) fn put(&self, content: &[u8]) -> (String, usize) {
        use sha2::Digest as _;
        let digest = format!("sha256:{}", hex::encode(sha2::Sha256::digest(content)));
        fs::write(blob(&self.path, &digest), content).unwrap();
        (digest, content.len())
    }

    pub(crate) fn set_layer(&mut self, at: usize, stored: &[u8], diff_id: &str) {
        let (digest, size) = self.put(stored);
        self.manifest["layers"][at]["digest"] = json!(digest);
        self.manifest["layers"][at]["size"] = json!(size);
        self.config["rootfs"]["diff_ids"][at] = json!(diff_id);
    }

    fn save(&mut self) {
        let (digest, size) = self.put(self.config.to_string().as_bytes());
        self.manifest["config"]["digest"] = json!(digest);
        self.manifest["config"]["size"] = json!(size);
        let (digest, size) = self.put(self.manifest.to_string().as_bytes());
        let kind = "application/vnd.oci.image.manifest.v1+json";
        let image = json!({"mediaType": kind, "digest": digest, "size": size});
        let index = json!({"schemaVersion": self.index_version, "manifests": [image]});
        fs::write(self.path.join("index.json"), index.to_string()).unwrap();
    }
}

fn blob(layout: &Path, digest: &str) -> PathBuf {
    layout.join("blobs").join(digest.replace(':', "/"))
}

/// What an import of the changed layout says; nothing of it may be left.
pub(crate) fn failed(change: impl FnOnce(&mut Layout)) -> String {
    failed_by(change, |other, path| {
        import_within(other, path, 1 << 26, 1000)
            .unwrap_err()
            .to_string()
    })
}

/// [`failed`] by another import than the usual one.
pub(crate) fn failed_by(
    change: impl FnOnce(&mut Layout),
    import: impl FnOnce(&mut World, &Path) -> String,
) -> String {
    let world = odd_world();
    let path = world.path("out");
    export(&world, Compress::None, &path);
    let mut layout = Layout::open(&path);
    change(&mut layout);
    layout.save();
    left_nothing(|other| import(other, &path))
}

fn left_nothing(run: impl FnOnce(&mut World) -> String) -> String {
    let mut other = World::empty();
    let told = run(&mut other);
    assert_eq!(other.store.list_layers().unwrap(), []);
    assert_eq!(other.store.list_bases().unwrap(), [other.base.clone()]);
    for folder in ["u", "t"] {
        let left: Vec<_> = fs::read_dir(other.path(folder)).unwrap().collect();
        assert!(left.is_empty(), "{told}: {left:?}");
    }
    told
}

#[test]
fn digests_that_lie_and_unknown_versions_are_refused() {
    let told = failed(|layout| {
        let wrong = layout.config["rootfs"]["diff_ids"][0].clone();
        layout.config["rootfs"]["diff_ids"][2] = wrong;
    });
    assert!(
        told.contains("other content than the config says"),
        "{told}"
    );
    let told = failed(|layout| {
        let digest = layout.manifest["layers"][1]["digest"].as_str().unwrap();
        let path = blob(&layout.path, digest);
        let mut content = fs::read(&path).unwrap();
        let last = content.len() - 1;
        content[last] ^= 1;
        fs::write(path, content).unwrap();
    });
    assert!(told.contains("its content is another"), "{told}");
    let told = failed(|layout| {
        let digest = layout.manifest["layers"][1]["digest"].as_str().unwrap();
        let path = blob(&layout.path, digest);
        let content = fs::read(&path).unwrap();
        fs::write(path, &content[..content.len() / 2]).unwrap();
    });
    assert!(told.contains("of another size"), "{told}");
    let told = failed(|layout| layout.manifest["layers"][1]["digest"] = json!("sha256:../../x"));
    assert!(told.contains("is no sha256"), "{told}");
    let told = failed(|layout| layout.manifest["layers"][1]["mediaType"] = json!("x"));
    assert!(told.contains("a layer of unknown kind"), "{told}");
    let told = failed(|layout| layout.config["config"]["Labels"]["dev.mayfly.form"] = json!("2"));
    assert!(told.contains("upgrade mayfly"), "{told}");
    let told = failed(|layout| layout.config["config"]["Labels"] = json!({}));
    assert!(told.contains("no exported agent"), "{told}");
    let told = failed(|layout| {
        let layers = layout.manifest["layers"].as_array_mut().unwrap();
        layers.remove(1);
    });
    assert!(told.contains("other layers than the manifest"), "{told}");
}

#[test]
fn a_hundred_thousand_layers_are_refused_by_their_number() {
    let told = failed(|layout| {
        let layer = layout.manifest["layers"][0].clone();
        layout.manifest["layers"] = vec![layer; 100_000].into();
    });
    assert!(told.contains("larger than 4 MiB"), "{told}");
    let told = failed(|layout| {
        let layer = json!({"mediaType": "m", "digest": "d", "size": 1});
        layout.manifest["layers"] = vec![layer; 20_000].into();
    });
    assert!(told.contains("20000 layers"), "{told}");
}

#[test]
fn gigabytes_of_zeros_in_a_few_bytes_are_refused() {
    use std::io::Write;
    for kind in ["gzip", "zstd"] {
        let told = failed(|layout| {
            let (mut packed, zeros) = (Vec::new(), vec![0; 1 << 20]);
            let head = {
                let mut head = pax(&[("size", "8589934592")]);
                head.extend(entry("work/zeros", b'0', b"", ""));
                [folder("work/"), head].concat()
            };
            let write = |out: &mut dyn Write| {
                out.write_all(&head).unwrap();
                (0..100).for_each(|_| out.write_all(&zeros).unwrap());
            };
            if kind == "gzip" {
                let level = flate2::Compression::fast();
                let mut out = flate2::write::GzEncoder::new(&mut packed, level);
                write(&mut out);
                out.finish().unwrap();
            } else {
                let mut out = zstd::Encoder::new(&mut packed, 3).unwrap();
                write(&mut out);
                out.finish().unwrap();
            }
            assert!(packed.len() < 2 << 20);
            layout.set_layer(1, &packed, "sha256:x");
            let media = format!("application/vnd.oci.image.layer.v1.tar+{kind}");
            layout.manifest["layers"][1]["mediaType"] = json!(media);
        });
        assert!(told.contains("more bytes"), "{kind}: {told}");
    }
}

#[test]
fn records_that_lie_are_refused() {
    let with = |records: &str| {
        failed(|layout| {
            let records = entry(".mayfly/history.jsonl", b'0', records.as_bytes(), "");
            let content = stream(&[folder(".mayfly/"), records]);
            let (digest, _) = layout.put(&content);
            layout.set_layer(3, &content, &digest);
        })
    };
    let agent = |form: u32, uid: u32| {
        json!({"agent": {"form": form, "id": "0199c0de-0000-7000-8000-000000000000",
            "profile": "shell", "sandbox": null, "image": "sha256:00", "uid": uid, "gid": 1000,
            "base": true, "created_at": 0}})
        .to_string()
    };
    assert!(with("").contains("there are none"));
    assert!(with("{}").contains("record 1"));
    assert!(with(&agent(2, 1000)).contains("upgrade mayfly"));
    assert!(with(&agent(1, 0)).contains("user id"));
    assert!(with(&agent(1, 1000)).contains("belong to no state"));
    let state = r#"{"snapshot":{"id":"0199c0de-0000-7000-8000-000000000001","tick":null,"layer":7,"session":null,"created_at":0}}"#;
    let told = with(&format!("{}\n{state}", agent(1, 1000)));
    assert!(told.contains("out of order"), "{told}");
    let told = with(&format!("{}\n{{\"secret\":1}}", agent(1, 1000)));
    assert!(told.contains("unknown variant"), "{told}");
}

#[test]
fn a_whole_archive_survives_tar_and_every_flipped_bit_is_seen() {
    let world = odd_world();
    let before = world.view(take);
    let path = world.path("out");
    export(&world, Compress::Gzip, &path);
    let tar = world.path("out.tar");
    let made = std::process::Command::new("tar")
        .args([
            "-cf",
            tar.to_str().unwrap(),
            "-C",
            path.to_str().unwrap(),
            ".",
        ])
        .status();
    assert!(made.unwrap().success());
    let content = fs::read(&tar).unwrap();
    let last = content.iter().rposition(|byte| *byte != 0).unwrap();
    let received = |content: &[u8], world: &mut World| {
        let into = tempfile::tempdir().unwrap();
        let mut budget = Budget::new(1 << 30, 1000, &|_| true);
        receive(content, into.path(), &mut budget)?;
        import(world, into.path()).map(drop)
    };
    let mut other = World::empty();
    received(&content, &mut other).unwrap();
    assert_same("by tar", &before, &other.view(take));
    for at in (0..content.len()).step_by(content.len() / 30) {
        let mut flipped = content.clone();
        flipped[at] ^= 0x10;
        let mut third = World::empty();
        if received(&flipped, &mut third).is_ok() {
            // Where nothing is told: padding, or an owner of the layout's own files.
            assert_same("flipped", &before, &third.view(take));
        }
        let cut = received(&content[..at], &mut third);
        assert!(cut.is_err() || at > last, "cut at {at}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn arbitrary_bytes_never_panic_nor_get_out(bytes in prop::collection::vec(any::<u8>(), 0..4096)) {
        let _ = Cage::new().unpack(&bytes);
    }

    #[test]
    fn arbitrary_entries_never_get_out(
        entries in prop::collection::vec((
            "(work|home|home/agent|etc|\\.|\\.\\.)?(/([ab]|\\.|\\.\\.|\\.wh\\.a|%?\\.wh\\.\\.wh\\.\\.opq|)){0,3}",
            "[012345]",
            "(work/|/|\\.\\./|home/agent/)?[ab]?(/[ab])?",
            any::<bool>(),
        ), 0..12)
    ) {
        let mut all = vec![folder("work/"), folder("home/"), folder("home/agent/")];
        for (path, flag, target, same) in &entries {
            if *same {
                all.push(pax(&[("MAYFLY.link", target)]));
            }
            let content: &[u8] = if flag == "0" { b"x" } else { b"" };
            all.push(entry(path, flag.as_bytes()[0], content, target));
            let _ = Cage::new().unpack(&stream(&all));
            // What was refused is left out, so that later ones are reached.
            if Cage::new().unpack(&stream(&all)).is_err() {
                all.pop();
                if *same {
                    all.pop();
                }
            }
        }
        prop_assert!(Cage::new().unpack(&stream(&all)).is_ok());
    }
}

#[test]
fn an_archive_without_documents_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let told = |dir: &Path| match Archive::open(dir) {
        Ok(_) => panic!("it was taken"),
        Err(error) => error.to_string(),
    };
    assert_eq!(told(dir.path()), "oci-layout: it is missing");
    fs::write(
        dir.path().join("oci-layout"),
        r#"{"imageLayoutVersion":"2.0.0"}"#,
    )
    .unwrap();
    assert!(told(dir.path()).contains("upgrade mayfly"));
    std::os::unix::fs::symlink("/etc/passwd", dir.path().join("index.json")).unwrap();
    fs::write(
        dir.path().join("oci-layout"),
        r#"{"imageLayoutVersion":"1.0.0"}"#,
    )
    .unwrap();
    assert!(told(dir.path()).contains("index.json"));
}
