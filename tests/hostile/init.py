# PID 1 as a target. With `TARGET=own` in the environment the same deeds are done to a child of
# the attacker, where they have to work.
own = os.environ.get("TARGET") == "own"
pid = victim() if own else 1
SETTLE = 0.05
time.sleep(SETTLE)


def ptrace(request, address=0, data=0):
    return call("ptrace", request, pid, address, data)


@attack("ptrace attach", EPERM)
def _():
    ptrace(16)
    os.waitpid(pid, 0)
    # Another than the parent cannot wait for it; attached is attached.


@attack("ptrace seize", EPERM)
def _():
    ptrace(0x4206)


class Iovec(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


buffer = ctypes.create_string_buffer(b"same address in a fork", 64)


def vm(name):
    here = Iovec(ctypes.addressof(buffer), 8)
    return call(name, pid, ctypes.byref(here), 1, ctypes.byref(here), 1, 0)


@attack("process_vm_readv", EPERM)
def _():
    return vm("process_vm_readv")


@attack("process_vm_writev", EPERM)
def _():
    return vm("process_vm_writev")


@attack("write mem", EACCES)
def _():
    handle = os.open(f"/proc/{pid}/mem", os.O_RDWR)
    os.pwrite(handle, buffer.raw, ctypes.addressof(buffer))
    return os.pread(handle, 4, ctypes.addressof(buffer))


for path in ("environ", "maps", "smaps", "auxv", "pagemap"):
    attempt(f"read {path}", (EACCES, EPERM),
            lambda: len(os.read(os.open(f"/proc/{pid}/{path}", os.O_RDONLY), 8)))
for path, text in (("oom_score_adj", "600"), ("clear_refs", "1"), ("sched", "0"),
                   ("coredump_filter", "0x33")):
    attempt(f"write {path}", (EACCES, EPERM),
            lambda: os.write(os.open(f"/proc/{pid}/{path}", os.O_WRONLY), text.encode()))
for path in ("root", "cwd", "exe", "ns/pid", "ns/mnt", "ns/net", "ns/user"):
    attempt(f"read link {path}", (EACCES, EPERM), lambda: os.readlink(f"/proc/{pid}/{path}"))
for path in ("fd", "fdinfo", "map_files"):
    attempt(f"list {path}", (EACCES, EPERM), lambda: os.listdir(f"/proc/{pid}/{path}"))
attempt("list fd of its thread", (EACCES,), lambda: os.listdir(f"/proc/{pid}/task/{pid}/fd"))
attempt("enter root", (EACCES, EPERM), lambda: len(os.listdir(f"/proc/{pid}/root/")))


@attack("prlimit", EPERM)
def _():
    return call("prlimit64", pid, 7, struct.pack("QQ", 3, 3), None)


@attack("SCHED_IDLE", EPERM)
def _():
    os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0))


@attack("renice", EPERM, EACCES)
def _():
    os.setpriority(os.PRIO_PROCESS, pid, 19)


@attack("ionice", EPERM)
def _():
    return call("ioprio_set", 1, pid, 3 << 13)


@attack("affinity", EPERM)
def _():
    os.sched_setaffinity(pid, {min(os.sched_getaffinity(0))})


@attack("get_robust_list", EPERM)
def _():
    head, size = ctypes.c_void_p(), ctypes.c_size_t()
    return call("get_robust_list", pid, ctypes.byref(head), ctypes.byref(size))


for name in ("STOP", "KILL", "TERM", "INT", "CHLD", "SEGV"):
    number = signal.Signals["SIG" + name]

    def deed():
        if not own:
            os.kill(pid, number)
            return "sent"
        spare = victim()
        time.sleep(SETTLE)
        os.kill(spare, number)
        os.kill(spare, 9)
        return "sent"
    attempt(f"SIG{name}", (EPERM,), deed)


@attack("signal by pidfd", EPERM)
def _():
    handle = call("pidfd_open", pid, 0)
    return call("pidfd_send_signal", handle, 18, None, 0)


@attack("queue a signal", EPERM)
def _():
    # rt_sigqueueinfo with a code that only the kernel may use would be EPERM for anybody.
    info = struct.pack("iii", 18, 0, -1).ljust(128, b"\0")
    if libc.syscall(ctypes.c_long(129 if X86 else 138), ctypes.c_long(pid), ctypes.c_long(18), info):
        raise OSError(ctypes.get_errno(), "")


if own:
    os.kill(pid, 9)
