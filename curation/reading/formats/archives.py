# SPDX-License-Identifier: Apache-2.0
"""Web archives: WET (`conversion` records, whose content is the text) and WARC (`response` records, whose main text
`curation.reading.pages` extracts).

`id` is the record's. `columns` may name `url`, `date` and `warc_id`, which is the same id; of WARC also `links`.
Malformed UTF-8 becomes U+FFFD; such documents are counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import pyarrow as pa

from curation.contract import Rejected
from curation.reading import pages, responses
from curation.reading.changes import open_planned
from curation.reading.documents import HELD_BYTES, Documents, schema_of, strings, too_large
from curation.reading.formats.base import Format
from curation.reading.links import links_of
from curation.reading.page_encodings import charset_of
from curation.reading.source_files import FileRange, SourceFile
from curation.reading.streams import read_chunks
from curation.reading.unknown_types import MAX_CHARACTERS, TYPES
from curation.reading.wet import Record, read_records
from curation.records import Unknown
from curation.system.interrupts import check as check_interrupts


class Entry(NamedTuple):
    """A record reduced to its text, or to the error where it has none."""

    offset: int
    headers: dict[str, str]
    text: bytes
    error: str
    repaired: bool  # malformed bytes became U+FFFD before the text was known


TYPE, RECORD_ID = "warc-type", "warc-record-id"
URL, LINKS = "warc-target-uri", "links"
FIELDS = {"url": URL, "date": "warc-date", "warc_id": RECORD_ID}

TextOf = Callable[[Record], tuple[bytes, bool, dict[str, str]]]  # with `repaired`, and further fields


def _read(file: SourceFile, batch_bytes: int, kind: str, text_of: TextOf) -> Iterator[Documents]:
    """Yield the records of one type as documents. Each damaged stretch of the file, and each record without a type,
    counts as one rejected record. Types are compared without case, as the literals of ISO 28500 are."""
    row = size = 0
    entries: list[Entry] = []
    unknown: list[Unknown] = []
    with open_planned(file) as stream:
        for record in read_records(read_chunks(stream, batch_bytes), file.max_document_bytes):
            found = record.headers.get(TYPE, "").lower()
            if record.damage or found in ("", kind):
                entry = _with_text(record, text_of, file)
                entries.append(entry)
                size += HELD_BYTES + len(entry.text) + sum(map(len, entry.headers.values()))
            elif found not in TYPES:
                unknown.append(Unknown(row + len(entries), found[:MAX_CHARACTERS]))
                size += HELD_BYTES
            if size >= batch_bytes:
                yield _as_documents(entries, file, row, unknown)
                row, size, entries, unknown = row + len(entries), 0, [], []
    if entries or unknown:
        yield _as_documents(entries, file, row, unknown)


def _with_text(record: Record, text_of: TextOf, file: SourceFile) -> Entry:
    error = record.damage or ("" if record.headers.get(TYPE) else "the record has no WARC-Type")
    error = error or (too_large(file.max_document_bytes) if record.too_large else "")
    text, repaired, fields = b"", False, dict[str, str]()
    try:
        if not error:
            text, repaired, fields = text_of(record)
    except ValueError as raised:
        error = str(raised)
    return Entry(record.offset, record.headers | fields, text, error, repaired)


def _as_documents(entries: list[Entry], file: SourceFile, row: int, unknown: list[Unknown]) -> Documents:
    numbered = list(enumerate(entries, row))
    rejected = [Rejected(k, k, entry.offset, entry.error) for k, entry in numbered if entry.error]
    text, repaired = strings([entry.text for entry in entries if not entry.error])
    headers = [entry.headers for entry in entries if not entry.error]
    columns = [
        [k for k, entry in numbered if not entry.error],
        [_value(entry, RECORD_ID) for entry in headers],
        text,
        *([_value(entry, FIELDS.get(name, name)) for entry in headers] for name in file.carried.values()),
    ]
    table = pa.table(columns, schema=schema_of(file.carried))
    repaired += sum(entry.repaired for entry in entries)
    return Documents(table, rejected, len(entries), len(entries), repaired, unknown=unknown)


def _value(headers: dict[str, str], field: str) -> str | None:
    value = headers.get(field)
    if field != RECORD_ID:
        return value
    return value.strip("<>").removeprefix("urn:uuid:") if value else None


def _extractor(file: SourceFile) -> TextOf:
    """Return the function from a record to its main text: "" for other content than HTML, ValueError for unreadable
    pages."""
    main_text = pages.extractor(file.extraction)
    with_links = LINKS in file.carried.values()

    def extract(record: Record) -> tuple[bytes, bool, dict[str, str]]:
        check_interrupts()  # a page takes up to a second
        headers, body = responses.split(record.content)
        content_type = headers.get("content-type", "")
        if "html" not in content_type.lower():
            return b"", False, {}
        body = responses.decode(headers, body, file.max_document_bytes)
        charset = charset_of(content_type)
        text, repaired = main_text(body, charset)
        links = links_of(body, charset, record.headers.get(URL, "")) if with_links else ""
        return text.encode(), repaired, {LINKS: links} if with_links else {}

    return extract


class _Archive(Format):
    fields = (*FIELDS,)
    address = "url"
    step = "parse"


class Wet(_Archive):
    """The content of `conversion` records is the text."""

    name = "wet"
    suffixes = (".wet",)

    def read(self, file_range: FileRange, batch_bytes: int) -> Iterator[Documents]:
        return _read(file_range.file, batch_bytes, "conversion", lambda record: (record.content, False, {}))


class Warc(_Archive):
    """The main text of the page in a `response` record. InputError where a package is missing."""

    name = "warc"
    suffixes = (".warc",)
    fields = (*FIELDS, LINKS)
    start = rb"WARC/"
    options = ("extract",)
    hint = pages.HINT

    def read(self, file_range: FileRange, batch_bytes: int) -> Iterator[Documents]:
        file = file_range.file
        return _read(file, batch_bytes, "response", _extractor(file))

    def require(self, file: SourceFile) -> None:
        pages.extractor(file.extraction)

    def computed_with(self, file: SourceFile) -> dict[str, str]:
        return pages.versions(file.extraction)

    def note(self, file: SourceFile) -> str:
        return pages.note(file.extraction)
