//! Bodies of requests, for both ends.

use mayfly_domain::{NewFile, SandboxRef};
use serde::{Deserialize, Serialize};

/// `POST /v1/agents`.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CreateBody {
    pub profile: Option<String>,
    pub sandbox: Option<SandboxRef>,
}

/// `POST …/messages`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SendBody {
    /// May be empty where files come with it.
    pub text: String,
    /// Uploaded before by `POST /v1/blobs`.
    #[serde(default)]
    pub files: Vec<NewFile>,
    #[serde(default)]
    pub author: Option<String>,
    #[serde(default)]
    pub sandbox: Option<SandboxRef>,
}

/// `POST …/rollback`.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RollbackBody {
    pub to: Option<String>,
}

/// `POST …/fork`.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ForkBody {
    pub at: Option<String>,
}

/// `POST …/stop`.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StopBody {
    pub all: bool,
}

/// `POST /v1/gc`.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GcBody {
    pub dry_run: bool,
    pub trust_clock: bool,
}

/// For writes that say nothing more.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EmptyBody {}
