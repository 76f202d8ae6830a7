//! What is registered and looked at; updates that come to a URL.

use mayfly_adapters::{
    check::Check,
    signature::Refused,
    telegram::{
        config::{Config, Token},
        parse::Me,
        setup::{check, register_commands},
        webhook::{SECRET, webhook},
    },
};
use mayfly_domain::Happened;
use mayfly_tests::{
    fake::Fault,
    fake_telegram::{BOT, BOT_NAME, FakeTelegram, Person},
};
use reqwest::header::HeaderMap;
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
async fn an_update_at_a_url_is_taken_with_the_secret_only() {
    let fake = FakeTelegram::start();
    fake.platform.private(Person(7));
    fake.platform.write(7, Person(7), "hello");
    let body = fake.platform.waiting()[0].to_string();
    let me = Me {
        id: BOT.to_string(),
        username: BOT_NAME.to_owned(),
    };
    let with = |secrets: &[&'static str]| {
        let mut headers = HeaderMap::new();
        for secret in secrets {
            headers.append(SECRET, secret.parse().expect("a value"));
        }
        webhook(&headers, body.as_bytes(), "s3cret", &me)
    };
    let taken = with(&["s3cret"]).expect("taken");
    assert_eq!(
        (taken.platform.as_str(), taken.raw.as_slice()),
        ("telegram", body.as_bytes())
    );
    let Ok(Happened::Posted(post)) = taken.event.map(|event| event.happened) else {
        panic!("a post");
    };
    assert_eq!(post.text, "hello");
    assert_eq!(with(&["s3cres"]).err(), Some(Refused::Wrong));
    assert!(matches!(with(&[]), Err(Refused::Missing(_))));
    assert!(matches!(
        with(&["s3cret", "s3cret"]),
        Err(Refused::Twice(_))
    ));
}
