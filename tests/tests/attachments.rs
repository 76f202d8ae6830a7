//! Files that come with a message and files that go with its reply, through the whole program.

use std::{
    fs,
    io::{Read as _, Write as _},
    os::unix::{fs::PermissionsExt as _, net::UnixStream},
    path::{Path, PathBuf},
    process::Output,
    time::{Duration, Instant},
};

use mayfly_tests::{
    engine::{self, run},
    http::{self, Answer, get, on_socket, post, request},
    server::Server,
};
use serde_json::{Value, json};
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_mayfly-under-test");
const MIB: usize = 1 << 20;

fn folder() -> TempDir {
    tempfile::Builder::new()
        .prefix("ma")
        .tempdir()
        .expect("a folder")
}

fn docker() -> Server {
    let mut server = Server::new(PROGRAM);
    server.start();
    server
}

fn ask(server: &Server, request: &[u8]) -> Answer {
    on_socket(server.data_dir(), request)
}

fn upload_request(content: &[u8]) -> Vec<u8> {
    request(
        "POST /v1/blobs\ncontent-type: application/octet-stream",
        content,
    )
}

/// Uploads and returns the hash.
fn upload(server: &Server, content: &[u8]) -> String {
    let made = ask(server, &upload_request(content));
    assert_eq!(made.status, 201, "{}", made.body);
    let view = made.json();
    assert_eq!(view["size"], content.len());
    view["blob"].as_str().expect("a hash").to_owned()
}

fn files(named: &[(&str, &str)]) -> Value {
    let file = |(name, blob): &(&str, &str)| json!({ "name": name, "blob": blob });
    named.iter().map(file).collect()
}

/// Sends and waits for the outcome.
fn send(server: &Server, agent: &str, text: &str, files: &Value) -> Answer {
    let path = format!("/v1/agents/{agent}/messages?wait=90");
    let body = json!({ "text": text, "files": files });
    ask(server, &post(&path, &body.to_string()))
}

/// The reply to a message that must be answered.
fn reply(answer: &Answer) -> String {
    let view = answer.json();
    assert_eq!(view["outcome"], "answered", "{view}");
    view["reply"]["text"].as_str().expect("a text").to_owned()
}

fn text(output: &Output) -> String {
    let both = [&output.stdout[..], &output.stderr].concat();
    String::from_utf8_lossy(&both).into_owned()
}

fn utf8(path: &Path) -> &str {
    path.to_str().expect("test paths are UTF-8")
}

/// Every byte, and none that a text tool would keep as it is.
fn odd_bytes() -> Vec<u8> {
    (0..=255u8).cycle().take(300_001).collect()
}

fn sha256(path: &Path) -> String {
    run("sha256sum", &[utf8(path)])[..64].to_owned()
}

/// An answer's body as bytes.
fn fetch(server: &Server, path: &str) -> (String, Vec<u8>) {
    let mut stream = UnixStream::connect(server.data_dir().join("mayfly.sock")).expect("listens");
    stream.write_all(&get(path)).expect("sent");
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).expect("an answer");
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
    let body = bytes.split_off(end.expect("a head") + 4);
    (
        String::from_utf8(bytes).expect("a head").to_lowercase(),
        body,
    )
}

/// Files below a folder.
fn count(folder: PathBuf) -> usize {
    run("find", &[utf8(&folder), "-type", "f"]).lines().count()
}

fn peak_mib(server: &Server) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", server.pid())).expect("it lives");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().next());
    kib.and_then(|kib| kib.parse::<u64>().ok()).expect("VmHWM") / 1024
}

#[test]
fn files_go_in_and_come_back_byte_for_byte() {
    let (server, here) = (docker(), folder());
    let agent = server.agent();
    let (odd, empty) = (here.path().join("odd.bin"), here.path().join("-rf * größe"));
    fs::write(&odd, odd_bytes()).expect("written");
    fs::write(&empty, b"").expect("written");
    let out = here.path().join("out");
    fs::create_dir(&out).expect("made");
    fs::write(out.join("odd.bin"), "mine").expect("written");
    let script = "cd received; stat -c '%u %a %s %n' *; id -u; cat ../first 2>/dev/null; echo x > ../first; \
                  mkdir ../send; cp * ../send";
    let arguments = [
        &["agent", "send", &agent, script][..],
        &[
            "--file",
            utf8(&odd),
            "--file",
            utf8(&empty),
            "--output",
            utf8(&out),
        ],
    ];
    let sent = server.mayfly(&arguments.concat());
    assert!(sent.status.success(), "{}", text(&sent));
    let uid = "1000";
    let said = format!("{uid} 644 0 _rf * größe\n{uid} 644 300001 odd.bin\n{uid}\n");
    assert_eq!(String::from_utf8_lossy(&sent.stdout), said);
    assert!(text(&sent).contains(&format!("file: {}", out.join("odd-2.bin").display())));
    assert_eq!(fs::read(out.join("odd.bin")).expect("kept"), b"mine");
    assert!(fs::read(out.join("odd-2.bin")).expect("saved") == odd_bytes());
    assert_eq!(fs::read(out.join("_rf * größe")).expect("saved"), b"");

    // The view lists both ways, and both are read back.
    let id = server.sql("SELECT id FROM messages");
    let view = ask(&server, &get(&format!("/v1/messages/{id}"))).json();
    let names = |list: &Value| -> Vec<String> {
        let list = list.as_array().expect("a list").iter();
        list.map(|file| file["name"].as_str().expect("a name").to_owned())
            .collect()
    };
    assert_eq!(names(&view["files"]), ["odd.bin", "_rf * größe"]);
    assert_eq!(view["files"][0]["size"], 300_001);
    assert_eq!(view["files"][0]["blob"], sha256(&odd));
    let replied = names(&view["reply"]["files"]);
    let place = replied
        .iter()
        .position(|name| name == "odd.bin")
        .expect("sent");
    for path in ["received/0".to_owned(), format!("files/{place}")] {
        let (head, body) = fetch(&server, &format!("/v1/messages/{id}/{path}"));
        assert!(head.starts_with("http/1.1 200"), "{head}");
        for line in [
            "content-length: 300001",
            "content-type: application/octet-stream",
            "x-content-type-options: nosniff",
            "content-disposition: attachment; filename*=utf-8''odd.bin",
        ] {
            assert!(head.contains(line), "{line}: {head}");
        }
        assert!(body == odd_bytes(), "{path}");
    }
    let (head, body) = fetch(&server, &format!("/v1/messages/{id}/received/1"));
    assert!(
        head.contains("utf-8''_rf%20%2a%20gr%c3%b6%c3%9fe"),
        "{head}"
    );
    assert_eq!(body, b"");
    for wrong in ["received/2", "files/2", "files/x", "received/-1", "files/"] {
        let answer = ask(&server, &get(&format!("/v1/messages/{id}/{wrong}")));
        answer.problem(404, "not-found");
    }
    let nobody = "/v1/messages/01890000-0000-7000-8000-000000000000/received/0";
    ask(&server, &get(nobody)).problem(404, "not-found");
    let tick = server.sql("SELECT id FROM ticks");
    let shown = text(&server.mayfly(&["tick", "show", &tick]));
    assert!(shown.contains("/work/received/odd.bin"), "{shown}");
    server.assert_nothing_left();
}

#[test]
fn standard_input_is_a_file_too() {
    let (server, here) = (docker(), folder());
    let agent = server.agent();
    let input = here.path().join("in");
    fs::write(&input, odd_bytes()).expect("written");
    let sent = server
        .command(&[
            "agent",
            "send",
            &agent,
            "sha256sum < received/stdin",
            "--file",
            "-",
        ])
        .stdin(fs::File::open(&input).expect("readable"))
        .output()
        .expect("it runs");
    assert!(sent.status.success(), "{}", text(&sent));
    assert!(text(&sent).contains(&sha256(&input)), "{}", text(&sent));
    for twice in [
        ["--file", "-", "--file", "-"],
        ["--file", "-", "--key", "k"],
    ] {
        let text_argument = if twice[2] == "--key" { "-" } else { "ls" };
        let refused =
            server.mayfly(&[&["agent", "send", &agent, text_argument], &twice[..]].concat());
        assert_eq!(refused.status.code(), Some(2), "{}", text(&refused));
    }
    let folder = server.mayfly(&["agent", "send", &agent, "ls", "--file", utf8(here.path())]);
    assert_eq!(folder.status.code(), Some(4), "{}", text(&folder));
    assert_eq!(server.sql("SELECT count(*) FROM messages"), "1");
}

#[test]
fn sixty_four_mebibytes_are_never_held_in_memory() {
    let (server, here) = (docker(), folder());
    let agent = server.agent();
    let warm = server.mayfly(&["agent", "send", &agent, "echo warm"]);
    assert!(warm.status.success(), "{}", text(&warm));
    let big = here.path().join("big");
    let line: String = (0..MIB / 16).map(|n| format!("{n:015}\n")).collect();
    fs::write(&big, line.repeat(64)).expect("written");
    let before = peak_mib(&server);
    let sent = server.mayfly(&[
        "agent",
        "send",
        &agent,
        "sha256sum < received/big; mkdir send; head -c 20M received/big > send/part",
        "--file",
        utf8(&big),
        "--output",
        utf8(&here.path().join("out")),
    ]);
    assert!(sent.status.success(), "{}", text(&sent));
    assert!(text(&sent).contains(&sha256(&big)), "{}", text(&sent));
    let part = fs::metadata(here.path().join("out/part")).expect("saved");
    assert_eq!(part.len(), 20 << 20);
    let id = server.sql("SELECT message FROM message_files");
    let (_, body) = fetch(&server, &format!("/v1/messages/{id}/received/0"));
    assert_eq!(body.len(), 64 * MIB);
    assert_eq!(
        server.sql(&format!(
            "SELECT count(*) FROM ticks WHERE message = '{id}'"
        )),
        "1"
    );
    let grown = peak_mib(&server) - before;
    eprintln!("the peak grew by {grown} MiB from {before} MiB");
    assert!(grown < 40, "the peak grew by {grown} MiB from {before} MiB");
}

#[test]
fn hostile_names_stay_names() {
    let server = docker();
    let agent = server.agent();
    let blob = upload(&server, b"x");
    let long = format!("{}.txt", "n".repeat(5000));
    let named = [
        "../../../etc/passwd",
        "/etc/passwd",
        "..",
        "",
        "a\nb\u{0}c\u{1b}[31m",
        "C:\\tmp\\evil.exe",
        "$(touch pwned)",
        &long,
        "\u{202e}gpj.exe",
        ".",
    ]
    .map(|name| (name, blob.as_str()));
    let answer = send(
        &server,
        &agent,
        "ls -1N received; ls -A . / | grep -c pwned",
        &files(&named),
    );
    let answer_text = answer.json()["reply"]["text"]
        .as_str()
        .expect("a text")
        .to_owned();
    let mut seen: Vec<&str> = answer_text.lines().take(named.len()).collect();
    let cut = format!("{}.txt", "n".repeat(196));
    let mut wanted = vec![
        "passwd",
        "passwd-2",
        "file",
        "file-2",
        "abc[31m",
        "evil.exe",
        "$(touch pwned)",
        &cut,
        "gpj.exe",
        "file-3",
    ];
    seen.sort_unstable();
    wanted.sort_unstable();
    assert_eq!(seen, wanted);
    assert!(answer_text.contains("\n0"), "{answer_text}");

    // What an agent calls its files is no better.
    let script = "mkdir send; cd send; touch -- \"$(printf 'a\\033[31m\\nb')\" '..x' '-o' \
                  \"$(printf '\\342\\200\\256gpj.exe')\" gpj.exe; echo ok";
    let view = send(&server, &agent, script, &json!([])).json();
    let sent = view["reply"]["files"].as_array().expect("files");
    let mut sent: Vec<&str> = sent
        .iter()
        .filter_map(|file| file["name"].as_str())
        .collect();
    sent.sort_unstable();
    assert_eq!(sent, ["..x", "_o", "a[31mb", "gpj-2.exe", "gpj.exe"]);
}

#[test]
fn what_does_not_fit_is_refused_in_a_sentence_and_leaves_nothing() {
    let mut server = Server::simulated(PROGRAM)
        .env("MAYFLY__ATTACHMENTS__FILE_MIB", "1")
        .env("MAYFLY__ATTACHMENTS__FILES", "2")
        .env("MAYFLY__ATTACHMENTS__MESSAGE_MIB", "1");
    server.start();
    let agent = server.agent();
    let blobs = server.data_dir().join("blobs");
    let socket = server.data_dir().join("mayfly.sock");
    // The announced length alone is enough.
    let head = "POST /v1/blobs HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
                content-type: application/octet-stream\r\n";
    let begin = |rest: &str| {
        let mut stream = UnixStream::connect(&socket).expect("listens");
        let patience = Some(Duration::from_secs(60));
        stream.set_read_timeout(patience).expect("a time-out");
        stream
            .write_all(format!("{head}{rest}\r\n").as_bytes())
            .expect("sent");
        stream
    };
    let told = http::read(begin("content-length: 99999999999\r\n")).problem(413, "too-large");
    assert!(
        told.contains("1 MiB") && told.contains("attachments.file_mib"),
        "{told}"
    );
    // Without one, the bytes count.
    let mut chunked = begin("transfer-encoding: chunked\r\n");
    let piece = [
        format!("{:x}\r\n", MIB).into_bytes(),
        vec![b'x'; MIB],
        b"\r\n".to_vec(),
    ]
    .concat();
    for _ in 0..2 {
        let _ = chunked.write_all(&piece);
    }
    http::read(chunked).problem(413, "too-large");
    // A connection that ends in the middle.
    let mut half = begin("content-length: 1000000\r\n");
    half.write_all(&[b'x'; 500_000]).expect("sent");
    drop(half);
    for kind in ["application/json", "text/plain", "multipart/form-data"] {
        let head = format!("POST /v1/blobs\ncontent-type: {kind}");
        ask(&server, &request(&head, b"x")).problem(415, "media-type");
    }
    ask(&server, &request("POST /v1/blobs", b"x")).problem(415, "media-type");
    let deadline = Instant::now() + Duration::from_secs(20);
    while count(blobs.clone()) > 0 {
        assert!(
            Instant::now() < deadline,
            "{}",
            run("find", &[utf8(&blobs)])
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(server.sql("SELECT count(*) FROM uploads"), "0");

    let (one, two) = (upload(&server, &vec![b'a'; MIB]), upload(&server, b"b"));
    let unknown = "0".repeat(64);
    let twice = [("a", one.as_str()), ("b", two.as_str())];
    let told = send(&server, &agent, "ls", &files(&twice)).problem(413, "too-large");
    assert!(
        told.contains("1048577 bytes") && told.contains("attachments.message_mib"),
        "{told}"
    );
    let three = [("a", two.as_str()); 3];
    let told = send(&server, &agent, "ls", &files(&three)).problem(400, "invalid");
    assert!(told.contains("3 files, at most 2"), "{told}");
    let told = send(&server, &agent, "ls", &files(&[("a", &unknown)])).problem(409, "conflict");
    assert!(
        told.contains(&unknown) && told.contains("upload it first"),
        "{told}"
    );
    for bad in [
        json!([{ "name": "a", "blob": "../../token" }]),
        json!([{ "name": "a", "blob": one.to_uppercase() }]),
        json!([{ "name": "a" }]),
        json!([{ "name": "a", "blob": two, "path": "/etc/passwd" }]),
        json!({ "name": "a", "blob": two }),
    ] {
        send(&server, &agent, "ls", &bad).problem(400, "invalid");
    }
    let here = folder();
    let big = here.path().join("big");
    fs::write(&big, vec![b'a'; MIB + 1]).expect("written");
    let refused = server.mayfly(&["agent", "send", &agent, "ls", "--file", utf8(&big)]);
    assert_eq!(refused.status.code(), Some(4), "{}", text(&refused));
    assert!(
        text(&refused).contains("attachments.file_mib"),
        "{}",
        text(&refused)
    );
    assert_eq!(server.sql("SELECT count(*) FROM messages"), "0");
    // What an agent wrote into its reply was never uploaded: its hash opens nothing.
    let view = send(
        &server,
        &agent,
        "mkdir -p send; echo secret > send/a; echo ok",
        &json!([]),
    );
    let reply = view.json()["reply"]["files"][0]["blob"].clone();
    let told = send(
        &server,
        &agent,
        "ls",
        &files(&[("a", reply.as_str().expect("a hash"))]),
    );
    told.problem(409, "conflict");
    assert_eq!(server.sql("SELECT count(*) FROM messages"), "1");
    assert_eq!(server.sql("SELECT count(*) FROM message_files"), "0");
}

#[test]
fn an_upload_that_stands_still_is_given_up() {
    let mut server = Server::simulated(PROGRAM);
    server.start();
    let mut stream = UnixStream::connect(server.data_dir().join("mayfly.sock")).expect("listens");
    let patience = Some(Duration::from_secs(90));
    stream.set_read_timeout(patience).expect("a time-out");
    let head = "POST /v1/blobs HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10000000\r\n\
                content-type: application/octet-stream\r\n\r\n";
    stream.write_all(head.as_bytes()).expect("sent");
    stream.write_all(&[b'x'; 100_000]).expect("sent");
    let began = Instant::now();
    http::read(stream).problem(408, "timeout");
    let took = began.elapsed().as_secs();
    assert!((25..60).contains(&took), "{took} s");
    assert_eq!(server.sql("SELECT count(*) FROM uploads"), "0");
}

#[test]
fn a_message_is_the_same_only_with_the_same_files() {
    let mut server = Server::simulated(PROGRAM);
    server.start();
    let agent = server.agent();
    let (one, two) = (upload(&server, b"one"), upload(&server, b"two"));
    assert_eq!(one, upload(&server, b"one"));
    let send = |files: &Value| {
        let head = format!(
            "POST /v1/agents/{agent}/messages?wait=60\ncontent-type: application/json\n\
             idempotency-key: k"
        );
        let body = json!({ "text": "cat received/a", "files": files });
        ask(&server, &request(&head, body.to_string().as_bytes()))
    };
    let first = send(&files(&[("a", &one)]));
    assert_eq!(reply(&first), "one");
    assert_eq!(first.json(), send(&files(&[("a", &one)])).json());
    for other in [files(&[("a", &two)]), files(&[("b", &one)]), json!([])] {
        send(&other).problem(409, "conflict");
    }
    assert_eq!(server.sql("SELECT count(*) FROM messages"), "1");
    assert_eq!(server.sql("SELECT count(*) FROM message_files"), "1");
    // A file alone is a message.
    let path = format!("/v1/agents/{agent}/messages?wait=60");
    let alone = json!({ "text": "", "files": files(&[("a", &one)]) });
    let view = ask(&server, &post(&path, &alone.to_string())).json();
    assert_eq!(view["outcome"], "noticed", "{view}");
    ask(&server, &post(&path, r#"{"text":""}"#)).problem(400, "invalid");
}

#[test]
fn received_holds_what_the_last_message_with_files_brought() {
    let server = docker();
    let agent = server.agent();
    let (one, two) = (upload(&server, b"one\n"), upload(&server, b"two\n"));
    let say =
        |text: &str, named: &[(&str, &str)]| reply(&send(&server, &agent, text, &files(named)));
    assert_eq!(
        say("cat received/*", &[("a", &one), ("b", &one)]),
        "one\none"
    );
    assert_eq!(say("ls received", &[]), "a\nb");
    assert_eq!(say("ls received; cat received/c", &[("c", &two)]), "c\ntwo");
    // The agent may put anything in the folder's place: it is replaced, and nothing behind it moves.
    let mine = "mkdir mine; echo keep > mine/a; rm -r received; ln -s mine received; echo ok";
    assert_eq!(say(mine, &[]), "ok");
    assert_eq!(
        say("cat received/a mine/a; stat -c %F received", &[("a", &one)]),
        "one\nkeep\ndirectory"
    );
    let shut = "mkdir -p received/x/y; touch received/x/y/z; chmod 0 received/x/y received/x received; echo ok";
    assert_eq!(say(shut, &[]), "ok");
    assert_eq!(say("find received -type f", &[("a", &one)]), "received/a");
    assert_eq!(
        say(
            "p=$(printf 'd/%.0s' $(seq 1900)); mkdir -p received/$p e/$p g/$p; cd received/$p; mv /work/e .; \
             cd e/$p; mv /work/g .; echo deep",
            &[]
        ),
        "deep"
    );
    assert_eq!(say("find received -type f", &[("a", &one)]), "received/a");
    assert_eq!(
        say("rm -r received; echo plain > received; echo ok", &[]),
        "ok"
    );
    assert_eq!(say("find received -type f", &[("a", &one)]), "received/a");
    // Rolled back, the files of then are there.
    let ticks = server.sql("SELECT id FROM ticks ORDER BY id");
    let third = ticks.lines().nth(2).expect("three ticks").to_owned();
    server.json(&["agent", "rollback", &agent, &third]);
    assert_eq!(say("cat received/c", &[]), "two");
    server.assert_nothing_left();
}

#[test]
fn a_tick_that_fails_still_shows_its_files() {
    let mut server = Server::new(PROGRAM)
        .env("MAYFLY__PROFILES__SHELL__LIMITS__STATE_MIB", "4")
        .env("MAYFLY__PROFILES__SHELL__LIMITS__FILE_MIB", "2");
    server.start();
    let agent = server.agent();
    let blob = upload(&server, b"x");
    for script in ["exit 3", "kill -9 $$", "cat received/a; false"] {
        let view = send(&server, &agent, script, &files(&[("a", &blob)])).json();
        assert_eq!(view["outcome"], "noticed", "{view}");
        assert_eq!(
            view["files"],
            json!([{ "name": "a", "blob": blob, "size": 1 }])
        );
        let id = view["id"].as_str().expect("an id");
        let (_, body) = fetch(&server, &format!("/v1/messages/{id}/received/0"));
        assert_eq!(body, b"x");
    }
    // Accepted, and then too much for what the agent may keep: told at once, not tried again.
    let big = upload(&server, &vec![b'a'; 2 * MIB + 1]);
    let (half, more) = (
        upload(&server, &vec![b'a'; 2 * MIB]),
        upload(&server, &vec![b'b'; 2 * MIB]),
    );
    for (named, limit) in [
        (vec![("a", &*big)], "limits.file_mib = 2"),
        (
            vec![("a", &*half), ("b", &*more), ("c", &*blob)],
            "limits.state_mib = 4",
        ),
    ] {
        let view = send(&server, &agent, "echo ran", &files(&named)).json();
        assert_eq!(view["outcome"], "noticed", "{view}");
        let told = view["reply"]["text"].as_str().expect("a notice");
        assert!(
            told.contains(limit) && told.contains("changes discarded"),
            "{told}"
        );
        assert_eq!(view["attempts"], 0);
    }
    // A file that is lost is our fault: it is tried again, then parked.
    let lost = upload(&server, b"lost");
    fs::remove_file(server.data_dir().join("blobs").join(&lost[..2]).join(&lost)).expect("there");
    let view = send(&server, &agent, "echo ran", &files(&[("a", &lost)])).json();
    assert_eq!(view["outcome"], "parked", "{view}");
    server.assert_nothing_left();
}

#[test]
fn only_what_nothing_names_is_collected() {
    let mut server = Server::simulated(PROGRAM);
    server.start();
    let agent = server.agent();
    let (named, unnamed) = (upload(&server, b"named"), upload(&server, b"unnamed"));
    assert_eq!(
        reply(&send(
            &server,
            &agent,
            "cat received/a",
            &files(&[("a", &named)])
        )),
        "named"
    );
    let place = |blob: &str| server.data_dir().join("blobs").join(&blob[..2]).join(blob);
    let gc = |how: &[&str]| server.json(&[&["gc"], how].concat())["blobs"].clone();
    for blob in [&named, &unnamed] {
        run("touch", &["-d", "3 days ago", utf8(&place(blob))]);
    }
    assert_eq!(gc(&[]), 0, "it was uploaded just now");
    let database = server.data_dir().join("mayfly.db");
    engine::change(
        &database,
        "UPDATE uploads SET uploaded_at = uploaded_at - 23 * 3600000",
    );
    assert_eq!(gc(&[]), 0, "a day is not over");
    engine::change(
        &database,
        "UPDATE uploads SET uploaded_at = uploaded_at - 2 * 3600000",
    );
    assert_eq!(gc(&["--dry-run"]), 1);
    assert!(place(&unnamed).exists());
    assert_eq!(gc(&[]), 1);
    assert!(!place(&unnamed).exists() && place(&named).exists());
    let told = send(&server, &agent, "ls", &files(&[("a", &unnamed)])).problem(409, "conflict");
    assert!(told.contains("upload it first"), "{told}");
    // Again it counts from the new upload, and the named one may be named again.
    assert_eq!(upload(&server, b"unnamed"), unnamed);
    assert_eq!(gc(&[]), 0);
    let both = [("a", unnamed.as_str()), ("b", named.as_str())];
    assert_eq!(
        reply(&send(
            &server,
            &agent,
            "cat received/a received/b",
            &files(&both)
        )),
        "unnamednamed"
    );
}

#[test]
fn a_backup_brings_files_both_ways() {
    let (server, here) = (docker(), folder());
    let agent = server.agent();
    let blob = upload(&server, &odd_bytes());
    let unnamed = upload(&server, b"unnamed");
    let script = "mkdir send; cp received/a send/b; echo ok";
    let view = send(&server, &agent, script, &files(&[("a", &blob)])).json();
    assert_eq!(view["outcome"], "answered", "{view}");
    let id = view["id"].as_str().expect("an id");
    let backup = here.path().join("backup");
    let taken = server.mayfly(&["backup", utf8(&backup)]);
    assert!(taken.status.success(), "{}", text(&taken));
    let mut restored = Server::new(PROGRAM);
    fs::create_dir(restored.data_dir()).expect("made");
    fs::set_permissions(restored.data_dir(), fs::Permissions::from_mode(0o700)).expect("ours");
    let back = restored.mayfly(&["restore", utf8(&backup)]);
    assert!(back.status.success(), "{}", text(&back));
    restored.start();
    for path in ["received/0", "files/0"] {
        let (head, body) = fetch(&restored, &format!("/v1/messages/{id}/{path}"));
        assert!(head.starts_with("http/1.1 200"), "{path}: {head}");
        assert!(body == odd_bytes(), "{path}");
    }
    assert_eq!(
        reply(&send(&restored, &agent, "wc -c < received/a", &json!([]))),
        "300001"
    );
    assert_eq!(
        reply(&send(
            &restored,
            &agent,
            "ls received",
            &files(&[("c", &blob)])
        )),
        "c"
    );
    send(&restored, &agent, "ls", &files(&[("a", &unnamed)])).problem(409, "conflict");
}
