# SPDX-License-Identifier: Apache-2.0
"""What a file can make a reader hold or spend: many tiny records, large headers, pages that expand, damage."""

import bz2
import gc
import gzip
import lzma
import re
import signal
import tracemalloc
import weakref
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from curation.base.system import interrupts
from curation.base.system.files import TEMPORARY
from curation.reading import pages, probe, read_documents, responses
from curation.reading.documents import Documents
from curation.reading.extract_settings import Extract
from curation.reading.inputs import Input
from curation.reading.paths import find_files
from curation.reading.slices import plan_slices
from curation.reading.streams import DamageError, open_stream, read_chunks
from curation.running.phases import map_phase
from curation.running.run import run
from tests.needs import needs
from tests.runs import files_below, recipe_of

BATCH_BYTES = 1 << 15
RECORD = b"WARC/1.0\r\nWARC-Type: %b\r\n%bContent-Length: %d\r\n\r\n%b\r\n\r\n"


def batches_of(path: Path, batch_bytes: int = BATCH_BYTES, **settings: Any) -> list[Documents]:
    files = [probe(file) for file in find_files([Input(path=str(path), **settings)])]
    return [batch for piece in plan_slices(files, 1 << 30) for batch in read_documents(piece, batch_bytes)]


def contents(batches: list[Documents]) -> tuple[Any, ...]:
    """All that a reader gives, without how it is cut."""
    rows = [row for batch in batches for row in batch.table.to_pylist()]
    rejected = [entry for batch in batches for entry in batch.rejected]
    return rows, rejected, *(sum(batch[k] for batch in batches) for k in (2, 3, 4))


MANY = {
    "bad lines.jsonl": b'{"text": "a"}\n' + b"1\n" * 6_000,
    "wrong widths.csv": b"id,text\n" + b"a\n" * 6_000,
    "empty rows.csv": b"id,text\n" + b",\n" * 6_000,
    "no content.wet": RECORD % (b"conversion", b"", 0, b"") * 4_000,
    "other headers.wet": RECORD % (b"conversion", b"X: " + b"y" * 5000 + b"\r\n", 0, b"") * 600,
    "many types.wet": b"".join(
        RECORD % (b"type-%d" % k if k % 500 else b"conversion", b"", 0, b"") for k in range(20_000)
    ),
    "many headers.wet": RECORD % (b"conversion", b"".join(b"%x:\r\n" % k for k in range(3000)), 0, b"") * 30,
    "long addresses.wet": RECORD % (b"conversion", b"WARC-Target-URI: " + b"y" * 5000 + b"\r\n", 0, b"") * 600,
    "separators.txt": b"a|" * 6_000,
}


@pytest.mark.slow("a batch is small for any kind of records")
@pytest.mark.parametrize("name", MANY)
def test_a_batch_holds_little_whatever_its_records_are(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for module in ("lines", "formats.plain"):
        monkeypatch.setattr(f"curation.reading.{module}.LINES_AT_ONCE", 300)
    path = tmp_path / name
    path.write_bytes(MANY[name])
    [file] = [probe(file) for file in find_files([Input(path=str(path), separator="|" * name.endswith(".txt"))])]
    [piece] = plan_slices([file], 1 << 30)
    rows = sum(batch.rows for batch in read_documents(piece, BATCH_BYTES))  # what is loaded once
    tracemalloc.start()
    try:
        assert sum(batch.rows for batch in read_documents(piece, BATCH_BYTES)) == rows >= 30
        assert tracemalloc.get_traced_memory()[1] < 16 * BATCH_BYTES
    finally:
        tracemalloc.stop()


LINES = [
    b'{"text": "a"}',
    b"1",
    b"",
    b'{"text": 1}',
    b'{"id": 7, "text": "\xc3\xa9"}',
    b"\xff",
    b'{"n": 1.5, "text": "b"}',
    b" ",
]


@pytest.mark.parametrize("at_once", [1, 2, 3, 7])
@pytest.mark.parametrize("start", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("end", [b"\n", b""])
def test_lines_are_the_same_however_many_are_parsed_at_once(
    at_once: int, start: bytes, end: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    data = start + b"\n".join(LINES * 3) + end
    for name in ("a", "b", "c"):
        (tmp_path / f"{name}.jsonl").write_bytes(data)
    for path in (tmp_path, tmp_path / "a.jsonl"):  # small files share a block
        expected = contents(batches_of(path))
        with monkeypatch.context() as patch:
            patch.setattr("curation.reading.lines.LINES_AT_ONCE", at_once)
            for batch_bytes in (1, 50, 1 << 20):
                found = batches_of(path, batch_bytes)
                assert contents(found) == expected
    first = expected[1][0]
    assert first[:4] == (1, 1, len(start) + 14, "expected a JSON object, got a number")


@pytest.mark.parametrize("name", ["a.csv", "a.wet", "a.txt"])
def test_records_are_the_same_in_any_batch(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    short = RECORD % (b"conversion", b"", 2, b"ab")
    made = {
        "a.csv": b"id,text\n" + b"1,a\nbad\n,\n" * 30,
        "a.wet": (short + b"rubbish\r\n\r\n" + RECORD % (b"conversion", b"", 60, b"x" * 60)) * 30,
        "a.txt": b"a||" + b"x" * 60 + b"| |b" * 30,
    }
    path = tmp_path / name
    path.write_bytes(made[name])
    settings: dict[str, Any] = {"max_document_bytes": 50} | ({"separator": "|"} if name == "a.txt" else {})
    expected = contents(batches_of(path, 1 << 20, **settings))
    assert expected[0] and expected[1]
    monkeypatch.setattr("curation.reading.formats.plain.LINES_AT_ONCE", 2)
    for batch_bytes in (1, 300, 5000):
        assert contents(batches_of(path, batch_bytes, **settings)) == expected


HTML_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n%b\r\n"
PAGES = {
    "the page has more than 2,000 bytes of HTML, the maximum": b"<p>" + b"a" * 1998,
    "a tag of the page has more than 20 attributes, the maximum": b"<p " + b"a=1 " * 21 + b">",
    "the tags of the page nest too deeply: the sum over all tags of the open tags (unclosed formatting counts 20 "
    "times) is above 1,000": b"<div>" * 47,
}
SOUND_PAGES = {
    "size": b"<p>" + b"a" * 1997,
    "attributes": b"<p " + b"a=1 " * 19 + b">",
    "one long attribute": b"<p title='" + b"a " * 60 + b"'>",
    "depth": b"<div>" * 45,
    "closed": b"<div><b>a</b></div>" * 60,
    "closed by others": b"<p>a<br><li>b" * 60,
}


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, bound in {"MAX_PAGE_BYTES": 2000, "MAX_ATTRIBUTES": 20, "MAX_NESTING": 1000, "FEW_TAGS": 10}.items():
        monkeypatch.setattr(pages, name, bound)
    monkeypatch.setattr(pages, "LONG_TAG", re.compile(rb"<[a-zA-Z][^<>]{40,}"))


@pytest.mark.usefixtures("small_pages")
@pytest.mark.parametrize("error", PAGES)
def test_pages_that_would_take_too_much_are_rejected(error: str, tmp_path: Path):
    needs("resiliparse")
    bodies = [b"<p>first", PAGES[error], b"<p>last"]
    packed = [(HTML_HEAD % b"Content-Encoding: gzip\r\n") + gzip.compress(body) for body in bodies]
    path = tmp_path / "a.warc"
    path.write_bytes(b"".join(RECORD % (b"response", b"", len(http), http) for http in packed))
    documents, rejected, *_ = contents(batches_of(path))
    assert [document["text"].strip() for document in documents] == ["first", "last"]
    assert [(entry.row, entry.error) for entry in rejected] == [(1, error)]


@pytest.mark.usefixtures("small_pages")
@pytest.mark.parametrize("name", SOUND_PAGES)
def test_pages_within_the_bounds_are_parsed(name: str):
    pages.check(SOUND_PAGES[name], Extract())


@pytest.mark.parametrize(
    "page", [b"<div>" * 10_000, b"<p>" + b"<b id=x>" * 300 + b"</p><p>" * 5000, b"<div>" * 1000 + b"<p>a" * 30_000]
)
def test_the_real_bound_holds_back_what_takes_seconds(page: bytes):
    with pytest.raises(ValueError, match="nest too deeply"):
        pages.check(page, Extract())


def test_an_ordinary_large_page_is_parsed():
    pages.check(b"<div><ul>" * 30 + b"<li><a href='x'><b>some words</b></a> and others<br>" * 50_000, Extract())


def test_only_the_start_of_a_head_is_read():
    many = b"a: b\r\n" * 20_000
    head = b"HTTP/1.1 200 OK\r\nA: first\r\n" + many + b"Content-Type: text/html\r\n\r\n"
    headers, body = responses.split(head + b"body")
    assert body == b"body" and list(headers) == ["a"]
    lines = ((64 << 10) - 27) // 6
    assert headers["a"] == "first" + ",b" * lines
    assert responses.split(b"HTTP/1.1 200 OK\r\nA: 1\r\nB: 2\r\nA: 3\r\n\r\n") == ({"a": "1,3", "b": "2"}, b"")
    with pytest.raises(ValueError, match="the page is encoded 11 times; up to 10 encodings can be read"):
        responses.decode({"content-encoding": "identity," + "gzip," * 11}, b"", 10)


def test_chunks_take_no_more_than_their_bytes():
    body = b"1\r\na\r\n" * 10_000 + b"0\r\n\r\n"
    tracemalloc.start()
    assert responses.decode({"transfer-encoding": "chunked"}, body, len(body)) == b"a" * 10_000
    assert tracemalloc.get_traced_memory()[1] < 50_000
    tracemalloc.stop()


PACKED: dict[str, Callable[[bytes], bytes]] = {
    "zstd": lambda data: bytes(pa.compress(data, "zstd")),
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
}
NUMBERS = b"".join(b"%d\n" % (k * 7919**3) for k in range(20_000))


@pytest.mark.parametrize("kind", PACKED)
def test_a_damaged_stream_is_let_go_without_the_collector(kind: str, tmp_path: Path):
    packed = PACKED[kind](NUMBERS)
    (tmp_path / "a").write_bytes(packed[: len(packed) * 2 // 3])
    gc.disable()
    try:
        stream = open_stream(str(tmp_path / "a"), kind)
        for _ in range(2):
            with pytest.raises(DamageError):
                deque(iter(partial(stream.read, 1 << 16), b""), 0)
        stream.close()
        seen = weakref.ref(stream)
        del stream
        assert seen() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("kind", PACKED)
def test_what_is_kept_of_a_cut_file_does_not_depend_on_the_batch(kind: str, tmp_path: Path):
    packed = PACKED[kind](NUMBERS)
    for cut in (10, 1000):
        (tmp_path / "a").write_bytes(packed[: len(packed) - cut])
        found = []
        for size in (20_000, 1 << 20):
            with open_stream(str(tmp_path / "a"), kind) as stream:
                found.append(b"".join(piece.data for piece in read_chunks(stream, size)))
        assert found[0] == found[1] and NUMBERS.startswith(found[0]), cut


def test_a_signal_ends_a_slice_between_two_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "a.csv").write_bytes(b"text\n" + b"some words\n" * 200)
    batches: list[int] = []

    def take(task: Any, frame: Any) -> Any:
        batches.append(len(frame))
        if len(batches) == 3:
            monkeypatch.setattr(interrupts, "_received", signal.SIGINT)
        return documents_of(task, frame)

    documents_of = map_phase._documents
    monkeypatch.setattr(map_phase, "_documents", take)
    monkeypatch.setattr("cpu_fallback.session.BATCH_BYTES", 1000)
    with pytest.raises(interrupts.Interrupted):
        run(recipe_of(tmp_path / "a.csv", stages=[]), tmp_path / "out", engine="cpu")
    assert len(batches) == 3 and sum(batches) < 200
    assert not [path for path in files_below(tmp_path / "out") if path.endswith(TEMPORARY)]


def test_a_small_rest_of_a_range_is_read_with_the_block_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The batches of a range that is a little larger than a batch, and of one that is larger still."""
    monkeypatch.setattr("curation.reading.lines.LAST_STEP", 4)
    line = b'{"text": "a"}\n'
    for count, batches in ((8, 1), (9, 1), (10, 2)):
        (tmp_path / "a.jsonl").write_bytes(line * count)
        found = [batch.rows for batch in batches_of(tmp_path / "a.jsonl", 8 * len(line) + 8)]
        assert (sum(found), len(found)) == (count, batches)
