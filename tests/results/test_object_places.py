# SPDX-License-Identifier: Apache-2.0
"""Where a run may be copied to: addresses that its library reads back, and prefixes that no other run uses. A refused
copy deletes, replaces and leaves nothing."""

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

import curation
from curation.base.errors import CurationError, OutputError
from curation.cli import main
from curation.results.finished import object_store
from curation.results.finished.object_copy import ObjectCopy, work_folder
from curation.results.finished.object_store import ObjectStore
from curation.running.run import run
from tests.needs import needs
from tests.runs import made_texts, recipe_of, records_of

FIRST = "memory://bucket/runs/first"
ROOT = "/bucket/runs/first"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MemoryFileSystem]:
    """An empty store; the current folder has an input."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(object_store, "FIRST_WAIT_SECONDS", 0.0)
    (tmp_path / "a.jsonl").write_bytes(records_of(made_texts(20)))
    files = fsspec.filesystem("memory")
    yield files
    files.store.clear()
    files.pseudo_dirs[:] = [""]


def run_to(url: str, **more: Any) -> curation.RunResult:
    return run(recipe_of(Path("a.jsonl")), url, engine="cpu", workers=1, scheduler="threads", progress=False, **more)


NAMES = (
    "run#1",
    "a b",
    "100%",
    "%2F",
    "%2e%2e",
    "a&b=c+d;e",
    "x?",
    "a?b=c#d",
    "a::b",
    "ü",
    "日本",
    "[1]*",
    "...",
    "a@b",
)
REFUSED = {  # address after the protocol -> part of the message
    "": "names no bucket. Give an output such as s3://BUCKET/PREFIX",
    "/run": "names no bucket",
    "ALICE:S3CRET@b/run": "has a user name or password, which belongs in AWS_ACCESS_KEY_ID",
    "S3CRET@b/run": "has a user name or password",
    "ALICE:S3/CRET@b/run": "write / as %2F",
    "b/key?versionId=3": "has a query (`?`): an output has none. Give an output such as",
    "b/key?sig=S3CRET": "has a query",
    "b/run?": "has a query",
    "b?S3CRET": "has a query",
    "b//run": "has an empty part, `.` or `..` between two `/`",
    "b/run//": "has an empty part",
    "b/a//run": "has an empty part",
    "b/../c": "has an empty part, `.` or `..`",
    "b/./run": "has an empty part",
    "b/..": "has an empty part",
    "b/a::b": "`::` separates URLs",
    "b/run::s3://c/run": "has `::`, which separates URLs",
    "b/\udcff": "has bytes that are not UTF-8",
}


@pytest.mark.parametrize("protocol", object_store.PROTOCOLS)
def test_addresses_that_are_refused_reach_no_store_and_make_no_folder(
    store: MemoryFileSystem, protocol: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr("fsspec.url_to_fs", lambda *_, **__: pytest.fail("it asks the library"))
    for address, message in REFUSED.items():
        url = f"{protocol}://{address}"
        for command in (
            ["run", "-i", "a.jsonl", "--stages", "exact_dedup", "--engine", "cpu", "-o", url],
            ["verify", url],
        ):
            assert main(command) == 2
            out, err = capsys.readouterr()
            [line] = err.splitlines()
            assert line.startswith("curate: ") and message in line and "S3CRET" not in out + err, url
    assert os.listdir() == ["a.jsonl"] and not store.store


@pytest.mark.parametrize("protocol", object_store.PROTOCOLS)
def test_addresses_that_are_kept_are_the_ones_of_the_library(protocol: str):
    if protocol != "memory":
        needs("s3fs")
    for name in (name for name in NAMES if "?" not in name and "::" not in name):
        url = f"{protocol}://bucket/{name}"
        objects = ObjectStore(f"{url}/")
        assert objects.url == url and work_folder(url, "").name.startswith(f"{name}-")
        objects.check_names([*NAMES, *(f"{one}/{two}" for one in NAMES for two in NAMES)])
        assert [above.url for above in objects.above()] == [f"{protocol}://bucket"]
        for odd in (
            "documents/",
            "/documents",
            "a//b",
            "../first",
            "a/.",
            *["x?versionId=1.csv"] * (protocol != "memory"),
        ):
            with pytest.raises(OutputError, match="may take this name for another one"):
                objects.check_names([odd])


def test_an_address_that_the_library_reads_as_another_one_is_refused(monkeypatch: pytest.MonkeyPatch):
    s3fs = needs("s3fs")
    for read in (("bucket", "other", None), ("other", "run", None), ("bucket", "run", "3")):
        monkeypatch.setattr(s3fs.S3FileSystem, "split_path", lambda self, path, read=read: read)
        with pytest.raises(
            OutputError, match=r"^s3://bucket/run: a library or a server may take this name for another"
        ):
            ObjectStore("s3://bucket/run")


def test_objects_of_any_name_are_written_read_and_listed(store: MemoryFileSystem):
    for prefix in (name for name in NAMES if "?" not in name and "::" not in name):
        objects = ObjectStore(f"memory://bucket/{prefix}")
        assert all(objects.create(name, name.encode()) for name in NAMES)
        assert objects.names() == {name: len(name.encode()) for name in NAMES}
        assert all(objects.read(name) == name.encode() for name in NAMES)
    assert len(store.store) == len(NAMES) * (len(NAMES) - 3)


def test_an_output_that_is_the_version_of_an_object_keeps_the_object(store: MemoryFileSystem):
    store.pipe_file("/b/key", b"the only copy")
    for url in ("memory://b/key?versionId=3", "memory://b/key"):
        with pytest.raises(OutputError, match=r"has a query|is an object"):
            run_to(url)
    assert {path: store.cat(path) for path in store.store} == {"/b/key": b"the only copy"}


def claimed(store: MemoryFileSystem) -> None:
    with ObjectCopy(FIRST, Path("first").absolute()).claimed("mine", "1"):
        pass


def finished(store: MemoryFileSystem) -> None:
    run_to(FIRST, work="first")


def uploaded(store: MemoryFileSystem) -> None:
    """A finished run that another program has copied."""
    finished(store)
    store.rm(f"{ROOT}/copy.json")


@pytest.mark.parametrize("state", [claimed, finished, uploaded])
def test_no_run_is_copied_into_another_one_or_around_it(
    store: MemoryFileSystem, state: Callable[[MemoryFileSystem], None]
):
    state(store)
    before = dict(store.store)
    for url, message in {
        f"{FIRST}/documents": rf"{FIRST}/documents lies in {FIRST}, which holds a run",
        f"{FIRST}/a/b": rf"{FIRST}/a/b lies in {FIRST}, which holds a run",
        "memory://bucket/runs": r"memory://bucket/runs is not empty: it has 'first/",
        "memory://bucket": r"memory://bucket is not empty: it has 'runs/first/",
    }.items():
        with pytest.raises(OutputError, match=message):
            run_to(url, work="second")
        assert store.store == before and not Path("second").exists()
    run_to("memory://bucket/runs/f", work="second")  # a neighbour, whose name is the beginning of another one
    assert store.store.items() >= before.items()


@pytest.mark.parametrize("place", ["/bucket", "/bucket/runs"])
def test_files_above_a_prefix_that_are_of_no_run_do_not_matter(
    store: MemoryFileSystem, place: str, monkeypatch: pytest.MonkeyPatch
):
    for name, data in (("report.json", b'{"digest": ""}'), ("copy.json", b"[]"), ("copy.json", b"{")):
        store.pipe_file(f"{place}/{name}", data)
    claimed(store)
    cat = MemoryFileSystem.cat_file

    def denied(self: MemoryFileSystem, path: str, **more: Any) -> bytes:
        if not path.startswith(f"{ROOT}/"):
            raise PermissionError(path)
        return cat(self, path, **more)

    monkeypatch.setattr(MemoryFileSystem, "cat_file", denied)
    store.rm(f"{ROOT}/copy.json")
    claimed(store)


MEANWHILE = {  # object that another process writes during the claim -> message
    f"{ROOT}/notes.txt": "is not empty: it has 'notes.txt'",
    f"{ROOT}/below/copy.json": "is not empty: it has 'below/copy.json'",
    "/bucket/runs/copy.json": "lies in memory://bucket/runs, which holds a run",
    "/bucket/copy.json": "lies in memory://bucket, which holds a run",
}


@pytest.mark.parametrize("may_delete", [True, False])
@pytest.mark.parametrize("path", MEANWHILE)
def test_a_claim_is_taken_back_if_the_prefix_is_not_free_any_more(
    store: MemoryFileSystem, path: str, may_delete: bool, monkeypatch: pytest.MonkeyPatch
):
    claim, pipe = b'{"format":1,"recipe":"other","work":"2"}', MemoryFileSystem.pipe_file

    def meanwhile(self: MemoryFileSystem, written: str, data: bytes, **more: Any) -> None:
        pipe(self, written, data, **more)
        if written == f"{ROOT}/copy.json":
            pipe(self, path, claim)
            if not may_delete:
                monkeypatch.setattr(MemoryFileSystem, "rm_file", denied)

    def denied(*_: Any) -> None:
        raise PermissionError

    monkeypatch.setattr(MemoryFileSystem, "pipe_file", meanwhile)
    with pytest.raises(OutputError, match=MEANWHILE[path]) as raised:
        claimed(store)
    assert store.store.keys() == ({path} if may_delete else {path, f"{ROOT}/copy.json"})
    assert (f"{FIRST}/copy.json could not be deleted" in str(raised.value)) is not may_delete


@pytest.mark.parametrize("lost", ["first answer", "all answers", "reading", "none"])
def test_the_probe_is_deleted_if_this_call_wrote_it_and_never_if_another_did(
    store: MemoryFileSystem, lost: str, monkeypatch: pytest.MonkeyPatch
):
    numbers = iter(["aa", "own content", "bb", "own content"])
    monkeypatch.setattr(object_store.secrets, "token_hex", lambda _: next(numbers))
    theirs = f"{ROOT}/condition-probe-aa"
    store.pipe_file(theirs, b"theirs")
    objects, pipe, calls = ObjectStore(FIRST), MemoryFileSystem.pipe_file, list[str]()

    def answer(self: MemoryFileSystem, path: str, data: bytes, **more: Any) -> None:
        calls.append(path)
        pipe(self, path, data, **more)
        if lost == "all answers" or (lost == "first answer" and calls.count(path) == 1):
            raise TimeoutError

    monkeypatch.setattr(MemoryFileSystem, "pipe_file", answer)
    objects.check_condition()
    with suppress(CurationError):
        objects.check_condition()
    assert {path: store.cat(path) for path in store.store} == {theirs: b"theirs"}
