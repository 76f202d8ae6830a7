//! How much memory ticks may have together where the configuration does not say it: the host's, less what
//! the engine, this program and everything else there needs.

use std::path::Path;

use crate::sandbox::docker;

/// Mebibytes that stay for everything else, at least; half of less than twice as much.
const OTHERS: u64 = 512;
/// And this part of the whole.
const PART: u64 = 8;
/// Where limits of all that runs here stand, below the root of the control groups; version 2, then 1.
const LIMITS: [&str; 2] = ["memory.max", "memory/memory.limit_in_bytes"];

/// Mebibytes for ticks on this host; none where it does not tell its memory.
pub fn for_ticks() -> Option<u64> {
    let groups = (!docker::is_beside_sandboxes()).then_some(Path::new("/sys/fs/cgroup"));
    of(Path::new("/proc/meminfo"), groups)
}

/// A limit of the process's own control group says nothing about sandboxes, which the engine makes in
/// others. One of the root that is seen here holds for both, but not where that root is our own container's
/// (then no groups are given) and sandboxes are containers beside it.
fn of(meminfo: &Path, groups: Option<&Path>) -> Option<u64> {
    let text = std::fs::read_to_string(meminfo).ok()?;
    let line = text.lines().find(|line| line.starts_with("MemTotal:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    let limit = groups.and_then(limit);
    let whole = limit.map_or(kib >> 10, |bytes| (bytes >> 20).min(kib >> 10));
    Some(whole - (whole / PART).max(OTHERS.min(whole / 2)))
}

fn limit(groups: &Path) -> Option<u64> {
    LIMITS.iter().find_map(|name| {
        let text = std::fs::read_to_string(groups.join(name)).ok()?;
        text.trim().parse::<u64>().ok()
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_part_stays_for_others_and_a_limit_of_all_groups_counts() {
        let folder = tempfile::tempdir().unwrap();
        let (meminfo, groups) = (folder.path().join("meminfo"), folder.path());
        let told = |mib: u64| {
            let text = format!("MemFree: 1 kB\nMemTotal:   {} kB\n", mib << 10);
            fs::write(&meminfo, text).unwrap();
            of(&meminfo, Some(groups))
        };
        assert_eq!(told(16_384), Some(14_336));
        assert_eq!(told(2048), Some(1536));
        assert_eq!(told(960), Some(480));
        assert_eq!(told(256), Some(128));
        fs::create_dir(groups.join("memory")).unwrap();
        let old = groups.join("memory/memory.limit_in_bytes");
        fs::write(&old, (8192u64 << 20).to_string()).unwrap();
        assert_eq!(told(16_384), Some(7168));
        // Version 1 says "none" so.
        fs::write(&old, "9223372036854771712\n").unwrap();
        assert_eq!(told(16_384), Some(14_336));
        fs::write(groups.join("memory.max"), "max\n").unwrap();
        assert_eq!(told(16_384), Some(14_336));
        fs::write(groups.join("memory.max"), format!("{}\n", 4096u64 << 20)).unwrap();
        assert_eq!(told(16_384), Some(3584));
        assert_eq!(
            of(&meminfo, None),
            Some(14_336),
            "a container's own limit is not that of the sandboxes beside it"
        );
        assert_eq!(of(&groups.join("none"), Some(groups)), None);
    }
}
