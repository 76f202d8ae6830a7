//! A bot that is made with the library of others (`discord.js`) works against the fake.

use std::{
    io::{BufRead as _, BufReader},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    thread,
};

use mayfly_tests::{
    engine::run,
    fake_discord::{ANN, FakeDiscord, GUILD, Running, token},
    schemas,
};
use serde_json::{Value, json};

use super::until;

/// The bot's process, and what it told.
struct Bot {
    process: Child,
    told: Arc<Mutex<Vec<Value>>>,
}

impl Bot {
    fn start(fake: &Running) -> Bot {
        let here = concat!(env!("CARGO_MANIFEST_DIR"), "/clients/discord");
        let install = concat!(env!("CARGO_MANIFEST_DIR"), "/clients/modules");
        let modules = run(install, &[here]);
        let mut process = Command::new("node")
            .arg(format!("{here}/bot.js"))
            .args([format!("{}/api", fake.rest.url()), token()])
            .env("NODE_PATH", modules.trim())
            .stdout(Stdio::piped())
            .spawn()
            .expect("node (apt-get install nodejs)");
        let lines = BufReader::new(process.stdout.take().expect("its output")).lines();
        let told = Arc::new(Mutex::new(Vec::new()));
        let kept = told.clone();
        thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let line = serde_json::from_str(&line).unwrap_or(json!({"error": line}));
                kept.lock().expect("not poisoned").push(line);
            }
        });
        Bot { process, told }
    }

    fn told(&self) -> Vec<Value> {
        self.told.lock().expect("not poisoned").clone()
    }

    async fn tells(&self, wanted: Value) {
        let told = || {
            let told = self.told();
            let error = told.iter().find(|line| line.get("error").is_some());
            assert_eq!(error, None, "while {wanted} was waited for");
            told.contains(&wanted)
        };
        until(&wanted.to_string(), told).await;
    }
}

impl Drop for Bot {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[tokio::test]
async fn discord_js_converses_edits_uploads_and_presses() {
    let fake = FakeDiscord::start();
    let channel = fake.channel("general");
    fake.callback_within(super::PATIENCE);
    let bot = Bot::start(&fake);
    bot.tells(json!({"ready": "mayfly"})).await;

    let asked = fake.mention(channel, ANN, "figures please");
    bot.tells(json!({"answered": asked.to_string(), "parent": channel.to_string()}))
        .await;
    let shown = fake.shown(asked);
    let texts: Vec<&str> = shown.iter().map(|shown| shown.text.as_str()).collect();
    assert_eq!(texts, ["**done**", "a file", "stop?"]);
    assert_eq!(shown[0].before, ["working"]);
    assert_eq!(shown[1].files, ["figures.txt"]);
    assert_eq!(
        fake.content("figures.txt").as_deref(),
        Some(&b"figures\n"[..])
    );
    assert_eq!(fake.shown(channel)[0].signs, ["✅"]);
    assert_eq!(fake.name(asked).as_deref(), Some("An answer"));

    let press = fake.press(shown[2].id, "stop-1", ANN);
    bot.tells(json!({"pressed": "stop-1", "by": "ann"})).await;
    assert_eq!(fake.acknowledged(press), Some(6));
    assert_eq!(fake.whispered(press), ["stopped"]);
    assert!(fake.shown(asked)[2].buttons.is_empty());

    let command = fake.command(channel, ANN, "status", "now");
    bot.tells(json!({"command": "status"})).await;
    assert_eq!(fake.whispered(command), ["got now"]);

    let message = fake.upload(asked, ANN, "and this?", "more.txt", "text/plain", b"12345");
    let files = json!([{"name": "more.txt", "size": 5}]);
    bot.tells(json!({"heard": "and this?", "by": "ann", "thread": true, "guild": GUILD.to_string(), "files": files})).await;
    fake.edit(message, "or this?");
    bot.tells(json!({"edited": "or this?"})).await;
    fake.delete(message);
    bot.tells(json!({"deleted": message.to_string()})).await;

    let told = [fake.rest.answered(), fake.told()].concat();
    let checked = tokio::task::spawn_blocking(move || schemas::check("discord", &told));
    checked.await.unwrap();
}
