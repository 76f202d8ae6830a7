//! Each chat platform that is switched on, asked live.

use mayfly_adapters::{check::Check as Asked, discord, slack, telegram};

use super::{Check, State};
use crate::config::Config;

pub(super) async fn checks(config: &Config) -> Vec<Check> {
    let mut all = Vec::new();
    if let Some(Ok(config)) = config.slack.config() {
        all.extend(told("slack", slack::check(&config).await));
    }
    if let Some(Ok(config)) = config.discord.config() {
        all.extend(told("discord", discord::setup::check(&config).await));
    }
    if let Some(Ok(config)) = config.telegram.config() {
        all.extend(told("telegram", telegram::setup::check(&config).await));
    }
    all
}

fn told(platform: &'static str, asked: Vec<Asked>) -> Vec<Check> {
    let check = |asked: Asked| {
        let prefix = format!("{platform}: ");
        let what = asked.what.strip_prefix(&prefix).unwrap_or(&asked.what);
        match asked.result {
            Ok(found) => Check::ok(platform, format!("{what}: {found}")),
            Err(mend) => Check::not(State::Fail, platform, what, mend),
        }
    };
    asked.into_iter().map(check).collect()
}
