//! What a person needs to set the app up: its manifest, and what is missing where it does not work.

use serde_json::{Value, json};

use super::{Config, Pace, Slack, words::sentence};
use crate::{check::Check, json::text};

/// Scopes the bot token needs, each with what it is for.
pub const SCOPES: [(&str, &str); 11] = [
    ("app_mentions:read", "to hear mentions"),
    ("chat:write", "to answer"),
    ("channels:history", "to read threads in public channels"),
    ("groups:history", "to read threads in private channels"),
    ("im:history", "to read direct messages"),
    ("mpim:history", "to read direct messages of several people"),
    ("files:read", "to fetch files that people send"),
    ("files:write", "to send files"),
    ("reactions:write", "to mark messages as seen"),
    ("users:read", "to know what people call themselves"),
    ("commands", "for /mayfly"),
];

/// Events the app is told of.
const EVENTS: [&str; 5] = [
    "app_mention",
    "message.channels",
    "message.groups",
    "message.im",
    "message.mpim",
];

/// The app's manifest, as JSON: api.slack.com/apps, "Create New App", "From a manifest". Events come
/// by Socket Mode, or to `url` where there is one.
pub fn manifest(url: Option<&str>) -> String {
    let scopes = SCOPES.map(|(scope, _)| scope);
    let mut manifest = json!({
        "display_information": {
            "name": "Mayfly",
            "description": "Every thread has its own agent",
        },
        "features": {
            "app_home": {
                "home_tab_enabled": false,
                "messages_tab_enabled": true,
                "messages_tab_read_only_enabled": false,
            },
            "bot_user": {"display_name": "mayfly", "always_online": true},
            "slash_commands": [{
                "command": "/mayfly",
                "description": "Talk to the agent of this channel",
                "usage_hint": "help",
                "should_escape": false,
            }],
        },
        "oauth_config": {"scopes": {"bot": scopes}},
        "settings": {
            "event_subscriptions": {"bot_events": EVENTS},
            "interactivity": {"is_enabled": true},
            "org_deploy_enabled": false,
            "socket_mode_enabled": url.is_none(),
            "token_rotation_enabled": false,
        },
    });
    if let Some(url) = url {
        manifest["features"]["slash_commands"][0]["url"] = json!(url);
        let settings = &mut manifest["settings"];
        settings["event_subscriptions"]["request_url"] = json!(url);
        settings["interactivity"]["request_url"] = json!(url);
    }
    format!("{manifest:#}")
}

/// Reads where Slack sends requests to. The error is a sentence.
pub fn request_url(text: &str) -> Result<String, String> {
    const LIKE: &str = "for example https://bot.example.org/hooks/slack";
    let url: reqwest::Url = text
        .parse()
        .map_err(|_| format!("\"{text}\" is no address: {LIKE}"))?;
    if url.scheme() != "https" || !url.username().is_empty() {
        return Err(format!(
            "Slack sends requests to https only, without a user: {LIKE}"
        ));
    }
    if url.path() == "/" {
        return Err(format!("\"{text}\" has no path: {LIKE}"));
    }
    Ok(url.to_string())
}

/// Asks Slack whether the tokens are good and what they may do. Opens no socket.
pub async fn check(config: &Config) -> Vec<Check> {
    check_with(config, Pace::default()).await
}

async fn check_with(config: &Config, pace: Pace) -> Vec<Check> {
    let form = "slack: form of the tokens";
    let slack = match Slack::with_pace(config.clone(), pace) {
        Ok(slack) => slack,
        Err(sentence) => return vec![Check::bad(form, sentence)],
    };
    let mut checks = vec![Check::good(form, "as it should be")];
    let bot = "slack: bot token";
    match slack.api.scopes().await {
        Ok(told) => {
            checks.push(Check::good(bot, accepted(&told.value)));
            checks.push(scopes(told.scopes.as_deref()));
        }
        Err(failure) => checks.push(Check::bad(bot, sentence(failure))),
    }
    if config.is_by_http() {
        // Only a token for the configuration could ask for the address.
        checks.push(Check::good(
            "slack: events",
            "come as signed requests (HTTP): \"Event Subscriptions\", \"Interactivity\" and the slash command \
             of the app have to name the address that leads to POST /hooks/slack on hooks.listen, and Socket Mode \
             has to be off",
        ));
    } else {
        let app = "slack: app token (Socket Mode)";
        checks.push(match slack.api.connections_open().await {
            Ok(_) => Check::good(app, "opens sockets"),
            Err(failure) => Check::bad(app, sentence(failure)),
        });
    }
    checks
}

fn accepted(told: &Value) -> String {
    let word = |name: &str| text(told, &[name]).unwrap_or("?").to_owned();
    format!("{} in the workspace {}", word("user"), word("team"))
}

/// Names every scope that is missing.
fn scopes(given: Option<&str>) -> Check {
    let what = "slack: scopes of the bot token";
    let Some(given) = given else {
        return Check::bad(
            what,
            "Slack does not say which scopes the token has: a proxy may take the header \
             x-oauth-scopes away",
        );
    };
    let given: Vec<&str> = given.split(',').map(str::trim).collect();
    let missing: Vec<String> = SCOPES
        .iter()
        .filter(|(scope, _)| !given.contains(scope))
        .map(|(scope, reason)| format!("{scope} ({reason})"))
        .collect();
    match missing.is_empty() {
        true => Check::good(what, "all that are needed"),
        false => Check::bad(
            what,
            format!(
                "missing: {}; add them under \"OAuth & Permissions\" and install the app again",
                missing.join(", ")
            ),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cf_02_each_missing_scope_is_named() {
        let all: Vec<&str> = SCOPES.iter().map(|(scope, _)| *scope).collect();
        assert!(scopes(Some(&all.join(","))).result.is_ok());
        let fewer: Vec<&str> = all
            .iter()
            .copied()
            .filter(|scope| *scope != "files:read")
            .collect();
        let said = scopes(Some(&fewer.join(", "))).result.unwrap_err();
        assert!(
            said.contains("files:read") && !said.contains("files:write"),
            "{said}"
        );
        assert!(scopes(None).result.is_err());
    }

    #[test]
    fn the_manifest_switches_on_what_the_adapter_uses() {
        let manifest: Value = serde_json::from_str(&manifest(None)).unwrap();
        let settings = &manifest["settings"];
        assert_eq!(settings["socket_mode_enabled"], true);
        assert_eq!(settings["interactivity"]["is_enabled"], true);
        assert_eq!(
            settings["event_subscriptions"]["bot_events"][0],
            "app_mention"
        );
        assert_eq!(
            manifest["features"]["slash_commands"][0]["command"],
            "/mayfly"
        );
        let scopes = manifest["oauth_config"]["scopes"]["bot"]
            .as_array()
            .unwrap();
        assert_eq!(scopes.len(), SCOPES.len());
    }

    #[test]
    fn a_manifest_for_requests_names_one_address_thrice_and_no_socket() {
        let url = request_url("https://bot.example.org/hooks/slack").unwrap();
        let manifest: Value = serde_json::from_str(&manifest(Some(&url))).unwrap();
        let settings = &manifest["settings"];
        assert_eq!(settings["socket_mode_enabled"], false);
        for named in [
            &settings["event_subscriptions"]["request_url"],
            &settings["interactivity"]["request_url"],
            &manifest["features"]["slash_commands"][0]["url"],
        ] {
            assert_eq!(*named, url.as_str());
        }
        for bad in [
            "bot.example.org",
            "http://b.example/x",
            "https://b.example",
            "https://u:p@b.example/x",
        ] {
            assert!(request_url(bad).is_err(), "{bad}");
        }
    }
}
