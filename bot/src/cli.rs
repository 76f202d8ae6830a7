//! The command line.

use std::{ffi::OsString, path::PathBuf};

use clap::{Args, Parser, Subcommand};
use mayfly_domain::SandboxRef;

use crate::{
    commands,
    config::{self, Loaded, Sources},
    exit::{Exit, Failure},
    log,
    screen::Screen,
};

/// Every thread its own agent, every message its own sandbox.
#[derive(Debug, Parser)]
#[command(name = "mayfly", version, arg_required_else_help = true, after_help = EXAMPLES)]
pub(crate) struct Cli {
    /// Folder with everything, in place of data_dir of the configuration
    #[arg(long, global = true, value_name = "DIR", help_heading = EVERYWHERE)]
    data_dir: Option<PathBuf>,
    /// Configuration; else ./mayfly.toml, else /etc/mayfly/mayfly.toml, else the defaults
    #[arg(long, global = true, value_name = "FILE", help_heading = EVERYWHERE)]
    config: Option<PathBuf>,
    /// Print data as JSON
    #[arg(long, global = true, help_heading = EVERYWHERE)]
    json: bool,
    #[command(subcommand)]
    verb: Verb,
}

const EVERYWHERE: &str = "Options of every verb";

const EXAMPLES: &str = "\
Examples:
  mayfly serve
  mayfly agent new -m 'echo hello > note; ls -l'
  mayfly agent send 1a2b3c4d 'cat note'
  mayfly help exit-codes

AGENT and TICK are ids, or any unique end of one. Without a running server a command takes the data
dir itself, does its work and lets go of it.";

#[derive(Debug, Subcommand)]
enum Verb {
    /// Take messages and run agents until a signal comes
    #[command(after_help = "SIGTERM and SIGINT let running ticks end; a second one does not wait.")]
    Serve {
        /// Use a pretended container engine: for trying faces, nothing is isolated
        #[arg(long)]
        simulate: bool,
    },
    /// Print the effective configuration and where each value is from
    Check,
    /// Look at this host and say what must be mended
    #[command(after_help = "Exits with 1 if a check failed; warnings do not count.")]
    Doctor,
    /// Take over a data dir that was copied or moved here for good
    #[command(after_help = "Never run both copies: they would own the same agents.")]
    Adopt,
    /// Make agents, talk with them, look at them
    #[command(subcommand)]
    Agent(AgentVerb),
    /// Look at ticks
    #[command(subcommand)]
    Tick(TickVerb),
    /// Messages that wait for a person
    #[command(subcommand)]
    Parked(ParkedVerb),
    /// Print what each exit code means
    #[command(long_about = Exit::table())]
    ExitCodes,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AgentVerb {
    /// Make an agent, and send it a first message
    #[command(after_help = "\
Prints the new agent's id; with -m the reply, and the id to standard error.

Examples:
  mayfly agent new
  mayfly agent new --profile coder -m 'what is in /work?'
  mayfly agent new --sandbox docker:debian:stable-slim -m 'cat /etc/os-release'")]
    New {
        /// Profile of the configuration
        #[arg(long, value_name = "PROFILE")]
        profile: Option<String>,
        /// Image in place of the profile's
        #[arg(long, value_name = "docker:IMAGE[@ID]")]
        sandbox: Option<SandboxRef>,
        /// First message; - reads standard input
        #[arg(short, long, value_name = "TEXT", allow_hyphen_values = true)]
        message: Option<OsString>,
        #[command(flatten)]
        waiting: Waiting,
    },
    /// Send a message and wait for the reply
    #[command(after_help = "\
The reply goes to standard output, notices to standard error; see mayfly help exit-codes.

Examples:
  mayfly agent send 1a2b3c4d 'date'
  mayfly agent send 1a2b3c4d -- '--starts with a dash'
  tar c . | base64 | mayfly agent send 1a2b3c4d -")]
    Send {
        /// Its id, or any unique end of it
        agent: String,
        /// The message; - reads standard input
        text: OsString,
        /// Image for this tick only; files and identity stay
        #[arg(long, value_name = "docker:IMAGE[@ID]")]
        sandbox: Option<SandboxRef>,
        #[command(flatten)]
        waiting: Waiting,
    },
    /// All agents, newest first
    List,
    /// One agent
    Show {
        /// Its id, or any unique end of it
        agent: String,
    },
    /// An agent's ticks, oldest first
    #[command(after_help = "\
A * marks ticks whose changes are in the agent's files now. Look into one with mayfly tick show TICK.")]
    Log {
        /// Its id, or any unique end of it
        agent: String,
    },
    /// What changed: in the last tick, in tick FROM, or between two
    Diff {
        /// Its id, or any unique end of it
        agent: String,
        /// A tick; without TO what this one changed
        from: Option<String>,
        /// A later tick
        to: Option<String>,
        /// Count lines and bytes
        #[arg(long)]
        stat: bool,
    },
    /// Go back to the state after TICK, or before the last one
    #[command(after_help = "What is left behind stays: roll back to its tick to go forward again.")]
    Rollback {
        /// Its id, or any unique end of it
        agent: String,
        /// A tick that kept changes, see mayfly agent log
        tick: Option<String>,
    },
    /// Make a new agent with the same files, or those after TICK
    #[command(after_help = "Prints the new agent's id.")]
    Fork {
        /// Its id, or any unique end of it
        agent: String,
        /// A tick that kept changes, see mayfly agent log
        tick: Option<String>,
    },
    /// Remove an agent and what only it needs
    Rm {
        /// Its id, or any unique end of it
        agent: String,
        /// Also where forks share its files; theirs stay
        #[arg(long)]
        force: bool,
    },
    /// End the running tick
    Stop {
        /// Its id, or any unique end of it
        agent: String,
        /// Also take back what waits
        #[arg(long)]
        all: bool,
    },
}

/// How long to wait for a reply.
#[derive(Debug, Clone, Args)]
pub(crate) struct Waiting {
    /// Return as soon as the message is accepted
    #[arg(long)]
    pub(crate) no_wait: bool,
    /// Seconds to wait for the reply; the message stays on its way
    #[arg(long, value_name = "SECONDS", conflicts_with = "no_wait")]
    pub(crate) timeout: Option<u64>,
    /// Idempotency key: a second send with the same key is the first one again
    #[arg(long, value_name = "KEY", value_parser = key)]
    pub(crate) key: Option<String>,
}

fn key(text: &str) -> Result<String, &'static str> {
    let visible = text.bytes().all(|byte| byte.is_ascii_graphic());
    match visible && (1..=255).contains(&text.len()) {
        true => Ok(text.to_owned()),
        false => Err("1 to 255 visible ASCII characters without spaces are wanted"),
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum TickVerb {
    /// One tick with its transcript and what it used
    Show {
        /// Its id, or any unique end of it
        tick: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum ParkedVerb {
    /// Messages that wait for a person, oldest first
    List,
    /// Put a message back into its lane with fresh attempts
    Retry {
        /// Its id, or any unique end of it
        message: String,
    },
}

/// What a verb may use.
pub(crate) struct Context {
    pub(crate) loaded: Loaded,
    pub(crate) screen: Screen,
}

/// Parses the command line, carries it out and says how it ended.
pub fn run() -> Exit {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return match error.use_stderr() {
                true => Exit::Usage,
                false => Exit::Ok,
            };
        }
    };
    match carry_out(cli) {
        Ok(exit) => exit,
        Err(failure) => {
            for line in failure.sentence.lines() {
                Screen::new(false, true).notice(&format!("mayfly: {line}"));
            }
            failure.exit
        }
    }
}

fn carry_out(cli: Cli) -> Result<Exit, Failure> {
    if let Verb::ExitCodes = cli.verb {
        Screen::new(cli.json, true).show(&Exit::meanings(), |_, _| Exit::table());
        return Ok(Exit::Ok);
    }
    let loaded = load(cli.config, cli.data_dir)?;
    match cli.verb {
        Verb::Serve { .. } => log::of_service(&loaded),
        _ => log::of_command(),
    }
    for warning in &loaded.warnings {
        tracing::warn!("{warning}");
    }
    let context = Context {
        screen: Screen::new(cli.json, loaded.no_color),
        loaded,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    let runtime = runtime.map_err(|error| Failure::new(Exit::Internal, error))?;
    let exit = runtime.block_on(dispatch(context, cli.verb));
    // A blocked read of standard input must not keep the process.
    runtime.shutdown_timeout(std::time::Duration::from_secs(1));
    exit
}

async fn dispatch(context: Context, verb: Verb) -> Result<Exit, Failure> {
    match verb {
        Verb::Serve { simulate } => commands::serve::run(context, simulate).await,
        Verb::Check => Ok(commands::check::run(&context)),
        Verb::Doctor => commands::doctor::run(&context).await,
        Verb::Adopt => commands::adopt::run(&context).await,
        Verb::Agent(verb) => commands::agent::run(&context, verb).await,
        Verb::Tick(TickVerb::Show { tick }) => commands::tick::show(&context, &tick).await,
        Verb::Parked(verb) => commands::parked::run(&context, verb).await,
        Verb::ExitCodes => Ok(Exit::Ok),
    }
}

fn load(file: Option<PathBuf>, data_dir: Option<PathBuf>) -> Result<Loaded, Failure> {
    config::load(&Sources::of_process(file, data_dir)).map_err(|faults| {
        let exit = match faults.only_data_dir {
            true => Exit::DataDir,
            false => Exit::Configuration,
        };
        Failure::new(exit, faults)
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_message_may_be_a_dash_or_begin_with_one() {
        let text = |line: &[&str]| match Cli::try_parse_from(line).unwrap().verb {
            Verb::Agent(AgentVerb::Send { text, .. }) => text,
            other => panic!("{other:?}"),
        };
        assert_eq!(text(&["mayfly", "agent", "send", "a", "-"]), "-");
        assert_eq!(text(&["mayfly", "agent", "send", "a", "--", "-x"]), "-x");
        assert_eq!(
            text(&["mayfly", "agent", "send", "a", "--no-wait", "x"]),
            "x"
        );
    }

    #[test]
    fn bad_references_and_keys_are_refused_where_they_are_typed() {
        let fault = |rest: &[&str]| {
            let line = [&["mayfly", "agent"], rest].concat();
            Cli::try_parse_from(line).unwrap_err().to_string()
        };
        assert!(fault(&["new", "--sandbox", "debian"]).contains("write docker:IMAGE"));
        assert!(fault(&["send", "a", "x", "--key", "a b"]).contains("visible ASCII"));
        assert!(fault(&["send", "a"]).contains("<TEXT>"));
    }
}
