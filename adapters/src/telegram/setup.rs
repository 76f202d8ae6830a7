//! What a bot has to be told of once, and what is looked at when something does not work.

use serde_json::Value;
use teloxide_core::{
    payloads::{GetMe, GetWebhookInfo, SetMyCommands},
    types::BotCommand,
};

use super::{api::Api, config::Config, trouble::told};
use crate::{
    check::Check,
    json::{is, text},
};

/// Most commands a bot may have.
const MAX_COMMANDS: usize = 100;

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
    let (token, seen) = match Api::new(config) {
        Ok(api) => look(&api).await,
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

type Found = Result<String, String>;

async fn look(api: &Api) -> (Found, Vec<(&'static str, Found)>) {
    let said = |failure| told(failure, api.bot()).to_string();
    let me = match api.call("me", &GetMe::new()).await {
        Ok(me) => me,
        Err(failure) => return (Err(said(failure)), Vec::new()),
    };
    let name = text(&me, &["username"]).unwrap_or_default();
    let webhook = api.call("me", &GetWebhookInfo::new()).await;
    let updates = webhook.map_err(said).and_then(|set| updates(&set));
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

fn updates(set: &Value) -> Found {
    match text(set, &["url"]).filter(|url| !url.is_empty()) {
        None => Ok("no webhook is set: they come by polling".to_owned()),
        Some(url) => {
            // Its path may be somebody's secret.
            let host = url.parse::<reqwest::Url>().ok();
            let host = host.as_ref().and_then(reqwest::Url::host_str);
            Err(format!(
                "a webhook is set at {}, so polling gets nothing: call deleteWebhook, or receive \
                 updates there",
                host.unwrap_or("an address that is none")
            ))
        }
    }
}
