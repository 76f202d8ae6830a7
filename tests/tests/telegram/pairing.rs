//! Personal use: the program makes a code, a person says it to the bot.

use mayfly_tests::{fake_telegram::Person, server::Server};

use super::*;

const ADA: Person = Person(1001);
const EVE: Person = Person(1002);
const GRACE: Person = Person(1003);

fn served(fake: &Fake) -> Server {
    Server::simulated(env!("CARGO_BIN_EXE_mayfly-under-test"))
        .env("TELEGRAM_BOT_TOKEN", TOKEN)
        .env("MAYFLY__TELEGRAM__API_URL", &fake.url())
}

fn code(server: &Server) -> String {
    let opened = server.json(&["pair", "telegram"]);
    opened["code"].as_str().expect("a code").to_owned()
}

fn until_told(server: &Server, fake: &Fake, chat: i64, is: impl Fn(&str) -> bool) {
    server.until("the bot's answer", || {
        let texts = texts(fake, chat);
        match texts.iter().any(|text| is(text)) {
            true => Ok(()),
            false => Err(format!("{texts:?}")),
        }
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_is_let_in_by_a_code_also_where_the_server_dies_of_it() {
    let fake = FakeTelegram::start();
    let (ada, eve) = (fake.platform.private(ADA), fake.platform.private(EVE));
    let mut server = served(&fake);
    server.start();
    let log = server.log();
    assert!(
        log.contains("nobody may speak but those who are paired"),
        "{log}"
    );
    let told = server.mayfly(&["pair", "telegram"]);
    let told = String::from_utf8(told.stdout).expect("text");
    assert!(told.contains("?start="), "{told}");
    server.stop();
    server.start_with_fault("apply.inside");
    let code = code(&server);
    fake.platform.write(ada, ADA, &format!("/start {code}"));
    server.wait_dead();
    server.start();
    until_told(&server, &fake, ada, |text| text.contains("!help"));
    fake.platform.write(ada, ADA, "echo hello");
    until_told(&server, &fake, ada, |text| text == "hello");
    fake.platform.write(eve, EVE, &format!("/pair {code}"));
    fake.platform.write(eve, EVE, "echo forged");
    server.until_sql(
        "SELECT count(*) FROM arrivals WHERE seq > 0 AND state = 'author not allowed'",
        "1",
    );
    let listed = server.json(&["pair", "list"]);
    assert_eq!(listed.as_array().map(Vec::len), Some(1));
    assert_eq!(listed[0]["person"], ADA.0.to_string());
    server.json(&["pair", "remove", &ADA.0.to_string()]);
    fake.platform.write(ada, ADA, "echo gone");
    server.until_sql(
        "SELECT count(*) FROM arrivals WHERE seq > 0 AND state = 'author not allowed'",
        "2",
    );
    assert!(!texts(&fake, ada).contains(&"gone".to_owned()));
    let log = server.log();
    assert!(!log.contains(&code) && log.contains("paired"), "{log}");
    server.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn codes_and_people_need_no_server_that_runs_and_doctor_names_who_was_let_in() {
    let fake = FakeTelegram::start();
    let eve = fake.platform.private(EVE);
    let mut server = Server::new(env!("CARGO_BIN_EXE_mayfly-under-test"))
        .env("TELEGRAM_BOT_TOKEN", TOKEN)
        .env("MAYFLY__TELEGRAM__API_URL", &fake.url());
    let early = code(&server);
    assert_eq!(server.json(&["pair", "list"]), serde_json::json!([]));
    server.start();
    let grace = fake.platform.private(GRACE);
    fake.platform.write(grace, GRACE, &format!("/pair {early}"));
    until_told(&server, &fake, grace, |text| text.contains("!help"));
    fake.platform.write(eve, EVE, &format!("/pair {early}"));
    until_told(&server, &fake, eve, |text| text.contains("lets nobody in"));
    let found = server.mayfly(&["doctor", "--json"]);
    let found: serde_json::Value = serde_json::from_slice(&found.stdout).expect("JSON");
    let mut checks = found.as_array().expect("a list").iter();
    let line = checks.find(|check| check["name"] == "paired");
    let line = line.unwrap_or_else(|| panic!("doctor names nobody: {found}"));
    assert_eq!(line["state"], "ok");
    let named = line["found"].as_str().expect("a sentence");
    assert!(named.contains(&format!("({})", GRACE.0)), "{named}");
    server.stop();
    let listed = server.json(&["pair", "list"]);
    assert_eq!(listed[0]["person"], GRACE.0.to_string());
    server.json(&["pair", "remove", &GRACE.0.to_string()]);
    assert_eq!(server.json(&["pair", "list"]), serde_json::json!([]));
}
