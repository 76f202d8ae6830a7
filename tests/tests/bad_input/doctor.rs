//! The doctor looks at this machine and its engine, and repeats what the service says of itself.

use mayfly_tests::{
    http::{get, on_socket},
    postgres::Cluster,
    redis_server::RedisServer,
    server::Server,
};
use serde_json::Value;

use super::{PROGRAM, printed};

fn checks(server: &Server) -> Vec<Value> {
    let output = server.mayfly(&["doctor", "--json"]);
    let found: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    found.as_array().expect("a list").clone()
}

fn named<'a>(checks: &'a [Value], name: &str) -> Vec<&'a Value> {
    checks
        .iter()
        .filter(|check| check["name"] == name)
        .collect()
}

#[test]
fn the_engines_set_up_and_the_services_warnings_are_told() {
    let mut server = Server::new(PROGRAM);
    server.start();
    let agent = server.agent();
    printed(&server.mayfly(&["agent", "send", &agent, "echo ok"]));
    let found = checks(&server);
    for name in [
        "storage driver",
        "cgroup",
        "engine's users",
        "seccomp",
        "service",
    ] {
        let one = named(&found, name);
        assert_eq!(one.len(), 1, "{name}: {found:?}");
        assert_eq!(one[0]["state"], "ok", "{name}: {one:?}");
    }
    // A sandbox that cannot be marked as removed, for long.
    let tick = server.sql("SELECT id FROM ticks ORDER BY id LIMIT 1");
    server.change(&format!(
        "UPDATE ticks SET removed_at = NULL, ended_at = 0 WHERE id = '{tick}';
         CREATE TRIGGER stuck BEFORE UPDATE OF removed_at ON ticks WHEN old.id = '{tick}'
         BEGIN SELECT RAISE(ABORT, 'stuck'); END;"
    ));
    server.until("a warning", || {
        let ready = on_socket(server.data_dir(), &get("/readyz")).body;
        match ready.contains("cannot be removed") {
            true => Ok(()),
            false => Err(ready),
        }
    });
    let found = checks(&server);
    let service = named(&found, "service");
    assert_eq!(service[0]["state"], "warn", "{service:?}");
    let told = service[0]["found"].as_str().expect("a sentence");
    assert!(told.contains("cannot be removed"), "{told}");
    assert!(service[0]["mend"].is_string());
    server.change("DROP TRIGGER stuck");
    server.until_sql("SELECT count(*) FROM ticks WHERE removed_at IS NULL", "0");
    server.stop();
    server.assert_nothing_left();
}

fn bot(database: &str, queue: &str, store: &str) -> Server {
    Server::new(PROGRAM)
        .env("MAYFLY__SERVE__ROLE", "bot")
        .env("MAYFLY__DATABASE__URL", database)
        .env("MAYFLY__QUEUE__URL", queue)
        .env("MAYFLY__STORE__URL", store)
}

/// Each by its name, with the way out, and without a secret.
#[test]
fn what_several_processes_share_is_asked_and_each_fault_has_its_mend() {
    let absent = bot(
        "postgres://me@127.0.0.1:1/mayfly",
        "redis://:hidden@127.0.0.1:1",
        "file:///nowhere/at/all",
    )
    .env("MAYFLY__DATABASE__PASSWORD", "hidden");
    let output = absent.mayfly(&["doctor", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(!String::from_utf8_lossy(&output.stdout).contains("hidden"));
    let found = checks(&absent);
    for (name, mend) in [
        ("PostgreSQL", "database.url"),
        ("Redis", "runs"),
        ("layer store", "store.url"),
    ] {
        let one = named(&found, name);
        assert_eq!(one.len(), 1, "{name}: {found:?}");
        assert_eq!(one[0]["state"], "fail", "{one:?}");
        let told = one[0]["mend"].as_str().expect("a mend");
        assert!(told.contains(mend), "{one:?}");
    }
    let cluster = Cluster::start(&[]);
    let url = cluster.database("mayfly");
    let redis = RedisServer::start(&["--maxmemory", "20mb", "--maxmemory-policy", "allkeys-lru"]);
    let folder = tempfile::tempdir().expect("a folder");
    let store = format!("file://{}", folder.path().display());
    let mut shared = bot(&url, &redis.url(), &store);
    let look = |server: &Server| {
        let found = checks(server);
        let told = |name: &str| -> Vec<(String, String)> {
            let text =
                |check: &Value, key: &str| check[key].as_str().unwrap_or_default().to_owned();
            let named = named(&found, name).into_iter();
            named
                .map(|check| (text(check, "state"), text(check, "found")))
                .collect()
        };
        ["PostgreSQL", "Redis", "layer store"].map(told)
    };
    let has = |told: &[(String, String)], state: &str, part: &str| {
        let fits = told
            .iter()
            .any(|(s, found)| s == state && found.contains(part));
        assert!(fits, "{state} {part}: {told:?}");
    };
    let [rows, queue, layers] = look(&shared);
    has(&rows, "ok", "the first start makes its tables");
    has(&rows, "warn", "fsync = off");
    has(&queue, "ok", "7.");
    has(&queue, "warn", "maxmemory-policy is allkeys-lru");
    has(&queue, "advice", "empty after a restart");
    has(&layers, "ok", "the first start marks it");
    let made = "SELECT count(*) FROM information_schema.tables WHERE table_schema = 'public'";
    assert_eq!(cluster.sql("mayfly", made), "0", "nothing is changed");
    assert_eq!(
        std::fs::read_dir(folder.path()).expect("a folder").count(),
        0
    );
    shared.start();
    let [rows, _, layers] = look(&shared);
    has(&rows, "ok", "up to date");
    has(&layers, "ok", "is ours");
    std::fs::write(folder.path().join("mayfly-store"), "another").expect("it is a file");
    let [_, _, layers] = look(&shared);
    has(&layers, "fail", "belongs to another installation");
    cluster.sql(
        "mayfly",
        "ALTER DATABASE mayfly SET default_transaction_read_only = on",
    );
    let [rows, ..] = look(&shared);
    has(&rows, "fail", "is read-only");
}
