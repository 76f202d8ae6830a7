//! What a bot has to be told of once, and what is looked at when something does not work.

use std::time::Duration;

use reqwest::Url;
use serde_json::Value;
use teloxide_core::{
    payloads::{GetMe, GetWebhookInfo, SetMyCommands},
    types::BotCommand,
};

use super::{api::Api, config::Config, trouble::told};
use crate::{
    check::Check,
    json::{is, number, text},
};

/// Most commands a bot may have.
const MAX_COMMANDS: usize = 100;
/// Longest that the bot's name is waited for.
const SOON: Duration = Duration::from_secs(5);

/// Registers commands, each with its description, so that people are offered them; those from before
/// are gone. The error is a sentence.
pub async fn register_commands(config: &Config, commands: &[(&str, &str)]) -> Result<(), String> {
    if commands.len() > MAX_COMMANDS {
        return Err(format!(
            "Telegram takes up to {MAX_COMMANDS} commands, not {}",
            commands.len()
        ));
    }
    let commands = commands.iter().map(|(name, said)| command(name, said));
    let commands = commands.collect::<Result<Vec<_>, _>>()?;
    let api = Api::new(config)?;
    let asked = SetMyCommands::new(commands);
    let done = api.call("commands", &asked).await;
    done.map(drop)
        .map_err(|failure| told(failure, api.bot()).to_string())
}

fn command(name: &str, said: &str) -> Result<BotCommand, String> {
    let letter = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
    if !(1..=32).contains(&name.len()) || !name.bytes().all(letter) {
        return Err(format!(
            "\"{name}\" cannot be a command of Telegram: 1 to 32 of a-z, 0-9 and _"
        ));
    }
    if !(1..=256).contains(&said.chars().count()) {
        return Err(format!(
            "the description of /{name} has to have 1 to 256 characters"
        ));
    }
    Ok(BotCommand::new(name, said))
}

/// Looks whether the bot can do its work: token, privacy mode, webhook.
pub async fn check(config: &Config) -> Vec<Check> {
    let wanted = config.webhook_url.as_ref();
    let (token, seen) = match Api::new(config) {
        Ok(api) => look(&api, wanted).await,
        Err(error) => (Err(error), Vec::new()),
    };
    let token = ("telegram: token", token);
    let found = std::iter::once(token).chain(seen);
    found
        .map(|(what, result)| Check {
            what: what.to_owned(),
            result,
        })
        .collect()
}

/// The bot's user name, if Telegram says it soon.
pub async fn username(config: &Config) -> Option<String> {
    let api = Api::new(config).ok()?;
    let asked = tokio::time::timeout(SOON, async { api.call("me", &GetMe::new()).await }).await;
    let me = asked.ok()?.ok()?;
    let name = text(&me, &["username"])?;
    Some(name.to_owned()).filter(|name| !name.is_empty())
}

type Found = Result<String, String>;

async fn look(api: &Api, wanted: Option<&Url>) -> (Found, Vec<(&'static str, Found)>) {
    let said = |failure| told(failure, api.bot()).to_string();
    let me = match api.call("me", &GetMe::new()).await {
        Ok(me) => me,
        Err(failure) => return (Err(said(failure)), Vec::new()),
    };
    let name = text(&me, &["username"]).unwrap_or_default();
    let webhook = api.call("me", &GetWebhookInfo::new()).await;
    let updates = webhook.map_err(said).and_then(|set| updates(&set, wanted));
    (
        Ok(format!("accepted, of @{name}")),
        vec![
            ("telegram: privacy mode", groups(&me)),
            ("telegram: webhook", updates),
        ],
    )
}

fn groups(me: &Value) -> Found {
    if !is(me, &["can_join_groups"]) {
        return Err(
            "the bot cannot be added to groups: @BotFather, /setjoingroups, Enable".to_owned(),
        );
    }
    if !is(me, &["can_read_all_group_messages"]) {
        return Err(
            "privacy mode is on: in groups the bot is shown only commands and answers to \
             itself, so a conversation needs one of them each time. To change it: @BotFather, \
             /setprivacy, Disable, then take the bot out of each group and add it again (or make \
             it an administrator there)"
                .to_owned(),
        );
    }
    Ok("privacy mode is off: the bot sees all messages of its groups".to_owned())
}

/// How updates come, against how they are to come.
fn updates(set: &Value, wanted: Option<&Url>) -> Found {
    let url = text(set, &["url"]).filter(|url| !url.is_empty());
    match (url, wanted) {
        (None, None) => Ok("no webhook is set: they come by polling".to_owned()),
        (None, Some(_)) => Ok("not set yet: mayfly serve sets it when it starts".to_owned()),
        (Some(url), Some(wanted)) if url == wanted.as_str() => delivered(set, wanted),
        (Some(url), Some(_)) => Ok(format!(
            "set at {} now: mayfly serve changes it when it starts",
            host(url)
        )),
        (Some(url), None) => Err(format!(
            "a webhook is set at {}, so polling gets nothing: call deleteWebhook, or receive \
             updates there (webhook_url)",
            host(url)
        )),
    }
}

fn delivered(set: &Value, wanted: &Url) -> Found {
    let waiting = number(set, &["pending_update_count"]).unwrap_or_default();
    let error = text(set, &["last_error_message"]).unwrap_or_default();
    if waiting > 0 && !error.is_empty() {
        return Err(format!(
            "{waiting} updates wait, since Telegram cannot deliver them ({error}): the address has \
             to lead to POST /hooks/telegram on hooks.listen while mayfly serve runs"
        ));
    }
    Ok(format!(
        "set at {}, {waiting} updates wait",
        host(wanted.as_str())
    ))
}

/// The path may be somebody's secret.
fn host(url: &str) -> String {
    let url = url.parse::<Url>().ok();
    let host = url.as_ref().and_then(Url::host_str);
    host.unwrap_or("an address that is none").to_owned()
}
