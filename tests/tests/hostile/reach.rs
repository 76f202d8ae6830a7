//! What an agent may not reach: init, the kernel's rarer doors, the root, the network.

use mayfly_domain::Limits;

use crate::table::{lines, message, refuses, script, works_unconfined, world};

const INIT: &str = include_str!("../../hostile/init.py");
const KERNEL: &str = include_str!("../../hostile/kernel.py");
const FILES: &str = include_str!("../../hostile/files.py");
const NETWORK: &str = include_str!("../../hostile/network.py");
const SLOW: &str = include_str!("../../hostile/slow.py");

fn limits() -> Limits {
    Limits {
        wall_clock_s: 60,
        file_mib: 16,
        tmp_mib: 8,
        pids: 64,
        ..Limits::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pid_1_cannot_be_traced_read_written_slowed_or_signalled() {
    let world = world(limits()).await;
    let agent = world.shell().await;
    let refused = refuses(&world, agent, INIT, 34).await;
    let own = format!("export TARGET=own; {}", message(INIT));
    let text = world.reply(agent, &own).await;
    let own = lines(&text);
    assert_eq!(
        own.keys().collect::<Vec<_>>(),
        refused.keys().collect::<Vec<_>>()
    );
    for (name, verdict) in own {
        assert!(
            verdict.starts_with("SUCCEEDED"),
            "to a child of its own, {name}: {verdict}"
        );
    }
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sockets_keys_rings_namespaces_mounts_and_foreign_doors_of_the_kernel() {
    let world = world(limits()).await;
    let agent = world.shell().await;
    refuses(&world, agent, KERNEL, 80).await;
    // Root without the capability they want.
    let mut refused_anyway = vec![
        "unshare mount",
        "unshare net",
        "unshare pid",
        "unshare ipc",
        "unshare uts",
        "unshare cgroup",
        "clone mount",
        "clone net",
        "clone pid",
        "clone ipc",
        "clone uts",
        "clone cgroup",
        "mount",
        "umount2",
        "pivot_root",
        "move_mount",
        "fsopen",
        "open_tree",
        "reboot",
        "swapon",
        "acct",
        "syslog",
        "fanotify_init",
        "sethostname",
        "finit_module",
        "init_module",
        "delete_module",
        "kexec_load",
        "quotactl",
        "settimeofday",
        "clock_settime",
        "iopl",
        "ioperm",
        "open_by_handle_at",
    ];
    // What the kernel need not have.
    refused_anyway.extend(["x32", "bpf", "perf_event_open"]);
    if !cfg!(target_arch = "x86_64") {
        refused_anyway.extend(["int 0x80", "modify_ldt"]);
    }
    works_unconfined(KERNEL, &refused_anyway);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_root_devices_limits_and_other_users() {
    let world = world(limits()).await;
    let agent = world.shell().await;
    refuses(&world, agent, FILES, 80).await;
    let refused_anyway = [
        "create in /mayfly",
        "create in /proc",
        "create in /sys",
        "create in /opt",
        "replace the slot",
        "remove the slot",
        "write /proc",
        "write /sys",
        "read /proc",
        "read /dev",
        "read /sys",
        "read /etc/shadow",
        "a cgroup of its own",
        "mknod whiteout",
        "xattr trusted",
        "any writable",
        "hard link to a foreign file",
        "raise an ambient capability",
        "clear no_new_privs",
        "su",
        "passwd",
    ];
    works_unconfined(FILES, &refused_anyway);
    let next = "stat -c %a python-s; getfattr -d -m - marked 2>/dev/null; ls";
    let kept = world.reply(agent, next).await;
    assert!(
        kept.starts_with("755\n"),
        "the setuid bit is in the layer: {kept}"
    );
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn networks_sockets_of_others_and_the_gateway() {
    let world = world(limits()).await;
    let agent = world.shell().await;
    refuses(&world, agent, NETWORK, 47).await;
    let refused_anyway = [
        "TCP",
        "UDP",
        "a name",
        "any interface",
        "any route",
        "make an interface",
        "bring loopback down",
        "the engine's socket",
        "any abstract socket",
        "hard link",
    ];
    works_unconfined(NETWORK, &refused_anyway);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_never_end_are_let_go() {
    let world = world(limits()).await;
    let agent = world.shell().await;
    refuses(&world, agent, SLOW, 2).await;
    world.end().await;
}

#[test]
fn the_scripts_are_short_enough_for_a_message() {
    for body in [INIT, KERNEL, FILES, NETWORK, SLOW] {
        assert!(script(body).len() < 64 << 10);
    }
}
