# SPDX-License-Identifier: Apache-2.0
"""Types of records in web archives: a record without one is rejected; one of an unknown type is skipped and counted."""

import gzip
import random
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pyarrow.parquet as pq
import pytest

import curation
from curation.base.engine import PACKAGES
from curation.base.errors import InputWarning
from curation.base.records import UNKNOWN_TYPE
from curation.reading import probe, read_documents
from curation.reading.inputs import Input
from curation.reading.other_records import MAX_CHARACTERS, MAX_TYPES, TYPES, add_types, types_warning
from curation.reading.paths import find_files
from curation.reading.slices import plan_slices
from curation.running.run import run
from tests.needs import needs
from tests.runs import data_digests, kept_rows, recipe_of, rejected_rows, report_of

NO_TYPE = "the record has no WARC-Type"


def record(number: int, kind: bytes = b"WARC-Type: conversion\r\n") -> bytes:
    text = b"document number %d with some words" % number
    return b"WARC/1.0\r\n%bWARC-Record-ID: <urn:uuid:%d>\r\nContent-Length: %d\r\n\r\n%b\r\n\r\n" % (
        kind, number, len(text), text,
    )  # fmt: skip


def found_in(path: Path, batch_bytes: int = 1 << 20) -> tuple[list[int], list[str], dict[str, int]]:
    """The numbers of the documents in a file, the errors of rejected records, and the unknown types."""
    slices = plan_slices([probe(file) for file in find_files([Input(path=str(path))])], 1 << 30)
    ids: list[int] = []
    errors: list[str] = []
    types: dict[str, int] = {}
    for batch in read_documents(slices[0], batch_bytes):
        ids += map(int, batch.table.column("id").to_pylist())
        errors += [entry.error for entry in batch.rejected]
        add_types(types, ((entry.name, 1) for entry in batch.others if entry.why == UNKNOWN_TYPE))
    return ids, errors, types


CASES = {
    b"WARC-Type: conversion\r\n": ([1, 2, 3], [], {}),
    b"warc-TYPE : Conversion \r\n": ([1, 2, 3], [], {}),
    b"WARC-Type:\r\n\tconversion\r\n": ([1, 2, 3], [], {}),
    b"WARC-Type: conversion\n": ([1, 2, 3], [], {}),
    b"WARC-Type: conversion\r\nWARC-Type: conversion\r\n": ([1, 2, 3], [], {}),
    b"": ([1, 3], [NO_TYPE], {}),
    b"WARC-Type:\r\n": ([1, 3], [NO_TYPE], {}),
    b"WARC-Type: \t \r\n": ([1, 3], [NO_TYPE], {}),
    b"WARC-Type conversion\r\n": ([1, 3], [NO_TYPE], {}),
    b"WARC-Typf: conversion\r\n": ([1, 3], [NO_TYPE], {}),
    b"WARC-Type: conversiom\r\n": ([1, 3], [], {"conversiom": 1}),
    b"WARC-Type: \0conversion\r\n": ([1, 3], [], {"\0conversion": 1}),
    b"WARC-Type: \xff\r\n": ([1, 3], [], {"\ufffd": 1}),
    b"WARC-Type: %b\r\n" % (b"x" * 5000): ([1, 3], [], {"x" * MAX_CHARACTERS: 1}),
    b"WARC-Type: conversion\r\nWARC-Type: metadata\r\n": ([1, 3], [], {"conversion, metadata": 1}),
    b"WARC-Type: %b\r\n" % TYPES[0].upper().encode(): ([1, 3], [], {}),
    **{b"WARC-Type: %b\r\n" % name.encode(): ([1, 3], [], {}) for name in TYPES if name != "conversion"},
}


def test_types_of_records(tmp_path: Path):
    path = tmp_path / "a.wet"
    for kind, expected in CASES.items():
        path.write_bytes(record(1) + record(2, kind) + record(3))
        assert [found_in(path), found_in(path, batch_bytes=1)] == [expected] * 2, kind


def test_every_flipped_bit_of_a_type_is_seen(tmp_path: Path):
    path, kind = tmp_path / "a.wet", b"WARC-Type: conversion\r\n"
    for place in range(len(kind.strip())):
        for bit in range(8):
            changed = bytearray(kind)
            changed[place] ^= 1 << bit
            path.write_bytes(record(1) + record(2, bytes(changed)) + record(3))
            ids, errors, types = found_in(path)
            assert ids == [1, 2, 3] or (ids == [1, 3] and (errors or sum(types.values()) == 1)), bytes(changed)


def test_pages_have_the_types_of_archives(tmp_path: Path):
    needs("resiliparse")
    path = tmp_path / "a.warc"
    page = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<p>A page of some words.</p>"
    kinds = (b"WARC-Type: Response\r\n", b"WARC-Type: responsf\r\n", b"", b"WARC-Type: request\r\n")
    head = b"WARC/1.0\r\n%bWARC-Record-ID: <1>\r\nContent-Length: %d\r\n\r\n%b\r\n\r\n"
    path.write_bytes(b"".join(head % (kind, len(page), page) for kind in kinds))
    assert found_in(path) == ([1], [NO_TYPE], {"responsf": 1})


def test_counts_of_types_are_bounded_and_do_not_depend_on_their_order():
    pairs = [(f"type-{number % 300:03}", 1 + number % 7) for number in range(2000)]
    whole: dict[str, int] = {}
    add_types(whole, pairs)
    assert len(whole) == MAX_TYPES + 1 and sum(whole.values()) == sum(count for _, count in pairs)
    for seed in range(20):
        random.Random(seed).shuffle(pairs)
        parts: dict[str, int] = {}
        for start in range(0, len(pairs), 37):
            part: dict[str, int] = {}
            for pair in pairs[start : start + 37]:
                add_types(part, [pair])
            add_types(parts, part.items())
        assert parts == whole
    assert len(types_warning(whole)) < 1000 and "others (" in types_warning(whole)


UNKNOWN = [b"WARC-Type: Odd\x1b\r\n", b"WARC-Type: metadata\r\n", b"WARC-Type: conversiom\r\n", b""]
WARNING = "input 'a': skipped 4 records of unknown WARC types: 'odd\\x1b' (3), 'conversiom' (1)."


def write_archives(folder: Path, pack: Callable[[bytes], bytes], suffix: str) -> Path:
    """Three files: the second one has no document, the third one has a record without a type."""
    folder.mkdir()
    contents = (
        record(0, UNKNOWN[0]) + record(1) + record(2, UNKNOWN[1]) + record(3),
        record(4, UNKNOWN[0]),
        record(5, UNKNOWN[2]) + record(6, UNKNOWN[3]) + record(7) + record(8, UNKNOWN[0]),
    )
    for number, content in enumerate(contents):
        (folder / f"{number}.{suffix}").write_bytes(pack(content))
    return folder


@pytest.mark.parametrize(("suffix", "pack"), [("wet", bytes), ("wet.gz", gzip.compress)])
def test_a_run_warns_once_per_input(suffix: str, pack: Callable[[bytes], bytes], engine: ModuleType, tmp_path: Path):
    """Whatever the slices, the compression and the engine; such records have no position."""
    name = next(name for name, package in PACKAGES.items() if package == engine.__name__)
    recipe = recipe_of(write_archives(tmp_path / "a", pack, suffix), stages=[], output={"formats": []})
    runs = []
    for slice_bytes in (1, 1 << 30):
        out = tmp_path / f"{slice_bytes}"
        run(recipe, out, engine=name, slice_bytes=slice_bytes, workers=1)
        report = report_of(out)
        runs.append((data_digests(out), report["documents"], report["warnings"]))
        assert [row[:2] for row in kept_rows(out)] == [(0, "1"), (1, "3"), (3, "7")]
        assert [(entry["file"][-len(suffix) - 2 :], entry["line"]) for entry in rejected_rows(out)] == [
            (f"2.{suffix}", 1)
        ]
    assert runs[0] == runs[1]
    assert runs[0][1]["read"] == 4 and [warning for warning in runs[0][2] if warning.startswith(WARNING)]


LIMITED = {  # -> the records that are counted
    (("limit", 1),): "skipped 1 record of unknown WARC types: 'odd\\x1b' (1).",
    (("limit", 2),): "skipped 1 record of unknown WARC types: 'odd\\x1b' (1).",
    (("skip", 1), ("limit", 2)): "skipped 3 records of unknown WARC types: 'odd\\x1b' (2), 'conversiom' (1).",
    (("skip", 3),): "skipped 4 records of unknown WARC types: 'odd\\x1b' (3), 'conversiom' (1).",
}


@pytest.mark.parametrize("limits", LIMITED)
def test_limits_of_an_input_count_what_they_read(limits: tuple[tuple[str, int], ...], tmp_path: Path):
    folder = write_archives(tmp_path / "a", bytes, "wet")
    recipe = recipe_of({"path": str(folder), **dict(limits)}, stages=[], output={"formats": []})
    for slice_bytes in (1, 1 << 30):
        run(recipe, tmp_path / f"{slice_bytes}", engine="cpu", slice_bytes=slice_bytes, workers=1)
        warnings = report_of(tmp_path / f"{slice_bytes}")["warnings"]
        assert [LIMITED[limits] in warning for warning in warnings if "WARC types" in warning] == [True], warnings


def test_readers_warn_and_do_not_fail(tmp_path: Path):
    path = tmp_path / "a.wet"
    path.write_bytes(record(1) + record(2, UNKNOWN[2]))
    with pytest.warns(InputWarning, match=r"skipped 1 record of unknown WARC types: 'conversiom' \(1\)"):
        assert len(curation.read(path, engine="cpu", errors="raise").compute()) == 1


# What a record of WARC gives


def answer(url: str, http: bytes, head: str = "WARC-Type: response", extra: str = "") -> bytes:
    lines = f"WARC/1.0\r\n{head}\r\nWARC-Target-URI: {url}\r\n{extra}Content-Length: {len(http)}\r\n\r\n"
    return lines.encode() + http + b"\r\n\r\n"


def http_of(body: bytes, fields: str = "", status: str = "200 OK") -> bytes:
    return f"HTTP/1.1 {status}\r\n{fields}\r\n".encode() + body


PAGE = b"<!doctype html><html><body><p>" + b"A page about whales and what they eat. " * 8 + b"</p></body></html>"
TYPED = "Content-Type: %s\r\n"
NOT_A_PAGE = {  # -> as which content it is counted
    http_of(b"\x89PNG\r\n\x1a\n", TYPED % "image/png"): "image/png",
    http_of(b"{}", TYPED % "application/json; charset=utf-8"): "application/json",
    http_of(b"%PDF-1.7\n\0\1"): "no media type, binary",
    http_of(b"\0\1\2", TYPED % "text/plain"): "text/plain, binary",
    http_of(b" \r\n", TYPED % "text/plain"): "text/plain, empty",
    http_of(b"\xef\xbb\xbf", TYPED % "text/plain"): "text/plain, empty",
    http_of(b"", status="301 Moved Permanently"): "no media type, empty",
    b"": "no media type, empty",
}
A_PAGE = {  # -> words of its text, status, media type
    http_of(PAGE, TYPED % "text/html; charset=utf-8"): ("about whales", "200", "text/html"),
    http_of(PAGE, TYPED % "application/xhtml+xml", "404 Not Found"): ("about whales", "404", "application/xhtml+xml"),
    http_of(PAGE): ("about whales", "200", None),
    http_of(PAGE, TYPED % "TEXT/PLAIN"): ("about whales", "200", "text/plain"),
    http_of(b"plain words\n", "Content-Type:\r\n text/plain;\r\n\tcharset=latin-1\r\n"): (
        "plain words", "200", "text/plain",
    ),
    http_of("Größe".encode("latin-1"), TYPED % "text/plain; charset=latin1"): ("Größe", "200", "text/plain"),
    http_of("\ufeffGröße".encode("utf-16-le"), TYPED % "text/plain"): ("Größe", "200", "text/plain"),
    http_of(b"words of no type"): ("words of no type", "200", None),
    http_of(b"<p>", TYPED % "text/html"): ("", "200", "text/html"),  # HTML without main text is an empty document
}  # fmt: skip
RESOURCE, DNS = "WARC-Type: resource", "Content-Type: text/dns\r\n"


def test_pages_and_other_answers_of_an_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A page keeps the number that it has among all answers; what is no page is counted, and never an empty text."""
    needs("resiliparse")
    monkeypatch.chdir(tmp_path)
    answers = [http for pair in zip(NOT_A_PAGE, A_PAGE, strict=False) for http in pair] + [*A_PAGE][len(NOT_A_PAGE) :]
    records = [answer(f"http://x/{number}", http) for number, http in enumerate(answers)]
    records += [
        answer("dns:x", b"20261128 x 1.2.3.4", extra=DNS),
        answer("http://x/made", PAGE, RESOURCE, TYPED % "text/html"),
        answer("file:///made", PAGE, RESOURCE, TYPED % "text/html"),
        answer("http://x/made.png", b"\x89PNG", RESOURCE, TYPED % "image/png"),
        answer("http://x/0", b"GET /", "WARC-Type: request"),
    ]
    Path("a.warc").write_bytes(b"".join(records))
    recipe = recipe_of(
        {"path": "a.warc", "columns": ["url", "status", "content_type"]}, stages=[], output={"formats": []}
    )
    for slice_bytes in (1, 1 << 30):
        result = curation.run(recipe, f"{slice_bytes}", engine="cpu", workers=1, slice_bytes=slice_bytes)
        rows = pq.read_table(f"{slice_bytes}/documents").to_pylist()
        expected = [(answers.index(http), *found) for http, found in A_PAGE.items()]
        expected.append((len(answers) + 1, "about whales", None, "text/html"))
        assert len(rows) == len(expected)
        for row, (doc, words, status, media) in zip(rows, expected, strict=True):
            assert (row["doc"], row["status"], row["content_type"]) == (doc, status, media)
            assert words in row["text"] and bool(words) == bool(row["text"].strip())
        [source] = result.report["sources"]
        counts: dict[str, int] = {"text/dns": 1}
        add_types(counts, ((name, 1) for name in NOT_A_PAGE.values()))
        assert source["other_records"] == {"content": counts, "types": {"request": 1, "resource": 2}}
        assert source["not_pages"] == len(NOT_A_PAGE) + 1 and source["documents_read"] == len(expected)
        assert not [warning for warning in result.report["warnings"] if "record" in warning]


def test_a_rule_keeps_answers_with_status_200(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    needs("resiliparse")
    monkeypatch.chdir(tmp_path)
    pages = ["200 OK", "404 Not Found", "301 Moved", "206 Partial Content"]
    Path("a.warc").write_bytes(
        b"".join(answer(f"http://x/{status[:3]}", http_of(PAGE, TYPED % "text/html", status)) for status in pages)
    )
    for rule in ({"column": "status", "in": ["200"]}, {"column": "status", "min": 200, "max": 200}):
        recipe = recipe_of(
            {"path": "a.warc", "columns": ["url", "status"]}, stages=[{"kind": "filter", "rules": [rule]}],
            output={"formats": []},
        )  # fmt: skip
        curation.run(recipe, "out", engine="cpu", workers=1, force=True)
        assert [row["url"] for row in pq.read_table("out/documents").to_pylist()] == ["http://x/200"]


ADDRESSES = (
    "http://x/a", " <http://x/a> ", "<http://x/a>", '"http://x/a"', "'<http://x/a>'", "\r\n <http://x\r\n\t/a>",
    "< http://x/a >",
)  # fmt: skip


@pytest.mark.parametrize("suffix", ["wet", "warc"])
def test_headers_are_one_value_however_they_are_written(suffix: str, tmp_path: Path):
    needs("resiliparse")
    http, kind = (b"words", "conversion") if suffix == "wet" else (http_of(PAGE, TYPED % "text/html"), "response")
    heads = [f"WARC-Type: {kind}", f"warc-type:<{kind}>", f'WARC-TYPE : "{kind}"', f"Warc-Type:\r\n {kind.title()}"]
    ids = ["<urn:uuid:7>", "urn:uuid:7", " <urn:uuid:7> ", '"<urn:uuid:7>"', "\r\n\t<urn:uuid:7>"]
    path = tmp_path / f"a.{suffix}"
    path.write_bytes(
        b"".join(
            answer(url, http, head, f"WARC-RECORD-ID: {name}\r\n").replace(b"Target-URI", field)
            for head in heads for name in ids for url in ADDRESSES for field in (b"Target-URI", b"TARGET-uri")
        )
    )  # fmt: skip
    slices = plan_slices([probe(file) for file in find_files([Input(path=str(path), columns=["url"])])], 1 << 30)
    rows = [row for batch in read_documents(slices[0], 1 << 20) for row in batch.table.to_pylist()]
    assert len(rows) == len(heads) * len(ids) * len(ADDRESSES) * 2
    assert {(row["id"], row["url"]) for row in rows} == {("7", "http://x/a")}


def test_an_archive_without_a_document_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Such as WARC named .wet; one without a record is empty, which other files are, too."""
    monkeypatch.chdir(tmp_path)
    Path("a.wet").write_bytes(record(1) + record(2, UNKNOWN[1]))
    Path("b.wet").write_bytes(answer("http://x", http_of(PAGE)) + record(2, UNKNOWN[1]))
    Path("c.wet").write_bytes(b"")
    for slice_bytes in (1, 1 << 30):
        run(recipe_of(".", stages=[], output={"formats": []}), f"{slice_bytes}", engine="cpu", slice_bytes=slice_bytes)
        report = report_of(Path(f"{slice_bytes}"))
        found = [warning for warning in report["warnings"] if "archive without a document" in warning]
        assert ["b.wet" in text and "a.wet" not in text and "c.wet" not in text for text in found] == [True]
        assert report["sources"][0]["other_records"] == {"types": {"metadata": 2, "response": 1}}
