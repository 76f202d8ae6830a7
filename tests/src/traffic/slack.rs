//! People in a channel of Slack.

use std::time::Duration;

use crate::{
    fake::wait_for,
    fake_slack::{APP_TOKEN, BOT, BOT_TOKEN, FakeSlack, Running, SIGNING_SECRET},
    server::Server,
};

use super::{Crowd, PATIENCE, TO_THE_BOT};

const CHANNEL: &str = "C0001";

struct People {
    fake: Running,
    by_requests: bool,
}

pub(super) fn crowd(by_requests: bool) -> Box<dyn Crowd> {
    let fake = FakeSlack::start();
    fake.channel(CHANNEL);
    Box::new(People { fake, by_requests })
}

impl Crowd for People {
    fn environment(&self) -> Vec<(&'static str, String)> {
        vec![
            ("SLACK_BOT_TOKEN", BOT_TOKEN.to_owned()),
            match self.by_requests {
                false => ("SLACK_APP_TOKEN", APP_TOKEN.to_owned()),
                true => ("SLACK_SIGNING_SECRET", SIGNING_SECRET.to_owned()),
            },
            ("MAYFLY__HOOKS__LISTEN", "127.0.0.1:0".to_owned()),
            ("MAYFLY__SLACK__API_URL", self.fake.api_url()),
            ("MAYFLY__SLACK__FILES_URL", self.fake.files_url()),
            ("MAYFLY__SLACK__ALLOWED_USERS", "[\"U0ADA\"]".to_owned()),
            (
                "MAYFLY__SLACK__ALLOWED_CHANNELS",
                "[\"everyone\"]".to_owned(),
            ),
        ]
    }

    fn reach(&self, server: &Server) {
        if self.by_requests {
            return self.fake.requests_to(server.requests_address());
        }
        wait_for(PATIENCE, "a socket", || {
            (self.fake.sockets() > 0).then_some(())
        });
    }

    fn chatter(&self, n: usize) {
        self.fake.write(CHANNEL, "U0BEN", &format!("post {n}"));
    }

    fn speak(&self, n: usize) {
        let text = format!("<@{BOT}> echo {n}");
        self.fake.write(CHANNEL, "U0ADA", &text);
    }

    fn press(&self, n: usize) {
        self.speak(n);
    }

    fn took(&self) -> Vec<Duration> {
        self.fake.took()
    }

    /// A mention is told twice.
    fn wanted(&self, posts: usize) -> usize {
        posts + posts.div_ceil(TO_THE_BOT)
    }
}
