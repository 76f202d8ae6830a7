//! The fake is trusted because a client that others wrote, python-telegram-bot, works against it as it
//! would against Telegram: it reads every answer and update into its own types.

use std::{
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use mayfly_tests::{
    client::Sayings,
    fake::wait_for,
    fake_telegram::{BOT, BOT_NAME, FakeTelegram, Person, Shown, TOKEN},
    schemas,
};
use serde_json::{Value, json};
use teloxide_core::types::{Update, UpdateKind};

use crate::{Fake, PATIENCE};

const ANN: Person = Person(7);
const GROUP: i64 = -1_001_234_567_890;

fn clients() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("clients")
}

/// A bot on python-telegram-bot while it is held.
struct Client {
    child: Child,
    told: Sayings,
}

impl Client {
    fn start(fake: &Fake) -> Client {
        let folder = clients().join("telegram");
        let installed = Command::new(clients().join("venv")).arg(&folder).output();
        let installed = installed.expect("it starts");
        let said = String::from_utf8_lossy(&installed.stderr);
        assert!(installed.status.success(), "{said}");
        let venv = String::from_utf8(installed.stdout).expect("a path");
        let mut child = Command::new(Path::new(venv.trim()).join("bin/python"))
            .arg(folder.join("bot.py"))
            .args([&fake.url(), TOKEN])
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let told = Sayings::of(child.stdout.take().expect("a pipe"));
        Client { child, told }
    }

    fn waits_for(&self, what: &str, name: Option<&str>) -> Value {
        wait_for(PATIENCE, &format!("{what} {name:?}"), || {
            let told = self.told.lock();
            let is = |value: &&Value| {
                value["what"] == what && name.is_none_or(|name| value["name"] == name)
            };
            told.iter().find(is).cloned()
        })
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn ours(fake: &Fake, chat: i64) -> Vec<Shown> {
    let shown = fake.platform.shown(chat);
    shown.into_iter().filter(|post| post.from == BOT).collect()
}

fn seen(fake: &Fake, chat: i64, text: &str) -> Shown {
    wait_for(PATIENCE, text, || {
        ours(fake, chat).into_iter().find(|post| post.text == text)
    })
}

#[test]
fn a_client_of_others_receives_answers_edits_uploads_asks_and_fetches() {
    let fake = FakeTelegram::start();
    let chat = fake.platform.private(ANN);
    fake.platform.forum(GROUP, &[77]);
    let client = Client::start(&fake);
    let ready = client.waits_for("ready", None);
    assert_eq!(
        (&ready["name"], &ready["id"]),
        (&json!(BOT_NAME), &json!(BOT))
    );
    fake.platform.write(chat, ANN, "/start");
    seen(&fake, chat, "hello Person 7");

    let question = fake
        .platform
        .write_in_topic(GROUP, 77, ANN, "report please");
    let asked = seen(&fake, GROUP, "sure?");
    let answer = seen(&fake, GROUP, "done: a & b");
    assert_eq!(answer.history, ["working on <it>"]);
    assert_eq!((answer.topic, answer.answers), (Some(77), Some(question)));
    let report = seen(&fake, GROUP, "the report");
    let file = ("report.txt".to_owned(), b"a report".to_vec());
    assert_eq!((report.topic, report.file), (Some(77), Some(file)));
    assert_eq!(
        fake.platform.reaction(GROUP, question),
        Some("👀".to_owned())
    );
    let action = (GROUP, Some(77), "typing".to_owned());
    assert_eq!(fake.platform.actions(), [action]);
    wait_for(PATIENCE, "the removal", || {
        let gone = fake.calls("deletemessage").len() == 1;
        (gone
            && ours(&fake, GROUP)
                .iter()
                .all(|post| post.text != "to be removed"))
        .then_some(())
    });

    let press = fake.platform.press(GROUP, asked.id, "Yes", ANN);
    seen(&fake, GROUP, "Person 7: yes");
    assert_eq!(
        fake.platform.answered(&press),
        Some("you pressed yes".to_owned())
    );

    fake.platform
        .send_file(chat, ANN, "look", "data.txt", b"some data");
    let file = client.waits_for("file", Some("data.txt"));
    assert_eq!(
        (&file["content"], &file["caption"]),
        (&json!("some data"), &json!("look"))
    );
    assert_eq!(file["size"], 9);
    fake.platform.edit(chat, 1, "changed");
    let edited = client.waits_for("edited by a person", None);
    assert_eq!(
        (&edited["text"], &edited["at"]),
        (&json!("changed"), &json!(true))
    );
    schemas::check("telegram", &fake.answered());
}

#[test]
fn a_client_of_others_understands_what_is_refused() {
    let fake = FakeTelegram::start();
    let chat = fake.platform.group(-55);
    let client = Client::start(&fake);
    fake.platform.write(chat, ANN, "refuse me");
    for (name, said) in [
        ("tags", "Can't parse entities"),
        ("long", "Message is too long"),
        ("empty", "Message text is empty"),
        ("topic", "Message thread not found"),
        ("reply", "Message to be replied not found"),
        ("edit", "Message to edit not found"),
        ("chat", "Chat not found"),
        ("reaction", "Reaction_invalid"),
        ("press", "Query is too old"),
    ] {
        let refused = client.waits_for("refused", Some(name));
        let told = refused["said"].as_str().unwrap_or_default();
        assert!(
            told.to_lowercase().contains(&said.to_lowercase()),
            "{refused}"
        );
        assert_eq!(refused["kind"], "BadRequest", "{refused}");
    }
    fake.platform.migrate(chat, GROUP);
    let moved = client.waits_for("moved", None);
    assert_eq!(moved["to"], GROUP);
}

#[test]
fn every_update_is_of_the_published_types() {
    let fake = FakeTelegram::start();
    let chat = fake.platform.private(ANN);
    let first = fake.platform.write(chat, ANN, "hello @mayfly_test_bot");
    fake.platform.answer(chat, first, ANN, "more");
    fake.platform.edit(chat, first, "changed");
    fake.platform
        .send_file(chat, ANN, "look", "data.txt", b"some data");
    fake.platform
        .send_album(chat, ANN, (1, "both"), &[("a", b"a"), ("b", b"b")]);
    fake.platform.forum(GROUP, &[77]);
    let topic = fake.platform.write_in_topic(GROUP, 77, ANN, "/status now");
    fake.platform.answer(GROUP, topic, ANN, "in General");
    fake.platform.group(-55);
    fake.platform.migrate(-55, -1_005);
    let updates = fake.platform.waiting();
    assert_eq!(updates.len(), 10);
    for update in updates {
        let typed: Update = serde_json::from_str(&update.to_string()).expect("an update");
        assert!(
            matches!(
                typed.kind,
                UpdateKind::Message(_) | UpdateKind::EditedMessage(_)
            ),
            "{update}"
        );
    }
}
