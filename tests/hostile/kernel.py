# What the system call filter has to refuse. The same table is run where nothing is confined,
# and there no line may say "refused".
import mmap

for number, family in sorted({
    3: "AX25", 4: "IPX", 5: "APPLETALK", 9: "X25", 15: "KEY", 17: "PACKET", 21: "RDS", 26: "LLC",
    29: "CAN", 30: "TIPC", 31: "BLUETOOTH", 33: "RXRPC", 38: "ALG", 39: "NFC", 40: "VSOCK",
    41: "KCM", 42: "QIPCRTR", 43: "SMC", 44: "XDP", 45: "MCTP",
}.items()):
    def deed():
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET, socket.SOCK_RAW):
            try:
                socket.socket(number, kind, 0)
                return "a socket"
            except OSError as error:
                if error.errno == EPERM:
                    raise
        return "the kernel was reached and knows no such family"
    attempt(f"AF_{family}", (EPERM,), deed)

for name, family in (("AF_UNIX", socket.AF_UNIX), ("AF_INET", socket.AF_INET), ("AF_INET6", socket.AF_INET6)):
    must(f"socket {name}", socket.socket(family, socket.SOCK_STREAM))


@attack("AF_VSOCK pair", EPERM)
def _():
    try:
        socket.socketpair(40, socket.SOCK_STREAM)
    except OSError as error:
        if error.errno == EPERM:
            raise
        return "the kernel was reached"


def reached(name, *arguments):
    """The arguments are wrong on purpose: any complaint about them means that the call came
    through the filter."""
    def deed():
        try:
            return call(name, *arguments)
        except OSError as error:
            if error.errno in (EPERM, ENOSYS):
                raise
            return f"the kernel was reached: {errno.errorcode[error.errno]}"
    attempt(name, (EPERM,), deed)


zeros = bytes(256)
params = ctypes.create_string_buffer(256)
reached("io_uring_setup", 4, params)
reached("io_uring_enter", -1, 1, 0, 0, None, 0)
reached("io_uring_register", -1, 0, None, 0)
reached("keyctl", 0, -3, 1)
reached("add_key", b"user\0", b"mayfly\0", b"x", 1, -2)
reached("request_key", b"user\0", b"mayfly\0", None, -2)
reached("userfaultfd", 1)
reached("bpf", 0, zeros, 16)
reached("perf_event_open", zeros, 0, -1, -1, 0)
reached("open_by_handle_at", -100, zeros, 0)
reached("setns", -1, 0)
for name, flag in (("user", 0x10000000), ("mount", 0x20000), ("net", 0x40000000), ("pid", 0x20000000),
                   ("ipc", 0x8000000), ("uts", 0x4000000), ("cgroup", 0x2000000)):
    attempt(f"unshare {name}", (EPERM,), lambda: call("unshare", flag))

    def deed():
        child = call("clone", flag | signal.SIGCHLD, None, None, None, None)
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
        return "a process"
    attempt(f"clone {name}", (EPERM,), deed)
must("a plain clone", (lambda child: child or os._exit(0))(call("clone", signal.SIGCHLD, None, None, None, None)))


@attack("clone3", ENOSYS)
def _():
    # In the flags' place: CLONE_NEWUSER; no exit signal.
    arguments = struct.pack("8Q", 0x10000000, *[0] * 7)
    child = call("clone3", arguments, 64)
    if child == 0:
        os._exit(0)
    return "a process"


reached("mount", b"none\0", b"/nonexistent\0", b"tmpfs\0", 0, None)
reached("umount2", b"/nonexistent\0", 0)
reached("pivot_root", b"/nonexistent\0", b"/nonexistent\0")
reached("chroot", b"/nonexistent\0")
reached("open_tree", -100, b"/nonexistent\0", 0)
reached("move_mount", -1, b"\0", -1, b"\0", 0)
reached("fsopen", b"nonesuch\0", 0)
reached("mount_setattr", -100, b"/nonexistent\0", 0, zeros, 32)
reached("pidfd_getfd", -1, 0, 0)
reached("process_madvise", -1, None, 0, 0, 0)
for name in (444, 445, 446):
    NR[f"landlock {name}"] = (name, name)
for name, arguments in (("landlock 444", (None, 0, 1)), ("landlock 445", (-1, 1, None, 0)), ("landlock 446", (-1, 0))):
    def deed():
        try:
            return call(name, *arguments)
        except OSError as error:
            if error.errno == ENOSYS:
                raise
            return "the kernel was reached"
    attempt(name, (ENOSYS,), deed)
reached("kcmp", os.getpid(), os.getpid(), 1, 0, 0)
reached("move_pages", 0, 0, None, None, None, 0)
reached("migrate_pages", os.getpid(), 0, None, None)
reached("mbind", None, 0, 0, None, 0, 0)
reached("finit_module", -1, b"\0", 0)
reached("init_module", None, 0, b"\0")
reached("delete_module", b"nonesuch\0", 0)
reached("kexec_load", 0, 17, None, 0)
reached("reboot", 0, 0, 0, None)
reached("swapon", b"/nonexistent\0", 0)
reached("acct", b"/nonexistent\0")
reached("quotactl", 0, None, 0, None)
reached("syslog", 10, None, 0)
reached("settimeofday", ctypes.c_void_p(1), None)
reached("clock_settime", 0, ctypes.c_void_p(1))
reached("fanotify_init", 0xFFFF, 0)
attempt("sethostname", (EPERM,), lambda: socket.sethostname(socket.gethostname()))
if X86:
    reached("modify_ldt", 0, params, 16)
    attempt("iopl", (EPERM,), lambda: call("iopl", 3))
    attempt("ioperm", (EPERM,), lambda: call("ioperm", 0x80, 1, 1))
else:
    for name in ("modify_ldt", "iopl", "ioperm"):
        print(f"{name}: refused, this architecture has none")


@attack("personality without ASLR", EPERM)
def _():
    return call("personality", 0x40000)


def machine_code(name, code):
    """Enters the kernel by another door than the one the filter knows."""
    def deed():
        if not X86:
            raise Refused("this architecture has no such door")
        page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        page.write(code)
        entry = ctypes.addressof(ctypes.c_char.from_buffer(page))
        result = ctypes.CFUNCTYPE(ctypes.c_int)(entry)()
        if result == -ENOSYS:
            raise OSError(ENOSYS, "no such door in this kernel")
        return result
    attempt(name, (-31, ENOSYS), deed)


PUSH, POP = b"\x53", b"\x5b\xc3"
# eax = 20, getpid of i386.
machine_code("int 0x80", PUSH + b"\xb8\x14\0\0\0\xcd\x80" + POP)
# eax = 102, socketcall; ebx = 1, socket; ecx = 0, which is no address: EFAULT if it is let in.
machine_code("int 0x80 socketcall", PUSH + b"\xb8\x66\0\0\0\xbb\x01\0\0\0\x31\xc9\xcd\x80" + POP)
# eax = 39, getpid, with the bit of x32.
machine_code("x32 getpid", PUSH + b"\xb8\x27\0\0\x40\x0f\x05" + POP)
# eax = 41, socket(AF_VSOCK, SOCK_STREAM, 0), with the bit of x32.
machine_code("x32 socket", PUSH + b"\xb8\x29\0\0\x40\xbf\x28\0\0\0\xbe\x01\0\0\0\x31\xd2\x0f\x05" + POP)
must("machine code", (lambda page: page.write(b"\xb8\x27\0\0\0\x0f\x05\xc3") and ctypes.CFUNCTYPE(ctypes.c_int)(
    ctypes.addressof(ctypes.c_char.from_buffer(page)))() == os.getpid())(
        mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)) or not X86)

handle = os.open("/tmp/allocated", os.O_CREAT | os.O_RDWR)
for mode, name in ((0, "plain"), (1, "KEEP_SIZE"), (3, "PUNCH_HOLE"), (0x10, "ZERO_RANGE")):
    attempt(f"fallocate {name}", (EOPNOTSUPP,), lambda: call("fallocate", handle, mode, 0, 1 << 20))
