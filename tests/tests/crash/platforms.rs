//! The server dies between a platform's event and the reply that people see: each message is
//! answered, and once to the eye.

use mayfly_tests::{
    conversation::{
        Conversation, on_discord, on_slack, on_slack_by_requests, on_telegram,
        on_telegram_by_requests,
    },
    server::Server,
};

use crate::points::{FILE, PLATFORMS};

/// Where a delivery dies: before and after each of its calls, and before it is recorded.
const DELIVERY: &[&str] = &[
    "deliver.before",
    "deliver.after",
    "deliver.before:2",
    "deliver.after:2",
    "deliver.recorded",
];

/// A post that is still empty: what a platform without tokens may be left with after a crash.
const EMPTY: &str = "…";

fn dies_at(mut there: impl Conversation, point: &str, empties: usize) {
    let mut server = Server::simulated(env!("CARGO_BIN_EXE_mayfly-under-test"));
    for (name, value) in there.environment() {
        server.set_env(name, &value);
    }
    // They are in touch already: what is said to a bot that was never there is nobody's.
    server.start();
    there.reach(&server);
    there.begin("echo hello");
    until(&server, &there, "hello");
    until_quiet(&server);
    server.stop();
    server.start_with_fault(point);
    there.reach(&server);
    let answer = match point {
        "fetch.inside" => {
            there.send("echo the answer", "a.txt", b"content");
            "the answer"
        }
        "order.acted" => {
            there.say("!status");
            "nothing runs"
        }
        _ => {
            there.say("echo the answer");
            "the answer"
        }
    };
    server.wait_dead();
    server.start();
    there.reach(&server);
    until(&server, &there, answer);
    until_quiet(&server);
    let all = there.texts();
    let answers = all.iter().filter(|text| text.contains(answer)).count();
    assert_eq!(answers, 1, "{point}: {all:?}");
    let empty = all.iter().filter(|text| *text == EMPTY).count();
    assert!(empty <= empties, "{point}: {all:?}");
    assert_eq!(all.len(), 2 + empty, "{point}: {all:?}");
    let wanted = if point == "order.acted" { "1" } else { "2" };
    let messages = server.sql("SELECT count(*) FROM messages");
    assert_eq!(messages, wanted, "{point}");
    server.stop();
}

pub(crate) fn until(server: &Server, there: &impl Conversation, answer: &str) {
    server.until(answer, || {
        let texts = there.texts();
        match texts.iter().any(|text| text.contains(answer)) {
            true => Ok(()),
            false => Err(format!("{texts:?}")),
        }
    });
}

pub(crate) fn until_quiet(server: &Server) {
    let open = "SELECT (SELECT count(*) FROM messages WHERE outcome IS NULL)
        + (SELECT count(*) FROM orders WHERE state != 'done')
        + (SELECT count(*) FROM deliveries WHERE state = 'owed')
        + (SELECT count(*) FROM progress)";
    server.until_sql(open, "0");
}

/// Between the request and its answer: the platform sends it again.
const TAKEN: &[&str] = &["take.inside", "take.after"];

#[test]
fn ev_01_a_request_of_slack_that_was_not_answered_comes_again_and_is_answered_once() {
    for point in TAKEN {
        dies_at(on_slack_by_requests(), point, 0);
    }
}

#[test]
fn ev_06_a_request_of_telegram_that_was_not_answered_comes_again_and_is_answered_once() {
    for point in TAKEN {
        dies_at(on_telegram_by_requests(), point, 1);
    }
}

fn matrix<C: Conversation>(on: impl Fn() -> C, empties: usize) {
    for point in PLATFORMS.iter().chain(DELIVERY) {
        dies_at(on(), point, empties);
    }
}

#[test]
fn ev_06_on_telegram_nothing_is_lost_and_nothing_seen_twice() {
    matrix(on_telegram, 1);
}

#[test]
fn ev_01_on_slack_nothing_is_lost_and_nothing_seen_twice() {
    matrix(on_slack, 0);
}

#[test]
fn on_discord_nothing_is_lost_and_nothing_seen_twice() {
    matrix(on_discord, 0);
}

/// Dies when a file is shown and nobody has recorded it; what the files are called that people see
/// after that, and the server, at rest.
fn dies_at_a_file(there: &mut impl Conversation) -> Server {
    let mut server = Server::simulated(env!("CARGO_BIN_EXE_mayfly-under-test"));
    for (name, value) in there.environment() {
        server.set_env(name, &value);
    }
    server.start();
    there.begin("echo hello");
    until(&server, there, "hello");
    until_quiet(&server);
    server.stop();
    server.start_with_fault(FILE);
    // Too long for three posts: the whole of it comes as a file.
    let word = "0123456789".repeat(150);
    there.say(&format!("echo {word} > f; cat {}", "f ".repeat(20)));
    server.wait_dead();
    assert_eq!(there.files().len(), 1);
    // An hour later nothing of the call can be on its way any more.
    server.change("UPDATE parts SET asked_at = asked_at - 3600000 WHERE kind = 'file'");
    server.start();
    until_quiet(&server);
    server
}

/// Its platform can be asked, so nobody else is.
fn is_found(mut there: impl Conversation) {
    let mut server = dies_at_a_file(&mut there);
    assert_eq!(there.files().len(), 1);
    let asks = |text: &String| text.contains("may not have arrived");
    assert!(!there.texts().iter().any(asks));
    server.stop();
}

#[test]
fn rb_04_a_file_that_may_be_there_is_found_on_slack() {
    is_found(on_slack());
}

#[test]
fn rb_04_a_file_that_may_be_there_is_found_on_discord() {
    is_found(on_discord());
}

/// Telegram can neither be asked nor told: a person decides, once, also after a restart.
#[test]
fn rb_04_a_file_that_may_be_there_is_a_question_on_telegram() {
    let mut there = on_telegram();
    let mut server = dies_at_a_file(&mut there);
    assert_eq!(there.files().len(), 1);
    let asked = |there: &dyn Conversation| {
        let texts = there.texts().into_iter();
        texts
            .filter(|text| text.contains("may not have arrived"))
            .count()
    };
    assert_eq!(asked(&there), 1, "{:?}", there.texts());
    // Nothing but the button names the content.
    assert_eq!(server.sql("SELECT count(*) FROM parts"), "0");
    assert_eq!(server.sql("SELECT count(*) FROM delivery_files"), "0");
    let hash = server.sql("SELECT blob FROM buttons WHERE blob IS NOT NULL");
    let blob = server.data_dir().join("blobs").join(&hash[..2]).join(&hash);
    mayfly_tests::engine::run(
        "touch",
        &["-d", "3 days ago", blob.to_str().expect("a path")],
    );
    server.kill();
    server.start();
    let swept = server.mayfly(&["gc"]);
    assert!(swept.status.success(), "{swept:?}");
    assert!(blob.exists());
    there.press("Send again");
    server.until("the file again", || match there.files().len() {
        2 => Ok(()),
        other => Err(other.to_string()),
    });
    until_quiet(&server);
    assert_eq!(there.files(), ["reply.md", "reply.md"]);
    // The question is closed: nobody can press it twice.
    assert_eq!(asked(&there), 0, "{:?}", there.texts());
    server.stop();
}
