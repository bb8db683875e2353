# SPDX-License-Identifier: Apache-2.0
"""Plain text: a file is a document, or is cut at a separator. Pieces of white space alone are no documents."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from curation.contract import Rejected
from curation.errors import InputError
from curation.reading.documents import Documents, schema_of, strings, too_large
from curation.reading.inputs import FilePart, SourceFile
from curation.reading.streams import open_stream, read_pieces, shown

FIELDS = ("path",)  # what `columns` may name


def read_text(part: FilePart, batch_bytes: int) -> Iterator[Documents]:
    row = 0
    for pieces, damage in _cut_pieces(part.file, batch_bytes):
        documents = _as_documents([piece for piece in pieces if piece.strip()], part.file, row, damage)
        row += documents.rows
        yield documents


def _cut_pieces(file: SourceFile, batch_bytes: int) -> Iterator[tuple[list[bytes], str]]:
    """The pieces between separators, as many as a batch holds, and the damage behind them."""
    separator = file.separator.encode(file.encoding)
    rest = b""
    with open_stream(file.path, file.compression) as stream:
        for data, damage in read_pieces(stream, batch_bytes):
            rest += data
            if separator:
                *pieces, rest = rest.split(separator)
                yield pieces, ""
            if damage:
                yield [rest], damage
                return
    yield [rest], ""


def _as_documents(pieces: list[bytes], file: SourceFile, row: int, damage: str) -> Documents:
    limit = file.max_document_bytes
    errors = {k: too_large(limit) for k, piece in enumerate(pieces) if len(piece) > limit}
    rows = [k for k in range(len(pieces)) if k not in errors]
    text, repaired = _decode([pieces[k] for k in rows], file)
    schema = schema_of(file.columns)
    carried = [pa.repeat(pa.scalar(shown(file.path), pa.large_string()), len(rows)) for _ in file.columns]
    numbers = pa.array([row + k for k in rows], pa.int64())
    table = pa.table([numbers, pa.nulls(len(rows), pa.large_string()), text, *carried], schema=schema)
    rejected = [Rejected(row + k, row + k, -1, error) for k, error in errors.items()]
    total = len(pieces)
    if damage:
        rejected.append(Rejected(row + total, row + total, -1, damage))
        total += 1
    return Documents(table, rejected, total, total, repaired)


def _decode(pieces: list[bytes], file: SourceFile) -> tuple[pa.Array, int]:
    if file.encoding in ("utf-8", "utf8"):
        return strings(pieces)
    try:
        return pa.array([piece.decode(file.encoding) for piece in pieces], pa.large_string()), 0
    except UnicodeDecodeError as error:
        raise InputError(f"{shown(file.path)} is not {file.encoding}: {error}") from None


__all__ = ["FIELDS", "read_text"]
