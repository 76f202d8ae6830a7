# A tree deeper than any path.
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, signal.SIG_IGN)
for level in range(300 if os.environ["BRANCHES"] else 4000):
    os.mkdir(f"d{level:0>99}")
    if os.environ["BRANCHES"]:
        # The order of names in a folder is the file system's, so each has other ones.
        os.mkdir(f"a{level}")
        os.mkdir(f"z{level}")
    os.chdir(f"d{level:0>99}")
open("bottom", "w").write("x")
print("deep", flush=True)
time.sleep(float(os.environ["THEN"]))
