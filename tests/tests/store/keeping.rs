//! What stays on a disk, what leaves the store, and what else goes into it.

use std::{
    fs::{self, File},
    time::Duration,
};

use mayfly_domain::LayerId;
use mayfly_orchestrator::{depot::StoreConfig, retention::Ask};

use crate::{Shared, count, world};

const HOUR: Duration = Duration::from_secs(60 * 60);

fn age(path: &std::path::Path) {
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
    let ids = world.sql("SELECT id FROM layers ORDER BY id");
    let ids: Vec<&str> = ids.lines().collect();
    // Two fit; the heads of agents that were busy lately stay all the same.
    age(&layers.join(ids[1]));
    let rounds = world.sql("SELECT count(*) FROM layers WHERE stored_at IS NOT NULL");
    assert_eq!((count(&layers), rounds.as_str()), (3, "3"));
    world.change("UPDATE ticks SET started_at = 1");
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    while count(&layers) == 3 {
        assert!(tokio::time::Instant::now() < deadline, "nothing leaves");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(!layers.join(ids[1]).exists(), "the oldest use");
    assert_eq!(count(&layers), 2, "and no more than had to");
    let reply = world.reply(agents[1], "cat f").await;
    assert!(reply.starts_with("1xx"));
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_no_row_needs_leaves_the_store_after_a_time_of_grace() {
    let shared = Shared::folder();
    let Shared::Folder(folder) = &shared else {
        unreachable!("as made")
    };
    let world = world(shared.config()).await;
    let (agent, other) = (world.shell().await, world.shell().await);
    world.say(agent, "echo one > f; echo ok").await;
    world.say(other, "echo two > f; echo ok").await;
    let objects = folder.path().join("layers");
    assert_eq!(count(&objects), 2);
    // One whose worker died before it named it, and one that is young.
    let digest = "ab".repeat(32);
    let [stray, young] = [(); 2].map(|()| objects.join(format!("{}.{digest}", LayerId::new())));
    fs::write(&stray, "stray").expect("it is ours");
    fs::write(&young, "young").expect("it is ours");
    age(&stray);
    world
        .commands()
        .remove_agent(agent, true)
        .await
        .expect("it goes");
    world
        .commands()
        .gc(Ask::default())
        .await
        .expect("collected");
    let travel = &world.service().worker().tools.travel;
    travel.mark_unnamed().await.expect("marked");
    assert_eq!(
        world.sql("SELECT count(*) FROM doomed"),
        "2",
        "the layer and the stray"
    );
    assert_eq!(
        travel.sweep().await.expect("swept"),
        0,
        "not before its time"
    );
    assert_eq!(count(&objects), 4);
    world.change("UPDATE doomed SET at = 1");
    assert_eq!(travel.sweep().await.expect("swept"), 2);
    assert!(!stray.exists() && young.exists());
    assert_eq!(count(&objects), 2);
    assert_eq!(world.sql("SELECT count(*) FROM doomed"), "0");
    assert_eq!(world.reply(other, "cat f").await, "two");
    world.end().await;
}

/// What somebody puts again is not removed, and what is being removed is not put.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_removes_what_was_just_put() {
    let shared = Shared::folder();
    let world = world(shared.config()).await;
    let tools = &world.service().worker().tools;
    let hash = tools.blobs.put(b"hello".to_vec()).await.expect("stored");
    let object = format!("blobs/{}/{}", &hash.as_str()[..2], hash.as_str());
    assert_eq!(shared.get(&object).as_deref(), Some(&b"hello"[..]));
    tools.db.doom(&object).await.expect("marked");
    tools
        .blobs
        .put(b"hello".to_vec())
        .await
        .expect("stored again");
    world.change("UPDATE doomed SET at = 1");
    assert_eq!(tools.travel.sweep().await.expect("swept"), 0);
    assert!(shared.get(&object).is_some());
    // Somebody is in the middle of it.
    tools.db.doom(&object).await.expect("marked");
    assert!(tools.db.begin_removal(&object, 0).await.expect("begun"));
    assert!(!tools.db.spare(&object).await.expect("asked"));
    assert!(
        !tools.db.begin_removal(&object, 0).await.expect("asked"),
        "one removes"
    );
    let refused = tools
        .blobs
        .put(b"hello".to_vec())
        .await
        .expect_err("it waits");
    assert!(refused.is_away(), "{refused}");
    tools.db.removed(&object).await.expect("told");
    tools.blobs.put(b"hello".to_vec()).await.expect("stored");
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
