//! Finds images, fetches those a registry can give, and keeps those in use from being pruned.

use std::{collections::HashMap, time::Duration};

use bollard::{
    models::ImageInspect,
    query_parameters::{
        CreateImageOptionsBuilder, ListImagesOptionsBuilder, RemoveImageOptions,
        TagImageOptionsBuilder,
    },
};
use futures_util::TryStreamExt;
use mayfly_domain::InstallationId;

use super::{Docker, connect::status};
use crate::sandbox::{BackendError, Image, Kept};

/// A pull is given up when nothing was heard of it for so long; a large image takes its time.
const SILENCE: Duration = Duration::from_secs(60);
const REGISTRY: Duration = Duration::from_secs(15);

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

    pub(super) async fn pull(
        &self,
        client: &bollard::Docker,
        name: &str,
    ) -> Result<(), BackendError> {
        tracing::info!(image = name, "pulling");
        let options = CreateImageOptionsBuilder::new().from_image(name);
        let options = match name.rsplit_once('/').map_or(name, |(_, last)| last) {
            // A tag, or a digest.
            last if last.contains(':') => options,
            _ => options.tag("latest"),
        };
        let mut progress = client.create_image(Some(options.build()), None, None);
        let failure = loop {
            match tokio::time::timeout(SILENCE, progress.try_next()).await {
                Ok(Ok(Some(_))) => {}
                Ok(Ok(None)) => return Ok(()),
                Ok(Err(error)) => break error.to_string(),
                Err(_) => break format!("nothing was heard for {SILENCE:?}"),
            }
        };
        tracing::warn!(image = name, failure, "cannot pull");
        Err(BackendError::NoImage(name.to_owned()))
    }

    /// See `Backend::keep`.
    pub(super) async fn tag_and_tell(
        &self,
        installation: InstallationId,
        image: &str,
    ) -> Result<Kept, BackendError> {
        self.tag(installation, image).await?;
        let client = self.client().await?;
        match client.inspect_image(image).await {
            Ok(seen) => Ok(Kept {
                registry: self
                    .given_by(&client, seen.repo_digests.unwrap_or_default())
                    .await,
                bytes: seen.size.and_then(|size| size.try_into().ok()).unwrap_or(0),
            }),
            Err(error) if status(&error) == Some(404) => {
                Err(BackendError::NoImage(image.to_owned()))
            }
            Err(error) => Err(self.failed(error, "inspect image", image).await),
        }
    }

    /// The mark by which an installation keeps an image is a tag.
    pub(super) async fn tag(
        &self,
        installation: InstallationId,
        image: &str,
    ) -> Result<(), BackendError> {
        let client = self.client().await?;
        let repository = keep_repository(installation);
        let short: String = bare(image).chars().take(12).collect();
        let options = TagImageOptionsBuilder::new().repo(&repository).tag(&short);
        match client.tag_image(image, Some(options.build())).await {
            Ok(()) => Ok(()),
            Err(error) if status(&error) == Some(404) => {
                Err(BackendError::NoImage(image.to_owned()))
            }
            Err(error) => Err(self.failed(error, "tag image", image).await),
        }
    }

    /// The first of the names that a registry answers to. The engine's word is not enough: newer
    /// ones make such a name for every image, also for one that never left the host. Each name is
    /// asked for once per process; silence means no, which costs an archive.
    async fn given_by(&self, client: &bollard::Docker, names: Vec<String>) -> Option<String> {
        let mut registries = self.registries.lock().await;
        for name in names.into_iter().filter(|name| pullable(name)) {
            let given = match registries.get(&name) {
                Some(given) => *given,
                None => {
                    let asking = client.inspect_registry_image(&name, None);
                    matches!(tokio::time::timeout(REGISTRY, asking).await, Ok(Ok(_)))
                }
            };
            registries.insert(name.clone(), given);
            if given {
                return Some(name);
            }
        }
        None
    }

    pub(super) async fn untag(
        &self,
        installation: InstallationId,
        in_use: &[String],
    ) -> Result<(), BackendError> {
        let client = self.client().await?;
        let repository = keep_repository(installation);
        let filters = HashMap::from([("reference".to_owned(), vec![repository.clone()])]);
        let options = ListImagesOptionsBuilder::new().filters(&filters).build();
        let found = match client.list_images(Some(options)).await {
            Ok(found) => found,
            Err(error) => return Err(self.failed(error, "list images of", &repository).await),
        };
        let unused = found
            .into_iter()
            .filter(|image| !in_use.contains(&image.id))
            .flat_map(|image| image.repo_tags)
            .filter(|tag| {
                tag.strip_prefix(&repository)
                    .is_some_and(|rest| rest.starts_with(':'))
            });
        for tag in unused {
            match client
                .remove_image(&tag, None::<RemoveImageOptions>, None)
                .await
            {
                Ok(_) => tracing::info!(tag, "no agent uses this image any more"),
                // Gone already, or a container of somebody's runs on it.
                Err(error) if matches!(status(&error), Some(404 | 409)) => {}
                Err(error) => return Err(self.failed(error, "untag image", &tag).await),
            }
        }
        Ok(())
    }
}

fn keep_repository(installation: InstallationId) -> String {
    format!("mayfly/keep-{}", installation.short())
}

/// Ours come from `deploy/images/build`, and no registry is asked for an id.
pub(super) fn pullable(name: &str) -> bool {
    let hex = name.bytes().all(|byte| byte.is_ascii_hexdigit());
    !name.starts_with("mayfly/") && !name.starts_with("sha256:") && !hex
}

pub(super) fn bare(id: &str) -> &str {
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
