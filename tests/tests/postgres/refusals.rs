//! What cannot be used is refused in one sentence with the way out, without the password.

use mayfly_orchestrator::db::{Db, Place, Server};
use mayfly_tests::{postgres::Cluster, redis_server::RedisServer, server};

async fn refused(url: &str, password: Option<&str>) -> String {
    let server = Server::parse(url, password).unwrap();
    let error = Db::open(&Place::Postgres(server)).await.expect_err(url);
    let told = error.to_string();
    assert!(!told.contains('\n') && !told.contains("hidden"), "{told}");
    told
}

#[tokio::test(flavor = "multi_thread")]
async fn each_reason_is_one_sentence_with_the_way_out() {
    let told = refused("postgres://me@127.0.0.1:1/mayfly", Some("hidden")).await;
    assert!(
        told.starts_with("no PostgreSQL answers at 127.0.0.1:1"),
        "{told}"
    );
    let cluster = Cluster::start(&[]);
    cluster.sql("postgres", "CREATE ROLE other LOGIN PASSWORD 'right'");
    let hba = cluster.folder().join("data/pg_hba.conf");
    let rules = std::fs::read_to_string(&hba).unwrap();
    std::fs::write(&hba, format!("local all other scram-sha-256\n{rules}")).unwrap();
    cluster.sql("postgres", "SELECT pg_reload_conf()");
    let url = cluster.database("mayfly");
    let socket = cluster.folder().display().to_string();
    let other = |database: &str| format!("postgres://other@localhost/{database}?host={socket}");
    let told = refused(&other("mayfly"), Some("hidden")).await;
    assert!(
        told.contains("does not let us in (password authentication failed"),
        "{told}"
    );
    assert!(told.contains("MAYFLY__DATABASE__PASSWORD"), "{told}");
    let told = refused(&other("mayfly"), Some("right")).await;
    assert!(
        told.contains("permission denied for schema public"),
        "{told}"
    );
    let told = refused(&other("absent"), Some("right")).await;
    assert!(told.contains("createdb absent"), "{told}");
    cluster.sql(
        "postgres",
        "ALTER DATABASE mayfly SET default_transaction_read_only = on",
    );
    let told = refused(&url, None).await;
    assert!(told.contains("read-only, as a replica is"), "{told}");
    cluster.sql(
        "postgres",
        "CREATE DATABASE ascii ENCODING SQL_ASCII LOCALE_PROVIDER libc LOCALE 'C' TEMPLATE template0",
    );
    let told = refused(&cluster.url("ascii"), None).await;
    assert!(told.contains("encoded as SQL_ASCII"), "{told}");
    cluster.crash();
    let told = refused(&url, None).await;
    assert!(told.starts_with("no PostgreSQL answers at"), "{told}");
}

/// What one of two has sealed would be missing where the other runs the next message.
#[test]
fn two_processes_with_one_queue_and_no_store_are_refused() {
    let (cluster, redis) = (Cluster::start(&[]), RedisServer::start(&[]));
    let url = cluster.database("mayfly");
    let program = || {
        server::Server::simulated(env!("CARGO_BIN_EXE_mayfly-under-test"))
            .env("MAYFLY__DATABASE__URL", &url)
            .env("MAYFLY__QUEUE__URL", &redis.url())
    };
    let (mut first, second) = (program(), program());
    first.start();
    let refused = second.mayfly(&["serve", "--simulate"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        !refused.status.success() && said.contains("[store] url"),
        "{said}"
    );
    first.stop();
}

/// Two processes share a database by sharing the queue too; and a copied data dir is its original's worker, so it
/// is adopted after that one's end only.
#[test]
fn a_worker_that_lives_is_not_adopted() {
    let cluster = Cluster::start(&[]);
    let url = cluster.database("mayfly");
    let program = || {
        server::Server::simulated(env!("CARGO_BIN_EXE_mayfly-under-test"))
            .env("MAYFLY__DATABASE__URL", &url)
    };
    let (mut first, second) = (program(), program());
    first.start();
    let listed = second.mayfly(&["serve", "--simulate"]);
    let said = String::from_utf8_lossy(&listed.stderr).into_owned();
    assert!(
        !listed.status.success() && said.contains("[queue] url"),
        "{said}"
    );
    std::fs::copy(
        first.data_dir().join("worker"),
        second.data_dir().join("worker"),
    )
    .expect("a copy");
    let adopt = || {
        let done = second.mayfly(&["adopt"]);
        (
            done.status.success(),
            String::from_utf8_lossy(&done.stderr).into_owned(),
        )
    };
    let (adopted, said) = adopt();
    assert!(
        !adopted && said.contains("is in use by another mayfly"),
        "{said}"
    );
    assert!(first.stop().success());
    let (adopted, said) = adopt();
    assert!(adopted, "{said}");
    let (adopted, said) = adopt();
    assert!(!adopted && said.contains("nothing to adopt"), "{said}");
    // The original has no worker left.
    let refused = first.mayfly(&["agent", "list"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("mayfly adopt"), "{said}");
}
