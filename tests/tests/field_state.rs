//! What ticks leave on disk: that it is there again, that it is bounded, and that nothing else is.

use std::{
    path::Path,
    process::Command,
    thread::sleep,
    time::{Duration, Instant},
};

use mayfly_domain::MessageOutcome;
use mayfly_orchestrator::{
    command::RequestError,
    tick::outcome::{Changes, TickOutcome},
    view::MessageView,
};
use mayfly_tests::{
    engine,
    server::Server,
    world::{PATIENCE, Setup, World},
};

const MAYFLY: &str = env!("CARGO_BIN_EXE_mayfly-under-test");

fn text(message: &MessageView) -> &str {
    message.reply.as_ref().map_or("", |reply| &reply.text)
}

/// Two hundred ticks, each writes a file and counts what is mounted below it.
#[tokio::test(flavor = "multi_thread")]
async fn sn_04_two_hundred_ticks_on_one_agent() {
    const TICKS: u32 = 200;
    let world = World::docker().await;
    let agent = world.shell().await;
    let mut posted = Vec::new();
    for n in 1..=TICKS {
        // The options of the mount at /work; lowers are parted by colons.
        let command = format!(
            "echo {n} >f{n}; grep ' /work ' /proc/self/mountinfo | grep -o 'lowerdir=[^,]*' | \
             tr -cd : | wc -c"
        );
        posted.push(world.post(agent, &command).await);
    }
    let mut most = 0;
    for message in &posted {
        let settled = world.outcome(message).await;
        assert_eq!(
            settled.outcome,
            Some(MessageOutcome::Answered),
            "{settled:?}"
        );
        let lowers = 1 + text(&settled).parse::<usize>().unwrap();
        most = most.max(lowers);
    }
    assert!(most > 2, "chains grow: {most}");
    assert!(most <= 17, "{most} lowers");
    let all = format!("ls | wc -l; cat f1 f{TICKS}; cat f* | sort -n | uniq | wc -l");
    assert_eq!(
        world.reply(agent, &all).await,
        format!("{TICKS}\n1\n{TICKS}\n{TICKS}")
    );
    world.end().await;
}

/// In the second tick everything made before is a lower: folders are renamed, trees replaced, the
/// root locked, all deleted; and it stays so.
#[tokio::test(flavor = "multi_thread")]
async fn the_second_tick_renames_replaces_locks_and_deletes() {
    let world = World::docker().await;
    let agent = world.shell().await;
    let made = "git init -q . && git config user.email a@b && git config user.name n && \
                mkdir -p dir/sub py node_modules/a/lib && echo 1 >dir/sub/f && echo 2 >py/g && \
                echo old >node_modules/a/lib/x.js && echo keep >k && git add dir k && \
                git commit -qm one && echo made";
    assert_eq!(world.reply(agent, made).await, "made");
    let moved = "git mv dir dir2 && python3 -c 'import os; os.rename(\"py\", \"py2\")' && \
                 git commit -qm two && cat dir2/sub/f py2/g && ls -d dir py 2>/dev/null; echo end";
    assert_eq!(world.reply(agent, moved).await, "1\n2\nend");
    // As `npm ci`: the tree goes, another comes, twice in one tick, and again in the next.
    let replace = |n: u32| {
        format!(
            "for i in 1 2; do rm -rf node_modules && mkdir -p node_modules.tmp/b{n}$i/lib && \
             echo {n}$i >node_modules.tmp/b{n}$i/lib/x.js && mv node_modules.tmp node_modules; done; \
             find node_modules -type f | sort; cat node_modules/*/lib/x.js"
        )
    };
    let tree = |n: u32| format!("node_modules/b{n}2/lib/x.js\n{n}2");
    assert_eq!(world.reply(agent, &replace(1)).await, tree(1));
    assert_eq!(world.reply(agent, &replace(2)).await, tree(2));
    let find = "find node_modules -type f | sort; cat node_modules/*/lib/x.js";
    assert_eq!(world.reply(agent, find).await, tree(2));
    assert_eq!(
        world
            .reply(
                agent,
                "git status --porcelain -uno; git log --oneline | wc -l"
            )
            .await,
        "2"
    );

    assert_eq!(
        world.reply(agent, "chmod 700 /work && echo locked").await,
        "locked"
    );
    let locked = "stat -c '%a %u' /work; echo 3 >h; cat h k";
    assert_eq!(world.reply(agent, locked).await, "700 1000\n3\nkeep");
    let delete = "find . -mindepth 1 -delete; find . -mindepth 1 | wc -l";
    assert_eq!(world.reply(agent, delete).await, "0");
    for _ in 0..2 {
        let left = "find . -mindepth 1 | wc -l; stat -c %a .; touch z && rm z";
        assert_eq!(world.reply(agent, left).await, "0\n700");
    }
    world.commands().rollback(agent, None).await.unwrap();
    world.commands().rollback(agent, None).await.unwrap();
    world.commands().rollback(agent, None).await.unwrap();
    assert_eq!(world.reply(agent, "cat h dir2/sub/f").await, "3\n1");
    world.end().await;
}

/// A fork is independent of its parent in both directions, and its parent is not removed under it.
#[tokio::test(flavor = "multi_thread")]
async fn a_fork_is_independent_and_its_parent_stays_as_long_as_it_is_needed() {
    let world = World::docker().await;
    let parent = world.shell().await;
    world.reply(parent, "echo one >f").await;
    let second = world.say(parent, "echo two >>f").await;
    let fork = world.commands().fork(parent, None).await.unwrap();
    let early = world.commands().fork(parent, second.tick).await.unwrap();
    assert_eq!(fork.forked_from, Some(parent));
    assert_eq!(
        world.reply(fork.id, "echo fork >>f; cat f").await,
        "one\ntwo\nfork"
    );
    assert_eq!(
        world.reply(parent, "echo parent >>f; cat f").await,
        "one\ntwo\nparent"
    );
    assert_eq!(world.reply(fork.id, "cat f").await, "one\ntwo\nfork");

    let refused = world.commands().remove_agent(parent, false).await;
    let names = |error: &RequestError| matches!(error, RequestError::Conflict(text) if text.contains(&fork.short));
    assert!(refused.as_ref().is_err_and(names), "{refused:?}");
    world.commands().remove_agent(parent, true).await.unwrap();
    // The layers that nobody needs any more go; those below the forks stay, also below the one
    // that has not had a tick of its own.
    world.until_sql("SELECT count(*) FROM layers", "3").await;
    assert_eq!(world.reply(fork.id, "cat f").await, "one\ntwo\nfork");
    assert_eq!(world.reply(early.id, "cat f").await, "one\ntwo");
    world.end().await;
}

/// The disk cap holds although no quota stands behind it, also for what is deleted and still open.
#[tokio::test(flavor = "multi_thread")]
async fn cl_08_more_than_the_disk_cap() {
    let mut setup = Setup::default();
    setup.limits.state_mib = 64;
    let world = World::docker_with(setup).await;
    let agent = world.shell().await;
    world.reply(agent, "echo here >f").await;
    let layers = "SELECT count(*) FROM layers";
    assert_eq!(world.sql(layers), "1");
    for fill in [
        "dd if=/dev/zero of=big bs=1M count=2000 status=none; echo ended; sleep 600",
        "exec 9>big; rm big; dd if=/dev/zero bs=1M count=2000 status=none >&9; sleep 600",
    ] {
        let began = Instant::now();
        let message = world.say(agent, fill).await;
        assert!(began.elapsed() < Duration::from_secs(20), "{began:?}");
        assert_eq!(message.outcome, Some(MessageOutcome::Noticed));
        let told = text(&message);
        assert!(
            told.starts_with("disk limit of 64 MiB reached, changes "),
            "{told}"
        );
        let tick = world
            .commands()
            .tick(message.tick.unwrap())
            .await
            .unwrap()
            .tick;
        assert!(
            matches!(
                tick.outcome,
                Some(TickOutcome::OverBudget | TickOutcome::Failed)
            ),
            "{tick:?}"
        );
        if told.contains("64 MiB reached, changes discarded") {
            assert_eq!(tick.changes, Some(Changes::Discarded));
            assert_eq!(world.sql(layers), "1");
        }
        assert_eq!(world.reply(agent, "cat f; ls").await, "here\nf");
    }
    world.end().await;
}

/// Thirty ticks, some of them bad: nothing of them is left but what the agent kept.
#[tokio::test(flavor = "multi_thread")]
async fn cl_08_no_folders_are_left_after_thirty_ticks() {
    let world = World::docker().await;
    let agent = world.shell().await;
    let mut posted = Vec::new();
    for n in 0..30 {
        let command = match n % 5 {
            0 => format!("echo {n} >f{n}; echo x"),
            1 => "true".to_owned(),
            2 => "echo lost >lost; kill -9 $$".to_owned(),
            3 => "rm -rf * .[a-z]*; mkdir -p a/b; echo x".to_owned(),
            _ => "mv a b 2>/dev/null; exit 3".to_owned(),
        };
        posted.push(world.post(agent, &command).await);
    }
    for message in &posted {
        world.outcome(message).await;
    }
    let short = world.prefix();
    let short = short.trim_start_matches("mayfly-").trim_end_matches('-');
    let sockets = Path::new("/run/mayfly").join(short);
    let here = world.data_dir().to_owned();
    for folder in [here.join("u"), here.join("t"), sockets] {
        let deadline = Instant::now() + PATIENCE;
        while !names(&folder).is_empty() {
            assert!(
                Instant::now() < deadline,
                "{}: {:?}",
                folder.display(),
                names(&folder)
            );
            sleep(Duration::from_millis(100));
        }
    }
    let known: usize = world.sql("SELECT count(*) FROM layers").parse().unwrap();
    assert_eq!(names(&here.join("l")).len(), known);
    world.end().await;
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}

/// A file system of its own on a loop device.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn new(mebibytes: u32) -> SmallDisk {
        let folder = tempfile::Builder::new()
            .prefix("md")
            .tempdir()
            .expect("a temporary folder");
        let script = "truncate -s \"$1M\" \"$0/image\" && mkfs.ext4 -q -m 0 \"$0/image\" && \
                      mkdir \"$0/d\" && mount -o loop \"$0/image\" \"$0/d\"";
        let path = folder.path().to_str().expect("test paths are UTF-8");
        let made = Command::new("sh")
            .args(["-c", script, path, &mebibytes.to_string()])
            .status();
        assert!(made.expect("sh").success(), "no loop file system");
        SmallDisk(folder)
    }

    fn path(&self) -> std::path::PathBuf {
        self.0.path().join("d")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount")
            .arg("--lazy")
            .arg(self.path())
            .status();
    }
}

/// Below the floor of free space no tick starts and the thread is told; a running one is ended and
/// told; with room again what waits is answered.
#[test]
fn cl_08_below_the_floor_of_free_space() {
    let disk = SmallDisk::new(400);
    let mut server = Server::new(MAYFLY)
        .at(&disk.path().join("data"))
        .env("MAYFLY__DISK__FLOOR_MIB", "100")
        .env("MAYFLY__PROFILES__SHELL__LIMITS__STATE_MIB", "200");
    server.start();
    let agent = server.agent();
    let send = |text: &str| {
        let view = server.json(&["agent", "send", "--no-wait", &agent, text]);
        view["id"].as_str().expect("an id").to_owned()
    };
    let told = |message: &str| {
        server.sql(&format!(
            "SELECT text FROM deliveries WHERE message = '{message}' ORDER BY created_at"
        ))
    };
    let until = |what: &str, condition: &dyn Fn() -> bool| {
        let deadline = Instant::now() + PATIENCE;
        while !condition() {
            assert!(
                Instant::now() < deadline,
                "not in time: {what}: {}",
                server.log()
            );
            sleep(Duration::from_millis(50));
        }
    };
    let fine = send("echo here >f; echo fine");
    until("the first is answered", &|| told(&fine) == "fine");

    // What a tick may write was free when it began; somebody else fills the disk beside it.
    let filler = disk.path().join("filler");
    let fill = |mib: u32| {
        engine::run(
            "dd",
            &[
                "if=/dev/zero",
                &format!("of={}", filler.display()),
                "bs=1M",
                &format!("count={mib}"),
                "status=none",
            ],
        );
    };
    let greedy = send("dd if=/dev/zero of=big bs=1M count=150 status=none; sleep 600");
    server.until_sql(
        "SELECT count(*) FROM ticks WHERE phase = 'running' AND outcome IS NULL",
        "1",
    );
    fill(150);
    until("the greedy one is told", &|| {
        told(&greedy) == "the host's disk is nearly full, changes discarded"
    });
    std::fs::remove_file(&filler).unwrap();
    let ok = send("cat f; ls");
    until("there is room again", &|| told(&ok) == "here\nf");

    // And before one begins.
    fill(290);
    let waits = send("cat f");
    until("the thread is told that it waits", &|| {
        told(&waits).starts_with("waiting: the host's disk is nearly full: it goes on by itself")
    });
    let ready = server.json(&["agent", "show", &agent]);
    assert_eq!(ready["running"], serde_json::Value::Null);
    assert_eq!(
        server.sql(&format!(
            "SELECT count(*) FROM ticks WHERE message = '{waits}'"
        )),
        "0"
    );
    std::fs::remove_file(&filler).unwrap();
    until("it is answered", &|| told(&waits).ends_with("\nhere"));
    server.stop();
    server.assert_nothing_left();
}
