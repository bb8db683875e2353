# SPDX-License-Identifier: Apache-2.0
"""Web archives: WET (`conversion` records, text as it stands) and WARC (`response` records, main text by Resiliparse).

`id` is the record's, `columns` may name `url` and `date`. Malformed UTF-8 becomes U+FFFD and is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import pyarrow as pa

from curation.contract import Rejected
from curation.errors import InputError
from curation.interrupts import check as check_interrupts
from curation.reading import pages, responses
from curation.reading.changes import open_planned
from curation.reading.documents import HELD_BYTES, Documents, schema_of, strings, too_large
from curation.reading.source_files import FilePart, SourceFile
from curation.reading.streams import Piece, read_pieces
from curation.reading.wet import Record, read_records


class Entry(NamedTuple):
    """What is kept of a record: its text, or why it has none."""

    offset: int
    headers: dict[str, str]
    text: bytes
    error: str


FIELDS = {"url": "warc-target-uri", "date": "warc-date"}


def read_wet(part: FilePart, batch_bytes: int) -> Iterator[Documents]:
    yield from _read(part, batch_bytes, "conversion", lambda record: record.content)


def read_warc(part: FilePart, batch_bytes: int) -> Iterator[Documents]:
    yield from _read(part, batch_bytes, "response", _extractor(part.file.max_document_bytes))


def _read(part: FilePart, batch_bytes: int, kind: str, text_of: Callable[[Record], bytes]) -> Iterator[Documents]:
    """The records of one type; anything that is damaged takes a position of its own."""
    file = part.file
    row = size = 0
    waiting: list[Entry] = []
    for record in read_records(partial(_pieces, file, batch_bytes), file.max_document_bytes):
        if record.headers.get("warc-type") != kind and not record.damage:
            continue
        entry = _with_text(record, text_of, file)
        waiting.append(entry)
        size += HELD_BYTES + len(entry.text) + sum(map(len, record.headers.values()))
        if size >= batch_bytes:
            yield _as_documents(waiting, file, row)
            row, size, waiting = row + len(waiting), 0, []
    if waiting:
        yield _as_documents(waiting, file, row)


def _with_text(record: Record, text_of: Callable[[Record], bytes], file: SourceFile) -> Entry:
    error = record.damage or (too_large(file.max_document_bytes) if record.too_large else "")
    text = b""
    try:
        text = b"" if error else text_of(record)
    except ValueError as raised:
        error = str(raised)
    return Entry(record.offset, record.headers, text, error)


def _pieces(file: SourceFile, size: int) -> Iterator[Piece]:
    with open_planned(file) as stream:
        yield from read_pieces(stream, size)


def _as_documents(entries: list[Entry], file: SourceFile, row: int) -> Documents:
    numbered = list(enumerate(entries, row))
    rejected = [Rejected(k, k, entry.offset, entry.error) for k, entry in numbered if entry.error]
    text, repaired = strings([entry.text for entry in entries if not entry.error])
    headers = [entry.headers for entry in entries if not entry.error]
    columns = [
        pa.array([k for k, entry in numbered if not entry.error], pa.int64()),
        pa.array([_bare_id(entry.get("warc-record-id")) for entry in headers], pa.large_string()),
        text,
        *(pa.array([entry.get(FIELDS[name]) for entry in headers], pa.large_string()) for name in file.columns),
    ]
    table = pa.table(columns, schema=schema_of(file.columns))
    return Documents(table, rejected, len(entries), len(entries), repaired)


def _bare_id(value: str | None) -> str | None:
    return value.strip("<>").removeprefix("urn:uuid:") if value else None


def _extractor(max_bytes: int) -> Callable[[Record], bytes]:
    """HTML to main text; what is no HTML gives an empty document, ValueError says what cannot be read."""
    try:
        from resiliparse.extract.html2text import extract_plain_text
        from resiliparse.parse.encoding import detect_encoding
    except ImportError:
        raise InputError("reading WARC needs Resiliparse; install gpu-pipeline[warc], or read WET files") from None

    def extract(record: Record) -> bytes:
        check_interrupts()  # a page takes up to a second
        headers, body = responses.split(record.content)
        if "html" not in headers.get("content-type", "").lower():
            return b""
        body = responses.decode(headers, body, max_bytes)
        pages.check(body)
        html = body.decode(detect_encoding(body) or "utf-8", "replace")
        return bytes(extract_plain_text(html, main_content=True).encode())

    return extract
