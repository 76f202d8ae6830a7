# Connections that never say what they want.
ends = [socket.create_connection(("127.0.0.1", 8079)) for _ in range(64)]
began = time.monotonic()
signal.alarm(0)


def deed():
    # The children of `attempt` may take 10 s; this one is asked to be done by itself.
    signal.alarm(25)
    end = ends[0]
    end.settimeout(20)
    while time.monotonic() - began < 20:
        try:
            end.send(b"x")
        except OSError:
            raise Refused(f"let go after {time.monotonic() - began:.0f} s")
        time.sleep(0.5)
    return "20 s and still open"


attempt("a request that never ends", (), deed)


@attack("a place taken for ever")
def _():
    signal.alarm(25)
    answer = b""
    with socket.create_connection(("127.0.0.1", 8079)) as end:
        end.settimeout(5)
        end.sendall(b"GET / HTTP/1.1\r\n\r\n")
        answer = end.recv(100)
    if answer.startswith(b"HTTP/1.1 403"):
        raise Refused("there is room again")
    return answer
