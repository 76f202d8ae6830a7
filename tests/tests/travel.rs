//! Agents that come and go over TCP: whoever is slow, goes away or sends too much leaves nothing and holds up nobody.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use mayfly_tests::{
    http::{Answer, on_socket, on_tcp, post, read, request},
    server::Server,
};
use serde_json::json;

const PATIENCE: Duration = Duration::from_secs(30);
const TABLES: [&str; 8] = [
    "agents",
    "bases",
    "deliveries",
    "layers",
    "messages",
    "pins",
    "snapshots",
    "ticks",
];
const FOLDERS: [&str; 5] = ["b", "l", "u", "t", "transcripts"];

fn started() -> Server {
    let mut server = Server::simulated(env!("CARGO_BIN_EXE_mayfly-under-test"));
    server.start();
    server
}

fn agent_with(server: &Server, command: &str) -> String {
    let made = on_socket(server.data_dir(), &post("/v1/agents", "{}"));
    let agent = made.json()["id"].as_str().expect("an id").to_owned();
    let said = say(server, &agent, &format!("{command}; echo ok"));
    assert_eq!(said.json()["outcome"], "answered", "{}", said.body);
    agent
}

/// A command that writes 900 kB that hardly get smaller.
fn noise() -> String {
    let mut bytes = vec![0; 450_000];
    rand::fill(&mut bytes[..]);
    format!("echo {} > noise", hex::encode(bytes))
}

fn say(server: &Server, agent: &str, text: &str) -> Answer {
    let path = format!("/v1/agents/{agent}/messages?wait=60");
    let body = json!({ "text": text }).to_string();
    on_socket(server.data_dir(), &post(&path, &body))
}

/// An archive of one agent of another installation; the agent's id.
fn archive(command: &str) -> (Vec<u8>, String) {
    let other = started();
    let agent = agent_with(&other, command);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.tar");
    let done = other.mayfly(&[
        "agent",
        "export",
        &agent,
        "-o",
        path.to_str().expect("UTF-8"),
    ]);
    assert!(done.status.success(), "{done:?}");
    (std::fs::read(path).expect("an archive"), agent)
}

fn head(server: &Server, length: usize) -> String {
    let token = std::fs::read_to_string(server.data_dir().join("token")).expect("a token");
    format!(
        "POST /v1/agents/import HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nauthorization: \
         Bearer {}\r\ncontent-type: application/x-tar\r\ncontent-length: {length}\r\n\r\n",
        token.trim()
    )
}

fn upload(server: &Server, content: &[u8]) -> Answer {
    let bytes = [head(server, content.len()).as_bytes(), content].concat();
    on_tcp(&server.address(), &bytes)
}

/// A connection on which all but the end of an upload was sent.
fn half(server: &Server, content: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(server.address()).expect("a server listens");
    stream
        .set_read_timeout(Some(2 * PATIENCE))
        .expect("a time-out");
    let bytes = [
        head(server, content.len()).as_bytes(),
        &content[..content.len() / 2],
    ]
    .concat();
    stream.write_all(&bytes).expect("taken");
    stream
}

/// Every row and every file that an import could leave.
fn held(server: &Server) -> (Vec<String>, Vec<PathBuf>) {
    let count = |table: &&str| server.sql(&format!("SELECT count(*) FROM {table}"));
    let mut files = Vec::new();
    let mut folders: Vec<PathBuf> = FOLDERS.map(|name| server.data_dir().join(name)).into();
    while let Some(folder) = folders.pop() {
        for item in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            files.push(item.path());
            if item.file_type().is_ok_and(|kind| kind.is_dir()) {
                folders.push(item.path());
            }
        }
    }
    files.sort();
    (TABLES.iter().map(count).collect(), files)
}

fn until(what: &str, mut there: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !there() {
        assert!(Instant::now() < deadline, "{what} did not come");
        thread::sleep(Duration::from_millis(50));
    }
}

fn staged(server: &Server) -> usize {
    std::fs::read_dir(server.data_dir().join("u"))
        .expect("a folder")
        .count()
}

fn memory(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).expect("alive");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
    kib.expect("a number") << 10
}

#[test]
fn an_agent_comes_over_tcp_and_goes_on() {
    let (content, agent) = archive("echo one > note");
    let server = started();
    let came = upload(&server, &content);
    assert_eq!(came.status, 201, "{}", came.body);
    assert_eq!(came.json()["agent"]["id"], agent);
    assert_eq!(
        say(&server, &agent, "cat note").json()["reply"]["text"],
        "one"
    );
    // Once more is another agent: nothing is written over.
    let again = upload(&server, &content);
    assert_eq!(again.status, 201, "{}", again.body);
    assert_ne!(again.json()["agent"]["id"], agent);
    assert_eq!(server.sql("SELECT count(*) FROM agents"), "2");
}

#[test]
fn an_upload_wants_the_token_and_says_what_it_is() {
    let server = started();
    let before = held(&server);
    let address = server.address();
    let none = request(
        "POST /v1/agents/import\ncontent-type: application/x-tar",
        b"x",
    );
    on_tcp(&address, &none).problem(401, "unauthorized");
    for kind in [
        "",
        "text/plain",
        "application/json",
        "multipart/form-data; boundary=x",
    ] {
        let line = format!("content-type: {kind}\r\n");
        let typed = head(&server, 1).replace("content-type: application/x-tar\r\n", &line);
        let told = on_tcp(&address, &[typed.as_bytes(), b"x"].concat()).problem(415, "media-type");
        assert!(told.contains("application/x-tar"), "{told}");
    }
    assert_eq!(held(&server), before);
}

/// A place in the middle of an entry: what lies there is nobody's header.
fn within_content(archive: &[u8]) -> usize {
    let mut header = 0;
    loop {
        let size = std::str::from_utf8(&archive[header + 124..header + 135]).expect("octal");
        let size = usize::from_str_radix(size, 8).expect("octal");
        if size > archive.len() / 8 {
            return header + 512 + size / 2;
        }
        header += 512 + size.next_multiple_of(512);
    }
}

#[test]
fn what_is_no_archive_is_refused_and_leaves_nothing() {
    let (content, _) = archive(&noise());
    let server = started();
    let before = held(&server);
    let cut = |length: usize| content[..length].to_vec();
    let flipped = |at: usize| {
        let mut content = content.clone();
        content[at] ^= 1;
        content
    };
    let cases = [
        (b"".to_vec(), "cannot be read"),
        (vec![b'x'; 5000], "wrong checksum"),
        (vec![0; 1024], "oci-layout: it is missing"),
        (cut(512), "cannot be read"),
        (cut(content.len() / 2), "cannot be read"),
        (flipped(within_content(&content)), "its content is another"),
    ];
    for (content, wanted) in cases {
        let told = upload(&server, &content).problem(400, "invalid");
        assert!(told.starts_with("this is no agent to import: "), "{told}");
        assert!(told.contains(wanted), "{told} lacks {wanted}");
        assert_eq!(held(&server), before, "{told}");
    }
}

#[test]
fn an_upload_larger_than_the_disk_is_refused_by_its_length() {
    let server = started();
    let before = held(&server);
    for length in [1 << 42, usize::MAX >> 1] {
        let refused = on_tcp(&server.address(), head(&server, length).as_bytes());
        let told = refused.problem(413, "too-large");
        assert_eq!(told, "the archive is refused: the disk has no room for it");
    }
    assert_eq!(held(&server), before);
}

#[test]
fn who_goes_away_in_the_middle_of_an_upload_leaves_nothing_and_holds_up_nobody() {
    let (content, agent) = archive(&noise());
    let server = started();
    let before = held(&server);
    let gone = half(&server, &content);
    until("the first half", || staged(&server) == 1);
    // Meanwhile everything else goes on.
    let collected = server.mayfly(&["gc"]);
    assert!(collected.status.success(), "{collected:?}");
    drop(gone);
    until("the removal of what had come", || held(&server) == before);
    assert_eq!(upload(&server, &content).json()["agent"]["id"], agent);
}

#[test]
fn who_sends_nothing_more_is_told_so_in_time() {
    let (content, agent) = archive(&noise());
    let server = started();
    let before = held(&server);
    let slow = half(&server, &content);
    let since = Instant::now();
    until("the first half", || staged(&server) == 1);
    assert_eq!(upload(&server, &content).json()["agent"]["id"], agent);
    let told = read(slow).problem(408, "timeout");
    assert!(told.contains("send it again"), "{told}");
    assert!(
        since.elapsed() < Duration::from_secs(50),
        "{:?}",
        since.elapsed()
    );
    until("the removal of what had come", || staged(&server) == 0);
    assert_ne!(held(&server), before, "the other import is there");
}

#[test]
fn a_server_that_stops_waits_for_no_upload() {
    let (content, _) = archive(&noise());
    let mut server = started();
    let before = held(&server);
    let slow = half(&server, &content);
    until("the first half", || staged(&server) == 1);
    let since = Instant::now();
    server.stop();
    assert!(since.elapsed() < PATIENCE / 2, "{:?}", since.elapsed());
    let told = read(slow).problem(503, "unavailable");
    assert_eq!(told, "the server is stopping: send it again");
    assert_eq!(held(&server), before);
}

#[test]
fn a_slow_reader_of_an_export_costs_little_and_leaves_nothing() {
    let server = started();
    let agent = agent_with(&server, &noise());
    let more = "cat noise noise noise noise > a; cat a a a a > b; cat b b > c; echo ok";
    assert_eq!(say(&server, &agent, more).json()["outcome"], "answered");
    let path = format!("/v1/agents/{agent}/export?compress=none");
    let before = memory(&server);
    let mut slow: Vec<TcpStream> = (0..4)
        .map(|_| {
            let mut stream = TcpStream::connect(server.address()).expect("a server listens");
            stream.set_read_timeout(Some(PATIENCE)).expect("a time-out");
            let token = std::fs::read_to_string(server.data_dir().join("token")).expect("a token");
            let line = format!("GET {path}\nauthorization: Bearer {}", token.trim());
            stream.write_all(&request(&line, b"")).expect("taken");
            stream
        })
        .collect();
    let mut piece = [0; 1 << 16];
    for stream in &mut slow {
        stream.read_exact(&mut piece).expect("a beginning");
        assert!(
            piece.starts_with(b"HTTP/1.1 200"),
            "{}",
            String::from_utf8_lossy(&piece[..300])
        );
    }
    assert_ne!(server.sql("SELECT count(*) FROM pins"), "0");
    // Nobody waits for who does not read.
    let (content, other) = archive("echo other > note");
    assert_eq!(upload(&server, &content).json()["agent"]["id"], other);
    let collected = server.mayfly(&["gc"]);
    assert!(collected.status.success(), "{collected:?}");
    assert_ne!(server.sql("SELECT count(*) FROM pins"), "0");
    for stream in &mut slow {
        stream.read_exact(&mut piece).expect("more of it");
    }
    let grown = memory(&server).saturating_sub(before);
    assert!(grown < 64 << 20, "{grown} bytes more");
    drop(slow);
    until("the end of what was staged", || staged(&server) == 0);
    until("the end of the pins", || {
        assert!(server.mayfly(&["gc"]).status.success());
        server.sql("SELECT count(*) FROM pins") == "0"
    });
}

#[test]
fn a_whole_export_read_slowly_is_a_whole_archive() {
    let server = started();
    let agent = agent_with(&server, &format!("echo kept > note; {}", noise()));
    let token = std::fs::read_to_string(server.data_dir().join("token")).expect("a token");
    let line = format!(
        "GET /v1/agents/{agent}/export?compress=zstd\nauthorization: Bearer {}",
        token.trim()
    );
    let mut stream = TcpStream::connect(server.address()).expect("a server listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time-out");
    stream.write_all(&request(&line, b"")).expect("taken");
    let (mut all, mut piece) = (Vec::new(), vec![0; 100_000]);
    loop {
        let length = stream.read(&mut piece).expect("more of it");
        if length == 0 {
            break;
        }
        all.extend_from_slice(&piece[..length]);
        thread::sleep(Duration::from_millis(10));
    }
    let content = whole(&all);
    let other = started();
    assert_eq!(upload(&other, &content).json()["agent"]["id"], agent);
    assert_eq!(
        say(&other, &agent, "cat note").json()["reply"]["text"],
        "kept"
    );
}

/// An answer's body, its chunks put together.
fn whole(answer: &[u8]) -> Vec<u8> {
    let at = answer
        .windows(4)
        .position(|part| part == b"\r\n\r\n")
        .expect("a head");
    let (mut rest, mut content) = (&answer[at + 4..], Vec::new());
    loop {
        let end = rest
            .windows(2)
            .position(|part| part == b"\r\n")
            .expect("a size");
        let size = std::str::from_utf8(&rest[..end]).expect("hexadecimal");
        let size = usize::from_str_radix(size, 16).expect("hexadecimal");
        if size == 0 {
            return content;
        }
        content.extend_from_slice(&rest[end + 2..end + 2 + size]);
        rest = &rest[end + 4 + size..];
    }
}

#[test]
fn who_sends_a_drop_at_a_time_is_told_so_in_time() {
    let server = started();
    let mut slow = TcpStream::connect(server.address()).expect("a server listens");
    slow.set_read_timeout(Some(2 * PATIENCE))
        .expect("a time-out");
    slow.write_all(head(&server, 1 << 20).as_bytes())
        .expect("taken");
    let mut drops = slow.try_clone().expect("the same connection");
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let pace = Duration::from_millis(500);
    let dripping = thread::spawn(move || {
        while ended.recv_timeout(pace) == Err(std::sync::mpsc::RecvTimeoutError::Timeout)
            && drops.write_all(&[0]).is_ok()
        {}
    });
    let told = read(slow).problem(408, "timeout");
    drop(end);
    assert!(told.contains("too slowly"), "{told}");
    dripping.join().expect("no panic");
}

#[test]
fn a_fifth_upload_at_once_is_refused_until_one_has_ended() {
    let (content, agent) = archive(&noise());
    let server = started();
    let mut under_way: Vec<TcpStream> = (0..4).map(|_| half(&server, &content)).collect();
    until("four halves", || staged(&server) == 4);
    let told = upload(&server, &content).problem(503, "unavailable");
    assert!(told.contains("try again"), "{told}");
    under_way.pop();
    let mut came = None;
    until("a place", || {
        let answer = upload(&server, &content);
        came = (answer.status == 201).then_some(answer);
        came.is_some()
    });
    assert_eq!(came.expect("an answer").json()["agent"]["id"], agent);
}
