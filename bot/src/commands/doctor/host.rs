//! Who we are, and what the kernel allows.

use super::{Check, State};
use crate::config::Config;

/// Sandboxes of all agents share one user id, and these limits count per user id.
const INOTIFY_INSTANCES: u64 = 512;
const INOTIFY_WATCHES: u64 = 65_536;
/// What the host itself may need.
const OWN_PIDS: u64 = 4_096;

pub(super) fn checks(config: &Config) -> Vec<Check> {
    let biggest = config
        .profiles
        .0
        .values()
        .map(|profile| profile.limits.pids)
        .max();
    let pids = config.worker.max_running as u64 * u64::from(biggest.unwrap_or(0)) + OWN_PIDS;
    vec![
        root(),
        limit("kernel.pid_max", pids),
        limit("fs.inotify.max_user_instances", INOTIFY_INSTANCES),
        limit("fs.inotify.max_user_watches", INOTIFY_WATCHES),
    ]
}

fn root() -> Check {
    let me = rustix::process::geteuid();
    match me.is_root() {
        true => Check::ok("root", "running as root"),
        false => Check::not(
            State::Fail,
            "root",
            format!("running as user id {}", me.as_raw()),
            "run mayfly as root: it mounts the agents' files and keeps their owners",
        ),
    }
}

fn limit(name: &'static str, wanted: u64) -> Check {
    let path = format!("/proc/sys/{}", name.replace('.', "/"));
    let read = std::fs::read_to_string(&path);
    match read.map(|text| text.trim().parse::<u64>()) {
        Ok(Ok(value)) => judge_limit(name, value, wanted),
        _ => Check::not(
            State::Warn,
            "kernel limit",
            format!("{path} cannot be read"),
            format!("see that {name} is at least {wanted}"),
        ),
    }
}

fn judge_limit(name: &str, value: u64, wanted: u64) -> Check {
    let found = format!("{name} = {value}");
    match value >= wanted {
        true => Check::ok("kernel limit", found),
        false => Check::not(
            State::Warn,
            "kernel limit",
            format!("{found}, busy agents may run into it"),
            format!("echo '{name} = {wanted}' > /etc/sysctl.d/60-mayfly.conf && sysctl --system"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_low_limit_names_the_line_that_mends_it() {
        let low = judge_limit("fs.inotify.max_user_instances", 128, 512);
        assert_eq!(low.state, State::Warn);
        assert!(
            low.mend
                .unwrap()
                .contains("fs.inotify.max_user_instances = 512")
        );
        assert_eq!(judge_limit("kernel.pid_max", 512, 512).state, State::Ok);
    }
}
