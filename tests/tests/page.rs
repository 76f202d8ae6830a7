//! The page's door and its forms from outside: who may pass, what other pages can make a browser do,
//! and that what agents and people write stays text.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    net::TcpStream,
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use mayfly_tests::{
    http::{Answer, get, on_socket, on_tcp, post, request},
    server::{Server, pass_environment},
};
use serde_json::json;

const HOSTILE: &str = "<script>steal()</script><img src=x onerror=steal()>\" onclick='steal()'";

fn started() -> Server {
    let mut server = Server::simulated(env!("CARGO_BIN_EXE_mayfly-under-test"));
    server.start();
    server
}

fn ask(server: &Server, method_and_path: &str, lines: &[&str]) -> Answer {
    let head = format!("{method_and_path}\n{}", lines.join("\n"));
    on_tcp(&server.address(), &request(&head, b""))
}

/// The path of a new link.
fn link(server: &Server) -> String {
    let view = server.json(&["page"]);
    assert_eq!(view["valid_s"], 600);
    let link = view["link"].as_str().expect("a link").to_owned();
    let base = format!("http://{}", server.address());
    link.strip_prefix(&base)
        .expect("its own address")
        .to_owned()
}

/// A browser that is signed in.
struct SignedIn<'a> {
    server: &'a Server,
    cookie: String,
    form_key: String,
}

impl<'a> SignedIn<'a> {
    fn new(server: &'a Server) -> Self {
        let opened = ask(server, &format!("GET {}", link(server)), &[]);
        assert_eq!(opened.status, 303, "{}", opened.body);
        let set = opened.header("set-cookie").expect("a cookie");
        let cookie = set.split(';').next().expect("its pair");
        let mut signed_in = SignedIn {
            server,
            cookie: format!("cookie: {cookie}"),
            form_key: String::new(),
        };
        let page = signed_in.get("/");
        assert_eq!(page.status, 200, "{}", page.body);
        let (_, rest) = page
            .body
            .split_once("name=\"form_key\" value=\"")
            .expect("a form");
        signed_in.form_key = rest[..64].to_owned();
        signed_in
    }

    fn get(&self, path: &str) -> Answer {
        ask(self.server, &format!("GET {path}"), &[&self.cookie])
    }

    fn origin(&self) -> String {
        format!("origin: http://{}", self.server.address())
    }

    /// With headers of one's own.
    fn post_as(&self, path: &str, lines: &[&str], fields: &str) -> Answer {
        let host = format!("host: {}", self.server.address());
        let kind = "content-type: application/x-www-form-urlencoded";
        let lines = [&[host.as_str(), kind, &self.cookie], lines].concat();
        let head = format!("POST {path}\n{}", lines.join("\n"));
        on_tcp(&self.server.address(), &request(&head, fields.as_bytes()))
    }

    /// As the page's own forms do.
    fn post(&self, path: &str, fields: &str) -> Answer {
        let fields = format!("form_key={}&{fields}", self.form_key);
        self.post_as(path, &[&self.origin()], &fields)
    }

    fn new_agent(&self) -> String {
        let made = self.post("/agents", "profile=shell");
        assert_eq!(made.status, 303, "{}", made.body);
        made.header("location").expect("its page").to_owned()
    }
}

fn count(server: &Server, table: &str) -> String {
    server.sql(&format!("SELECT count(*) FROM {table}"))
}

fn say(server: &Server, agent: &str, text: &str) {
    let path = format!("/v1{agent}/messages?wait=60");
    let body = json!({ "text": text }).to_string();
    let said = on_socket(server.data_dir(), &post(&path, &body));
    assert_eq!(said.status, 200, "{}", said.body);
}

#[test]
fn a_link_is_good_once_and_leaves_no_trace() {
    let server = started();
    let link = link(&server);
    let enter = |lines: &[&str]| ask(&server, &format!("GET {link}"), lines);
    for ahead in [
        "sec-purpose: prefetch",
        "sec-purpose: prefetch;prerender",
        "purpose: prefetch",
        "sec-fetch-dest: iframe",
        "sec-fetch-dest: image",
    ] {
        assert_eq!(enter(&[ahead]).status, 204, "{ahead}");
    }
    assert_eq!(ask(&server, &format!("HEAD {link}"), &[]).status, 204);
    enter(&["host: evil.test"])
        .header("set-cookie")
        .ok_or(())
        .unwrap_err();
    let opened = enter(&["sec-fetch-dest: document"]);
    assert_eq!(opened.status, 303);
    assert_eq!(opened.header("location"), Some("/"));
    assert_eq!(opened.header("referrer-policy"), Some("no-referrer"));
    assert_eq!(opened.header("cache-control"), Some("no-store"));
    let set: Vec<&str> = opened
        .header("set-cookie")
        .expect("a cookie")
        .split("; ")
        .collect();
    let port = server
        .address()
        .rsplit(':')
        .next()
        .expect("a port")
        .to_owned();
    let (name, secret) = set[0].split_once('=').expect("a pair");
    assert_eq!(name, format!("mayfly-{port}"));
    assert_eq!(set[1..], ["Path=/", "HttpOnly", "SameSite=Strict"]);
    let token = std::fs::read_to_string(server.data_dir().join("token")).expect("a token");
    assert_eq!(secret.len(), 64);
    assert!(secret != token.trim() && !link.contains(secret), "{secret}");

    let again = enter(&[]);
    assert_eq!((again.status, again.header("set-cookie")), (401, None));
    assert!(
        again
            .body
            .contains("<code>mayfly page</code> prints a new one"),
        "{}",
        again.body
    );
    let made_up = format!("GET /login?key={}", "0".repeat(64));
    assert_eq!(ask(&server, &made_up, &[]).body.len(), again.body.len());
    let back = enter(&[&format!("cookie: {}", set[0])]);
    assert_eq!((back.status, back.header("set-cookie")), (303, None));
}

#[test]
fn nothing_is_shown_without_a_session() {
    let mut server = started();
    let agent = SignedIn::new(&server).new_agent();
    let id = agent.rsplit('/').next().expect("an id").to_owned();
    let token = std::fs::read_to_string(server.data_dir().join("token")).expect("a token");
    let bearer = format!("authorization: Bearer {}", token.trim());
    let port = server
        .address()
        .rsplit(':')
        .next()
        .expect("a port")
        .to_owned();
    let wrong = format!(
        "cookie: mayfly-{port}={}; mayfly={}",
        "0".repeat(64),
        token.trim()
    );
    let empty = format!("cookie: mayfly-{port}=");
    for lines in [&[][..], &[bearer.as_str()], &[&wrong], &[&empty]] {
        for path in [
            "/",
            &agent,
            &format!("{agent}/rollback"),
            &format!("{agent}/fork"),
            "/ticks/1",
            "/page/style.css",
            "/page/page.js",
            "/page/icon.svg",
            "/healthz/../",
        ] {
            for method in ["GET", "POST"] {
                let refused = ask(&server, &format!("{method} {path}"), lines);
                assert!(
                    [401, 404].contains(&refused.status),
                    "{path}: {}",
                    refused.status
                );
                assert!(path.contains("..") || refused.status == 401, "{path}");
                assert!(
                    !refused.body.contains(&id[28..]),
                    "{path}: {}",
                    refused.body
                );
            }
        }
    }
    let told = ask(&server, "GET /", &[]);
    assert!(told.body.contains("mayfly page"), "{}", told.body);
    assert!(
        !told.body.contains("http-equiv=\"refresh\""),
        "it would go on for ever"
    );
    let elsewhere = ask(&server, "GET /", &["sec-fetch-site: cross-site"]);
    assert!(
        elsewhere
            .body
            .contains("http-equiv=\"refresh\" content=\"0; url=/\"")
    );
    assert_eq!(ask(&server, "GET /healthz", &[]).body, "ok\n");
    assert!(ask(&server, "GET /readyz", &[]).json()["ready"].is_boolean());

    let signed_in = SignedIn::new(&server);
    assert_eq!(signed_in.get(&agent).status, 200);
    signed_in.get("/v1/agents").problem(401, "unauthorized");
    let secret = signed_in
        .cookie
        .rsplit('=')
        .next()
        .expect("a secret")
        .to_owned();
    let out = signed_in.post("/logout", "");
    assert!(
        out.header("set-cookie")
            .is_some_and(|set| set.contains("Max-Age=0"))
    );
    assert_eq!(signed_in.get("/").status, 401);

    let kept = SignedIn::new(&server)
        .cookie
        .rsplit('=')
        .next()
        .expect("a secret")
        .to_owned();
    assert_ne!(kept, secret);
    server.stop();
    server.start();
    let port = server
        .address()
        .rsplit(':')
        .next()
        .expect("a port")
        .to_owned();
    let old = format!("cookie: mayfly-{port}={kept}");
    assert_eq!(
        ask(&server, "GET /", &[&old]).status,
        401,
        "a restart ends sessions"
    );
}

#[test]
fn only_the_pages_own_forms_do_anything() {
    let server = started();
    let me = SignedIn::new(&server);
    let agent = me.new_agent();
    let other = SignedIn::new(&server);
    let fields = format!("form_key={}&profile=shell&text=true", me.form_key);
    let port: u16 = server
        .address()
        .rsplit(':')
        .next()
        .expect("a port")
        .parse()
        .expect("a number");
    let next_port = format!("origin: http://127.0.0.1:{}", port.wrapping_add(1));
    let paths = [
        "/agents".to_owned(),
        format!("{agent}/messages"),
        format!("{agent}/rollback"),
        format!("{agent}/fork"),
        format!("{agent}/stop"),
        "/messages/1/retry".to_owned(),
        "/logout".to_owned(),
    ];
    let ours = me.origin();
    for path in &paths {
        for lines in [
            &[][..],
            &["origin: null"],
            &["origin: http://evil.test"],
            &[&next_port],
            &["sec-fetch-site: cross-site"],
            &["sec-fetch-site: same-site"],
            &["sec-fetch-site: none"],
            &[ours.as_str(), "sec-fetch-site: cross-site"],
            &["origin: null", "sec-fetch-site: same-origin"],
        ] {
            let refused = me.post_as(path, lines, &fields);
            assert_eq!(refused.status, 403, "{path} {lines:?}: {}", refused.body);
            assert!(
                refused.body.contains("nothing was done"),
                "{}",
                refused.body
            );
        }
        for key in ["", &other.form_key, &"0".repeat(64)] {
            let fields = format!("form_key={key}&profile=shell&text=true");
            let refused = me.post_as(path, &[&ours], &fields);
            assert_eq!(refused.status, 403, "{path} {key}: {}", refused.body);
        }
        if path.ends_with("/messages") {
            let form = |key: &str| {
                let part = |name: &str, text: &str| {
                    format!("--x\r\ncontent-disposition: form-data; name={name}\r\n\r\n{text}\r\n")
                };
                let file = part("files; filename=f", "content");
                [
                    part("form_key", key),
                    file,
                    part("text", "true"),
                    "--x--\r\n".to_owned(),
                ]
                .concat()
            };
            for body in [form(""), form(&other.form_key), form("").split_off(60)] {
                let host = format!("host: {}", server.address());
                let head = format!("POST {path}\n{host}\n{ours}\n{}", me.cookie);
                let head = format!("{head}\ncontent-type: multipart/form-data; boundary=x");
                let refused = on_tcp(&server.address(), &request(&head, body.as_bytes()));
                assert!([400, 403].contains(&refused.status), "{}", refused.body);
            }
            let blobs = server.data_dir().join("blobs");
            let kept = std::fs::read_dir(blobs).map_or(0, |blobs| blobs.count());
            assert_eq!(kept, 0, "nothing is stored for others");
        }
        let rebound = "host: evil.test";
        let head = format!(
            "POST {path}\n{rebound}\norigin: http://evil.test\n{}",
            me.cookie
        );
        let head = format!("{head}\ncontent-type: application/x-www-form-urlencoded");
        let refused = on_tcp(&server.address(), &request(&head, fields.as_bytes()));
        assert_eq!(refused.status, 403, "{path}: {}", refused.body);
        // A GET of the same asks at most.
        let asked = me.get(path);
        assert!(
            [200, 405].contains(&asked.status),
            "{path}: {}",
            asked.status
        );
    }
    let read = ask(&server, "GET /", &["host: evil.test", &me.cookie]);
    assert_eq!(read.status, 403, "a name that was made to resolve here");
    assert!(!read.body.contains(&agent));
    let made = ["agents", "messages", "ticks"].map(|table| count(&server, table));
    assert_eq!(made, ["1", "0", "0"]);

    assert_eq!(me.get("/").status, 200, "nobody was signed out");
    let sent = me.post(
        &format!("{agent}/messages"),
        "text=echo+a%0D%0Aecho+b&once=page:1",
    );
    assert_eq!(sent.status, 303, "{}", sent.body);
    me.post(
        &format!("{agent}/messages"),
        "text=echo+a%0D%0Aecho+b&once=page:1",
    );
    assert_eq!(
        server.sql("SELECT text FROM messages"),
        "echo a\necho b",
        "once, as it was typed"
    );
    let quiet = me.post_as("/agents", &["sec-fetch-site: same-origin"], &fields);
    assert_eq!(
        quiet.status, 303,
        "a browser that sends no origin to its own: {}",
        quiet.body
    );
}

#[test]
fn what_is_written_stays_text() {
    let server = started();
    let me = SignedIn::new(&server);
    let agent = me.new_agent();
    let quoted = HOSTILE.replace('\'', "'\\''");
    say(&server, &agent, &format!("echo '{quoted}' > f; cat f"));
    let named = HOSTILE.replace('/', "_").replace('\'', "'\\''");
    say(
        &server,
        &agent,
        &format!("echo x > '{named}'; echo '{quoted}' >&2; exit 3"),
    );
    let pages = [
        agent.clone(),
        format!("/ticks/{}", server.sql("SELECT min(id) FROM ticks")),
        format!("/ticks/{}", server.sql("SELECT max(id) FROM ticks")),
        format!(
            "/ticks/{}/rollback",
            server.sql("SELECT min(id) FROM ticks")
        ),
        format!("/ticks/{}/fork", server.sql("SELECT max(id) FROM ticks")),
    ];
    for path in &pages {
        let page = me.get(path);
        assert_eq!(page.status, 200, "{path}: {}", page.body);
        assert!(
            page.body.contains("&lt;script&gt;steal()"),
            "{path}: {}",
            page.body
        );
        for mark in ["<script>", "<img", "\" onclick"] {
            assert!(!page.body.contains(mark), "{path} {mark}: {}", page.body);
        }
        guarded(&page);
    }
    let [first, second] = [&pages[1], &pages[2]].map(|path| me.get(path).body);
    assert!(
        first.contains("<span class=\"add\">+&lt;script&gt;"),
        "{first}"
    );
    let shown = "<h3>&quot;work/&lt;script&gt;steal()&lt;_script&gt;&lt;img src=x";
    assert!(second.contains(shown), "{second}");
    let refused = me.post(&format!("{agent}/rollback"), "to=%3Cscript%3E");
    assert_eq!(refused.status, 404);
    assert!(!refused.body.contains("<script>"), "{}", refused.body);
    guarded(&refused);
    guarded(&ask(&server, "GET /", &[]));
    guarded(&ask(&server, "GET /login?key=%3Cscript%3E", &[]));
}

/// Whatever got into a page, a browser does nothing with it.
fn guarded(page: &Answer) {
    let header = |name: &str| page.header(name).unwrap_or_default();
    let policy = header("content-security-policy");
    assert!(policy.starts_with("default-src 'none'; "), "{policy}");
    assert!(
        !policy.contains("unsafe") && !policy.contains('*'),
        "{policy}"
    );
    for rule in ["frame-ancestors 'none'", "base-uri 'none'", "form-action '"] {
        assert!(policy.contains(rule), "{policy}");
    }
    assert_eq!(header("x-content-type-options"), "nosniff");
    assert_eq!(header("cache-control"), "no-store");
    assert!(["same-origin", "no-referrer"].contains(&header("referrer-policy")));
    assert!(
        header("content-type").starts_with("text/html"),
        "{:?}",
        page.headers
    );
}

#[test]
fn a_message_that_is_refused_is_not_lost() {
    let server = started();
    let me = SignedIn::new(&server);
    let agent = me.new_agent();
    let refused = me.post(
        &format!("{agent}/messages"),
        "text=a%00%3Ctextarea%3E&once=page:1",
    );
    assert_eq!(refused.status, 400);
    assert!(
        refused.body.contains("&lt;textarea&gt;</textarea>"),
        "{}",
        refused.body
    );
    let long = format!("text={}", "a".repeat((1 << 20) + 1));
    let refused = me.post(&format!("{agent}/messages"), &long);
    assert_eq!(refused.status, 413, "{}", &refused.body[..2000]);
    assert_eq!(count(&server, "messages"), "0");
    let huge = format!("text={}", "a".repeat(8 << 20));
    assert_eq!(me.post(&format!("{agent}/messages"), &huge).status, 413);
}

#[test]
fn a_link_is_for_whoever_opens_the_socket() {
    let mut server = started();
    let token = std::fs::read_to_string(server.data_dir().join("token")).expect("a token");
    let head = format!(
        "POST /v1/page-link\ncontent-type: application/json\nauthorization: Bearer {}",
        token.trim()
    );
    on_tcp(&server.address(), &request(&head, b"{}")).problem(404, "not-found");
    server.stop();
    assert!(
        !server.log().contains("/login"),
        "a log is read by others: {}",
        server.log()
    );
    assert!(
        server.log().contains("mayfly page prints a link"),
        "{}",
        server.log()
    );
    let nobody = server.mayfly(&["page"]);
    let told = String::from_utf8_lossy(&nobody.stderr);
    assert_eq!(nobody.status.code(), Some(7), "{told}");
    assert!(told.contains("start mayfly serve"), "{told}");
    server.set_env("MAYFLY__HTTP__LISTEN", "off");
    server.start();
    let off = server.mayfly(&["page"]);
    let told = String::from_utf8_lossy(&off.stderr);
    assert_eq!(off.status.code(), Some(4), "{told}");
    assert!(told.contains("http.listen is off"), "{told}");
    let _ = on_socket(server.data_dir(), &get("/")).problem(404, "not-found");
}

#[test]
fn a_terminal_is_told_the_link() {
    let server = Server::simulated(env!("CARGO_BIN_EXE_mayfly-under-test"));
    let serve = server.command(&["serve", "--simulate"]);
    let words: Vec<String> = [serve.get_program()]
        .into_iter()
        .chain(serve.get_args())
        .map(|word| word.to_str().expect("UTF-8").to_owned())
        .collect();
    let log = tempfile::NamedTempFile::new().expect("a file");
    let mut script = Command::new("script");
    script
        .args([
            "--quiet",
            "--flush",
            "--return",
            "--command",
            &format!("exec {}", words.join(" ")),
        ])
        .arg(log.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    pass_environment(&serve, &mut script);
    let mut script = script
        .spawn()
        .expect("script is installed: tests/run does it");
    let deadline = Instant::now() + Duration::from_secs(60);
    let link = loop {
        let text = std::fs::read_to_string(log.path()).unwrap_or_default();
        let found = text.split("within ten minutes: ").nth(1);
        if let Some((link, _)) = found.and_then(|rest| rest.split_once(char::is_whitespace)) {
            break link.to_owned();
        }
        assert!(Instant::now() < deadline, "{text}");
        std::thread::sleep(Duration::from_millis(50));
    };
    let (address, path) = link["http://".len()..].split_once('/').expect("a path");
    let opened = on_tcp(address, &get(&format!("/{path}")));
    let _ = script.kill();
    let _ = script.wait();
    assert_eq!(opened.status, 303, "{}", opened.body);
}

/// A form's head and the first bytes of its file.
fn begun_form(me: &SignedIn<'_>, agent: &str) -> TcpStream {
    let server = me.server;
    let mut form = TcpStream::connect(server.address()).expect("listens");
    let patience = Some(Duration::from_secs(90));
    form.set_read_timeout(patience).expect("a time-out");
    let head = format!(
        "POST {agent}/messages HTTP/1.1\r\nhost: {}\r\n{}\r\n{}\r\n\
         content-type: multipart/form-data; boundary=x\r\ncontent-length: 1000000\r\n\r\n\
         --x\r\ncontent-disposition: form-data; name=form_key\r\n\r\n{}\r\n\
         --x\r\ncontent-disposition: form-data; name=files; filename=f\r\n\r\n{}",
        server.address(),
        me.origin(),
        me.cookie,
        me.form_key,
        "slow".repeat(100),
    );
    form.write_all(head.as_bytes()).expect("sent");
    form
}

/// Forms whose files dribble do not keep others from uploading.
#[test]
fn a_file_that_dribbles_is_given_up() {
    let server = started();
    let me = SignedIn::new(&server);
    let agent = format!("/agents/{}", server.agent());
    let incoming = server.data_dir().join("blobs/incoming");
    let forms: Vec<TcpStream> = (0..8).map(|_| begun_form(&me, &agent)).collect();
    let began = Instant::now();
    server.until("all uploads are under way", || {
        let count = std::fs::read_dir(&incoming).map_or(0, |files| files.count());
        (count == 8).then_some(()).ok_or(format!("{count}"))
    });
    let upload = || {
        let head = "POST /v1/blobs\ncontent-type: application/octet-stream";
        on_socket(server.data_dir(), &request(head, b"content"))
    };
    let told = upload().problem(503, "unavailable");
    assert!(told.contains("8 files are on their way in"), "{told}");
    let took = began.elapsed().as_secs();
    assert!(took < 25, "a turn is waited for a little: {took} s");
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                for mut form in &forms {
                    // It may be closed by now.
                    let _ = form.write_all(b"y");
                }
                std::thread::sleep(Duration::from_millis(500));
            }
        });
        let answers = forms.iter().map(first_line);
        let answers: Vec<String> = answers.take_while(|line| !line.is_empty()).collect();
        ended.store(true, Ordering::Relaxed);
        assert_eq!(answers.len(), 8, "all are given up");
        for answer in answers {
            assert!(answer.starts_with("HTTP/1.1 408"), "{answer:?}");
        }
    });
    let took = began.elapsed().as_secs();
    assert!((25..80).contains(&took), "{took} s");
    assert_eq!(upload().status, 201);
    assert_eq!(count(&server, "messages"), "0");
}

/// Empty if none comes.
fn first_line(stream: &TcpStream) -> String {
    let mut line = String::new();
    let _ = BufReader::new(stream).read_line(&mut line);
    line
}
