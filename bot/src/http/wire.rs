//! Bodies of requests, for both ends.

use mayfly_domain::{NewFile, SandboxRef};
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
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SendBody {
    /// What is said; not only white space, at most 1 MiB. Where files come with it, it may be empty.
    #[schema(
        min_length = 1,
        max_length = 1048576,
        pattern = r"^[^\u0000]*[^\s\u0000][^\u0000]*$"
    )]
    pub text: String,
    /// Uploaded before by `POST /v1/blobs`; at most 10, unless the configuration says otherwise.
    #[serde(default)]
    #[schema(max_items = 10)]
    pub files: Vec<NewFile>,
    /// Who says it, as the agent's history shows it; `api` where it is left out.
    #[serde(default)]
    #[schema(
        min_length = 1,
        max_length = 200,
        pattern = r"^[^\u0000-\u001f\u007f-\u009f]+$"
    )]
    pub author: Option<String>,
    #[serde(default)]
    pub sandbox: Option<SandboxRef>,
}

/// `POST …/rollback`.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RollbackBody {
    /// The tick whose state to stand on; the state before the last tick where it is left out.
    #[schema(pattern = "^-*([0-9A-Fa-f]-*){4,32}$")]
    pub to: Option<String>,
}

/// `POST …/fork`.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ForkBody {
    /// The tick whose state to stand on; the agent's present one where it is left out.
    #[schema(pattern = "^-*([0-9A-Fa-f]-*){4,32}$")]
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

/// `POST /v1/pairings`.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PairBody {
    /// For example `telegram`.
    pub platform: String,
}

/// `POST /v1/pairings/remove`.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UnpairBody {
    pub platform: String,
    /// The platform's id of the person.
    pub person: String,
}
