# SPDX-License-Identifier: Apache-2.0
"""Plain text: a file is a document, or is cut at a separator. Pieces of white space alone are no documents.

Other encodings become UTF-8 as they are read, so that separators and sizes mean the same in all of them. A byte order
mark at the start of a file is not part of the text.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator

import pyarrow as pa

from curation.contract import Rejected
from curation.reading.changes import open_planned
from curation.reading.documents import LINES_AT_ONCE, MALFORMED, Documents, schema_of, strings, too_large
from curation.reading.source_files import FilePart, SourceFile
from curation.reading.streams import Piece, read_pieces
from curation.reading.urls import shown

FIELDS = ("path",)  # what `columns` may name
TOO_LARGE = None  # stands for a document that is not held


def read_text(part: FilePart, batch_bytes: int) -> Iterator[Documents]:
    row = 0
    with open_planned(part.file) as stream:
        pieces = _without_mark(_as_utf8(read_pieces(stream, batch_bytes), part.file.encoding))
        for texts, damage in _cut(pieces, part.file.separator.encode(), part.file.max_document_bytes):
            documents = _as_documents(texts, part.file, row, damage)
            row += documents.rows
            yield documents


def _as_utf8(pieces: Iterator[Piece], encoding: str) -> Iterator[Piece]:
    """What is malformed stays malformed, in UTF-8, for `strings` to repair and count."""
    if codecs.lookup(encoding).name in ("utf-8", "utf-8-sig"):
        yield from pieces
        return
    decoder = codecs.getincrementaldecoder(encoding)(MALFORMED)
    try:
        for data, damage in pieces:
            yield Piece(decoder.decode(data).encode("utf-8", MALFORMED), damage)
        yield Piece(decoder.decode(b"", True).encode("utf-8", MALFORMED), "")
    except UnicodeError as error:  # such as UTF-16 without a byte order mark
        yield Piece(b"", f"the file is not {encoding}: {error}")


def _without_mark(pieces: Iterator[Piece]) -> Iterator[Piece]:
    head = b""
    for data, damage in pieces:
        head += data
        if damage or len(head) >= len(codecs.BOM_UTF8):
            yield Piece(head.removeprefix(codecs.BOM_UTF8), damage)
            yield from pieces
            return
    yield Piece(head.removeprefix(codecs.BOM_UTF8), "")


def _cut(pieces: Iterator[Piece], separator: bytes, limit: int) -> Iterator[tuple[list[bytes | None], str]]:
    """The documents between separators, as many as a batch holds, and the damage behind them."""
    rest = bytearray()
    overlap = max(0, len(separator) - 1)  # bytes that may be the start of a separator
    skipping = False  # the start of a document that is too large has been let go
    for data, damage in pieces:
        searched = max(0, len(rest) - overlap)
        rest += data
        while separator and rest.find(separator, searched) >= 0:
            first, *others, rest = rest.split(separator, LINES_AT_ONCE)
            yield [TOO_LARGE if skipping else _held(first, limit), *(_held(text, limit) for text in others)], ""
            skipping, searched = False, 0
        if skipping or len(rest) > limit + overlap:
            skipping = True
            del rest[: max(0, len(rest) - overlap)]
        if damage:
            break
    else:
        damage = ""
    yield [TOO_LARGE if skipping else _held(rest, limit)], damage


def _held(text: bytearray, limit: int) -> bytes | None:
    return bytes(text) if len(text) <= limit else TOO_LARGE


def _as_documents(texts: list[bytes | None], file: SourceFile, row: int, damage: str) -> Documents:
    numbered = list(enumerate((text for text in texts if text is TOO_LARGE or text.strip()), row))
    rejected = [Rejected(k, k, -1, too_large(file.max_document_bytes)) for k, text in numbered if text is TOO_LARGE]
    rows = [k for k, text in numbered if text is not TOO_LARGE]
    text, repaired = strings([text for _, text in numbered if text is not TOO_LARGE])
    carried = [pa.repeat(pa.scalar(shown(file.path), pa.large_string()), len(rows)) for _ in file.columns]
    columns = [pa.array(rows, pa.int64()), pa.nulls(len(rows), pa.large_string()), text, *carried]
    table = pa.table(columns, schema=schema_of(file.columns))
    total = len(numbered)
    if damage:
        rejected.append(Rejected(row + total, row + total, -1, damage))
        total += 1
    return Documents(table, rejected, total, total, repaired)


__all__ = ["FIELDS", "read_text"]
