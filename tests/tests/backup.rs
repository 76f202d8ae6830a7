//! Backups on real Docker: taken while agents run, brought back on an empty data dir, refused where
//! anything in them is not what it was.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::{
        ffi::OsStrExt as _,
        fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _},
    },
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use mayfly_tests::{engine::run, server::Server};
use rustix::fs::{SeekFrom, lgetxattr, llistxattr, seek};
use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_mayfly-under-test");

/// One name below a folder, with everything that a backup keeps.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    mode: u32,
    owner: (u32, u32),
    mtime: (i64, i64),
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    content: Vec<u8>,
    data: Vec<(u64, u64)>,
    /// The first name of the same inode.
    linked: PathBuf,
}

type Picture = BTreeMap<PathBuf, Entry>;

/// Of these folders below `root`, together.
fn picture(root: &Path, folders: &[String]) -> Picture {
    let mut found = Vec::new();
    let mut left: Vec<PathBuf> = folders.iter().map(PathBuf::from).collect();
    while let Some(path) = left.pop() {
        let full = root.join(&path);
        if full.symlink_metadata().expect("it is there").is_dir() {
            let entries = fs::read_dir(&full).expect("a folder").flatten();
            left.extend(entries.map(|entry| path.join(entry.file_name())));
        }
        found.push(path);
    }
    found.sort();
    let mut inodes = BTreeMap::new();
    let mut picture = Picture::new();
    for path in found {
        let full = root.join(&path);
        let stat = full.symlink_metadata().expect("it is there");
        let kind = stat.file_type();
        let linked = match kind.is_dir() || kind.is_char_device() {
            true => path.clone(),
            false => inodes
                .entry(stat.ino())
                .or_insert_with(|| path.clone())
                .clone(),
        };
        let content = match kind {
            kind if kind.is_file() => fs::read(&full).expect("a file"),
            kind if kind.is_symlink() => {
                let target = fs::read_link(&full).expect("a link");
                target.as_os_str().as_bytes().to_vec()
            }
            _ => Vec::new(),
        };
        let entry = Entry {
            mode: stat.mode(),
            owner: (stat.uid(), stat.gid()),
            // A whiteout hides a name; when it was made shows nowhere.
            mtime: match kind.is_char_device() {
                true => (0, 0),
                false => (stat.mtime(), stat.mtime_nsec()),
            },
            xattrs: xattrs(&full),
            data: match kind.is_file() {
                true => data(&full, stat.size()),
                false => Vec::new(),
            },
            content,
            linked,
        };
        picture.insert(path, entry);
    }
    picture
}

fn xattrs(path: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut names = vec![0; 65536];
    let len = llistxattr(path, &mut names[..]).expect("attributes");
    let names = names[..len].split(|byte| *byte == 0);
    let named = names.filter(|name| !name.is_empty()).map(|name| {
        let mut value = vec![0; 65536];
        let len = lgetxattr(path, name, &mut value[..]).expect("a value");
        value.truncate(len);
        (name.to_vec(), value)
    });
    named.collect()
}

fn data(path: &Path, size: u64) -> Vec<(u64, u64)> {
    let file = fs::File::open(path).expect("a file");
    let (mut found, mut at) = (Vec::new(), 0);
    while at < size {
        let Ok(data) = seek(&file, SeekFrom::Data(at)) else {
            break;
        };
        at = seek(&file, SeekFrom::Hole(data)).expect("an end");
        found.push((data, at));
    }
    found
}

fn assert_same(context: &str, left: &Picture, right: &Picture) {
    for path in left.keys().chain(right.keys()) {
        assert_eq!(
            left.get(path),
            right.get(path),
            "{context}: {}",
            path.display()
        );
    }
}

fn text(output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    format!(
        "{}{}",
        String::from_utf8_lossy(out),
        String::from_utf8_lossy(err)
    )
}

/// Ends with this code and says this.
#[track_caller]
fn refused(output: &Output, code: i32, says: &str) {
    let told = text(output);
    assert_eq!(output.status.code(), Some(code), "{told}");
    assert!(told.contains(says), "not {says:?}: {told}");
}

fn say(server: &Server, agent: &str, message: &str) -> String {
    let output = server.mayfly(&["agent", "send", agent, message]);
    assert!(output.status.success(), "{message}: {}", text(&output));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

fn manifest(backup: &Path) -> Value {
    let text = fs::read(backup.join("manifest.json")).expect("a manifest");
    serde_json::from_slice(&text).expect("JSON")
}

fn folders(backup: &Path) -> Vec<String> {
    let manifest = manifest(backup);
    let trees = manifest["trees"].as_array().expect("trees");
    let paths = trees.iter().filter_map(|item| item["path"].as_str());
    let kept = paths.filter(|path| path.starts_with("l/") || path.starts_with("b/"));
    kept.map(str::to_owned).collect()
}

fn backup(server: &Server, into: &Path) {
    let output = server.mayfly(&["backup", into.to_str().expect("UTF-8")]);
    assert!(output.status.success(), "{}", text(&output));
}

fn restore(server: &Server, from: &Path) -> Output {
    server.mayfly(&["restore", from.to_str().expect("UTF-8")])
}

/// What both slots hold, as the agent sees it.
const LOOK: &str = "cd / && find work home/agent -type f | LC_ALL=C sort | xargs -d '\\n' sha256sum; \
    find work home/agent -printf '%p %y %m %U %G %s %T@ %l\\n' | LC_ALL=C sort";

/// Everything that a layer can keep, over enough ticks for a merge.
fn furnish(server: &Server, agent: &str) {
    let number = match std::env::consts::ARCH {
        "aarch64" => 5,
        _ => 188,
    };
    let mark = format!(
        "perl -e 'my ($f, $n, $v) = qw(a/one user.mark yes); syscall({number}, $f, $n, $v, 3, 0) == 0 or die'"
    );
    let steps = [
        "mkdir -p a/b c/d && echo one > a/one && echo two > a/b/two && ln a/one a/same && ln -s ../x a/link",
        &mark,
        "truncate -s 4M holes && printf end >> holes && dd if=/dev/zero of=holes bs=4096 seek=64 count=1 conv=notrunc 2>&1",
        "rm -r c && mkdir c && echo new > c/new && chmod 640 c/new && touch -d '2001-02-03 04:05:06.789012345' c/new",
        "rm a/b/two ~/.bashrc; mv a moved; ls moved",
        "printf 'x' > \"$(printf 'odd\\n\\377name')\"; echo ok",
    ];
    for step in steps {
        say(server, agent, &format!("set -e; {step}; echo done"));
    }
    for n in 0..8 {
        say(
            server,
            agent,
            &format!("echo {n} >> log; mkdir -p send; echo {n} > send/file; echo ok"),
        );
    }
}

#[test]
fn a_backup_while_agents_run_comes_back_as_it_was() {
    let mut server = Server::new(PROGRAM);
    server.start();
    let (quiet, busy, gone) = (server.agent(), server.agent(), server.agent());
    furnish(&server, &quiet);
    say(&server, &gone, "echo x > x; echo ok");
    let before = say(&server, &quiet, LOOK);
    let log = server.json(&["agent", "log", &quiet]);

    let folder = tempfile::Builder::new()
        .prefix("mb")
        .tempdir()
        .expect("a folder");
    let (first, second) = (folder.path().join("first"), folder.path().join("second"));
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut n = 0;
            while !over.load(Ordering::Relaxed) {
                n += 1;
                say(
                    &server,
                    &busy,
                    &format!("echo {n} >> log; head -c 100000 /dev/urandom > big; echo ok"),
                );
            }
        });
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                let passing = server.agent();
                say(&server, &passing, "echo x > x; echo ok");
                for verb in [&["agent", "rm", &passing][..], &["gc"]] {
                    let done = server.mayfly(verb);
                    assert!(done.status.success(), "{}", text(&done));
                }
            }
        });
        // Layers of passing agents go while they are copied.
        for n in 0..6 {
            backup(&server, &folder.path().join(format!("passing-{n}")));
        }
        std::thread::sleep(Duration::from_secs(2));
        backup(&server, &first);
        assert!(server.mayfly(&["agent", "rm", &gone]).status.success());
        std::thread::sleep(Duration::from_secs(2));
        backup(&server, &second);
        over.store(true, Ordering::Relaxed);
    });
    let merges = server.sql("SELECT count(*) FROM merges");
    assert_ne!(merges, "0", "a merge was wanted");
    assert!(!folder.path().join("first.unfinished").exists());
    let living = |path: &Path| {
        run(
            "sqlite3",
            &[
                path.join("mayfly.db").to_str().expect("UTF-8"),
                "SELECT id FROM agents WHERE removed_at IS NULL",
            ],
        )
    };
    let lives = |path: &Path| living(path).contains(&gone);
    assert!(lives(&first) && !lives(&second));

    // As the original has it, links between layers too.
    let kept: Vec<String> = folders(&second)
        .into_iter()
        .filter(|path| server.data_dir().join(path).exists())
        .collect();
    assert!(kept.len() > 10, "{kept:?}");
    let original = picture(server.data_dir(), &kept);
    assert_same("backup", &original, &picture(&second, &kept));
    let linked = original
        .iter()
        .filter(|(path, entry)| entry.linked != **path);
    assert!(linked.count() > 5, "merged layers share files");
    assert!(
        original
            .values()
            .any(|entry| entry.xattrs.contains_key(&b"user.mark"[..]))
    );
    assert!(
        original
            .values()
            .any(|entry| entry.xattrs.contains_key(&b"trusted.overlay.opaque"[..]))
    );
    assert!(original.values().any(|entry| entry.data.len() > 1), "holes");
    let layers = run(
        "sqlite3",
        &[
            second.join("mayfly.db").to_str().expect("UTF-8"),
            "SELECT 'l/' || id FROM layers UNION SELECT 'b/' || id FROM bases ORDER BY 1",
        ],
    );
    let mut listed = folders(&second);
    listed.sort();
    assert_eq!(
        layers.trim(),
        listed.join("\n"),
        "what the rows name and nothing else"
    );

    // The first one is of another moment, and whole all the same.
    let mut copies = Vec::new();
    for taken in [&first, &second] {
        let mut copy = Server::new(PROGRAM);
        let output = restore(&copy, taken);
        assert!(output.status.success(), "{}", text(&output));
        assert_ne!(
            copy.prefix(),
            server.prefix(),
            "a copy is another installation"
        );
        let all = folders(taken);
        assert_same(
            "restored",
            &picture(taken, &all),
            &picture(copy.data_dir(), &all),
        );
        copy.start();
        assert_eq!(copy.json(&["agent", "log", &quiet]), log, "same history");
        let tick = log[2]["id"].as_str().expect("an id");
        let told = |server: &Server| server.json(&["tick", "show", tick])["transcript"].clone();
        assert_eq!(told(&copy), told(&server), "same evidence");
        assert_eq!(say(&copy, &quiet, LOOK), before, "same files");
        say(&copy, &busy, "tail -n 1 log && echo more >> log");
        let looked = copy.mayfly(&[
            "doctor",
            "--layers",
            "--against",
            taken.to_str().expect("UTF-8"),
        ]);
        refused(&looked, 0, " 0 damaged");
        copies.push(copy);
    }
    // The original goes on untouched by its copies.
    assert_eq!(say(&server, &quiet, LOOK), before);
    for mut server in copies.into_iter().chain([server]) {
        server.stop();
        server.assert_nothing_left();
    }
}

/// A small backup without a server, and where copies of it are made.
struct Sample {
    folder: tempfile::TempDir,
    server: Server,
    agent: String,
    backup: PathBuf,
}

impl Sample {
    fn new() -> Sample {
        let server = Server::new(PROGRAM);
        let agent = server.agent();
        say(
            &server,
            &agent,
            "mkdir -p a/b; echo some content > a/file; ln a/file a/b/same; mkdir -p send; echo y > send/y; echo ok",
        );
        say(&server, &agent, "echo other > other; echo ok");
        let folder = tempfile::Builder::new()
            .prefix("mb")
            .tempdir()
            .expect("a folder");
        let taken = folder.path().join("whole");
        backup(&server, &taken);
        Sample {
            folder,
            server,
            agent,
            backup: taken,
        }
    }

    fn copy(&self, name: &str) -> PathBuf {
        let copy = self.folder.path().join(name);
        let (from, to) = (self.backup.to_str(), copy.to_str());
        run("cp", &["-a", from.expect("UTF-8"), to.expect("UTF-8")]);
        copy
    }

    /// The layer with `a/file`.
    fn layer(&self) -> String {
        let all = folders(&self.backup);
        let found = all
            .iter()
            .find(|path| self.backup.join(path).join("work/a/file").exists());
        found.expect("a layer").clone()
    }
}

#[test]
fn what_is_damaged_is_refused_and_named() {
    let sample = Sample::new();
    let layer = sample.layer();
    let file = format!("{layer}/work/a/file");
    let set = |path: &Path, name: &str, value: &str| {
        run(
            "setfattr",
            &["-n", name, "-v", value, path.to_str().expect("UTF-8")],
        );
    };
    let edit = |backup: &Path, change: &dyn Fn(&mut Value)| {
        let mut value = manifest(backup);
        change(&mut value);
        fs::write(backup.join("manifest.json"), value.to_string()).expect("written");
    };
    type Damage<'a> = Box<dyn Fn(&Path) + 'a>;
    let layer_folder = &layer;
    let cases: Vec<(&str, i32, String, Damage<'_>)> = vec![
        (
            "flip",
            14,
            layer.clone(),
            Box::new(|backup| {
                let mut bytes = fs::read(backup.join(&file)).expect("a file");
                bytes[3] ^= 1;
                fs::write(backup.join(&file), bytes).expect("written");
            }),
        ),
        (
            "mtime",
            14,
            layer.clone(),
            Box::new(|backup| {
                run("touch", &[backup.join(&file).to_str().expect("UTF-8")]);
            }),
        ),
        (
            "more",
            14,
            layer.clone(),
            Box::new(|backup| {
                fs::write(backup.join(layer_folder).join("work/more"), "x").expect("written");
            }),
        ),
        (
            "lost",
            14,
            layer.clone(),
            Box::new(|backup| {
                fs::remove_dir_all(backup.join(layer_folder)).expect("removed");
            }),
        ),
        (
            "unlisted",
            14,
            layer.clone(),
            Box::new(|backup| {
                edit(backup, &|value| {
                    let trees = value["trees"].as_array_mut().expect("trees");
                    trees.retain(|item| item["path"] != layer_folder.as_str());
                });
            }),
        ),
        (
            "link",
            14,
            layer.clone(),
            Box::new(|backup| {
                let path = backup.join(layer_folder);
                fs::remove_dir_all(&path).expect("removed");
                std::os::unix::fs::symlink(sample.backup.join(layer_folder), path).expect("a link");
            }),
        ),
        (
            "setuid",
            14,
            file.clone(),
            Box::new(|backup| {
                fs::set_permissions(backup.join(&file), fs::Permissions::from_mode(0o4755))
                    .expect("set");
            }),
        ),
        (
            "redirect",
            14,
            format!("{layer}/work/a"),
            Box::new(|backup| {
                set(
                    &backup.join(layer_folder).join("work/a"),
                    "trusted.overlay.redirect",
                    "/home",
                );
            }),
        ),
        (
            "device",
            14,
            format!("{layer}/work/null"),
            Box::new(|backup| {
                let node = backup.join(layer_folder).join("work/null");
                run("mknod", &[node.to_str().expect("UTF-8"), "c", "1", "3"]);
            }),
        ),
        (
            "transcript",
            14,
            "transcripts/".to_owned(),
            Box::new(|backup| {
                let agent = backup.join("transcripts").join(&sample.agent);
                let tick = fs::read_dir(agent)
                    .expect("a folder")
                    .flatten()
                    .next()
                    .expect("a tick");
                fs::write(tick.path(), "{}\n").expect("written");
            }),
        ),
        (
            "database",
            14,
            "mayfly.db".to_owned(),
            Box::new(|backup| {
                let database = fs::File::options()
                    .write(true)
                    .open(backup.join("mayfly.db"))
                    .expect("it");
                let length = database.metadata().expect("it").len();
                database.set_len(length / 2).expect("cut");
            }),
        ),
        (
            "no-database",
            14,
            "mayfly.db".to_owned(),
            Box::new(|backup| {
                fs::remove_file(backup.join("mayfly.db")).expect("removed");
            }),
        ),
        (
            "program",
            14,
            "trigger".to_owned(),
            Box::new(|backup| {
                let database = backup.join("mayfly.db");
                let database = database.to_str().expect("UTF-8");
                run(
                    "sqlite3",
                    &[
                        database,
                        "CREATE TRIGGER t AFTER INSERT ON agents BEGIN DELETE FROM agents; END",
                    ],
                );
                let sum = run("sha256sum", &[database]);
                edit(backup, &|value| value["database"] = sum[..64].into());
            }),
        ),
        (
            "escape",
            14,
            "does not belong there".to_owned(),
            Box::new(|backup| {
                edit(backup, &|value| {
                    value["trees"][0]["path"] = "l/../../../tmp/x".into()
                });
            }),
        ),
        (
            "cut",
            14,
            "manifest.json".to_owned(),
            Box::new(|backup| {
                let manifest = fs::File::options()
                    .write(true)
                    .open(backup.join("manifest.json"))
                    .expect("it");
                manifest.set_len(100).expect("cut");
            }),
        ),
        (
            "newer",
            15,
            "format 2".to_owned(),
            Box::new(|backup| {
                edit(backup, &|value| value["format"] = 2.into());
            }),
        ),
        (
            "bare",
            15,
            "no manifest.json".to_owned(),
            Box::new(|backup| {
                fs::remove_file(backup.join("manifest.json")).expect("removed");
            }),
        ),
        (
            "marked",
            15,
            "interrupted".to_owned(),
            Box::new(|backup| {
                fs::write(backup.join("unfinished"), "").expect("written");
            }),
        ),
    ];
    let target = Server::new(PROGRAM);
    for (name, code, says, damage) in cases {
        let copy = sample.copy(name);
        damage(&copy);
        refused(&restore(&target, &copy), code, &says);
        let left = fs::read_dir(target.data_dir()).map(|entries| {
            let names = entries.flatten().map(|entry| entry.file_name());
            names.filter(|name| name != "lock").count()
        });
        assert_eq!(left.unwrap_or(0), 0, "{name} left something");
        run("rm", &["-r", copy.to_str().expect("UTF-8")]);
    }
    refused(
        &restore(&target, &sample.folder.path().join("none")),
        3,
        "no folder",
    );
    refused(&restore(&sample.server, &sample.backup), 6, "not empty");
    let whole = restore(&target, &sample.backup);
    assert!(whole.status.success(), "{}", text(&whole));
    assert_eq!(
        say(&target, &sample.agent, "cat a/b/same other"),
        "some content\nother"
    );
    refused(&restore(&target, &sample.backup), 6, "not empty");
}

#[test]
fn nothing_that_a_crash_leaves_looks_whole() {
    let sample = Sample::new();
    let Sample {
        folder,
        mut server,
        agent,
        ..
    } = sample;
    let taken = folder.path().join("taken");
    let aside = folder.path().join("taken.unfinished");
    let points = [
        "backup.database",
        "backup.copying",
        "backup.copied",
        "backup.manifest",
    ];
    for point in points {
        server.start_with_fault(point);
        let output = server.mayfly(&["backup", taken.to_str().expect("UTF-8")]);
        refused(&output, 12, "went away");
        server.wait_dead();
        assert!(!taken.exists(), "{point}");
        let empty = Server::new(PROGRAM);
        refused(&restore(&empty, &aside), 15, "no whole backup");
        assert!(!empty.data_dir().exists());
    }
    // Whole and without its name: it may be used, and the next attempt removes it.
    server.start_with_fault("backup.whole");
    refused(
        &server.mayfly(&["backup", taken.to_str().expect("UTF-8")]),
        12,
        "went away",
    );
    server.wait_dead();
    assert!(!taken.exists() && aside.join("manifest.json").exists());
    backup(&server, &taken);
    assert!(!aside.exists());

    for point in [
        "restore.database",
        "restore.copying",
        "restore.copied",
        "restore.moved",
    ] {
        let copy = Server::new(PROGRAM);
        let mut dying = copy.command(&["restore", taken.to_str().expect("UTF-8")]);
        let died = dying
            .env("MAYFLY_FAULT", point)
            .output()
            .expect("it starts");
        assert_eq!(died.status.code(), None, "{point}: {}", text(&died));
        refused(&copy.mayfly(&["agent", "list"]), 6, "unfinished restore");
        let again = restore(&copy, &taken);
        assert!(again.status.success(), "{point}: {}", text(&again));
        assert_eq!(say(&copy, &agent, "cat other"), "other");
    }
    let copy = Server::new(PROGRAM);
    let mut dying = copy.command(&["restore", taken.to_str().expect("UTF-8")]);
    let died = dying
        .env("MAYFLY_FAULT", "restore.named")
        .output()
        .expect("it starts");
    assert_eq!(died.status.code(), None, "{}", text(&died));
    assert_eq!(say(&copy, &agent, "cat other"), "other");
    assert!(!copy.data_dir().join(".restore").exists());
}

#[test]
fn a_folder_that_cannot_take_it_is_refused_first() {
    let sample = Sample::new();
    let Sample { folder, server, .. } = &sample;
    let refuse =
        |path: &str, code, says: &str| refused(&server.mayfly(&["backup", path]), code, says);
    let at = |name: &str| folder.path().join(name).to_str().expect("UTF-8").to_owned();
    refuse(&at("whole"), 4, "not empty");
    refuse(&at("none/here"), 4, "no parent folder");
    refuse(
        server.data_dir().join("l/x").to_str().expect("UTF-8"),
        4,
        "in the data dir",
    );
    fs::create_dir(folder.path().join("mine.unfinished")).expect("a folder");
    fs::write(folder.path().join("mine.unfinished/letters"), "x").expect("a file");
    refuse(&at("mine"), 4, "taken by something else");
    assert!(folder.path().join("mine.unfinished/letters").exists());
    fs::create_dir(folder.path().join("empty")).expect("a folder");
    backup(server, &folder.path().join("empty"));

    let small = at("small");
    fs::create_dir(&small).expect("a folder");
    run(
        "mount",
        &["-t", "tmpfs", "-o", "size=256k", "tmpfs", &small],
    );
    let output = server.mayfly(&["backup", &format!("{small}/b")]);
    let mounted = server.mayfly(&["backup", &small]);
    let left = fs::read_dir(&small).map(Iterator::count);
    run("umount", &[&small]);
    refused(&output, 7, "free some, or name a folder on another disk");
    refused(&mounted, 4, "mount point");
    assert_eq!(left.expect("a folder"), 0);
}

#[test]
fn doctor_names_each_damaged_layer_and_whom_it_hurts() {
    let sample = Sample::new();
    let layer = sample.layer();
    let Sample {
        server,
        agent,
        backup,
        ..
    } = &sample;
    let short = &agent[agent.len() - 8..];
    refused(&server.mayfly(&["doctor", "--layers"]), 0, " 0 damaged");
    let against = [
        "doctor",
        "--layers",
        "--against",
        backup.to_str().expect("UTF-8"),
    ];
    refused(&server.mayfly(&against), 0, " 0 damaged");

    let file = server.data_dir().join(&layer).join("work/a/file");
    let mut bytes = fs::read(&file).expect("a file");
    let mtime = fs::metadata(&file).expect("it").modified().expect("a time");
    bytes[0] ^= 1;
    fs::write(&file, bytes).expect("written");
    let held = fs::File::options().write(true).open(&file).expect("it");
    held.set_modified(mtime).expect("set");
    refused(&server.mayfly(&["doctor", "--layers"]), 0, " 0 damaged");
    let told = server.mayfly(&against);
    refused(
        &told,
        14,
        &format!("{layer}: its content is not what was backed up"),
    );
    refused(&told, 14, short);

    fs::remove_file(server.data_dir().join(&layer).join("work/a/b/same")).expect("removed");
    fs::remove_file(&file).expect("removed");
    refused(&server.mayfly(&["doctor", "--layers"]), 14, "files, not ");

    fs::remove_dir_all(server.data_dir().join(&layer)).expect("removed");
    refused(
        &server.mayfly(&["doctor", "--layers"]),
        14,
        "it is missing; agent ",
    );
    // The rest is kept all the same, and said to be the rest.
    let rest = sample.folder.path().join("rest");
    let output = server.mayfly(&["backup", rest.to_str().expect("UTF-8")]);
    refused(
        &output,
        14,
        &format!("{layer} is damaged and not in the backup"),
    );
    let copy = Server::new(PROGRAM);
    let output = restore(&copy, &rest);
    refused(
        &output,
        0,
        &format!("{layer} was damaged before the backup"),
    );
}

#[test]
fn up_01_an_older_program_names_the_copy_made_before_the_upgrade() {
    let sample = Sample::new();
    let database = sample.server.data_dir().join("mayfly.db");
    let newer =
        "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
                 VALUES (9999, 'of tomorrow', 1, x'00', 0)";
    Command::new("sqlite3")
        .arg(&database)
        .arg(newer)
        .status()
        .expect("sqlite3");
    let list = || sample.server.mayfly(&["agent", "list"]);
    refused(&list(), 6, "restore the backup made before its upgrade");
    fs::write(sample.server.data_dir().join("mayfly.db.before-9.9.9"), "").expect("written");
    refused(&list(), 6, "mayfly.db.before-9.9.9");
}
