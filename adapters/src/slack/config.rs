//! What Slack's adapter is told: tokens and addresses, checked by their form.

use std::time::Duration;

use serde::Deserialize;

use crate::secret::Secret;

/// Settings. With the app token events come by Socket Mode; with the signing secret alone, by HTTP.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// `xoxb-…`: what the bot writes and reads with.
    pub bot_token: Secret,
    /// `xapp-…`: what opens sockets.
    #[serde(default)]
    pub app_token: Option<Secret>,
    /// What signs HTTP requests to us.
    #[serde(default)]
    pub signing_secret: Option<Secret>,
    /// The Web API, without a slash at its end.
    #[serde(default = "api_url")]
    pub api_url: String,
    /// The one origin whose downloads get the bot token.
    #[serde(default = "files_url")]
    pub files_url: String,
}

fn api_url() -> String {
    "https://slack.com/api".to_owned()
}

fn files_url() -> String {
    "https://files.slack.com".to_owned()
}

impl Config {
    /// Slack's own addresses.
    pub fn new(bot_token: Secret, app_token: Option<Secret>) -> Config {
        Config {
            bot_token,
            app_token,
            signing_secret: None,
            api_url: api_url(),
            files_url: files_url(),
        }
    }

    /// Whether events come as requests and not by Socket Mode.
    pub fn is_by_http(&self) -> bool {
        self.app_token.is_none()
    }

    /// The app's id, which stands in its token.
    pub(super) fn app_id(&self) -> Option<&str> {
        self.app_token.as_ref()?.expose().split('-').nth(2)
    }

    /// Whether the tokens are of their kinds; the sentence never holds one.
    pub fn check(&self) -> Result<(), String> {
        kind("bot token (SLACK_BOT_TOKEN)", "xoxb-", &self.bot_token)?;
        if let Some(token) = &self.app_token {
            kind("app token (SLACK_APP_TOKEN)", "xapp-", token)?;
        }
        if let Some(secret) = &self.signing_secret
            && (secret.expose().len() < 16
                || !secret.expose().bytes().all(|b| b.is_ascii_alphanumeric()))
        {
            return Err(
                "Slack's signing secret (SLACK_SIGNING_SECRET) is not one: copy it from \
                        \"Basic Information\" of the app's settings"
                    .to_owned(),
            );
        }
        match (&self.app_token, &self.signing_secret) {
            (None, None) => Err(
                "Slack has no way to bring events: set SLACK_APP_TOKEN (Socket \
                                 Mode) or SLACK_SIGNING_SECRET (HTTP)"
                    .to_owned(),
            ),
            _ => Ok(()),
        }
    }
}

const KINDS: [(&str, &str); 5] = [
    ("xoxb-", "a bot token"),
    ("xapp-", "an app token"),
    ("xoxp-", "a person's token"),
    ("xoxe", "a token for the configuration or a refresh token"),
    ("https://hooks.slack.com", "the address of a webhook"),
];

fn kind(what: &str, wanted: &str, token: &Secret) -> Result<(), String> {
    let value = token.expose();
    let (from, name) = match wanted {
        "xoxb-" => ("\"OAuth & Permissions\"", "bot token"),
        _ => ("\"Basic Information\", \"App-Level Tokens\"", "app token"),
    };
    let out = format!("copy the {name} ({wanted}…) from {from} of the app's settings");
    if value.is_empty() {
        return Err(format!("Slack's {what} is empty: {out}"));
    }
    if let Some((_, is)) = KINDS
        .iter()
        .find(|(start, _)| *start != wanted && value.starts_with(start))
    {
        return Err(format!("Slack's {what} is {is}: {out}"));
    }
    let form = |b: u8| b.is_ascii_alphanumeric() || b"-._".contains(&b);
    if !value.starts_with(wanted) || value.len() < 15 || !value.bytes().all(form) {
        return Err(format!(
            "Slack's {what} has not the form of one: {out}, and nothing else"
        ));
    }
    Ok(())
}

/// Times the adapter keeps; others than [`Pace::default`] are for tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// Longest wait for an answer of the Web API.
    pub call: Duration,
    /// Longest time a file takes on its way.
    pub upload: Duration,
    /// How long after a call without an answer Slack may still be doing it.
    pub settle: Duration,
    /// Between two looks for what an earlier call did.
    pub look: Duration,
    /// Longest time until a socket is open and greeted.
    pub connect: Duration,
    /// Between two pings.
    pub ping: Duration,
    /// A socket that says nothing for so long, not even to pings, is dead.
    pub silence: Duration,
    /// How long the socket before is read after the next one is open.
    pub overlap: Duration,
    /// Longest time the inbox may take.
    pub store: Duration,
    /// A longer gap is caught up over.
    pub gap: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Pace {
            call: seconds(10),
            upload: seconds(300),
            settle: seconds(20),
            look: seconds(4),
            connect: seconds(20),
            ping: seconds(10),
            silence: seconds(35),
            overlap: seconds(20),
            store: seconds(15),
            gap: seconds(60),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(bot: &str, app: &str) -> Config {
        Config::new(bot.into(), (!app.is_empty()).then(|| app.into()))
    }

    const BOT: &str = "xoxb-1-2-abcdefghijkl";
    const APP: &str = "xapp-1-A0APP-2-abcdefghijkl";

    #[test]
    fn se_05_a_token_of_the_wrong_kind_is_named_and_never_echoed() {
        assert_eq!(config(BOT, APP).check(), Ok(()));
        let many = format!("{BOT}\nSigning secret: 123");
        for (bot, app, says) in [
            (APP, APP, "is an app token"),
            (BOT, BOT, "is a bot token"),
            ("xoxp-1-2-abcdefghijkl", APP, "is a person's token"),
            ("https://hooks.slack.com/services/T1/B1/abc", APP, "webhook"),
            (&many, APP, "has not the form"),
            ("xoxb-", APP, "has not the form"),
            ("", APP, "is empty"),
            (BOT, "", "SLACK_APP_TOKEN"),
        ] {
            let said = config(bot, app).check().unwrap_err();
            assert!(said.contains(says), "{said}");
            assert!(
                !said.contains("abcdefghijkl") && !said.contains("123"),
                "{said}"
            );
        }
    }

    #[test]
    fn unknown_settings_are_refused_and_nothing_shows_a_token() {
        let read = |text: &str| serde_json::from_str::<Config>(text);
        let good = read(&format!(r#"{{"bot_token":"{BOT}","app_token":"{APP}"}}"#)).unwrap();
        let shown = format!("{good:?}");
        assert!(!shown.contains("abcdefghijkl"), "{shown}");
        assert_eq!(good.api_url, "https://slack.com/api");
        assert!(read(r#"{"bot_token":"x","bot":"y"}"#).is_err());
    }
}
