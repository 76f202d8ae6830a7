//! The listener for requests of platforms: what they signed is stored before it is answered, everything
//! else is refused, and nothing but their paths is there.

use std::{
    io::Write as _,
    net::TcpStream,
    time::{Duration, Instant},
};

use mayfly_adapters::clock::unix_ms;
use mayfly_tests::{
    conversation::{Conversation, on_slack_by_requests, on_telegram_by_requests},
    fake::{Served, wait_for},
    fake_slack::{self, FakeSlack, signed},
    fake_telegram::{self, FakeTelegram, Person},
    http::{Answer, get, on_socket, on_tcp, read, request},
    server::Server,
};

const PATIENCE: Duration = Duration::from_secs(60);
const PROGRAM: &str = env!("CARGO_BIN_EXE_mayfly-under-test");
const WEBHOOK: &str = "https://bot.example/hooks/telegram";
const EVENT: &str = r#"{"type":"event_callback","team_id":"T1","api_app_id":"A0APP","event_id":"Ev1","event":{"type":"message","channel_type":"im","channel":"D1","user":"U1","text":"echo hi","ts":"1700000000.000100"}}"#;

/// The program with both platforms by requests, and their fakes.
struct Both {
    server: Server,
    slack: fake_slack::Running,
    telegram: Served<FakeTelegram>,
}

fn both() -> Both {
    let mut both = told_of_both(Server::simulated(PROGRAM));
    both.server.start();
    let platform = &both.telegram.platform;
    wait_for(PATIENCE, "a webhook", || platform.webhook());
    both
}

/// It is not started.
fn told_of_both(mut server: Server) -> Both {
    let (slack, telegram) = (FakeSlack::start(), FakeTelegram::start());
    let everyone = "[\"everyone\"]";
    for (name, value) in [
        ("SLACK_BOT_TOKEN", fake_slack::BOT_TOKEN),
        ("SLACK_SIGNING_SECRET", fake_slack::SIGNING_SECRET),
        ("MAYFLY__SLACK__API_URL", &slack.api_url()),
        ("MAYFLY__SLACK__ALLOWED_USERS", everyone),
        ("MAYFLY__SLACK__ALLOWED_CHANNELS", everyone),
        ("TELEGRAM_BOT_TOKEN", fake_telegram::TOKEN),
        ("MAYFLY__TELEGRAM__API_URL", &telegram.url()),
        ("MAYFLY__TELEGRAM__WEBHOOK_URL", WEBHOOK),
        ("MAYFLY__TELEGRAM__ALLOWED_USERS", everyone),
        ("MAYFLY__TELEGRAM__ALLOWED_CHANNELS", everyone),
        ("MAYFLY__HOOKS__LISTEN", "127.0.0.1:0"),
    ] {
        server.set_env(name, value);
    }
    Both {
        server,
        slack,
        telegram,
    }
}

impl Both {
    fn send(&self, request: &[u8]) -> Answer {
        on_tcp(&self.server.requests_address().to_string(), request)
    }

    fn slack(&self, at: i64, signature: &str, body: &str) -> Answer {
        self.send(&request(
            &format!(
                "POST /hooks/slack\ncontent-type: application/json\nhost: bot.example\n\
                 x-slack-request-timestamp: {at}\nx-slack-signature: {signature}"
            ),
            body.as_bytes(),
        ))
    }

    fn signed(&self, body: &str) -> Answer {
        let at = now();
        self.slack(at, &signed(at, body.as_bytes()), body)
    }

    fn telegram(&self, secret: &str, body: &str) -> Answer {
        self.send(&request(
            &format!(
                "POST /hooks/telegram\ncontent-type: application/json\n\
                 x-telegram-bot-api-secret-token: {secret}"
            ),
            body.as_bytes(),
        ))
    }

    /// Headers that get a request as far as its body, for each platform.
    fn plausible(&self) -> [(&'static str, String); 2] {
        let at = now();
        let secret = self.telegram.platform.webhook_secret().expect("a secret");
        [
            (
                "slack",
                format!(
                    "x-slack-request-timestamp: {at}\nx-slack-signature: {}",
                    signed(at, b"something else")
                ),
            ),
            (
                "telegram",
                format!("x-telegram-bot-api-secret-token: {secret}"),
            ),
        ]
    }

    fn arrivals(&self) -> String {
        self.server.sql("SELECT count(*) FROM arrivals")
    }
}

fn now() -> i64 {
    unix_ms() / 1000
}

#[test]
fn only_what_slack_signed_just_now_is_stored_and_only_once() {
    let both = both();
    let good = signed(now(), EVENT.as_bytes());
    for (at, signature) in [
        // Another body, another length, none at all.
        (now(), signed(now(), b"{}")),
        (now(), good[..40].to_owned()),
        (now(), format!("{good}00")),
        (now(), "v0=".to_owned()),
        // A recording, and one with a fresh time.
        (now() - 301, signed(now() - 301, EVENT.as_bytes())),
        (now() + 301, signed(now() + 301, EVENT.as_bytes())),
        (now(), signed(now() - 301, EVENT.as_bytes())),
    ] {
        both.slack(at, &signature, EVENT)
            .problem(401, "unauthorized");
    }
    both.send(&request("POST /hooks/slack", EVENT.as_bytes()))
        .problem(401, "unauthorized");
    for malformed in ["", "{", "[]", "null"] {
        both.signed(malformed).problem(400, "invalid");
    }
    assert_eq!(both.arrivals(), "0");
    let challenge = r#"{"type":"url_verification","token":"t","challenge":"3eZbrw1aB"}"#;
    let answer = both.signed(challenge);
    assert_eq!((answer.status, answer.body.as_str()), (200, "3eZbrw1aB"));
    for _ in 0..2 {
        let answer = both.signed(EVENT);
        assert_eq!((answer.status, answer.body.as_str()), (200, ""));
    }
    assert_eq!(both.arrivals(), "1");
}

#[test]
fn only_what_carries_telegrams_secret_is_stored_and_only_once() {
    let both = both();
    let platform = &both.telegram.platform;
    let secret = platform.webhook_secret().expect("a secret");
    assert!(secret.len() >= 32, "{secret}");
    platform.private(Person(7));
    platform.write(7, Person(7), "echo hi");
    let update = platform.waiting()[0].to_string();
    let (shorter, longer) = (secret[1..].to_owned(), format!("{secret}0"));
    let mut other = secret.clone();
    other.replace_range(..1, if secret.starts_with('0') { "1" } else { "0" });
    for wrong in ["", &shorter, &longer, &other] {
        both.telegram(wrong, &update).problem(401, "unauthorized");
    }
    both.send(&request("POST /hooks/telegram", update.as_bytes()))
        .problem(401, "unauthorized");
    for malformed in ["", "{", "[]", "{}", r#"{"update_id":"x"}"#] {
        both.telegram(&secret, malformed).problem(400, "invalid");
    }
    assert_eq!(both.arrivals(), "0");
    for _ in 0..2 {
        assert_eq!(both.telegram(&secret, &update).status, 200);
    }
    assert_eq!(both.arrivals(), "1");
}

#[test]
fn the_listener_has_no_other_path_no_other_method_and_bounds() {
    let both = both();
    let token = std::fs::read_to_string(both.server.data_dir().join("token")).expect("a token");
    let token = token.trim();
    for path in [
        "/",
        "/v1/agents",
        "/v1/openapi.json",
        "/healthz",
        "/readyz",
        "/login",
        "/hooks",
        "/hooks/",
        "/hooks/discord",
        "/hooks/slack/",
        "/hooks/slack/../../v1/agents",
        "//hooks/slack",
        "/HOOKS/SLACK",
    ] {
        for method in ["GET", "POST"] {
            let head = format!("{method} {path}\nauthorization: Bearer {token}");
            both.send(&request(&head, b"")).problem(404, "not-found");
        }
    }
    for method in ["GET", "HEAD", "PUT", "DELETE", "OPTIONS"] {
        let answer = both.send(&request(&format!("{method} /hooks/slack"), b""));
        assert_eq!(answer.status, 405, "{method}");
        assert_eq!(answer.header("allow"), Some("POST"));
    }
    let large = vec![b' '; 10 << 20];
    for (platform, headers) in both.plausible() {
        let head = format!("POST /hooks/{platform}");
        both.send(&request(&format!("{head}\n{headers}"), &large))
            .problem(413, "too-large");
        // A length that is not told is counted.
        let headers = headers.replace('\n', "\r\n");
        let mut chunked = format!(
            "{head} HTTP/1.1\r\n{headers}\r\nhost: x\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n\
             a00000\r\n"
        )
        .into_bytes();
        chunked.extend_from_slice(&large);
        chunked.extend_from_slice(b"\r\n0\r\n\r\n");
        both.send(&chunked).problem(413, "too-large");
    }
    // Half of a request is not waited for without end.
    let address = both.server.requests_address();
    let mut half = TcpStream::connect(address).expect("it listens");
    let patient = half.set_read_timeout(Some(PATIENCE));
    patient.expect("a time-out");
    let [(_, headers), _] = both.plausible();
    let headers = headers.replace('\n', "\r\n");
    let head = format!(
        "POST /hooks/slack HTTP/1.1\r\n{headers}\r\nhost: x\r\ncontent-length: 100\r\n\r\n{{"
    );
    half.write_all(head.as_bytes()).expect("it is read");
    let since = Instant::now();
    read(half).problem(408, "timeout");
    assert!(since.elapsed() < PATIENCE / 2, "{:?}", since.elapsed());
    assert_eq!(both.arrivals(), "0");
}

#[test]
fn a_flood_of_refused_requests_is_few_lines_and_the_bot_goes_on() {
    let both = both();
    let since = Instant::now();
    let sent = 200;
    for _ in 0..sent {
        assert_eq!(both.slack(now(), "v0=00", EVENT).status, 401);
    }
    let seconds = since.elapsed().as_secs() as usize;
    let log = both.server.log();
    let lines = log.matches("requests are refused").count();
    assert!((1..=seconds + 2).contains(&lines), "{lines} in {seconds} s");
    assert!(!log.contains(fake_slack::SIGNING_SECRET));
    assert_eq!(both.signed(EVENT).status, 200);
    both.server.until_sql("SELECT count(*) FROM messages", "1");
}

#[test]
fn without_a_socket_and_without_polling_it_is_ready() {
    let both = both();
    let ready = || {
        let answer = on_socket(both.server.data_dir(), &get("/readyz"));
        match answer.status {
            200 => Ok(()),
            _ => Err(answer.body),
        }
    };
    both.server.until("ready", ready);
    assert_eq!(both.slack.sockets_ever(), 0);
    assert_eq!(both.telegram.calls("getupdates").len(), 0);
}

#[test]
fn who_goes_back_to_polling_gets_what_came_meanwhile_and_keeps_webhooks_of_others() {
    let mut both = both();
    let platform = &both.telegram.platform;
    let chat = platform.private(Person(7));
    both.server.stop();
    platform.write(chat, Person(7), "echo while it was off");
    both.server.set_env("MAYFLY__TELEGRAM__WEBHOOK_URL", "");
    both.server.start();
    wait_for(PATIENCE, "its answer", || {
        let shown = platform.shown(chat);
        let answer = |post: &mayfly_tests::fake_telegram::Shown| {
            post.from == fake_telegram::BOT && post.text.contains("while it was off")
        };
        shown.iter().any(answer).then_some(())
    });
    assert_eq!(platform.webhook(), None);
    both.server.stop();
    platform.set_webhook("https://other.example/x");
    both.server.start();
    both.server.until("it says why nothing comes", || {
        match both.server.log().contains("a webhook is set") {
            true => Ok(()),
            false => Err(String::new()),
        }
    });
    assert_eq!(
        platform.webhook().as_deref(),
        Some("https://other.example/x")
    );
}

#[test]
fn a_command_without_a_server_listens_to_nobody() {
    let both = told_of_both(Server::new(PROGRAM));
    let listed = both.server.mayfly(&["pair", "list"]);
    assert!(listed.status.success(), "{listed:?}");
    assert_eq!(both.telegram.calls("getMe").len(), 0);
    assert_eq!(both.slack.calls("auth.test"), 0);
    assert_eq!(both.telegram.platform.webhook(), None);
}

#[test]
fn ev_02_what_slack_sends_thrice_is_answered_once_and_what_nobody_answers_is_given_up() {
    let slack = FakeSlack::start();
    slack.channel("D1");
    let mut server = Server::simulated(PROGRAM);
    let everyone = "[\"everyone\"]";
    for (name, value) in [
        ("SLACK_BOT_TOKEN", fake_slack::BOT_TOKEN),
        ("SLACK_SIGNING_SECRET", fake_slack::SIGNING_SECRET),
        ("MAYFLY__SLACK__API_URL", &slack.api_url()),
        ("MAYFLY__SLACK__ALLOWED_USERS", everyone),
        ("MAYFLY__HOOKS__LISTEN", "127.0.0.1:0"),
    ] {
        server.set_env(name, value);
    }
    server.start();
    let address = server.requests_address();
    server.stop();
    // Nobody is there.
    slack.requests_to(address);
    slack.write("D1", "U1", "echo lost");
    slack.write("D1", "U1", "echo late");
    slack.minutes_pass(1);
    server.start();
    slack.requests_to(server.requests_address());
    slack.minutes_pass(10);
    wait_for(PATIENCE, "both are told or given up", || {
        (slack.acknowledged() + slack.given_up().len() >= 2).then_some(())
    });
    assert_eq!(slack.given_up(), Vec::<String>::new());
    let messages = "SELECT count(*) FROM messages WHERE outcome IS NOT NULL";
    server.until_sql(messages, "2");
    server.stop();
    slack.write("D1", "U1", "echo never");
    slack.minutes_pass(10);
    // Perhaps beside events of the bot's own posts.
    wait_for(PATIENCE, "it is given up", || {
        (!slack.given_up().is_empty()).then_some(())
    });
}

#[test]
fn without_a_public_listener_the_program_says_what_is_missing() {
    let server = Server::simulated(PROGRAM).env("SLACK_BOT_TOKEN", fake_slack::BOT_TOKEN);
    let told = |server: &Server| {
        let output = server.mayfly(&["serve", "--simulate"]);
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let said = told(&server);
    assert!(
        said.contains("SLACK_APP_TOKEN") && said.contains("SLACK_SIGNING_SECRET"),
        "{said}"
    );
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = taken.local_addr().map(|address| (taken, address));
    let (_listener, address) = taken.expect("an address");
    let server = server
        .env("SLACK_SIGNING_SECRET", fake_slack::SIGNING_SECRET)
        .env("MAYFLY__HOOKS__LISTEN", &address.to_string());
    let said = told(&server);
    assert!(
        said.contains("is taken by another program") && said.contains("MAYFLY__HOOKS__LISTEN"),
        "{said}"
    );
}

#[test]
fn commands_of_a_channel_are_one_conversation_beside_its_threads() {
    let both = both();
    let slack = &both.slack;
    slack.channel("C1");
    slack.requests_to(both.server.requests_address());
    let said = |times: usize, wanted: &str| {
        both.server.until(wanted, || {
            let posts = slack.by_bot("C1", None);
            match posts
                .iter()
                .filter(|post| post.text.contains(wanted))
                .count()
                == times
            {
                true => Ok(()),
                false => Err(format!("{posts:?}")),
            }
        });
    };
    slack.command("C1", "U1", "status");
    said(1, "nothing runs");
    slack.command("C1", "U1", "status");
    said(2, "nothing runs");
    assert_eq!(both.server.sql("SELECT count(*) FROM agents"), "1");
    slack.write("C1", "U1", &format!("<@{}> echo a thread", fake_slack::BOT));
    both.server.until_sql("SELECT count(*) FROM agents", "2");
}

/// A short conversation on the simulated engine; `flow.rs` has the long one on the real one.
fn answers(mut there: impl Conversation) {
    let mut server = Server::simulated(PROGRAM);
    for (name, value) in there.environment() {
        server.set_env(name, &value);
    }
    server.start();
    there.reach(&server);
    for (said, wanted) in [
        ("echo one", "one"),
        ("echo two", "two"),
        ("!status", "nothing runs"),
    ] {
        match wanted {
            "one" => there.begin(said),
            _ => there.say(said),
        }
        server.until(wanted, || {
            let texts = there.texts();
            match texts.iter().any(|text| text.contains(wanted)) {
                true => Ok(()),
                false => Err(format!("{texts:?}")),
            }
        });
    }
    assert_eq!(server.sql("SELECT count(*) FROM agents"), "1");
    server.stop();
}

#[test]
fn a_thread_of_slack_is_answered_by_requests() {
    answers(on_slack_by_requests());
}

#[test]
fn a_group_of_telegram_is_answered_by_requests() {
    answers(on_telegram_by_requests());
}

/// A request whose body is announced and does not come.
fn begun(platform: &str, headers: &str) -> Vec<u8> {
    let headers = headers.replace('\n', "\r\n");
    format!(
        "POST /hooks/{platform} HTTP/1.1\r\n{headers}\r\nhost: x\r\ncontent-length: 2000000\r\n\r\n"
    )
    .into_bytes()
}

#[test]
fn what_cannot_be_of_a_platform_is_refused_before_its_body_is_read() {
    let both = both();
    let stale = format!(
        "x-slack-request-timestamp: {}\nx-slack-signature: {}",
        now() - 301,
        signed(now() - 301, b"x")
    );
    for (platform, headers) in [
        ("slack", "x: y"),
        ("slack", "x-slack-signature: v0=12"),
        ("slack", &stale),
        ("telegram", "x: y"),
        ("telegram", "x-telegram-bot-api-secret-token: guess"),
    ] {
        let since = Instant::now();
        both.send(&begun(platform, headers))
            .problem(401, "unauthorized");
        assert!(
            since.elapsed() < Duration::from_secs(4),
            "{platform}: {headers}"
        );
    }
}

/// Bodies that nobody has signed yet take at most 32 MiB together.
#[test]
fn a_flood_of_bodies_has_only_so_much_room_and_what_comes_after_it_is_taken() {
    const CALLERS: usize = 60;
    const BYTES: usize = 1_900_000;
    let both = both();
    let address = both.server.requests_address();
    let [(_, headers), _] = both.plausible();
    let mut request = begun("slack", &headers);
    request.resize(request.len() + BYTES, b' ');
    let answers: Vec<Answer> = std::thread::scope(|scope| {
        let callers: Vec<_> = (0..CALLERS)
            .map(|_| {
                scope.spawn(|| {
                    let mut stream = TcpStream::connect(address).expect("it listens");
                    let patient = stream.set_read_timeout(Some(PATIENCE));
                    patient.expect("a time-out");
                    // It may be answered, and closed, before all is sent.
                    let _ = stream.write_all(&request);
                    read(stream)
                })
            })
            .collect();
        let joined = callers.into_iter().map(|caller| caller.join());
        joined.map(|answer| answer.expect("an answer")).collect()
    });
    let of = |status: u16| {
        answers
            .iter()
            .filter(|answer| answer.status == status)
            .count()
    };
    let (full, late) = (of(503), of(408));
    assert_eq!(full + late, CALLERS, "{answers:?}");
    assert!(late * BYTES <= 32 << 20, "{late} were held at once");
    for answer in answers.iter().filter(|answer| answer.status == 503) {
        assert_eq!(answer.header("retry-after"), Some("1"));
    }
    assert_eq!(both.signed(EVENT).status, 200);
    assert_eq!(both.arrivals(), "1");
}
