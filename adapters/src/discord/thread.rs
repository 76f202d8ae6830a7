//! The channel that a conversation's posts go to: a thread that may still have to be opened or woken.
//!
//! A thread has the id of the message that it starts from. Where it cannot be opened, since that
//! message is gone or was none (a command), the conversation is the channel itself.

use mayfly_domain::{ThreadKey, chat::CallError};
use reqwest::Method;
use serde_json::{Value, json};
use serenity::all::{ChannelId, MessageId, Route};

use super::{
    Discord,
    api::{Ask, Error},
    content, refusal,
};
use crate::json::{is, text};

/// What writing needs.
pub(crate) const WRITING: &str =
    "View Channel, Send Messages, Send Messages in Threads, Attach Files and Read Message History";
const OPENING: &str = "View Channel, Create Public Threads and Read Message History";
/// A week, in minutes: the longest that Discord takes.
const ARCHIVED_AFTER: u32 = 10_080;

/// Digits of a snowflake that is not zero.
pub(crate) fn number(id: &str) -> Result<u64, CallError> {
    let number = id.parse().ok().filter(|number| *number != 0);
    number.ok_or_else(|| CallError::Refused(format!("\"{id}\" is no id of Discord's")))
}

/// The ids of a conversation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(crate) channel: ChannelId,
    /// None in direct conversations.
    pub(crate) thread: Option<ChannelId>,
}

impl Place {
    pub(crate) fn of(key: &ThreadKey) -> Result<Place, CallError> {
        let thread = match key.thread.as_str() {
            "" => None,
            thread => Some(ChannelId::new(number(thread)?)),
        };
        Ok(Place {
            channel: ChannelId::new(number(&key.channel)?),
            thread,
        })
    }

    /// Where its posts are, as long as nothing else is known.
    pub(crate) fn first(&self) -> ChannelId {
        self.thread.unwrap_or(self.channel)
    }
}

impl Discord {
    /// Does something with a conversation's posts: in its thread, or in the channel where there is
    /// no thread. An archived thread is woken.
    pub(crate) async fn within<'a, T, F>(
        &self,
        place: Place,
        mut ask: impl FnMut(ChannelId) -> F,
    ) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>> + 'a,
    {
        let mut channel = place.first();
        let mut woken = false;
        loop {
            let error = match ask(channel).await {
                Ok(done) => return Ok(done),
                Err(error) => error,
            };
            if error.is(refusal::UNKNOWN_CHANNEL) && channel != place.channel {
                channel = place.channel;
            } else if error.is(refusal::ARCHIVED) && !woken {
                self.wake(channel).await?;
                woken = true;
            } else {
                return Err(error);
            }
        }
    }

    /// Takes a thread out of the archive.
    pub(crate) async fn wake(&self, thread: ChannelId) -> Result<(), Error> {
        let route = Route::Channel { channel_id: thread };
        let ask = Ask::new(Method::PATCH, route).body(json!({"archived": false}));
        match self.api.call(ask).await {
            Ok(_) => Ok(()),
            // Only a locked thread refuses that.
            Err(error) if error.is(refusal::NO_PERMISSION) || error.is(refusal::NO_ACCESS) => {
                Err(Error::Code(refusal::ARCHIVED, "locked".to_owned()))
            }
            Err(error) => Err(not_done(error)),
        }
    }

    /// The channel to write to: the thread, opened and awake, or the channel itself.
    pub(crate) async fn ready(&self, place: Place) -> Result<ChannelId, Error> {
        let Some(thread) = place.thread else {
            return Ok(place.channel);
        };
        match self.channel(thread).await {
            Ok(channel) => {
                if is(&channel, &["thread_metadata", "archived"]) {
                    self.wake(thread).await?;
                }
                Ok(thread)
            }
            Err(error) if error.is(refusal::UNKNOWN_CHANNEL) => {
                self.start(place.channel, thread).await
            }
            Err(error) => Err(not_done(error)),
        }
    }

    /// A channel, as Discord describes it; what it says is remembered.
    pub(crate) async fn channel(&self, channel: ChannelId) -> Result<Value, Error> {
        let route = Route::Channel {
            channel_id: channel,
        };
        let channel = self.api.call(Ask::new(Method::GET, route)).await?;
        self.known.channel(&channel);
        Ok(channel)
    }

    /// Opens the thread of the message with this id; the channel where there is no such message.
    pub(crate) async fn start(
        &self,
        channel: ChannelId,
        thread: ChannelId,
    ) -> Result<ChannelId, Error> {
        let message_id = MessageId::new(thread.get());
        let route = Route::ChannelMessage {
            channel_id: channel,
            message_id,
        };
        let message = match self.api.call(Ask::new(Method::GET, route)).await {
            Ok(message) => message,
            Err(error) if error.is(refusal::UNKNOWN_MESSAGE) => return Ok(channel),
            Err(error) => return Err(not_done(opening(error))),
        };
        let name = content::thread_name(text(&message, &["content"]).unwrap_or_default());
        match self.start_named(channel, message_id, &name).await {
            Ok(()) => Ok(thread),
            Err(error)
                if error.is(refusal::UNKNOWN_MESSAGE) || error.is(refusal::WRONG_CHANNEL) =>
            {
                Ok(channel)
            }
            Err(error) => Err(not_done(error)),
        }
    }

    /// Opens the thread of a message. One that is there already is no error.
    pub(crate) async fn start_named(
        &self,
        channel_id: ChannelId,
        message_id: MessageId,
        name: &str,
    ) -> Result<(), Error> {
        let route = Route::ChannelMessageThreads {
            channel_id,
            message_id,
        };
        let body = json!({"name": name, "auto_archive_duration": ARCHIVED_AFTER});
        match self
            .api
            .call(Ask::new(Method::POST, route).body(body))
            .await
        {
            Ok(thread) => {
                self.known.channel(&thread);
                Ok(())
            }
            Err(error) if error.is(refusal::HAS_THREAD) => Ok(()),
            Err(error) => Err(opening(error)),
        }
    }
}

impl Discord {
    /// A message stands whose thread could not be opened: it is found again, or taken away where
    /// there will be none.
    pub(crate) async fn unopened(
        &self,
        parent: &ThreadKey,
        message: &str,
        error: CallError,
    ) -> CallError {
        match error {
            CallError::NotDone(why) | CallError::Limited { reason: why, .. } => {
                CallError::Unknown(why)
            }
            CallError::Refused(_) => {
                if let Err(left) = self.delete(parent, message).await {
                    tracing::debug!(error = %left, "a message without its thread stays");
                }
                error
            }
            other => other,
        }
    }
}

/// A permission that is missing is one for threads.
fn opening(error: Error) -> Error {
    match error {
        Error::Code(code @ refusal::NO_PERMISSION, message) => {
            Error::Call(refusal::told(code, &message, OPENING))
        }
        other => other,
    }
}

/// A step before the post: whatever came of it, the post was not made, and the step can be repeated.
fn not_done(error: Error) -> Error {
    match error {
        Error::Call(CallError::Unknown(why)) => Error::Call(CallError::NotDone(why)),
        other => other,
    }
}
