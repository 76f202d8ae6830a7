//! Where our files lie as the engine sees them. They lie elsewhere when Mayfly itself runs in a
//! container of this engine: found by looking at that container's mounts.

use std::path::{Path, PathBuf};

use bollard::{models::MountPoint, query_parameters::InspectContainerOptions};

use super::{Docker, connect::status};
use crate::sandbox::{BackendError, SandboxSpec};

/// What the engine puts into each of its containers, from that container's own folder.
const GIVEN: [&str; 3] = ["/etc/hostname", "/etc/hosts", "/etc/resolv.conf"];

/// The engine's view of our paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Paths {
    /// It sees the same.
    Same,
    /// Below each of these (ours, the engine's) it sees something else, the rest it does not see.
    Mounted(Vec<(PathBuf, PathBuf)>),
}

#[derive(Debug, thiserror::Error)]
#[error(
    "it lies inside the container that Mayfly runs in: mount the data dir and /run/mayfly as \
     folders of the host"
)]
struct Inside;

impl Docker {
    /// Asked once per process.
    pub(super) async fn paths(&self) -> Result<&Paths, BackendError> {
        self.paths
            .get_or_try_init(|| async {
                let Some(id) = own_container(&mounts()) else {
                    return Ok(Paths::Same);
                };
                let client = self.client().await?;
                match client
                    .inspect_container(&id, None::<InspectContainerOptions>)
                    .await
                {
                    Ok(seen) => {
                        let paths = Paths::of(seen.mounts.unwrap_or_default());
                        tracing::info!(?paths, "running in a container of this engine");
                        Ok(paths)
                    }
                    // A container of another engine.
                    Err(error) if status(&error) == Some(404) => Ok(Paths::Same),
                    Err(error) => Err(self.failed(error, "inspect our own container", &id).await),
                }
            })
            .await
    }
}

impl Paths {
    fn of(mounts: Vec<MountPoint>) -> Paths {
        let pairs = mounts.into_iter().filter_map(|mount| {
            let (ours, theirs) = (mount.destination?, mount.source?);
            (!theirs.is_empty()).then(|| (ours.into(), theirs.into()))
        });
        Paths::Mounted(pairs.collect())
    }

    /// One path as the engine sees it.
    pub(super) fn seen(&self, ours: &Path) -> Result<PathBuf, BackendError> {
        let Paths::Mounted(pairs) = self else {
            return Ok(ours.to_owned());
        };
        let covering = pairs
            .iter()
            .filter_map(|(at, source)| Some((at, source, ours.strip_prefix(at).ok()?)))
            .max_by_key(|(at, ..)| at.components().count());
        match covering {
            Some((_, source, rest)) if rest.as_os_str().is_empty() => Ok(source.clone()),
            Some((_, source, rest)) => Ok(source.join(rest)),
            None => Err(BackendError::Failed {
                action: "see",
                name: ours.display().to_string(),
                source: Box::new(Inside),
            }),
        }
    }

    /// A spec whose host paths are those that the engine sees.
    pub(super) fn seen_spec(&self, spec: &SandboxSpec) -> Result<SandboxSpec, BackendError> {
        let mut seen = spec.clone();
        let slots = seen.slots.iter_mut().flat_map(|slot| {
            let lowers = slot.lowers.iter_mut();
            lowers.chain([&mut slot.upper, &mut slot.work])
        });
        let others = [
            &mut seen.names.sockets,
            &mut seen.passwd,
            &mut seen.group,
            &mut seen.init,
        ];
        for path in slots.chain(others) {
            *path = self.seen(path)?;
        }
        Ok(seen)
    }
}

/// Whether this process runs in a container and sees the processes of the host, as a worker in a container
/// has to: then sandboxes are containers beside its own. In one that has an engine inside they are in it.
pub(crate) fn is_beside_sandboxes() -> bool {
    let mount_namespace = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/mnt"));
    let sees_host = match (mount_namespace("1"), mount_namespace("self")) {
        (Ok(first), Ok(own)) => first != own,
        _ => false,
    };
    sees_host && own_container(&mounts()).is_some()
}

fn mounts() -> String {
    std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default()
}

/// The id of the container this process runs in, from its table of mounts.
fn own_container(mountinfo: &str) -> Option<String> {
    mountinfo.lines().find_map(|line| {
        let mut fields = line.split(' ').skip(3);
        let (root, at) = (fields.next()?, fields.next()?);
        let id = root.split('/').rev().nth(1)?;
        let is_id = id.len() == 64 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
        (GIVEN.contains(&at) && is_id).then(|| id.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c4b5a69788796a5b4c3d2e1f0";

    #[test]
    fn ones_own_container_is_known_by_the_files_it_was_given() {
        let inside = format!(
            "700 600 0:55 / / rw - overlay overlay rw,lowerdir=/x\n\
             701 700 254:0 /var/lib/docker/containers/{ID}/resolv.conf /etc/resolv.conf rw - ext4 /dev/vda rw\n"
        );
        assert_eq!(own_container(&inside).as_deref(), Some(ID));
        let host = format!(
            "22 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n\
             90 22 0:50 / /var/lib/docker/overlay2/{ID}/merged rw - overlay overlay rw\n\
             91 22 254:0 /srv/hosts /etc/hosts rw - ext4 /dev/vda rw\n"
        );
        assert_eq!(own_container(&host), None);
        assert_eq!(own_container("nonsense\n\n1 2 3"), None);
    }

    fn mounted(pairs: &[(&str, &str)]) -> Paths {
        let mount = |(ours, theirs): &(&str, &str)| MountPoint {
            destination: Some((*ours).to_owned()),
            source: Some((*theirs).to_owned()),
            ..MountPoint::default()
        };
        Paths::of(pairs.iter().map(mount).collect())
    }

    #[test]
    fn the_longest_mount_that_covers_a_path_decides() {
        let paths = mounted(&[
            ("/data", "/srv/mayfly"),
            ("/data/l", "/fast/layers"),
            ("/run/mayfly", "/run/mayfly"),
            ("/tmpfs", ""),
        ]);
        let seen = |ours: &str| {
            paths
                .seen(Path::new(ours))
                .map(|path| path.display().to_string())
        };
        assert_eq!(seen("/data").unwrap(), "/srv/mayfly");
        assert_eq!(seen("/data/b/x").unwrap(), "/srv/mayfly/b/x");
        assert_eq!(seen("/data/l/0a/work").unwrap(), "/fast/layers/0a/work");
        assert_eq!(seen("/run/mayfly/1/2").unwrap(), "/run/mayfly/1/2");
        for not_seen in ["/database", "/", "/tmpfs/x", "/var/lib/mayfly"] {
            let error = seen(not_seen).unwrap_err();
            assert!(error.to_string().contains(not_seen), "{error}");
        }
        let same = Paths::Same.seen(Path::new("/any")).unwrap();
        assert_eq!(same, Path::new("/any"));
    }
}
