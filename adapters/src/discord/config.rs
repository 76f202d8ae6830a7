//! What the Discord adapter is told.

use serde::Deserialize;

use crate::secret::Secret;

/// Where Discord answers.
pub const API: &str = "https://discord.com";

/// Settings of the adapter.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The bot's token, from the page "Bot" of the developer portal.
    pub token: Secret,
    /// Scheme and host of the REST API, for a proxy: `https://discord.com` unless told.
    #[serde(default = "api")]
    pub api_url: String,
    /// Addresses (scheme, host and port) that files are fetched from, and no others.
    #[serde(default = "file_hosts")]
    pub file_hosts: Vec<String>,
}

fn api() -> String {
    API.to_owned()
}

fn file_hosts() -> Vec<String> {
    let hosts = ["https://cdn.discordapp.com", "https://media.discordapp.net"];
    hosts.map(str::to_owned).to_vec()
}

impl Config {
    /// The settings of Discord itself with this token.
    pub fn new(token: impl Into<String>) -> Config {
        Config {
            token: Secret::from(token.into()),
            api_url: api(),
            file_hosts: file_hosts(),
        }
    }

    /// Whether everything has the right form, in a sentence that never holds the token.
    pub fn check(&self) -> Result<(), String> {
        token_form(self.token.expose())?;
        for (name, address) in std::iter::once(("api_url", &self.api_url))
            .chain(self.file_hosts.iter().map(|host| ("file_hosts", host)))
        {
            if origin(address).is_none() {
                return Err(format!(
                    "discord.{name}: \"{address}\" is no address: give scheme and host, as in {API}"
                ));
            }
        }
        Ok(())
    }
}

/// Scheme, host and port of an http address; none for what is no such address.
pub(crate) fn origin(address: &str) -> Option<String> {
    let url = reqwest::Url::parse(address).ok()?;
    let plain = url.username().is_empty() && url.password().is_none();
    (matches!(url.scheme(), "http" | "https") && url.host().is_some() && plain)
        .then(|| url.origin().ascii_serialization())
}

/// A bot's token: its id in base64, a time and a checksum, joined by dots.
fn token_form(token: &str) -> Result<(), String> {
    const WHERE: &str = "copy it with \"Reset Token\" on the page Bot of https://discord.com/developers/applications";
    let letters = |part: &str| {
        part.bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b))
    };
    let kind = match token.split('.').collect::<Vec<_>>().as_slice() {
        [id, time, sum]
            if id.len() >= 18
                && time.len() >= 5
                && sum.len() >= 20
                && [id, time, sum].iter().all(|part| letters(part)) =>
        {
            return Ok(());
        }
        _ if token.trim().is_empty() => "it is empty",
        _ if token.starts_with("Bot ") || token.starts_with("Bearer ") => {
            "it begins with a word: leave only the token itself"
        }
        _ if token.contains(char::is_whitespace) => {
            "it holds white space: give nothing but the token"
        }
        [one] if one.len() == 64 && one.bytes().all(|b| b.is_ascii_hexdigit()) => {
            "this is the application's public key"
        }
        [one] if one.len() == 32 && letters(one) => "this is the application's client secret",
        [one] if one.bytes().all(|b| b.is_ascii_digit()) => "this is the application's id",
        _ => "it has not the form of a bot token",
    };
    Err(format!(
        "the Discord token is of the wrong kind: {kind}; {WHERE}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of the right form, and nobody's.
    const TOKEN: [&str; 3] = [
        "NDIwMDAwMDAwMDAwMDAwMDAw",
        "GAAAAA",
        "fake-token-of-nobody_0123456789abcdefgh",
    ];

    #[test]
    fn se_05_a_token_of_the_wrong_kind_is_named_and_not_echoed() {
        let token = TOKEN.join(".");
        assert_eq!(Config::new(token.as_str()).check(), Ok(()));
        let message = format!("Done! Use this token:\n{token}\nKeep it secret");
        for (wrong, kind) in [
            (String::new(), "empty"),
            (format!("Bot {token}"), "begins with a word"),
            (message, "white space"),
            ("a1".repeat(32), "public key"),
            ("xY3".repeat(11)[..32].to_owned(), "client secret"),
            ("420000000000000000".to_owned(), "application's id"),
            ("xoxb-1-2-abc".to_owned(), "not the form"),
        ] {
            let said = Config::new(wrong.as_str()).check().expect_err("refused");
            assert!(said.contains(kind), "{said}");
            assert!(wrong.is_empty() || !said.contains(&wrong), "{said}");
            assert!(!said.contains(TOKEN[2]), "{said}");
        }
    }

    #[test]
    fn addresses_are_checked_and_settings_are_known() {
        let mut config = Config::new(TOKEN.join("."));
        config.api_url = "discord.com".to_owned();
        assert!(config.check().expect_err("refused").contains("discord.com"));
        let unknown = serde_json::from_str::<Config>(r#"{"token":"a","tokn":"b"}"#);
        assert!(unknown.expect_err("refused").to_string().contains("tokn"));
        let debug = format!("{:?}", Config::new("hunter2"));
        assert!(!debug.contains("hunter2"));
    }
}
