# SPDX-License-Identifier: Apache-2.0
"""Web archives: WET (`conversion` records, whose content is the text) and WARC (pages: `response` records, and
`resource` records of HTML with an address of http or https).

The main text of HTML is extracted by `curation.reading.pages`; plain text is taken whole. A `response` with other
content has a position but no document, and is counted. Records of other types are counted too, but have no position.
`id` is the id of the record. `columns` may name `url`, `date` and `warc_id` (also the id), and for WARC `links`,
`status` and `content_type`. Malformed UTF-8 becomes U+FFFD; such documents are counted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pyarrow as pa

from curation.base.contract import Rejected
from curation.base.records import NOT_PAGE, OF_FILE, OTHER_TYPE, UNKNOWN_TYPE, OtherRecord
from curation.base.system.interrupts import check as check_interrupts
from curation.reading import page_encodings, pages, responses
from curation.reading.changes import open_planned
from curation.reading.documents import HELD_BYTES, Documents, schema_of, strings, too_large
from curation.reading.formats.base import Format
from curation.reading.links import links_of
from curation.reading.other_records import MAX_CHARACTERS, TYPES
from curation.reading.source_files import FileRange, SourceFile
from curation.reading.streams import read_chunks
from curation.reading.urls import shown
from curation.reading.wet import Record, read_records


class ArchivedRecord(NamedTuple):
    """A record with a position, reduced to its text. Without a text, it has an error or the kind of its content.

    error      why it is rejected
    content    media type of a response that is no page, such as image/png
    repaired   whether malformed bytes became U+FFFD before the text was known
    """

    offset: int
    headers: dict[str, str]
    text: bytes = b""
    error: str = ""
    content: str = ""
    repaired: bool = False

    @property
    def is_document(self) -> bool:
        """Whether the record is neither rejected nor of a kind that is left out."""
        return not (self.error or self.content)


TYPE, RECORD_ID, CONTENT_TYPE = "warc-type", "warc-record-id", "content-type"
URL, LINKS, STATUS, MEDIA_TYPE = "warc-target-uri", "links", "status", "content_type"
FIELDS = {"url": URL, "date": "warc-date", "warc_id": RECORD_ID}
WEB = re.compile("https?:", re.IGNORECASE)
HTTP, BROTLI = b"HTTP/", "brotli"

Read = Callable[[Record], ArchivedRecord]


def _read(file: SourceFile, batch_bytes: int, holds_text: Callable[[Record], bool], read: Read) -> Iterator[Documents]:
    """Yield the records for which `holds_text` is true as documents. Each damaged part of the file, and each record
    without a type, becomes one rejected record."""
    row = size = 0
    entries: list[ArchivedRecord] = []
    others: list[OtherRecord] = []
    is_unread = is_empty = True
    with open_planned(file) as stream:
        for record in read_records(read_chunks(stream, batch_bytes), file.max_document_bytes):
            kind, position = _type_of(record), row + len(entries)
            is_empty = False
            if record.damage or not kind or holds_text(record):
                entry = _entry(record, read, file)
                entries.append(entry)
                others += [OtherRecord(position, entry.content[:MAX_CHARACTERS], NOT_PAGE)] * bool(entry.content)
                is_unread &= bool(entry.content)
                size += len(entry.text) + sum(map(len, entry.headers.values()))
            else:
                others.append(
                    OtherRecord(position, kind[:MAX_CHARACTERS], OTHER_TYPE if kind in TYPES else UNKNOWN_TYPE)
                )
            size += HELD_BYTES
            if size >= batch_bytes:
                yield _as_documents(entries, file, row, others)
                row, size, entries, others = row + len(entries), 0, [], []
    if is_unread and not is_empty:
        others.append(OtherRecord(row + len(entries), shown(file.path), OF_FILE))
    if entries or others:
        yield _as_documents(entries, file, row, others)


def _type_of(record: Record) -> str:
    """Return the type of a record in lower case, since ISO 28500 ignores case."""
    return record.headers.get(TYPE, "").lower()


def _entry(record: Record, read: Read, file: SourceFile) -> ArchivedRecord:
    error = record.damage or ("" if record.headers.get(TYPE) else "the record has no WARC-Type")
    error = error or (too_large(file.max_document_bytes) if record.too_large else "")
    if not error:
        try:
            return read(record)
        except ValueError as raised:
            error = str(raised)
    return ArchivedRecord(record.offset, record.headers, error=error)


def _as_documents(entries: list[ArchivedRecord], file: SourceFile, row: int, others: list[OtherRecord]) -> Documents:
    numbered = list(enumerate(entries, row))
    rejected = [Rejected(k, k, entry.offset, entry.error) for k, entry in numbered if entry.error]
    documents = [(k, entry) for k, entry in numbered if entry.is_document]
    text, repaired = strings([entry.text for _, entry in documents])
    columns = [
        [k for k, _ in documents],
        [_value(entry.headers, RECORD_ID) for _, entry in documents],
        text,
        *([_value(entry.headers, FIELDS.get(name, name)) for _, entry in documents] for name in file.carried.values()),
    ]
    table = pa.table(columns, schema=schema_of(file.carried))
    repaired += sum(entry.repaired for entry in entries)
    return Documents(table, rejected, len(entries), len(entries), repaired, others=others)


def _value(headers: dict[str, str], field: str) -> str | None:
    value = headers.get(field) or None
    return value.removeprefix("urn:uuid:") if field == RECORD_ID and value else value


def _holds_page(record: Record) -> bool:
    """Return whether a WARC record gets a position: each response, and each resource that is HTML from the web."""
    if _type_of(record) != "resource":
        return _type_of(record) == "response"
    media = record.headers.get(CONTENT_TYPE, "")
    return bool(WEB.match(record.headers.get(URL, ""))) and responses.sniff(media, record.content) == responses.HTML


def _answer(record: Record) -> tuple[dict[str, str], bytes, str]:
    """Return the HTTP headers, body and status of a record. For a `resource`, and for a `response` of another protocol
    (such as a DNS look-up by Heritrix), the body is the whole content."""
    media = record.headers.get(CONTENT_TYPE, "")
    is_http = record.content.startswith(HTTP) or responses.media_type(media) in ("", "application/http")
    if _type_of(record) == "response" and is_http:
        return *responses.split(record.content), responses.status_of(record.content)
    return {CONTENT_TYPE: media}, record.content, ""


def _page_reader(file: SourceFile) -> Read:
    """Return the function that reads the page of a record. It raises ValueError for unreadable pages."""
    main_text = pages.extractor(file.extraction)
    with_links = LINKS in file.carried.values()

    def read(record: Record) -> ArchivedRecord:
        check_interrupts()  # a page takes up to a second
        headers, body, status = _answer(record)
        content_type = headers.get(CONTENT_TYPE, "")
        media = responses.media_type(content_type)
        archived = ArchivedRecord(record.offset, record.headers | {STATUS: status, MEDIA_TYPE: media})
        if not responses.may_be_page(content_type):
            return archived._replace(content=media)
        body = responses.decode(headers, body, file.max_document_bytes)
        charset = page_encodings.charset_of(content_type)
        match responses.sniff(content_type, body):
            case responses.HTML:
                text, repaired = main_text(body, charset)
                links = links_of(body, charset, record.headers.get(URL, "")) if with_links else ""
                archived.headers.update({LINKS: links} if with_links else {})
            case responses.TEXT:
                text, repaired = page_encodings.decode(body, charset)
                if not text.strip():  # only a byte order mark
                    return archived._replace(content=_unread(media, b""))
            case _:
                return archived._replace(content=_unread(media, body))
        return archived._replace(text=text.encode(), repaired=repaired)

    return read


def _unread(media: str, body: bytes) -> str:
    """Return the media type of a response that is no page, and "binary" or "empty" for its body."""
    return f"{media or 'no media type'}, {'binary' if body.strip() else 'empty'}"


class _Archive(Format):
    fields = (*FIELDS,)
    step = "parse"


class Wet(_Archive):
    """WET: the content of `conversion` records is the text."""

    name = "wet"
    suffixes = (".wet",)

    def read(self, file_range: FileRange, batch_bytes: int) -> Iterator[Documents]:
        return _read(
            file_range.file,
            batch_bytes,
            lambda record: _type_of(record) == "conversion",
            lambda record: ArchivedRecord(record.offset, record.headers, record.content),
        )


class Warc(_Archive):
    """WARC: the text is the main text of the page in a record. Reading raises InputError if a package is missing."""

    name = "warc"
    suffixes = (".warc",)
    fields = (*FIELDS, LINKS, STATUS, MEDIA_TYPE)
    start = rb"WARC/"
    options = ("extract",)
    hint = pages.HINT

    def read(self, file_range: FileRange, batch_bytes: int) -> Iterator[Documents]:
        file = file_range.file
        return _read(file, batch_bytes, _holds_page, _page_reader(file))

    def computed_with(self, file: SourceFile) -> dict[str, str]:
        pages.extractor(file.extraction)  # InputError where a package is missing
        return pages.versions(file.extraction) | {BROTLI: pages.version_of(BROTLI)}

    def note(self, file: SourceFile) -> str:
        return pages.note(file.extraction)
