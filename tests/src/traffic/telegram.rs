//! People in a group of Telegram.

use std::time::Duration;

use crate::{
    fake::{Served, wait_for},
    fake_telegram::{BOT_NAME, FakeTelegram, Person, TOKEN},
    server::Server,
};

use super::{Crowd, PATIENCE};

const ADA: Person = Person(1001);
const BEN: Person = Person(1002);
const GROUP: i64 = -1_001_234_567_890;

struct People {
    fake: Served<FakeTelegram>,
    by_requests: bool,
}

pub(super) fn crowd(by_requests: bool) -> Box<dyn Crowd> {
    let fake = FakeTelegram::start();
    fake.platform.supergroup(GROUP);
    Box::new(People { fake, by_requests })
}

impl Crowd for People {
    fn environment(&self) -> Vec<(&'static str, String)> {
        let webhook = match self.by_requests {
            false => String::new(),
            true => "https://bot.example/hooks/telegram".to_owned(),
        };
        vec![
            ("TELEGRAM_BOT_TOKEN", TOKEN.to_owned()),
            ("MAYFLY__TELEGRAM__WEBHOOK_URL", webhook),
            ("MAYFLY__HOOKS__LISTEN", "127.0.0.1:0".to_owned()),
            ("MAYFLY__TELEGRAM__API_URL", self.fake.url()),
            ("MAYFLY__TELEGRAM__ALLOWED_USERS", "[\"1001\"]".to_owned()),
            (
                "MAYFLY__TELEGRAM__ALLOWED_CHANNELS",
                "[\"everyone\"]".to_owned(),
            ),
        ]
    }

    fn reach(&self, server: &Server) {
        if self.by_requests {
            let platform = &self.fake.platform;
            wait_for(PATIENCE, "a webhook", || platform.webhook());
            return platform.requests_to(server.requests_address());
        }
        wait_for(PATIENCE, "a poll", || {
            (!self.fake.calls("getupdates").is_empty()).then_some(())
        });
    }

    fn chatter(&self, n: usize) {
        self.fake.platform.write(GROUP, BEN, &format!("post {n}"));
    }

    fn speak(&self, n: usize) {
        let text = format!("@{BOT_NAME} echo {n}");
        // What is said to the bot in one group is one conversation.
        let group = self.fake.platform.supergroup(GROUP - 1 - n as i64);
        self.fake.platform.write(group, ADA, &text);
    }

    fn press(&self, n: usize) {
        self.speak(n);
    }

    fn took(&self) -> Vec<Duration> {
        self.fake.platform.took()
    }

    fn wanted(&self, posts: usize) -> usize {
        posts
    }
}
