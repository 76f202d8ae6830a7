//! What a process is there for.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// See the module.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Everything in one process.
    #[default]
    All,
    /// Chat platforms, their events, commands and replies, and the page: no engine.
    Bot,
    /// The engine and ticks: no platform.
    Worker,
}

impl Role {
    /// Whether it makes sandboxes.
    pub fn has_engine(self) -> bool {
        self != Role::Bot
    }

    /// Whether it speaks with platforms.
    pub fn has_chats(self) -> bool {
        self != Role::Worker
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Role::All => "all",
            Role::Bot => "bot",
            Role::Worker => "worker",
        })
    }
}

impl FromStr for Role {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let all = [Role::All, Role::Bot, Role::Worker];
        let found = all.into_iter().find(|role| role.to_string() == text);
        found.ok_or_else(|| format!("\"{text}\" is not bot, worker or all"))
    }
}
