//! What a value must be beyond its type.

use mayfly_orchestrator::{
    agent::profile::Profile, db::Server, inbox::access::Access, role::Role,
    snapshot::exclude::Excludes,
};

use super::{
    Config,
    layers::{Origin, Origins},
    show::is_secret,
};
use crate::data_dir;

/// Names under which agent programs look for what a model is paid by. What only sounds like a secret
/// (`MAX_TOKENS`) refuses no start.
const MODEL_KEYS: [&str; 18] = [
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "AWS_BEARER_TOKEN_BEDROCK",
    "AWS_SECRET_ACCESS_KEY",
    "AZURE_OPENAI_API_KEY",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "CODEX_API_KEY",
    "COHERE_API_KEY",
    "DEEPSEEK_API_KEY",
    "GEMINI_API_KEY",
    "GOOGLE_API_KEY",
    "GROQ_API_KEY",
    "HF_TOKEN",
    "MISTRAL_API_KEY",
    "OPENAI_API_KEY",
    "OPENROUTER_API_KEY",
    "TOGETHER_API_KEY",
    "XAI_API_KEY",
];

/// Faults of the data dir's path.
pub(super) fn data_dir(config: &Config, origins: &Origins) -> Vec<String> {
    let fault = data_dir::check_path(&config.data_dir).err();
    let told = fault.map(|fault| sentence("data_dir", origins, &fault.to_string()));
    told.into_iter().collect()
}

/// Passwords where others may read them.
pub(super) fn passwords(config: &Config, origins: &Origins) -> Vec<String> {
    let written = |key: &str| matches!(origins.get(key), Some(Origin::File(_)));
    let mut faults = Vec::new();
    let address = Server::parse(&config.database.url, None);
    let open = address.is_ok_and(|server| server.password().is_some());
    for (key, open) in [
        ("database.url", open),
        ("database.password", !config.database.password.is_empty()),
    ] {
        if open && written(key) {
            let fault = "a password does not stand here: put it into MAYFLY__DATABASE__PASSWORD, or \
                         into a file of its own that database.password_file names";
            faults.push(sentence(key, origins, fault));
        }
    }
    let key = "store.secret_access_key";
    if !config.store.secret_access_key.is_empty() && written(key) {
        let fault = "a secret key does not stand here: put it into \
                     MAYFLY__STORE__SECRET_ACCESS_KEY, or into a file of its own that \
                     store.secret_access_key_file names";
        faults.push(sentence(key, origins, fault));
    }
    faults
}

/// All other faults.
pub(super) fn check(config: &Config, origins: &Origins) -> Vec<String> {
    let mut rules = Rules {
        origins,
        faults: Vec::new(),
    };
    let place = config.database.place(&config.data_dir);
    rules.hold("database.url", place.is_ok(), || {
        place.as_ref().err().cloned().unwrap_or_default()
    });
    let listen = &config.http.listen;
    rules.hold(
        "http.listen",
        listen == "off" || listen.parse::<std::net::SocketAddr>().is_ok(),
        || format!("\"{listen}\" is not ADDRESS:PORT, for example 127.0.0.1:8080, or off"),
    );
    let hooks = &config.hooks.listen;
    rules.hold(
        "hooks.listen",
        hooks.parse::<std::net::SocketAddr>().is_ok(),
        || format!("\"{hooks}\" is not ADDRESS:PORT, for example 127.0.0.1:8090"),
    );
    rules.at_least("worker.max_running", config.worker.max_running as u64, 1);
    if let Some(most) = config.worker.max_per_user {
        rules.at_least("worker.max_per_user", u64::from(most), 1);
    }
    if let Some(memory) = config.worker.memory_mib {
        rules.at_least("worker.memory_mib", memory, 16);
    }
    let queue = config.queue.check();
    rules.hold("queue.url", queue.is_ok(), || {
        queue
            .as_ref()
            .err()
            .map(ToString::to_string)
            .unwrap_or_default()
    });
    for (key, fault) in config.store.faults() {
        rules.hold(&format!("store.{key}"), false, || fault);
    }
    rules.at_least("store.cache_mib", config.store.cache_mib, 1);
    rules.at_least("worker.attempts", u64::from(config.worker.attempts), 1);
    let attachments = &config.attachments;
    rules.at_least("attachments.file_mib", attachments.file_mib, 1);
    rules.at_least("attachments.message_mib", attachments.message_mib, 1);
    let host = &config.docker.host;
    let schemes = ["unix://", "tcp://", "http://"];
    rules.hold(
        "docker.host",
        schemes.iter().any(|scheme| host.starts_with(scheme)),
        || format!("\"{host}\" is not unix:///PATH or tcp://HOST:PORT"),
    );
    let level = &config.log.level;
    rules.hold(
        "log.level",
        ["error", "warn", "info", "debug", "trace"].contains(&level.as_str()),
        || format!("\"{level}\" is not error, warn, info, debug or trace"),
    );
    for (name, profile) in &config.profiles.0 {
        rules.profile(name, profile);
    }
    rules.chats(config);
    rules.role(config);
    rules.faults
}

/// Legal, and most likely not meant.
pub(super) fn advise(config: &Config) -> Vec<String> {
    let mut advice = Vec::new();
    for (name, key) in in_env(config, is_secret) {
        let role = config.serve.role;
        advice.push(match role.has_engine() {
            true => format!(
                "profiles.{name}.env.{key} looks like a secret: the agent can read everything in env"
            ),
            false => format!(
                "profiles.{name}.env.{key} looks like a secret, and role {role} runs no agents: if it is \
                 one, give it to the workers only"
            ),
        });
    }
    for (platform, on, access) in chats(config) {
        if on && access.is_closed() {
            let (but, or) = match platform {
                "telegram" => (
                    " but those who are paired",
                    ", or let one in: mayfly pair telegram",
                ),
                _ => ("", ""),
            };
            advice.push(format!(
                "{platform}: nobody may speak{but}: name people in {platform}.allowed_users by their ids, or write [\"everyone\"]{or}"
            ));
        }
        for id in access
            .closed_channels()
            .filter(|_| on && !access.is_closed())
        {
            advice.push(format!(
                "{platform}: nobody may speak in channel {id}: name people in {platform}.channels.{id}.allowed_users, or leave its empty lists out"
            ));
        }
        if on && access.allowed_channels.is_empty() && access.channels.is_empty() {
            advice.push(format!(
                "{platform}: only direct messages are served: name channels in {platform}.allowed_channels by their ids, or write [\"everyone\"]"
            ));
        }
    }
    if let Ok(address) = config.http.listen.parse::<std::net::SocketAddr>()
        && !address.ip().is_loopback()
    {
        advice.push(format!(
            "http.listen = \"{address}\" is reached from other hosts and the token travels in the \
             clear: put a TLS proxy before it, or listen on 127.0.0.1"
        ));
    }
    advice
}

/// Profiles and what is set in their environments, of names like these.
fn in_env(config: &Config, is: impl Fn(&str) -> bool) -> Vec<(&str, &str)> {
    let mut found = Vec::new();
    for (name, profile) in &config.profiles.0 {
        let set = profile
            .env
            .iter()
            .filter(|(key, value)| !value.is_empty() && is(key));
        found.extend(set.map(|(key, _)| (name.as_str(), key.as_str())));
    }
    found
}

/// Each with whether it is switched on, and who may speak there.
fn chats(config: &Config) -> [(&'static str, bool, &Access); 3] {
    let (slack, discord, telegram) = (&config.slack, &config.discord, &config.telegram);
    [
        ("slack", !slack.bot_token.is_empty(), &slack.access),
        ("discord", !discord.bot_token.is_empty(), &discord.access),
        ("telegram", !telegram.bot_token.is_empty(), &telegram.access),
    ]
}

struct Rules<'a> {
    origins: &'a Origins,
    faults: Vec<String>,
}

impl Rules<'_> {
    fn hold(&mut self, key: &str, holds: bool, fault: impl FnOnce() -> String) {
        if !holds {
            self.faults.push(sentence(key, self.origins, &fault()));
        }
    }

    fn at_least(&mut self, key: &str, value: u64, least: u64) {
        self.hold(key, value >= least, || {
            format!("{value} is too small, at least {least} is wanted")
        });
    }

    fn chats(&mut self, config: &Config) {
        let slack = config.slack.config().and_then(Result::err);
        let discord = config.discord.config().and_then(Result::err);
        let telegram = config.telegram.config().and_then(Result::err);
        for (key, fault) in [
            ("slack.bot_token", slack),
            ("discord.bot_token", discord),
            ("telegram.bot_token", telegram),
        ] {
            self.hold(key, fault.is_none(), || fault.clone().unwrap_or_default());
        }
        for (key, address) in [
            ("slack.api_url", &config.slack.api_url),
            ("slack.files_url", &config.slack.files_url),
            ("discord.api_url", &config.discord.api_url),
            ("telegram.api_url", &config.telegram.api_url),
        ] {
            self.hold(key, !address.contains('@'), || {
                "an address without user and password is wanted".to_owned()
            });
        }
        for (platform, _, access) in chats(config) {
            for profile in access.profiles() {
                let known = config.profiles.0.contains_key(profile);
                self.hold(&format!("{platform}.profile"), known, || {
                    format!("there is no profile \"{profile}\": add [profiles.{profile}]")
                });
            }
        }
    }

    /// Several processes share rows and queue, and each has only the secrets it uses.
    fn role(&mut self, config: &Config) {
        let role = config.serve.role;
        if role == Role::All {
            return;
        }
        for (key, value, what) in [
            (
                "database.url",
                &config.database.url,
                "rows: name a PostgreSQL",
            ),
            ("queue.url", &config.queue.url, "queue: name a Redis"),
            (
                "store.url",
                &config.store.url,
                "files: name a bucket or a shared folder",
            ),
        ] {
            self.hold(key, !value.is_empty(), || {
                format!(
                    "role {role} shares its {what}, or run everything in one process (role all)"
                )
            });
        }
        let (slack, discord, telegram) = (&config.slack, &config.discord, &config.telegram);
        for (key, token) in [
            ("slack.bot_token", &slack.bot_token),
            ("slack.app_token", &slack.app_token),
            ("slack.signing_secret", &slack.signing_secret),
            ("discord.bot_token", &discord.bot_token),
            ("telegram.bot_token", &telegram.bot_token),
        ] {
            self.hold(key, role.has_chats() || token.is_empty(), || {
                format!(
                    "role {role} does not speak with platforms: give this token to the bot only"
                )
            });
        }
        for (name, key) in in_env(config, |key| MODEL_KEYS.contains(&key)) {
            let key = format!("profiles.{name}.env.{key}");
            self.hold(&key, role.has_engine(), || {
                format!("role {role} runs no agents: give this key to the workers only")
            });
        }
    }

    fn profile(&mut self, name: &str, profile: &Profile) {
        let key = |rest: &str| format!("profiles.{name}.{rest}");
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let good = (1..=32).contains(&name.len()) && name.chars().all(plain);
        self.hold(&format!("profiles.{name}"), good, || {
            "a profile's name is 1 to 32 of a-z, 0-9 and -".to_owned()
        });
        let program = profile
            .command
            .first()
            .is_some_and(|first| !first.is_empty());
        self.hold(&key("command"), program, || {
            "a program is wanted, for example [\"sh\", \"-c\", \"date\"]".to_owned()
        });
        let nul = profile.command.iter().any(|part| part.contains('\0'));
        self.hold(&key("command"), !nul, || {
            "a NUL byte cannot be passed".to_owned()
        });
        if let Some(most) = profile.max_concurrent {
            self.at_least(&key("max_concurrent"), u64::from(most), 1);
        }
        for (variable, value) in &profile.env {
            let good =
                !variable.is_empty() && !variable.contains(['=', '\0']) && !value.contains('\0');
            self.hold(&key(&format!("env.{variable}")), good, || {
                "a name without = and NUL and a value without NUL are wanted".to_owned()
            });
        }
        for pattern in &profile.exclude {
            let fault = Excludes::new(std::slice::from_ref(pattern)).err();
            let told = fault.as_ref().map(ToString::to_string).unwrap_or_default();
            self.hold(&key("exclude"), fault.is_none(), || told);
        }
        let limits = &profile.limits;
        self.at_least(&key("limits.wall_clock_s"), limits.wall_clock_s, 1);
        self.at_least(&key("limits.memory_mib"), limits.memory_mib, 16);
        self.at_least(&key("limits.pids"), u64::from(limits.pids), 8);
        self.at_least(&key("limits.output_bytes"), limits.output_bytes, 1024);
        self.at_least(&key("limits.state_mib"), limits.state_mib, 1);
        self.at_least(&key("limits.state_inodes"), limits.state_inodes, 16);
        self.at_least(&key("limits.tmp_mib"), limits.tmp_mib, 1);
        self.at_least(&key("limits.file_mib"), limits.file_mib, 1);
        self.at_least(&key("limits.open_files"), limits.open_files, 16);
        self.at_least(
            &key("limits.transcript_bytes"),
            limits.transcript_bytes,
            4096,
        );
        self.hold(
            &key("limits.cpus"),
            limits.cpus.is_finite() && (0.01..=4096.0).contains(&limits.cpus),
            || format!("{} is not between 0.01 and 4096", limits.cpus),
        );
    }
}

fn sentence(key: &str, origins: &Origins, fault: &str) -> String {
    match origins.get(key) {
        Some(origin) => format!("{key} ({origin}): {fault}"),
        None => format!("{key}: {fault}"),
    }
}
