//! The container engine stops, is away, and comes back.

use mayfly_tests::{
    http::{get, on_socket},
    second_engine::SecondEngine,
    server::Server,
};

use super::{PROGRAM, printed, refused};

#[test]
fn an_engine_that_stops_in_a_tick_costs_no_message() {
    let mut engine = SecondEngine::start(false);
    let mut server = Server::new(PROGRAM).env("DOCKER_HOST", &engine.host());
    server.start();
    let agent = server.agent();
    printed(&server.mayfly(&["agent", "send", &agent, "echo kept > f; echo ok"]));
    let text = "if [ -e late ]; then cat f; else echo x > late; sleep 20; cat f; fi";
    let first = printed(&server.mayfly(&["agent", "send", &agent, "--no-wait", text]));
    let running = "SELECT count(*) FROM ticks WHERE outcome IS NULL AND phase = 'running'";
    server.until_sql(running, "1");
    engine.lose();
    let closed = "SELECT count(*) FROM ticks WHERE outcome = 'interrupted'";
    server.until_sql(closed, "1");
    let ready = on_socket(server.data_dir(), &get("/readyz"));
    assert_eq!(ready.status, 503, "{}", ready.body);
    assert!(ready.body.contains("does not answer"), "{}", ready.body);
    let new = server.mayfly(&["agent", "new"]);
    refused(
        &new,
        7,
        &[
            "container engine",
            &engine.host(),
            "does not answer",
            "start it",
        ],
    );
    let doctor = server.mayfly(&["doctor", "--json"]);
    assert_eq!(doctor.status.code(), Some(1));
    let checks: serde_json::Value = serde_json::from_slice(&doctor.stdout).expect("JSON");
    let docker = checks
        .as_array()
        .expect("a list")
        .iter()
        .find(|check| check["name"] == "docker");
    let docker = docker.expect("a check of the engine");
    assert_eq!(docker["state"], "fail");
    assert!(
        docker["mend"]
            .as_str()
            .expect("a mend")
            .contains("start it"),
        "{docker}"
    );
    let second = printed(&server.mayfly(&["agent", "send", &agent, "--no-wait", "cat f"]));
    let waiting = server.mayfly(&["agent", "send", &agent, "--timeout", "3", "cat f"]);
    let said = String::from_utf8_lossy(&waiting.stderr).into_owned();
    assert_eq!(waiting.status.code(), Some(9), "{said}");
    assert!(
        said.contains("does not answer") && said.contains("stays on its way"),
        "{said}"
    );
    engine.up();
    assert_eq!(
        printed(&server.mayfly(&["agent", "send", &agent, "cat f"])),
        "kept"
    );
    for id in [first, second] {
        let outcome = server.sql(&format!("SELECT outcome FROM messages WHERE id = '{id}'"));
        assert_eq!(outcome, "answered");
    }
    server.stop();
    assert_eq!(engine.left(), Vec::<String>::new());
}

#[test]
fn a_server_without_an_engine_starts_and_says_what_is_missing() {
    let mut server = Server::new(PROGRAM).env("DOCKER_HOST", "unix:///nonexistent/engine");
    let away = server.mayfly(&["agent", "new"]);
    refused(
        &away,
        7,
        &[
            "unix:///nonexistent/engine",
            "does not answer",
            "docker.host",
        ],
    );
    server.start();
    let ready = on_socket(server.data_dir(), &get("/readyz"));
    assert_eq!(ready.status, 503, "{}", ready.body);
    assert_eq!(on_socket(server.data_dir(), &get("/healthz")).status, 200);
    refused(
        &server.mayfly(&["agent", "new"]),
        7,
        &["unix:///nonexistent/engine"],
    );
    assert_eq!(printed(&server.mayfly(&["--json", "agent", "list"])), "[]");
}

#[test]
fn an_engine_that_comes_back_with_other_data_is_noticed_while_the_server_runs() {
    let mut engine = SecondEngine::start(false);
    let mut server = Server::new(PROGRAM).env("DOCKER_HOST", &engine.host());
    server.start();
    let agent = server.agent();
    printed(&server.mayfly(&["agent", "send", &agent, "echo kept > f; echo ok"]));
    engine.exchange();
    let ready = on_socket(server.data_dir(), &get("/readyz"));
    assert_eq!(ready.status, 503, "{}", ready.body);
    assert!(
        ready.body.contains("another container engine"),
        "{}",
        ready.body
    );
    let waiting = server.mayfly(&["agent", "send", &agent, "--timeout", "3", "cat f"]);
    let said = String::from_utf8_lossy(&waiting.stderr).into_owned();
    assert_eq!(waiting.status.code(), Some(9), "{said}");
    assert!(
        said.contains("another container engine") && said.contains("mayfly adopt"),
        "{said}"
    );
    refused(
        &server.mayfly(&["agent", "new"]),
        7,
        &["another container engine", "mayfly adopt"],
    );
    assert_eq!(engine.left(), Vec::<String>::new());
    engine.exchange_back();
    assert_eq!(
        printed(&server.mayfly(&["agent", "send", &agent, "cat f"])),
        "kept"
    );
    assert_eq!(on_socket(server.data_dir(), &get("/readyz")).status, 200);
    server.stop();
    assert_eq!(engine.left(), Vec::<String>::new());
}
