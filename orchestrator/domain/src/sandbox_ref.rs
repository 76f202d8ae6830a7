//! How people name the image an agent lives in.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// `docker:IMAGE[@ID]` or `nix:FLAKE#attr`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum SandboxRef {
    /// An image of the container engine, by name or by its id.
    Docker {
        /// `name[:tag]` or `sha256:…`, as the engine takes it.
        image: String,
        /// The engine's image id the name must still have.
        id: Option<String>,
    },
}

/// A text that names no sandbox.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SandboxRefError {
    /// No known scheme in front.
    #[error(
        "sandbox \"{0}\" has no known kind: write docker:IMAGE, for example docker:mayfly/base"
    )]
    Scheme(String),
    /// Not built yet.
    #[error("sandbox \"{0}\": Nix sandboxes are not supported yet, use docker:IMAGE")]
    Nix(String),
    /// An engine would misread it.
    #[error("sandbox \"{0}\": \"{1}\" is not an image name or id")]
    Image(String, String),
}

impl FromStr for SandboxRef {
    type Err = SandboxRefError;
    fn from_str(text: &str) -> Result<Self, SandboxRefError> {
        if text.starts_with("nix:") {
            return Err(SandboxRefError::Nix(text.to_owned()));
        }
        let Some(rest) = text.strip_prefix("docker:") else {
            return Err(SandboxRefError::Scheme(text.to_owned()));
        };
        let (image, id) = match rest.split_once('@') {
            Some((image, id)) => (image, Some(id)),
            None => (rest, None),
        };
        for part in [Some(image), id].into_iter().flatten() {
            let plain = |c: char| c.is_ascii_alphanumeric() || "._-/:".contains(c);
            let starts_well = part.starts_with(|c: char| c.is_ascii_alphanumeric());
            if !starts_well || part.len() > 255 || !part.chars().all(plain) {
                return Err(SandboxRefError::Image(text.to_owned(), part.to_owned()));
            }
        }
        Ok(SandboxRef::Docker {
            image: image.to_owned(),
            id: id.map(str::to_owned),
        })
    }
}

impl fmt::Display for SandboxRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SandboxRef::Docker { image, id: None } => write!(f, "docker:{image}"),
            SandboxRef::Docker {
                image,
                id: Some(id),
            } => write!(f, "docker:{image}@{id}"),
        }
    }
}

impl TryFrom<String> for SandboxRef {
    type Error = SandboxRefError;
    fn try_from(text: String) -> Result<Self, SandboxRefError> {
        text.parse()
    }
}

impl From<SandboxRef> for String {
    fn from(reference: SandboxRef) -> String {
        reference.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_round_trip() {
        for text in [
            "docker:mayfly/base",
            "docker:a:5000/b:1",
            "docker:b@sha256:00ff",
            "docker:sha256:00ff",
        ] {
            assert_eq!(text.parse::<SandboxRef>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn bad_references_are_refused_by_name() {
        for text in [
            "",
            "busybox",
            "docker:",
            "docker:-x",
            "docker:a b",
            "docker:a@",
            "nix:.#x",
            "docker:../x",
        ] {
            assert!(text.parse::<SandboxRef>().is_err(), "{text}");
        }
    }
}
