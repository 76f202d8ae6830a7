# The first thread ends, another stays: a process whose leader is a zombie.
import _thread
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, signal.SIG_IGN)
_thread.start_new_thread(lambda: time.sleep(600), ())
time.sleep(0.2)
os.write(1, b"headless\n")
libc.syscall(ctypes.c_long(60 if X86 else 93), ctypes.c_long(0))
