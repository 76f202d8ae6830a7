//! The fake is trusted because the official client, slack_bolt, works against it.

use std::{
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use mayfly_tests::{
    client::Sayings,
    fake::wait_for,
    fake_slack::{APP_TOKEN, BOT, BOT_TOKEN, Ending, Running},
    schemas,
};
use serde_json::Value;

use crate::{PATIENCE, fake};

/// A bot on slack_bolt while it is held.
struct Client {
    child: Child,
    told: Sayings,
}

impl Client {
    fn start(fake: &Running) -> Client {
        let clients: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients");
        let folder = clients.join("slack");
        let installed = Command::new(clients.join("venv")).arg(&folder).output();
        let installed = installed.expect("it starts");
        let said = String::from_utf8_lossy(&installed.stderr);
        assert!(installed.status.success(), "{said}");
        let venv = String::from_utf8(installed.stdout).expect("a path");
        let mut child = Command::new(Path::new(venv.trim()).join("bin/python"))
            .arg(folder.join("bot.py"))
            .args([&fake.api_url(), BOT_TOKEN, APP_TOKEN])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let told = Sayings::of(child.stdout.take().expect("a pipe"));
        Client { child, told }
    }

    fn waits_for(&self, what: &str) -> Value {
        wait_for(PATIENCE, what, || {
            let told = self.told.lock();
            told.iter().find(|value| value["what"] == what).cloned()
        })
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_bot_on_the_official_client_works_against_the_fake() {
    let fake = fake();
    let client = Client::start(&fake);
    assert_eq!(client.waits_for("ready")["user"], BOT);
    wait_for(PATIENCE, "a socket", || (fake.sockets() == 1).then_some(()));

    let root = fake.write("C1", "U1", "<@U0BOT> report");
    let mention = client.waits_for("mention");
    assert_eq!(mention["text"], "<@U0BOT> report");
    assert_eq!(mention["tokens"], serde_json::json!(["t-1"]));
    assert_eq!(client.waits_for("refused")["error"], "channel_not_found");
    let shown = fake.by_bot("C1", Some(&root));
    assert_eq!(shown.len(), 3, "{shown:?}");
    assert_eq!(
        (shown[0].text.as_str(), &shown[0].before[..]),
        ("**done**: a & b", &["working".to_owned()][..])
    );
    assert_eq!(
        shown[1].files,
        [("report.txt".to_owned(), b"a report".to_vec())]
    );
    assert_eq!(shown[2].buttons, [("Go".to_owned(), "v-1".to_owned())]);
    assert_eq!(fake.seen("C1", None)[0].reactions, ["eyes"]);

    fake.press("C1", &shown[2].ts, "U2", "Go");
    wait_for(PATIENCE, "the press is answered", || {
        let said = fake.by_bot("C1", Some(&root)).pop()?;
        (said.text == "pressed v-1" && said.buttons.is_empty()).then_some(())
    });
    wait_for(PATIENCE, "the person is told", || fake.whispers().pop());

    fake.send_file(
        "C1",
        Some(&root),
        "U1",
        "look",
        ("a.txt", "text/plain", b"abc"),
    );
    assert_eq!(client.waits_for("file")["content"], "abc");
    // A socket that Slack closes is followed by another.
    fake.end_sockets(Ending::Told("refresh_requested"));
    wait_for(PATIENCE, "another socket", || {
        (fake.sockets_ever() >= 2).then_some(())
    });
    fake.command("C1", "U1", "status");
    assert_eq!(client.waits_for("command")["text"], "status");
    schemas::check("slack", &fake.said());
}
