//! What is set up once.

use mayfly_adapters::discord::setup::{check, register_commands};
use serde_json::json;

use super::{config, start};

#[tokio::test]
async fn commands_are_registered_in_place_of_all_before() {
    let (fake, _) = start();
    let config = config(&fake);
    register_commands(
        &config,
        &[("help", "What can be asked"), ("status", "How it goes")],
    )
    .await
    .expect("registered");
    register_commands(&config, &[("status", "How it goes")])
        .await
        .expect("registered");
    let commands = fake.commands();
    assert_eq!(commands.as_array().map(Vec::len), Some(1));
    assert_eq!(commands[0]["name"], "status");
    assert_eq!(commands[0]["options"][0]["type"], json!(3));
    let refused = register_commands(&config, &[("Status now", "x")])
        .await
        .expect_err("refused");
    assert!(refused.contains("Status now"), "{refused}");
}

#[tokio::test]
async fn cf_02_the_check_names_the_switch_that_is_off() {
    let (fake, _) = start();
    let mut settings = config(&fake);
    let good = check(&settings).await;
    assert!(
        good.len() == 4 && good.iter().all(|check| check.result.is_ok()),
        "{good:?}"
    );
    fake.grant_content(false);
    fake.sessions_left(0);
    let bad: Vec<String> = check(&settings)
        .await
        .into_iter()
        .filter_map(|check| check.result.err())
        .collect();
    assert_eq!(bad.len(), 2, "{bad:?}");
    assert!(bad[0].contains("MESSAGE CONTENT INTENT"), "{bad:?}");
    assert!(bad[1].contains("240 min"), "{bad:?}");
    let other = mayfly_tests::fake_discord::token().replace("nobody", "anybody");
    settings.token = other.as_str().into();
    let refused = check(&settings).await;
    let said = refused[0].result.clone().expect_err("refused");
    assert!(
        refused.len() == 1 && said.contains("Reset Token") && !said.contains(&other),
        "{said}"
    );
}
