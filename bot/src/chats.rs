//! Chat platforms are built from their sections.

use std::sync::Arc;

use mayfly_adapters::{discord::Discord, hook::Hook, slack::Slack, telegram::Telegram};
use mayfly_domain::chat::Platform;
use mayfly_orchestrator::{
    inbox::{access::Access, route::Accesses},
    outbox::Platforms,
};

use crate::config::Config;

/// Those that are switched on, and who may speak there. The error is a sentence.
pub(crate) fn build(config: &Config) -> Result<Chats, String> {
    let mut chats = Chats::default();
    if let Some(slack) = config.slack.config() {
        let slack = slack?;
        let by_http = slack.is_by_http();
        let slack = Arc::new(Slack::new(slack)?);
        chats.add(slack.clone(), &config.slack.access);
        if by_http {
            chats.hooks.push(slack);
        }
    }
    if let Some(discord) = config.discord.config() {
        chats.add(Arc::new(Discord::new(discord?)?), &config.discord.access);
    }
    if let Some(telegram) = config.telegram.config() {
        let telegram = telegram?;
        let by_http = telegram.webhook_url.is_some();
        let telegram = Arc::new(Telegram::new(&telegram)?);
        chats.add(telegram.clone(), &config.telegram.access);
        if by_http {
            chats.hooks.push(telegram);
        }
    }
    Ok(chats)
}

/// See [`build`].
#[derive(Default)]
pub(crate) struct Chats {
    pub(crate) platforms: Platforms,
    pub(crate) accesses: Accesses,
    /// Those that send requests.
    pub(crate) hooks: Vec<Arc<dyn Hook>>,
}

impl Chats {
    fn add(&mut self, platform: Arc<dyn Platform>, access: &Access) {
        let name = platform.name();
        self.platforms.insert(name, platform);
        self.accesses.insert(name.to_owned(), access.clone());
    }
}
