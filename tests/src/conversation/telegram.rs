//! In a group: what the bot said is answered.

use crate::{
    fake::{Fault, Served},
    fake_telegram::{BOT, BOT_NAME, FakeTelegram, Person, Shown, TOKEN},
};

use super::{Conversation, Shut};
use crate::server::Server;

const ADA: Person = Person(1001);

struct Group {
    fake: Served<FakeTelegram>,
    chat: i64,
    /// Whose answers are said; none for the bot's newest.
    root: Option<i64>,
    by_requests: bool,
}

impl Group {
    fn of_bot(&self) -> Vec<Shown> {
        let shown = self.fake.platform.shown(self.chat).into_iter();
        shown.filter(|post| post.from == BOT).collect()
    }

    fn answered(&self) -> i64 {
        self.root
            .unwrap_or_else(|| self.of_bot().last().expect("it has spoken").id)
    }
}

impl Conversation for Group {
    fn environment(&self) -> Vec<(&'static str, String)> {
        let everyone = "[\"everyone\"]".to_owned();
        let webhook = match self.by_requests {
            false => String::new(),
            true => "https://bot.example/hooks/telegram".to_owned(),
        };
        vec![
            ("MAYFLY__TELEGRAM__WEBHOOK_URL", webhook),
            ("MAYFLY__HOOKS__LISTEN", "127.0.0.1:0".to_owned()),
            ("TELEGRAM_BOT_TOKEN", TOKEN.to_owned()),
            ("MAYFLY__TELEGRAM__API_URL", self.fake.url()),
            ("MAYFLY__TELEGRAM__ALLOWED_USERS", everyone.clone()),
            ("MAYFLY__TELEGRAM__ALLOWED_CHANNELS", everyone),
        ]
    }

    fn reach(&self, server: &Server) {
        if self.by_requests {
            self.fake.platform.requests_to(server.requests_address());
        }
    }

    fn begin(&mut self, text: &str) {
        let text = format!("@{BOT_NAME} {text}");
        self.fake.platform.write(self.chat, ADA, &text);
    }

    fn say(&mut self, text: &str) {
        let answered = self.answered();
        self.fake.platform.answer(self.chat, answered, ADA, text);
    }

    fn send(&mut self, text: &str, name: &str, content: &[u8]) {
        let text = format!("@{BOT_NAME} {text}");
        self.fake
            .platform
            .send_file(self.chat, ADA, &text, name, content);
    }

    fn texts(&self) -> Vec<String> {
        self.of_bot().into_iter().map(|post| post.text).collect()
    }

    fn files(&self) -> Vec<String> {
        let files = self.of_bot().into_iter();
        files.filter_map(|post| Some(post.file?.0)).collect()
    }

    fn press(&mut self, label: &str) {
        let has = |post: &&Shown| post.buttons.iter().any(|(said, _)| said == label);
        let posts = self.of_bot();
        let post = posts.iter().rev().find(has).expect("a button").id;
        self.fake.platform.press(self.chat, post, label, ADA);
    }

    fn shut(&mut self, how: Shut) -> &'static str {
        match how {
            Shut::Removed => {
                let told = "bot was kicked from the supergroup chat";
                self.fake.platform.close(self.chat, told);
                "add it again"
            }
            Shut::Blocked => {
                let told = "bot was blocked by the user";
                self.fake.platform.close(self.chat, told);
                "only they can unblock it"
            }
            Shut::Archived => panic!("Telegram has no archive for all"),
        }
    }

    fn readmit(&mut self) {
        self.fake.platform.readmit(self.chat);
    }

    fn opening_fails(&self, faults: Vec<Fault>) {
        self.fake.fault("sendmessage", faults);
    }

    fn opened(&self) -> usize {
        let posts = self.of_bot().into_iter();
        posts.filter(|post| post.text.starts_with("Fork ")).count()
    }

    fn follow(&mut self, _: &str) {
        let posts = self.of_bot();
        let root = posts
            .iter()
            .rev()
            .find(|post| post.text.starts_with("Fork "));
        self.root = Some(root.expect("the fork's first post").id);
    }
}

/// On an own fake, by polling.
pub fn on_telegram() -> impl Conversation {
    on(false)
}

/// On an own fake that sends requests.
pub fn on_telegram_by_requests() -> impl Conversation {
    on(true)
}

fn on(by_requests: bool) -> Group {
    let fake = FakeTelegram::start();
    let chat = fake.platform.supergroup(-1_001_234_567_890);
    Group {
        fake,
        chat,
        root: None,
        by_requests,
    }
}
