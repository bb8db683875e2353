# SPDX-License-Identifier: Apache-2.0
"""Web archives: WET (`conversion` records, text as it stands) and WARC (`response` records, main text by Resiliparse).

`id` is the record's, `columns` may name `url` and `date`. Malformed UTF-8 becomes U+FFFD and is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from curation.contract import Rejected
from curation.errors import InputError
from curation.reading.documents import Documents, schema_of, strings, too_large
from curation.reading.inputs import FilePart, SourceFile
from curation.reading.streams import open_stream, read_pieces
from curation.reading.wet import Record, read_records

FIELDS = {"url": "warc-target-uri", "date": "warc-date"}


def read_wet(part: FilePart, batch_bytes: int) -> Iterator[Documents]:
    yield from _read(part, batch_bytes, "conversion", lambda record: record.content)


def read_warc(part: FilePart, batch_bytes: int) -> Iterator[Documents]:
    yield from _read(part, batch_bytes, "response", _extractor())


def _read(part: FilePart, batch_bytes: int, kind: str, text_of: Callable[[Record], bytes]) -> Iterator[Documents]:
    """The records of one type; anything that is damaged takes a position of its own."""
    file = part.file
    row = size = 0
    waiting: list[Record] = []
    with open_stream(file.path, file.compression) as stream:
        for record in read_records(read_pieces(stream, batch_bytes)):
            if record.headers.get("warc-type") != kind and not record.damage:
                continue
            waiting.append(record)
            size += len(record.content)
            if size >= batch_bytes:
                yield _as_documents(waiting, text_of, file, row)
                row, size, waiting = row + len(waiting), 0, []
    if waiting:
        yield _as_documents(waiting, text_of, file, row)


def _as_documents(records: list[Record], text_of: Callable[[Record], bytes], file: SourceFile, row: int) -> Documents:
    rejected: list[Rejected] = []
    kept: list[int] = []
    texts: list[bytes] = []
    for k, record in enumerate(records):
        error = record.damage
        if not error and len(record.content) > file.max_document_bytes:
            error = too_large(file.max_document_bytes)
        if error:
            rejected.append(Rejected(row + k, row + k, record.offset, error))
        else:
            kept.append(k)
            texts.append(text_of(record))
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


def _extractor() -> Callable[[Record], bytes]:
    """HTML to main text; what is no HTML gives an empty document."""
    try:
        from resiliparse.extract.html2text import extract_plain_text
        from resiliparse.parse.encoding import detect_encoding
    except ImportError:
        raise InputError("reading WARC needs Resiliparse; install gpu-pipeline[warc], or read WET files") from None

    def extract(record: Record) -> bytes:
        head, _, body = record.content.partition(b"\r\n\r\n")
        if b"html" not in _content_type(head):
            return b""
        html = body.decode(detect_encoding(body) or "utf-8", "replace")
        return bytes(extract_plain_text(html, main_content=True).encode())

    return extract


def _content_type(head: bytes) -> bytes:
    lines: Any = head.lower().splitlines()
    return next((line for line in lines if line.startswith(b"content-type:")), b"")
