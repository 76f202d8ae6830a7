//! A layer that only its holder has: it is put before the holder goes, and a holder that goes for a moment is waited
//! for.

use std::time::Duration;

use mayfly_orchestrator::{
    clock::LEASE,
    db::{
        Db, Place,
        installation::Binding,
        workers::{QueueKind, Started},
    },
};
use mayfly_tests::engine;

use crate::{Shared, empty, shared_world, until_base_stored, until_told, world};

const OWED: &str = "SELECT count(*) FROM layers WHERE stored_at IS NULL";

#[tokio::test(flavor = "multi_thread")]
async fn whoever_goes_puts_what_only_it_has() {
    let shared = Shared::folder();
    let world = world(shared.config()).await;
    let agent = world.shell().await;
    world.say(agent, "echo one > f").await;
    until_base_stored(&world).await;
    world.change("UPDATE layers SET stored_at = NULL, digest = NULL");
    world.service().drain().await;
    assert_eq!(world.sql(OWED), "0");
    world.end().await;
}

/// Heard of when it starts, when it renews its lease and when it ends in order; by the database's clock.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_ended_in_order_was_heard_of_a_moment_ago() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("mayfly.db");
    let db = Db::open(&Place::Embedded(file.clone()))
        .await
        .expect("it opens");
    let db = db.of_another_process();
    let binding = Binding {
        machine_id: "m".to_owned(),
        data_dir: "/d".to_owned(),
    };
    let started = db
        .start_worker("w", &binding, QueueKind::Shared, LEASE)
        .await;
    let Started::Epoch(epoch) = started.expect("it starts") else {
        panic!("it is alone")
    };
    let silence = async || db.silence("w").await.expect("asked");
    let minute = Duration::from_secs(60);
    let long_ago = || engine::change(&file, "UPDATE workers SET seen_at = 1, expires_at = 1");
    assert!(silence().await.is_some_and(|silence| silence < minute));
    long_ago();
    assert!(silence().await.is_some_and(|silence| silence > minute));
    assert!(db.renew("w", epoch, LEASE).await.expect("renewed"));
    assert!(silence().await.is_some_and(|silence| silence < minute));
    // As an older version renews it.
    engine::change(&file, "UPDATE workers SET seen_at = 1");
    assert!(silence().await.is_some_and(|silence| silence < minute));
    long_ago();
    db.end_worker("w", epoch).await.expect("ended");
    assert!(silence().await.is_some_and(|silence| silence < minute));
    assert_eq!(db.silence("nobody").await.expect("asked"), None);
    db.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_that_is_away_for_a_moment_is_waited_for() {
    let shared = Shared::folder();
    let world = shared_world(shared.config()).await;
    let agent = world.shell().await;
    world.say(agent, "echo one > f").await;
    until_base_stored(&world).await;
    let stored = world.sql("SELECT digest, stored_at FROM layers");
    world.change(
        "INSERT INTO workers (id, epoch, expires_at, seen_at)
         VALUES ('elsewhere', 2, 0, CAST(EXTRACT(EPOCH FROM now()) * 1000 AS BIGINT) - 20000)",
    );
    empty(world.data_dir());
    world.change("UPDATE layers SET stored_at = NULL, digest = NULL, holder = 'elsewhere'");
    let waiting = world.post(agent, "cat f").await;
    until_told(&world, &waiting).await;
    let told =
        "SELECT count(*) FROM deliveries WHERE text LIKE '%on their way from another worker%'";
    assert_eq!(world.sql(told), "1");
    // It has come back and puts it.
    let [digest, at] = &stored.split('|').collect::<Vec<_>>()[..] else {
        panic!("{stored}")
    };
    world.change(&format!(
        "UPDATE layers SET digest = '{digest}', stored_at = {at}"
    ));
    let settled = world.outcome(&waiting).await;
    assert_eq!(settled.reply.expect("an answer").text, "one");
    world.end().await;
}
