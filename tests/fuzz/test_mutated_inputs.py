# SPDX-License-Identifier: Apache-2.0
"""Damaged files of every format: no crash, no hang, every position is a document or a rejected record, and which it is
does not depend on the size of slices and batches.

A few hundred in every run of the tests; `make torture` sets TORTURE to thousands.
"""

import bz2
import gzip
import io
import lzma
import os
import random
import time
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curation.base.contract import ID, ROW, TEXT
from curation.base.errors import CurationError
from curation.base.records import NOT_PAGE
from curation.reading import probe, read_documents
from curation.reading.inputs import Input
from curation.reading.paths import find_files
from curation.reading.slices import plan_slices
from tests.needs import needs

MUTATIONS = int(os.environ.get("TORTURE", "250"))
SLOWEST_SECONDS = 20  # a hang; reading takes milliseconds
TEXTS = ["plain", "", "é漢🙂", "line\nline\r\n", '"quoted", \\ and \t', "x" * 3000, "WARC/1.0", "nul \0"]


def _jsonl() -> bytes:
    lines = [b'{"id": %d, "text": %s, "n": [1, {"k": null}]}' % (k, _dumps(text)) for k, text in enumerate(TEXTS)]
    return b"\n".join(lines) + b"\n"


def _dumps(value: str) -> bytes:
    import orjson

    return orjson.dumps(value)


def _wet() -> bytes:
    records = []
    for k, text in enumerate(TEXTS):
        raw = text.encode()
        records.append(
            b"WARC/1.0\r\nWARC-Type: conversion\r\nWARC-Record-ID: <%d>\r\nContent-Length: %d\r\n\r\n" % (k, len(raw))
        )
        records.append(raw + b"\r\n\r\n")
    return b"".join(records)


CODINGS = b"Transfer-Encoding: chunked\r\nContent-Encoding: gzip\r\n\r\n"


def _warc() -> bytes:
    records = []
    for k, text in enumerate(TEXTS):
        body = gzip.compress(f"<html><body><p>{text}".encode(), mtime=0)
        half = len(body) // 2
        body = b"%x\r\n%b\r\n%x\r\n%b\r\n0\r\n\r\n" % (half, body[:half], len(body) - half, body[half:])
        page = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n" + CODINGS + body
        records.append(
            b"WARC/1.0\r\nWARC-Type: response\r\nWARC-Record-ID: <%d>\r\nContent-Length: %d\r\n\r\n" % (k, len(page))
        )
        records.append(page + b"\r\n\r\n")
    return b"".join(records)


def _table() -> pa.Table:
    return pa.table({"id": [str(k) for k in range(len(TEXTS))], "text": TEXTS})


def _parquet() -> bytes:
    sink = io.BytesIO()
    pq.write_table(_table(), sink, row_group_size=3)
    return sink.getvalue()


def _arrow() -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_file(sink, _table().schema) as writer:
        writer.write_table(_table(), max_chunksize=3)
    return sink.getvalue()


def _csv() -> bytes:
    return b"id,text\n" + b"".join(b'%d,"%s"\n' % (k, t.replace('"', '""').encode()) for k, t in enumerate(TEXTS))


MEMBERS = 4  # of the compressed seeds, so that there is something before most damage
SEEDS: dict[str, bytes] = {
    "a.jsonl": _jsonl(),
    "a.jsonl.gz": gzip.compress(_jsonl(), mtime=0) * MEMBERS,
    "a.jsonl.zst": bytes(pa.compress(_jsonl(), "zstd", asbytes=True)) * MEMBERS,
    "a.jsonl.bz2": bz2.compress(_jsonl()) * MEMBERS,
    "a.jsonl.xz": lzma.compress(_jsonl()) * MEMBERS,
    "a.parquet": _parquet(),
    "a.arrow": _arrow(),
    "a.csv": _csv(),
    "a.tsv": _csv().replace(b",", b"\t"),
    "a.txt": "\n".join(TEXTS).encode(),
    "a.utf16.txt": "\n".join(TEXTS).encode("utf-16"),
    "a.wet": _wet(),
    "a.warc": _warc(),
    "a.warc.wet.gz": gzip.compress(_wet(), mtime=0),
}


def mutate(data: bytes, rng: random.Random) -> bytes:
    """One to four of: bytes changed, a piece cut out, doubled, inserted, the end cut off, another encoding."""
    for _ in range(rng.randint(1, 4)):
        a, b = sorted(rng.randrange(len(data) + 1) for _ in range(2))
        match rng.randrange(7):
            case 0:
                data = bytes(byte ^ (1 << rng.randrange(8)) if rng.random() < 0.01 else byte for byte in data)
            case 1:
                data = data[:a] + data[b:]
            case 2:
                data = data[:b] + data[a:]
            case 3:
                data = data[:a] + rng.randbytes(rng.randint(1, 40)) + data[a:]
            case 4:
                data = data[:b]
            case 5:
                data = (
                    data[:a]
                    + rng.choice([b"\0", b"\xff\xfe", b"\n", b"\r", b'"', b"{", b"\xed\xa0\x80"]) * 3
                    + data[a:]
                )
            case _:
                data = data.replace(b"\n", rng.choice([b"\r\n", b"\r", b"\n\n"]))
    return data


class Found(NamedTuple):
    """(position, text, id) of documents, (position, offset, error) of rejected records, how many positions, and the
    positions of answers in archives that are no pages."""

    documents: list[tuple[int, str, str | None]]
    rejected: list[tuple[int, int, str]]
    positions: int
    others: list[int]


def read_all(path: Path, slice_bytes: int = 1000, batch_bytes: int = 500, **settings: Any) -> Found:
    """What a file holds; CurationError where it is refused."""
    if path.suffix == ".warc":
        needs("resiliparse")
    if "utf16" in path.name:
        settings |= {"encoding": "utf-16", "separator": "\n"}
    slices = plan_slices([probe(file) for file in find_files([Input(path=str(path), **settings)])], slice_bytes)
    found = Found([], [], 0, [])
    for piece in slices:
        first = found.positions
        for batch in read_documents(piece, batch_bytes):
            batch.table.validate(full=True)
            columns = (batch.table.column(name).to_pylist() for name in (ROW, TEXT, ID))
            found.documents.extend((first + row, text, id_) for row, text, id_ in zip(*columns, strict=True))
            found.rejected.extend((first + entry.row, entry.offset, entry.error) for entry in batch.rejected)
            found.others.extend(first + record.row for record in batch.others if record.why == NOT_PAGE)
            found = found._replace(positions=found.positions + batch.rows)
    return found


@pytest.mark.parametrize("name", SEEDS)
def test_seeds_are_sound(tmp_path: Path, name: str):
    (tmp_path / name).write_bytes(SEEDS[name])
    found = read_all(tmp_path / name)
    assert len(found.documents) == found.positions > 0 and not found.rejected


@pytest.mark.parametrize("name", SEEDS)
def test_damage_is_refused_or_accounted_for(tmp_path: Path, name: str):
    outcomes = {"refused": 0, "read": 0}
    for number in range(MUTATIONS // len(SEEDS)):
        rng = random.Random(f"{name} {number}")
        path = tmp_path / name
        path.write_bytes(mutate(SEEDS[name], rng))
        started = time.perf_counter()
        most = rng.choice([100, 10_000])
        try:
            found = read_all(path, max_document_bytes=most)
        except CurationError:
            outcomes["refused"] += 1
        else:
            counted = len(found.documents) + len(found.rejected) + len(found.others)
            assert found.positions == counted, f"{name}, mutation {number}"
            cut = rng.choice([1, 300, 1 << 20]), rng.choice([1, 30, 1 << 20])
            other = read_all(path, *cut, max_document_bytes=most)
            assert found == other, f"{name}, mutation {number}"
            outcomes["read"] += 1
        assert time.perf_counter() - started < SLOWEST_SECONDS, f"{name}, mutation {number}"
    assert outcomes["read"]
