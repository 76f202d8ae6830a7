//! The command line.

use std::{ffi::OsString, path::PathBuf};

use clap::{Args, Parser, Subcommand};
use mayfly_domain::SandboxRef;
use mayfly_orchestrator::{role::Role, snapshot::oci::Compress};

use crate::{
    commands,
    config::{self, Loaded, Sources},
    exit::{Exit, Failure},
    http::wire::GcBody,
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

AGENT and TICK are ids, or any unique end of one; what changes something wants four digits at least.
Without a running server a command takes the data dir itself, does its work and lets go of it;
messages that wait run then only if it sends or retries one.";

#[derive(Debug, Subcommand)]
enum Verb {
    /// Take messages and run agents until a signal comes
    #[command(after_help = "SIGTERM and SIGINT let running ticks end; a second one does not wait.")]
    Serve {
        /// Use a pretended container engine: for trying faces, nothing is isolated
        #[arg(long)]
        simulate: bool,
        /// What this process is there for: bot (chats and the page), worker (agents) or all; in place of
        /// serve.role of the configuration
        #[arg(long, value_name = "ROLE")]
        role: Option<Role>,
    },
    /// Print a link that opens the page in a browser on this machine
    #[command(after_help = "\
The link is good once, for ten minutes; the browser stays signed in until the server ends, or for 12
hours without use. A server must run: mayfly serve.")]
    Page,
    /// Print the effective configuration and where each value is from
    Check,
    /// Look at this host and say what must be mended
    #[command(after_help = "Exits with 1 if a check failed; warnings do not count.")]
    Doctor {
        /// Look at the kept layers instead, and say which agents a damage hurts
        #[arg(long)]
        layers: bool,
        /// Compare their content with what was backed up there
        #[arg(long, value_name = "BACKUP", requires = "layers")]
        against: Option<PathBuf>,
    },
    /// Copy everything into the new folder DIR, while agents run
    #[command(after_help = "\
Database, files, transcripts and sent files as of one moment; not the configuration, nor the API's
token. DIR has its name when all of it is on disk; until then it is called DIR.unfinished.

Examples:
  mayfly backup /mnt/backups/monday
  mayfly doctor --layers --against /mnt/backups/monday")]
    Backup {
        /// A new folder, on a file system with owners, links and attributes
        #[arg(value_name = "DIR")]
        folder: PathBuf,
        /// Also the agents' images: for a machine that cannot get them
        #[arg(long)]
        with_images: bool,
    },
    /// Bring the backup DIR back into an empty data dir
    #[command(after_help = "\
Everything is verified before it is used. What is restored is a new installation: it never touches
what the original has on an engine. Messages that waited in the backup are run, so go on with one
of both only.

Example:
  mayfly --data-dir /var/lib/mayfly restore /mnt/backups/monday")]
    Restore {
        /// What mayfly backup wrote
        #[arg(value_name = "DIR")]
        folder: PathBuf,
    },
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
    /// Set up a chat platform
    #[command(subcommand)]
    Platform(PlatformVerb),
    /// Let people of a chat platform in by a code that is good once
    #[command(subcommand)]
    Pair(PairVerb),
    /// Remove what nothing needs any more: expired states, unused layers, files and images
    #[command(after_help = "\
A server does this by itself, as [retention] of the configuration says. The newest state of an agent is
never removed, nor what a running tick, a fork or a reader needs. After the clock jumped by more than a
day nothing is removed.")]
    Gc {
        /// Only say what would be removed
        #[arg(long)]
        dry_run: bool,
        /// The clock is right although it jumped
        #[arg(long)]
        trust_clock: bool,
    },
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
  mayfly agent send 1a2b3c4d 'wc -l received/*.csv' --file a.csv --file b.csv
  tar c . | mayfly agent send 1a2b3c4d 'tar xf received/stdin' --file -
  mayfly agent send 1a2b3c4d 'mkdir -p send; date > send/now' --output replies")]
    Send {
        /// Its id, or any unique end of it
        agent: String,
        /// The message; - reads standard input
        text: OsString,
        /// A file that comes with it, to be found in /work/received; - is standard input, named stdin
        #[arg(long, value_name = "PATH")]
        file: Vec<PathBuf>,
        /// Folder to save the files of the reply in; nothing there is written over
        #[arg(long, short, value_name = "DIR", conflicts_with = "no_wait")]
        output: Option<PathBuf>,
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
A * marks ticks whose changes are in the agent's files now. Look into one with mayfly tick show TICK.

With --graph: newest first, as a tree. * is a state to roll back to, . one that is not kept any more,
x a tick whose changes were discarded.")]
    Log {
        /// Its id, or any unique end of it
        agent: String,
        /// Draw how states came from each other, with rollbacks and forks
        #[arg(long)]
        graph: bool,
    },
    /// What changed: in the last tick, in tick FROM, or between two
    #[command(after_help = "\
FROM and TO may be ticks that were left behind by a rollback, or ticks of forks. Prints what git
apply takes; names with control characters are quoted as git quotes them.")]
    Diff {
        /// Its id, or any unique end of it
        agent: String,
        /// A tick; without TO what this one changed
        from: Option<String>,
        /// Another tick
        to: Option<String>,
        /// Count lines and bytes
        #[arg(long)]
        stat: bool,
        /// Only names
        #[arg(long, conflicts_with = "stat")]
        name_only: bool,
    },
    /// The files an agent has, or had after TICK
    #[command(after_help = "\
Nothing is mounted or run, and links are not followed. A relative PATH begins in /work.

Examples:
  mayfly agent files 1a2b3c4d
  mayfly agent files 1a2b3c4d 5e6f7a8b src
  mayfly agent files -r 1a2b3c4d head /home/agent")]
    Files {
        /// Its id, or any unique end of it
        agent: String,
        /// A tick that kept changes, or head
        tick: Option<String>,
        /// A folder; /work if none
        path: Option<OsString>,
        /// All below it
        #[arg(short, long)]
        recursive: bool,
    },
    /// Print a file as it was after TICK
    #[command(after_help = "The bytes go to standard output unchanged, unless that is a terminal.")]
    Cat {
        /// Its id, or any unique end of it
        agent: String,
        /// A tick that kept changes, or head
        tick: String,
        /// A relative one begins in /work
        path: OsString,
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
    /// Write an agent's files and history as an image layout
    #[command(after_help = "\
Other tools read it: skopeo inspect oci:DIR, umoci unpack --image DIR:latest BUNDLE. The root file
system of its image is not in it. Messages that wait stay here.

Examples:
  mayfly agent export 1a2b3c4d -o agent.tar
  mayfly agent export 1a2b3c4d 5e6f7a8b --compress zstd -o folder")]
    Export {
        /// Its id, or any unique end of it
        agent: String,
        /// As of a tick that kept changes, see mayfly agent log
        tick: Option<String>,
        /// A new file, if its name ends in .tar, or a new folder
        #[arg(short, long, value_name = "FILE.tar|DIR")]
        output: PathBuf,
        /// gzip, zstd or none; zstd is faster, but few tools read it
        #[arg(long, value_name = "HOW", default_value = "gzip")]
        compress: Compress,
        /// Leave out what the image has in /work and /home/agent: an import then needs the image
        #[arg(long)]
        without_base: bool,
    },
    /// Make an agent of an export
    #[command(after_help = "\
Prints the agent's id: that of the export, or a new one where that is taken here.")]
    Import {
        /// What mayfly agent export wrote
        #[arg(value_name = "FILE.tar|DIR")]
        from: PathBuf,
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

/// Chat platforms.
#[derive(Debug, Subcommand)]
pub(crate) enum PlatformVerb {
    /// Slack
    #[command(subcommand)]
    Slack(SlackVerb),
    /// Discord
    #[command(subcommand)]
    Discord(DiscordVerb),
    /// Telegram
    #[command(subcommand)]
    Telegram(TelegramVerb),
}

/// Who is let in by a code.
#[derive(Debug, Subcommand)]
pub(crate) enum PairVerb {
    /// Make a code for one person on Telegram
    #[command(
        after_help = "Whoever sends it to the bot in a direct chat may speak from then on, as if named in telegram.allowed_users.\n\
It is good once, for ten minutes and five wrong tries; in a group it is void."
    )]
    Telegram,
    /// Everybody who was let in
    List,
    /// Take the right to speak back from a person
    Remove {
        /// The id that mayfly pair list shows
        #[arg(allow_hyphen_values = true)]
        person: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum SlackVerb {
    /// Print the app's manifest: scopes, events, Socket Mode or the address that Slack sends requests to
    #[command(
        after_help = "Paste it at https://api.slack.com/apps, \"Create New App\", \"From a manifest\"."
    )]
    Manifest {
        /// Events come as requests to this public address, which leads to POST /hooks/slack on hooks.listen; for
        /// example https://bot.example.org/hooks/slack
        #[arg(long)]
        url: Option<String>,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum DiscordVerb {
    /// Print the link that invites the bot, with the permissions it needs
    Invite {
        /// The application's id, on its page "General Information"
        application: String,
    },
    /// Register the commands that people are offered
    Commands,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TelegramVerb {
    /// Register the commands that people are offered
    Commands,
}

fn carry_out(cli: Cli) -> Result<Exit, Failure> {
    if let Verb::ExitCodes = cli.verb {
        Screen::new(cli.json, true).show(&Exit::meanings(), |_, _| Exit::table());
        return Ok(Exit::Ok);
    }
    let role = match &cli.verb {
        Verb::Serve { role, .. } => *role,
        _ => None,
    };
    let loaded = load(cli.config, cli.data_dir, role)?;
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
    crate::heap::share();
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
        Verb::Serve { simulate, .. } => commands::serve::run(context, simulate).await,
        Verb::Page => commands::page::run(&context).await,
        Verb::Check => Ok(commands::check::run(&context)),
        Verb::Doctor {
            layers: true,
            against,
        } => commands::backup::layers(&context, against.as_deref()).await,
        Verb::Doctor { .. } => commands::doctor::run(&context).await,
        Verb::Backup {
            folder,
            with_images,
        } => commands::backup::take(&context, &folder, with_images).await,
        Verb::Restore { folder } => commands::backup::restore(&context, &folder).await,
        Verb::Adopt => commands::adopt::run(&context).await,
        Verb::Agent(verb) => commands::agent::run(&context, verb).await,
        Verb::Tick(TickVerb::Show { tick }) => commands::tick::show(&context, &tick).await,
        Verb::Parked(verb) => commands::parked::run(&context, verb).await,
        Verb::Platform(verb) => commands::platform::run(&context, verb).await,
        Verb::Pair(verb) => commands::pair::run(&context, verb).await,
        Verb::Gc {
            dry_run,
            trust_clock,
        } => {
            let body = GcBody {
                dry_run,
                trust_clock,
            };
            commands::gc::run(&context, body).await
        }
        Verb::ExitCodes => Ok(Exit::Ok),
    }
}

fn load(
    file: Option<PathBuf>,
    data_dir: Option<PathBuf>,
    role: Option<Role>,
) -> Result<Loaded, Failure> {
    config::load(&Sources::of_process(file, data_dir, role)).map_err(|faults| {
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
