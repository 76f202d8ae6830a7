//! What stays on a disk, what leaves the store, and what else goes into it.

use std::{
    fs::{self, File},
    time::Duration,
};

use mayfly_domain::{AgentId, BaseId, LayerId, TickId};
use mayfly_orchestrator::depot::StoreConfig;

use crate::{Shared, count, folder, until_base_stored, world};

const HOUR: Duration = Duration::from_secs(60 * 60);

pub(crate) fn age(path: &std::path::Path) {
    let file = File::open(path).expect("it is there");
    let at = file
        .metadata()
        .expect("readable")
        .modified()
        .expect("a time");
    file.set_modified(at - 3 * HOUR).expect("it is ours");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_used_least_recently_leaves_the_disk_and_comes_back() {
    let shared = Shared::folder();
    let store = StoreConfig {
        cache_mib: 1,
        ..shared.config()
    };
    let world = world(store).await;
    let mut agents = Vec::new();
    for n in 0..3 {
        let agent = world.shell().await;
        let big = "x".repeat(400_000);
        world
            .say(agent, &format!("echo {n}{big} > f; echo ok"))
            .await;
        agents.push(agent);
    }
    let layers = world.data_dir().join("l");
    let id = |agent: &AgentId| {
        world.sql(&format!(
            "SELECT s.layer FROM agents a JOIN snapshots s ON s.id = a.head WHERE a.id = '{agent}'"
        ))
    };
    let ids: Vec<String> = agents.iter().map(id).collect();
    // Two fit. The first is the oldest, and stays: it is the head of an agent that was busy lately.
    age(&layers.join(&ids[0]));
    age(&layers.join(&ids[0]));
    age(&layers.join(&ids[1]));
    let rounds = world.sql("SELECT count(*) FROM layers WHERE stored_at IS NOT NULL");
    assert_eq!((count(&layers), rounds.as_str()), (3, "3"));
    let busy = agents[0];
    world.change(&format!(
        "UPDATE ticks SET started_at = 1 WHERE agent <> '{busy}'"
    ));
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    while count(&layers) == 3 {
        assert!(tokio::time::Instant::now() < deadline, "nothing leaves");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(
        !layers.join(&ids[1]).exists(),
        "the oldest use of those that may leave"
    );
    assert_eq!(count(&layers), 2, "and no more than had to");
    let reply = world.reply(agents[1], "cat f").await;
    assert!(reply.starts_with("1xx"));
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_no_row_needs_leaves_the_store_after_a_time_of_grace() {
    let shared = Shared::folder();
    let folder = folder(&shared);
    let world = world(shared.config()).await;
    let (agent, other) = (world.shell().await, world.shell().await);
    world.say(agent, "echo one > f; echo ok").await;
    world.say(other, "echo two > f; echo ok").await;
    let objects = folder.join("layers");
    assert_eq!(count(&objects), 2);
    // One whose worker died before it named it, one that is young, and what rows knew that are gone.
    let digest = "ab".repeat(32);
    let [stray, young] = [(); 2].map(|()| objects.join(format!("{}.{digest}", LayerId::new())));
    let base = folder.join(format!("bases/{}.{digest}", BaseId::new()));
    let told = folder.join("transcripts/nobody");
    let told = told.join(format!("{}.{digest}", TickId::new()));
    for path in [&stray, &young, &base, &told] {
        fs::create_dir_all(path.parent().expect("a folder")).expect("it is ours");
        fs::write(path, "stray").expect("it is ours");
    }
    for path in [&stray, &base, &told] {
        age(path);
    }
    let removed = world.commands().remove_agent(agent, true).await;
    removed.expect("it goes");
    world.gc().await;
    let travel = &world.service().worker().tools.travel;
    travel.mark_unnamed().await.expect("marked");
    assert_eq!(
        world.sql("SELECT count(*) FROM doomed"),
        "4",
        "the layer and the strays"
    );
    let swept = travel.sweep().await.expect("swept");
    assert_eq!(swept, 0, "not before its time");
    assert_eq!(count(&objects), 4);
    world.change("UPDATE doomed SET at = 1");
    travel.sweep().await.expect("swept");
    world.until_sql("SELECT count(*) FROM doomed", "0").await;
    assert!(!stray.exists() && !base.exists() && !told.exists() && young.exists());
    assert_eq!(count(&objects), 2);
    assert_eq!(world.reply(other, "cat f").await, "two");
    world.end().await;
}

/// However many there are.
#[tokio::test(flavor = "multi_thread")]
async fn objects_are_looked_at_page_by_page() {
    let shared = Shared::folder();
    let world = world(shared.config()).await;
    let agent = world.shell().await;
    world.say(agent, "echo one > f; echo ok").await;
    let objects = folder(&shared).join("layers");
    let digest = "ab".repeat(32);
    for _ in 0..1100 {
        let stray = objects.join(format!("{}.{digest}", LayerId::new()));
        fs::write(&stray, "stray").expect("it is ours");
        age(&stray);
    }
    let travel = &world.service().worker().tools.travel;
    travel.mark_unnamed().await.expect("marked");
    assert_eq!(world.sql("SELECT count(*) FROM doomed"), "1100");
    world.end().await;
}

/// A base that no agent stands on leaves the store with its folder, and is made anew where somebody wants it again.
#[tokio::test(flavor = "multi_thread")]
async fn a_base_that_nobody_stands_on_leaves_the_store() {
    let shared = Shared::folder();
    let world = world(shared.config()).await;
    let agent = world.shell().await;
    world.say(agent, "echo one > f; echo ok").await;
    until_base_stored(&world).await;
    let bases = folder(&shared).join("bases");
    assert_eq!(count(&bases), 1);
    let removed = world.commands().remove_agent(agent, true).await;
    removed.expect("it goes");
    world.change("UPDATE agents SET removed_at = 1");
    world.change("UPDATE bases SET created_at = 1, used_at = 1");
    assert_eq!(world.gc().await.bases, 1);
    world.change("UPDATE doomed SET at = 1");
    let travel = &world.service().worker().tools.travel;
    travel.sweep().await.expect("swept");
    world.until_sql("SELECT count(*) FROM doomed", "0").await;
    assert_eq!(count(&bases), 0);
    let other = world.shell().await;
    assert_eq!(world.reply(other, "echo two > f; cat f").await, "two");
    until_base_stored(&world).await;
    assert_eq!(count(&bases), 1);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn files_and_transcripts_are_read_on_a_worker_that_lacks_them() {
    let shared = Shared::bucket();
    let world = world(shared.config()).await;
    let agent = world.shell().await;
    let said = world
        .say(agent, "mkdir send; echo content > send/f; echo done")
        .await;
    let file = said.reply.expect("a reply").files.remove(0);
    let tick = said.tick.expect("a tick");
    let stored = "SELECT count(*) FROM ticks WHERE transcript <> ''";
    world.until_sql(stored, "1").await;
    for folder in ["blobs", "transcripts"] {
        fs::remove_dir_all(world.data_dir().join(folder)).expect("it is ours");
    }
    let blobs = &world.service().worker().tools.blobs;
    assert_eq!(
        blobs.get(&file.blob).await.expect("it is read"),
        b"content\n"
    );
    let detail = world.commands().tick(tick).await.expect("it is read");
    assert!(detail.transcript.len() > 2, "{:?}", detail.transcript);
    world.end().await;
}
