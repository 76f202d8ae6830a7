//! The events of a tick, read while they happen: none late, none twice, none missing, and nobody
//! who does not read costs anything for long.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    os::unix::net::UnixStream,
    thread,
    time::{Duration, Instant},
};

use mayfly_tests::{
    http::{Answer, get, on_socket, post, request},
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

/// Sends a message to a new agent and waits until its tick is open.
fn running(server: &Server, text: &str) -> String {
    let made = ask(server, &post("/v1/agents", "{}")).json();
    let path = format!("/v1/agents/{}/messages", made["id"].as_str().unwrap());
    let body = json!({ "text": text }).to_string();
    let sent = ask(server, &post(&path, &body)).json();
    let path = format!("/v1/messages/{}", sent["id"].as_str().unwrap());
    loop {
        let message = ask(server, &get(&path)).json();
        if let Some(tick) = message["tick"].as_str() {
            return tick.to_owned();
        }
        thread::sleep(Duration::from_millis(20));
    }
}

#[derive(Debug, Clone, PartialEq)]
struct Event {
    id: String,
    kind: String,
    data: Value,
}

/// One stream of events on the socket.
struct Stream {
    lines: BufReader<UnixStream>,
    /// Comments so far.
    comments: usize,
}

impl Stream {
    fn open(server: &Server, tick: &str, after: Option<&str>) -> Stream {
        let mut head = format!("GET /v1/ticks/{tick}/events\naccept: text/event-stream");
        if let Some(after) = after {
            head += &format!("\nlast-event-id: {after}");
        }
        let socket = server.data_dir().join("mayfly.sock");
        let mut stream = UnixStream::connect(socket).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        stream.write_all(&request(&head, b"")).unwrap();
        let mut stream = Stream {
            lines: BufReader::new(stream),
            comments: 0,
        };
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            stream.lines.read_line(&mut head).unwrap();
        }
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        assert!(head.contains("content-type: text/event-stream"), "{head}");
        stream
    }

    /// The next event; none at the end of the stream. One chunk holds one event or comment.
    fn next(&mut self) -> Option<Event> {
        loop {
            let mut size = String::new();
            self.lines.read_line(&mut size).unwrap();
            let size = usize::from_str_radix(size.trim(), 16).unwrap_or(0);
            if size == 0 {
                return None;
            }
            let mut chunk = vec![0; size + 2];
            self.lines.read_exact(&mut chunk).unwrap();
            let text = String::from_utf8(chunk).unwrap();
            let field = |name: &str| {
                let found = text.lines().find_map(|line| line.strip_prefix(name));
                found.map(|value| value.trim_start().to_owned())
            };
            match field("id:") {
                None => {
                    assert!(text.starts_with(':'), "{text}");
                    self.comments += 1;
                }
                Some(id) => {
                    return Some(Event {
                        id,
                        kind: field("event:").unwrap(),
                        data: serde_json::from_str(&field("data:").unwrap()).unwrap(),
                    });
                }
            }
        }
    }

    fn rest(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.next()).collect()
    }
}

#[test]
fn events_come_as_they_happen_and_resume_without_gap_or_repeat() {
    come_as_they_happen(&started());
}

#[test]
fn events_of_a_real_sandbox_come_as_they_happen() {
    let mut server = Server::new(env!("CARGO_BIN_EXE_mayfly-under-test"));
    server.start();
    come_as_they_happen(&server);
    server.stop();
    server.assert_nothing_left();
}

fn come_as_they_happen(server: &Server) {
    let tick = running(
        server,
        "echo 1; sleep 2; echo 2; sleep 2; echo 3; sleep 2; echo 4",
    );
    let since = Instant::now();
    let mut stream = Stream::open(server, &tick, None);
    let mut events = vec![stream.next().unwrap()];
    assert!(since.elapsed() < Duration::from_secs(5));
    assert_eq!((&*events[0].id, &*events[0].kind), ("1", "prompt"));
    // A reader that loses its connection after each event.
    while events.last().unwrap().kind != "end" {
        let after = events.last().unwrap().id.clone();
        events.push(Stream::open(server, &tick, Some(&after)).next().unwrap());
    }
    let uninterrupted = stream.rest();
    assert_eq!(events[1..], uninterrupted);
    let path = format!("/v1/ticks/{tick}");
    let detail = ask(server, &get(&path)).json();
    let end = events.pop().unwrap();
    assert_eq!(end.data, detail["tick"]);
    assert_eq!((&*end.id, &end.data["outcome"]), ("end", &json!("done")));
    let data: Vec<Value> = events.iter().map(|event| event.data.clone()).collect();
    assert_eq!(json!(data), detail["transcript"]);
    for (at, event) in events.iter().enumerate() {
        assert_eq!(event.id, (at + 1).to_string());
        assert_eq!(event.data["event"], event.kind);
    }
    let out: String = events
        .iter()
        .filter(|event| event.kind == "stdout")
        .map(|event| event.data["text"].as_str().unwrap())
        .collect();
    assert_eq!(out, "1\n2\n3\n4\n");
    // Of one that is over.
    let late = Stream::open(server, &tick, Some("3")).rest();
    assert_eq!(late[..late.len() - 1], events[3..]);
    let done = format!("GET {path}/events\nlast-event-id: end");
    assert_eq!(ask(server, &request(&done, b"")).status, 204);
}

#[test]
fn silence_is_filled_and_a_stop_of_the_server_ends_the_stream() {
    let mut server = started();
    let tick = running(&server, "echo begun; sleep 20; echo over");
    let mut stream = Stream::open(&server, &tick, None);
    let events = stream.rest();
    assert_eq!(events.last().unwrap().kind, "end");
    assert!(stream.comments >= 1);
    let tick = running(&server, "echo begun; sleep 100");
    let mut stream = Stream::open(&server, &tick, None);
    while stream.next().unwrap().kind != "stdout" {}
    server.set_env("MAYFLY__WORKER__GRACE_S", "0");
    let since = Instant::now();
    server.stop();
    assert!(since.elapsed() < Duration::from_secs(30));
    assert!(stream.rest().iter().all(|event| event.kind != "end"));
}

#[test]
fn wrong_requests_for_events_are_refused_by_name() {
    let server = started();
    let tick = running(&server, "echo x");
    let path = format!("/v1/ticks/{tick}/events");
    for bad in ["-1", "x", "18446744073709551616", "1%00"] {
        let asked = ask(&server, &get(&format!("{path}?after={bad}")));
        assert!(asked.problem(400, "invalid").contains("no id of an event"));
    }
    let unknown = ask(&server, &get(&format!("{path}?before=1")));
    unknown.problem(400, "invalid");
    let none = ask(&server, &get("/v1/ticks/0123456789abcdef/events"));
    none.problem(404, "not-found");
    let post = ask(&server, &post(&path, "{}"));
    post.problem(405, "no-method");
}

/// 100 streams of a long transcript that nobody reads: no more are open than may be, memory stays,
/// others are answered, and all are cut off.
#[test]
fn who_does_not_read_events_is_cut_off_and_costs_little() {
    let server = started();
    let tick = running(&server, &format!("echo {}", "x".repeat(1_000_000)));
    Stream::open(&server, &tick, None).rest();
    let memory = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:"));
        let kib = line.unwrap().split_whitespace().nth(1).unwrap();
        kib.parse::<u64>().unwrap() / 1024
    };
    let path = format!("/v1/ticks/{tick}/events");
    let socket = server.data_dir().join("mayfly.sock");
    let before = memory();
    let since = Instant::now();
    let mut asked: Vec<UnixStream> = (0..100)
        .map(|_| {
            let mut stream = UnixStream::connect(&socket).unwrap();
            stream.write_all(&get(&path)).unwrap();
            stream
        })
        .collect();
    // Their kernel's buffers hold far less than the transcript, and a status line makes no room.
    asked.retain_mut(|stream| {
        let mut status = [0; 12];
        stream.read_exact(&mut status).unwrap();
        status == *b"HTTP/1.1 200"
    });
    assert_eq!(asked.len(), 64);
    let full = ask(&server, &get(&format!("{path}?after=100000")));
    assert!(full.problem(503, "unavailable").contains("64 streams"));
    thread::sleep(Duration::from_secs(5));
    let grown = memory().saturating_sub(before);
    assert!(grown < 192, "{grown} MiB for 64 streams at lines of 1 MB");
    for stream in &mut asked {
        // A byte to whoever has closed fails, whatever still waits to be read.
        while stream.write_all(b" ").is_ok() {
            assert!(since.elapsed() < Duration::from_secs(120));
            thread::sleep(Duration::from_millis(500));
        }
        assert!(since.elapsed() > Duration::from_secs(25));
    }
    for mut stream in asked {
        let mut got = Vec::new();
        let _ = stream.read_to_end(&mut got);
        assert!(!String::from_utf8_lossy(&got).contains("event: end"));
    }
    let after = Stream::open(&server, &tick, None).rest();
    assert_eq!(after.last().unwrap().kind, "end");
}
