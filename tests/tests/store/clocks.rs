//! A host whose clock is days off removes nothing too early: ages go by the database's clock.

use mayfly_orchestrator::{
    clock::{
        boot_time,
        simulated::{self, Now},
        unix_ms,
    },
    command::StopScope,
};

use crate::{Shared, keeping::age, shared_world};

const TWO_DAYS_MS: i64 = 2 * 24 * 60 * 60 * 1000;

/// From now on what this test does itself is done on a host whose clock says this.
fn clock_says(unix_ms: i64) {
    let boot = boot_time();
    simulated::set(Now { unix_ms, boot });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_two_days_ahead_removes_nothing_that_is_young() {
    let shared = Shared::folder();
    let world = shared_world(shared.config()).await;
    let agent = world.shell().await;
    world.say(agent, "echo one > f").await;
    let tools = &world.service().worker().tools;
    let uploaded = tools.blobs.put(b"uploaded".to_vec()).await.expect("stored");
    tools.db.record_upload(&uploaded, 8).await.expect("noted");
    // About to be named.
    let reply = tools.blobs.put(b"a reply".to_vec()).await.expect("stored");
    let now = unix_ms();
    clock_says(now + TWO_DAYS_MS);
    let view = world.gc().await;
    assert_eq!((view.held, view.blobs, view.bases), (None, 0, 0));
    tools.travel.mark_unnamed().await.expect("listed");
    tools.travel.sweep().await.expect("swept");
    assert_eq!(world.sql("SELECT count(*) FROM doomed"), "0");
    for hash in [&uploaded, &reply] {
        assert!(!tools.blobs.get(hash).await.expect("it is here").is_empty());
    }
    clock_says(now);
    world.end().await;
}

/// Its rows are no younger than those of others: nothing waits for them, and nobody takes them for a jump.
#[tokio::test(flavor = "multi_thread")]
async fn a_host_two_days_ahead_writes_the_time_of_all() {
    let shared = Shared::folder();
    let world = shared_world(shared.config()).await;
    let now = unix_ms();
    clock_says(now + TWO_DAYS_MS);
    let agent = world.shell().await;
    let posted = world.post(agent, "echo one > f; echo ok").await;
    let waiting = world.post(agent, "sleep 60").await;
    let stopped = world.commands().stop(agent, StopScope::All).await;
    stopped.expect("both are withdrawn, or one runs");
    clock_says(now);
    for message in [&posted, &waiting] {
        world.outcome(message).await;
    }
    for (table, column) in [
        ("agents", "created_at"),
        ("messages", "created_at"),
        ("deliveries", "created_at"),
    ] {
        let ahead = format!(
            "SELECT count(*) FROM {table} WHERE {column} > {}",
            now + TWO_DAYS_MS / 2
        );
        assert_eq!(world.sql(&ahead), "0", "{table}");
    }
    assert_eq!(world.gc().await.held, None);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_host_two_days_behind_has_stored_is_young_for_all() {
    let shared = Shared::folder();
    let world = shared_world(shared.config()).await;
    let tools = &world.service().worker().tools;
    let now = unix_ms();
    clock_says(now - TWO_DAYS_MS);
    let reply = tools.blobs.put(b"a reply".to_vec()).await.expect("stored");
    let uploaded = tools.blobs.put(b"uploaded".to_vec()).await.expect("stored");
    tools.db.record_upload(&uploaded, 8).await.expect("noted");
    let name = format!("blobs/{}/{reply}", &reply.as_str()[..2]);
    tools.db.doom(&[name]).await.expect("marked");
    clock_says(now);
    // As a file it is old enough: its row says that it may be named for a day.
    let kept = world.data_dir().join("blobs");
    age(&kept.join(&uploaded.as_str()[..2]).join(uploaded.as_str()));
    assert_eq!(world.gc().await.blobs, 0);
    assert_eq!(tools.travel.sweep().await.expect("swept"), 0);
    for hash in [&uploaded, &reply] {
        assert!(!tools.blobs.get(hash).await.expect("it is here").is_empty());
    }
    world.end().await;
}
