# SPDX-License-Identifier: Apache-2.0
"""An OpenAI-compatible endpoint on this machine, whose behaviour a test gives."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Body = dict[str, Any]


def completion(text: str | None, reason: str = "stop", **more: Any) -> Body:
    """The answer of an endpoint. It counts words as tokens."""
    usage = {"prompt_tokens": 10, "completion_tokens": len((text or "").split())}
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": reason}
    return {"id": "x", "object": "chat.completion", "choices": [choice], "usage": usage} | more


class Reply:
    """What a handler writes: a status, headers and a body, of which only `sent` bytes are written before the end, with
    a `pause` in seconds after each tenth."""

    def __init__(self, body: Any, status: int = 200, sent: int = -1, pause: float = 0, **headers: str) -> None:
        self.body = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.status, self.sent, self.pause, self.headers = status, sent, pause, headers


class Local:
    """The requests that an endpoint got, in the order of their arrival."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.requests: list[Body] = []
        self.keys: list[str] = []
        self.paths: list[str] = []

    @property
    def prompts(self) -> list[str]:
        return [request["messages"][-1]["content"] for request in self.requests]


@contextmanager
def serving(answer: Callable[[Body, int], Any]) -> Iterator[Local]:
    """An endpoint that answers with `answer(request, number)`: a Reply, a completion, or a text."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                number = len(local.requests)
                local.requests.append(request)
                local.keys.append(self.headers.get("Authorization", ""))
                local.paths.append(self.path)
            found = answer(request, number)
            reply = found if isinstance(found, Reply) else Reply(completion(found) if isinstance(found, str) else found)
            self.send_response(reply.status)
            for name, value in reply.headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.send_header("Content-Length", str(len(reply.body)))
            self.end_headers()
            body = reply.body if reply.sent < 0 else reply.body[: reply.sent]
            pieces = len(body) // 10 + 1 if reply.pause else len(body) + 1
            with suppress(OSError):  # the client has closed the connection
                for start in range(0, len(body), pieces):
                    self.wfile.write(body[start : start + pieces])
                    time.sleep(reply.pause)
            self.close_connection = reply.sent >= 0

        def log_message(self, *arguments: Any) -> None:
            """Print nothing."""

    lock = threading.Lock()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    local = Local(f"http://127.0.0.1:{server.server_port}/v1")
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield local
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def trickling(answers: dict[str, tuple[bytes, bytes]]) -> Iterator[str]:
    """An endpoint that writes the first bytes of the answer whose text is in the request, then the others again and
    again, for minutes or until the client has closed the connection. The context ends when all are closed."""

    def write(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            request, found = b"", None
            while found is None:
                request += connection.recv(65_536)
                found = next((answer for text, answer in answers.items() if text.encode() in request), None)
            start, more = found
            connection.sendall(start)
            connection.settimeout(0.05)
            for _ in range(6_000):
                with suppress(TimeoutError):
                    if not connection.recv(65_536):
                        return
                connection.sendall(more)

    def accept() -> None:
        with suppress(OSError):
            while True:
                threads.append(threading.Thread(target=write, args=(listener.accept()[0],)))
                threads[-1].start()

    threads: list[threading.Thread] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        accepting = threading.Thread(target=accept)
        accepting.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}/v1"
        listener.shutdown(socket.SHUT_RDWR)
        accepting.join()
    for thread in threads:
        thread.join()
