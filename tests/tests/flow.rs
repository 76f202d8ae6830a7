//! One conversation on each platform, with the real program and real containers: a mention, what
//! follows, a file in, a file out, a long reply, stop, rollback with its button, fork.

use std::time::{Duration, Instant};

use mayfly_tests::{
    conversation::{
        Conversation, on_discord, on_slack, on_slack_by_requests, on_telegram,
        on_telegram_by_requests,
    },
    server::Server,
};

/// Longest a person waits for an answer.
const PATIENCE: Duration = Duration::from_secs(90);

/// The program beside the platform.
struct Flow<C> {
    server: Server,
    there: C,
}

impl<C: Conversation> Flow<C> {
    fn new(there: C) -> Self {
        let mut server = Server::new(env!("CARGO_BIN_EXE_mayfly-under-test"));
        for (name, value) in there.environment() {
            server.set_env(name, &value);
        }
        server.start();
        there.reach(&server);
        Flow { server, there }
    }

    /// Waits until somebody reads this, and returns the whole text.
    fn until_said(&self, wanted: &str) -> String {
        let since = Instant::now();
        loop {
            let texts = self.there.texts();
            if let Some(found) = texts.iter().rev().find(|text| text.contains(wanted)) {
                return found.clone();
            }
            assert!(
                since.elapsed() < PATIENCE,
                "\"{wanted}\" is not said: {texts:?}\n{}",
                self.server.log()
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn until_quiet(&self) {
        let open = "SELECT (SELECT count(*) FROM messages WHERE outcome IS NULL)
            + (SELECT count(*) FROM orders WHERE state != 'done')
            + (SELECT count(*) FROM deliveries WHERE state = 'owed')
            + (SELECT count(*) FROM progress)";
        self.server.until_sql(open, "0");
    }
}

/// The script, the same everywhere.
fn conversation(there: impl Conversation) {
    let mut flow = Flow::new(there);
    flow.there.begin("echo two > f; echo it is written");
    flow.until_said("it is written");
    flow.there.say("cat f");
    flow.until_said("two");
    flow.there
        .send("cat received/a.txt", "a.txt", b"from outside\n");
    flow.until_said("from outside");
    flow.there
        .say("mkdir -p send; echo out > send/o.txt; echo it is sent");
    flow.until_said("it is sent");
    flow.until_quiet();
    assert_eq!(flow.there.files(), ["o.txt"]);
    flow.there
        .say("for i in $(seq 1 120); do echo \"this is line $i of a long reply\"; done");
    flow.until_said("line 120 of a long");
    flow.until_quiet();
    let all = flow.there.texts().join("\n");
    for i in 1..=120 {
        assert!(all.contains(&format!("line {i} of a long")), "{i}: {all}");
    }
    flow.there.say("echo begun; sleep 600");
    let running = "SELECT count(*) FROM ticks WHERE outcome IS NULL AND phase = 'running'";
    flow.server.until_sql(running, "1");
    flow.there.say("!stop");
    flow.until_said("stopped, changes kept");
    flow.there.say("echo three > f; echo it is changed");
    flow.until_said("it is changed");
    flow.there.say("!rollback");
    flow.until_said("before the last tick?");
    flow.until_quiet();
    flow.there.press("Roll back");
    flow.until_said("goes forward again");
    flow.there.say("sed s/^/now/ f");
    flow.until_said("nowtwo");
    flow.there.say("!fork");
    let told = flow.until_said("goes on here");
    flow.until_quiet();
    flow.there.follow(&told);
    flow.there.say("sed s/^/fork/ f");
    flow.until_said("forktwo");
    flow.until_quiet();
    assert_eq!(flow.server.sql("SELECT count(*) FROM agents"), "2");
    let parked = "SELECT count(*) FROM deliveries WHERE state = 'parked'";
    assert_eq!(flow.server.sql(parked), "0");
    flow.server.stop();
    flow.server.assert_nothing_left();
}

#[test]
fn a_conversation_on_telegram() {
    conversation(on_telegram());
}

#[test]
fn a_conversation_on_slack() {
    conversation(on_slack());
}

#[test]
fn a_conversation_on_telegram_by_requests() {
    conversation(on_telegram_by_requests());
}

#[test]
fn a_conversation_on_slack_by_requests() {
    conversation(on_slack_by_requests());
}

#[test]
fn a_conversation_on_discord() {
    conversation(on_discord());
}
