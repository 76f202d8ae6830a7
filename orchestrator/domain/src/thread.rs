//! A conversation's key, encoded so that no two conversations share one.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::Channel;

/// One conversation: (platform, workspace, channel, thread).
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ThreadKey {
    /// For example `slack`, `discord`, `telegram`, `local`.
    pub platform: String,
    /// Slack team, Discord guild; the installation for `local`.
    pub workspace: String,
    /// Channel, chat or direct conversation.
    pub channel: String,
    /// Thread in the channel; empty where the channel is the conversation.
    pub thread: String,
}

impl ThreadKey {
    /// Where the conversation is.
    pub fn channel(&self) -> Channel {
        Channel {
            platform: self.platform.clone(),
            workspace: self.workspace.clone(),
            channel: self.channel.clone(),
        }
    }

    /// The thread of an agent that is reached by command line, API or page.
    pub fn local(installation: impl fmt::Display, agent: impl fmt::Display) -> Self {
        ThreadKey {
            platform: "local".to_owned(),
            workspace: installation.to_string(),
            channel: "cli".to_owned(),
            thread: agent.to_string(),
        }
    }
}

/// `platform/workspace/channel/thread`, with `%` and `/` in a part written as `%25` and `%2F`.
impl fmt::Display for ThreadKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [&self.platform, &self.workspace, &self.channel, &self.thread];
        f.write_str(&parts.map(|part| escaped(part)).join("/"))
    }
}

/// One part of a key.
pub(crate) fn escaped(part: &str) -> String {
    part.replace('%', "%25").replace('/', "%2F")
}

/// A text that no thread key encodes to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is not a thread key of the form platform/workspace/channel/thread")]
pub struct ThreadKeyError(String);

impl FromStr for ThreadKey {
    type Err = ThreadKeyError;
    fn from_str(text: &str) -> Result<Self, ThreadKeyError> {
        let parts: Vec<String> = text
            .split('/')
            .map(|part| part.replace("%2F", "/").replace("%25", "%"))
            .collect();
        let Ok([platform, workspace, channel, thread]) = <[String; 4]>::try_from(parts) else {
            return Err(ThreadKeyError(text.to_owned()));
        };
        let key = ThreadKey {
            platform,
            workspace,
            channel,
            thread,
        };
        if key.to_string() == text {
            Ok(key)
        } else {
            Err(ThreadKeyError(text.to_owned()))
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn th_01_two_conversations_never_share_a_key(
            a in prop::array::uniform4("[a%/2F5]{0,4}"), b in prop::array::uniform4("[a%/2F5]{0,4}")
        ) {
            let key = |[platform, workspace, channel, thread]: [String; 4]| {
                ThreadKey { platform, workspace, channel, thread }
            };
            let (a, b) = (key(a), key(b));
            prop_assert_eq!(a == b, a.to_string() == b.to_string());
            prop_assert_eq!(a.to_string().parse::<ThreadKey>().unwrap(), a);
        }
    }
}
