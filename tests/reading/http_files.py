# SPDX-License-Identifier: Apache-2.0
"""An HTTP server on this machine that has one file under any path, and can be told to misbehave."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple


class Request(NamedTuple):
    """A request for the bytes from `start` to `stop`; -1: for the whole file. `number` counts from 1 on."""

    number: int
    method: str
    start: int
    stop: int
    condition: str  # If-Match

    @property
    def is_later_part(self) -> bool:
        return self.method == "GET" and self.start > 0


class Answer(NamedTuple):
    """How the server answers a request."""

    data: bytes  # the whole file
    status: int = 0  # other than 200 and 206; without a body, if it is no success
    etag: str = ""
    modified: str = ""
    length: int = -1  # that it claims the file to have
    cut: int = -1  # bytes after which it ends the connection
    sends_ranges: bool = True
    shift: int = 0  # of the part that it sends to the one that was asked for
    longest: int = 1 << 30  # part that it sends
    headers: Mapping[str, str | None] = {}  # in place of its own; None: without one
    raw: bytes = b""  # in place of the whole answer, after which it waits


class Files:
    """`answer` tells how a request is answered; `authorization` is what it must give."""

    def __init__(self, data: bytes) -> None:
        self.answer: Callable[[Request], Answer] = lambda request: Answer(data)
        self.authorization = ""
        self.requests: list[Request] = []
        self.address = ""
        self.ended = threading.Event()


@contextmanager
def served(data: bytes) -> Iterator[Files]:
    files = Files(data)

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.reply()

        def do_GET(self) -> None:
            self.reply()

        def reply(self) -> None:
            start, stop = -1, -1
            if wanted := self.headers.get("Range"):
                first, _, last = wanted.removeprefix("bytes=").partition("-")
                start, stop = int(first), int(last) + 1
            condition = self.headers.get("If-Match", "")
            files.requests.append(Request(len(files.requests) + 1, self.command, start, stop, condition))
            answer = files.answer(files.requests[-1])
            if files.authorization not in ("", self.headers.get("Authorization")):
                answer = answer._replace(status=401)
            if answer.raw:
                self.wfile.write(answer.raw)
                files.ended.wait()
            else:
                self.give(answer, start, stop)

        def give(self, answer: Answer, start: int, stop: int) -> None:
            size = len(answer.data) if answer.length < 0 else answer.length
            is_part = start >= 0 and answer.sends_ranges
            start, stop = (start + answer.shift, min(stop, size, start + answer.longest)) if is_part else (0, size)
            body = answer.data[start : max(stop, start)]
            headers: dict[str, str | None] = {"Content-Length": str(len(body) if is_part else size)}
            if is_part:
                headers["Content-Range"] = f"bytes {start}-{max(stop, start) - 1}/{size}"
            if answer.sends_ranges:
                headers["Accept-Ranges"] = "bytes"
            status = answer.status or (206 if is_part else 200)
            if status in (204, 205):  # without a body
                headers["Content-Length"] = None
            headers |= {"ETag": answer.etag or None, "Last-Modified": answer.modified or None}
            if 300 <= status < 400:
                headers["Location"] = self.path
            self.send_response(status)
            for name, value in (headers | dict(answer.headers)).items():
                if value is not None:
                    self.send_header(name, value)
            self.end_headers()
            if self.command == "GET" and status in (200, 206):
                self.wfile.write(body if answer.cut < 0 else body[: answer.cut])

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.handle_error = lambda *_: None  # type: ignore[method-assign]  # of clients that end a transfer
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    files.address = f"127.0.0.1:{server.server_port}"
    yield files
    files.ended.set()
    server.shutdown()
    server.server_close()
    thread.join()
