//! Discord's codes, as sentences with the way out.

use std::time::Duration;

use mayfly_domain::chat::CallError;

/// The token itself is refused.
pub(crate) const TOKEN: &str = "Discord does not accept the bot's token: make a new one with \"Reset Token\" on the page Bot of \
     https://discord.com/developers/applications and set DISCORD_BOT_TOKEN to it";

/// "Unknown Channel": a thread that nobody has opened yet, too.
pub(crate) const UNKNOWN_CHANNEL: i64 = 10_003;
/// "Unknown Message".
pub(crate) const UNKNOWN_MESSAGE: i64 = 10_008;
/// "Unknown Webhook": an interaction that was not acknowledged or is over.
pub(crate) const UNKNOWN_WEBHOOK: i64 = 10_015;
/// "Unknown interaction": too late.
pub(crate) const UNKNOWN_INTERACTION: i64 = 10_062;
/// "Interaction has already been acknowledged".
pub(crate) const ACKNOWLEDGED: i64 = 40_060;
/// "Missing Access".
pub(crate) const NO_ACCESS: i64 = 50_001;
/// "Missing Permissions".
pub(crate) const NO_PERMISSION: i64 = 50_013;
/// "Cannot execute action on this channel type".
pub(crate) const WRONG_CHANNEL: i64 = 50_024;
/// "Invalid Webhook Token": the interaction's quarter of an hour is over.
pub(crate) const WEBHOOK_OVER: i64 = 50_027;
/// "Thread is archived".
pub(crate) const ARCHIVED: i64 = 50_083;
/// "A thread has already been created for this message".
pub(crate) const HAS_THREAD: i64 = 160_004;

/// A code in the outbox's words; `needs` names the permissions that the call wants.
pub(crate) fn told(code: i64, message: &str, needs: &str) -> CallError {
    let sentence = match code {
        UNKNOWN_MESSAGE => return CallError::Gone("the message was deleted".to_owned()),
        UNKNOWN_WEBHOOK | WEBHOOK_OVER | UNKNOWN_INTERACTION => {
            return CallError::Gone("the button can no longer be answered".to_owned());
        }
        30_046 => {
            return CallError::Limited {
                reason: "messages older than an hour take few edits".to_owned(),
                after: Duration::from_secs(60),
            };
        }
        UNKNOWN_CHANNEL => "the channel or thread was deleted: write to the bot somewhere else".to_owned(),
        NO_ACCESS => "the bot does not see this channel: give it View Channel there, and invite it to the thread if that is private".to_owned(),
        NO_PERMISSION => format!("the bot lacks a permission in this channel: give it {needs}"),
        50_007 => "this person takes no direct messages from the bot: they have to allow direct messages from members of a server that both are in".to_owned(),
        ARCHIVED | 160_005 => "the thread is locked: unlock it, or give the bot Manage Threads".to_owned(),
        160_006 => "the channel has as many active threads as Discord allows: archive some".to_owned(),
        40_005 | 50_045 => "the file is larger than this server allows".to_owned(),
        30_010 => "the message has as many different reactions as Discord allows".to_owned(),
        90_001 => "the author of the message has blocked the bot's reactions".to_owned(),
        _ => format!("Discord says \"{message}\" (code {code})"),
    };
    CallError::Refused(sentence)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fm_08_what_never_works_says_the_way_out() {
        for (code, way_out) in [
            (NO_ACCESS, "View Channel"),
            (NO_PERMISSION, "Send Messages in Threads"),
            (50_007, "allow direct messages"),
            (ARCHIVED, "Manage Threads"),
            (50_035, "code 50035"),
        ] {
            let CallError::Refused(said) = told(code, "no", "Send Messages in Threads") else {
                panic!("{code}");
            };
            assert!(said.contains(way_out), "{said}");
        }
        assert!(matches!(told(UNKNOWN_MESSAGE, "", ""), CallError::Gone(_)));
        assert!(matches!(told(30_046, "", ""), CallError::Limited { .. }));
    }
}
