//! Every unsafe call of init, and nothing else. Init has one thread, which makes `fork` without
//! `exec` and changes of the signal mask sound.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::{io, ptr};

use rustix::process::Pid;

/// The child's end of the report pipe, next to its standard streams.
const REPORT: RawFd = 3;
/// The kernel's own count.
const SIGNALS: libc::c_long = 64;

/// Sends `signal` to every process of this PID namespace but PID 1. `false`: there is none.
/// The kernel walks its list under a lock that stops `fork`, so no process slips through.
pub(crate) fn signal_all(signal: i32) -> bool {
    assert_eq!(
        std::process::id(),
        1,
        "outside a PID namespace this would reach the whole host"
    );
    // SAFETY: takes no pointers.
    unsafe { libc::kill(-1, signal) == 0 }
}

/// Blocks SIGCHLD and SIGTERM and makes them readable, 128 bytes each, from the returned handle.
pub(crate) fn watch_signals() -> io::Result<OwnedFd> {
    // SAFETY: `set` is initialised by `sigemptyset` before it is read; it outlives the calls.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGCHLD);
        libc::sigaddset(&mut set, libc::SIGTERM);
        check(libc::sigprocmask(libc::SIG_SETMASK, &set, ptr::null_mut()))?;
        let fd = check(libc::signalfd(
            -1,
            &set,
            libc::SFD_CLOEXEC | libc::SFD_NONBLOCK,
        ))?;
        // The descriptor is new and nobody else's.
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// `None` in the child.
pub(crate) fn fork() -> io::Result<Option<Pid>> {
    // SAFETY: with one thread, no lock can be held by a thread the child lacks.
    let pid = check(unsafe { libc::fork() })?;
    Ok(Pid::from_raw(pid))
}

/// Gives a fresh child the signal state every program expects: nothing blocked, all defaults.
pub(crate) fn default_signals() {
    // All zero is SIG_DFL without flags; no architecture's kernel structure is longer.
    let action = [0_u64; 8];
    // SAFETY: `action` and `set` are initialised and outlive the calls; no handler is installed.
    // The raw call also reaches the two signals glibc keeps to itself. That the kernel refuses
    // SIGKILL and SIGSTOP is harmless.
    unsafe {
        for signal in 1..=SIGNALS {
            libc::syscall(
                libc::SYS_rt_sigaction,
                signal,
                action.as_ptr(),
                0,
                SIGNALS / 8,
            );
        }
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigprocmask(libc::SIG_SETMASK, &set, ptr::null_mut());
    }
}

/// In a fresh child: puts `stdio` at 0, 1, 2 and `report` behind them, closes everything else and
/// returns the report's handle. All four must lie above 2, which holds because 0 to 2 are open.
pub(crate) fn keep_only(stdio: &[OwnedFd; 3], report: &OwnedFd) -> io::Result<OwnedFd> {
    // SAFETY: this child never returns to code that owns the closed descriptors; it ends in
    // `exec` or `quit`, which run no destructors.
    unsafe {
        let report = check(libc::fcntl(report.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 16))?;
        for (place, fd) in (0..).zip(stdio) {
            check(libc::dup2(fd.as_raw_fd(), place))?;
        }
        check(libc::dup3(report, REPORT, libc::O_CLOEXEC))?;
        let first = REPORT as libc::c_uint + 1;
        if libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, 0) != 0 {
            let mut limit: libc::rlimit = std::mem::zeroed();
            check(libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit))?;
            for fd in first as RawFd..limit.rlim_cur.min(1 << 20) as RawFd {
                libc::close(fd);
            }
        }
        Ok(OwnedFd::from_raw_fd(REPORT))
    }
}

/// Replaces this process. Returns only what went wrong.
pub(crate) fn exec(path: &CStr, argv: &[CString], env: &[CString]) -> io::Error {
    let list = |strings: &[CString]| -> Vec<*const libc::c_char> {
        strings
            .iter()
            .map(|text| text.as_ptr())
            .chain([ptr::null()])
            .collect()
    };
    let (argv, env) = (list(argv), list(env));
    // SAFETY: both lists end in null and point into strings that live past the call.
    unsafe { libc::execve(path.as_ptr(), argv.as_ptr(), env.as_ptr()) };
    io::Error::last_os_error()
}

/// Ends a child that was forked, without the parent's destructors and buffers.
pub(crate) fn quit(code: i32) -> ! {
    // SAFETY: ends the process.
    unsafe { libc::_exit(code) }
}

fn check(result: i32) -> io::Result<i32> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}
