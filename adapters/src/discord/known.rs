//! Which channels are threads, and of what: a message does not say.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use serde_json::Value;

use crate::json::{at, id, items, number, text};

/// Most channels that are remembered; then all are asked for again.
const MOST: usize = 200_000;
/// Types of channels that are threads.
const THREADS: [i64; 3] = [10, 11, 12];

/// Channels by number, each with the parent of a thread.
#[derive(Debug, Default)]
pub(crate) struct Known(Mutex<HashMap<u64, Option<u64>>>);

impl Known {
    fn map(&self) -> MutexGuard<'_, HashMap<u64, Option<u64>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The parent of a thread; none for a channel that is none. The outer none: not known.
    pub(crate) fn parent(&self, channel: &str) -> Option<Option<String>> {
        let found = self.map().get(&channel.parse().ok()?).copied()?;
        Some(found.map(|parent| parent.to_string()))
    }

    /// Learns from a channel object.
    pub(crate) fn channel(&self, channel: &Value) {
        let Some(Ok(number)) = id(channel, &["id"]).map(|id| id.parse()) else {
            return;
        };
        let parent = parent_of(channel);
        let mut map = self.map();
        if map.len() >= MOST {
            map.clear();
        }
        map.insert(number, parent);
    }

    /// It is no thread, as far as anybody can tell.
    pub(crate) fn no_thread(&self, channel: &str) {
        if let Ok(number) = channel.parse() {
            self.map().insert(number, None);
        }
    }

    /// Learns from a dispatch of the gateway.
    pub(crate) fn learn(&self, kind: &str, data: &Value) {
        match kind {
            "GUILD_CREATE" => {
                let channels = items(data, &["channels"]);
                channels
                    .chain(items(data, &["threads"]))
                    .for_each(|channel| self.channel(channel));
            }
            "THREAD_LIST_SYNC" => items(data, &["threads"]).for_each(|thread| self.channel(thread)),
            "CHANNEL_CREATE" | "CHANNEL_UPDATE" | "THREAD_CREATE" | "THREAD_UPDATE" => {
                self.channel(data)
            }
            "CHANNEL_DELETE" | "THREAD_DELETE" => {
                if let Some(Ok(number)) = id(data, &["id"]).map(|id| id.parse()) {
                    self.map().remove(&number);
                }
            }
            "INTERACTION_CREATE" => {
                if let Some(channel) =
                    at(data, &["channel"]).filter(|channel| number(channel, &["type"]).is_some())
                {
                    self.channel(channel);
                }
            }
            _ => {}
        }
    }

    /// The channel that has to be asked for before this dispatch can be understood.
    pub(crate) fn missing(&self, kind: &str, data: &Value) -> Option<String> {
        let wanted = matches!(
            kind,
            "MESSAGE_CREATE" | "MESSAGE_UPDATE" | "INTERACTION_CREATE"
        );
        let channel = id(data, &["channel_id"]).filter(|channel| channel.parse::<u64>().is_ok())?;
        let guild = text(data, &["guild_id"]).is_some();
        (wanted && guild && self.parent(&channel).is_none()).then_some(channel)
    }
}

fn parent_of(channel: &Value) -> Option<u64> {
    let thread = number(channel, &["type"]).is_some_and(|kind| THREADS.contains(&kind));
    id(channel, &["parent_id"]).filter(|_| thread)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn threads_are_learned_and_forgotten() {
        let known = Known::default();
        let message = json!({"channel_id": "600", "guild_id": "900"});
        assert_eq!(
            known.missing("MESSAGE_CREATE", &message),
            Some("600".to_owned())
        );
        let guild = json!({
            "channels": [{"id": "500", "type": 0, "parent_id": "400"}],
            "threads": [{"id": "600", "type": 11, "parent_id": "500"}],
        });
        known.learn("GUILD_CREATE", &guild);
        assert_eq!(known.parent("500"), Some(None), "its parent is a category");
        assert_eq!(known.parent("600"), Some(Some("500".to_owned())));
        assert_eq!(known.missing("MESSAGE_CREATE", &message), None);
        known.learn("THREAD_DELETE", &json!({"id": "600"}));
        assert_eq!(known.parent("600"), None);
        let direct = json!({"channel_id": "700"});
        assert_eq!(known.missing("MESSAGE_CREATE", &direct), None);
        assert_eq!(
            known.missing(
                "MESSAGE_CREATE",
                &json!({"channel_id": "x", "guild_id": "1"})
            ),
            None
        );
    }
}
