//! What happens in the middle of a seal or a merge: the disk fills up, the agent is removed; of
//! housekeeping: what it is about to remove is stored anew; and between a claim and its spawn: a
//! file comes. In a program of their own, because they watch the named points.

use std::{
    fs,
    path::PathBuf,
    sync::{Mutex, mpsc},
    time::Duration,
};

use mayfly_domain::MessageOutcome;
use mayfly_orchestrator::{
    agent::profile::{Profile, SHELL, Waiting},
    blobs::Blobs,
    faults,
    sandbox::fake::Fake,
    snapshot::merging,
};
use mayfly_tests::{
    engine::{self, run},
    world::{Setup, World},
};

/// Where the next seal finds no block left.
static FILL: Mutex<Option<PathBuf>> = Mutex::new(None);

/// The next merge waits before it reads its chain, and says so.
static HOLD: Mutex<Option<mpsc::Sender<()>>> = Mutex::new(None);

fn at(point: &'static str) {
    match point {
        "seal.measured" => fill(),
        "merge.before" => hold(),
        "garbage.blob" => store_anew(),
        "spawn.claimed" => come_late(),
        _ => {}
    }
}

/// What housekeeping is about to remove, and where it is stored anew just then.
static ANEW: Mutex<Option<(Blobs, &[u8])>> = Mutex::new(None);

fn store_anew() {
    let Some((blobs, content)) = ANEW.lock().unwrap().take() else {
        return;
    };
    let stored = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(blobs.put(content.to_vec())).unwrap();
    });
    stored.join().unwrap();
}

/// The database where the next claim of merged messages gets one file more.
static LATE: Mutex<Option<PathBuf>> = Mutex::new(None);

fn come_late() {
    let mut late = LATE.lock().unwrap();
    let Some(path) = &*late else { return };
    let merged = "SELECT count(*) FROM messages WHERE merged_into IS NOT NULL";
    if engine::sql(path, merged) == "2" {
        let blob = "0".repeat(64);
        let file = format!(
            "INSERT INTO message_files (message, position, name, blob, size)
             SELECT id, 0, 'late', '{blob}', 2000000 FROM messages
             WHERE merged_into IS NOT NULL ORDER BY seq LIMIT 1"
        );
        engine::change(path, &file);
        *late = None;
    }
}

fn hold() {
    if let Some(held) = HOLD.lock().unwrap().take() {
        held.send(()).unwrap();
        std::thread::sleep(Duration::from_millis(700));
    }
}

fn fill() {
    let Some(path) = FILL.lock().unwrap().take() else {
        return;
    };
    let mut file = fs::File::create(path).unwrap();
    for size in [1 << 20, 4096] {
        let block = vec![1; size];
        while std::io::Write::write_all(&mut file, &block).is_ok() {}
    }
}

struct Mounted(tempfile::TempDir);

impl Drop for Mounted {
    fn drop(&mut self) {
        let path = self.0.path().join("m");
        let _ = std::process::Command::new("umount")
            .arg("--lazy")
            .arg(path)
            .status();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sn_12_no_room_in_the_middle_of_a_seal_keeps_the_old_state_and_leaves_nothing() {
    let folder = Mounted(tempfile::Builder::new().prefix("md").tempdir().unwrap());
    let (image, mount) = (folder.0.path().join("image"), folder.0.path().join("m"));
    fs::File::create(&image)
        .unwrap()
        .set_len(192 << 20)
        .unwrap();
    fs::create_dir(&mount).unwrap();
    let [image, shown] = [&image, &mount].map(|path| path.to_str().unwrap());
    run("mkfs.ext4", &["-q", "-m", "0", image]);
    run("mount", &["-o", "loop", image, shown]);

    let mut setup = Setup::default();
    setup.disk.floor_mib = 0;
    setup.disk.ballast_mib = 16;
    let world = World::docker_in(setup, &mount).await;
    faults::watch(at);
    let agent = world.shell().await;
    let made = "for d in $(seq 300); do mkdir -p d/$d; echo $d >d/$d/f; done; echo made";
    assert_eq!(world.reply(agent, made).await, "made");
    let head = world.commands().agent(agent).await.unwrap().head;
    let layers = world.sql("SELECT count(*) FROM layers");

    // The seal makes each folder of the moved one anew.
    let filler = mount.join("filler");
    *FILL.lock().unwrap() = Some(filler.clone());
    let moved = world.say(agent, "mv d e; echo moved").await;
    assert_eq!(moved.outcome, Some(MessageOutcome::Noticed), "{moved:?}");
    let text = moved.reply.unwrap().text;
    assert_eq!(
        text,
        "moved\n\nthe host's disk is nearly full, changes discarded"
    );
    assert_eq!(world.commands().agent(agent).await.unwrap().head, head);
    assert_eq!(world.sql("SELECT count(*) FROM layers"), layers);
    fs::remove_file(filler).unwrap();
    for left in ["u", "t"] {
        let left = world.data_dir().join(left);
        assert_eq!(
            fs::read_dir(&left).unwrap().count(),
            0,
            "{}",
            left.display()
        );
    }
    let look = "ls; ls d | wc -l; cat d/300/f";
    assert_eq!(world.reply(agent, look).await, "d\n300\n300");
    world.end().await;
}

/// The chain is pinned, so the merge ends well although nobody needs it any more; what it made is
/// no one's, and goes.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[allow(clippy::disallowed_methods)] // A spawn of the test's own.
async fn an_agent_that_is_removed_while_its_chain_is_merged() {
    let world = World::fake(Setup::default(), Fake::new).await;
    faults::watch(at);
    let agent = world.shell().await;
    for n in 0..4 {
        world.reply(agent, &format!("echo {n} > f{n}")).await;
    }
    let tools = world.service().worker().tools.clone();
    let (held, holds) = mpsc::channel();
    *HOLD.lock().unwrap() = Some(held);
    let merging = tokio::spawn(async move { merging::merge(&tools, agent).await });
    tokio::task::spawn_blocking(move || holds.recv().unwrap())
        .await
        .unwrap();
    world.commands().remove_agent(agent, false).await.unwrap();
    world.gc().await;
    merging.await.unwrap().unwrap();
    world.gc().await;
    assert_eq!(world.sql("SELECT count(*) FROM layers"), "0");
    for left in ["l", "u", "t"] {
        let left = world.data_dir().join(left);
        assert_eq!(
            fs::read_dir(&left).unwrap().count(),
            0,
            "{}",
            left.display()
        );
    }
    world.end().await;
}

/// As when a tick stores a reply's file and has not named it yet.
#[tokio::test(flavor = "multi_thread")]
async fn content_that_is_stored_anew_while_it_is_collected_stays() {
    let world = World::fake(Setup::default(), Fake::new).await;
    faults::watch(at);
    let blobs = world.service().worker().tools.blobs.clone();
    let hash = blobs.put(b"again".to_vec()).await.unwrap();
    let path = world.data_dir().join("blobs").join(&hash.as_str()[..2]);
    let path = path.join(hash.as_str());
    let age = || run("touch", &["-d", "2 hours ago", path.to_str().unwrap()]);
    // Before it is old enough: the housekeeping of the world itself may come first.
    *ANEW.lock().unwrap() = Some((blobs.clone(), b"again"));
    age();
    let view = world.gc().await;
    assert!(ANEW.lock().unwrap().is_none(), "it was looked at");
    assert_eq!((view.blobs, view.bytes), (0, 0));
    assert_eq!(blobs.get(&hash).await.unwrap(), b"again");
    age();
    // The housekeeping of the world itself may have come first.
    world.gc().await;
    assert!(!path.exists());
    world.end().await;
}

/// As when an event is applied just then: what was judged before the claim holds no more.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_too_many_for_merged_messages_is_told_to_its_own_only() {
    let mut setup = Setup::default();
    setup.limits.file_mib = 1;
    let shell = Profile {
        limits: setup.limits.clone(),
        waiting: Waiting::Merge,
        ..Profile::default()
    };
    setup.profiles.push((SHELL.to_owned(), shell));
    let world = World::fake(setup, Fake::new).await;
    faults::watch(at);
    let agent = world.shell().await;
    let first = world.post(agent, "sleep 2; echo one").await;
    let runs = "SELECT count(*) FROM ticks WHERE phase = 'running' AND outcome IS NULL";
    world.until_sql(runs, "1").await;
    *LATE.lock().unwrap() = Some(world.data_dir().join("mayfly.db"));
    let mut posted = vec![first];
    for text in ["echo two", "echo three", "echo four"] {
        posted.push(world.post(agent, text).await);
    }
    let mut told = Vec::new();
    for message in &posted {
        told.push(world.outcome(message).await);
    }
    assert!(LATE.lock().unwrap().is_none(), "they were merged");
    let outcomes: Vec<_> = told.iter().filter_map(|message| message.outcome).collect();
    use MessageOutcome::{Answered, Noticed};
    assert_eq!(outcomes, [Answered, Answered, Noticed, Answered]);
    let three = told[2].reply.as_ref().expect("a notice");
    assert!(three.text.contains("limits.file_mib = 1"), "{}", three.text);
    world.end().await;
}
