//! Who we are, and what the kernel allows.

use mayfly_orchestrator::agent::profile::Profile;

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
        memory(config),
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

/// Ticks are promised what their profiles allow; see `worker.memory_mib`.
fn memory(config: &Config) -> Check {
    let Some(all) = config.worker.memory() else {
        return Check::not(
            State::Warn,
            "memory",
            "this host does not tell how much it has",
            "say with worker.memory_mib how much all ticks together may take",
        );
    };
    let wants = |(name, profile): (&String, &Profile)| (profile.limits.memory_mib, name.clone());
    let largest = config.profiles.0.iter().map(wants).max();
    let stated = config.worker.memory_mib.is_some();
    let places = config.worker.max_running;
    judge_memory(all, stated, places, largest.unwrap_or_default())
}

fn judge_memory(all: u64, stated: bool, places: u32, (wants, profile): (u64, String)) -> Check {
    let found = format!("{all} MiB for all ticks together");
    // One alone runs, unless less is stated for all.
    let at_once = (all / wants.max(1)).max(1);
    match () {
        () if wants > all && stated => Check::not(
            State::Fail,
            "memory",
            format!("{found}, and one of profile {profile} may take {wants} MiB"),
            format!("lower profiles.{profile}.limits.memory_mib or raise worker.memory_mib"),
        ),
        () if at_once < u64::from(places) => Check::not(
            State::Advice,
            "memory",
            format!(
                "{found}: of profile {profile} {at_once} at once, of {places} that worker.max_running allows"
            ),
            format!(
                "where that is too few lower profiles.{profile}.limits.memory_mib ({wants}) or raise worker.memory_mib"
            ),
        ),
        () => Check::ok("memory", format!("{found}, for {places} at once")),
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
    #[test]
    fn a_profile_that_takes_more_than_is_stated_fails_with_both_figures() {
        let judge = |all, wants| judge_memory(all, true, 4, (wants, "big".to_owned()));
        let fail = judge(2048, 4096);
        assert_eq!(fail.state, State::Fail);
        assert!(fail.found.contains("2048") && fail.found.contains("4096"));
        assert_eq!(judge(8192, 4096).state, State::Advice);
        assert_eq!(judge(8192, 2048).state, State::Ok);
        let small = judge_memory(2048, false, 4, (4096, "big".to_owned()));
        assert_eq!(small.state, State::Advice);
        assert!(small.found.contains("1 at once"), "{}", small.found);
    }
}
