# SPDX-License-Identifier: Apache-2.0
"""Web archives: WET (`conversion` records, text as it stands) and WARC (`response` records, main text by Resiliparse).

`id` is the record's, `columns` may name `url` and `date`. Malformed UTF-8 becomes U+FFFD and is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pyarrow as pa

from curation.contract import Rejected
from curation.errors import InputError
from curation.reading import responses
from curation.reading.changes import open_planned
from curation.reading.documents import Documents, schema_of, strings, too_large
from curation.reading.inputs import FilePart, SourceFile
from curation.reading.streams import Piece, read_pieces
from curation.reading.wet import Record, read_records

FIELDS = {"url": "warc-target-uri", "date": "warc-date"}


def read_wet(part: FilePart, batch_bytes: int) -> Iterator[Documents]:
    yield from _read(part, batch_bytes, "conversion", lambda record: record.content)


def read_warc(part: FilePart, batch_bytes: int) -> Iterator[Documents]:
    yield from _read(part, batch_bytes, "response", _extractor(part.file.max_document_bytes))


def _read(part: FilePart, batch_bytes: int, kind: str, text_of: Callable[[Record], bytes]) -> Iterator[Documents]:
    """The records of one type; anything that is damaged takes a position of its own."""
    file = part.file
    row = size = 0
    waiting: list[Record] = []
    for record in read_records(partial(_pieces, file, batch_bytes), file.max_document_bytes):
        if record.headers.get("warc-type") != kind and not record.damage:
            continue
        waiting.append(record)
        size += len(record.content)
        if size >= batch_bytes:
            yield _as_documents(waiting, text_of, file, row)
            row, size, waiting = row + len(waiting), 0, []
    if waiting:
        yield _as_documents(waiting, text_of, file, row)


def _pieces(file: SourceFile, size: int) -> Iterator[Piece]:
    with open_planned(file) as stream:
        yield from read_pieces(stream, size)


def _as_documents(records: list[Record], text_of: Callable[[Record], bytes], file: SourceFile, row: int) -> Documents:
    rejected: list[Rejected] = []
    kept: list[int] = []
    texts: list[bytes] = []
    for k, record in enumerate(records):
        try:
            if record.damage or record.too_large:
                raise ValueError(record.damage or too_large(file.max_document_bytes))
            texts.append(text_of(record))
            kept.append(k)
        except ValueError as error:
            rejected.append(Rejected(row + k, row + k, record.offset, str(error)))
    text, repaired = strings(texts)
    headers = [records[k].headers for k in kept]
    columns = [
        pa.array([row + k for k in kept], pa.int64()),
        pa.array([_bare_id(entry.get("warc-record-id")) for entry in headers], pa.large_string()),
        text,
        *(pa.array([entry.get(FIELDS[name]) for entry in headers], pa.large_string()) for name in file.columns),
    ]
    table = pa.table(columns, schema=schema_of(file.columns))
    return Documents(table, rejected, len(records), len(records), repaired)


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
        headers, body = responses.split(record.content)
        if "html" not in headers.get("content-type", "").lower():
            return b""
        body = responses.decode(headers, body, max_bytes)
        html = body.decode(detect_encoding(body) or "utf-8", "replace")
        return bytes(extract_plain_text(html, main_content=True).encode())

    return extract
