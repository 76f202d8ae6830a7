//! What an agent's past costs: states expire by count, age and bytes, what only they needed is
//! freed, and what anybody else needs stays.

use std::{path::Path, time::Duration};

use mayfly_domain::{AgentId, MessageOutcome, SnapshotId, TickId};
use mayfly_orchestrator::{
    agent::profile::Profile,
    command::RequestError,
    retention::{Ask, RetentionOverride},
    sandbox::fake::Fake,
    view::{MessageView, TickView},
};
use mayfly_tests::{
    engine,
    server::Server,
    world::{Setup, World},
};

const MAYFLY: &str = env!("CARGO_BIN_EXE_mayfly-under-test");

const MIB: u64 = 1 << 20;
/// Ticks whose times are compared, of a young agent and of an old one.
const MEASURED: u32 = 19;

/// A world whose profile `kept` has this retention.
fn setup(retention: RetentionOverride) -> Setup {
    let mut setup = Setup::default();
    let profile = Profile {
        limits: setup.limits.clone(),
        retention,
        ..Profile::default()
    };
    setup.profiles.push(("kept".to_owned(), profile));
    setup
}

fn keep_ticks(count: u64) -> RetentionOverride {
    RetentionOverride {
        keep_ticks: Some(count),
        ..RetentionOverride::default()
    }
}

/// Bytes on disk of all layers; a file with several names counts once.
fn on_disk(world: &World) -> u64 {
    let layers = world.data_dir().join("l");
    let counted = engine::run("du", &["-s", "-B1", layers.to_str().unwrap()]);
    let bytes = counted.split_whitespace().next().unwrap();
    bytes.parse().unwrap()
}

async fn ticks(world: &World, agent: AgentId) -> Vec<TickView> {
    world.commands().ticks(agent).await.unwrap()
}

fn states(ticks: &[TickView]) -> Vec<&str> {
    let state = |tick: &TickView| match tick.state.as_deref() {
        Some("kept") => "kept",
        Some("expired") => "expired",
        _ => "none",
    };
    ticks.iter().map(state).collect()
}

async fn assert_expired(world: &World, agent: AgentId, tick: TickId) {
    let back = world.commands().rollback(agent, Some(tick)).await;
    let fork = world.commands().fork(agent, Some(tick)).await;
    for refused in [back.err(), fork.err()] {
        let said = |error: &RequestError| matches!(error, RequestError::Conflict(text) if text.contains("not kept any more"));
        assert!(refused.as_ref().is_some_and(said), "{refused:?}");
    }
}

/// Many ticks that each change a hundredth of a tree; only the newest states are kept.
async fn many_ticks(ticks_wanted: u32, files: u32, file_bytes: u64, kept: u64) {
    let world = World::docker_with(setup(keep_ticks(kept))).await;
    let agent = world.agent("kept").await.unwrap();
    let tree = format!(
        "for i in $(seq {files}); do head -c {file_bytes} /dev/urandom >f$i; done; echo made"
    );
    assert_eq!(world.reply(agent, &tree).await, "made");
    let lowers =
        "grep ' /work ' /proc/self/mountinfo | grep -o 'lowerdir=[^,]*' | tr -cd : | wc -c";
    // Its tenth ticks run beside the other's last ones: both then share what else runs here.
    let young = world.agent("kept").await.unwrap();
    assert_eq!(world.reply(young, &tree).await, "made");
    let change = |n: u32| {
        format!(
            "head -c {file_bytes} /dev/urandom >f{}; {lowers}",
            n % files + 1
        )
    };
    let mut most = 0;
    for n in 1..ticks_wanted {
        let mounted = world.reply(agent, &change(n)).await;
        most = most.max(1 + mounted.parse::<u32>().unwrap());
        if n + MEASURED >= ticks_wanted {
            world.reply(young, &change(n)).await;
        }
    }
    assert!((3..=17).contains(&most), "{most} lowers");
    let young_ticks = ticks(&world, young).await;
    world.commands().remove_agent(young, false).await.unwrap();
    world.gc().await;
    let base = u64::from(files) * file_bytes;
    let limit = (base + kept * file_bytes) * 12 / 10;
    let found = on_disk(&world);
    assert!(
        found <= limit,
        "{} MiB on disk, at most {} MiB",
        found / MIB,
        limit / MIB
    );

    let all = ticks(&world, agent).await;
    assert_eq!(all.len(), ticks_wanted as usize, "the log keeps every tick");
    let states = states(&all);
    let expired = states.iter().filter(|state| **state == "expired").count();
    assert_eq!(expired, (u64::from(ticks_wanted) - kept) as usize);
    assert!(states[expired..].iter().all(|state| *state == "kept"));
    let first = world.commands().tick(all[0].id).await.unwrap();
    assert!(first.transcript.len() >= 3, "evidence stays");
    assert_expired(&world, agent, all[expired - 1].id).await;
    let oldest = all[expired].id;
    world
        .commands()
        .rollback(agent, Some(oldest))
        .await
        .unwrap();
    let count = "ls | wc -l; cat f* | wc -c";
    assert_eq!(world.reply(agent, count).await, format!("{files}\n{base}"));

    let work = |tick: &TickView| {
        let ms = tick.usage.phase_ms;
        ms[0] + ms[3] + ms[4]
    };
    let median = |ticks: &[TickView]| {
        let mut ms: Vec<i64> = ticks.iter().map(work).collect();
        ms.sort_unstable();
        ms[ms.len() / 2]
    };
    let last = MEASURED as usize;
    let (tenth, late) = (median(&young_ticks[1..]), median(&all[all.len() - last..]));
    // The clock has milliseconds, the machine has neighbours.
    assert!(
        late <= tenth * 11 / 10 + 10,
        "{late} ms late, {tenth} ms about the tenth"
    );
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sp_04_disk_follows_what_changed_and_what_is_kept() {
    many_ticks(60, 100, 640 << 10, 10).await;
}

#[ignore = "500 ticks on 1 GiB take minutes: tests/run --full"]
#[tokio::test(flavor = "multi_thread")]
async fn sp_04_five_hundred_ticks_on_a_gibibyte() {
    many_ticks(500, 100, 10 * MIB, 50).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sp_04_a_dormant_agent_loses_its_past_and_keeps_its_head() {
    let rule = RetentionOverride {
        keep_days: Some(30),
        ..RetentionOverride::default()
    };
    let world = World::fake(setup(rule), Fake::new).await;
    let (dormant, other) = (world.agent("kept").await.unwrap(), world.shell().await);
    for n in 0..5 {
        world.reply(dormant, &format!("echo {n} > f{n}")).await;
        world.reply(other, &format!("echo {n} > f{n}")).await;
    }
    let days = 60 * 24 * 60 * 60 * 1000_i64;
    world.change(&format!(
        "UPDATE snapshots SET created_at = created_at - {days}"
    ));
    let view = world.gc().await;
    assert_eq!((view.states, view.held), (4, None));
    assert_eq!(
        states(&ticks(&world, dormant).await),
        ["expired", "expired", "expired", "expired", "kept"]
    );
    assert_eq!(states(&ticks(&world, other).await), ["kept"; 5]);
    assert_eq!(world.reply(dormant, "cat f0 f4").await, "0\n4");
    world.end().await;
}

/// Without a word from anybody: the service's own rounds.
#[tokio::test(flavor = "multi_thread")]
async fn sp_04_states_expire_by_themselves() {
    let world = World::fake(setup(keep_ticks(2)), Fake::new).await;
    let agent = world.agent("kept").await.unwrap();
    for n in 0..5 {
        world.reply(agent, &format!("echo {n} > f")).await;
    }
    let expired = "SELECT count(*) FROM snapshots WHERE expired_at IS NOT NULL";
    world.until_sql(expired, "3").await;
    assert_eq!(world.reply(agent, "cat f").await, "4");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn forks_pins_and_undelivered_files_keep_what_they_need() {
    let world = World::fake(setup(keep_ticks(1)), Fake::new).await;
    let agent = world.agent("kept").await.unwrap();
    let db = &world.service().worker().tools.db;
    world.reply(agent, "echo one > f").await;
    let read = state_of(&world.say(agent, "echo two >> f").await, &world).await;
    let pinned = db.pin(agent, &[Some(read)]).await.unwrap().unwrap();
    let fork = world.commands().fork(agent, None).await.unwrap().id;
    for n in 0..4 {
        world.reply(agent, &format!("echo {n} > g{n}")).await;
    }
    world.gc().await;
    for layer in &pinned.states[0].layers {
        let folder = world.data_dir().join("l").join(layer.as_str());
        assert!(folder.is_dir(), "{} is read", folder.display());
    }
    assert_eq!(world.reply(fork, "cat f").await, "one\ntwo");
    world.commands().remove_agent(agent, true).await.unwrap();
    world.gc().await;
    assert_eq!(
        world.reply(fork, "cat f; echo three >> f").await,
        "one\ntwo"
    );
    world.commands().remove_agent(fork, false).await.unwrap();
    world.gc().await;
    let kept: usize = world.sql("SELECT count(*) FROM layers").parse().unwrap();
    assert_eq!(kept, pinned.states[0].layers.len(), "what is read stays");
    drop(pinned);
    world.gc().await;
    assert_eq!(world.sql("SELECT count(*) FROM layers"), "0");
    assert_eq!(names(&world.data_dir().join("l")), Vec::<String>::new());
    world.end().await;
}

async fn state_of(message: &MessageView, world: &World) -> SnapshotId {
    let tick = world.commands().tick(message.tick.unwrap()).await.unwrap();
    tick.tick.after.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_removed_after_the_clock_jumped_by_more_than_a_day() {
    let world = World::fake(setup(keep_ticks(1)), Fake::new).await;
    let agent = world.agent("kept").await.unwrap();
    world.reply(agent, "echo 1 > f").await;
    world.gc().await;
    let two_days = 2 * 24 * 60 * 60 * 1000_i64;
    for sign in ['-', '+'] {
        // Housekeeping saw the clock two days ago, or in two days.
        world.change(&format!(
            "UPDATE clock SET seen_at = seen_at {sign} {two_days}"
        ));
        world.reply(agent, "echo 2 >> f").await;
        let before = world.sql("SELECT count(*) FROM layers");
        let view = world.gc().await;
        assert!(view.held.is_some_and(|why| why.contains("set the clock")));
        assert_eq!((view.layers, view.states), (0, 0));
        assert_eq!(world.sql("SELECT count(*) FROM layers"), before);
        let ask = Ask {
            trust_clock: true,
            ..Ask::default()
        };
        let view = world.commands().gc(ask).await.unwrap();
        assert!(view.held.is_none() && view.states > 0, "{view:?}");
    }
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bases_and_files_that_nobody_names_go_after_a_grace() {
    let world = World::fake(Setup::default(), Fake::new).await;
    let agent = world.shell().await;
    let sent = world
        .say(agent, "mkdir -p send; echo file > send/a.txt; echo ok")
        .await;
    assert_eq!(sent.reply.unwrap().files.len(), 1);
    let blobs = &world.service().worker().tools.blobs;
    let stray = blobs.put(b"never named".to_vec()).await.unwrap();
    assert_eq!(world.gc().await.blobs, 0, "it may be about to be named");
    let folder = world.data_dir().join("blobs");
    engine::run(
        "find",
        &[
            folder.to_str().unwrap(),
            "-type",
            "f",
            "-exec",
            "touch",
            "-d",
            "2 hours ago",
            "{}",
            "+",
        ],
    );
    let dry = Ask {
        dry_run: true,
        ..Ask::default()
    };
    assert_eq!(world.commands().gc(dry).await.unwrap().blobs, 1);
    assert!(blobs.get(&stray).await.is_ok());
    assert_eq!(world.gc().await.blobs, 1);
    assert!(blobs.get(&stray).await.is_err());

    world.commands().remove_agent(agent, false).await.unwrap();
    assert_eq!(
        world.gc().await.bases,
        0,
        "an agent may be about to be made on it"
    );
    world.change("UPDATE bases SET used_at = 1, created_at = 1");
    world.change("UPDATE agents SET removed_at = 1 WHERE removed_at IS NOT NULL");
    assert_eq!(world.gc().await.bases, 1);
    assert_eq!(names(&world.data_dir().join("b")), Vec::<String>::new());
    let again = world.shell().await;
    assert_eq!(world.reply(again, "echo back").await, "back");
    world.end().await;
}

/// Making a layer or removing a sandbox waits for the engine; files do not need it.
#[tokio::test(flavor = "multi_thread")]
async fn files_do_not_wait_for_the_engine() {
    let world = World::fake(Setup::default(), Fake::new).await;
    let tools = &world.service().worker().tools;
    let alone = tools.making.write().await;
    let mut upload = world.commands().begin_upload(None).await.unwrap();
    upload.push(b"content").await.unwrap();
    let stored = tokio::time::timeout(Duration::from_secs(20), upload.finish()).await;
    let blob = stored.expect("it waits for the lock").unwrap().blob;
    assert_eq!(tools.blobs.get(&blob).await.unwrap(), b"content");
    drop(alone);
    world.end().await;
}

/// A dry run says what would go, and takes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_removes_nothing_and_says_the_same() {
    let world = World::docker_with(setup(keep_ticks(1))).await;
    let agent = world.agent("kept").await.unwrap();
    let fill = "head -c 4194304 /dev/urandom >f; echo ok";
    let fork = {
        world.reply(agent, fill).await;
        world.commands().fork(agent, None).await.unwrap().id
    };
    let disk = async |agent| {
        world
            .commands()
            .agent_with_disk(agent)
            .await
            .unwrap()
            .disk
            .unwrap()
    };
    let shared = disk(agent).await;
    assert!(
        shared.shared_bytes >= 4 * MIB && shared.own_bytes == 0,
        "{shared:?}"
    );
    world.reply(agent, fill).await;
    let own = disk(agent).await;
    assert!(
        own.own_bytes >= 4 * MIB && own.shared_bytes >= 4 * MIB,
        "{own:?}"
    );
    // The fork goes and nobody looks meanwhile.
    world.commands().remove_agent(fork, false).await.unwrap();
    let dry = Ask {
        dry_run: true,
        ..Ask::default()
    };
    let told = world.commands().gc(dry).await.unwrap();
    let did = world.gc().await;
    assert!(told.dry_run && !did.dry_run);
    assert!(told.states <= 1 && did.states <= 1);
    assert_eq!(world.reply(agent, "cat f | wc -c").await, "4194304");
    world.end().await;
}

/// Five gibibytes that are a hole cost what is written into them, over ticks, merge and rollback.
#[tokio::test(flavor = "multi_thread")]
async fn sn_03_a_sparse_file_of_five_gibibytes_over_whole_ticks() {
    let mut setup = Setup::default();
    setup.limits.file_mib = 8192;
    let world = World::docker_with(setup).await;
    let agent = world.shell().await;
    let make = "truncate -s 5G big; printf end | dd of=big bs=1 seek=5000000000 conv=notrunc \
                status=none; echo ok";
    let made = world.say(agent, make).await;
    assert_eq!(made.outcome, Some(MessageOutcome::Answered), "{made:?}");
    let tick = world
        .commands()
        .tick(made.tick.unwrap())
        .await
        .unwrap()
        .tick;
    assert!(tick.usage.layer_bytes < 1 << 20, "{:?}", tick.usage);
    assert!(tick.usage.phase_ms[3] < 20_000, "{:?}", tick.usage);
    for n in 0..13 {
        world.reply(agent, &format!("echo {n} >f{n}")).await;
    }
    world
        .until_sql("SELECT count(*) > 0 FROM merges", "1")
        .await;
    let look = "stat -c %s big; test $(stat -c %b big) -lt 2048 && echo sparse; \
                dd if=big bs=1 skip=5000000000 count=3 status=none";
    assert_eq!(world.reply(agent, look).await, "5368709120\nsparse\nend");
    world.commands().rollback(agent, made.tick).await.unwrap();
    assert_eq!(world.reply(agent, look).await, "5368709120\nsparse\nend");
    assert!(on_disk(&world) < 4 * MIB, "{}", on_disk(&world));
    world.end().await;
}

/// What a tick wrote under excluded paths is not back in the next, and what a person would miss
/// is told.
#[tokio::test(flavor = "multi_thread")]
async fn excluded_paths_are_left_out_and_what_is_dropped_is_told() {
    let mut setup = Setup::default();
    let profile = Profile {
        limits: setup.limits.clone(),
        exclude: vec![
            "~/.cache/**".to_owned(),
            "/work/**/node_modules/.cache".to_owned(),
        ],
        ..Profile::default()
    };
    setup.profiles.push(("tidy".to_owned(), profile));
    let world = World::docker_with(setup).await;
    let agent = world.agent("tidy").await.unwrap();
    let make = "mkdir -p ~/.cache/pip node_modules/.cache/x && echo 1 >~/.cache/pip/f && \
                echo 1 >node_modules/.cache/x/f && echo 1 >node_modules/code && echo made";
    let made = world.say(agent, make).await;
    assert_eq!(made.reply.unwrap().text, "made", "excluded is not told");
    let tick = world
        .commands()
        .tick(made.tick.unwrap())
        .await
        .unwrap()
        .tick;
    assert!(
        tick.notes.iter().any(|note| note.contains("excluded")),
        "{:?}",
        tick.notes
    );
    let look = "cd; find . /work -path '*cache*'; ls /work/node_modules";
    assert_eq!(world.reply(agent, look).await, "./.cache\ncode");

    let odd = "mkfifo pipe; python3 -c 'import socket; socket.socket(1).bind(\"sock\")'; \
               cp /bin/true su; chmod u+s su; echo odd";
    let told = world.reply(agent, odd).await;
    assert!(told.starts_with("odd\n\nnote: "), "{told}");
    assert!(
        told.contains("/work/pipe") || told.contains("/work/su"),
        "{told}"
    );
    assert!(
        told.contains(" and 1 more"),
        "a socket is not missed: {told}"
    );
    let only_socket = "python3 -c 'import socket; socket.socket(1).bind(\"sock\")'; echo quiet";
    assert_eq!(world.reply(agent, only_socket).await, "quiet");
    world.end().await;
}

/// Over a cap nothing of the tick is kept and nothing is left half-written.
#[tokio::test(flavor = "multi_thread")]
async fn sn_12_a_state_over_its_cap_keeps_the_old_one_and_leaves_nothing() {
    let mut setup = Setup::default();
    setup.limits.state_mib = 64;
    setup.limits.state_inodes = 50;
    let world = World::docker_with(setup).await;
    let agent = world.shell().await;
    world.reply(agent, "echo here >f").await;
    let head = world.commands().agent(agent).await.unwrap().head;
    let fills = [
        (
            "head -c 68157440 /dev/zero | tr '\\0' x >big; echo done",
            "64 MiB",
        ),
        (
            "for i in $(seq 200); do echo $i >n$i; done; echo done",
            "50 files",
        ),
        // A writer that the program leaves behind does not write on.
        (
            "(while :; do echo x >>bg; done) & head -c 68157440 /dev/zero | tr '\\0' x >big; echo done",
            "64 MiB",
        ),
    ];
    for (fill, limit) in fills {
        let message = world.say(agent, fill).await;
        assert_eq!(message.outcome, Some(MessageOutcome::Noticed));
        let text = message.reply.unwrap().text;
        assert!(text.contains(limit), "{text}");
        // Where the running tick is ended first, its files are judged by what is there then.
        if text.contains("discarded") {
            assert_eq!(world.commands().agent(agent).await.unwrap().head, head);
            assert_eq!(world.reply(agent, "cat f; ls | wc -l").await, "here\n1");
            world.commands().rollback(agent, None).await.unwrap();
        } else {
            world.commands().rollback(agent, None).await.unwrap();
        }
    }
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    for folder in ["u", "t"] {
        let folder = world.data_dir().join(folder);
        while !names(&folder).is_empty() {
            assert!(std::time::Instant::now() < deadline, "{:?}", names(&folder));
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
    world.end().await;
}

/// The installation's rule from the configuration; the verb with and without a server.
#[test]
fn gc_on_the_command_line() {
    let mut server = Server::new(MAYFLY).env("MAYFLY__RETENTION__KEEP_TICKS", "1");
    server.start();
    let agent = server.agent();
    for n in 0..3 {
        let sent = server.mayfly(&["agent", "send", &agent, &format!("echo {n} >f{n}; echo ok")]);
        assert!(sent.status.success(), "{sent:?}");
    }
    let shown = server.mayfly(&["agent", "show", &agent]);
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("of its own"), "{shown}");
    let disk = server.json(&["agent", "show", &agent])["disk"].clone();
    assert!(
        disk["own_bytes"].as_u64().is_some_and(|bytes| bytes > 0),
        "{disk}"
    );
    let dry = server.json(&["gc", "--dry-run"]);
    assert_eq!(
        (&dry["dry_run"], &dry["held"]),
        (&true.into(), &serde_json::Value::Null)
    );
    let done = server.mayfly(&["gc"]);
    assert!(
        String::from_utf8_lossy(&done.stdout).starts_with("removed "),
        "{done:?}"
    );
    let log = server.mayfly(&["agent", "log", &agent]);
    let log = String::from_utf8_lossy(&log.stdout).into_owned();
    assert_eq!(log.matches("state expired").count(), 2, "{log}");
    server.stop();
    let again = server.mayfly(&["gc"]);
    let again = String::from_utf8_lossy(&again.stdout).into_owned();
    assert_eq!(again.trim(), "removed nothing");
    server.assert_nothing_left();
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}
