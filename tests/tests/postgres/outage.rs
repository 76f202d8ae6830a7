//! PostgreSQL goes away under a running server and comes back.

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
