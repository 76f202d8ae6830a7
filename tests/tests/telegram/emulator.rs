//! An emulator of Telegram that others wrote, telegram-test-api: the program answers a person in it, so what it
//! relies on is not only what our own fake does.

use std::{
    io::Write as _,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
};

use mayfly_tests::{client::Sayings, fake::wait_for, server::Server};
use serde_json::Value;

use crate::PATIENCE;

/// The emulator takes any.
const TOKEN: &str = "4200000666:AAEmulator-token_of_nobody_0123456789a";

/// It runs while it is held.
struct Emulator {
    child: Child,
    person: ChildStdin,
    told: Sayings,
}

fn clients() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("clients")
}

impl Emulator {
    fn start() -> Emulator {
        let folder = clients().join("telegram-emulator");
        let installed = Command::new(clients().join("modules"))
            .arg(&folder)
            .output();
        let installed = installed.expect("it starts");
        let said = String::from_utf8_lossy(&installed.stderr);
        assert!(installed.status.success(), "{said}");
        let modules = String::from_utf8(installed.stdout).expect("a path");
        let mut child = Command::new("node")
            .arg(folder.join("serve.js"))
            .args([modules.trim(), TOKEN])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("node starts");
        let told = Sayings::of(child.stdout.take().expect("a pipe"));
        let person = child.stdin.take().expect("a pipe");
        Emulator {
            child,
            person,
            told,
        }
    }

    fn say(&mut self, text: &str) {
        writeln!(self.person, "{text}").expect("it reads");
    }

    /// The first that it told of which this is so.
    fn waits_for(&self, what: &str, is: impl Fn(&Value) -> bool) -> Value {
        wait_for(PATIENCE, what, || {
            let told = self.told.lock();
            told.iter().find(|value| is(value)).cloned()
        })
    }

    fn said(&self, text: &str) -> Value {
        self.waits_for(text, |told| {
            told["text"]
                .as_str()
                .is_some_and(|said| said.contains(text))
        })
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_person_in_an_emulator_by_others_is_answered() {
    let mut emulator = Emulator::start();
    let serving = emulator.waits_for("an address", |told| told["what"] == "serving");
    let mut server = Server::simulated(env!("CARGO_BIN_EXE_mayfly-under-test"))
        .env("TELEGRAM_BOT_TOKEN", TOKEN)
        .env(
            "MAYFLY__TELEGRAM__API_URL",
            serving["url"].as_str().expect("an address"),
        )
        .env("MAYFLY__TELEGRAM__ALLOWED_USERS", "[\"7\"]");
    server.start();
    emulator.say("echo hello from the emulator");
    // Its post was made first, and is the answer by an edit.
    let answer = emulator.said("hello from the emulator");
    emulator.waits_for("the post", |told| {
        told["id"] == answer["id"] && told["text"] != answer["text"]
    });
    emulator.say("!status");
    emulator.said("nothing runs");
    emulator.say("echo and once more");
    emulator.said("and once more");
    let answered = "SELECT count(*) FROM messages WHERE outcome = 'answered'";
    server.until_sql(answered, "2");
    server.stop();
}
