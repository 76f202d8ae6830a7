//! What runs in the sandbox, as `/proc` shows it.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};

/// Fields of one `/proc/<pid>/stat`.
struct Process {
    pid: i32,
    state: char,
    session: i32,
}

impl Process {
    fn dead(&self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }
}

/// Every process but PID 1. One that ends meanwhile is left out.
fn others() -> impl Iterator<Item = Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| *pid > 1)
        .filter_map(|pid: i32| parse(pid, &fs::read(format!("/proc/{pid}/stat")).ok()?))
}

/// `pid (any bytes) state ppid pgrp session …`, see proc_pid_stat(5).
fn parse(pid: i32, stat: &[u8]) -> Option<Process> {
    let name = stat.iter().rposition(|byte| *byte == b')')?;
    let mut fields = str::from_utf8(&stat[name + 1..])
        .ok()?
        .split_ascii_whitespace();
    Some(Process {
        pid,
        state: fields.next()?.chars().next()?,
        session: fields.nth(2)?.parse().ok()?,
    })
}

/// Whether every process but these is stopped or dead.
pub(crate) fn all_stopped_but(these: &[Pid]) -> bool {
    let exempt = |process: &Process| {
        these
            .iter()
            .any(|pid| pid.as_raw_nonzero().get() == process.pid)
    };
    others().all(|process| process.dead() || matches!(process.state, 'T' | 't') || exempt(&process))
}

/// Kills what is alive in this session. `true`: nothing was.
pub(crate) fn kill_session(leader: Pid) -> bool {
    let mut none = true;
    let session = leader.as_raw_nonzero().get();
    for process in others().filter(|process| process.session == session && !process.dead()) {
        none = false;
        if let Some(pid) = Pid::from_raw(process.pid) {
            // Gone already is as good.
            let _ = kill_process(pid, Signal::KILL);
        }
    }
    none
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hostile_name_does_not_shift_the_fields() {
        let stat = b"77 (a) S 1 2 3 (x\xff) T 1 70 69 0 -1 4194304";
        let process = parse(77, stat).unwrap();
        assert_eq!((process.pid, process.state, process.session), (77, 'T', 69));
    }
}
