//! What can be said to Mayfly itself in a thread, the same on every platform: `!status`, `/status`,
//! or `@bot status`.

use clap::{CommandFactory as _, Parser, Subcommand};
use mayfly_domain::{AgentId, ReplyFile};
use serde::{Deserialize, Serialize};

/// A command as it was given.
#[derive(Debug, Clone, PartialEq, Eq, Subcommand, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// What can be said here
    Help,
    /// A fresh agent for this conversation; the old one stays reachable by command line
    New,
    /// What the agent does, and what waits
    Status,
    /// Ends what runs; with `all`, withdraws what waits too
    Stop {
        /// `all`
        #[arg(value_parser = ["all"])]
        what: Option<String>,
        /// The message whose button it was.
        #[arg(skip)]
        #[serde(default)]
        of: Option<String>,
    },
    /// The newest ticks
    History {
        /// How many
        #[arg(default_value_t = 10, value_parser = clap::value_parser!(u8).range(1..=50))]
        count: u8,
    },
    /// What the last tick changed, or a tick, or what lies between two
    Diff {
        /// A tick
        tick: Option<String>,
        /// A later tick
        to: Option<String>,
    },
    /// Goes back to the files and the conversation after a tick, or before the last one
    Rollback {
        /// A tick
        tick: Option<String>,
        /// Asked and confirmed.
        #[arg(skip)]
        #[serde(default)]
        confirmed: bool,
    },
    /// A new conversation on the same files, or on those after a tick
    Fork {
        /// A tick
        tick: Option<String>,
    },
    /// Runs a message again that is parked: the newest, or this one
    Retry {
        /// A message
        message: Option<String>,
    },
    /// What the agent has used
    Usage,
    /// The agent's files and history as an archive
    Export,
    /// Sends a file again that may not have arrived.
    #[command(skip)]
    SendAgain {
        /// Its content is kept as long as its button.
        file: ReplyFile,
    },
    /// Opens the conversation of a fork that is there already.
    #[command(skip)]
    Open {
        /// The fork.
        fork: AgentId,
        /// It was asked for at this time (unix ms) and may be there.
        asked_at: Option<i64>,
    },
    /// A message whose files lie on another worker runs when that one is back.
    #[command(skip)]
    Wait {
        /// It is parked.
        message: String,
    },
    /// It runs on the files after this tick, without those that nobody can have.
    #[command(skip)]
    GoOn {
        /// The last tick whose files are there.
        tick: String,
        /// It is parked.
        message: String,
    },
    /// A question that was answered with no.
    #[command(skip)]
    Nothing,
}

#[derive(Parser)]
#[command(
    no_binary_name = true,
    disable_help_flag = true,
    disable_help_subcommand = true,
    disable_version_flag = true
)]
struct Line {
    #[command(subcommand)]
    order: Order,
}

impl Order {
    /// Whether it may be done twice.
    pub(super) fn repeats(&self) -> bool {
        match self {
            Order::New | Order::Rollback { .. } | Order::Retry { .. } | Order::GoOn { .. } => false,
            Order::Help
            | Order::Status
            | Order::Stop { .. }
            | Order::History { .. }
            | Order::Diff { .. }
            | Order::Usage
            | Order::Export
            // Its file is owed in the transaction that closes it.
            | Order::SendAgain { .. }
            // It becomes `Open` in the transaction that makes the fork.
            | Order::Fork { .. }
            | Order::Open { .. }
            | Order::Wait { .. }
            | Order::Nothing => true,
        }
    }

    /// Reads a post. None if it is for the agent; an error says what is wrong with a command.
    pub fn read(text: &str, mentioned: bool) -> Option<Result<Order, String>> {
        let named = by_name(text);
        let (text, mentioned) = (named.unwrap_or(text), mentioned || named.is_some());
        let mut words: Vec<&str> = text.split_whitespace().collect();
        let first = words.first()?;
        let marked = first.strip_prefix('!').or_else(|| first.strip_prefix('/'));
        // Phones begin with a capital, and people end with a full stop.
        let name = marked.unwrap_or(first).trim_end_matches(['.', '!']);
        let name = name.to_lowercase();
        match marked {
            Some(_) if is_known(&name) => {
                words[0] = &name;
                Some(parse(&words))
            }
            Some(_) => None,
            None if mentioned && is_known(&name) && words[1..].iter().all(|word| is_id(word)) => {
                words[0] = &name;
                Some(parse(&words)).filter(|read| read.is_ok() || named.is_some())
            }
            None => None,
        }
    }

    /// Names and what they do, for help and for platforms that want them registered.
    pub fn all() -> Vec<(String, String)> {
        let line = Line::command();
        let named = line.get_subcommands().map(|command| {
            let about = command.get_about().map(ToString::to_string);
            (command.get_name().to_owned(), about.unwrap_or_default())
        });
        named.collect()
    }

    /// The file that it needs.
    pub fn file(&self) -> Option<&ReplyFile> {
        match self {
            Order::SendAgain { file } => Some(file),
            _ => None,
        }
    }

    /// Whether it changes what others did.
    pub fn is_weighty(&self) -> bool {
        matches!(
            self,
            Order::New
                | Order::Stop { .. }
                | Order::Rollback { .. }
                | Order::Retry { .. }
                | Order::Wait { .. }
                | Order::GoOn { .. }
        )
    }
}

/// What a post says to the agent, where it is no command: `/mayfly TEXT` says the text.
pub fn to_the_agent(text: &str) -> &str {
    by_name(text).unwrap_or(text)
}

/// What comes after `/mayfly`.
fn by_name(text: &str) -> Option<&str> {
    let (first, rest) = text.trim_start().split_once(char::is_whitespace)?;
    let name = first.strip_prefix(['/', '!'])?;
    let rest = rest.trim();
    (name.eq_ignore_ascii_case("mayfly") && !rest.is_empty()).then_some(rest)
}

/// What may follow a command without a mark; anything else makes it a sentence to the agent.
fn is_id(word: &str) -> bool {
    let hexadecimal = word.len() >= 4 && word.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-');
    hexadecimal || word == "all" || word.bytes().all(|b| b.is_ascii_digit())
}

fn is_known(name: &str) -> bool {
    let line = Line::command();
    line.get_subcommands()
        .any(|command| command.get_name() == name)
}

fn parse(words: &[&str]) -> Result<Order, String> {
    let line = Line::try_parse_from(words).map_err(|error| {
        let told = error.to_string();
        let told = told.lines().next().unwrap_or_default();
        let told = told.strip_prefix("error: ").unwrap_or(told);
        format!("{told}. `!help` tells what can be said here.")
    })?;
    Ok(line.order)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_known_by_its_mark_and_all_else_is_for_the_agent() {
        let read = |text| Order::read(text, false);
        assert_eq!(read("!status"), Some(Ok(Order::Status)));
        for status in ["/status", "!Status", " !STATUS. "] {
            assert_eq!(read(status), Some(Ok(Order::Status)), "{status}");
        }
        assert_eq!(read("/mayfly usage"), Some(Ok(Order::Usage)));
        let all = Order::Stop {
            what: Some("all".to_owned()),
            of: None,
        };
        assert_eq!(read("!stop all"), Some(Ok(all)));
        for for_the_agent in [
            "status",
            "/status@other_bot",
            "/bin/ls",
            "! ls",
            "!unknown",
            "",
            "/",
            "ask !status",
        ] {
            assert_eq!(read(for_the_agent), None, "{for_the_agent}");
        }
        for (said, text) in [
            ("/mayfly dance with me", "dance with me"),
            (" !Mayfly  help me ", "help me"),
            ("/mayfly /bin/ls", "/bin/ls"),
            ("/mayfly /mayfly status", "/mayfly status"),
            ("/mayfly", "/mayfly"),
            ("/mayflying x", "/mayflying x"),
        ] {
            assert_eq!(read(said), None, "{said}");
            assert_eq!(to_the_agent(said), text);
        }
        assert_eq!(read("/mayfly !status"), Some(Ok(Order::Status)));
        assert_eq!(Order::read("status", true), Some(Ok(Order::Status)));
        assert_eq!(Order::read("help me with the build", true), None);
        for sentence in ["help me", "fork this", "diff main.rs lib.rs", "retry that"] {
            assert_eq!(Order::read(sentence, true), None, "{sentence}");
        }
    }

    #[test]
    fn what_is_wrong_is_said_in_one_sentence() {
        for bad in [
            "!stop everything",
            "!history 0",
            "!history x",
            "!diff a b c",
            "/mayfly history 0",
        ] {
            let told = Order::read(bad, false).unwrap().unwrap_err();
            assert!(
                told.contains("!help") && told.lines().count() == 1,
                "{told}"
            );
        }
    }

    #[test]
    fn every_command_says_what_it_does() {
        let all = Order::all();
        let names: Vec<&str> = all.iter().map(|(name, _)| name.as_str()).collect();
        let expected = "help new status stop history diff rollback fork retry usage export";
        assert_eq!(names.join(" "), expected);
        assert!(all.iter().all(|(_, about)| about.len() > 10));
    }
}
