//! What a Telegram bot is configured with. A token's text leaves this file only for the API client.

use std::fmt;

use reqwest::Url;
use serde::Deserialize;

use crate::secret::Secret;

/// Where the Bot API is, unless said otherwise.
pub const API: &str = "https://api.telegram.org";

/// A bot's settings.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// From @BotFather.
    pub token: Token,
    /// Address of the Bot API; another one for a proxy in front of it.
    #[serde(default = "api")]
    pub api: Url,
    /// Where Telegram sends updates to, instead of polling.
    #[serde(default)]
    pub webhook_url: Option<Url>,
    /// Seconds a poll waits for news, 1 to 50; also between two looks at how the webhook is.
    #[serde(default = "poll_s")]
    pub poll_s: u8,
    /// Seconds a call may take, beyond what it waits or carries.
    #[serde(default = "timeout_s")]
    pub timeout_s: u8,
}

fn api() -> Url {
    API.parse().expect("an address")
}

fn poll_s() -> u8 {
    25
}

fn timeout_s() -> u8 {
    10
}

impl Config {
    /// A bot with this token and defaults for the rest.
    pub fn new(token: Token) -> Config {
        Config {
            token,
            api: api(),
            webhook_url: None,
            poll_s: poll_s(),
            timeout_s: timeout_s(),
        }
    }
}

/// Reads where updates are sent to. The error is a sentence without the address, which may be
/// somebody's secret.
pub fn webhook_url(text: &str) -> Result<Url, String> {
    const LIKE: &str = "for example https://bot.example.org/hooks/telegram";
    let url: Url = text
        .parse()
        .map_err(|_| format!("the webhook's address is none: {LIKE}"))?;
    if url.scheme() != "https" || url.host_str().is_none() {
        return Err(format!("Telegram sends updates to https only: {LIKE}"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("an address without user and password is wanted".to_owned());
    }
    let port = url.port_or_known_default().unwrap_or_default();
    if ![443, 80, 88, 8443].contains(&port) {
        return Err(format!(
            "Telegram sends updates to the ports 443, 80, 88 and 8443, not to {port}"
        ));
    }
    if url.path() == "/" {
        return Err(format!("the webhook's address has no path: {LIKE}"));
    }
    Ok(url)
}

/// A bot's token: whoever has it is the bot. Never shown.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Token(Secret);

/// A text that is no token; says what is wrong with it and nothing of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the Telegram token {0}: take the one that @BotFather shows, like 123456789:AA…")]
pub struct TokenError(&'static str);

impl Token {
    pub(crate) fn secret(&self) -> &str {
        self.0.expose()
    }

    /// The bot's own id, which its token begins with.
    pub fn bot(&self) -> &str {
        self.secret().split(':').next().unwrap_or_default()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token(of bot {})", self.bot())
    }
}

impl TryFrom<String> for Token {
    type Error = TokenError;

    fn try_from(text: String) -> Result<Token, TokenError> {
        let text = text.trim();
        if text.is_empty() {
            return Err(TokenError("is empty"));
        }
        if text.contains(char::is_whitespace) {
            return Err(TokenError("has spaces or line breaks in it"));
        }
        if text.starts_with("xox") || text.starts_with("xapp-") {
            return Err(TokenError("is of the wrong kind, one of Slack"));
        }
        if text.split('.').count() == 3 && !text.contains(':') {
            return Err(TokenError("is of the wrong kind, perhaps one of Discord"));
        }
        let letter = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
        let formed = text.split_once(':').is_some_and(|(bot, secret)| {
            (5..=20).contains(&bot.len())
                && bot.bytes().all(|b| b.is_ascii_digit())
                && (30..=64).contains(&secret.len())
                && secret.bytes().all(letter)
        });
        match formed {
            true => Ok(Token(text.into())),
            false => Err(TokenError("has not the form of one")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of the right form, and nobody's.
    const GOOD: &str = "123456789:AAaaBBbbCCccDDddEEeeFFffGGggHHhhIIi";

    fn of(text: &str) -> Result<Token, TokenError> {
        Token::try_from(text.to_owned())
    }

    #[test]
    fn se_05_a_token_of_the_wrong_kind_is_refused_and_never_shown() {
        let letter = format!("Use this token to access the HTTP API:\n{GOOD}\nKeep it secure");
        let slack = format!("{}-1-2-{}", "xoxb", "a".repeat(24));
        let discord = ["MTEyMjMzNDQ1NTY2Nzc4ODk5", "Gabcde", &"x".repeat(38)].join(".");
        let longer = format!("{GOOD}/../getMe");
        for (bad, said) in [
            (letter.as_str(), "spaces"),
            (&slack, "Slack"),
            (&discord, "Discord"),
            (&longer, "form"),
            ("secretsecretsecret", "form"),
            ("12345:short", "form"),
            (" ", "empty"),
        ] {
            let error = of(bad).expect_err(bad).to_string();
            assert!(error.contains(said), "{error}");
            for word in bad.split_whitespace().filter(|word| word.len() > 8) {
                assert!(!error.contains(word), "{error}");
            }
        }
    }

    #[test]
    fn a_webhook_that_telegram_would_not_take_is_refused_in_a_sentence() {
        for good in [
            "https://b.example/hooks/telegram",
            "https://b.example:8443/x",
        ] {
            assert_eq!(
                webhook_url(good).map(|url| url.to_string()),
                Ok(good.to_owned())
            );
        }
        for (bad, said) in [
            ("b.example", "is none"),
            ("http://b.example/hooks/telegram", "https only"),
            ("https://u:hunter2@b.example/x", "without user"),
            ("https://b.example:8080/x", "not to 8080"),
            ("https://b.example", "no path"),
        ] {
            let told = webhook_url(bad).unwrap_err();
            assert!(
                told.contains(said) && !told.contains("hunter2"),
                "{bad}: {told}"
            );
        }
    }

    #[test]
    fn se_05_a_configuration_can_be_logged() {
        let text = format!(r#"{{"token": "  {GOOD}\n"}}"#);
        let config: Config = serde_json::from_str(&text).expect("a configuration");
        assert_eq!(config.token.bot(), "123456789");
        assert_eq!(config.token.secret(), GOOD);
        assert_eq!(config.api.as_str(), "https://api.telegram.org/");
        assert!(!format!("{config:?}").contains("AAaa"), "{config:?}");
        let bad = serde_json::from_str::<Config>(r#"{"token": "hunter2hunter2"}"#);
        assert!(!bad.expect_err("no token").to_string().contains("hunter2"));
        let unknown = format!(r#"{{"token": "{GOOD}", "tokn": 1}}"#);
        assert!(serde_json::from_str::<Config>(&unknown).is_err());
    }
}
