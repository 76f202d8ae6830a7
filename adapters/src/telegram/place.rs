//! Where a conversation is: chat, topic, or the answers to one message.

use mayfly_domain::{Channel, ThreadKey, chat::CallError};
use teloxide_core::types::{ChatId, MessageId, Recipient, ThreadId};

/// A chat without topics has conversations beside its own as answers to a message of ours.
const ROOT: char = 'r';

/// A place to write to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    /// Which chat.
    pub(crate) chat: i64,
    /// A topic of it; General is none.
    pub(crate) topic: Option<i32>,
    /// The message whose answers the conversation is.
    pub(crate) root: Option<i32>,
}

impl Place {
    /// Reads a key of this bot.
    pub(crate) fn of(thread: &ThreadKey, bot: &str) -> Result<Place, CallError> {
        let refused = |why: String| CallError::Refused(why);
        if thread.platform != "telegram" {
            return Err(refused(format!("{thread} is not on Telegram")));
        }
        if thread.workspace != bot {
            return Err(refused(format!(
                "{thread} belongs to the bot {}, and the token is of the bot {bot}: \
                 start Mayfly with that bot's token",
                thread.workspace
            )));
        }
        let unreadable = || refused(format!("{thread} is no conversation of Telegram"));
        let number = |text: &str| text.parse::<i32>().ok().filter(|number| *number > 0);
        let mut place = Place {
            chat: thread.channel.parse().map_err(|_| unreadable())?,
            topic: None,
            root: None,
        };
        match thread.thread.strip_prefix(ROOT) {
            _ if thread.thread.is_empty() => {}
            Some(root) => place.root = Some(number(root).ok_or_else(unreadable)?),
            None => {
                let topic = number(&thread.thread).ok_or_else(unreadable)?;
                place.topic = Some(topic).filter(|topic| *topic != 1);
            }
        }
        Ok(place)
    }

    /// The key of the conversation that this message begins.
    pub(crate) fn rooted(chat: &Channel, root: i32) -> ThreadKey {
        chat.thread(format!("{ROOT}{root}"))
    }

    pub(crate) fn recipient(&self) -> Recipient {
        Recipient::Id(ChatId(self.chat))
    }

    /// What is asked to be left alone together.
    pub(crate) fn bucket(&self) -> String {
        format!("chat {}", self.chat)
    }

    /// Groups have negative ids.
    pub(crate) fn is_group(&self) -> bool {
        self.chat < 0
    }
}

/// A topic as calls name it.
pub(crate) fn thread_id(topic: i32) -> ThreadId {
    ThreadId(MessageId(topic))
}

/// A post's id as calls name it.
pub(crate) fn message_id(post: &str) -> Result<MessageId, CallError> {
    let id = post.parse().map(MessageId);
    id.map_err(|_| CallError::Refused(format!("\"{post}\" is no message of Telegram")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<Place, CallError> {
        Place::of(&text.parse().expect("a key"), "42")
    }

    #[test]
    fn th_04_general_has_no_number_and_other_topics_do() {
        let place = |topic, root| Place {
            chat: -1001,
            topic,
            root,
        };
        assert_eq!(of("telegram/42/-1001/"), Ok(place(None, None)));
        assert_eq!(of("telegram/42/-1001/1"), Ok(place(None, None)));
        assert_eq!(of("telegram/42/-1001/77"), Ok(place(Some(77), None)));
        assert_eq!(of("telegram/42/-1001/r77"), Ok(place(None, Some(77))));
        let chat = Channel {
            platform: "telegram".to_owned(),
            workspace: "42".to_owned(),
            channel: "-1001".to_owned(),
        };
        assert_eq!(Place::rooted(&chat, 9).to_string(), "telegram/42/-1001/r9");
    }

    #[test]
    fn th_01_keys_of_others_are_refused() {
        for bad in [
            "slack/42/-1001/",
            "telegram/43/-1001/",
            "telegram/42/general/",
            "telegram/42/-1001/x",
            "telegram/42/-1001/r",
            "telegram/42/-1001/-5",
            "telegram/42/-1001/99999999999",
        ] {
            assert!(matches!(of(bad), Err(CallError::Refused(_))), "{bad}");
        }
    }
}
