# Takes disk where a walk of the folders does not see it. `WAY` says how; each way holds files that
# are already deleted, until it is killed or has taken `ENOUGH`.
import mmap
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
way, enough, slowly = os.environ["WAY"], int(os.environ["ENOUGH"]), float(os.environ.get("SLOWLY", "0"))
MIB = 1 << 20
block, taken, held = os.urandom(MIB), 0, []


def deleted():
    handle = os.open("/work/grows", os.O_CREAT | os.O_RDWR | os.O_TRUNC)
    os.unlink("/work/grows")
    return handle


def fill(handle, count=8):
    global taken
    for _ in range(count):
        os.write(handle, block)
        taken += 1
        time.sleep(slowly)


def forever():
    os.write(1, f"took {taken} MiB\n".encode())
    while True:
        time.sleep(1)


if way == "open":
    handle = deleted()
    while taken < enough:
        fill(handle)
elif way == "unnamed":
    handle = os.open("/work", os.O_TMPFILE | os.O_RDWR)
    while taken < enough:
        fill(handle)
elif way == "mapped":
    while taken < enough:
        handle = deleted()
        fill(handle)
        held.append(mmap.mmap(handle, 8 * MIB, mmap.MAP_SHARED, mmap.PROT_READ))
        os.close(handle)
elif way == "mapped by a thread whose leader is gone":
    import _thread
    MAP = libc.mmap
    MAP.restype = ctypes.c_void_p

    def thread():
        time.sleep(0.3)
        while taken < enough:
            handle = deleted()
            fill(handle)
            # Not Python's own, which keeps a handle.
            MAP(None, ctypes.c_size_t(8 * MIB), 1, 1, handle, ctypes.c_long(0))
            os.close(handle)
        forever()
    _thread.start_new_thread(thread, ())
    libc.syscall(ctypes.c_long(60 if X86 else 93), ctypes.c_long(0))
elif way == "in a socket's queue":
    ends = []
    while taken < enough:
        handle = deleted()
        fill(handle)
        pair = socket.socketpair()
        socket.send_fds(pair[0], [b"x"], [handle])
        ends.append(pair)
        os.close(handle)
elif way == "in many files":
    name = 0
    while taken < enough:
        name += 1
        with open(f"/work/{name}", "wb", 0) as file:
            fill(file.fileno())
forever()
