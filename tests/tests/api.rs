//! The HTTP API from outside: who may pass, what is taken, what is refused and how, and that slow or
//! many clients harm nobody.

use std::{
    collections::BTreeSet,
    io::Write as _,
    net::TcpStream,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use mayfly_tests::{
    http::{Answer, exchange, get, on_socket, on_tcp, post, read, request},
    server::Server,
};
use serde_json::json;

const LONGEST: usize = 1 << 20;

fn started() -> Server {
    let mut server = Server::simulated(env!("CARGO_BIN_EXE_mayfly-under-test"));
    server.start();
    server
}

fn ask(server: &Server, request: &[u8]) -> Answer {
    on_socket(server.data_dir(), request)
}

fn new_agent(server: &Server) -> String {
    let made = ask(server, &post("/v1/agents", "{}"));
    assert_eq!(made.status, 201, "{}", made.body);
    made.json()["id"].as_str().expect("an id").to_owned()
}

fn say(server: &Server, agent: &str, text: &str) -> Answer {
    let path = format!("/v1/agents/{agent}/messages?wait=60");
    ask(server, &post(&path, &json!({ "text": text }).to_string()))
}

fn token(server: &Server) -> String {
    let text = std::fs::read_to_string(server.data_dir().join("token")).expect("a token");
    text.trim().to_owned()
}

fn messages(server: &Server) -> String {
    server.sql("SELECT count(*) FROM messages")
}

fn mode(path: &Path) -> u32 {
    let found = std::fs::symlink_metadata(path).expect("it is there");
    found.permissions().mode() & 0o7777
}

#[test]
fn tcp_wants_the_token_and_the_socket_its_owner() {
    let server = started();
    let address = server.address();
    let with =
        |path: &str, line: &str| on_tcp(&address, &request(&format!("GET {path}\n{line}"), b""));
    for path in ["/healthz", "/readyz"] {
        assert_eq!(on_tcp(&address, &get(path)).status, 200, "{path}");
    }
    let right = format!("authorization: Bearer {}", token(&server));
    let wrong = format!("authorization: Bearer {}", "0".repeat(64));
    let basic = format!("authorization: Basic {}", token(&server));
    for line in ["", "authorization: Bearer", &wrong, &basic] {
        for path in [
            "/v1/agents",
            "/v1/parked",
            "/nothing",
            "/healthz/../v1/agents",
        ] {
            let refused = with(path, line);
            let told = refused.problem(401, "unauthorized");
            assert!(told.contains("\"token\""), "{told}");
            assert!(!told.contains(&token(&server)));
            assert_eq!(refused.header("www-authenticate"), Some("Bearer"));
        }
    }
    assert_eq!(with("/v1/agents", &right).status, 200);
    assert_eq!(ask(&server, &get("/v1/agents")).status, 200);
    let modes = [
        "",
        "token",
        "mayfly.sock",
        "mayfly.db",
        "mayfly.db-wal",
        "lock",
    ]
    .map(|name| (name, mode(&server.data_dir().join(name))));
    let wanted = modes.map(|(name, _)| (name, if name.is_empty() { 0o700 } else { 0o600 }));
    assert_eq!(modes, wanted);
}

#[test]
fn names_and_pages_of_others_are_refused() {
    let server = started();
    let (address, token) = (server.address(), token(&server));
    let write = |lines: &str| {
        let head = format!(
            "POST /v1/agents\ncontent-type: application/json\nauthorization: Bearer {token}\n{lines}"
        );
        on_tcp(&address, &request(&head, b"{}"))
    };
    for host in ["evil.test", "localhost.evil.test", "10.1.2.3"] {
        let told = write(&format!("host: {host}")).problem(403, "forbidden");
        assert!(told.contains(host) && told.contains(&address), "{told}");
        let health = on_tcp(
            &address,
            &request(&format!("GET /healthz\nhost: {host}"), b""),
        );
        health.problem(403, "forbidden");
    }
    for origin in ["http://evil.test", "null", "https://localhost:1"] {
        let told = write(&format!("origin: {origin}")).problem(403, "forbidden");
        assert!(told.contains(origin), "{told}");
    }
    assert_eq!(server.sql("SELECT count(*) FROM agents"), "0");
    let ours = format!("host: {address}\norigin: http://{address}");
    assert_eq!(write(&ours).status, 201);
}

#[test]
fn what_is_not_a_message_is_refused_by_name_and_leaves_none() {
    let server = started();
    let agent = new_agent(&server);
    let path = format!("/v1/agents/{agent}/messages");
    let send = |body: &[u8]| {
        let head = format!("POST {path}\ncontent-type: application/json");
        ask(&server, &request(&head, body))
    };
    let long = |count: usize| json!({ "text": "a".repeat(count) }).to_string();
    let bad: [(&[u8], u16, &str, &str); 12] = [
        (b"", 400, "invalid", "missing field `text`"),
        (b"{", 400, "invalid", "EOF"),
        (b"[]", 400, "invalid", "an object is wanted"),
        (b"{\"text\":\"\"}", 400, "invalid", "the message is empty"),
        (
            b"{\"text\":\" \\n\"}",
            400,
            "invalid",
            "the message is empty",
        ),
        (b"{\"text\":1}", 400, "invalid", "expected a string"),
        (
            b"{\"text\":\"x\",\"txt\":1}",
            400,
            "invalid",
            "unknown field `txt`",
        ),
        (
            b"{\"text\":\"a\\u0000b\"}",
            400,
            "invalid",
            "NUL byte at offset 1",
        ),
        (
            b"{\"text\":\"a\xff\"}",
            400,
            "invalid",
            "UTF-8 at offset 10",
        ),
        (
            b"{\"text\":\"x\",\"sandbox\":\"debian\"}",
            400,
            "invalid",
            "docker:IMAGE",
        ),
        (
            b"{\"text\":\"x\",\"author\":[]}",
            400,
            "invalid",
            "expected a string",
        ),
        (
            long(LONGEST + 1).leak().as_bytes(),
            413,
            "too-large",
            "has 1048577 bytes",
        ),
    ];
    for (body, status, kind, fragment) in bad {
        let told = send(body).problem(status, kind);
        assert!(told.contains(fragment), "{told:?} lacks {fragment:?}");
    }
    for kind in [
        "",
        "content-type: text/plain",
        "content-type: application/jsonx",
    ] {
        let answer = ask(
            &server,
            &request(&format!("POST {path}\n{kind}"), b"{\"text\":\"x\"}"),
        );
        answer.problem(415, "media-type");
    }
    for query in ["wait=-1", "wait=soon", "wiat=1"] {
        let asked = post(&format!("{path}?{query}"), "{\"text\":\"x\"}");
        ask(&server, &asked).problem(400, "invalid");
    }
    assert_eq!(messages(&server), "0");
}

#[test]
fn a_body_may_not_grow_without_end() {
    let server = started();
    let agent = new_agent(&server);
    let path = format!("/v1/agents/{agent}/messages");
    let head = format!("POST {path}\ncontent-type: application/json");
    let announced = String::from_utf8(request(&head, b"")).expect("text");
    let announced = announced.replace("content-length: 0", "content-length: 9000000");
    ask(&server, announced.as_bytes()).problem(413, "too-large");
    let mut chunks = announced
        .replace("content-length: 9000000", "transfer-encoding: chunked")
        .into_bytes();
    for _ in 0..140 {
        chunks.extend_from_slice(b"10000\r\n");
        chunks.extend_from_slice(&[b' '; 1 << 16]);
        chunks.extend_from_slice(b"\r\n");
    }
    ask(&server, &chunks).problem(413, "too-large");
    // A legal message fits even where all of it is escaped.
    let escaped = format!("echo ok; true {}", "a".repeat(LONGEST - 14));
    let escaped: String = escaped
        .bytes()
        .map(|byte| format!("\\u{byte:04x}"))
        .collect();
    let sent = ask(
        &server,
        &post(
            &format!("{path}?wait=60"),
            &format!("{{\"text\":\"{escaped}\"}}"),
        ),
    );
    assert_eq!(
        sent.status,
        200,
        "{}",
        &sent.body[..sent.body.len().min(300)]
    );
    assert_eq!(sent.json()["reply"]["text"], "ok");
    assert_eq!(messages(&server), "1");
}

#[test]
fn what_is_not_there_is_a_typed_problem() {
    let server = started();
    let agent = new_agent(&server);
    let none = "00000000-0000-7000-8000-000000000000";
    for path in [
        "/".to_owned(),
        "/v1".to_owned(),
        "/v1/agents/".to_owned(),
        format!("/v1/agents/{none}"),
        "/v1/agents/..%2F..%2Fetc%2Fpasswd".to_owned(),
        format!("/v1/agents/{}", "f".repeat(10_000)),
        format!("/v1/agents/{agent}x"),
        format!("/v1/agents/{none}/ticks"),
        format!("/v1/agents/{none}/diff"),
        format!("/v1/agents/{agent}/diff?from={none}"),
        format!("/v1/messages/{none}"),
        "/v1/messages/x".to_owned(),
        format!("/v1/ticks/{none}"),
    ] {
        let told = ask(&server, &get(&path)).problem(404, "not-found");
        assert!(told.len() < 300, "{told}");
    }
    for path in [
        format!("/v1/agents/{none}/messages"),
        format!("/v1/agents/{none}/rollback"),
        format!("/v1/agents/{none}/fork"),
        format!("/v1/agents/{none}/stop"),
        format!("/v1/messages/{none}/retry"),
    ] {
        let body = if path.ends_with("messages") {
            "{\"text\":\"x\"}"
        } else {
            "{}"
        };
        ask(&server, &post(&path, body)).problem(404, "not-found");
    }
    ask(&server, &get("/v1/agents/%FF")).problem(400, "invalid");
    ask(&server, &post("/v1/agents", "{\"profile\":\"coder\"}")).problem(404, "not-found");
    for (method, path) in [
        ("PUT", "/v1/agents"),
        ("DELETE", "/v1/agents"),
        ("GET", "/v1/agents/x/messages"),
        ("POST", "/v1/ticks/x"),
        ("POST", "/healthz"),
        ("PATCH", "/v1/parked"),
    ] {
        let refused = ask(&server, &request(&format!("{method} {path}"), b""));
        refused.problem(405, "no-method");
        assert!(refused.header("allow").is_some(), "{method} {path}");
    }
}

#[test]
fn a_key_counts_once() {
    let server = started();
    let (agent, other) = (new_agent(&server), new_agent(&server));
    let send = |agent: &str, key: &str, text: &str| {
        let head =
            format!("POST /v1/agents/{agent}/messages\ncontent-type: application/json\n{key}");
        ask(
            &server,
            &request(&head, json!({ "text": text }).to_string().as_bytes()),
        )
    };
    let id = |answer: Answer| answer.json()["id"].as_str().expect("an id").to_owned();
    let key = "idempotency-key: one";
    let ids: BTreeSet<String> = thread::scope(|scope| {
        let posts: Vec<_> = (0..20)
            .map(|_| scope.spawn(|| id(send(&agent, key, "echo a"))))
            .collect();
        posts
            .into_iter()
            .map(|post| post.join().expect("an answer"))
            .collect()
    });
    assert_eq!(ids.len(), 1);
    let told = send(&agent, key, "echo b").problem(409, "conflict");
    assert!(told.contains("one"), "{told}");
    assert!(!ids.contains(&id(send(&other, key, "echo a"))));
    assert_ne!(
        id(send(&agent, "", "echo a")),
        id(send(&agent, "", "echo a"))
    );
    let long = format!("idempotency-key: {}", "k".repeat(256));
    for bad in [long.as_str(), "idempotency-key:", "idempotency-key: \u{fc}"] {
        send(&agent, bad, "echo a").problem(400, "invalid");
    }
    assert_eq!(messages(&server), "4");
}

#[test]
fn a_wait_ends_with_the_outcome_the_time_or_the_server() {
    let mut server = started();
    let agent = new_agent(&server);
    let since = Instant::now();
    let path = format!("/v1/agents/{agent}/messages?wait=18446744073709551615");
    let quick = ask(&server, &post(&path, "{\"text\":\"echo quick\"}"));
    assert_eq!(
        (quick.status, &quick.json()["reply"]["text"]),
        (200, &json!("quick"))
    );
    assert!(since.elapsed() < Duration::from_secs(10));
    let since = Instant::now();
    let path = format!("/v1/agents/{agent}/messages?wait=1");
    let slow = ask(&server, &post(&path, "{\"text\":\"sleep 4; echo slow\"}"));
    assert_eq!(slow.status, 202);
    assert!(slow.json()["outcome"].is_null());
    let took = since.elapsed();
    assert!((900..3500).contains(&took.as_millis()), "{took:?}");
    let message = format!(
        "/v1/messages/{}?wait=60",
        slow.json()["id"].as_str().unwrap()
    );
    let ended = ask(&server, &get(&message)).json();
    assert_eq!(ended["reply"]["text"], "slow");
    let left = say(&server, &agent, "echo x").json()["id"].clone();
    assert!(left.is_string());
    let hanging = post(
        &format!("/v1/agents/{agent}/messages?wait=300"),
        "{\"text\":\"sleep 100\"}",
    );
    let data_dir = server.data_dir().to_owned();
    let hanging = thread::spawn(move || on_socket(&data_dir, &hanging));
    let running = "SELECT count(*) FROM ticks WHERE outcome IS NULL";
    server.until_sql(running, "1");
    server.set_env("MAYFLY__WORKER__GRACE_S", "0");
    server.stop();
    let cut = hanging.join().expect("an answer");
    assert_eq!(cut.status, 202, "{}", cut.body);
}

#[test]
fn fifty_at_once_have_fifty_places_and_fifty_answers() {
    let server = started();
    let agent = new_agent(&server);
    let mut seqs: Vec<u64> = thread::scope(|scope| {
        let posts: Vec<_> = (0..50)
            .map(|n| {
                let (server, agent) = (&server, &agent);
                scope.spawn(move || {
                    let answer = say(server, agent, &format!("echo {n}"));
                    let view = answer.json();
                    assert_eq!(view["outcome"], "answered", "{view}");
                    assert_eq!(view["reply"]["text"], n.to_string(), "{view}");
                    view["seq"].as_u64().expect("a place")
                })
            })
            .collect();
        posts
            .into_iter()
            .map(|post| post.join().expect("an answer"))
            .collect()
    });
    seqs.sort_unstable();
    assert_eq!(seqs, (1..=50).collect::<Vec<_>>());
}

#[test]
fn ticks_of_others_move_nothing() {
    let server = started();
    let (agent, other) = (new_agent(&server), new_agent(&server));
    say(&server, &agent, "echo mine > f");
    let theirs = say(&server, &other, "echo theirs > f").json()["tick"].clone();
    let theirs = theirs.as_str().expect("a tick").to_owned();
    let path = |verb: &str| format!("/v1/agents/{agent}/{verb}");
    let back = ask(
        &server,
        &post(&path("rollback"), &json!({ "to": theirs }).to_string()),
    );
    assert!(back.problem(404, "not-found").contains("of agent"));
    let fork = ask(
        &server,
        &post(&path("fork"), &json!({ "at": theirs }).to_string()),
    );
    fork.problem(404, "not-found");
    let diff = ask(&server, &get(&format!("{}?from={theirs}", path("diff"))));
    diff.problem(404, "not-found");
    let unknown = ask(&server, &post(&path("rollback"), "{\"tick\":\"x\"}"));
    assert!(
        unknown
            .problem(400, "invalid")
            .contains("unknown field `tick`")
    );
    assert_eq!(
        say(&server, &agent, "cat f").json()["reply"]["text"],
        "mine"
    );
    assert_eq!(server.sql("SELECT count(*) FROM agents"), "2");
}

#[test]
fn who_is_slow_is_cut_off_and_harms_nobody() {
    let server = started();
    let agent = new_agent(&server);
    let address = server.address();
    let open = || {
        let stream = TcpStream::connect(&address).expect("a place in the queue");
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .expect("a time-out");
        stream
    };
    let handles = || {
        let folder = format!("/proc/{}/fd", server.pid());
        std::fs::read_dir(folder).expect("a living server").count()
    };
    let before = handles();
    let idle: Vec<TcpStream> = (0..200).map(|_| open()).collect();
    let half: Vec<TcpStream> = (0..50)
        .map(|_| {
            let mut stream = open();
            stream
                .write_all(b"GET /healthz HTTP/1.1\r\nhost: local")
                .expect("taken");
            stream
        })
        .collect();
    let mut slow = open();
    let head = format!(
        "POST /v1/agents/{agent}/messages HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\
         content-type: application/json\r\nauthorization: Bearer {}\r\n\r\n{{\"text\":",
        token(&server)
    );
    slow.write_all(head.as_bytes()).expect("taken");
    let since = Instant::now();
    assert_eq!(on_tcp(&address, &get("/healthz")).status, 200);
    assert_eq!(
        say(&server, &agent, "echo ok").json()["reply"]["text"],
        "ok"
    );
    assert!(since.elapsed() < Duration::from_secs(15));
    assert!(handles() >= before + 250);
    for stream in idle.into_iter().chain(half) {
        let ended = read(stream);
        assert!([0, 408].contains(&ended.status), "{ended:?}");
    }
    assert!(
        since.elapsed() < Duration::from_secs(45),
        "{:?}",
        since.elapsed()
    );
    read(slow).problem(408, "timeout");
    assert!(since.elapsed() < Duration::from_secs(60));
    assert!(handles() < before + 50);
    // One that is done is not kept either.
    let kept = exchange(open(), b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n");
    assert_eq!(kept.status, 200);
    assert_eq!(messages(&server), "1");
}

#[test]
fn lists_come_in_pages_that_leave_none_out_and_repeat_none() {
    let server = started();
    let agents: Vec<String> = (0..7).map(|_| new_agent(&server)).collect();
    let list = |path: &str, limit: usize| {
        let (mut ids, mut pages, mut after) = (Vec::new(), 0, String::new());
        loop {
            let asked = get(&format!("{path}?limit={limit}{after}"));
            let page = ask(&server, &asked).json();
            let items = page["items"].as_array().expect("a list");
            assert!(items.len() <= limit);
            ids.extend(
                items
                    .iter()
                    .map(|item| item["id"].as_str().unwrap().to_owned()),
            );
            pages += 1;
            match page["next"].as_str() {
                Some(next) => after = format!("&after={next}"),
                None => return (ids, pages),
            }
            // What is made or removed between two pages moves no other.
            if pages == 1 && path == "/v1/agents" && limit == 3 {
                new_agent(&server);
                let last = ids.last().unwrap();
                let remove = format!("DELETE /v1/agents/{last}");
                assert_eq!(ask(&server, &request(&remove, b"")).status, 204);
            }
        }
    };
    let newest: Vec<String> = agents.iter().rev().cloned().collect();
    assert_eq!(list("/v1/agents", 1), (newest.clone(), 7));
    assert_eq!(list("/v1/agents", 7), (newest.clone(), 1));
    assert_eq!(list("/v1/agents", 3), (newest, 3));
    let agent = &agents[0];
    let ticks: Vec<String> = (0..5)
        .map(|n| say(&server, agent, &format!("echo {n}")).json()["tick"].clone())
        .map(|tick| tick.as_str().expect("a tick").to_owned())
        .collect();
    let path = format!("/v1/agents/{agent}/ticks");
    assert_eq!(list(&path, 2), (ticks.clone(), 3));
    assert_eq!(ask(&server, &get(&path)).json()["next"], json!(null));
    let bad = [
        "limit=0",
        "limit=1001",
        "limit=-1",
        "limit=x",
        "after=x",
        "page=1",
    ];
    for bad in bad {
        for path in ["/v1/agents", &path] {
            ask(&server, &get(&format!("{path}?{bad}"))).problem(400, "invalid");
        }
    }
    let log = server.json(&["agent", "log", agent]);
    assert_eq!(log.as_array().map(Vec::len), Some(5));
    let listed = server.json(&["agent", "list"]);
    assert_eq!(listed.as_array().map(Vec::len), Some(7));
}
