//! Chat platforms: one section each, switched on by its token.

use mayfly_adapters::{discord, secret::Secret, slack, telegram};
use mayfly_orchestrator::inbox::access::Access;
use serde::{Deserialize, Serialize};

/// `[slack]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SlackSection {
    /// `xoxb-…`; also `SLACK_BOT_TOKEN`.
    pub bot_token: String,
    /// `xapp-…`; also `SLACK_APP_TOKEN`. With it events come by Socket Mode.
    pub app_token: String,
    /// Also `SLACK_SIGNING_SECRET`. With it, and without `app_token`, they come as requests.
    pub signing_secret: String,
    pub api_url: String,
    pub files_url: String,
    #[serde(flatten)]
    pub access: Access,
}

impl Default for SlackSection {
    fn default() -> Self {
        let config = slack::Config::new(Secret::from(""), None);
        SlackSection {
            bot_token: String::new(),
            app_token: String::new(),
            signing_secret: String::new(),
            api_url: config.api_url,
            files_url: config.files_url,
            access: Access::default(),
        }
    }
}

/// `[discord]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DiscordSection {
    /// Also `DISCORD_BOT_TOKEN` or `DISCORD_TOKEN`.
    pub bot_token: String,
    pub api_url: String,
    pub file_hosts: Vec<String>,
    #[serde(flatten)]
    pub access: Access,
}

impl Default for DiscordSection {
    fn default() -> Self {
        let config = discord::config::Config::new("");
        DiscordSection {
            bot_token: String::new(),
            api_url: config.api_url,
            file_hosts: config.file_hosts,
            access: Access::default(),
        }
    }
}

/// `[telegram]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TelegramSection {
    /// Also `TELEGRAM_BOT_TOKEN` or `TELOXIDE_TOKEN`.
    pub bot_token: String,
    pub api_url: String,
    /// Where Telegram sends updates to; they come by polling where it is empty.
    pub webhook_url: String,
    #[serde(flatten)]
    pub access: Access,
}

impl Default for TelegramSection {
    fn default() -> Self {
        TelegramSection {
            bot_token: String::new(),
            api_url: telegram::config::API.to_owned(),
            webhook_url: String::new(),
            access: Access::default(),
        }
    }
}

/// Names that people set for other programs too, and the keys they stand for.
pub(super) const NAMES: [(&str, [&str; 2]); 7] = [
    ("SLACK_BOT_TOKEN", ["slack", "bot_token"]),
    ("SLACK_APP_TOKEN", ["slack", "app_token"]),
    ("SLACK_SIGNING_SECRET", ["slack", "signing_secret"]),
    ("DISCORD_TOKEN", ["discord", "bot_token"]),
    ("DISCORD_BOT_TOKEN", ["discord", "bot_token"]),
    ("TELOXIDE_TOKEN", ["telegram", "bot_token"]),
    ("TELEGRAM_BOT_TOKEN", ["telegram", "bot_token"]),
];

fn given(text: &str) -> Option<Secret> {
    (!text.is_empty()).then(|| Secret::from(text))
}

impl SlackSection {
    /// None if it is switched off.
    pub fn config(&self) -> Option<Result<slack::Config, String>> {
        let bot_token = given(&self.bot_token)?;
        let config = slack::Config {
            bot_token,
            app_token: given(&self.app_token),
            signing_secret: given(&self.signing_secret),
            api_url: self.api_url.clone(),
            files_url: self.files_url.clone(),
        };
        Some(config.check().map(|()| config))
    }
}

impl DiscordSection {
    /// None if it is switched off.
    pub fn config(&self) -> Option<Result<discord::config::Config, String>> {
        let token = given(&self.bot_token)?;
        let config = discord::config::Config {
            token,
            api_url: self.api_url.clone(),
            file_hosts: self.file_hosts.clone(),
        };
        Some(config.check().map(|()| config))
    }
}

impl TelegramSection {
    /// None if it is switched off.
    pub fn config(&self) -> Option<Result<telegram::config::Config, String>> {
        let token = given(&self.bot_token)?.expose().to_owned();
        let token = match telegram::config::Token::try_from(token) {
            Ok(token) => token,
            Err(error) => return Some(Err(error.to_string())),
        };
        let mut config = telegram::config::Config::new(token);
        if !self.webhook_url.is_empty() {
            match telegram::config::webhook_url(&self.webhook_url) {
                Ok(url) => config.webhook_url = Some(url),
                Err(sentence) => return Some(Err(sentence)),
            }
        }
        let url = self.api_url.parse();
        Some(match url {
            Ok(url) => {
                config.api = url;
                Ok(config)
            }
            Err(_) => Err(format!(
                "\"{}\" is no address of the Telegram API, for example {}",
                self.api_url,
                telegram::config::API
            )),
        })
    }
}
