# SPDX-License-Identifier: Apache-2.0
"""Inputs behind HTTP: what a server may do, and what ends in one message that names the file."""

import asyncio
import bz2
import errno
import gzip
import hashlib
import os
import ssl
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from curation.base.errors import InputError, OutputError
from curation.reading import answers, copies, paths, probe, read_documents, remote
from curation.reading.answers import AnswerError
from curation.reading.formats import tabular
from curation.reading.inputs import Input
from curation.reading.paths import find_files
from curation.reading.slices import plan_slices
from curation.reading.streams import open_raw
from curation.results.report.report import write_report
from curation.running.planning import disk
from curation.running.planning.disk import most_needed
from curation.running.planning.remote_copies import copied_bytes
from curation.running.run import run
from tests.needs import needs
from tests.reading.http_files import Answer, Files, Request, served
from tests.runs import data_digests, made_texts, recipe_of, records_of

aiohttp = needs("aiohttp")
from curation.reading.http import HttpFile

TEXTS = made_texts(100)
CORPUS = records_of(TEXTS)
OTHER = CORPUS.replace(b"the", b"THE")
FIRST, SECOND = '"1"', '"2"'
OLD, NEW = Answer(CORPUS, etag=FIRST), Answer(OTHER, etag=SECOND)
Behaviour = Callable[[Request], Answer]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Files]:
    monkeypatch.setattr(remote, "FIRST_WAIT_SECONDS", 0.0)
    monkeypatch.setattr(HttpFile, "block_bytes", 3000)
    with served(CORPUS) as files:
        yield files


def texts_of(server: Files, name: str = "made.jsonl") -> list[str]:
    files = [probe(file) for file in find_files([Input(path=f"http://{server.address}/{name}")])]
    batches = [batch for piece in plan_slices(files, 10_000) for batch in read_documents(piece, 1000)]
    assert not any(batch.rejected for batch in batches)
    return [text for batch in batches for text in batch.table.column("text").to_pylist()]


def run_over(server: Files, folder: Path, name: str = "made.jsonl") -> None:
    recipe = recipe_of(f"http://{server.address}/{name}", output={"formats": []})
    run(recipe, folder, engine="cpu", workers=1, slice_bytes=10_000)


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The digests of a run over the same file on disk."""
    folder = tmp_path_factory.mktemp("local")
    (folder / "made.jsonl").write_bytes(CORPUS)
    run(recipe_of(folder / "made.jsonl", output={"formats": []}), folder / "out", engine="cpu")
    return data_digests(folder / "out")


WITHOUT_LENGTH = {"Content-Length": None, "Accept-Ranges": None}
READ: dict[str, Behaviour] = {
    "a sound server": lambda _: Answer(CORPUS),
    "every fifth answer is cut": lambda request: Answer(CORPUS, cut=-1 if request.number % 5 else 100),
    "every fifth answer is 500": lambda request: Answer(CORPUS, status=0 if request.number % 5 else 500),
    "every fifth answer is 429": lambda request: Answer(CORPUS, status=0 if request.number % 5 else 429),
    "no ranges": lambda _: Answer(CORPUS, sends_ranges=False),
    "no ranges, and every third answer is cut": lambda request: Answer(
        CORPUS, sends_ranges=False, cut=-1 if request.number % 3 else 9000
    ),
    "ranges are announced, but not sent": lambda _: Answer(
        CORPUS, sends_ranges=False, headers={"Accept-Ranges": "bytes"}
    ),
    "ranges are sent after all": lambda request: Answer(CORPUS, sends_ranges=request.number > 4),
    "no ranges are announced": lambda _: Answer(CORPUS, headers={"Accept-Ranges": "none"}),
    "nothing is announced": lambda _: Answer(CORPUS, headers={"Accept-Ranges": None}),
    "no length": lambda _: Answer(CORPUS, sends_ranges=False, headers=WITHOUT_LENGTH),
    "no length by HEAD": lambda request: Answer(
        CORPUS, headers=WITHOUT_LENGTH if request.method == "HEAD" else {"Accept-Ranges": None}
    ),
    "length 0 by HEAD": lambda request: Answer(CORPUS, length=0 if request.method == "HEAD" else -1),
    "no HEAD": lambda request: Answer(CORPUS, status=403 if request.method == "HEAD" else 0),
    "weak tags of several servers": lambda request: Answer(CORPUS, etag=f'W/"{request.number}"'),
    "a tag of some answers": lambda request: Answer(CORPUS, etag=FIRST if request.number % 2 else ""),
    "times of several servers, but one tag": lambda request: Answer(CORPUS, etag=FIRST, modified=str(request.number)),
    "short parts": lambda _: Answer(CORPUS, longest=2500),
    "parts that do not say their place": lambda _: Answer(CORPUS, headers={"Content-Range": None}),
    "parts with status 200": lambda request: Answer(CORPUS, status=200 if request.is_later_part else 0),
    "another state, unless it is refused": lambda request: (
        NEW if request.is_later_part and not request.condition else OLD
    ),
    "another server answers 412": lambda request: OLD if request.number % 3 else NEW._replace(status=412),
    "a cache with another part, unless it is passed over": lambda request: OLD._replace(
        shift=-request.start if request.is_later_part and not request.condition else 0
    ),
    "a compressed answer": lambda _: Answer(
        gzip.compress(CORPUS), sends_ranges=False, headers={"Content-Encoding": "gzip", "Accept-Ranges": None}
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", READ)
def test_what_a_server_may_do(name: str, server: Files):
    server.answer = READ[name]
    assert texts_of(server) == TEXTS
    needs_condition = "unless" in name
    assert any(request.condition == FIRST for request in server.requests) >= needs_condition


@pytest.mark.parametrize("encoding", [None, "gzip", "x-gzip"])
def test_a_compressed_file_is_read_as_it_is(encoding: str | None, server: Files):
    """Some servers call a file that is stored compressed an encoded one."""
    server.answer = lambda _: Answer(gzip.compress(CORPUS), headers={"Content-Encoding": encoding})
    assert texts_of(server, "made.jsonl.gz?part=1") == TEXTS
    server.answer = lambda _: Answer(gzip.compress(CORPUS), sends_ranges=False, headers={"Content-Encoding": encoding})
    assert texts_of(server, "made.jsonl.gz") == TEXTS


CHANGED, AGAIN = r"has changed while it was read: the server reports another version\. Documents", r"in 5 tries\. Check"
OTHER_LENGTH = r"has changed while it was read: the server reports [\d,]+ bytes, before it reported"
PLACE = rf": asked for bytes=\d+-\d+, the server sends .*, {AGAIN}"


def later(answer: Answer, before: Answer = OLD) -> Behaviour:
    return lambda request: answer if request.is_later_part else before


REFUSED: dict[str, tuple[Behaviour, str]] = {
    "parts of another state": (later(NEW), CHANGED),
    "parts of two states, and HEAD says nothing": (
        lambda request: (NEW if request.start >= 9000 else OLD) if request.method == "GET" else Answer(CORPUS), CHANGED,
    ),
    "parts of another time": (
        lambda request: Answer(CORPUS, etag=f'W/"{request.number}"', modified=str(request.is_later_part)), CHANGED,
    ),
    "another state after a break": (
        lambda request: (OLD if request.number < 4 else NEW)._replace(sends_ranges=False, cut=9000), CHANGED,
    ),
    "412": (later(OLD._replace(status=412)), CHANGED),
    "parts of another length": (
        later(Answer(CORPUS * 2)), OTHER_LENGTH,
    ),
    "a page in place of a part": (
        later(Answer(b"<h1>Log in</h1>", sends_ranges=False)), OTHER_LENGTH,
    ),
    "null in place of a part": (
        later(Answer(b"null", sends_ranges=False)), OTHER_LENGTH,
    ),
    "another part": (later(OLD._replace(shift=-3000)), PLACE),
    "another part, and no tag": (later(Answer(CORPUS, shift=7), Answer(CORPUS)), PLACE),
    "a range that is none": (later(OLD._replace(headers={"Content-Range": "pieces 1"})), PLACE),
    "a range of 5,000 digits": (later(OLD._replace(headers={"Content-Range": f"bytes {'9' * 5000}-1/2"})), PLACE),
    "a range of another length": (later(OLD._replace(headers={"Content-Range": "bytes 3000-3000/9"})), PLACE),
    "more than was asked for": (
        later(OLD._replace(status=206, sends_ranges=False, headers={"Content-Range": None})), PLACE,
    ),
    "several parts": (
        later(OLD._replace(headers={"Content-Type": "multipart/byteranges; boundary=x"})),
        rf": the server answers 206 with parts in a form that was not asked for, {AGAIN}",
    ),
    "a compressed part": (
        later(OLD._replace(headers={"Content-Encoding": "gzip"})), rf": .* in a form that was not asked for, {AGAIN}",
    ),
    "a part in place of the whole": (
        lambda _: Answer(CORPUS, status=206, sends_ranges=False, headers=WITHOUT_LENGTH),
        ": the server answers 206 with parts in a form",
    ),
    "416": (later(OLD._replace(status=416)), rf": the server has no bytes from [\d,]+ on, of [\d,]+ .*, {AGAIN}"),
    "fewer bytes than announced": (
        lambda _: Answer(CORPUS, length=len(CORPUS) + 9999, headers={"Content-Range": None}),
        rf": the server sends [\d,]+ of the [\d,]+ bytes that it announced, {AGAIN}",
    ),
    "a length that is no number": (
        lambda _: Answer(CORPUS, headers={"Content-Length": "many"}),
        rf": the server's answer is not valid HTTP .*{AGAIN}",
    ),
    "no HTTP": (lambda _: Answer(CORPUS, raw=b"220 ready\r\n\r\n"), rf": the server's answer is not valid .*{AGAIN}"),
    "no answer": (lambda _: Answer(CORPUS, cut=0, length=9), rf": the request failed \(.*\), {AGAIN}"),
    **{
        str(status): (lambda _, status=status: Answer(CORPUS, status=status), message)
        for status, message in {
            204: r" cannot be read: the server answers 204",
            205: r" cannot be read: the server answers 205",
            301: r" cannot be read: the server redirects without end",
            304: r" cannot be read: the server answers 304",
            400: r" cannot be read: the server answers 400",
            401: r" may not be read: the server answers 401",
            403: r" may not be read: the server answers 403",
            404: r" does not exist",
            410: r" cannot be read: the server answers 410",
            500: rf": the server answers 500, {AGAIN}",
            503: rf": the server answers 503, {AGAIN}",
        }.items()
    },
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_server_may_not_do_is_one_message(name: str, server: Files):
    server.answer, message = REFUSED[name]
    with pytest.raises(InputError, match=rf"^http://{server.address}/made\.jsonl:? ?{message}"):
        texts_of(server)


START = b"HTTP/1.1 200 OK\r\nConnection: close\r\n"
NO_ANSWER, NO_BYTE = "the server does not answer within 0.05 s", "the server sends no byte of the file for 0.05 s"
SILENT: dict[str, tuple[Answer, str]] = {
    "no answer": (Answer(CORPUS, raw=b"HTTP"), NO_ANSWER),
    "headers that do not end": (Answer(CORPUS, raw=START + b"A: b\r\n"), NO_ANSWER),
    "100 Continue without end": (
        Answer(CORPUS, raw=b"HTTP/1.1 100 Continue\r\n\r\n" * 99), NO_ANSWER,
    ),
    "a body without bytes": (Answer(CORPUS, raw=START + b"Content-Length: 9\r\n\r\n"), NO_BYTE),
    "chunks without bytes": (
        Answer(CORPUS, raw=START + b"Transfer-Encoding: chunked\r\n\r\n1;"), NO_BYTE,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SILENT)
def test_a_silent_server_is_not_waited_for_without_end(name: str, server: Files, monkeypatch: pytest.MonkeyPatch):
    answer, message = SILENT[name]
    monkeypatch.setattr(answers, "SILENT_SECONDS" if "bytes" in name else "ANSWER_SECONDS", 0.05)
    server.answer = lambda request: answer
    with pytest.raises(InputError, match=rf"made\.jsonl: .*{message}, {AGAIN}"):
        texts_of(server)


class _Clock(asyncio.SelectorEventLoop):
    """A loop whose time is set."""

    passed = 0.0

    def time(self) -> float:
        return super().time() + self.passed


@pytest.mark.parametrize(("wait", "arrives"), [(50, True), (70, False)])
def test_a_transfer_ends_by_its_silence_and_not_by_its_time(wait: float, arrives: bool):
    loop, blocks = _Clock(), [b"a"] * 99

    async def read(size: int) -> bytes:
        loop.passed += wait
        await asyncio.sleep(0)
        await asyncio.sleep(0)  # the loop ends what is late
        return blocks.pop() if blocks else b""

    file = HttpFile.__new__(HttpFile)
    file._at, file._body = 0, SimpleNamespace(response=SimpleNamespace(content=SimpleNamespace(read=read)))
    try:
        if arrives:
            assert len(loop.run_until_complete(file._read(1000))) == 99
        else:
            with pytest.raises(AnswerError, match="the server sends no byte of the file for 60 s"):
                loop.run_until_complete(file._read(1000))
    finally:
        loop.close()


def test_a_certificate_that_is_not_accepted_is_one_message(
    server: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    key = SimpleNamespace(host="127.0.0.1", port=443, is_ssl=True)
    refused = ssl.SSLCertVerificationError(1, "certificate verify failed")
    refused.verify_message = "unable to get local issuer certificate"

    async def fail(*_: Any) -> None:
        raise aiohttp.ClientConnectorCertificateError(key, refused)

    monkeypatch.setattr(HttpFile, "_request", fail)
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    with pytest.raises(
        InputError, match=r"not accepted \(unable to get local issuer certificate\)\. Set SSL_CERT_FILE"
    ):
        texts_of(server)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "gone.pem"))
    with pytest.raises(InputError, match=r"SSL_CERT_FILE names .*/gone\.pem, which does not exist"):
        texts_of(server)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.ENOMEM])
def test_a_fault_of_this_machine_is_no_broken_connection(number: int, server: Files, monkeypatch: pytest.MonkeyPatch):
    async def fail(*_: Any) -> None:
        raise aiohttp.ClientOSError(number, "fault") from OSError(number, "fault")

    with open_raw(f"http://u:SECRET@{server.address}/made.jsonl?SECRET") as file:
        monkeypatch.setattr(HttpFile, "_request", fail)
        with pytest.raises(OSError, match=os.strerror(number)) as caught:
            file.read(10)
    assert (caught.value.errno, caught.value.filename) == (number, f"http://{server.address}/made.jsonl")


def test_a_proxy_of_the_environment_is_not_used(server: Files, monkeypatch: pytest.MonkeyPatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "socks://127.0.0.1:1/")
    assert texts_of(server) == TEXTS


@pytest.mark.parametrize("later", [NEW, Answer(OTHER + b"\n")])
def test_the_state_is_that_of_the_plan(later: Answer, server: Files):
    """Also where all answers after the plan agree with each other, but not with it."""
    server.answer = lambda _: OLD._replace(etag=later.etag and FIRST)
    [piece] = plan_slices(
        [probe(file) for file in find_files([Input(path=f"http://{server.address}/a.jsonl")])], 1 << 20
    )
    server.answer = lambda _: later
    with pytest.raises(InputError, match=r"a\.jsonl has changed while it was read: the server reports"):
        list(read_documents(piece, 1000))


def test_a_file_from_a_server_without_parts_is_one_slice(
    server: Files, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(paths, "UNNOTICED_BYTES", 1000)
    server.answer = lambda _: Answer(CORPUS, sends_ranges=False)
    [file] = find_files([Input(path=f"http://u:SECRET@{server.address}/a.jsonl?SECRET")])
    assert len(plan_slices([file], 10_000)) == 1 and file.is_whole
    message = f"The server sends no parts of http://{server.address}/a.jsonl: one task reads it, from its beginning"
    assert caplog.messages == [f"{message} ({len(CORPUS):,} bytes)"]


CHANGES = {
    "another version": (OLD, NEW, "the server reports another version"),
    "a version of its own": (Answer(CORPUS), NEW, "the server reports another version"),
    "shorter": (Answer(CORPUS), Answer(CORPUS[:2000]), "the server reports 2,000 bytes, before it reported"),
    "longer": (Answer(CORPUS), Answer(CORPUS * 2), "the server reports .* bytes, before it reported"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_file_that_changes_during_a_run_ends_it(name: str, server: Files, tmp_path: Path):
    before, after, message = CHANGES[name]
    server.answer = lambda request: before if request.number <= 4 else after
    with pytest.raises(InputError, match=rf"made\.jsonl has changed while it was read: {message}"):
        run_over(server, tmp_path / "out")


RUNS = ["a sound server", "every fifth answer is cut", "no ranges, and every third answer is cut"]


@pytest.mark.parametrize("name", RUNS)
def test_a_run_over_a_server_writes_the_same_bytes(name: str, server: Files, tmp_path: Path, local: dict[str, str]):
    server.answer = READ[name]
    run_over(server, tmp_path / "out")
    assert data_digests(tmp_path / "out") == local


def test_a_refusal_ends_a_run_before_it_writes(server: Files, tmp_path: Path):
    server.answer = lambda _: Answer(CORPUS, status=404)
    with pytest.raises(InputError, match=r"made\.jsonl does not exist"):
        run_over(server, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_length_that_cannot_be_right_is_refused(server: Files, tmp_path: Path):
    """Planned, it would be 30 million slices."""
    server.answer = lambda _: Answer(CORPUS, length=10**15)
    with pytest.raises(
        InputError, match=r"made\.jsonl reports 1,000,000,000,000,000 bytes, more than the limit of 17,592"
    ):
        run_over(server, tmp_path / "out")


def test_a_compressed_file_that_ends_early_is_noticed(server: Files):
    """At the end of one of its members, where nothing else tells."""
    half = gzip.compress(CORPUS)
    server.answer = lambda _: Answer(half, length=2 * len(half), headers={"Content-Length": None})
    with pytest.raises(InputError, match=r"made\.jsonl\.gz: .*"):
        texts_of(server, "made.jsonl.gz")


def test_a_finished_run_of_a_version_that_knew_no_versions_of_urls(server: Files, tmp_path: Path):
    server.answer = lambda _: OLD
    run_over(server, tmp_path / "out")
    report = msgspec.json.decode((tmp_path / "out/report.json").read_bytes())
    del report["files"][0]["version"], report["digest"]
    write_report(tmp_path / "out", report)
    assert run(
        recipe_of(f"http://{server.address}/made.jsonl", output={"formats": []}), tmp_path / "out"
    ).already_complete


RANDOM = [hashlib.sha256(b"%d" % k).hexdigest() for k in range(5000)]  # 200 KB and more, however compressed
LATE = 50_000
NAMES = ["a.jsonl", "a.jsonl.gz", "a.jsonl.zst", "a.jsonl.bz2", "a.csv", "a.parquet", "file.arrow", "stream.arrow"]


def packed(name: str, folder: Path, texts: Sequence[str] = TEXTS) -> bytes:
    path, table = folder / name, pa.table({"text": texts})
    if ".jsonl" in name:
        pack = {"gz": gzip.compress, "zst": lambda data: pa.compress(data, "zstd", asbytes=True), "bz2": bz2.compress}
        return pack.get(name.rpartition(".")[2], bytes)(records_of(texts))
    if name.endswith(".csv"):
        pa.csv.write_csv(table, path)
    elif name.endswith(".parquet"):
        pq.write_table(table, path, row_group_size=100, compression="none", use_dictionary=False)
    else:
        with (pa.ipc.new_file if name.startswith("file") else pa.ipc.new_stream)(path, table.schema) as writer:
            writer.write_table(table, max_chunksize=100)
    return path.read_bytes()


@pytest.mark.parametrize("name", NAMES)
def test_each_format_has_the_message_of_the_reader(name: str, server: Files, tmp_path: Path):
    data = packed(name, tmp_path, RANDOM)
    server.answer = lambda _: Answer(data, etag=FIRST)
    assert texts_of(server, name) == RANDOM
    server.answer = lambda request: Answer(data, etag=SECOND if request.start > LATE else FIRST)
    with pytest.raises(InputError, match=rf"/{name} {CHANGED}"):
        texts_of(server, name)


@pytest.mark.parametrize("name", NAMES)
def test_each_format_has_the_fault_of_this_machine(
    name: str, server: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    data, request = packed(name, tmp_path, RANDOM), HttpFile._request

    async def fail(file: HttpFile, method: str, headers: dict[str, str]) -> Any:
        if int(headers.get("Range", "bytes=0-").removeprefix("bytes=").partition("-")[0]) > LATE:
            raise OSError(errno.EMFILE, "fault")
        return await request(file, method, headers)

    server.answer = lambda _: Answer(data, etag=FIRST)
    monkeypatch.setattr(HttpFile, "_request", fail)
    with pytest.raises(OSError, match=rf"Too many open files: 'http://.*/{name}'"):
        texts_of(server, name)


@pytest.mark.parametrize("has_length", [True, False])
@pytest.mark.parametrize("name", ["a.parquet", "file.arrow", "stream.arrow"])
def test_a_format_with_a_footer_is_read_from_a_server_without_ranges(
    name: str, has_length: bool, server: Files, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    data = packed(name, tmp_path)
    server.answer = lambda _: Answer(data, sends_ranges=False, headers={} if has_length else WITHOUT_LENGTH)
    assert texts_of(server, name) == TEXTS
    assert ("it is copied to local disk first" in caplog.text) == name.endswith(".parquet")
    wholes = [request for request in server.requests if request.method == "GET" and request.stop != 1]
    assert len(wholes) == 1 or not name.endswith(".parquet")


def test_a_run_has_its_copy_in_its_folder(server: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """It is announced, is made once, and is not part of the identity of the run."""
    data, name = packed("a.parquet", tmp_path), "a.parquet?sig=SECRET"
    sound: Behaviour = lambda _: Answer(data, etag=FIRST)  # noqa: E731
    without: Behaviour = lambda _: Answer(data, etag=FIRST, sends_ranges=False)  # noqa: E731
    server.answer = without
    recipe = recipe_of(f"http://{server.address}/{name}", output={"formats": [], "keep_work": True})
    files = find_files(recipe.input)
    plain = [msgspec.structs.replace(file, is_whole=False) for file in files]
    assert copied_bytes(files) == len(data) == most_needed(recipe, files) - most_needed(recipe, plain)
    monkeypatch.setattr(tabular, "local_path", lambda file: file.copy)  # no temporary one
    with monkeypatch.context() as full:
        full.setattr(disk, "free_bytes", lambda _: len(data) - 1)
        with pytest.raises(OutputError, match=rf"\({len(data):,} bytes: _work .*Free 1 bytes"):
            run(recipe, tmp_path / "out", engine="cpu", workers=1)
    server.requests.clear()
    run(recipe, tmp_path / "out", engine="cpu", workers=1)
    wholes = [request for request in server.requests if request.method == "GET" and request.stop != 1]
    assert len(wholes) == 1
    [copy] = (tmp_path / "out/_work/collected/_copies").iterdir()
    assert copy.read_bytes() == data
    assert not any(b"SECRET" in path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file())
    server.answer = sound
    assert run(recipe, tmp_path / "out", engine="cpu", workers=1).already_complete


def test_a_full_disk_under_a_temporary_copy_is_one_message(
    server: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    data = packed("a.parquet", tmp_path)
    server.answer = lambda _: Answer(data, etag=FIRST, sends_ranges=False)

    def fail(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(copies, "copy_to", fail)
    with pytest.raises(OSError, match=r"No space left on device: '.* \(TMPDIR\), for a copy of http://.*/b\.parquet'"):
        texts_of(server, "b.parquet")
