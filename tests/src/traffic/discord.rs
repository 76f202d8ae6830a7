//! People in a channel of Discord.

use std::time::Duration;

use crate::{
    fake::wait_for,
    fake_discord::{ANN, BEN, FakeDiscord, Running, token},
    server::Server,
};

use super::{Crowd, PATIENCE, TO_THE_BOT};

struct People {
    fake: Running,
    channel: u64,
}

pub(super) fn crowd() -> Box<dyn Crowd> {
    let fake = FakeDiscord::start();
    let channel = fake.channel("general");
    // Each acknowledgement counts, also one that is too late for Discord.
    fake.callback_within(PATIENCE);
    Box::new(People { fake, channel })
}

impl Crowd for People {
    fn environment(&self) -> Vec<(&'static str, String)> {
        vec![
            ("DISCORD_BOT_TOKEN", token()),
            ("MAYFLY__DISCORD__API_URL", self.fake.rest.url()),
            ("MAYFLY__DISCORD__ALLOWED_USERS", format!("[\"{ANN}\"]")),
            (
                "MAYFLY__DISCORD__ALLOWED_CHANNELS",
                "[\"everyone\"]".to_owned(),
            ),
        ]
    }

    fn reach(&self, _: &Server) {
        wait_for(PATIENCE, "a session", || {
            (!self.fake.identified().is_empty()).then_some(())
        });
    }

    fn chatter(&self, n: usize) {
        self.fake.write(self.channel, BEN, &format!("post {n}"));
    }

    fn speak(&self, n: usize) {
        self.fake.mention(self.channel, ANN, &format!("echo {n}"));
    }

    fn press(&self, _: usize) {
        self.fake.command(self.channel, ANN, "status", "");
    }

    fn took(&self) -> Vec<Duration> {
        self.fake.took()
    }

    fn wanted(&self, posts: usize) -> usize {
        posts.div_ceil(TO_THE_BOT)
    }
}
