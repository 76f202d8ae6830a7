//! Finds images, fetches those a registry can give, and keeps those in use from being pruned.

use std::time::Duration;

use bollard::{
    errors::Error,
    models::ImageInspect,
    query_parameters::{CreateImageOptionsBuilder, TagImageOptionsBuilder},
};
use futures_util::TryStreamExt;
use mayfly_domain::InstallationId;

use super::{Docker, connect::status};
use crate::sandbox::{BackendError, Image};

const PULL: Duration = Duration::from_secs(60);

impl Docker {
    pub(super) async fn find_image(
        &self,
        name: &str,
        wanted: Option<&str>,
    ) -> Result<Image, BackendError> {
        let client = self.client().await?;
        let seen = match client.inspect_image(name).await {
            Err(error) if status(&error) == Some(404) && pullable(name) => {
                self.pull(&client, name).await?;
                client.inspect_image(name).await
            }
            other => other,
        };
        let seen = match seen {
            Ok(seen) => seen,
            Err(error) if status(&error) == Some(404) => {
                return Err(BackendError::NoImage(name.to_owned()));
            }
            Err(error) => return Err(self.failed(error, "inspect image", name).await),
        };
        let image = understood(name, seen)?;
        match wanted {
            Some(wanted) if bare(wanted) != bare(&image.id) => Err(BackendError::OtherImage {
                name: name.to_owned(),
                wanted: wanted.to_owned(),
                found: image.id,
            }),
            _ => Ok(image),
        }
    }

    async fn pull(&self, client: &bollard::Docker, name: &str) -> Result<(), BackendError> {
        tracing::info!(image = name, "pulling");
        let options = CreateImageOptionsBuilder::new().from_image(name);
        let options = match name.rsplit_once('/').map_or(name, |(_, last)| last) {
            last if last.contains(':') => options,
            _ => options.tag("latest"),
        };
        let pulling = client
            .create_image(Some(options.build()), None, None)
            .try_for_each(|_| async { Ok::<(), Error>(()) });
        let failure = match tokio::time::timeout(PULL, pulling).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("not done within {PULL:?}"),
        };
        tracing::warn!(image = name, failure, "cannot pull");
        Err(BackendError::NoImage(name.to_owned()))
    }

    /// Tags an image so that a prune keeps it: idle agents have no container, so the engine takes
    /// their image for unused.
    pub(super) async fn keep(
        &self,
        installation: InstallationId,
        image: &Image,
    ) -> Result<(), BackendError> {
        let client = self.client().await?;
        let repository = format!("mayfly/keep-{}", installation.short());
        let short: String = bare(&image.id).chars().take(12).collect();
        let options = TagImageOptionsBuilder::new().repo(&repository).tag(&short);
        match client.tag_image(&image.id, Some(options.build())).await {
            Ok(()) => Ok(()),
            Err(error) if status(&error) == Some(404) => {
                Err(BackendError::NoImage(image.name.clone()))
            }
            Err(error) => Err(self.failed(error, "tag image", &image.name).await),
        }
    }
}

/// Ours come from `deploy/images/build`, and no registry is asked for an id.
fn pullable(name: &str) -> bool {
    let hex = name.bytes().all(|byte| byte.is_ascii_hexdigit());
    !name.starts_with("mayfly/") && !name.starts_with("sha256:") && !hex
}

fn bare(id: &str) -> &str {
    id.strip_prefix("sha256:").unwrap_or(id)
}

fn understood(name: &str, seen: ImageInspect) -> Result<Image, BackendError> {
    let bad = |reason: String| BackendError::BadImage {
        image: name.to_owned(),
        reason,
    };
    let id = seen
        .id
        .ok_or_else(|| bad("the engine tells no id".to_owned()))?;
    let native = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    for (found, wanted) in [(seen.os, "linux"), (seen.architecture, native)] {
        if let Some(found) = found.filter(|found| !found.is_empty() && found != wanted) {
            return Err(bad(format!(
                "it is built for {found}, this host is {wanted}"
            )));
        }
    }
    let config = seen.config.unwrap_or_default();
    let env = config.env.unwrap_or_default().into_iter();
    Ok(Image {
        id,
        name: name.to_owned(),
        user: config.user.unwrap_or_default(),
        volumes: config.volumes.unwrap_or_default(),
        env: env
            .map(|pair| match pair.split_once('=') {
                Some((name, value)) => (name.to_owned(), value.to_owned()),
                None => (pair, String::new()),
            })
            .collect(),
    })
}
