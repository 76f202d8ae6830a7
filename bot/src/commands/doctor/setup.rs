//! How the engine is set up: what of it a sandbox stands on.

use bollard::models::SystemInfo;

use super::{Check, State};

pub(super) fn checks(info: &SystemInfo) -> Vec<Check> {
    vec![storage(info), cgroup(info), users(info), seccomp(info)]
}

/// Images are shared by all sandboxes only where the engine stacks them.
fn storage(info: &SystemInfo) -> Check {
    let driver = info.driver.as_deref().unwrap_or("unknown");
    let below = info.driver_status.iter().flatten();
    let below = below
        .filter(|pair| pair.first().is_some_and(|key| key == "Backing Filesystem"))
        .find_map(|pair| pair.get(1));
    let found = match below {
        Some(below) => format!("{driver} on {below}"),
        None => driver.to_owned(),
    };
    let warn = |why: &str| {
        Check::not(
            State::Warn,
            "storage driver",
            format!("{found}: {why}"),
            "set \"storage-driver\": \"overlay2\" in /etc/docker/daemon.json; images are loaded anew",
        )
    };
    match driver {
        // The second is containerd's, the default of new engines.
        "overlay2" | "overlayfs" | "btrfs" | "zfs" => Check::ok("storage driver", found),
        "vfs" => warn("each sandbox copies its whole image"),
        "fuse-overlayfs" => warn("each file goes through a program"),
        _ => warn("it was not tried"),
    }
}

/// Without these a profile's limits are words.
fn cgroup(info: &SystemInfo) -> Check {
    let version = info.cgroup_version.as_ref();
    let version = version.map_or_else(String::new, ToString::to_string);
    let limits = [
        ("memory", info.memory_limit),
        ("swap", info.swap_limit),
        ("processes", info.pids_limit),
        ("cpu", info.cpu_cfs_quota),
    ];
    let missing: Vec<&str> = limits
        .iter()
        .filter(|(_, has)| *has != Some(true))
        .map(|(name, _)| *name)
        .collect();
    let version = match version.as_str() {
        "" => "cgroup of unknown version",
        "1" => "cgroup version 1",
        _ => "cgroup version 2",
    };
    match missing.as_slice() {
        [] => Check::ok(
            "cgroup",
            format!("{version}, limits memory, swap, processes and cpu"),
        ),
        // Memory without swap is a limit that an agent can pass slowly.
        ["swap"] => Check::not(
            State::Warn,
            "cgroup",
            format!("{version}, does not limit swap: agents can take more memory than their limit"),
            "boot with swapaccount=1 on the kernel's command line, or turn swap off",
        ),
        missing => Check::not(
            State::Fail,
            "cgroup",
            format!("{version}, does not limit {}", missing.join(", ")),
            "boot with cgroup_enable=memory swapaccount=1 on the kernel's command line, best with \
             systemd.unified_cgroup_hierarchy=1",
        ),
    }
}

/// Layers keep owners as the host counts them.
fn users(info: &SystemInfo) -> Check {
    let refused = |found: &str, mend: &str| Check::not(State::Fail, "engine's users", found, mend);
    match () {
        () if has(info, "rootless") => refused(
            "the engine is rootless: its root is not the host's, so it can neither mount layers nor \
             keep their owners",
            "use the system's engine: docker.host = \"unix:///var/run/docker.sock\"",
        ),
        () if has(info, "userns") => refused(
            "the engine shifts user ids (userns-remap), so layers would belong to nobody",
            "take \"userns-remap\" out of /etc/docker/daemon.json and restart the engine",
        ),
        () => Check::ok("engine's users", "as the host counts them"),
    }
}

fn seccomp(info: &SystemInfo) -> Check {
    match has(info, "seccomp") {
        true => Check::ok("seccomp", "system calls are filtered"),
        false => Check::not(
            State::Fail,
            "seccomp",
            "the engine cannot filter system calls",
            "use a kernel and an engine with seccomp: sandboxes are not safe without",
        ),
    }
}

/// Options read `name=seccomp,profile=default`, on old engines `seccomp`.
fn has(info: &SystemInfo, wanted: &str) -> bool {
    let options = info.security_options.iter().flatten();
    options
        .filter_map(|option| option.split(',').next())
        .any(|name| name.trim_start_matches("name=") == wanted)
}

#[cfg(test)]
mod tests {
    use bollard::models::SystemInfoCgroupVersionEnum as Version;

    use super::*;

    fn good() -> SystemInfo {
        SystemInfo {
            driver: Some("overlay2".into()),
            driver_status: Some(vec![vec!["Backing Filesystem".into(), "extfs".into()]]),
            cgroup_version: Some(Version::_2),
            memory_limit: Some(true),
            swap_limit: Some(true),
            pids_limit: Some(true),
            cpu_cfs_quota: Some(true),
            security_options: Some(vec!["name=seccomp,profile=default".into()]),
            ..SystemInfo::default()
        }
    }

    fn with_option(option: &str) -> SystemInfo {
        let mut info = good();
        info.security_options
            .get_or_insert_default()
            .push(option.into());
        info
    }

    #[test]
    fn a_usual_engine_passes() {
        let checks = checks(&good());
        assert!(
            checks.iter().all(|check| check.state == State::Ok),
            "{checks:?}"
        );
        assert_eq!(checks[0].found, "overlay2 on extfs");
    }

    #[test]
    fn an_engine_that_shifts_users_is_refused_with_its_reason() {
        for (option, part) in [
            ("name=rootless", "rootless"),
            ("name=userns", "userns-remap"),
        ] {
            let check = users(&with_option(option));
            assert_eq!(check.state, State::Fail);
            assert!(check.found.contains(part), "{}", check.found);
        }
    }

    #[test]
    fn a_limit_that_does_not_bind_is_named() {
        let without = |change: fn(&mut SystemInfo)| {
            let mut info = good();
            change(&mut info);
            cgroup(&info)
        };
        assert_eq!(without(|info| info.swap_limit = None).state, State::Warn);
        let memory = without(|info| info.memory_limit = Some(false));
        assert_eq!(memory.state, State::Fail);
        assert!(
            memory.found.ends_with("does not limit memory"),
            "{}",
            memory.found
        );
        let old = without(|info| info.cgroup_version = Some(Version::_1));
        assert!(
            old.found.starts_with("cgroup version 1, limits"),
            "{}",
            old.found
        );
    }

    #[test]
    fn a_copying_driver_and_a_missing_filter_are_told() {
        let vfs = SystemInfo {
            driver: Some("vfs".into()),
            security_options: None,
            ..good()
        };
        assert_eq!(storage(&vfs).state, State::Warn);
        assert_eq!(seccomp(&vfs).state, State::Fail);
    }
}
