//! The API's own description: valid, complete, and true as far as a program that tries to refute it
//! (schemathesis) finds.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    process::Command,
};

use mayfly_tests::{
    http::{Answer, get, on_socket, on_tcp, post, request},
    server::Server,
};
use serde_json::{Value, json};

fn started() -> Server {
    let mut server = Server::simulated(env!("CARGO_BIN_EXE_mayfly-under-test"));
    server.start();
    server
}

fn ask(server: &Server, request: &[u8]) -> Answer {
    on_socket(server.data_dir(), request)
}

fn token(server: &Server) -> String {
    let text = std::fs::read_to_string(server.data_dir().join("token")).expect("a token");
    text.trim().to_owned()
}

/// What the socket serves, and what TCP serves.
fn documents(server: &Server) -> [Value; 2] {
    let head = format!(
        "GET /v1/openapi.json\nauthorization: Bearer {}",
        token(server)
    );
    let on_socket = ask(server, &get("/v1/openapi.json"));
    let on_tcp = on_tcp(&server.address(), &request(&head, b""));
    [on_socket, on_tcp].map(|answer| {
        assert_eq!(answer.status, 200, "{}", answer.body);
        assert_eq!(answer.header("content-type"), Some("application/json"));
        answer.json()
    })
}

/// Method and path of every operation, with its description.
fn operations(document: &Value) -> BTreeMap<(String, String), Value> {
    let paths = document["paths"].as_object().expect("paths");
    let of = |(path, item): (&String, &Value)| {
        let item = item.as_object().expect("operations").clone();
        let path = path.clone();
        item.into_iter()
            .map(move |(method, operation)| ((method.to_uppercase(), path.clone()), operation))
    };
    paths.iter().flat_map(of).collect()
}

/// The venv with what `tests/schemathesis/requirements.txt` names.
fn python() -> PathBuf {
    let install = folder().join("install");
    let output = Command::new(&install).output().expect("it starts");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {told}", install.display());
    let path = String::from_utf8(output.stdout).expect("a path");
    PathBuf::from(path.trim())
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("schemathesis")
}

#[test]
fn the_document_is_openapi_3_1() {
    let server = started();
    let venv = python();
    let scratch = tempfile::tempdir().expect("a folder");
    for document in documents(&server) {
        assert!(document["openapi"].as_str().unwrap().starts_with("3.1."));
        let validates = |document: &Value| {
            let path = scratch.path().join("openapi.json");
            std::fs::write(&path, document.to_string()).expect("written");
            let mut validator = Command::new(venv.join("bin/openapi-spec-validator"));
            let output = validator.arg("--schema").arg("3.1").arg(&path).output();
            let output = output.expect("it starts");
            let told = String::from_utf8_lossy(&output.stdout).into_owned();
            (output.status.success(), told)
        };
        let (valid, told) = validates(&document);
        assert!(valid, "{told}");
        let mut broken = document.clone();
        broken["paths"]["/v1/agents"]["get"]["responses"] = json!({ "200": {} });
        assert!(!validates(&broken).0);
    }
}

#[test]
fn what_is_described_is_routed_and_says_how_it_is_refused() {
    let server = started();
    let [owner, token] = documents(&server);
    let described = operations(&owner);
    let mut names = BTreeSet::new();
    for ((method, path), operation) in &described {
        let what = format!("{method} {path}");
        assert!(
            operation["summary"]
                .as_str()
                .is_some_and(|text| !text.is_empty()),
            "{what}"
        );
        assert!(
            names.insert(operation["operationId"].as_str().expect("a name")),
            "{what}"
        );
        let filled = path
            .replace("{id}", "none")
            .replace("{n}", "0")
            .replace("{path}", "none");
        let head = format!("{method} {filled}\ncontent-type: text/plain");
        let answer = ask(&server, &request(&head, b"?"));
        assert_ne!(answer.status, 405, "{what}: {}", answer.body);
        assert!(
            !answer.body.contains("no such path"),
            "{what}: {}",
            answer.body
        );
        let code = answer.status.to_string();
        assert!(
            operation["responses"].get(&code).is_some(),
            "{what}: {code}"
        );
        for (code, response) in operation["responses"].as_object().expect("responses") {
            refused_as_problem(&owner, &what, code, response);
        }
    }
    let only_owner: BTreeSet<_> = described
        .iter()
        .filter(|(_, operation)| operation["tags"] == json!(["owner"]))
        .map(|(key, _)| key.clone())
        .collect();
    let everybody: BTreeSet<_> = operations(&token).into_keys().collect();
    let all: BTreeSet<_> = described.into_keys().collect();
    assert_eq!(&all - &everybody, only_owner);
    assert!(!only_owner.is_empty() && everybody.is_subset(&all));
}

fn refused_as_problem(document: &Value, what: &str, code: &str, response: &Value) {
    let response = match response["$ref"].as_str() {
        Some(reference) => {
            let pointer = reference.trim_start_matches('#');
            document.pointer(pointer).expect("it is there")
        }
        None => response,
    };
    // Readiness tells what is wrong in the same form as what is right.
    if !code.starts_with('2') && what != "GET /readyz" {
        let kinds: Vec<_> = response["content"]
            .as_object()
            .expect("a body")
            .keys()
            .collect();
        assert_eq!(kinds, ["application/problem+json"], "{what} {code}");
    }
}

#[test]
fn on_tcp_the_document_wants_the_token_and_tells_so() {
    let server = started();
    let [owner, holder] = documents(&server);
    on_tcp(&server.address(), &get("/v1/openapi.json")).problem(401, "unauthorized");
    assert_eq!(holder["security"], json!([{ "token": [] }]));
    let scheme = &holder["components"]["securitySchemes"]["token"];
    assert_eq!(
        (&scheme["type"], &scheme["scheme"]),
        (&json!("http"), &json!("bearer"))
    );
    for ((_, path), operation) in operations(&holder) {
        let open = path == "/healthz" || path == "/readyz";
        assert_eq!(operation["security"] == json!([]), open, "{path}");
        assert_eq!(operation["responses"].get("401").is_none(), open, "{path}");
    }
    assert_eq!(owner.get("security"), None);
}

/// Long versions of the repeated ones.
#[allow(clippy::disallowed_methods)]
fn full() -> bool {
    std::env::var("MAYFLY_TESTS_FULL").is_ok_and(|full| full == "1")
}

/// An agent with ticks, states and a fork: something to be asked for.
fn with_something_in_it() -> Server {
    let server = started();
    let made = ask(&server, &post("/v1/agents", "{}")).json();
    let agent = made["id"].as_str().expect("an id");
    for text in ["echo one > f; cat f", "echo two >> f; exit 3"] {
        let path = format!("/v1/agents/{agent}/messages?wait=60");
        let said = ask(&server, &post(&path, &json!({ "text": text }).to_string()));
        assert_eq!(said.status, 200, "{}", said.body);
    }
    let forked = ask(&server, &post(&format!("/v1/agents/{agent}/fork"), "{}"));
    assert_eq!(forked.status, 201, "{}", forked.body);
    server
}

/// Tries to refute a document for so many seconds; what was found, or nothing, and all that was said.
fn refute(server: &Server, document: &Value, seconds: &str, more: &[&str]) -> (bool, String) {
    let scratch = tempfile::tempdir().expect("a folder");
    let path = scratch.path().join("openapi.json");
    // HTTP takes white space off a header's ends before anybody can refuse it (RFC 9110, 5.5).
    let key = r#""^[!-~]{1,255}$""#;
    let trimmed = r#""^[ \\t]*[!-~]{1,255}[ \\t]*$""#;
    let document = document.to_string().replace(key, trimmed);
    std::fs::write(&path, document).expect("written");
    let output = Command::new(python().join("bin/schemathesis"))
        .current_dir(scratch.path())
        .env("MAYFLY_ADDRESS", format!("http://{}", server.address()))
        .env("MAYFLY_TOKEN", token(server))
        .arg("--config-file")
        .arg(folder().join("schemathesis.toml"))
        .arg("run")
        .arg(&path)
        .args([
            "--checks",
            "all",
            // What a path or body names beside an agent or message (a tick, a file) may well not be
            // there although those were just made; the check takes every 404 for theirs.
            "--exclude-checks",
            "ensure_resource_availability",
            "--no-color",
            "--generation-database",
            "none",
        ])
        .args(["--max-time", seconds])
        .args(more)
        .output()
        .expect("it starts");
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    let told = told + &String::from_utf8_lossy(&output.stderr);
    // 1 is a refutation; everything else is that it could not try.
    assert!(matches!(output.status.code(), Some(0 | 1)), "{told}");
    (output.status.success(), told)
}

#[test]
fn the_document_is_true() {
    let mut server = with_something_in_it();
    let [_, document] = documents(&server);
    // The same requests each time, so that a change is what makes a difference; other ones at length.
    let (seconds, more): (_, &[&str]) = match full() {
        true => ("240", &[]),
        false => ("60", &["--seed", "1"]),
    };
    // It cannot make archives; `travel` and the fuzzers send those.
    let more = [more, &["--exclude-operation-id", "receive"]].concat();
    let (holds, told) = refute(&server, &document, seconds, &more);
    assert!(holds, "{told}");
    let tried = operations(&document).len() - 1;
    assert!(told.contains(&format!("Tested: {tried}\n")), "{told}");
    assert!(server.running(), "{}", server.log());
    assert_eq!(ask(&server, &get("/readyz")).status, 200);
}

#[test]
fn a_document_that_lies_is_refuted() {
    let server = with_something_in_it();
    let [_, mut document] = documents(&server);
    let responses = &mut document["paths"]["/v1/agents/{id}"]["get"]["responses"];
    assert!(
        responses
            .as_object_mut()
            .expect("responses")
            .remove("404")
            .is_some()
    );
    let only = [
        "--seed",
        "1",
        "--include-operation-id",
        "agent",
        "--phases",
        "fuzzing",
    ];
    let (holds, told) = refute(&server, &document, "10", &only);
    assert!(
        !holds && told.contains("Undocumented status code"),
        "{told}"
    );
}
