//! One read of `mayfly.toml` and the environment.
//!
//! Layers, later ones win: defaults, `DOCKER_HOST`, file, `MAYFLY__SECTION__KEY`, flags. Every fault
//! is reported, not only the first. A file is one installation's own: an unknown key in it is a
//! fault. The environment is shared with others: an unknown name in it is a warning.

mod chats;
mod database;
mod layers;
mod rules;
mod show;

use std::{fmt, path::PathBuf};

use mayfly_domain::AttachmentLimits;
use mayfly_orchestrator::{
    agent::profile::Profiles,
    depot::StoreConfig,
    queue::QueueConfig,
    retention::Retention,
    role::Role,
    worker::{WorkerConfig, host_disk::DiskConfig},
};
use serde::{Deserialize, Serialize};

pub use chats::{DiscordSection, SlackSection, TelegramSection};
pub use database::DatabaseSection;
pub use layers::Origin;
pub use show::Entry;

/// Everything that can be configured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Where everything lies.
    pub data_dir: PathBuf,
    pub database: DatabaseSection,
    pub serve: ServeSection,
    pub http: HttpSection,
    pub hooks: HooksSection,
    pub queue: QueueConfig,
    pub store: StoreConfig,
    pub worker: WorkerConfig,
    pub disk: DiskConfig,
    pub attachments: AttachmentLimits,
    pub retention: Retention,
    pub docker: DockerSection,
    pub log: LogSection,
    pub profiles: Profiles,
    pub slack: SlackSection,
    pub discord: DiscordSection,
    pub telegram: TelegramSection,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            data_dir: PathBuf::from("/var/lib/mayfly"),
            database: DatabaseSection::default(),
            serve: ServeSection::default(),
            http: HttpSection::default(),
            hooks: HooksSection::default(),
            queue: QueueConfig::default(),
            store: StoreConfig::default(),
            worker: WorkerConfig::default(),
            disk: DiskConfig::default(),
            attachments: AttachmentLimits::default(),
            retention: Retention::default(),
            docker: DockerSection::default(),
            log: LogSection::default(),
            profiles: Profiles::default(),
            slack: SlackSection::default(),
            discord: DiscordSection::default(),
            telegram: TelegramSection::default(),
        }
    }
}

impl Config {
    /// Whether a platform sends its events as requests.
    pub fn takes_requests(&self) -> bool {
        let slack = self.slack.config().and_then(Result::ok);
        let telegram = self.telegram.config().and_then(Result::ok);
        slack.is_some_and(|slack| slack.is_by_http())
            || telegram.is_some_and(|telegram| telegram.webhook_url.is_some())
    }

    /// Everything in it that must not be seen.
    pub fn secrets(&self) -> Vec<String> {
        let tree = serde_json::to_value(self).expect("a configuration is plain data");
        let secret = |(key, value): (String, serde_json::Value)| {
            let text = value.as_str().unwrap_or_default();
            let whole = show::is_secret(&key) && !text.is_empty();
            let secret = if whole {
                Some(text)
            } else {
                show::password_in(text)
            };
            secret.map(str::to_owned)
        };
        show::leaves(&tree).into_iter().filter_map(secret).collect()
    }

    /// The profiles, with what holds for all of them where a profile does not say it: the engine's
    /// runtime, and retention.
    pub fn whole_profiles(&self) -> Profiles {
        let mut profiles = self.profiles.clone();
        for profile in profiles.0.values_mut() {
            profile.runtime = profile
                .runtime
                .take()
                .or_else(|| self.docker.runtime.clone());
            profile.retention = profile.retention.over(self.retention).into();
        }
        profiles
    }
}

/// What `mayfly serve` is there for.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServeSection {
    /// `all`, `bot` or `worker`; also `--role`.
    pub role: Role,
}

/// The listener beside the unix socket.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HttpSection {
    /// `ADDRESS:PORT`, or `off`.
    pub listen: String,
}

impl Default for HttpSection {
    fn default() -> Self {
        HttpSection {
            listen: "127.0.0.1:8080".to_owned(),
        }
    }
}

/// The listener for requests of chat platforms; opened only where one sends such.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HooksSection {
    /// `ADDRESS:PORT`.
    pub listen: String,
}

impl Default for HooksSection {
    fn default() -> Self {
        HooksSection {
            listen: "127.0.0.1:8090".to_owned(),
        }
    }
}

/// The container engine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DockerSection {
    /// `unix:///path` or `tcp://host:port`; `DOCKER_HOST` where nothing else is said.
    pub host: String,
    /// Runtime of profiles that name none; the engine's default if none.
    pub runtime: Option<String>,
}

impl Default for DockerSection {
    fn default() -> Self {
        DockerSection {
            host: "unix:///var/run/docker.sock".to_owned(),
            runtime: None,
        }
    }
}

/// What `mayfly serve` writes to standard error.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LogSection {
    /// `error`, `warn`, `info`, `debug` or `trace`.
    pub level: String,
    pub format: LogFormat,
}

impl Default for LogSection {
    fn default() -> Self {
        LogSection {
            level: "info".to_owned(),
            format: LogFormat::Text,
        }
    }
}

/// One line per event, for people or for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    Text,
    Json,
}

/// Where the configuration comes from.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    /// `--config`; must exist.
    pub file: Option<PathBuf>,
    /// `--data-dir`.
    pub data_dir: Option<PathBuf>,
    /// `--role`.
    pub role: Option<Role>,
    /// Looked for in this order when there is no `file`.
    pub places: Vec<PathBuf>,
    /// The environment.
    pub environment: Vec<(String, String)>,
}

impl Sources {
    /// This process: `./mayfly.toml`, then `/etc/mayfly/mayfly.toml`, and the environment.
    #[allow(clippy::disallowed_methods)]
    pub fn of_process(
        file: Option<PathBuf>,
        data_dir: Option<PathBuf>,
        role: Option<Role>,
    ) -> Self {
        let lossy = |text: std::ffi::OsString| text.to_string_lossy().into_owned();
        Sources {
            file,
            data_dir,
            role,
            places: ["mayfly.toml", "/etc/mayfly/mayfly.toml"]
                .map(PathBuf::from)
                .to_vec(),
            environment: std::env::vars_os()
                .map(|(name, value)| (lossy(name), lossy(value)))
                .collect(),
        }
    }

    fn variable(&self, name: &str) -> Option<&str> {
        let set = self.environment.iter().find(|(key, _)| key == name);
        set.map(|(_, value)| value.as_str())
            .filter(|value| !value.is_empty())
    }
}

/// A configuration that holds, and where each value is from.
#[derive(Debug, Clone)]
pub struct Loaded {
    pub config: Config,
    /// Every key, in order.
    pub entries: Vec<Entry>,
    /// What was passed over, one sentence each.
    pub warnings: Vec<String>,
    /// Name of the person at the command line, as the system tells it.
    pub person: String,
    /// Whether `NO_COLOR` asks for plain text.
    pub no_color: bool,
}

/// What is wrong, all of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Faults {
    /// One sentence each.
    pub faults: Vec<String>,
    /// What else was passed over.
    pub warnings: Vec<String>,
    /// True if nothing is wrong but the data dir's path.
    pub only_data_dir: bool,
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let warnings = self.warnings.iter();
        let warnings = warnings.map(|warning| format!("warning: {warning}"));
        let all: Vec<String> = self.faults.iter().cloned().chain(warnings).collect();
        f.write_str(&all.join("\n"))
    }
}

/// Reads, merges and judges.
pub fn load(sources: &Sources) -> Result<Loaded, Faults> {
    let mut merged = layers::merge(sources);
    let passwords = rules::passwords(&merged.config, &merged.origins);
    merged.config.database.part();
    let mut faults = merged.faults;
    let other_faults = faults.len();
    let paths = rules::data_dir(&merged.config, &merged.origins);
    let only_data_dir = !paths.is_empty();
    faults.extend(paths.clone());
    faults.extend(passwords);
    faults.extend(rules::check(&merged.config, &merged.origins));
    if !faults.is_empty() {
        let only_data_dir = only_data_dir && other_faults == 0 && faults.len() == paths.len();
        return Err(Faults {
            faults,
            warnings: merged.warnings,
            only_data_dir,
        });
    }
    let mut warnings = merged.warnings;
    warnings.extend(rules::advise(&merged.config));
    let names = ["SUDO_USER", "USER", "LOGNAME"];
    let person = names.iter().find_map(|name| sources.variable(name));
    Ok(Loaded {
        entries: show::entries(&merged.config, &merged.origins),
        config: merged.config,
        warnings,
        person: person.unwrap_or("local").to_owned(),
        no_color: sources.variable("NO_COLOR").is_some(),
    })
}

#[cfg(test)]
mod tests;
