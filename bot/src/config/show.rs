//! The configuration as people may see it: every value with its origin, secrets never.

use serde::Serialize;
use serde_json::Value as Json;

use super::{Config, layers::Origins};

/// One key of the effective configuration.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Entry {
    /// Dotted.
    pub key: String,
    /// `"(set)"` for a secret.
    pub value: Json,
    /// `default`, `this host`, `file PATH`, `environment NAME` or a flag.
    pub origin: String,
}

pub(super) fn entries(config: &Config, origins: &Origins) -> Vec<Entry> {
    let tree = serde_json::to_value(config).expect("a configuration is plain data");
    let entry = |(key, value): (String, Json)| match key.as_str() {
        // What holds where nothing is said is the host's own.
        "worker.memory_mib" if value.is_null() => Entry {
            value: Json::from(config.worker.memory()),
            origin: "this host".to_owned(),
            key,
        },
        _ => Entry {
            origin: match origins.get(&key) {
                Some(origin) => origin.to_string(),
                None => "default".to_owned(),
            },
            value: redacted(&key, value),
            key,
        },
    };
    leaves(&tree).into_iter().map(entry).collect()
}

fn redacted(key: &str, value: Json) -> Json {
    let empty = matches!(&value, Json::Null) || value == "";
    let text = value.as_str().unwrap_or_default();
    if is_secret(key) && !empty {
        return Json::from("(set)");
    }
    if is_address(key) && !empty {
        return Json::from(place(text));
    }
    match password_in(text) {
        Some(password) => {
            let hide = |shown: String, [before, after]: [&str; 2]| {
                let hidden = format!("{before}(set){after}");
                shown.replace(&format!("{before}{password}{after}"), &hidden)
            };
            let places = [[":", "@"], ["pass=", ""], ["password=", ""]];
            Json::from(places.into_iter().fold(text.to_owned(), hide))
        }
        None => value,
    }
}

/// The password of `scheme://[user]:password@host` or `scheme://…?pass=password`.
pub(super) fn password_in(url: &str) -> Option<&str> {
    let (_, rest) = url.split_once("://")?;
    let in_query = rest.split(['?', '&']).find_map(|pair| {
        pair.strip_prefix("pass=")
            .or_else(|| pair.strip_prefix("password="))
    });
    // One that should have been encoded is hidden all the same.
    let in_front = || rest.rsplit_once('@')?.0.split_once(':');
    let password = in_query.or_else(|| Some(in_front()?.1))?;
    Some(password).filter(|password| !password.is_empty())
}

/// An address that only a platform has to know.
fn is_address(key: &str) -> bool {
    key.ends_with(".webhook_url")
}

/// Scheme and host: path and query may hold a secret, and so may what comes before the host.
fn place(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return "(set)".to_owned();
    };
    let end = rest.find(['/', '?', '#', '\\']).unwrap_or(rest.len());
    let host = rest[..end].rsplit('@').next().unwrap_or_default();
    let more = if end < rest.len() { "/…" } else { "" };
    format!("{scheme}://{host}{more}")
}

/// Judged by the words of the last part: `bot_token`, `API_KEY`, `password`.
pub(super) fn is_secret(key: &str) -> bool {
    let last = key.rsplit('.').next().unwrap_or(key).to_lowercase();
    // Where a secret lies is none.
    if last.ends_with("_file") {
        return false;
    }
    let words = ["token", "secret", "password", "passwd", "key", "credential"];
    last.split(['_', '-']).any(|part| {
        words
            .iter()
            .any(|word| part.strip_suffix('s').unwrap_or(part).ends_with(word))
    })
}

/// Every leaf with its dotted key; lists are leaves, empty tables are left out.
pub(super) fn leaves(tree: &Json) -> Vec<(String, Json)> {
    let Json::Object(table) = tree else {
        return vec![(String::new(), tree.clone())];
    };
    let mut all = Vec::new();
    for (key, value) in table {
        for (rest, leaf) in leaves(value) {
            let dot = if rest.is_empty() { "" } else { "." };
            all.push((format!("{key}{dot}{rest}"), leaf));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_in_addresses_are_not_shown() {
        for (written, shown) in [
            ("redis://:hidden@h:1/0", "redis://:(set)@h:1/0"),
            ("rediss://me:hid/den@h", "rediss://me:(set)@h"),
            (
                "redis+unix:///run/r?pass=hidden&db=1",
                "redis+unix:///run/r?pass=(set)&db=1",
            ),
            ("redis://h:6379/0", "redis://h:6379/0"),
            ("https://bot.example.org/x", "https://bot.example.org/x"),
        ] {
            assert_eq!(
                redacted("queue.url", Json::from(written)),
                Json::from(shown)
            );
        }
    }
}
