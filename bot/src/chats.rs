//! Chat platforms are built from their sections.

use std::sync::Arc;

use mayfly_adapters::{discord::Discord, hook::Hook, slack::Slack, telegram::Telegram};
use mayfly_domain::chat::Platform;
use mayfly_orchestrator::{
    hold,
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
        let token = &config.slack.bot_token;
        chats.add(slack.clone(), token, &config.slack.access);
        if by_http {
            chats.hooks.push(slack);
        }
    }
    if let Some(discord) = config.discord.config() {
        let token = &config.discord.bot_token;
        let discord = Arc::new(Discord::new(discord?)?);
        chats.add(discord, token, &config.discord.access);
    }
    if let Some(telegram) = config.telegram.config() {
        let telegram = telegram?;
        let by_http = telegram.webhook_url.is_some();
        let telegram = Arc::new(Telegram::new(&telegram)?);
        let token = &config.telegram.bot_token;
        chats.add(telegram.clone(), token, &config.telegram.access);
        if by_http {
            chats.hooks.push(telegram);
        }
    }
    if !config.serve.role.has_chats() {
        // Rights are asked again when a message is about to run, with the rules this process has.
        for (name, access) in [
            ("slack", &config.slack.access),
            ("discord", &config.discord.access),
            ("telegram", &config.telegram.access),
        ] {
            if *access != Access::default() {
                chats.accesses.insert(name.to_owned(), access.clone());
            }
        }
        if chats.accesses.is_empty() {
            tracing::warn!(
                "who may speak is judged by the bot alone, when a message comes: give this worker the same \
                 allowed_users and allowed_channels, and it is judged again before a message runs"
            );
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
    /// What stands for the tokens where several processes may have them.
    pub(crate) hold: Vec<String>,
}

impl Chats {
    fn add(&mut self, platform: Arc<dyn Platform>, token: &str, access: &Access) {
        let name = platform.name();
        self.hold.push(hold::name_of(name, token));
        self.platforms.insert(name, platform);
        self.accesses.insert(name.to_owned(), access.clone());
    }
}
