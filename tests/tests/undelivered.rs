//! A reply that a platform refuses is parked with the way out, is shown wherever one looks, and comes
//! once, when the way is open again and somebody asks for it.

use mayfly_tests::{
    conversation::{Conversation, Shut, on_discord, on_slack, on_telegram},
    server::Server,
};

const PARKED: &str = "SELECT count(*) FROM deliveries WHERE state = 'parked'";

fn said(server: &Server, there: &impl Conversation, wanted: &str) {
    server.until(wanted, || {
        let texts = there.texts();
        match texts.iter().filter(|text| text.contains(wanted)).count() {
            1 => Ok(()),
            _ => Err(format!("{texts:?}")),
        }
    });
}

/// Says something whose reply is refused; what the way out is.
fn refused(server: &Server, there: &mut impl Conversation, how: Shut, reply: &str) -> &'static str {
    there.say(&format!("sleep 1; echo {reply}"));
    let running = "SELECT count(*) FROM ticks WHERE outcome IS NULL";
    server.until_sql(running, "1");
    let way_out = there.shut(how);
    server.until_sql(PARKED, "1");
    way_out
}

fn text_of(server: &Server, arguments: &[&str]) -> String {
    let output = server.mayfly(arguments);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("text")
}

fn parked_and_back(mut there: impl Conversation, how: Shut) {
    let mut server = Server::simulated(env!("CARGO_BIN_EXE_mayfly-under-test"));
    for (name, value) in there.environment() {
        server.set_env(name, &value);
    }
    server.start();
    there.begin("echo hello");
    said(&server, &there, "hello");
    server.until_sql("SELECT count(*) FROM deliveries WHERE state = 'owed'", "0");
    let way_out = refused(&server, &mut there, how, "first");
    let agent = server.sql("SELECT id FROM agents");
    let message = server.sql("SELECT message FROM deliveries WHERE state = 'parked'");
    // Every face says why, and what to do.
    let shown = server.json(&["agent", "show", &agent]);
    let undelivered = &shown["undelivered"][0];
    assert_eq!(undelivered["message"], message.as_str(), "{shown}");
    assert_eq!(undelivered["title"], "first", "{shown}");
    let reason = undelivered["reason"].as_str().expect("a reason");
    assert!(reason.contains(way_out), "{how:?}: {reason}");
    let page = text_of(&server, &["agent", "show", &agent]);
    let short = &message[message.len() - 8..];
    let again = format!("mayfly parked retry {short}");
    assert!(page.contains(way_out) && page.contains(&again), "{page}");
    let list = server.json(&["parked", "list"]);
    assert_eq!(list[0]["id"], message.as_str(), "{list}");
    assert!(
        list[0]["undelivered"]
            .as_str()
            .is_some_and(|why| why.contains(way_out)),
        "{list}"
    );
    // Too early: it is parked again.
    server.json(&["parked", "retry", short]);
    server.until_sql("SELECT count(*) FROM deliveries WHERE state = 'owed'", "0");
    assert_eq!(server.sql(PARKED), "1");
    // The operator brings it back.
    there.readmit();
    server.json(&["parked", "retry", short]);
    said(&server, &there, "first");
    server.until_sql(PARKED, "0");
    let none = server.mayfly(&["parked", "retry", short]);
    assert!(!none.status.success(), "{none:?}");
    assert_eq!(
        server.json(&["agent", "show", &agent])["undelivered"],
        serde_json::json!([])
    );
    // So do people in the thread.
    refused(&server, &mut there, how, "second");
    there.readmit();
    there.say("!retry");
    said(&server, &there, "second");
    server.until_sql("SELECT count(*) FROM deliveries WHERE state = 'owed'", "0");
    said(&server, &there, "second");
    assert_eq!(server.sql(PARKED), "0");
    server.stop();
}

#[test]
fn fm_08_on_slack_an_archived_channel_and_a_removed_bot() {
    for how in [Shut::Archived, Shut::Removed] {
        parked_and_back(on_slack(), how);
    }
}

#[test]
fn fm_08_on_discord_a_locked_thread_a_removed_bot_and_a_person_who_blocks() {
    for how in [Shut::Archived, Shut::Removed, Shut::Blocked] {
        parked_and_back(on_discord(), how);
    }
}

#[test]
fn fm_08_on_telegram_a_removed_bot_and_a_person_who_blocks() {
    for how in [Shut::Removed, Shut::Blocked] {
        parked_and_back(on_telegram(), how);
    }
}
