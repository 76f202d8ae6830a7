//! What Telegram says when it refuses, with the way out.

use mayfly_domain::{Channel, chat::CallError};

use crate::http::{answer::Failure, call};

/// Part of what Telegram says, and what a person can do about it.
const WAYS_OUT: [(&str, &str); 15] = [
    (
        "Unauthorized",
        "the token is not accepted any more: take the current one from @BotFather",
    ),
    (
        "bot was blocked by the user",
        "the person has blocked the bot: only they can unblock it",
    ),
    ("user is deactivated", "the person's account is gone"),
    (
        "can't initiate conversation",
        "a person has to write to the bot first",
    ),
    (
        "bot was kicked",
        "the bot was removed from the chat: add it again",
    ),
    (
        "bot is not a member",
        "the bot is not in the chat: add it again",
    ),
    ("group chat was deleted", "the group is gone"),
    (
        "chat not found",
        "the bot has never met this chat: add it there or write to it",
    ),
    (
        "CHAT_WRITE_FORBIDDEN",
        "the bot may not write in the chat: give it that right",
    ),
    (
        "have no rights to send",
        "the bot may not write in the chat: give it that right",
    ),
    (
        "not enough rights to send",
        "the bot may not write in the chat: give it that right",
    ),
    (
        "TOPIC_CLOSED",
        "the topic is closed: reopen it or make the bot an administrator",
    ),
    (
        "not enough rights to create a topic",
        "make the bot an administrator with the right to manage topics",
    ),
    (
        "file is too big",
        "bots may fetch files of up to 20 MB: send a smaller one or a link",
    ),
    (
        "Request Entity Too Large",
        "bots may send files of up to 50 MB",
    ),
];

/// The post that a call speaks of is not there.
const GONE: [&str; 3] = [
    "message to edit not found",
    "MESSAGE_ID_INVALID",
    "message to react not found",
];

/// The topic is not there, or the server believes so.
pub(crate) fn no_topic(failure: &Failure) -> bool {
    refuses(failure, &["message thread not found", "TOPIC_DELETED"])
}

/// The tags are not as Telegram wants them.
pub(crate) fn bad_tags(failure: &Failure) -> bool {
    refuses(failure, &["can't parse entities"])
}

/// Whether it is a refusal with one of these in it.
pub(crate) fn refuses(failure: &Failure, said: &[&str]) -> bool {
    matches!(failure, Failure::Permanent { reason } if said.iter().any(|part| reason.contains(part)))
}

/// A failure in the outbox's words.
pub(crate) fn told(failure: Failure, bot: &str) -> CallError {
    match failure {
        Failure::Moved { to } => CallError::Moved(Channel {
            platform: "telegram".to_owned(),
            workspace: bot.to_owned(),
            channel: to,
        }),
        Failure::Permanent { reason } if GONE.iter().any(|part| reason.contains(part)) => {
            CallError::Gone(reason)
        }
        other => call::told(other, way_out),
    }
}

fn way_out(reason: &str) -> String {
    let way = WAYS_OUT.iter().find(|(part, _)| reason.contains(part));
    match way {
        Some((_, way)) => format!("{way} (Telegram says \"{reason}\")"),
        None => reason.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(reason: &str) -> CallError {
        let reason = reason.to_owned();
        told(Failure::Permanent { reason }, "42")
    }

    #[test]
    fn fm_08_a_refusal_names_the_way_out() {
        let CallError::Refused(blocked) = refused("Forbidden: bot was blocked by the user") else {
            panic!("refused");
        };
        assert!(
            blocked.contains("unblock") && blocked.contains("Forbidden"),
            "{blocked}"
        );
        assert!(matches!(
            refused("Bad Request: message to edit not found"),
            CallError::Gone(_)
        ));
        let other = CallError::Refused("Bad Request: BUTTON_DATA_INVALID".to_owned());
        assert_eq!(refused("Bad Request: BUTTON_DATA_INVALID"), other);
    }

    #[test]
    fn th_08_a_group_that_moved_says_where_to() {
        let to = "-1001234567890".to_owned();
        let CallError::Moved(channel) = told(Failure::Moved { to }, "42") else {
            panic!("moved");
        };
        assert_eq!(channel.to_string(), "telegram/42/-1001234567890");
    }
}
