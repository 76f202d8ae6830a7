//! What was said in a conversation while nobody listened, as the events that would have come.
//!
//! Only conversations that have an agent are looked at, and of each a few pages: a mention in a
//! channel that opens a new one is not found again.

use std::collections::HashMap;

use mayfly_domain::{Incoming, Recent, chat::CallError};
use reqwest::Method;
use serde_json::{Value, json};
use serenity::all::{GuildId, Route, UserId};

use super::{
    Discord, NAME,
    api::Ask,
    parse::{Known, parse},
    post::PAGE,
    refusal,
    thread::{Place, number},
};
use crate::json::{id, is, text};

/// Most conversations.
pub(crate) const CONVERSATIONS: usize = 50;
/// Most pages of one.
const PAGES: usize = 3;
/// Most people of one that are asked for.
const PEOPLE: usize = 20;

impl Discord {
    /// The events of one conversation after its newest that is known, oldest first.
    pub(crate) async fn missed(
        &self,
        recent: &Recent,
        me: &str,
    ) -> Result<Vec<Incoming>, CallError> {
        let place = Place::of(&recent.thread)?;
        if place.thread.is_some() {
            let (thread, parent) = (&recent.thread.thread, &recent.thread.channel);
            self.known
                .channel(&json!({"id": thread, "type": 11, "parent_id": parent}));
        }
        let mut people = HashMap::new();
        let mut events = Vec::new();
        let mut after = number(&recent.newest)?;
        for _ in 0..PAGES {
            let mut page = match self.messages_after(place.first(), after).await {
                Ok(page) => page,
                // Nobody has opened the thread yet.
                Err(error) if error.is(refusal::UNKNOWN_CHANNEL) => break,
                Err(error) => return Err(error.told("Read Message History")),
            };
            let full = page.len() >= PAGE;
            page.sort_by_key(|message| id(message, &["id"]).and_then(|id| id.parse::<u64>().ok()));
            for message in page {
                after = id(&message, &["id"])
                    .and_then(|id| id.parse().ok())
                    .unwrap_or(after)
                    .max(after);
                events.extend(
                    self.as_event(message, &recent.thread.workspace, me, &mut people)
                        .await,
                );
            }
            if !full {
                break;
            }
        }
        Ok(events)
    }

    /// A message as the dispatch that told of it; none for our own.
    async fn as_event(
        &self,
        mut message: Value,
        guild: &str,
        me: &str,
        people: &mut HashMap<String, Value>,
    ) -> Option<Incoming> {
        let author = id(&message, &["author", "id"])?;
        if author == me {
            return None;
        }
        if !guild.is_empty() {
            message["guild_id"] = json!(guild);
            let webhook = text(&message, &["webhook_id"]).is_some();
            if !webhook && !is(&message, &["author", "bot"]) {
                message["member"] = self.member(guild, &author, people).await;
            }
        }
        let raw = json!({"op": 0, "s": null, "t": "MESSAGE_CREATE", "d": message})
            .to_string()
            .into_bytes();
        let parent = |channel: &str| self.known.parent(channel).flatten();
        let event = parse(
            &raw,
            &Known {
                me,
                parent: &parent,
            },
        );
        Some(Incoming {
            platform: NAME.to_owned(),
            event: Ok(event),
            raw,
        })
    }

    /// Roles and name of an author, which a stored message lacks; null where Discord does not say.
    async fn member(&self, guild: &str, user: &str, people: &mut HashMap<String, Value>) -> Value {
        if let Some(member) = people.get(user) {
            return member.clone();
        }
        let (Ok(guild), Ok(person)) = (number(guild), number(user)) else {
            return Value::Null;
        };
        if people.len() >= PEOPLE {
            return Value::Null;
        }
        let (guild_id, user_id) = (GuildId::new(guild), UserId::new(person));
        let asked = self
            .api
            .call(Ask::new(
                Method::GET,
                Route::GuildMember { guild_id, user_id },
            ))
            .await;
        let member = asked.unwrap_or(Value::Null);
        people.insert(user.to_owned(), member.clone());
        member
    }
}
