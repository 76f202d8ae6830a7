//! Copies the slots' folders out of an image: the engine itself copies them, with links, owners
//! and modes, into empty volumes of a container that is created and never started.

use std::{
    collections::HashMap,
    fmt::Write as _,
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, chown},
    path::Path,
};

use bollard::{
    Docker as Client,
    models::{ContainerCreateBody, HostConfig, Mount},
    query_parameters::{
        ContainerArchiveInfoOptions, CreateContainerOptionsBuilder,
        DownloadFromContainerOptionsBuilder,
    },
};
use futures_util::TryStreamExt;

use super::{
    Docker, archive,
    connect::status,
    create::{self, owner_labels, volume_mount},
    failed_io, passwd,
    sanitise::sanitise,
};
use crate::sandbox::{BackendError, BaseFacts, Image, Names, Owner};

/// Largest passwd or group that is taken.
const MOST_BYTES: usize = 1 << 20;
/// Modes are told as Go writes them: `fs.ModeSymlink`.
const GO_SYMLINK: u32 = 1 << 27;
const HOME: &str = "/home/agent";

impl Docker {
    pub(super) async fn copy_base(
        &self,
        owner: &Owner,
        image: &Image,
        slots: &[(String, String)],
        into: &Path,
    ) -> Result<BaseFacts, BackendError> {
        let paths: Vec<&str> = slots.iter().map(|(_, path)| path.as_str()).collect();
        create::covers(image, &paths)?;
        self.tag(owner.installation, &image.id).await?;
        let attempt = uuid::Uuid::new_v4().simple().to_string();
        let prefix = Names::prefix(owner.installation);
        let container = format!("{prefix}base-{}", &attempt[..12]);
        let names = Names {
            volumes: slots
                .iter()
                .map(|(name, _)| format!("{container}-{name}"))
                .collect(),
            container,
            sockets: into.join("no-sockets"),
        };
        let read = self.copy_folders(owner, image, slots, into, &names).await;
        let gone = self
            .tear_down(&names, std::time::Duration::from_secs(30))
            .await;
        let (passwd, group) = read?;
        gone?;

        let bad = |reason| BackendError::BadImage {
            image: image.name.clone(),
            reason,
        };
        let who = passwd::identity(&image.user, &passwd, &group).map_err(bad)?;
        let home = slots.iter().find(|(name, _)| name == "home");
        let home = home.map_or(HOME, |(_, path)| path);
        let (passwd, group) = passwd::with_agent(&passwd, &group, (who.uid, who.gid), home);
        let mut notes = who.notes;
        let ids = (who.uid, who.gid);
        // Walking a large base blocks; the runtime has other ticks to serve.
        let (slots, at) = (slots.to_vec(), into.to_owned());
        let work = self
            .supervisor
            .task("base clean-up", async move {
                tokio::task::spawn_blocking(move || {
                    finish(&at, &slots, ids, &passwd, &group, &mut notes).map(|()| notes)
                })
                .await
            })
            .await;
        let failed = |error: std::io::Error| failed_io(error, "clean the base in", into);
        let notes = match work {
            Ok(Ok(done)) => done.map_err(failed)?,
            Ok(Err(panic)) | Err(panic) => return Err(failed(std::io::Error::other(panic))),
        };
        Ok(BaseFacts {
            uid: ids.0,
            gid: ids.1,
            notes,
        })
    }

    async fn copy_folders(
        &self,
        owner: &Owner,
        image: &Image,
        slots: &[(String, String)],
        into: &Path,
        names: &Names,
    ) -> Result<(String, String), BackendError> {
        let labels = owner_labels(owner);
        let paths = self.paths().await?;
        let mut mounts: Vec<Mount> = Vec::new();
        for ((slot, path), volume) in slots.iter().zip(&names.volumes) {
            let folder = into.join(slot);
            fs::create_dir(&folder).map_err(|error| failed_io(error, "make", &folder))?;
            let options = HashMap::from([
                ("type".to_owned(), "none".to_owned()),
                ("o".to_owned(), "bind".to_owned()),
                (
                    "device".to_owned(),
                    paths.seen(&folder)?.display().to_string(),
                ),
            ]);
            mounts.push(volume_mount(volume, path, &labels, options, false));
        }
        let body = ContainerCreateBody {
            image: Some(image.id.clone()),
            entrypoint: Some(vec!["/never-started".to_owned()]),
            labels: Some(labels),
            host_config: Some(HostConfig {
                mounts: Some(mounts),
                network_mode: Some("none".to_owned()),
                ..HostConfig::default()
            }),
            ..ContainerCreateBody::default()
        };
        // It copies the slots before it answers.
        let client = self.client().await?.with_timeout(archive::ANSWER);
        let options = CreateContainerOptionsBuilder::new().name(&names.container);
        if let Err(error) = client.create_container(Some(options.build()), body).await {
            return Err(match status(&error) {
                Some(404) => BackendError::NoImage(image.name.clone()),
                _ => {
                    self.failed(error, "create container", &names.container)
                        .await
                }
            });
        }
        for (_, path) in slots {
            self.refuse_link(&client, image, &names.container, path)
                .await?;
        }
        Ok((
            self.read(&client, &names.container, "/etc/passwd").await?,
            self.read(&client, &names.container, "/etc/group").await?,
        ))
    }

    /// A slot over a link would be mounted where the link points, and the program would not find it
    /// there.
    async fn refuse_link(
        &self,
        client: &Client,
        image: &Image,
        container: &str,
        path: &str,
    ) -> Result<(), BackendError> {
        // A parent may be the link.
        let mut at = String::new();
        for part in path.split('/').filter(|part| !part.is_empty()) {
            let _ = write!(at, "/{part}");
            let options = ContainerArchiveInfoOptions { path: at.clone() };
            let seen = client.get_container_archive_info(container, Some(options));
            match seen.await {
                Ok(seen) if seen.file_mode & GO_SYMLINK != 0 => {
                    return Err(BackendError::BadImage {
                        image: image.name.clone(),
                        reason: format!(
                            "its {at} is a link to {}, where the agent's folder {path} has to be; \
                             make it a folder",
                            seen.link_target
                        ),
                    });
                }
                Ok(_) => {}
                Err(error) if status(&error) == Some(404) => return Ok(()),
                Err(error) => return Err(self.failed(error, "look into", container).await),
            }
        }
        Ok(())
    }

    /// A small file of a container that is not started; empty where there is none.
    async fn read(
        &self,
        client: &Client,
        container: &str,
        path: &str,
    ) -> Result<String, BackendError> {
        let options = DownloadFromContainerOptionsBuilder::new()
            .path(path)
            .build();
        let mut archive = Vec::new();
        let mut parts = std::pin::pin!(client.download_from_container(container, Some(options)));
        loop {
            match parts.try_next().await {
                Ok(Some(part)) if archive.len() + part.len() <= MOST_BYTES + 4096 => {
                    archive.extend_from_slice(&part);
                }
                Ok(Some(_)) => {
                    return Err(BackendError::BadImage {
                        image: container.to_owned(),
                        reason: format!("its {path} is larger than {MOST_BYTES} bytes"),
                    });
                }
                Ok(None) => break,
                Err(error) if status(&error) == Some(404) => break,
                Err(error) => return Err(self.failed(error, "read a file of", container).await),
            }
        }
        let file = first_file(&archive).unwrap_or_default();
        Ok(String::from_utf8_lossy(file).into_owned())
    }
}

/// The content of a tar archive's first regular file.
fn first_file(mut archive: &[u8]) -> Option<&[u8]> {
    loop {
        let (header, rest) = archive.split_at_checked(512)?;
        let digits = std::str::from_utf8(&header[124..136]).ok()?;
        let digits = digits.trim_matches(|c: char| c == '\0' || c == ' ');
        let size = usize::from_str_radix(digits, 8).ok()?;
        match header[156] {
            b'0' | 0 => return rest.get(..size),
            // Extended attributes of the entry that follows.
            b'x' | b'g' => archive = rest.get(size.div_ceil(512) * 512..)?,
            _ => return None,
        }
    }
}

fn finish(
    into: &Path,
    slots: &[(String, String)],
    (uid, gid): (u32, u32),
    passwd: &str,
    group: &str,
    notes: &mut Vec<String>,
) -> std::io::Result<()> {
    for (slot, _) in slots {
        let folder = into.join(slot);
        sanitise(&folder, notes)?;
        if fs::symlink_metadata(&folder)?.uid() != uid {
            chown(&folder, Some(uid), Some(gid))?;
            fs::set_permissions(&folder, fs::Permissions::from_mode(0o755))?;
        }
    }
    for (name, content) in [("passwd", passwd), ("group", group)] {
        let path = into.join(name);
        fs::write(&path, content)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(size: usize, kind: u8) -> Vec<u8> {
        let mut header = vec![0; 512];
        header[124..136].copy_from_slice(format!("{size:011o}\0").as_bytes());
        header[156] = kind;
        header
    }

    #[test]
    fn the_first_regular_file_is_found_behind_its_attributes() {
        let mut archive = header(3, b'x');
        archive.extend([1; 512]);
        archive.extend(header(2, b'0'));
        archive.extend(b"hi");
        archive.resize(archive.len() + 510, 0);
        assert_eq!(first_file(&archive), Some(b"hi".as_slice()));
        assert_eq!(first_file(&archive[..1024 + 511]), None);
        assert_eq!(first_file(&header(0, b'2')), None);
        assert_eq!(first_file(&[]), None);
    }
}
