//! The ceilings of one tick.

use serde::{Deserialize, Serialize};

/// What one tick may use. Every limit binds outside the agent program.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Seconds from the program's start until it is asked to end.
    pub wall_clock_s: u64,
    /// Mebibytes of memory; swap is not added.
    pub memory_mib: u64,
    /// CPUs, fractions allowed.
    pub cpus: f64,
    /// Processes and threads, init included.
    pub pids: u32,
    /// Bytes of standard output kept in full; past it the first and last part are kept. The same
    /// holds for standard error.
    pub output_bytes: u64,
    /// Mebibytes one tick may add to its slots.
    pub state_mib: u64,
    /// Files and folders one tick may add to its slots.
    pub state_inodes: u64,
    /// Mebibytes of `/tmp`, which is memory and counts into `memory_mib`.
    pub tmp_mib: u64,
    /// Largest single file, in mebibytes (`RLIMIT_FSIZE`).
    pub file_mib: u64,
    /// Open files per process (`RLIMIT_NOFILE`).
    pub open_files: u64,
    /// Bytes of the transcript, after which it ends with a mark.
    pub transcript_bytes: u64,
    /// Seconds until the program must have written its first byte; 0 for no limit.
    pub first_output_s: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            wall_clock_s: 600,
            memory_mib: 1024,
            cpus: 1.0,
            pids: 256,
            output_bytes: 1 << 20,
            state_mib: 2048,
            state_inodes: 200_000,
            tmp_mib: 256,
            file_mib: 2048,
            open_files: 4096,
            transcript_bytes: 16 << 20,
            first_output_s: 0,
        }
    }
}
