# SPDX-License-Identifier: Apache-2.0
"""Types of records in web archives: a record without one is rejected; one of an unknown type is skipped and counted."""

import gzip
import random
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

import curation
from curation.engine import PACKAGES
from curation.errors import InputWarning
from curation.reading import probe, read_documents
from curation.reading.inputs import Input
from curation.reading.paths import find_files
from curation.reading.slices import plan_slices
from curation.reading.unknown_types import MAX_CHARACTERS, MAX_TYPES, TYPES, add_types, types_warning
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
        add_types(types, ((entry.kind, 1) for entry in batch.unknown))
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
