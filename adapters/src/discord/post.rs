//! Posts: made once, also after a crash, changed and removed.
//!
//! Discord joins posts of one nonce for "a few minutes". After that a post that may have been made
//! is looked for among ours: by its nonce where Discord still tells it, else by what it says, with the
//! ids of its buttons or the mark that nobody sees behind its words.

use mayfly_domain::{
    PostId, ThreadKey,
    chat::{CallError, Content, NewPost},
};
use reqwest::Method;
use serde_json::{Map, Value, json};
use serenity::all::{ChannelId, MessageId, Route};

use super::{
    Discord,
    api::{Ask, Error},
    content, refusal,
    thread::{Place, WRITING, number},
};
use crate::{
    clock,
    json::{id, text},
};

/// How long a repeated nonce is taken for safe. Discord promises "a few minutes".
const JOINED: i64 = 2 * 60 * 1000;
/// How far the clocks may be apart.
const SKEW: i64 = 60 * 1000;
/// Most pages of messages that are looked through.
const PAGES: usize = 5;
/// Messages in a page.
pub(crate) const PAGE: usize = 100;
/// The first second of 2015, from which snowflakes count.
const EPOCH: i64 = 1_420_070_400_000;

/// The least id that a message of this time can have.
pub(crate) fn snowflake(at: i64) -> u64 {
    u64::try_from(at - EPOCH).map_or(0, |since| since << 22)
}

impl Discord {
    pub(crate) async fn make(&self, post: &NewPost) -> Result<String, CallError> {
        let place = Place::of(&post.thread)?;
        let mut fields = content::fields(&post.content)?;
        let nonce = content::nonce(&post.token);
        content::marked(&mut fields, &nonce);
        if let Some(id) = self
            .made_before(place, post.unknown_since, &nonce, |message| {
                content::same(message, &fields)
            })
            .await?
        {
            return Ok(id);
        }
        fields.extend(identity(&nonce));
        let mut channel = place.first();
        let mut woken = false;
        loop {
            let mut body = fields.clone();
            if let Some(reference) = quoted(post.answers.as_ref(), channel) {
                body.insert("message_reference".to_owned(), reference);
            }
            let route = Route::ChannelMessages {
                channel_id: channel,
            };
            let ask = Ask::new(Method::POST, route).body(Value::Object(body));
            let error = match self.api.call(ask).await {
                Ok(message) => return made(&message),
                Err(error) => error,
            };
            if error.is(refusal::UNKNOWN_CHANNEL) && Some(channel) == place.thread {
                channel = self
                    .start(place.channel, channel)
                    .await
                    .map_err(|error| error.told(WRITING))?;
                if Some(channel) == place.thread {
                    // It is there now; a second "unknown" is about something else.
                    return self.make_in(channel, fields).await;
                }
            } else if error.is(refusal::ARCHIVED) && !woken {
                self.wake(channel)
                    .await
                    .map_err(|error| error.told(WRITING))?;
                woken = true;
            } else {
                return Err(gone_is_known(error).told(WRITING));
            }
        }
    }

    async fn make_in(
        &self,
        channel: ChannelId,
        fields: Map<String, Value>,
    ) -> Result<String, CallError> {
        let route = Route::ChannelMessages {
            channel_id: channel,
        };
        let ask = Ask::new(Method::POST, route).body(Value::Object(fields));
        let message = self
            .api
            .call(ask)
            .await
            .map_err(|error| gone_is_known(error).told(WRITING))?;
        made(&message)
    }

    /// The post, if it was asked for longer ago than a nonce holds and is there.
    pub(crate) async fn made_before(
        &self,
        place: Place,
        unknown_since: Option<i64>,
        nonce: &str,
        same: impl Fn(&Value) -> bool,
    ) -> Result<Option<String>, CallError> {
        let Some(since) = unknown_since.filter(|since| clock::unix_ms() - since >= JOINED) else {
            return Ok(None);
        };
        let me = self.me().await?.user;
        let ours = |message: &Value| {
            let told = text(message, &["nonce"]);
            text(message, &["author", "id"]) == Some(me.as_str())
                && told.map_or_else(|| same(message), |told| told == nonce)
        };
        let mut after = snowflake(since - SKEW);
        for _ in 0..PAGES {
            let page = self
                .within(place, |channel| self.messages_after(channel, after))
                .await;
            let page = page.map_err(|error| unmade(error.told(WRITING)))?;
            // A page has its newest message first.
            if let Some(found) = page.iter().rev().find(|message| ours(message)) {
                return Ok(id(found, &["id"]));
            }
            let newest = page
                .iter()
                .filter_map(|message| id(message, &["id"])?.parse().ok())
                .max();
            match newest {
                Some(newest) if page.len() >= PAGE => after = newest,
                _ => break,
            }
        }
        Ok(None)
    }

    /// The oldest messages after this id.
    pub(crate) async fn messages_after(
        &self,
        channel: ChannelId,
        after: u64,
    ) -> Result<Vec<Value>, Error> {
        let route = Route::ChannelMessages {
            channel_id: channel,
        };
        let ask = Ask::new(Method::GET, route).query(format!("after={after}&limit={PAGE}"));
        match self.api.call(ask).await? {
            Value::Array(messages) => Ok(messages),
            _ => Ok(Vec::new()),
        }
    }

    pub(crate) async fn change(
        &self,
        thread: &ThreadKey,
        post: &str,
        content: &Content,
    ) -> Result<(), CallError> {
        let (place, message_id) = (Place::of(thread)?, MessageId::new(number(post)?));
        let mut fields = content::fields(content)?;
        // Buttons that are not named any more are to go.
        fields.entry("components").or_insert_with(|| json!([]));
        let fields = &Value::Object(fields);
        let edit = |channel_id| {
            let route = Route::ChannelMessage {
                channel_id,
                message_id,
            };
            self.api
                .call(Ask::new(Method::PATCH, route).body(fields.clone()))
        };
        self.within(place, edit)
            .await
            .map_err(|error| error.told(WRITING))?;
        Ok(())
    }

    pub(crate) async fn delete(&self, thread: &ThreadKey, post: &str) -> Result<(), CallError> {
        let (place, message_id) = (Place::of(thread)?, MessageId::new(number(post)?));
        let delete = |channel_id| {
            let route = Route::ChannelMessage {
                channel_id,
                message_id,
            };
            self.api.call(Ask::new(Method::DELETE, route))
        };
        match self.within(place, delete).await {
            Ok(_) => Ok(()),
            Err(error)
                if error.is(refusal::UNKNOWN_MESSAGE) || error.is(refusal::UNKNOWN_CHANNEL) =>
            {
                Ok(())
            }
            Err(error) => Err(error.told(WRITING)),
        }
    }
}

/// Makes repeated posts one.
pub(crate) fn identity(nonce: &str) -> Map<String, Value> {
    let fields = [("nonce", json!(nonce)), ("enforce_nonce", json!(true))];
    fields
        .map(|(name, value)| (name.to_owned(), value))
        .into_iter()
        .collect()
}

/// A message can only be quoted in its own channel.
pub(crate) fn quoted(answers: Option<&PostId>, channel: ChannelId) -> Option<Value> {
    let post = answers.filter(|post| post.channel.channel == channel.to_string())?;
    Some(json!({"message_id": post.id, "fail_if_not_exists": false}))
}

pub(crate) fn made(message: &Value) -> Result<String, CallError> {
    id(message, &["id"]).ok_or_else(|| CallError::Unknown("the answer names no message".to_owned()))
}

/// A post that is repeated by its nonce and was deleted meanwhile answers "Unknown Message".
fn gone_is_known(error: Error) -> Error {
    match error {
        Error::Code(refusal::UNKNOWN_MESSAGE, _) => Error::Call(CallError::Gone(
            "the post was made before and has been deleted".to_owned(),
        )),
        other => other,
    }
}

/// A look that has no answer leaves the question open.
fn unmade(error: CallError) -> CallError {
    match error {
        CallError::NotDone(why) | CallError::Gone(why) => CallError::Unknown(why),
        other => other,
    }
}
