//! What `mayfly doctor` finds.

use mayfly_adapters::slack::{self, Config};
use mayfly_tests::fake_slack::{APP_TOKEN, BOT_TOKEN};

use crate::{config, fake};

async fn found(config: &Config) -> Vec<Result<String, String>> {
    let checks = slack::check(config).await;
    checks.into_iter().map(|check| check.result).collect()
}

#[tokio::test]
async fn cf_02_what_is_missing_is_named_exactly() {
    let fake = fake();
    let config = config(&fake);
    let good = found(&config).await;
    assert_eq!(good.len(), 4);
    assert!(good.iter().all(Result::is_ok), "{good:?}");
    assert_eq!(fake.sockets_ever(), 0);
    fake.without_scope("files:read");
    fake.without_scope("im:history");
    let bad = found(&config).await;
    let Err(said) = &bad[2] else {
        panic!("{bad:?}");
    };
    assert!(
        said.contains("files:read") && said.contains("im:history"),
        "{said}"
    );
    assert!(!said.contains("files:write"), "{said}");
}

#[tokio::test]
async fn se_05_swapped_and_refused_tokens_are_said_and_never_shown() {
    let fake = fake();
    let swapped = Config {
        bot_token: APP_TOKEN.into(),
        app_token: Some(BOT_TOKEN.into()),
        ..config(&fake)
    };
    let said = format!("{:?}", found(&swapped).await);
    assert!(said.contains("is an app token"), "{said}");
    let others = Config {
        bot_token: format!("{BOT_TOKEN}x").as_str().into(),
        app_token: Some(format!("{APP_TOKEN}x").as_str().into()),
        ..config(&fake)
    };
    let found = found(&others).await;
    assert_eq!(
        found.iter().filter(|result| result.is_err()).count(),
        2,
        "{found:?}"
    );
    for text in [said, format!("{found:?}")] {
        assert!(
            !text.contains("xoxb-4") && !text.contains("xapp-1"),
            "{text}"
        );
    }
}
