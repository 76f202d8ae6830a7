//! What has to be set up once, and whether it is.

use reqwest::Method;
use serde_json::{Value, json};
use serenity::all::{ApplicationId, Permissions, Route};
use twilight_gateway::Intents;

use super::{
    Discord,
    api::{Api, Ask},
    config::Config,
    thread::number,
};
use crate::{
    check::Check,
    json::{id, number as integer, text},
};

/// What the adapter asks the gateway for. `MESSAGE_CONTENT` has to be switched on in the portal.
pub const INTENTS: Intents = Intents::GUILDS
    .union(Intents::GUILD_MESSAGES)
    .union(Intents::DIRECT_MESSAGES)
    .union(Intents::MESSAGE_CONTENT);

/// What the bot may do where it is invited.
pub const PERMISSIONS: Permissions = Permissions::VIEW_CHANNEL
    .union(Permissions::SEND_MESSAGES)
    .union(Permissions::SEND_MESSAGES_IN_THREADS)
    .union(Permissions::CREATE_PUBLIC_THREADS)
    .union(Permissions::READ_MESSAGE_HISTORY)
    .union(Permissions::ATTACH_FILES)
    .union(Permissions::ADD_REACTIONS);

/// The intent's bits in an application's flags: verified bots have the first, others the second.
const CONTENT_GRANTED: i64 = 1 << 18 | 1 << 19;

/// The switch that lets a bot read what people write, and where it is.
pub(crate) fn content_switch(application: &str) -> String {
    format!(
        "switch on MESSAGE CONTENT INTENT under \"Privileged Gateway Intents\" at \
         https://discord.com/developers/applications/{application}/bot"
    )
}

/// The link by which a server's owner invites the bot, with the permissions and scopes it needs.
/// The intent has a switch of its own: [`check`] tells whether it is on.
pub fn invite(application_id: &str) -> Result<String, String> {
    let id = application_id.trim();
    number(id).map_err(|_| format!("\"{id}\" is no application id: it is the number at the top of the application's page General Information"))?;
    let permissions = PERMISSIONS.bits();
    Ok(format!(
        "https://discord.com/oauth2/authorize?client_id={id}&scope=bot+applications.commands&permissions={permissions}"
    ))
}

/// Registers the commands, name and description each, in place of all that were there. What is typed
/// after a command comes as its one text.
pub async fn register_commands(config: &Config, commands: &[(&str, &str)]) -> Result<(), String> {
    let commands = commands
        .iter()
        .map(command)
        .collect::<Result<Vec<_>, _>>()?;
    let discord = Discord::new(config.clone())?;
    let me = discord.me().await.map_err(|error| error.to_string())?;
    let application_id =
        ApplicationId::new(number(&me.application).map_err(|error| error.to_string())?);
    let ask =
        Ask::new(Method::PUT, Route::Commands { application_id }).body(Value::Array(commands));
    let answer = discord.api.call(ask).await;
    answer
        .map(drop)
        .map_err(|error| error.told("the scope applications.commands").to_string())
}

fn command((name, description): &(&str, &str)) -> Result<Value, String> {
    let letters = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_".contains(c);
    if name.is_empty() || name.len() > 32 || !name.chars().all(letters) {
        return Err(format!(
            "\"{name}\" is no name of a Discord command: 1 to 32 small letters, digits, - and _"
        ));
    }
    let described: String = description.chars().take(100).collect();
    if described.is_empty() {
        return Err(format!("the command \"{name}\" has no description"));
    }
    let option = json!({"type": 3, "name": "text", "description": "What follows the command", "required": false});
    Ok(json!({"type": 1, "name": name, "description": described, "options": [option]}))
}

/// Asks Discord whether everything is as the adapter needs it.
pub async fn check(config: &Config) -> Vec<Check> {
    const TOKEN: &str = "discord: token";
    let api = match config.check().and_then(|()| Api::new(config)) {
        Ok(api) => api,
        Err(mend) => return vec![Check::bad(TOKEN, mend)],
    };
    let me = match api.call(Ask::new(Method::GET, Route::UserMe)).await {
        Ok(me) => me,
        Err(error) => return vec![Check::bad(TOKEN, error.told("").to_string())],
    };
    let name = text(&me, &["username"]).unwrap_or("unnamed");
    let mut checks = vec![Check::good(
        TOKEN,
        format!("accepted, the bot is \"{}\"", crate::names::shown(name)),
    )];
    match api
        .call(Ask::new(Method::GET, Route::Oauth2ApplicationCurrent))
        .await
    {
        Ok(application) => checks.extend(application_checks(&application)),
        Err(error) => checks.push(Check::bad(
            "discord: application",
            error.told("").to_string(),
        )),
    }
    checks.push(sessions(&api).await);
    checks
}

fn application_checks(application: &Value) -> [Check; 2] {
    let own = id(application, &["id"]).unwrap_or_default();
    let granted = integer(application, &["flags"]).unwrap_or(0) & CONTENT_GRANTED != 0;
    let content = "discord: message content intent";
    let endpoint = "discord: buttons and commands";
    [
        match granted {
            true => Check::good(content, "granted"),
            false => Check::bad(
                content,
                format!(
                    "what people write in threads comes empty: {}",
                    content_switch(&own)
                ),
            ),
        },
        match text(application, &["interactions_endpoint_url"]) {
            None => Check::good(endpoint, "come by the gateway"),
            Some(_) => Check::bad(
                endpoint,
                format!(
                    "they go to another server: empty INTERACTIONS ENDPOINT URL at \
                     https://discord.com/developers/applications/{own}/information"
                ),
            ),
        },
    ]
}

async fn sessions(api: &Api) -> Check {
    let what = "discord: sessions of today";
    let answer = match api.call(Ask::new(Method::GET, Route::GatewayBot)).await {
        Ok(answer) => answer,
        Err(error) => return Check::bad(what, error.told("").to_string()),
    };
    let limit = |name| integer(&answer, &["session_start_limit", name]).unwrap_or(0);
    let (left, all) = (limit("remaining"), limit("total"));
    match left {
        1.. => Check::good(what, format!("{left} of {all} left")),
        _ => Check::bad(
            what,
            format!(
                "none of {all} left: a new connection is possible in {} min",
                limit("reset_after") / 60_000
            ),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_invitation_asks_for_what_is_used() {
        let link = invite(" 420000000000000000 ").expect("a link");
        assert_eq!(
            link,
            "https://discord.com/oauth2/authorize?client_id=420000000000000000&scope=bot+applications.commands&permissions=309237746752"
        );
        assert!(
            invite("bot token")
                .expect_err("refused")
                .contains("General Information")
        );
    }

    #[test]
    fn cf_02_a_missing_switch_is_named_with_its_place() {
        let [content, endpoint] = application_checks(
            &json!({"id": "42", "flags": 0, "interactions_endpoint_url": "https://x.io"}),
        );
        let said = content.result.expect_err("missing");
        assert!(
            said.contains("MESSAGE CONTENT INTENT") && said.contains("/42/bot"),
            "{said}"
        );
        assert!(
            endpoint
                .result
                .expect_err("set")
                .contains("INTERACTIONS ENDPOINT URL")
        );
        for flags in [1 << 18, 1 << 19] {
            let [content, endpoint] = application_checks(
                &json!({"id": "42", "flags": flags, "interactions_endpoint_url": null}),
            );
            assert_eq!(
                (content.result.is_ok(), endpoint.result.is_ok()),
                (true, true)
            );
        }
    }
}
