//! Bodies of requests, for both ends.

use mayfly_domain::SandboxRef;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// `POST /v1/agents`.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CreateBody {
    pub profile: Option<String>,
    pub sandbox: Option<SandboxRef>,
}

/// `POST …/messages`.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SendBody {
    pub text: String,
    #[serde(default)]
    pub author: Option<String>,
    #[serde(default)]
    pub sandbox: Option<SandboxRef>,
}

/// `POST …/rollback`.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RollbackBody {
    pub to: Option<String>,
}

/// `POST …/fork`.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ForkBody {
    pub at: Option<String>,
}

/// `POST …/stop`.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct StopBody {
    pub all: bool,
}

/// `POST /v1/gc`.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct GcBody {
    pub dry_run: bool,
    pub trust_clock: bool,
}

/// For writes that say nothing more.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EmptyBody {}
