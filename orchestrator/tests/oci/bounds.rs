//! What an archive makes of memory, disk and time is bounded, whatever it says of itself; and what is its fault is
//! told as its fault.

use std::{
    cell::Cell,
    io::{self, Read, Write},
    time::{Duration, Instant},
};

use mayfly_orchestrator::snapshot::{
    Slot,
    oci::{Archive, Budget, unpack_into},
};
use serde_json::json;

use crate::hostile::{Layout, entry, failed, failed_by, file, folder, pax, refused, stream};

const MIB: u64 = 1 << 20;

/// The most memory this process ever had.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
    kib.unwrap() << 10
}

fn zipped(from: impl Read) -> Vec<u8> {
    let level = flate2::Compression::fast();
    let mut out = flate2::write::GzEncoder::new(Vec::new(), level);
    io::copy(&mut { from }, &mut out).unwrap();
    out.finish().unwrap()
}

/// Puts a compressed records' layer in place of the real one.
fn with_records(content: &[u8]) -> String {
    failed(|layout| {
        layout.set_layer(3, content, "sha256:x");
        let kind = "application/vnd.oci.image.layer.v1.tar+gzip";
        layout.manifest["layers"][3]["mediaType"] = json!(kind);
    })
}

/// The header of an entry of so many bytes.
fn huge(path: &str, size: u64) -> Vec<u8> {
    let head = [
        pax(&[("size", &size.to_string())]),
        entry(path, b'0', b"", ""),
    ];
    head.concat()
}

fn tick_id(at: usize) -> String {
    format!("0199c0de-0000-7000-8000-1{at:011}")
}

fn transcript(at: usize) -> String {
    format!(".mayfly/transcripts/{}.jsonl", tick_id(at))
}

/// Records that fit the layout, of so many ticks, and the folder of their transcripts.
fn history(ticks: usize) -> Vec<u8> {
    let message = "0199c0de-0000-7000-8000-00000000000a";
    let state = |layer: u32| {
        json!({"snapshot": {"id": format!("0199c0de-0000-7000-8000-{layer:012}"), "tick": null,
            "layer": layer, "session": null, "created_at": 0}})
    };
    let agent = json!({"agent": {"form": 1, "id": "0199c0de-0000-7000-8000-000000000000",
        "profile": "shell", "sandbox": null, "image": format!("sha256:{}", "0".repeat(64)),
        "uid": 1000, "gid": 1000, "base": true, "created_at": 0}});
    let message_row = json!({"message": {"id": message, "author": {"id": "u", "name": "n"},
        "text": "t", "sandbox": null, "created_at": 1, "attempts": 0, "outcome": "answered",
        "reason": null, "settled_at": 2}});
    let tick = |at| {
        json!({"tick": {"id": tick_id(at), "message": message, "retry_of": null,
            "phase": "destroy", "outcome": "done", "changes": "kept", "notice": null,
            "exit_code": 0, "effects": "none", "before": null, "after": null, "image": null,
            "notes": [], "phase_ms": [0, 0, 0, 0, 0], "output_bytes": 0, "layer_bytes": 0,
            "layer_inodes": 0, "started_at": 0, "ended_at": 0}})
    };
    let rows = [agent, state(1), state(2), message_row].into_iter();
    let rows = rows.chain((0..ticks).map(tick));
    let lines: String = rows.map(|row| format!("{row}\n")).collect();
    let parts = [
        folder(".mayfly/"),
        entry(".mayfly/history.jsonl", b'0', lines.as_bytes(), ""),
        folder(".mayfly/transcripts/"),
    ];
    parts.concat()
}

fn transcripts(count: usize, content: &[u8]) -> Vec<u8> {
    let mut all = vec![history(count)];
    all.extend((0..count).map(|at| entry(&transcript(at), b'0', content, "")));
    stream(&all)
}

#[test]
fn a_record_of_half_a_gibibyte_is_refused_in_little_memory() {
    let size = 512 * MIB;
    let head = huge(".mayfly/history.jsonl", size);
    let bomb = zipped(head.chain(io::repeat(b' ').take(size)));
    assert!((bomb.len() as u64) < 8 * MIB);
    let before = peak();
    let told = with_records(&bomb);
    // The budget of this import is 64 MiB, told by the header alone.
    assert!(told.contains("more bytes than may come in"), "{told}");
    let head = huge(".mayfly/history.jsonl", 60 * MIB);
    let told = with_records(&zipped(head.chain(io::repeat(b' ').take(60 * MIB))));
    assert!(told.contains("record 1 is one too many"), "{told}");
    assert!(peak() - before < 48 * MIB, "{} bytes more", peak() - before);
}

#[test]
fn a_transcript_goes_to_disk_piece_by_piece() {
    let head = |size| [history(1), huge(&transcript(0), size)].concat();
    let bomb = head(60 * MIB);
    let bomb = zipped(
        bomb.chain(io::repeat(0).take(60 * MIB))
            .chain(&[0; 1024][..]),
    );
    let before = peak();
    let told = with_records(&bomb);
    assert!(told.contains("than the config says"), "{told}");
    assert!(peak() - before < 32 * MIB, "{} bytes more", peak() - before);
    let bomb = head(512 * MIB);
    let told = with_records(&zipped(bomb.chain(io::repeat(0).take(512 * MIB))));
    assert!(told.contains("more bytes than may come in"), "{told}");
}

#[test]
fn each_transcript_counts_as_a_file() {
    // The budget of this import is 1000 files.
    let told = with_records(&zipped(&transcripts(900, b"")[..]));
    assert!(told.contains("than the config says"), "{told}");
    let told = with_records(&zipped(&transcripts(1001, b"")[..]));
    assert!(told.contains("more files than may come in"), "{told}");
}

#[test]
fn the_disk_is_asked_for_what_small_transcripts_take() {
    let count = 17_000;
    let bomb = zipped(&transcripts(count, b"x")[..]);
    let (aside, asked) = (tempfile::tempdir().unwrap(), Cell::new(0));
    let room = |_| asked.replace(asked.get() + 1) < 1;
    let change = |layout: &mut Layout| {
        layout.set_layer(3, &bomb, "sha256:x");
        let kind = "application/vnd.oci.image.layer.v1.tar+gzip";
        layout.manifest["layers"][3]["mediaType"] = json!(kind);
    };
    let told = failed_by(change, |_, path| {
        let archive = Archive::open(path).unwrap();
        let mut budget = Budget::new(1 << 30, 1 << 20, &room);
        let records = archive.records(aside.path(), &mut budget);
        records.err().unwrap().to_string()
    });
    assert!(told.contains("the disk has no room for it"), "{told}");
    // 64 MiB at a time: the history, then four KiB for each file.
    let made = std::fs::read_dir(aside.path()).unwrap().count();
    assert!((10_000..16_384).contains(&made), "{made}");
}

#[test]
fn each_part_of_the_records_comes_once_and_a_transcript_after_its_tick() {
    let told = |parts: &[Vec<u8>]| with_records(&zipped(&stream(parts)[..]));
    let of = |at| entry(&transcript(at), b'0', b"", "");
    let early = [folder(".mayfly/"), folder(".mayfly/transcripts/"), of(0)];
    let again = "is there twice";
    for (parts, wanted) in [
        (&[history(1), folder(".mayfly/")][..], again),
        (&[history(1), folder(".mayfly/transcripts/")], again),
        (&[history(1), history(1)[512..].to_vec()], again),
        (&[history(1), of(0), of(0)], again),
        (&[history(1), of(0), of(1)], "the transcript of no tick"),
        (&early, "the transcript of no tick"),
        (&[history(2), of(1), of(0)], "than the config says"),
    ] {
        let told = told(parts);
        assert!(told.contains(wanted), "{told:?}, not {wanted:?}");
    }
}

#[test]
fn a_tick_with_endless_notes_is_refused() {
    let agent = json!({"agent": {"form": 1, "id": "0199c0de-0000-7000-8000-000000000000",
        "profile": "shell", "sandbox": null, "image": "sha256:00", "uid": 1000, "gid": 1000,
        "base": true, "created_at": 0}});
    let tick = json!({"tick": {"id": "0199c0de-0000-7000-8000-00000000000b",
        "message": "0199c0de-0000-7000-8000-00000000000a", "retry_of": null, "phase": "destroy",
        "outcome": "done", "changes": "kept", "notice": null, "exit_code": 0, "effects": "none",
        "before": null, "after": null, "image": null, "notes": vec![""; 101],
        "phase_ms": [0, 0, 0, 0, 0], "output_bytes": 0, "layer_bytes": 0, "layer_inodes": 0,
        "started_at": 0, "ended_at": 0}});
    let lines = format!("{agent}\n{tick}\n");
    let records = entry(".mayfly/history.jsonl", b'0', lines.as_bytes(), "");
    let told = with_records(&zipped(&stream(&[folder(".mayfly/"), records])[..]));
    assert_eq!(told, "record 2: the tick has too many notes");
}

#[test]
fn a_million_attributes_of_one_entry_are_refused_at_once() {
    let mut text = Vec::new();
    for at in 0..1_000_000 {
        writeln!(text, "10 {at:06}=").unwrap();
    }
    let began = Instant::now();
    let told = refused(&[entry("pax", b'x', &text, ""), file("work/x")]);
    assert!(told.contains("a malformed record"), "{told}");
    assert!(began.elapsed() < Duration::from_secs(10));
}

/// What is said when a stream is unpacked, and how much memory that took.
fn unpacked_in(stream: &[u8]) -> (String, u64) {
    let (dir, before) = (tempfile::tempdir().unwrap(), peak());
    let mut budget = Budget::new(1 << 40, 1 << 20, &|_| true);
    let done = unpack_into(stream, dir.path(), &Slot::defaults(), &mut budget);
    (done.unwrap_err().to_string(), peak() - before)
}

#[test]
fn attributes_of_folders_are_not_held_until_the_end() {
    let value = "\0".repeat(1 << 16);
    let names: Vec<_> = (0..16)
        .map(|at| format!("SCHILY.xattr.user.{at}"))
        .collect();
    let said: Vec<_> = names.iter().map(|name| (&name[..], &value[..])).collect();
    let said = pax(&said);
    let mut entries = vec![folder("work/")];
    for at in 0..64 {
        entries.extend([said.clone(), folder(&format!("work/{at}/"))]);
    }
    let (told, took) = unpacked_in(&stream(&entries));
    let wanted = "entry \"work/0\": has attributes that this file system does not keep";
    assert_eq!(told, wanted);
    assert!(took < 16 * MIB, "{took} bytes more");
}

#[test]
fn what_is_held_of_folders_is_bounded() {
    let value = "\0".repeat(1 << 16);
    let lists = pax(&[
        ("SCHILY.xattr.system.posix_acl_access", &value),
        ("SCHILY.xattr.system.posix_acl_default", &value),
    ]);
    let mut entries = vec![folder("work/")];
    for at in 0..1100 {
        entries.extend([lists.clone(), folder(&format!("work/{at}/"))]);
    }
    let (told, took) = unpacked_in(&stream(&entries));
    assert!(
        told.contains("more than 128 MiB of paths and access lists"),
        "{told}"
    );
    assert!(took < 144 * MIB, "{took} bytes more");
}

#[test]
fn a_folders_list_is_not_inherited_by_what_comes_into_it() {
    // Version 2; the owner, the group and all others, each with its rights.
    let list: Vec<u8> = [(1, 7), (4, 7), (32, 7)]
        .iter()
        .flat_map(|(tag, may)| [*tag, 0, *may, 0, 255, 255, 255, 255])
        .collect();
    let list = [&[2, 0, 0, 0][..], &list].concat();
    let key = b"SCHILY.xattr.system.posix_acl_default=";
    let length = format!("{} ", key.len() + list.len() + 4);
    let record = [length.as_bytes(), key, &list, b"\n"].concat();
    let entries = [
        folder("work/"),
        entry("pax", b'x', &record, ""),
        folder("work/d/"),
        folder("work/d/e/"),
    ];
    let dir = tempfile::tempdir().unwrap();
    let mut budget = Budget::new(MIB, 100, &|_| true);
    unpack_into(
        &stream(&entries)[..],
        dir.path(),
        &Slot::defaults(),
        &mut budget,
    )
    .unwrap();
    let lists = |path: &str| crate::picture::xattrs(&dir.path().join(path));
    let kept = ("system.posix_acl_default".to_owned(), list);
    assert_eq!(lists("work/d"), [kept]);
    assert_eq!(lists("work/d/e"), []);
}

#[test]
fn a_mark_that_finds_no_place_beside_attributes_is_the_archives_fault() {
    let names: Vec<_> = (0..400)
        .map(|at| format!("SCHILY.xattr.user.{at:03}"))
        .collect();
    let mut full = 0;
    for count in 0..names.len() {
        let said: Vec<_> = names[..count].iter().map(|name| (&name[..], "")).collect();
        let entries = [
            folder("work/"),
            pax(&said),
            folder("work/d/"),
            file("work/d/.wh..wh..opq"),
        ];
        let dir = tempfile::tempdir().unwrap();
        let mut budget = Budget::new(MIB, 100, &|_| true);
        let stream = stream(&entries);
        let done = unpack_into(&stream, dir.path(), &Slot::defaults(), &mut budget);
        if let Err(error) = done {
            let told = error.to_string();
            assert!(told.contains("has attributes that this file"), "{told}");
            full += u32::from(told.contains(".wh."));
        }
    }
    assert!(full > 0, "the mark always found its place");
}

#[test]
fn the_disk_is_asked_for_what_small_files_take_not_for_what_they_hold() {
    let mut entries = vec![folder("work/")];
    entries.extend((0..20_000).map(|at| entry(&format!("work/{at}"), b'0', b"x", "")));
    let (dir, asked) = (tempfile::tempdir().unwrap(), Cell::new(0));
    let room = |_| asked.replace(asked.get() + 1) < 1;
    let mut budget = Budget::new(1 << 30, 1 << 20, &room);
    let told = unpack_into(
        &stream(&entries)[..],
        dir.path(),
        &Slot::defaults(),
        &mut budget,
    );
    let told = told.unwrap_err().to_string();
    assert!(told.contains("the disk has no room for it"), "{told}");
    // 64 MiB at a time, four KiB for each file.
    let made = std::fs::read_dir(dir.path().join("work")).unwrap().count();
    assert!((10_000..17_000).contains(&made), "{made}");
}

#[test]
fn what_this_file_system_cannot_keep_is_the_archives_fault() {
    let sparse = |at: u64| {
        let length = (at + 1).to_string();
        let records = [
            ("GNU.sparse.major", "1"),
            ("GNU.sparse.minor", "0"),
            ("GNU.sparse.name", "work/far"),
            ("GNU.sparse.realsize", &length),
        ];
        let map = format!("1\n{at}\n1\n");
        let mut content = map.into_bytes();
        content.resize(512, 0);
        content.push(b'x');
        vec![pax(&records), entry("far", b'0', &content, "")]
    };
    let long = "x".repeat(60_000);
    let far = "n".repeat(3000);
    let list = "\u{2}\0\0\0\u{1}\0\u{7}\0";
    for (entries, wanted) in [
        (sparse(1 << 62), "is larger than a file can be"),
        (sparse(i64::MAX as u64 - 1), "can"),
        (
            vec![pax(&[("SCHILY.xattr.user.a", &long)]), file("work/x")],
            "has attributes that this file system does not keep",
        ),
        (
            vec![
                pax(&[("SCHILY.xattr.system.posix_acl_default", list)]),
                file("work/x"),
            ],
            "has attributes",
        ),
        (
            vec![pax(&[("path", &format!("work/{far}/x"))]), file("y")],
            "comes before its folder",
        ),
        (
            vec![pax(&[("path", &format!("work/{far}"))]), file("y")],
            "has too long a name",
        ),
    ] {
        let told = refused(&entries);
        assert!(
            told.starts_with("entry ") && told.contains(wanted),
            "{told:.300}"
        );
    }
}

#[test]
fn a_base_with_two_passwords_files_is_refused_by_name() {
    let told = failed(|layout| {
        let entries = [
            folder("work/"),
            folder("etc/"),
            file("etc/passwd"),
            file("etc/passwd"),
        ];
        layout.set_layer(1, &stream(&entries), "sha256:x");
        let content = stream(&entries);
        let (digest, _) = layout.put(&content);
        layout.set_layer(0, &content, &digest);
    });
    assert_eq!(told, "entry \"etc/passwd\": is there twice");
}

#[test]
fn documents_of_other_versions_are_refused() {
    let told = failed(|layout| layout.index_version = 3);
    assert_eq!(told, "index.json: it is of schema version 3, not 2");
    let told = failed(|layout| layout.manifest["schemaVersion"] = json!(1));
    assert_eq!(told, "the manifest: it is of schema version 1, not 2");
    let kind = "application/vnd.docker.distribution.manifest.v2+json";
    let told = failed(|layout| layout.manifest["mediaType"] = json!(kind));
    assert_eq!(told, "the manifest: its media type is another document's");
    let told = failed(|layout: &mut Layout| layout.config["rootfs"]["type"] = json!("tree"));
    assert!(told.contains("of another kind than \"layers\""), "{told}");
}

#[test]
fn a_layer_cut_at_any_block_is_refused() {
    let whole = stream(&[
        folder("work/"),
        pax(&[("SCHILY.xattr.user.a", "v"), ("mtime", "1.5")]),
        entry("work/a", b'0', &[7; 1500], ""),
        entry("work/b", b'1', b"", "work/a"),
        entry("work/s", b'2', b"", "a"),
    ]);
    let unpacked = |stream: &[u8]| {
        let dir = tempfile::tempdir().unwrap();
        let mut budget = Budget::new(MIB, 100, &|_| true);
        unpack_into(stream, dir.path(), &Slot::defaults(), &mut budget)
    };
    unpacked(&whole).unwrap();
    for length in (0..whole.len()).step_by(512) {
        let told = unpacked(&whole[..length]).unwrap_err().to_string();
        assert!(told.contains("cannot be read"), "{length}: {told}");
        let told = unpacked(&whole[..length + 100]).unwrap_err().to_string();
        assert!(told.contains("cannot be read"), "{length} and some: {told}");
    }
}
