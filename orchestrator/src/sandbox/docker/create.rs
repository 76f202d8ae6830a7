//! The request that creates a sandbox: a pure function of its spec.

use std::{collections::HashMap, fmt::Write, path::Path};

use bollard::models::{
    ContainerCreateBody, HealthConfig, HostConfig, HostConfigLogConfig, Mount, MountBindOptions,
    MountBindOptionsPropagationEnum, MountType, MountVolumeOptions, MountVolumeOptionsDriverConfig,
    ResourcesUlimits, RestartPolicy, RestartPolicyNameEnum,
};
use mayfly_init::arguments::{Arguments, PROGRAM, SOCKETS};

use super::{INSTALLATION_LABEL, TICK_LABEL, WORKER_LABEL, seccomp};
use crate::{
    clock::STALE,
    sandbox::{BackendError, Image, Owner, SandboxSpec, SlotMount},
};

/// Mount options travel in one page.
const MOST_OPTIONS: usize = 4095;
/// Init ends a sandbox whose worker does not take its connection.
const CONNECT: std::time::Duration = std::time::Duration::from_secs(10);

pub(super) fn body(spec: &SandboxSpec) -> Result<ContainerCreateBody, BackendError> {
    let labels = labels(spec);
    let mut mounts = vec![
        bind(&spec.names.sockets, SOCKETS),
        bind(&spec.init, parent(PROGRAM)),
        bind(&spec.passwd, "/etc/passwd"),
        bind(&spec.group, "/etc/group"),
    ];
    for (slot, volume) in spec.slots.iter().zip(&spec.names.volumes) {
        mounts.push(slot_mount(slot, volume, &labels)?);
    }
    let arguments = Arguments {
        uid: spec.uid,
        gid: spec.gid,
        ceiling: spec.ceiling,
        heartbeat: STALE,
        connect: CONNECT,
        slots: spec
            .slots
            .iter()
            .map(|slot| (slot.path.clone(), slot.upper.display().to_string()))
            .collect(),
    };
    Ok(ContainerCreateBody {
        image: Some(spec.image.id.clone()),
        entrypoint: Some(vec![PROGRAM.to_owned()]),
        cmd: Some(arguments.to_argv()),
        user: Some("0:0".to_owned()),
        working_dir: Some("/".to_owned()),
        // A name without a value takes the image's variable away from init.
        env: Some(
            spec.image
                .env
                .iter()
                .map(|(name, _)| name.clone())
                .collect(),
        ),
        healthcheck: Some(HealthConfig {
            test: Some(vec!["NONE".to_owned()]),
            ..HealthConfig::default()
        }),
        attach_stdin: Some(false),
        attach_stdout: Some(false),
        attach_stderr: Some(false),
        labels: Some(labels),
        host_config: Some(host(spec, mounts)?),
        ..ContainerCreateBody::default()
    })
}

fn host(spec: &SandboxSpec, mounts: Vec<Mount>) -> Result<HostConfig, BackendError> {
    let limits = &spec.limits;
    let memory = mebibytes(limits.memory_mib);
    let file = mebibytes(limits.file_mib);
    Ok(HostConfig {
        mounts: Some(mounts),
        tmpfs: Some(tmpfs(spec)?),
        network_mode: Some("none".to_owned()),
        ipc_mode: Some("private".to_owned()),
        readonly_rootfs: Some(true),
        privileged: Some(false),
        cap_drop: Some(vec!["ALL".to_owned()]),
        cap_add: Some(["SETUID", "SETGID", "KILL"].map(str::to_owned).to_vec()),
        security_opt: Some(vec![
            "no-new-privileges".to_owned(),
            format!("seccomp={}", seccomp::profile()),
        ]),
        pids_limit: Some(limits.pids.into()),
        memory: Some(memory),
        memory_swap: Some(memory),
        nano_cpus: Some((limits.cpus * 1e9) as i64),
        ulimits: Some(vec![
            ulimit("nofile", limits.open_files as i64),
            ulimit("core", 0),
            ulimit("fsize", file),
        ]),
        log_config: Some(HostConfigLogConfig {
            typ: Some("none".to_owned()),
            config: None,
        }),
        restart_policy: Some(RestartPolicy {
            name: Some(RestartPolicyNameEnum::NO),
            maximum_retry_count: None,
        }),
        auto_remove: Some(false),
        init: Some(false),
        runtime: spec.runtime.clone(),
        ..HostConfig::default()
    })
}

fn labels(spec: &SandboxSpec) -> HashMap<String, String> {
    let mut labels = owner_labels(&spec.owner);
    labels.insert(TICK_LABEL.to_owned(), spec.tick.to_string());
    labels
}

pub(super) fn owner_labels(owner: &Owner) -> HashMap<String, String> {
    HashMap::from([
        (
            INSTALLATION_LABEL.to_owned(),
            owner.installation.to_string(),
        ),
        (WORKER_LABEL.to_owned(), owner.worker.clone()),
    ])
}

fn mebibytes(count: u64) -> i64 {
    i64::try_from(count.saturating_mul(1 << 20)).unwrap_or(i64::MAX)
}

fn ulimit(name: &str, value: i64) -> ResourcesUlimits {
    ResourcesUlimits {
        name: Some(name.to_owned()),
        soft: Some(value),
        hard: Some(value),
    }
}

fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("/", |(parent, _)| parent)
}

fn bind(source: &Path, target: &str) -> Mount {
    Mount {
        typ: Some(MountType::BIND),
        source: Some(source.display().to_string()),
        target: Some(target.to_owned()),
        read_only: Some(true),
        bind_options: Some(MountBindOptions {
            propagation: Some(MountBindOptionsPropagationEnum::RPRIVATE),
            ..MountBindOptions::default()
        }),
        ..Mount::default()
    }
}

fn slot_mount(
    slot: &SlotMount,
    volume: &str,
    labels: &HashMap<String, String>,
) -> Result<Mount, BackendError> {
    let options = HashMap::from([
        ("type".to_owned(), "overlay".to_owned()),
        ("device".to_owned(), "overlay".to_owned()),
        ("o".to_owned(), overlay_options(slot, volume)?),
    ]);
    Ok(volume_mount(volume, &slot.path, labels, options, true))
}

/// A volume declared inside the container's own mount: one made before could be pruned in between,
/// and the container would start on a plain folder.
pub(super) fn volume_mount(
    volume: &str,
    target: &str,
    labels: &HashMap<String, String>,
    options: HashMap<String, String>,
    no_copy: bool,
) -> Mount {
    Mount {
        typ: Some(MountType::VOLUME),
        source: Some(volume.to_owned()),
        target: Some(target.to_owned()),
        volume_options: Some(MountVolumeOptions {
            no_copy: Some(no_copy),
            labels: Some(labels.clone()),
            driver_config: Some(MountVolumeOptionsDriverConfig {
                name: Some("local".to_owned()),
                options: Some(options),
            }),
            ..MountVolumeOptions::default()
        }),
        ..Mount::default()
    }
}

fn overlay_options(slot: &SlotMount, volume: &str) -> Result<String, BackendError> {
    let refuse = |reason: String| BackendError::Failed {
        action: "write the mount options of volume",
        name: volume.to_owned(),
        source: reason.into(),
    };
    let mut options = String::from("lowerdir=");
    for (place, lower) in slot.lowers.iter().enumerate() {
        let colon = if place == 0 { "" } else { ":" };
        let _ = write!(options, "{colon}{}", lower.display());
    }
    let (upper, work) = (slot.upper.display(), slot.work.display());
    let _ = write!(options, ",upperdir={upper},workdir={work}");
    options.push_str(",redirect_dir=on,metacopy=off,index=off,xino=off,volatile,nosuid,nodev");
    let paths = slot.lowers.iter().chain([&slot.upper, &slot.work]);
    for path in paths {
        if path
            .to_str()
            .is_none_or(|text| text.contains([':', ',', '\\', '"']))
        {
            return Err(refuse(format!(
                "{} has a character that mount options take apart",
                path.display()
            )));
        }
    }
    if options.len() > MOST_OPTIONS {
        let (size, count) = (options.len(), slot.lowers.len());
        return Err(refuse(format!(
            "{size} bytes for {count} layers, a page has {MOST_OPTIONS}"
        )));
    }
    Ok(options)
}

/// `/tmp`, and a cover over each `VOLUME` of the image below it.
fn tmpfs(spec: &SandboxSpec) -> Result<HashMap<String, String>, BackendError> {
    // No `mode=`: where the image has the folder, runc 1.1 takes that one's mode instead.
    let options = format!(
        "rw,exec,nosuid,nodev,size={}m,uid={},gid={}",
        spec.limits.tmp_mib, spec.uid, spec.gid
    );
    let slots: Vec<&str> = spec.slots.iter().map(|slot| slot.path.as_str()).collect();
    let paths = covers(&spec.image, &slots)?.into_iter();
    Ok(paths
        .chain(["/tmp".to_owned()])
        .map(|path| (path, options.clone()))
        .collect())
}

/// What has to lie over the image's `VOLUME`s. As the engine makes them they are writable host
/// folders without a limit, gone after the tick: a slot takes the place of one, below `/tmp` a tmpfs
/// does, where nobody expects more; any other would lose what agents write and is refused.
pub(super) fn covers(image: &Image, slots: &[&str]) -> Result<Vec<String>, BackendError> {
    let mut covers = Vec::new();
    for declared in &image.volumes {
        let path = normal(declared);
        if path == "/tmp" || slots.iter().any(|slot| normal(slot) == path) {
            continue;
        }
        if below(&path, "/tmp") {
            covers.push(path);
            continue;
        }
        let inside = slots.iter().find(|slot| below(&path, &normal(slot)));
        let reason = match inside {
            Some(slot) => format!(
                "it declares VOLUME {declared}, which would hide that part of the agent's folder \
                 {slot} and lose what is written there after each tick; build it without"
            ),
            None => format!(
                "it declares VOLUME {declared}, where what is written is lost after each tick; \
                 build it without, and let its programs write below {}",
                slots.join(" or ")
            ),
        };
        return Err(BackendError::BadImage {
            image: image.name.clone(),
            reason,
        });
    }
    Ok(covers)
}

fn normal(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            name => parts.push(name),
        }
    }
    format!("/{}", parts.join("/"))
}

fn below(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder)
        .is_some_and(|rest| rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use mayfly_domain::{InstallationId, Limits, TickId};

    use super::*;
    use crate::sandbox::Names;

    fn spec(volumes: &[&str]) -> SandboxSpec {
        SandboxSpec {
            owner: Owner {
                installation: InstallationId::new(),
                worker: "w".to_owned(),
            },
            tick: TickId::new(),
            names: Names {
                container: "c".into(),
                volumes: vec!["v".into()],
                sockets: "/run/mayfly/x/y".into(),
            },
            image: Image {
                id: "sha256:0".into(),
                name: "some/image".into(),
                user: String::new(),
                volumes: volumes.iter().map(|text| (*text).to_owned()).collect(),
                env: vec![("LD_PRELOAD".into(), "/x".into())],
            },
            uid: 1000,
            gid: 1000,
            slots: vec![SlotMount {
                name: "work".into(),
                path: "/work".into(),
                lowers: vec!["/d/l/2".into(), "/d/l/1".into()],
                upper: "/d/u".into(),
                work: "/d/w".into(),
            }],
            passwd: "/d/passwd".into(),
            group: "/d/group".into(),
            init: "/d/init".into(),
            runtime: None,
            limits: Limits::default(),
            ceiling: Duration::from_secs(615),
        }
    }

    #[test]
    fn the_topmost_layer_is_first() {
        let options = overlay_options(&spec(&[]).slots[0], "v").unwrap();
        assert!(
            options.starts_with("lowerdir=/d/l/2:/d/l/1,upperdir=/d/u,workdir=/d/w,"),
            "{options}"
        );
    }

    #[test]
    fn a_path_cannot_add_an_option() {
        for bad in ["/d/a,suid", "/d/a:b", "/d/a\\b"] {
            let mut slot = spec(&[]).slots.remove(0);
            slot.lowers.push(bad.into());
            assert!(overlay_options(&slot, "v").is_err(), "{bad}");
        }
        let mut slot = spec(&[]).slots.remove(0);
        slot.lowers = vec!["/d/l/0123456789ab/work".into(); 200];
        assert!(overlay_options(&slot, "v").is_err());
    }

    #[test]
    fn sn_11_declared_volumes_lose_nothing() {
        let covers = |volumes: &[&str]| {
            let mut paths: Vec<String> = tmpfs(&spec(volumes))?.into_keys().collect();
            paths.sort();
            Ok::<_, BackendError>(paths)
        };
        assert_eq!(covers(&["/work/", "/tmp"]).unwrap(), ["/tmp"]);
        assert_eq!(covers(&["/tmp/a/../b"]).unwrap(), ["/tmp", "/tmp/b"]);
        for bad in [
            "/data",
            "/workshop",
            "/var/lib/pg",
            "/work/deep",
            "/work/../work/x",
            "/tmp/../x",
            "/",
            "/etc/ssl",
            "/mayfly/run",
        ] {
            let error = covers(&[bad]).unwrap_err().to_string();
            assert!(
                error.contains("some/image") && error.contains(bad),
                "{error}"
            );
        }
    }

    #[test]
    fn the_image_hands_init_no_environment() {
        assert_eq!(body(&spec(&[])).unwrap().env.unwrap(), ["LD_PRELOAD"]);
    }
}
