//! The documents of an image layout (OCI image specification 1.0) as far as we write and read them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::OciError;

pub(super) const LAYOUT: &str = r#"{"imageLayoutVersion":"1.0.0"}"#;
pub(super) const INDEX: &str = "application/vnd.oci.image.index.v1+json";
pub(super) const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub(super) const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
/// The name of the one image in a layout.
pub(super) const NAME: &str = "org.opencontainers.image.ref.name";

/// No document may be larger; other readers stop at 4 MiB.
pub(super) const DOCUMENT_MAX: u64 = 4 << 20;
/// No image may have more layers: a state with more is exported as of a merge.
pub(super) const LAYERS_MAX: usize = 10_000;

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Layout {
    pub(super) image_layout_version: String,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Index {
    pub(super) schema_version: u32,
    #[serde(default)]
    pub(super) media_type: String,
    pub(super) manifests: Vec<Descriptor>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Manifest {
    pub(super) schema_version: u32,
    #[serde(default)]
    pub(super) media_type: String,
    pub(super) config: Descriptor,
    pub(super) layers: Vec<Descriptor>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) annotations: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Descriptor {
    pub(super) media_type: String,
    pub(super) digest: String,
    pub(super) size: u64,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) annotations: BTreeMap<String, String>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Config {
    pub(super) created: String,
    pub(super) architecture: String,
    pub(super) os: String,
    pub(super) config: Inner,
    pub(super) rootfs: RootFs,
    #[serde(default)]
    pub(super) history: Vec<History>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(super) struct Inner {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) user: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) working_dir: String,
    pub(super) labels: BTreeMap<String, String>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct RootFs {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) diff_ids: Vec<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct History {
    #[serde(default)]
    pub(super) created: String,
    #[serde(default)]
    pub(super) created_by: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) comment: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) empty_layer: bool,
}

/// This machine's kind, as images name it.
pub(super) fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// A digest's 64 hexadecimal digits; anything else could be a path.
pub(super) fn bare(digest: &str) -> Result<&str, OciError> {
    let plain = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    let bare = digest.strip_prefix("sha256:").unwrap_or_default();
    match bare.len() == 64 && bare.bytes().all(plain) {
        true => Ok(bare),
        false => {
            let shown: String = digest.chars().take(80).collect();
            Err(OciError::bad("a digest", format!("{shown:?} is no sha256")))
        }
    }
}
