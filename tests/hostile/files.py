# Writing where nothing may be written, and becoming somebody else.
import glob, shutil, stat

READ_ONLY = (EROFS, EACCES, EPERM)


def refuse():
    raise Refused("it does not exist")


def create(folder):
    path = f"{folder}/hostile"
    handle = os.open(path, os.O_CREAT | os.O_WRONLY, 0o600)
    os.close(handle)
    os.unlink(path)
    return path


for folder in ("/", "/etc", "/usr/bin", "/var/tmp", "/var/lib", "/root", "/home", "/opt", "/dev",
               "/mayfly", "/mayfly/run", "/mayfly/bin", "/run", "/sys/fs/cgroup", "/proc", "/sys"):
    if os.path.isdir(folder) or folder.startswith("/mayfly"):
        attempt(f"create in {folder}", READ_ONLY + (ENOENT,) * folder.startswith(("/proc", "/sys")),
                lambda: create(folder))
    else:
        print(f"create in {folder}: refused, it does not exist")
for path in ("/etc/passwd", "/etc/group", "/etc/resolv.conf", "/etc/hosts", "/etc/hostname",
             "/mayfly/bin/mayfly-init"):
    attempt(f"write {path}", READ_ONLY, lambda: os.open(path, os.O_WRONLY))
attempt("replace init", READ_ONLY + (EBUSY,), lambda: os.rename("/mayfly/bin/mayfly-init", "/mayfly/bin/x"))
attempt("replace the slot", READ_ONLY + (EBUSY,), lambda: os.rename("/work", "/work.old"))
attempt("remove the slot", READ_ONLY + (EBUSY, ENOTEMPTY), lambda: os.rmdir("/work"))
for folder in ("/work", "/home/agent", "/tmp"):
    must(f"create in {folder}", create(folder))

for path in ("/proc/sysrq-trigger", "/proc/sys/kernel/core_pattern", "/proc/sys/vm/overcommit_memory",
             "/proc/sys/kernel/hostname", "/proc/sys/net/ipv4/ip_forward", "/proc/sys/kernel/modprobe",
             "/proc/irq/default_smp_affinity", "/sys/kernel/uevent_helper", "/sys/power/state",
             "/sys/kernel/mm/transparent_hugepage/enabled"):
    attempt(f"write {path}", READ_ONLY + (ENOENT,), lambda: os.open(path, os.O_WRONLY))
for path in ("/proc/kcore", "/proc/kmsg", "/proc/keys", "/proc/timer_list", "/dev/mem", "/dev/kmem",
             "/dev/port", "/dev/kmsg", "/dev/fuse", "/dev/kvm", "/dev/net/tun", "/dev/vsock",
             "/dev/vda", "/dev/sda", "/dev/loop0", "/dev/loop-control", "/dev/mapper/control",
             "/dev/userfaultfd", "/sys/firmware/dmi/tables/DMI", "/sys/kernel/debug/x"):
    def deed():
        if os.read(os.open(path, os.O_RDONLY), 1) == b"":
            raise Refused("it is empty")
        return "read"
    attempt(f"read {path}", (ENOENT, EACCES, EPERM, ENXIO, ENODEV), deed)


@attack("a cgroup of its own", *READ_ONLY)
def _():
    os.mkdir((glob.glob("/sys/fs/cgroup/*/") or ["/sys/fs/cgroup/"])[0] + "hostile")


@attack("any writable cgroup file")
def _():
    found = [os.path.join(base, name) for base, _, names in os.walk("/sys/fs/cgroup") for name in names]
    must("there are cgroup files", found)
    found = [path for path in found if os.access(path, os.W_OK)]
    if not found:
        raise Refused("not one can be written")
    return found[:3]


@attack("any writable file of the kernel")
def _():
    own = {"/proc/self", "/proc/thread-self"}
    found = []
    for top in ("/proc/sys", "/proc/irq", "/proc/bus", "/proc/fs", "/sys"):
        for base, _, names in os.walk(top):
            found += [os.path.join(base, name) for name in names
                      if os.access(os.path.join(base, name), os.W_OK)]
    if not found:
        raise Refused("not one can be written")
    return found[:3]


@attack("any foreign folder that can be written")
def _():
    # Mount by mount, so that a folder on any mount is seen.
    allowed = ("/work", "/home/agent", "/tmp", "/proc", "/dev/shm", "/dev/mqueue")
    found = []
    for base, folders, _ in os.walk("/"):
        if base.startswith(allowed):
            folders.clear()
        elif os.access(base, os.W_OK):
            found.append(base)
    if not found:
        raise Refused("not one")
    return found[:5]


for folder in ("/tmp", "/work", "/dev/shm"):
    for name, mode, device in (("block", stat.S_IFBLK, os.makedev(8, 0)), ("character", stat.S_IFCHR, os.makedev(1, 1))):
        attempt(f"mknod {name} in {folder}", (EPERM,), lambda: os.mknod(f"{folder}/{name}", mode | 0o666, device))
attempt("mknod whiteout in /work", (EPERM,), lambda: os.mknod("/work/whiteout", stat.S_IFCHR, 0))
for name in ("trusted.overlay.opaque", "trusted.overlay.redirect", "security.capability"):
    value = b"\x01\0\0\x02\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"
    os.makedirs("/work/marked", exist_ok=True)
    attempt(f"xattr {name}", (EPERM, EOPNOTSUPP), lambda: os.setxattr("/work/marked", name, value))
os.setxattr("/work/marked", "user.plain", b"1")

for name, deed in (
    ("setuid 0", lambda: os.setuid(0)), ("setgid 0", lambda: os.setgid(0)),
    ("setgroups", lambda: os.setgroups([0])), ("setresuid 0", lambda: os.setresuid(0, 0, 0)),
    ("chown to root", lambda: os.chown("/work/marked", 0, 0)),
    ("chown of /etc/passwd", lambda: os.chown("/etc/passwd", 1000, 1000)),
    ("read /etc/shadow", lambda: len(open("/etc/shadow").read()) if os.path.exists("/etc/shadow") else refuse()),
    ("list /root", lambda: os.listdir("/root")),
    ("hard link to a foreign file", lambda: os.link("/etc/passwd", "/work/passwd")),
):
    attempt(name, (EPERM, EACCES, EXDEV, EROFS), deed)


@attack("set a capability")
def _():
    header, data = struct.pack("Ii", 0x20080522, 0), struct.pack("6I", 0xE0, 0xE0, 0xE0, 0, 0, 0)
    if libc.capset(header, data):
        raise Refused(f"errno {ctypes.get_errno()}")


@attack("raise an ambient capability")
def _():
    if libc.prctl(47, 2, 7, 0, 0):
        raise Refused(f"errno {ctypes.get_errno()}")


@attack("clear no_new_privs")
def _():
    if libc.prctl(38, 0, 0, 0, 0) or libc.prctl(39, 0, 0, 0, 0) == 1:
        raise Refused("it stays")


@attack("a setuid copy")
def _():
    shutil.copy("/usr/bin/python3", "/work/python-s")
    os.chmod("/work/python-s", 0o6755)
    must("the copy runs", os.system("/work/python-s -c 0") == 0)
    text = os.popen("/work/python-s -c 'import os; print(os.geteuid())'").read().strip()
    if text != "0":
        raise Refused(f"uid {text}")
    return text


for name, command in (("su", "su -c 'id -u' root </dev/null"), ("sudo", "sudo -n id -u"),
                      ("passwd", "newgrp root -c 'id -g' </dev/null")):
    @attack(name)
    def _():
        if os.popen(f"{command} 2>/dev/null").read().strip() != "0":
            raise Refused("not root")
        return "root"


@attack("raise a limit", EPERM)
def _():
    import resource
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (-1, -1))
    except ValueError:
        raise Refused("not allowed to")


@attack("a core file", EPERM)
def _():
    import resource
    try:
        resource.setrlimit(resource.RLIMIT_CORE, (-1, -1))
    except ValueError:
        raise Refused("not allowed to")


@attack("a file over the cap", EFBIG)
def _():
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with open("/work/big", "wb") as file:
        file.seek((16 << 20) + 1)
        file.write(b"x")


with open("/work/sparse", "wb") as file:
    file.truncate(15 << 20)
must("a hole", os.stat("/work/sparse").st_blocks < 64)


@attack("fill /tmp", ENOSPC)
def _():
    for n in range(64):
        with open(f"/tmp/fill{n}", "wb") as file:
            file.write(bytes(1 << 20))


for name in glob.glob("/tmp/fill*"):
    os.unlink(name)
