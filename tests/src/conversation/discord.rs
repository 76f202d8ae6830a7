//! In a thread that the bot opens from a mention.

use std::{
    thread,
    time::{Duration, Instant},
};

use crate::fake_discord::{ANN, FakeDiscord, Running, Shown, token};

use super::{Conversation, Shut};
use crate::fake::Fault;

/// Longest until the bot is there.
const PATIENCE: Duration = Duration::from_secs(60);

struct Thread {
    fake: Running,
    channel: u64,
    thread: u64,
}

impl Thread {
    fn of_bot(&self) -> Vec<Shown> {
        let shown = self.fake.shown(self.thread).into_iter();
        shown.filter(|shown| shown.ours).collect()
    }
}

impl Conversation for Thread {
    fn environment(&self) -> Vec<(&'static str, String)> {
        let everyone = "[\"everyone\"]".to_owned();
        vec![
            ("DISCORD_BOT_TOKEN", token()),
            ("MAYFLY__DISCORD__API_URL", self.fake.rest.url()),
            (
                "MAYFLY__DISCORD__FILE_HOSTS",
                format!("[\"{}\"]", self.fake.rest.url()),
            ),
            ("MAYFLY__DISCORD__ALLOWED_USERS", everyone.clone()),
            ("MAYFLY__DISCORD__ALLOWED_CHANNELS", everyone),
        ]
    }

    fn socket(&self) -> Option<String> {
        Some(self.fake.gateway_url())
    }

    fn tell_socket(&self, url: String) {
        self.fake.tell_gateway(url);
    }

    fn begin(&mut self, text: &str) {
        // Discord tells a bot only what is said while it has a session.
        let since = Instant::now();
        while self.fake.identified().is_empty() {
            assert!(since.elapsed() < PATIENCE, "nobody comes");
            thread::sleep(Duration::from_millis(20));
        }
        self.thread = self.fake.mention(self.channel, ANN, text);
    }

    fn say(&mut self, text: &str) {
        self.fake.write(self.thread, ANN, text);
    }

    fn send(&mut self, text: &str, name: &str, content: &[u8]) {
        self.fake
            .upload(self.thread, ANN, text, name, "text/plain", content);
    }

    fn texts(&self) -> Vec<String> {
        self.of_bot().into_iter().map(|shown| shown.text).collect()
    }

    fn files(&self) -> Vec<String> {
        let files = self.of_bot().into_iter();
        files.flat_map(|shown| shown.files).collect()
    }

    fn press(&mut self, label: &str) {
        let posts = self.of_bot();
        let post = posts.iter().rev().find(|shown| !shown.buttons.is_empty());
        let post = post.expect("a button");
        // The first button does it, the second leaves it.
        assert_eq!(label, "Roll back");
        self.fake.press(post.id, &post.buttons[0], ANN);
    }

    fn shut(&mut self, how: Shut) -> &'static str {
        match how {
            Shut::Archived => {
                self.fake.lock(self.thread);
                "unlock it"
            }
            Shut::Removed => {
                self.fake.deny(self.thread, 50_001);
                "give it View Channel"
            }
            Shut::Blocked => {
                self.fake.deny(self.thread, 50_007);
                "allow direct messages"
            }
        }
    }

    fn readmit(&mut self) {
        self.fake.readmit(self.thread);
    }

    fn opening_fails(&self, faults: Vec<Fault>) {
        self.fake.rest.fault("post", faults);
    }

    fn opened(&self) -> usize {
        let shown = self.fake.shown(self.channel).into_iter();
        shown
            .filter(|shown| shown.ours && shown.text.starts_with("Fork "))
            .count()
    }

    fn follow(&mut self, text: &str) {
        let number = text.rsplit('/').next().unwrap_or_default();
        let digits = number.chars().take_while(char::is_ascii_digit);
        self.thread = digits.collect::<String>().parse().expect("a link");
    }
}

/// On an own fake.
pub fn on_discord() -> impl Conversation {
    let fake = FakeDiscord::start();
    let channel = fake.channel("general");
    Thread {
        fake,
        channel,
        thread: 0,
    }
}
