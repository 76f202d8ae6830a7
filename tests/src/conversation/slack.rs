//! In a thread of a channel.

use crate::fake_slack::{APP_TOKEN, BOT, BOT_TOKEN, FakeSlack, Running, SIGNING_SECRET, Shown};

use super::{Conversation, Shut};
use crate::{fake::Fault, server::Server};

const CHANNEL: &str = "C0001";
const ADA: &str = "U0ADA";

struct Thread {
    fake: Running,
    root: String,
    by_requests: bool,
}

impl Thread {
    fn of_bot(&self) -> Vec<Shown> {
        self.fake.by_bot(CHANNEL, Some(&self.root))
    }
}

impl Conversation for Thread {
    fn environment(&self) -> Vec<(&'static str, String)> {
        let everyone = "[\"everyone\"]".to_owned();
        vec![
            ("SLACK_BOT_TOKEN", BOT_TOKEN.to_owned()),
            match self.by_requests {
                false => ("SLACK_APP_TOKEN", APP_TOKEN.to_owned()),
                true => ("SLACK_SIGNING_SECRET", SIGNING_SECRET.to_owned()),
            },
            ("MAYFLY__HOOKS__LISTEN", "127.0.0.1:0".to_owned()),
            ("MAYFLY__SLACK__API_URL", self.fake.api_url()),
            ("MAYFLY__SLACK__FILES_URL", self.fake.files_url()),
            ("MAYFLY__SLACK__ALLOWED_USERS", everyone.clone()),
            ("MAYFLY__SLACK__ALLOWED_CHANNELS", everyone),
        ]
    }

    fn socket(&self) -> Option<String> {
        (!self.by_requests).then(|| self.fake.socket_url())
    }

    fn tell_socket(&self, url: String) {
        self.fake.tell_socket(url);
    }

    fn reach(&self, server: &Server) {
        if self.by_requests {
            self.fake.requests_to(server.requests_address());
        }
    }

    fn begin(&mut self, text: &str) {
        let text = format!("<@{BOT}> {}", escaped(text));
        self.root = self.fake.write(CHANNEL, ADA, &text);
    }

    fn say(&mut self, text: &str) {
        self.fake.reply(CHANNEL, &self.root, ADA, &escaped(text));
    }

    fn send(&mut self, text: &str, name: &str, content: &[u8]) {
        let file = (name, "text/plain", content);
        self.fake
            .send_file(CHANNEL, Some(&self.root), ADA, &escaped(text), file);
    }

    fn texts(&self) -> Vec<String> {
        self.of_bot().into_iter().map(|shown| shown.text).collect()
    }

    fn files(&self) -> Vec<String> {
        let files = self.of_bot().into_iter().flat_map(|shown| shown.files);
        files.map(|(name, _)| name).collect()
    }

    fn press(&mut self, label: &str) {
        let has = |shown: &&Shown| shown.buttons.iter().any(|(said, _)| said == label);
        let posts = self.of_bot();
        let ts = &posts.iter().rev().find(has).expect("a button").ts;
        self.fake.press(CHANNEL, ts, ADA, label);
    }

    fn shut(&mut self, how: Shut) -> &'static str {
        match how {
            Shut::Archived => {
                self.fake.archive(CHANNEL);
                "unarchive it"
            }
            Shut::Removed => {
                self.fake.kick(CHANNEL);
                "invite it with /invite"
            }
            Shut::Blocked => panic!("nobody blocks a bot on Slack"),
        }
    }

    fn readmit(&mut self) {
        self.fake.readmit(CHANNEL);
    }

    fn opening_fails(&self, faults: Vec<Fault>) {
        self.fake.fault("chat.postMessage", faults);
    }

    fn opened(&self) -> usize {
        let roots = self.fake.by_bot(CHANNEL, None);
        roots
            .iter()
            .filter(|shown| shown.text.starts_with("Fork "))
            .count()
    }

    fn follow(&mut self, _: &str) {
        let posts = self.fake.by_bot(CHANNEL, None);
        let root = posts
            .iter()
            .rev()
            .find(|shown| shown.text.starts_with("Fork "));
        self.root = root.expect("the fork's first post").ts.clone();
    }
}

/// As Slack tells what people write.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

/// On an own fake, by Socket Mode.
pub fn on_slack() -> impl Conversation {
    on(false)
}

/// On an own fake that sends requests.
pub fn on_slack_by_requests() -> impl Conversation {
    on(true)
}

fn on(by_requests: bool) -> Thread {
    let fake = FakeSlack::start();
    fake.channel(CHANNEL);
    Thread {
        fake,
        root: String::new(),
        by_requests,
    }
}
