//! The doctor looks at this machine and its engine, and repeats what the service says of itself.

use mayfly_tests::{
    http::{get, on_socket},
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
