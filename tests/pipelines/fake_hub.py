# SPDX-License-Identifier: Apache-2.0
"""A hub for one data set, `o/n`, on this machine: what `datasets` asks of the real one, answered from memory."""

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

CARD = """---
configs:
- config_name: small
  data_files:
  - {split: train, path: small/train-*.jsonl}
  - {split: test, path: small/test.jsonl}
- config_name: other
  data_files:
  - {split: train, path: other.jsonl}
---
"""


def lines(what: str, count: int = 400) -> bytes:
    return b"".join(json.dumps({"id": n, "content": f"{what} {n}"}).encode() + b"\n" for n in range(count))


def files_of(version: str) -> dict[str, bytes]:
    """The data set as it is at one commit."""
    return {
        "README.md": CARD.encode(),
        "small/train-0.jsonl": lines(f"{version} small train-0"),
        "small/train-1.jsonl": lines(f"{version} small train-1"),
        "small/test.jsonl": lines(f"{version} small test"),
        "other.jsonl": lines(f"{version} other"),
    }


class Hub:
    """`main` is what the branch points to, `refuse` (path, status) what is answered to some paths in place of the file:
    0 is a connection that ends without an answer, -1 one that ends within the file."""

    def __init__(self) -> None:
        self.commits = {letter * 40: files_of(letter) for letter in "ab"}
        self.main = "a" * 40
        self.refuse: list[tuple[str, int]] = []
        self.endpoint = ""

    def find(self, revision: str) -> str:
        return {"main": self.main, "v1": "a" * 40}.get(revision, revision if revision in self.commits else "")


def _handler(hub: Hub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            status = next((status for part, status in hub.refuse if part in path), None)
            if status == 0:
                self.close_connection = True
            elif status is not None and status > 0:
                code = {404: "RepoNotFound", 403: "GatedRepo"}.get(status, "")
                self.answer(status, b"", **({"X-Error-Code": code} if code else {}))
            elif found := re.fullmatch(r"/datasets/o/n/resolve/([^/]+)/(.*)", path):
                self.give_file(hub.find(found[1]), found[2], cut=status == -1)
            elif found := re.fullmatch(r"/api/datasets/o/n/tree/([^/]+)/?(.*)", path):
                self.answer_json(self.tree(hub.find(found[1]), found[2]))
            elif found := re.fullmatch(r"/api/datasets/o/n(?:/revision/(.*))?", path):
                commit = hub.find(found[1] or "main")
                names = [{"rfilename": name} for name in hub.commits[commit]]
                self.answer_json({"id": "o/n", "sha": commit, "private": False, "tags": [], "siblings": names})
            else:
                self.answer(404, b"", **{"X-Error-Code": "RepoNotFound"})

        do_HEAD = do_GET  # noqa: N815 - the name that the server looks for

        def tree(self, commit: str, folder: str) -> list[dict[str, object]]:
            """The files and folders right in a folder; "" is the root."""
            found: dict[str, dict[str, object]] = {}
            for name, data in hub.commits[commit].items():
                if not name.startswith(f"{folder}/" if folder else ""):
                    continue
                inner, *rest = name.removeprefix(f"{folder}/" if folder else "").split("/")
                path = f"{folder}/{inner}" if folder else inner
                kind = "directory" if rest else "file"
                oid = hashlib.sha1(b"" if rest else data).hexdigest()
                found[path] = {"type": kind, "path": path, "size": 0 if rest else len(data), "oid": oid}
            return [*found.values()]

        def give_file(self, commit: str, name: str, cut: bool) -> None:
            data = hub.commits.get(commit, {}).get(name)
            if data is None:
                self.answer(404, b"", **{"X-Error-Code": "EntryNotFound" if commit else "RevisionNotFound"})
                return
            headers = {"ETag": f'"{hashlib.sha1(data).hexdigest()}"', "X-Repo-Commit": commit, "Accept-Ranges": "bytes"}
            asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
            if asked and self.command == "GET":
                first, last = int(asked[1]), min(int(asked[2] or len(data)), len(data) - 1)
                headers["Content-Range"] = f"bytes {first}-{last}/{len(data)}"
                self.answer(206, data[first : last + 1], cut, **headers)
            else:
                self.answer(200, data, cut, **headers)

        def answer_json(self, content: object) -> None:
            self.answer(200, json.dumps(content).encode(), **{"Content-Type": "application/json"})

        def answer(self, status: int, body: bytes, cut: bool = False, **headers: str) -> None:
            self.send_response(status)
            for name, value in (headers | {"Content-Length": str(len(body))}).items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body[: len(body) // 2] if cut else body)
                self.close_connection = cut

        def log_message(self, *_: object) -> None: ...

    return Handler


@contextmanager
def serve() -> Iterator[Hub]:
    hub = Hub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(hub))
    hub.endpoint = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
