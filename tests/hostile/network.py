# Reaching anything but the two sockets.

def reach(address, port, family=socket.AF_INET, kind=socket.SOCK_STREAM):
    with socket.socket(family, kind) as end:
        end.settimeout(3)
        end.connect((address, port))
        if kind == socket.SOCK_DGRAM:
            end.send(b"x")
    return "connected"


here = socket.create_server(("127.0.0.1", 0))
must("TCP where there is a way", reach(*here.getsockname()) == "connected")
NO_WAY = (ENETUNREACH, EHOSTUNREACH, EADDRNOTAVAIL, ECONNREFUSED)
for name, address, port in (
    ("the metadata service", "169.254.169.254", 80), ("docker's bridge", "172.17.0.1", 2375),
    ("a resolver", "8.8.8.8", 53), ("the host by name", "192.168.0.1", 80), ("broadcast", "255.255.255.255", 9),
):
    attempt(f"TCP to {name}", NO_WAY + (EACCES,), lambda: reach(address, port))
    attempt(f"UDP to {name}", NO_WAY + (EACCES,), lambda: reach(address, port, kind=socket.SOCK_DGRAM))
for address in ("2001:4860:4860::8888", "fe80::1", "fd00:ec2::254", "::ffff:169.254.169.254"):
    attempt(f"TCP to {address}", NO_WAY + (EINVAL,), lambda: reach(address, 80, socket.AF_INET6))


@attack("a name")
def _():
    try:
        return socket.getaddrinfo("example.com", 80)
    except socket.gaierror as error:
        raise Refused(str(error))


@attack("a raw socket", EPERM)
def _():
    socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)


@attack("any interface but loopback")
def _():
    found = [name for _, name in socket.if_nameindex() if name != "lo"]
    table = [line.split(":")[0].strip() for line in open("/proc/net/dev").readlines()[2:]]
    must("loopback is seen", "lo" in table)
    found += [name for name in table if name != "lo"]
    if not found:
        raise Refused("there is none")
    return found


@attack("any route")
def _():
    lines = open("/proc/net/route").readlines()[1:]
    lines += [line for line in open("/proc/net/ipv6_route") if not line.rstrip().endswith(" lo")]
    if not lines:
        raise Refused("there is none")
    return lines


@attack("make an interface", EPERM)
def _():
    # RTM_NEWLINK of type dummy; the kernel answers with an error message.
    info = struct.pack("HH", 10, 1) + b"dummy\0\0\0"
    info = struct.pack("HH", 4 + len(info), 18) + info
    body = struct.pack("BxHiII", 0, 0, 0, 0, 0) + info
    message = struct.pack("IHHII", 16 + len(body), 16, 0x605, 1, 0) + body
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as end:
        end.send(message)
        answer = end.recv(4096)
    code = -struct.unpack_from("i", answer, 16)[0]
    if code:
        raise OSError(code, "netlink")


@attack("bring loopback down", EPERM)
def _():
    import fcntl
    with socket.socket() as end:
        # SIOCSIFFLAGS with no flag set.
        fcntl.ioctl(end, 0x8914, struct.pack("16sH14x", b"lo", 0))


@attack("the engine's socket", ENOENT, EACCES)
def _():
    for path in ("/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock"):
        with socket.socket(socket.AF_UNIX) as end:
            end.connect(path)


@attack("any unix socket in a file")
def _():
    found = []
    for base, folders, names in os.walk("/"):
        if base in ("/proc", "/sys"):
            folders.clear()
        for name in names:
            try:
                if os.stat(os.path.join(base, name)).st_mode & 0o170000 == 0o140000:
                    found.append(os.path.join(base, name))
            except OSError:
                pass
    if not found:
        raise Refused("there is none")
    return found


@attack("any abstract socket of others")
def _():
    found = [line.split()[-1] for line in open("/proc/net/unix") if "@" in line]
    if not found:
        raise Refused("there is none")
    return found


def dial(path):
    def deed():
        with socket.socket(socket.AF_UNIX) as end:
            end.connect(path)
        return "connected"
    return deed


server = socket.socket(socket.AF_UNIX)
server.bind("/tmp/own")
server.listen()
must("a unix socket of one's own", dial("/tmp/own")() == "connected")
os.makedirs("/tmp/links", exist_ok=True)
for name in ("control", "gateway"):
    link = f"/tmp/links/{name}"
    os.symlink(f"/mayfly/run/{name}", link)
    attempt(f"dial {name}", (EACCES,), dial(f"/mayfly/run/{name}"))
    attempt(f"dial {name} by a link", (EACCES,), dial(link))
    attempt(f"dial {name} by /proc/1/root", (EACCES,), dial(f"/proc/1/root/mayfly/run/{name}"))
    attempt(f"dial {name} by /proc/self/root", (EACCES,), dial(f"/proc/self/root/mayfly/run/{name}"))
    attempt(f"hard link to {name}", (EACCES, EPERM, EXDEV), lambda: os.link(f"/mayfly/run/{name}", f"/work/{name}"))
    attempt(f"stand in for {name}", (EACCES, EROFS), lambda: socket.socket(socket.AF_UNIX).bind(f"/mayfly/run/{name}2"))
attempt("list the sockets' folder", (EACCES,), lambda: os.listdir("/mayfly/run"))


@attack("take the gateway's port", EADDRINUSE)
def _():
    for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):
        with socket.socket() as end:
            end.setsockopt(socket.SOL_SOCKET, option, 1)
            end.bind(("127.0.0.1", 8079))
            end.listen()


# The gateway: one line and 403, whatever is asked and how.
def ask(request):
    with socket.create_connection(("127.0.0.1", 8079), 5) as end:
        end.sendall(request)
        answer = b""
        while chunk := end.recv(4096):
            answer += chunk
    return answer


def refused(answer):
    head, _, body = answer.partition(b"\r\n\r\n")
    if head.startswith(b"HTTP/1.1 403 ") and body.count(b"\n") == 1 and body.startswith(b"mayfly: "):
        raise Refused("403")
    return answer


for name, request in (
    ("GET", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
    ("CONNECT", b"CONNECT example.com:443 HTTP/1.1\r\n\r\n"),
    ("an absolute URL", b"GET http://169.254.169.254/ HTTP/1.1\r\n\r\n"),
    ("no HTTP", bytes(range(256)) * 8 + b"\r\n\r\n"),
    ("an endless head", b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 5000),
):
    def deed():
        try:
            answer = ask(request)
        except ConnectionResetError:
            raise Refused("reset")
        return refused(answer)
    attempt(f"gateway, {name}", (), deed)


def curl(arguments, env=""):
    text = os.popen(f"{env} curl -s -m 5 -w '|%{{http_code}}' {arguments} 2>&1").read()
    if text == "mayfly: this agent has no grant to reach the network\n|403":
        raise Refused("403")
    return text


attempt("curl straight", (), lambda: curl("http://127.0.0.1:8079/anthropic/v1/messages -d {}"))
attempt("curl by proxy", (), lambda: curl("http://example.com/", "http_proxy=http://127.0.0.1:8079"))


@attack("curl by proxy, TLS")
def _():
    text = os.popen("https_proxy=http://127.0.0.1:8079 curl -s -m 5 -w '|%{http_connect}' https://example.com/").read()
    if text == "|403":
        raise Refused("403")
    return text


@attack("200 connections at once")
def _():
    ends = []
    for _ in range(200):
        end = socket.socket()
        end.settimeout(5)
        end.connect(("127.0.0.1", 8079))
        ends.append(end)
    for end in ends:
        try:
            end.send(b"GET / HTTP/1.1\r\n\r\n")
        except OSError:
            pass
    answers = []
    for end in ends:
        try:
            answers.append(end.recv(4096)[:12])
        except ConnectionResetError:
            answers.append(b"")
    must("some are answered", b"HTTP/1.1 403" in answers)
    if set(answers) <= {b"HTTP/1.1 403", b""}:
        raise Refused(f"{answers.count(b'')} of them were closed")
    return set(answers)


def deed():
    try:
        return refused(ask(b"GET / HTTP/1.1\r\n\r\n"))
    except ConnectionResetError:
        return "reset"
attempt("and one after them", (), deed)
