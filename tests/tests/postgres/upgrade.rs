//! Who comes first migrates, after a trial and a copy; who is too old is told so.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use mayfly_orchestrator::{
    db::{Db, Place, Server, installation::Binding},
    faults,
};
use mayfly_tests::{engine::run, postgres};
use tempfile::TempDir;
use tokio::time::timeout;

use super::{open, place};

const OURS: &str = env!("CARGO_PKG_VERSION");

/// As it was before the migration 0010.
const OLDER: &str = "ALTER TABLE posts DROP COLUMN place; ALTER TABLE parts DROP COLUMN forgiven;
    DROP INDEX posts_said; DELETE FROM _sqlx_migrations WHERE version = 10";

async fn fresh(folder: &std::path::Path) -> String {
    let url = postgres::url_of(folder);
    let db = open(&url).await;
    let binding = Binding {
        machine_id: "m".to_owned(),
        data_dir: "/d".to_owned(),
    };
    db.create_installation(&binding).await.unwrap();
    db.create_installation(&binding).await.unwrap();
    db.close().await;
    assert_eq!(
        postgres::sql(folder, "SELECT count(*) FROM installation"),
        "1"
    );
    url
}

#[tokio::test(flavor = "multi_thread")]
async fn many_that_start_at_once_migrate_once() {
    let folder = tempfile::tempdir().unwrap();
    let url = postgres::url_of(folder.path());
    let opened = futures_util::future::join_all((0..6).map(|_| open(&url))).await;
    for db in opened {
        db.close().await;
    }
    let twice = "SELECT count(*) - count(DISTINCT version) FROM _sqlx_migrations WHERE success";
    assert_eq!(postgres::sql(folder.path(), twice), "0");
    postgres::forget(folder.path());
}

#[tokio::test(flavor = "multi_thread")]
async fn up_01_an_upgrade_is_tried_and_copied_before_it_changes_anything() {
    let folder = tempfile::tempdir().unwrap();
    let url = fresh(folder.path()).await;
    let kept = folder.path().join(format!("postgres.dump.before-{OURS}"));
    // The trial fails: a column of it is there already.
    let forgotten = "DELETE FROM _sqlx_migrations WHERE version = 10";
    postgres::sql(folder.path(), forgotten);
    let failed = Db::open(&place(&url, folder.path()))
        .await
        .unwrap_err()
        .to_string();
    assert!(failed.contains("a trial of migration 10"), "{failed}");
    assert!(failed.contains("nothing has been changed"), "{failed}");
    assert!(!kept.exists());
    postgres::sql(folder.path(), OLDER);
    // No room for a copy.
    let nowhere = Db::open(&place(&url, std::path::Path::new("/nowhere"))).await;
    let told = nowhere.unwrap_err().to_string();
    let way_out = format!("MAYFLY__DATABASE__BACKED_UP={OURS}");
    assert!(
        told.contains("pg_dump") && told.contains(&way_out),
        "{told}"
    );
    let gone = "SELECT count(*) FROM information_schema.columns WHERE column_name = 'forgiven'";
    assert_eq!(postgres::sql(folder.path(), gone), "0", "{told}");
    Db::open(&place(&url, folder.path()))
        .await
        .unwrap()
        .close()
        .await;
    assert_eq!(postgres::sql(folder.path(), gone), "1");
    let listed = run("pg_restore", &["--list", kept.to_str().unwrap()]);
    assert!(
        listed.contains("TABLE DATA public installation"),
        "{listed}"
    );
    // A person says that there is a copy.
    postgres::sql(folder.path(), OLDER);
    let server = Server::parse(&url, None).unwrap();
    let server = server.with_copies_in(std::path::Path::new("/nowhere"), Some(OURS));
    Db::open(&Place::Postgres(server))
        .await
        .unwrap()
        .close()
        .await;
    postgres::forget(folder.path());
}

/// A database that wants an upgrade, a worker on it, and the place for who upgrades: its copy is made.
async fn before_an_upgrade() -> (TempDir, Db, Place) {
    let folder = tempfile::tempdir().unwrap();
    let url = fresh(folder.path()).await;
    let worker = open(&url).await;
    postgres::sql(folder.path(), OLDER);
    let server = Server::parse(&url, None).unwrap();
    let place = Place::Postgres(server.with_copies_in(folder.path(), Some(OURS)));
    (folder, worker, place)
}

/// Workers of the release before write while it is upgraded; each waits for the other's transaction as a whole.
#[tokio::test(flavor = "multi_thread")]
async fn up_01_an_upgrade_takes_its_turn_among_the_writers() {
    let (folder, worker, place) = before_an_upgrade().await;
    let writes = worker.begin().await.unwrap();
    let during = timeout(Duration::from_secs(3), Db::open(&place)).await;
    assert!(during.is_err(), "it has upgraded while another one writes");
    let there = "SELECT count(*) FROM information_schema.columns WHERE column_name = 'forgiven'";
    assert_eq!(postgres::sql(folder.path(), there), "0");
    drop(writes);
    Db::open(&place).await.unwrap().close().await;
    assert_eq!(postgres::sql(folder.path(), there), "1");
    worker.outlast_writers().await.unwrap();
    worker.close().await;
    postgres::forget(folder.path());
}

/// Until it was let go.
static FROZEN: AtomicBool = AtomicBool::new(true);

fn freeze(passed: &'static str) {
    while passed == "upgrade.alone" && FROZEN.load(Ordering::SeqCst) {
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ev_07_an_upgrade_that_freezes_between_two_migrations_holds_nobody_up() {
    let (folder, worker, place) = before_an_upgrade().await;
    faults::watch(freeze);
    let upgrading = tokio::runtime::Handle::current();
    let upgrading =
        tokio::task::spawn_blocking(move || upgrading.block_on(Db::open(&place)).map(drop));
    let held = "SELECT count(*) FROM pg_locks l JOIN pg_database d ON d.oid = l.database
                WHERE d.datname = current_database() AND l.locktype = 'advisory' AND l.granted";
    let deadline = Instant::now() + Duration::from_secs(30);
    // The one of who upgrades, and the writers'.
    while postgres::sql(folder.path(), held) != "2" {
        assert!(Instant::now() < deadline, "it does not begin");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let since = Instant::now();
    worker.outlast_writers().await.unwrap();
    assert!(
        since.elapsed() < Duration::from_secs(20),
        "{:?}",
        since.elapsed()
    );
    FROZEN.store(false, Ordering::SeqCst);
    upgrading
        .await
        .unwrap()
        .expect_err("it has lost its session");
    worker.close().await;
    postgres::forget(folder.path());
}

#[tokio::test(flavor = "multi_thread")]
async fn up_01_an_older_program_runs_down_to_the_minimum_and_names_both_versions_below() {
    let folder = tempfile::tempdir().unwrap();
    let url = fresh(folder.path()).await;
    postgres::sql(
        folder.path(),
        "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
         VALUES (9999, 'expand', true, '', 0);
         UPDATE installation SET written_by = '98.7.6'",
    );
    Db::open(&place(&url, folder.path()))
        .await
        .unwrap()
        .close()
        .await;
    let written = "SELECT written_by FROM installation";
    assert_eq!(postgres::sql(folder.path(), written), "98.7.6");
    let contract = "UPDATE installation SET minimum_version = '98.0.0'";
    postgres::sql(folder.path(), contract);
    let kept = folder.path().join("postgres.dump.before-98.0.0");
    std::fs::write(&kept, "").unwrap();
    let refused = Db::open(&place(&url, folder.path()))
        .await
        .unwrap_err()
        .to_string();
    for part in ["98.7.6", OURS, kept.to_str().unwrap()] {
        assert!(refused.contains(part), "{part}: {refused}");
    }
    postgres::forget(folder.path());
}
