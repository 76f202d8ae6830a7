//! What a process holds in memory.

use std::fs;

/// Mebibytes of a process.
#[derive(Debug, Clone, Copy)]
pub struct Memory {
    /// Resident.
    pub rss: f64,
    /// Resident, shared pages counted by their share.
    pub pss: f64,
    /// Resident and of no file: heap, stacks, caches of the database.
    pub anonymous: f64,
}

impl Memory {
    /// Of a living process.
    pub fn of(pid: u32) -> Memory {
        let path = format!("/proc/{pid}/smaps_rollup");
        Memory {
            rss: field(&path, "Rss:"),
            pss: field(&path, "Pss:"),
            anonymous: field(&path, "Anonymous:"),
        }
    }

    /// In words, what it consists of.
    pub fn made_of(&self) -> String {
        format!(
            "{:.1} MiB of it are heap, stacks and the database's caches, {:.1} MiB pages of files (the program, its \
             libraries, the index of the database's log)",
            self.anonymous,
            self.rss - self.anonymous
        )
    }

    /// The most that was resident since it began.
    pub fn most(pid: u32) -> f64 {
        field(&format!("/proc/{pid}/status"), "VmHWM:")
    }
}

fn field(path: &str, name: &str) -> f64 {
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let kib = line
        .and_then(|line| line.split_whitespace().next())
        .and_then(|n| n.parse().ok());
    kib.map(|kib: f64| kib / 1024.0)
        .unwrap_or_else(|| panic!("{path} has no {name}"))
}
