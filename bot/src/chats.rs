//! Chat platforms are built from their sections.

use std::sync::Arc;

use mayfly_adapters::{discord::Discord, slack::Slack, telegram::Telegram};
use mayfly_domain::chat::Platform;
use mayfly_orchestrator::{
    inbox::{access::Access, route::Accesses},
    outbox::Platforms,
};

use crate::config::Config;

/// Those that are switched on, and who may speak there. The error is a sentence.
pub(crate) fn build(config: &Config) -> Result<(Platforms, Accesses), String> {
    let mut chats = Chats::default();
    if let Some(slack) = config.slack.config() {
        chats.add(Slack::new(slack?)?, &config.slack.access);
    }
    if let Some(discord) = config.discord.config() {
        chats.add(Discord::new(discord?)?, &config.discord.access);
    }
    if let Some(telegram) = config.telegram.config() {
        chats.add(Telegram::new(&telegram?)?, &config.telegram.access);
    }
    Ok((chats.platforms, chats.accesses))
}

#[derive(Default)]
struct Chats {
    platforms: Platforms,
    accesses: Accesses,
}

impl Chats {
    fn add(&mut self, platform: impl Platform + 'static, access: &Access) {
        let name = platform.name();
        self.platforms.insert(name, Arc::new(platform));
        self.accesses.insert(name.to_owned(), access.clone());
    }
}
