//! The sandbox's count of processes the kernel killed for memory.

use std::fs;

/// 0 where the kernel does not tell.
pub(crate) fn kills() -> u64 {
    [
        "/sys/fs/cgroup/memory.events",
        "/sys/fs/cgroup/memory/memory.oom_control",
    ]
    .into_iter()
    .filter_map(|path| fs::read_to_string(path).ok())
    .find_map(|text| count(&text))
    .unwrap_or(0)
}

fn count(text: &str) -> Option<u64> {
    text.lines()
        .find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_generations_of_cgroups_are_read() {
        assert_eq!(
            count("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n"),
            Some(3)
        );
        assert_eq!(
            count("low 0\nhigh 0\nmax 9\noom 2\noom_kill 1\noom_group_kill 0\n"),
            Some(1)
        );
        assert_eq!(count("oom_kill_disable 0\nunder_oom 0\n"), None);
    }
}
