# SPDX-License-Identifier: Apache-2.0
"""A server that never completes an answer: it is silent, or sends a little every 10 ms."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import chain, cycle, islice

OK = b"HTTP/1.1 200 OK\r\n"
STALLS: dict[str, tuple[list[bytes], list[bytes]]] = {  # pieces, and pieces that are repeated
    "silence": ([], []),
    "headers": ([OK], [b"X-More: 1\r\n"]),
    "body": ([OK, b"Content-Length: 9999999\r\n\r\n"], [b" "]),
    "error": ([b"HTTP/1.1 503 Slow\r\nContent-Length: 9999999\r\n\r\n"], [b" "]),
    "continue": ([], [b"HTTP/1.1 100 Continue\r\n\r\n"]),
}
HALF = [OK, b"Content-Length: 9\r\n\r\n", b"half"]
MOST = 3000  # pieces, so that a client without a limit ends, too


class Raw:
    """`stall` is a key of STALLS, or "half" for 4 of 9 bytes. It reads only the begin of a request."""

    stall = "silence"

    def __init__(self) -> None:
        self.ended = threading.Event()
        self.server = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self.server.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self) -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=self.answer, args=[self.server.accept()[0]], daemon=True).start()

    def answer(self, connection: socket.socket) -> None:
        begin, rest = (HALF, []) if self.stall == "half" else STALLS[self.stall]
        with connection, suppress(OSError):
            if connection.recv(1 << 16).startswith(b"HEAD") and self.stall == "half":
                connection.sendall(OK + b"Content-Length: 9\r\nConnection: close\r\n\r\n")
                return
            for piece in chain(begin, islice(cycle(rest), MOST)):
                connection.sendall(piece)
                if self.ended.wait(0.01):
                    return
            self.ended.wait(60)


@contextmanager
def serve() -> Iterator[Raw]:
    raw = Raw()
    try:
        yield raw
    finally:
        raw.ended.set()
        raw.server.shutdown(socket.SHUT_RDWR)
        raw.server.close()
