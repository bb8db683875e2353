# SPDX-License-Identifier: Apache-2.0
"""An HTTP server on this machine that has one file under any path, and can be told to misbehave."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

STALLED_SECONDS = 5


class Answer(NamedTuple):
    """How the server answers a request."""

    data: bytes  # the whole file
    status: int = 0  # of a refusal
    etag: str = ""
    length: int = -1  # that it claims the file to have
    cut: int = -1  # bytes after which it ends the connection
    stalls: bool = False


class Files:
    """`answer` gets the number of the request, from 1 on; `password` is what basic authorisation must give."""

    def __init__(self, data: bytes) -> None:
        self.answer: Callable[[int], Answer] = lambda number: Answer(data)
        self.authorization = ""
        self.requests = 0
        self.address = ""


@contextmanager
def served(data: bytes) -> Iterator[Files]:
    files = Files(data)

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.reply(False)

        def do_GET(self) -> None:
            self.reply(True)

        def reply(self, with_body: bool) -> None:
            files.requests += 1
            answer = files.answer(files.requests)
            if answer.stalls:
                time.sleep(STALLED_SECONDS)
                return
            if files.authorization not in ("", self.headers.get("Authorization")):
                answer = answer._replace(status=401)
            if answer.status:
                self.send_response(answer.status)
                if 300 <= answer.status < 400:
                    self.send_header("Location", self.path)
                self.end_headers()
                return
            size = len(answer.data) if answer.length < 0 else answer.length
            start, stop = 0, size
            if wanted := self.headers.get("Range"):
                first, _, last = wanted.removeprefix("bytes=").partition("-")
                start, stop = int(first), min(int(last) + 1, size)
            self.send_response(206 if wanted else 200)
            body = answer.data[start:stop]
            self.send_header("Content-Length", str(len(body) if wanted else stop - start))
            self.send_header("Accept-Ranges", "bytes")
            if wanted:
                self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{size}")
            if answer.etag:
                self.send_header("ETag", answer.etag)
            self.end_headers()
            if with_body:
                self.wfile.write(body if answer.cut < 0 else body[: answer.cut])

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    files.address = f"127.0.0.1:{server.server_port}"
    yield files
    server.shutdown()
    server.server_close()
    thread.join()
