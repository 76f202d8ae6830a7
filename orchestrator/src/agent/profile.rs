//! Profiles: what an agent is made from.

use std::collections::BTreeMap;

use mayfly_domain::{Limits, SandboxRef};
use serde::{Deserialize, Serialize};

use crate::retention::RetentionOverride;

/// How the worker speaks with an agent program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProtocolKind {
    /// The message on standard input, the reply on standard output.
    Plain,
}

/// How a program is told what was said.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PromptForm {
    /// The message's text alone; several messages each below a line that names the author.
    #[default]
    Text,
    /// One JSON document with messages, authors and files.
    Json,
}

/// What becomes of messages that wait for an agent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Waiting {
    /// Each has a tick of its own, in their order.
    #[default]
    Each,
    /// All of one conversation that wait go into the next tick together.
    Merge,
}

/// A definition in the configuration. Limits, program and environment are read at each tick;
/// base, user, home and working directory are fixed when an agent is made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Profile {
    /// The image.
    pub sandbox: SandboxRef,
    /// How the worker speaks with the program.
    pub protocol: ProtocolKind,
    /// How the program is told what was said.
    pub prompt: PromptForm,
    /// What becomes of messages that wait.
    pub waiting: Waiting,
    /// Program and arguments.
    pub command: Vec<String>,
    /// Environment on top of the image's; no secrets.
    pub env: BTreeMap<String, String>,
    /// Ceilings of each tick.
    pub limits: Limits,
    /// Ticks of all its agents at once, on all workers together; no limit if none.
    pub max_concurrent: Option<u32>,
    /// Runtime of the engine; its default if none.
    pub runtime: Option<String>,
    /// Paths whose changes are not kept: globs from `/` or, for the home folder, from `~/`.
    pub exclude: Vec<String>,
    /// How far back its agents' states can be gone back to, where it differs from the
    /// installation's rule.
    pub retention: RetentionOverride,
}

impl Default for Profile {
    /// The `shell` profile: the message is the command. Needs no model and no key.
    fn default() -> Self {
        let script =
            r#"command -v bash >/dev/null 2>&1 && exec bash -c 'eval "$(cat)"'; eval "$(cat)""#;
        Profile {
            sandbox: "docker:mayfly/base".parse().expect("a constant reference"),
            protocol: ProtocolKind::Plain,
            prompt: PromptForm::Text,
            waiting: Waiting::Each,
            command: ["sh", "-c", script].map(str::to_owned).to_vec(),
            env: BTreeMap::new(),
            limits: Limits::default(),
            max_concurrent: None,
            runtime: None,
            exclude: Vec::new(),
            retention: RetentionOverride::default(),
        }
    }
}

/// Name of the profile that always exists.
pub const SHELL: &str = "shell";

/// All profiles by name; `shell` is added where the configuration does not define it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Profiles(pub BTreeMap<String, Profile>);

impl Default for Profiles {
    fn default() -> Self {
        Profiles(BTreeMap::from([(SHELL.to_owned(), Profile::default())]))
    }
}
