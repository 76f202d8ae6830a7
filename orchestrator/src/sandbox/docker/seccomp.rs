//! The system call filter of every sandbox: an allow list after Docker's current default, tighter
//! where that one leaves holes.
//!
//! - Native architecture only: 32-bit entry points would pass `socketcall` around the filter.
//! - `socket` of UNIX, INET, INET6 and NETLINK only: AF_VSOCK reaches the host without a network.
//! - `fallocate` answers EOPNOTSUPP: with FALLOC_FL_KEEP_SIZE it ignores RLIMIT_FSIZE and takes
//!   disk that no walk of the upper sees. Programs fall back to writing.
//! - `clone3` answers ENOSYS, so that libc falls back to `clone`, whose flags can be looked at.
//! - Landlock answers ENOSYS, as a kernel without it: a rule keeps the blocks of a deleted file, and
//!   no handle shows it. A program's own sandbox adds nothing here.
//! - `modify_ldt` is left out: 16-bit and 32-bit code segments lead to doors that are closed anyway.
//! - What is not named answers EPERM: io_uring, keyrings, userfaultfd, bpf, perf, mounts,
//!   namespaces, modules, clocks.

use serde_json::{Value, json};

const EOPNOTSUPP: u32 = 95;
const ENOSYS: u32 = 38;
/// CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID and NEWNET.
const NAMESPACES: u64 = 0x7e02_0000;
const LANDLOCK: [&str; 3] = [
    "landlock_create_ruleset",
    "landlock_add_rule",
    "landlock_restrict_self",
];
/// AF_UNIX, AF_INET, AF_INET6, AF_NETLINK.
const FAMILIES: [u64; 4] = [1, 2, 10, 16];
/// PER_LINUX, UNAME26, PER_LINUX32, both, and the question for the present one.
const PERSONALITIES: [u64; 5] = [0, 0x8, 0x2_0000, 0x2_0008, 0xffff_ffff];

/// The profile in the form the engine takes.
pub(super) fn profile() -> String {
    let mut rules = vec![
        json!({"names": ALLOWED, "action": "SCMP_ACT_ALLOW"}),
        when("clone", "SCMP_CMP_MASKED_EQ", NAMESPACES, 0),
        when("socketpair", "SCMP_CMP_EQ", FAMILIES[0], 0),
        refused("clone3", ENOSYS),
        refused("fallocate", EOPNOTSUPP),
    ];
    rules.extend(LANDLOCK.map(|name| refused(name, ENOSYS)));
    rules.extend(FAMILIES.map(|family| when("socket", "SCMP_CMP_EQ", family, 0)));
    rules.extend(PERSONALITIES.map(|one| when("personality", "SCMP_CMP_EQ", one, 0)));
    let architecture = match std::env::consts::ARCH {
        "aarch64" => "SCMP_ARCH_AARCH64",
        _ => "SCMP_ARCH_X86_64",
    };
    json!({
        "defaultAction": "SCMP_ACT_ERRNO",
        "architectures": [architecture],
        "syscalls": rules,
    })
    .to_string()
}

fn when(name: &str, comparison: &str, value: u64, second: u64) -> Value {
    json!({
        "names": [name],
        "action": "SCMP_ACT_ALLOW",
        "args": [{"index": 0, "value": value, "valueTwo": second, "op": comparison}],
    })
}

fn refused(name: &str, errno: u32) -> Value {
    json!({"names": [name], "action": "SCMP_ACT_ERRNO", "errnoRet": errno})
}

/// Names that an architecture or a kernel lacks are skipped by the runtime.
#[rustfmt::skip]
const ALLOWED: &[&str] = &[
    "accept", "accept4", "access", "adjtimex", "alarm", "arch_prctl", "bind", "brk", "cachestat",
    "capget", "capset", "chdir", "chmod", "chown", "clock_adjtime", "clock_getres",
    "clock_gettime", "clock_nanosleep", "close", "close_range", "connect", "copy_file_range",
    "creat", "dup", "dup2", "dup3", "epoll_create", "epoll_create1", "epoll_ctl", "epoll_ctl_old",
    "epoll_pwait", "epoll_pwait2", "epoll_wait", "epoll_wait_old", "eventfd", "eventfd2", "execve",
    "execveat", "exit", "exit_group", "faccessat", "faccessat2", "fadvise64", "fchdir", "fchmod",
    "fchmodat", "fchmodat2", "fchown", "fchownat", "fcntl", "fdatasync", "fgetxattr", "flistxattr",
    "flock", "fork", "fremovexattr", "fsetxattr", "fstat", "fstatfs", "fsync", "ftruncate",
    "futex", "futex_requeue", "futex_wait", "futex_waitv", "futex_wake", "futimesat", "getcpu",
    "getcwd", "getdents", "getdents64", "getegid", "geteuid", "getgid", "getgroups", "getitimer",
    "getpeername", "getpgid", "getpgrp", "getpid", "getppid", "getpriority", "getrandom",
    "getresgid", "getresuid", "getrlimit", "get_robust_list", "getrusage", "getsid",
    "getsockname", "getsockopt", "get_thread_area", "gettid", "gettimeofday", "getuid", "getxattr",
    "getxattrat", "inotify_add_watch", "inotify_init", "inotify_init1", "inotify_rm_watch",
    "io_cancel", "ioctl", "io_destroy", "io_getevents", "io_pgetevents", "ioprio_get",
    "ioprio_set", "io_setup", "io_submit", "kill", "lchown", "lgetxattr", "link", "linkat", "listen", "listxattr",
    "listxattrat", "llistxattr", "lremovexattr", "lseek", "lsetxattr", "lstat", "madvise",
    "map_shadow_stack", "membarrier", "memfd_create", "mincore", "mkdir", "mkdirat", "mknod",
    "mknodat", "mlock", "mlock2", "mlockall", "mmap", "mprotect", "mq_getsetattr",
    "mq_notify", "mq_open", "mq_timedreceive", "mq_timedsend", "mq_unlink", "mremap", "mseal",
    "msgctl", "msgget", "msgrcv", "msgsnd", "msync", "munlock", "munlockall", "munmap",
    "name_to_handle_at", "nanosleep", "newfstatat", "open", "openat", "openat2", "pause",
    "pidfd_open", "pidfd_send_signal", "pipe", "pipe2", "pkey_alloc", "pkey_free",
    "pkey_mprotect", "poll", "ppoll", "prctl", "pread64", "preadv", "preadv2", "prlimit64",
    "process_mrelease", "process_vm_readv", "process_vm_writev", "pselect6", "ptrace", "pwrite64",
    "pwritev", "pwritev2", "read", "readahead", "readlink", "readlinkat", "readv", "recvfrom",
    "recvmmsg", "recvmsg", "remap_file_pages", "removexattr", "removexattrat", "rename",
    "renameat", "renameat2", "restart_syscall", "riscv_hwprobe", "rmdir", "rseq",
    "rt_sigaction", "rt_sigpending", "rt_sigprocmask", "rt_sigqueueinfo", "rt_sigreturn",
    "rt_sigsuspend", "rt_sigtimedwait", "rt_tgsigqueueinfo", "sched_getaffinity", "sched_getattr",
    "sched_getparam", "sched_get_priority_max", "sched_get_priority_min", "sched_getscheduler",
    "sched_rr_get_interval", "sched_setaffinity", "sched_setattr", "sched_setparam",
    "sched_setscheduler", "sched_yield", "seccomp", "select", "semctl", "semget", "semop",
    "semtimedop", "sendfile", "sendmmsg", "sendmsg", "sendto", "setfsgid", "setfsuid", "setgid",
    "setgroups", "setitimer", "setpgid", "setpriority", "setregid", "setresgid", "setresuid",
    "setreuid", "setrlimit", "set_robust_list", "setsid", "setsockopt", "set_thread_area",
    "set_tid_address", "setuid", "setxattr", "setxattrat", "shmat", "shmctl", "shmdt", "shmget",
    "shutdown", "sigaltstack", "signalfd", "signalfd4", "splice", "stat", "statfs", "statx",
    "symlink", "symlinkat", "sync", "sync_file_range", "syncfs", "sysinfo", "tee", "tgkill",
    "time", "timer_create", "timer_delete", "timerfd_create", "timerfd_gettime", "timerfd_settime",
    "timer_getoverrun", "timer_gettime", "timer_settime", "times", "tkill", "truncate", "umask",
    "uname", "unlink", "unlinkat", "uretprobe", "utime", "utimensat", "utimes", "vfork",
    "vmsplice", "wait4", "waitid", "write", "writev",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_a_rule_of_its_own_or_none_is_not_simply_allowed() {
        #[rustfmt::skip]
        let never = [
            "clone", "clone3", "socket", "socketpair", "socketcall", "personality", "fallocate",
            "landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self",
            "io_uring_setup", "io_uring_enter", "io_uring_register", "keyctl", "add_key",
            "request_key", "userfaultfd", "bpf", "perf_event_open", "mount", "umount2",
            "move_mount", "open_tree", "fsopen", "unshare", "setns", "pivot_root", "chroot",
            "open_by_handle_at", "init_module", "finit_module", "kexec_load", "reboot", "quotactl",
            "swapon", "acct", "settimeofday", "clock_settime", "syslog", "iopl", "ioperm",
            "fanotify_init", "lookup_dcookie", "kcmp", "pidfd_getfd", "mount_setattr", "modify_ldt",
        ];
        for name in never {
            assert!(!ALLOWED.contains(&name), "{name}");
        }
    }

    #[test]
    fn the_profile_has_one_architecture_and_no_repetition() {
        let profile: Value = serde_json::from_str(&profile()).unwrap();
        assert_eq!(profile["architectures"].as_array().unwrap().len(), 1);
        let mut names = ALLOWED.to_vec();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ALLOWED.len());
    }
}
