# SPDX-License-Identifier: Apache-2.0
"""A hub for one data set, `o/n`, on this machine: what `datasets` asks of the real one, and what
`huggingface_hub` sends to it, in memory."""

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
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
    0 is a connection that ends without an answer, -1 one that ends within the file, -2 a header that never ends.
    `answers` are (path, status, body, headers) in place of what is asked for. Bytes in place of a status are
    answered with 200.

    Of what is sent: `token`, without which nothing may be written, `private`, None where the data set does not exist,
    `branches` besides `main`, and `received`, the bytes that came by their SHA-256. Names that end in `large` are sent
    before the commit, to the server `storage` if it is set; others within it."""

    def __init__(self) -> None:
        self.commits = {letter * 40: files_of(letter) for letter in "ab"}
        self.main = "a" * 40
        self.refuse: list[tuple[str, int | bytes]] = []
        self.answers: list[tuple[str, int, bytes, dict[str, str]]] = []
        self.closed = threading.Event()
        self.endpoint = ""
        self.token = "hf_written"
        self.private: bool | None = False
        self.branches: dict[str, str] = {"v1": "a" * 40}
        self.received: dict[str, bytes] = {}
        self.storage = ""
        self.large: tuple[str, ...] = (".parquet", ".mds")

    def find(self, revision: str) -> str:
        known = {"main": self.main, **self.branches}
        return known.get(revision, revision if revision in self.commits else "")

    def create(self, visibility: str) -> None:
        self.private, self.main, self.commits = visibility == "private", "c" * 40, {"c" * 40: {}}

    def described(self, revision: str, files: list[dict[str, str]]) -> list[dict[str, object]]:
        """How each file is to be sent, and what the hub has in its place."""
        found: list[dict[str, object]] = []
        for path in (file["path"] for file in files):
            data, is_large = self.commits[self.find(revision)].get(path), path.endswith(self.large)
            oid = None
            if data is not None:
                of_git = hashlib.sha1(b"blob %d\0" % len(data) + data)
                oid = (hashlib.sha256(data) if is_large else of_git).hexdigest()
            mode = "lfs" if is_large else "regular"
            found.append({"path": path, "uploadMode": mode, "shouldIgnore": False, "oid": oid})
        return found

    def commit(self, revision: str, lines: bytes) -> str:
        files = dict(self.commits[self.find(revision)])
        for entry in map(json.loads, lines.splitlines()):
            value = entry["value"]
            if entry["key"] == "deletedFile":
                del files[value["path"]]
            elif entry["key"] == "lfsFile":
                files[value["path"]] = self.received[value["oid"]]
            elif entry["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
        name = hashlib.sha1(lines).hexdigest()
        self.commits[name] = files
        if revision == "main":
            self.main = name
        else:
            self.branches[revision] = name
        return name


def _handler(hub: Hub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if self.is_refused(path):
                pass
            elif hub.private is None or ("/revision/" in path and not hub.find(path.rpartition("/")[2])):
                self.answer(404, b"", **{"X-Error-Code": "RepoNotFound"})
            elif found := re.fullmatch(r"/datasets/o/n/resolve/([^/]+)/(.*)", path):
                self.give_file(hub.find(found[1]), found[2], cut=self.status(path) == -1)
            elif found := re.fullmatch(r"/api/datasets/o/n/tree/([^/]+)/?(.*)", path):
                is_recursive = "recursive=true" in self.path.lower()
                self.answer_json(self.tree(hub.find(found[1]), found[2], is_recursive))
            elif found := re.fullmatch(r"/api/datasets/o/n(?:/revision/(.*))?", path):
                commit = hub.find(found[1] or "main")
                names = [{"rfilename": name} for name in hub.commits[commit]]
                self.answer_json({"id": "o/n", "sha": commit, "private": hub.private, "tags": [], "siblings": names})
            else:
                self.answer(404, b"", **{"X-Error-Code": "RepoNotFound"})

        do_HEAD = do_GET  # noqa: N815 - the name that the server looks for

        def status(self, path: str) -> int | bytes | None:
            return next((status for part, status in hub.refuse if part in path), None)

        def is_refused(self, path: str) -> bool:
            for part, code, body, headers in hub.answers:
                if part in path:
                    self.answer(code, body, **headers)
                    return True
            status = self.status(path)
            if isinstance(status, bytes):
                self.answer(200, status, **{"Content-Type": "application/json"})
                return True
            if status == 0:
                self.close_connection = True
            elif status == -2:
                self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Long: ")
                with suppress(ConnectionError):  # the client has given up
                    while not hub.closed.wait(0.05):
                        self.wfile.write(b"x")
                return True
            elif status is not None and status > 0:
                code = {404: "RepoNotFound", 403: "GatedRepo"}.get(status, "")
                self.answer(status, b"", **({"X-Error-Code": code} if code else {}))
            return status is not None and status >= 0

        def body(self) -> bytes:
            if "Content-Length" in self.headers:
                return self.rfile.read(int(self.headers["Content-Length"]))
            chunks = []
            while size := int(self.rfile.readline(), 16):
                chunks.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(chunks)

        def do_PUT(self) -> None:
            data = self.body()
            if not self.is_refused(self.path.partition("?")[0]):
                hub.received[hashlib.sha256(data).hexdigest()] = data
                self.answer(200, b"")

        def do_POST(self) -> None:
            data, path = self.body(), self.path.partition("?")[0]
            if self.is_refused(path):
                return
            if self.headers.get("Authorization") != f"Bearer {hub.token}":
                self.answer(401, b"")
            elif path == "/api/validate-yaml":
                self.answer_json({"errors": [], "warnings": [{"message": "no licence"}]})
            elif path == "/api/repos/create":
                is_new = hub.private is None
                if is_new:
                    hub.create(json.loads(data)["visibility"])
                self.answer_json({"url": f"{hub.endpoint}/datasets/o/n"}, 200 if is_new else 409)
            elif path.endswith("/info/lfs/objects/batch"):
                wanted = [entry for entry in json.loads(data)["objects"] if entry["oid"] not in hub.received]
                upload = {"actions": {"upload": {"href": f"{hub.storage or hub.endpoint}/received"}}}
                self.answer_json({"transfer": "basic", "objects": [entry | upload for entry in wanted]})
            elif found := re.fullmatch(r"/api/datasets/o/n/branch/(.+)", path):
                status = 409 if found[1] in hub.branches else 201
                hub.branches.setdefault(found[1], hub.main)
                self.answer(status, b"")
            elif found := re.fullmatch(r"/api/datasets/o/n/preupload/(.+)", path):
                self.answer_json({"files": hub.described(found[1], json.loads(data)["files"])})
            elif found := re.fullmatch(r"/api/datasets/o/n/commit/(.+)", path):
                name = hub.commit(found[1], data)
                self.answer_json({"commitUrl": f"{hub.endpoint}/datasets/o/n/commit/{name}", "commitOid": name})
            else:
                self.answer(404, b"", **{"X-Error-Code": "RepoNotFound"})

        def tree(self, commit: str, folder: str, is_recursive: bool) -> list[dict[str, object]]:
            """The files and folders right in a folder, or all files below it; "" is the root."""
            found: dict[str, dict[str, object]] = {}
            for name, data in hub.commits[commit].items():
                if not name.startswith(f"{folder}/" if folder else ""):
                    continue
                below = name.removeprefix(f"{folder}/" if folder else "")
                inner, *rest = [below] if is_recursive else below.split("/")
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

        def answer_json(self, content: object, status: int = 200) -> None:
            self.answer(status, json.dumps(content).encode(), **{"Content-Type": "application/json"})

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
        hub.closed.set()
        server.shutdown()
        server.server_close()
        thread.join()
