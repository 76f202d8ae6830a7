//! PostgreSQL goes away under a running server and comes back.

use std::time::{Duration, Instant};

use mayfly_tests::{http::on_socket, postgres::Cluster, server::Server};

fn is_ready(server: &Server) -> bool {
    let request = b"GET /readyz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    on_socket(server.data_dir(), request).status == 200
}

fn until_ready(server: &Server, wanted: bool) {
    server.until("it is ready", || match is_ready(server) {
        found if found == wanted => Ok(()),
        found => Err(found.to_string()),
    });
}

#[test]
fn p1_a_restart_of_the_database_under_a_running_server_loses_nothing() {
    let cluster = Cluster::start(&["fsync=on", "full_page_writes=on"]);
    let url = cluster.database("mayfly");
    let mut server = Server::simulated(env!("CARGO_BIN_EXE_mayfly-under-test"))
        .env("MAYFLY__DATABASE__URL", &url);
    server.start();
    let agent = server.agent();
    let said = server.json(&["agent", "send", &agent, "echo one > f; echo ok"]);
    assert_eq!(said["outcome"], "answered", "{said}");
    let running = server.json(&["agent", "send", "--no-wait", &agent, "sleep 3; echo slow"]);
    cluster.crash();
    let told = server.mayfly(&["agent", "send", &agent, "echo lost"]);
    assert!(!told.status.success(), "accepted without a database");
    until_ready(&server, false);
    assert!(server.running(), "{}", server.log());
    cluster.start_again();
    until_ready(&server, true);
    let id = running["id"].as_str().unwrap_or_default().to_owned();
    let outcome = format!("SELECT coalesce(outcome, 'open') FROM messages WHERE id = '{id}'");
    server.until("the message that ran has its outcome", || {
        match cluster.sql("mayfly", &outcome).as_str() {
            "answered" | "noticed" => Ok(()),
            found => Err(found.to_owned()),
        }
    });
    let said = server.json(&["agent", "send", &agent, "cat f"]);
    assert_eq!(said["reply"]["text"], "one", "{said}");
    let twice = "SELECT count(*) FROM deliveries WHERE kind = 'answer' GROUP BY message HAVING count(*) > 1";
    assert_eq!(cluster.sql("mayfly", twice), "");
    assert!(server.stop().success(), "{}", server.log());
}

/// Nothing can be closed then: the next start does, and the message runs again.
#[test]
fn a_server_that_is_told_to_end_while_the_database_is_away_ends() {
    let cluster = Cluster::start(&[]);
    let url = cluster.database("mayfly");
    let mut server = Server::simulated(env!("CARGO_BIN_EXE_mayfly-under-test"))
        .env("MAYFLY__DATABASE__URL", &url)
        .env("MAYFLY__WORKER__GRACE_S", "2");
    server.start();
    let agent = server.agent();
    server.json(&["agent", "send", "--no-wait", &agent, "sleep 40; echo slow"]);
    let running = "SELECT count(*) FROM ticks WHERE phase = 'running' AND outcome IS NULL";
    server.until("its program runs", || {
        match cluster.sql("mayfly", running) {
            found if found == "1" => Ok(()),
            found => Err(found),
        }
    });
    cluster.crash();
    server.terminate();
    let told = Instant::now();
    server.wait_dead();
    let took = told.elapsed();
    // Until the lease is stale, and until a program has been ended.
    assert!(took < Duration::from_secs(30), "{took:?}");
    cluster.start_again();
    server.start();
    let ticks = "SELECT string_agg(coalesce(outcome, 'open'), ' ' ORDER BY id) FROM ticks";
    server.until("it runs again", || match cluster.sql("mayfly", ticks) {
        found if found == "interrupted open" => Ok(()),
        found => Err(found),
    });
    server.json(&["agent", "stop", &agent]);
    assert!(server.stop().success(), "{}", server.log());
}

/// Its disk is not the one of the data dir.
#[test]
fn a_full_disk_of_the_database_is_told_as_its_own() {
    let cluster = Cluster::start(&[]);
    let url = cluster.database("mayfly");
    let mut server = Server::simulated(env!("CARGO_BIN_EXE_mayfly-under-test"))
        .env("MAYFLY__DATABASE__URL", &url);
    server.start();
    let agent = server.agent();
    cluster.sql(
        "mayfly",
        "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS
           'BEGIN RAISE EXCEPTION ''could not extend file'' USING ERRCODE = ''53100''; END';
         CREATE TRIGGER full_disk BEFORE INSERT ON messages FOR EACH ROW EXECUTE FUNCTION full_disk()",
    );
    let told = server.mayfly(&["agent", "send", &agent, "echo lost"]);
    let said = String::from_utf8_lossy(&told.stderr).into_owned();
    assert_eq!(told.status.code(), Some(7), "{said}");
    assert!(
        said.contains("the disk of the PostgreSQL server is full"),
        "{said}"
    );
    cluster.sql("mayfly", "DROP TRIGGER full_disk ON messages");
    let said = server.json(&["agent", "send", &agent, "echo here"]);
    assert_eq!(said["reply"]["text"], "here", "{said}");
    assert!(server.stop().success(), "{}", server.log());
}
