//! One writer at a time, over all processes; who freezes does not hold up the others for long.

use std::time::{Duration, Instant};

use mayfly_domain::Mark;
use mayfly_orchestrator::db::{
    Db,
    installation::Binding,
    workers::{QueueKind, Started},
};
use mayfly_tests::postgres;
use tokio::time::timeout;

use super::open;

fn mark(value: &str) -> Mark {
    Mark {
        platform: "chat".to_owned(),
        name: "at".to_owned(),
        value: value.to_owned(),
    }
}

async fn start(db: &Db, worker: &str) -> i64 {
    let binding = Binding {
        machine_id: "machine".to_owned(),
        data_dir: format!("/{worker}"),
    };
    let lease = Duration::from_secs(30);
    let started = db.start_worker(worker, &binding, QueueKind::Shared, lease);
    match started.await.unwrap() {
        Started::Epoch(epoch) => epoch,
        Started::Alone(other) => panic!("{other} is in the way"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn p3_a_writer_waits_for_the_transaction_of_another_process_and_sees_what_it_wrote() {
    let folder = tempfile::tempdir().unwrap();
    let url = postgres::url_of(folder.path());
    let (one, other) = (open(&url).await, open(&url).await);
    let held = one.begin().await.unwrap();
    let short = Duration::from_millis(300);
    let alone = timeout(short, other.open_pairing("chat", "hash")).await;
    assert!(alone.is_err(), "a statement by itself did not wait");
    let transaction = timeout(short, other.take_events(&[], Some(&mark("1")))).await;
    assert!(transaction.is_err(), "a transaction did not wait");
    assert!(timeout(short, other.outlast_writers()).await.is_err());
    // Readers never wait.
    assert_eq!(other.mark("chat", "at").await.unwrap(), None);
    drop(held);
    // What was given up while it waited has left nothing behind.
    other.take_events(&[], Some(&mark("2"))).await.unwrap();
    one.outlast_writers().await.unwrap();
    let (value, _) = one.mark("chat", "at").await.unwrap().unwrap();
    assert_eq!(value, "2");
    let epochs = futures_util::future::join_all((0..40).map(|n| {
        let db = if n % 2 == 0 {
            one.clone()
        } else {
            other.clone()
        };
        async move { start(&db, "w").await }
    }));
    let mut epochs = epochs.await;
    epochs.sort_unstable();
    assert_eq!(epochs, (1..=40).collect::<Vec<i64>>());
    one.close().await;
    other.close().await;
    postgres::forget(folder.path());
}

#[tokio::test(flavor = "multi_thread")]
async fn ev_07_a_process_that_freezes_in_a_transaction_loses_it() {
    let folder = tempfile::tempdir().unwrap();
    let url = postgres::url_of(folder.path());
    let (frozen, other) = (open(&url).await, open(&url).await);
    let held = frozen.begin().await.unwrap();
    let since = Instant::now();
    other.take_events(&[], Some(&mark("1"))).await.unwrap();
    assert!(
        since.elapsed() < Duration::from_secs(20),
        "{:?}",
        since.elapsed()
    );
    assert!(
        held.commit().await.is_err(),
        "it wrote after it was given up"
    );
    // It goes on by itself, on a new connection.
    frozen.take_events(&[], Some(&mark("2"))).await.unwrap();
    frozen.close().await;
    other.close().await;
    postgres::forget(folder.path());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_is_by_the_clock_of_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let db = open(&postgres::url_of(folder.path())).await;
    let epoch = start(&db, "w").await;
    assert!(
        db.renew("w", epoch, Duration::from_secs(3600))
            .await
            .unwrap()
    );
    let left = postgres::sql(
        folder.path(),
        "SELECT (expires_at - EXTRACT(EPOCH FROM clock_timestamp()) * 1000) / 1000 BETWEEN 3590 AND 3600
         FROM workers",
    );
    assert_eq!(left, "t");
    assert!(
        !db.renew("w", epoch - 1, Duration::from_secs(30))
            .await
            .unwrap()
    );
    db.close().await;
    postgres::forget(folder.path());
}

/// A worker whose lease is long over is dead for the others, and writes nothing when it comes back; one whose
/// lease is a moment over is left alone.
#[tokio::test(flavor = "multi_thread")]
async fn p2_who_was_declared_dead_writes_nothing_any_more() {
    let folder = tempfile::tempdir().unwrap();
    let url = postgres::url_of(folder.path());
    let (frozen, other) = (open(&url).await, open(&url).await);
    let epoch = start(&frozen, "frozen").await;
    start(&other, "other").await;
    let names = ["telegram:1".to_owned(), "chats".to_owned()];
    assert_eq!(frozen.hold(&names).await.unwrap(), None);
    let has = other.hold(&names[1..]).await.unwrap();
    assert_eq!(has.as_deref(), Some("frozen"));
    let over_since = |seconds: i64| {
        let sql = format!(
            "UPDATE workers SET expires_at = CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT) - {seconds}000
             WHERE id = 'frozen'"
        );
        postgres::sql(folder.path(), &sql);
    };
    over_since(4);
    assert_eq!(other.declare_dead().await.unwrap(), Vec::<String>::new());
    frozen.take_events(&[], Some(&mark("1"))).await.unwrap();
    over_since(5);
    assert_eq!(other.declare_dead().await.unwrap(), ["frozen"]);
    assert_eq!(other.declare_dead().await.unwrap(), Vec::<String>::new());
    let written = frozen.take_events(&[], Some(&mark("2"))).await;
    let told = written.expect_err("it is dead").to_string();
    assert!(told.contains("declared this one dead"), "{told}");
    let lease = Duration::from_secs(30);
    assert!(!frozen.renew("frozen", epoch, lease).await.unwrap());
    assert_eq!(other.mark("chat", "at").await.unwrap().unwrap().0, "1");
    assert_eq!(
        other.hold(&names).await.unwrap(),
        None,
        "its names are free"
    );
    // A later start of it is alive, and waits for what another has now.
    let again = open(&url).await;
    assert!(start(&again, "frozen").await > epoch + 1);
    let has = again.hold(&names).await.unwrap();
    assert_eq!(has.as_deref(), Some("other"));
    for db in [frozen, other, again] {
        db.close().await;
    }
    postgres::forget(folder.path());
}
