# What every table of attacks shares. One line is printed for each attack:
#   NAME: refused WHY     in the way the table expects
#   NAME: SUCCEEDED WHAT
#   NAME: BROKEN WHY      neither: the script is wrong, or the refusal is another than expected
# Each attack runs in a child of its own, so that one cannot spoil the next.
import ctypes, errno, os, platform, signal, socket, struct, sys, time
from errno import *

libc = ctypes.CDLL(None, use_errno=True)
X86 = platform.machine() == "x86_64"
NR = {  # system calls that Python has no name for: x86_64, aarch64
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "prlimit64": (302, 261), "ioprio_set": (251, 30), "get_robust_list": (274, 100),
    "kcmp": (312, 272), "move_pages": (279, 239), "migrate_pages": (256, 238),
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    "userfaultfd": (323, 282), "bpf": (321, 280), "perf_event_open": (298, 241),
    "unshare": (272, 97), "setns": (308, 268), "clone": (56, 220), "clone3": (435, 435),
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51),
    "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430),
    "mount_setattr": (442, 442), "open_by_handle_at": (304, 265), "personality": (135, 92),
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    "pidfd_open": (434, 434), "pidfd_send_signal": (424, 424), "pidfd_getfd": (438, 438),
    "process_mrelease": (448, 448), "process_madvise": (440, 440), "fallocate": (285, 47),
    "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106),
    "kexec_load": (246, 104), "reboot": (169, 142), "swapon": (167, 224), "acct": (163, 89),
    "quotactl": (179, 60), "syslog": (103, 116), "settimeofday": (164, 170),
    "clock_settime": (227, 112), "fanotify_init": (300, 262), "modify_ldt": (154, -1),
    "iopl": (172, -1), "ioperm": (173, -1), "mbind": (237, 235),
}


def call(name, *arguments):
    """A raw system call; an error is an OSError."""
    number = NR[name][0 if X86 else 1]
    ctypes.set_errno(0)
    words = [a if isinstance(a, ctypes._SimpleCData | ctypes.Array | bytes) or a is None
             or not isinstance(a, int) else ctypes.c_long(a) for a in arguments]
    result = libc.syscall(ctypes.c_long(number), *words)
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


class Refused(Exception):
    """Refused in a way that is no error number."""


def attempt(name, errors, deed):
    """Runs `deed` in a child. `errors` are the error numbers that count as a refusal, signals
    negative."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        signal.alarm(10)
        try:
            line = f"SUCCEEDED {deed()}"
        except Refused as refusal:
            line = f"refused {refusal}"
        except OSError as error:
            code = errno.errorcode.get(error.errno, error.errno)
            line = f"{'refused' if error.errno in errors else 'BROKEN'} {code}"
        except BaseException as error:
            line = f"BROKEN {error!r}"
        os.write(1, f"{name}: {line}\n".encode())
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        verdict = "refused" if -number in errors else "BROKEN"
        os.write(1, f"{name}: {verdict} signal {number}\n".encode())


def attack(name, *errors):
    return lambda deed: attempt(name, errors, deed)


def must(what, holds):
    """A condition without which the script itself is wrong."""
    if not holds:
        os.write(1, f"{what}: BROKEN\n".encode())


def victim():
    """A child that only sleeps, for attacks that have to work on one's own."""
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        libc.prctl(0x59616D61, ctypes.c_ulong(2**64 - 1), 0, 0, 0)  # PR_SET_PTRACER: anybody
        while True:
            signal.pause()
    return child
