//! What is registered and looked at.

use mayfly_adapters::{
    check::Check,
    telegram::{
        config::{Config, Token},
        setup::{check, register_commands},
    },
};
use mayfly_tests::{
    fake::Fault,
    fake_telegram::{BOT_NAME, FakeTelegram, Person},
};
use serde_json::json;

use crate::config;

fn bad(checks: &[Check]) -> Vec<String> {
    let wrong = checks.iter().filter_map(|check| check.result.clone().err());
    wrong.collect()
}

#[tokio::test]
async fn cf_02_what_is_switched_wrong_is_named() {
    let fake = FakeTelegram::start();
    let fine = check(&config(&fake)).await;
    assert_eq!(bad(&fine), Vec::<String>::new());
    assert!(
        fine[0]
            .result
            .as_ref()
            .is_ok_and(|said| said.contains(BOT_NAME))
    );
    fake.platform.set_privacy(true);
    fake.platform.set_webhook("https://bot.example/hidden-path");
    let wrong = bad(&check(&config(&fake)).await);
    assert_eq!(wrong.len(), 2, "{wrong:?}");
    assert!(wrong[0].contains("/setprivacy") && wrong[0].contains("add it again"));
    assert!(wrong[1].contains("bot.example") && !wrong[1].contains("hidden-path"));
}

#[tokio::test]
async fn se_05_a_token_that_is_not_accepted_is_told_without_it() {
    let fake = FakeTelegram::start();
    let secret = "BBBBbbbbBBBBbbbbBBBBbbbbBBBBbbbb123";
    let other = Token::try_from(format!("123456789:{secret}")).expect("a token");
    let config = Config {
        token: other,
        ..config(&fake)
    };
    let wrong = bad(&check(&config).await);
    assert!(
        wrong[0].contains("@BotFather") && !wrong[0].contains(secret),
        "{wrong:?}"
    );
    let refused = register_commands(&config, &[("help", "Help")]).await;
    assert!(refused.is_err_and(|why| why.contains("@BotFather") && !why.contains(secret)));
}

#[tokio::test]
async fn commands_are_registered_in_place_of_those_before() {
    let fake = FakeTelegram::start();
    let config = config(&fake);
    let first = [("help", "What there is"), ("status", "What runs")];
    register_commands(&config, &first)
        .await
        .expect("registered");
    register_commands(&config, &[("stop", "Stop it")])
        .await
        .expect("registered");
    let expected = json!([{"command": "stop", "description": "Stop it"}]);
    assert_eq!(fake.platform.commands(), expected);
    for (name, said, told) in [("New Agent", "x", "New Agent"), ("new", "", "/new")] {
        let refused = register_commands(&config, &[(name, said)]).await;
        assert!(refused.is_err_and(|why| why.contains(told)), "{name}");
    }
    fake.fault("setmycommands", [Fault::Cut]);
    assert!(register_commands(&config, &first).await.is_err());
}

#[tokio::test]
async fn cf_02_doctor_tells_how_a_webhook_is() {
    let fake = FakeTelegram::start();
    let url = "https://bot.example/hidden-path";
    let wanted = Config {
        webhook_url: Some(url.parse().expect("an address")),
        ..config(&fake)
    };
    let told = async || {
        let checks = check(&wanted).await;
        let found = checks
            .into_iter()
            .find(|check| check.what.ends_with("webhook"));
        found.expect("it is looked at").result
    };
    assert!(told().await.is_ok_and(|said| said.contains("not set yet")));
    fake.platform.set_webhook("https://other.example/x");
    assert!(
        told()
            .await
            .is_ok_and(|said| said.contains("at other.example now"))
    );
    fake.platform.set_webhook(url);
    assert!(
        told()
            .await
            .is_ok_and(|said| said.contains("bot.example, 0 updates wait"))
    );
    fake.platform.private(Person(7));
    fake.platform.write(7, Person(7), "hello");
    crate::until("it fails", || fake.platform.delivery_failed()).await;
    let why = told().await.expect_err("nobody is there");
    assert!(
        why.contains("Connection refused") && why.contains("hooks.listen"),
        "{why}"
    );
    assert!(!why.contains("hidden-path"), "{why}");
}
