# SPDX-License-Identifier: Apache-2.0
"""Excerpts: documents from seeded places in files, read within bounds of time and memory, for estimates.

Uncompressed JSON Lines are read at any place, Parquet at any row group, other files and URLs at their beginning. Every
place is as likely as its share of the stored bytes. Of a compressed file, only the first bytes are decompressed.
"""

from __future__ import annotations

import bz2
import os
import random
import time
from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import NamedTuple

import msgspec
import pyarrow as pa

from curation.contract import TEXT
from curation.errors import InputError
from curation.reading.documents import schema_of
from curation.reading.formats import format_of, probe
from curation.reading.slice_documents import read_documents
from curation.reading.source_files import FileRange, Slice, SourceFile
from curation.reading.streams import is_damage, open_raw, read_chunk
from curation.reading.urls import is_remote, shown

PIECE_BYTES = 256 << 10  # of a file, or of the text of a row group
MAX_HEAD_BYTES = 1 << 20  # of all heads together, if they are few
HEAD_BYTES = {"": PIECE_BYTES, "gzip": 96 << 10, "zstd": 96 << 10, "bzip2": 512 << 10, "xz": 192 << 10}
STEP = 8 << 10
MAX_DOCUMENT_BYTES = 16 << 20  # a longer document is no part of an excerpt
MAX_HEAD_TEXT = 16 << 20  # of one head: compression can multiply its size by a thousand
MAX_PIECES = 200
MAX_TEXT = 4 << 20  # of all excerpts together; the first of each kind of file is always read
MAX_SECONDS = 2.0  # on a slow disk; else only the seed chooses the excerpts


class Excerpt(NamedTuple):
    """The documents of one place in a file.

    table     the documents, with the schema of `schema_of`
    rejected  number of records that are no documents
    stored    stored bytes of the file that these records take up
    blank     number of rejected records whose text has no visible character
    """

    file: SourceFile
    table: pa.Table
    rejected: int
    stored: float
    seconds: float
    blank: int = 0


def draw_excerpts(
    files: Sequence[SourceFile], seed: int, kind_of: Callable[[SourceFile], Hashable]
) -> Iterator[Excerpt]:
    """Yield excerpts of the files, drawn with `seed`: first one of each kind, then others until a bound is reached.

    A small input is read whole. Data sets that are streamed, empty files and files of unknown size are skipped.

    Raises InputError for a file that cannot be read, or that lacks its text column.
    """
    text_bytes = 0
    kinds: set[Hashable] = set()
    places = _places(files, seed, kind_of)
    share = MAX_HEAD_BYTES // max(sum(not _is_cut(file) for file, _ in places), 1)
    if places:
        _read(*places[0], 0)  # the first read loads kernels, which is no part of the time of reading
    started = time.perf_counter()
    for file, place in places:
        is_full = text_bytes >= MAX_TEXT or time.perf_counter() - started > MAX_SECONDS
        if is_full and kind_of(file) in kinds:
            return
        kinds.add(kind_of(file))
        excerpt = _read(file, place, share)
        text_bytes += excerpt.table.column(TEXT).nbytes
        yield excerpt


def _places(
    files: Sequence[SourceFile], seed: int, kind_of: Callable[[SourceFile], Hashable]
) -> list[tuple[SourceFile, int]]:
    """The places to read: (file, number of the place in it), the first of each kind before all others."""
    files = [file for file in files if file.bytes > 0]
    ends = list(accumulate(-(-file.bytes // PIECE_BYTES) for file in files))
    total = ends[-1] if ends else 0
    drawn = random.Random(seed).sample(range(total), min(total, MAX_PIECES))
    numbers = [(number, bisect_right(ends, number)) for number in drawn]
    places = [(files[at], number - (ends[at - 1] if at else 0)) for number, at in numbers]
    places = [(file, place if _is_cut(file) else 0) for file, place in places]
    places += [(file, 0) for file in files]  # kinds that were not drawn
    first: dict[Hashable, tuple[SourceFile, int]] = {}
    for file, place in places:
        first.setdefault(kind_of(file), (file, place))
    unique = {(file.path, place): (file, place) for file, place in [*first.values(), *places[: len(drawn)]]}
    return list(unique.values())


def _is_cut(file: SourceFile) -> bool:
    """Whether a file is read at any place. URLs are read from the start: some servers cannot send a part of a file."""
    return not is_remote(file.path) and format_of(file).is_divisible(file)


def _read(file: SourceFile, place: int, head_bytes: int) -> Excerpt:
    limited = msgspec.structs.replace(file, max_document_bytes=min(file.max_document_bytes, MAX_DOCUMENT_BYTES))
    probed = limited if file.text_column else probe(limited)
    started = time.perf_counter()
    stored: float
    if piece := format_of(probed).piece(probed, place, PIECE_BYTES):
        table, rejected, is_whole = _read_range(probed, piece.start, piece.stop, piece.max_text)
        if piece.records:
            stored = probed.bytes * (len(table) + rejected) / piece.records or probed.bytes
        else:
            size = piece.stop - piece.start
            stored = size if is_whole else min(size, max(table.nbytes, 1))
    else:
        with _head(probed, head_bytes) as (head, stored):
            table, rejected, _ = _read_range(head, 0, head.bytes, MAX_HEAD_TEXT)
    return Excerpt(file, table, rejected, stored, time.perf_counter() - started)


def _read_range(file: SourceFile, start: int, stop: int, max_bytes: int) -> tuple[pa.Table, int, bool]:
    """Read documents until they have `max_bytes`. Return them, the rejected records, and whether all were read."""
    tables, rejected, size = [], 0, 0
    file_range = FileRange(file=file, start=start, stop=stop)
    for documents in read_documents(Slice(index=0, ranges=[file_range]), PIECE_BYTES):
        tables.append(documents.table)
        rejected += sum(not is_damage(entry.error) for entry in documents.rejected)
        size += documents.table.nbytes
        if size >= max_bytes:
            return pa.concat_tables(tables), rejected, False
    if not tables:
        return schema_of(file.carried).empty_table(), 0, True
    return pa.concat_tables(tables), rejected, True


@contextmanager
def _head(file: SourceFile, min_bytes: int) -> Iterator[tuple[SourceFile, int]]:
    """Yield the beginning of a file as a file, and the stored bytes that can be read of it.

    A head of compressed bytes, or of a URL, is held in memory; nothing is written.
    """
    size = min(file.bytes, max(HEAD_BYTES[file.compression], min_bytes))
    if format_of(file).is_one_document(file) and not file.compression:
        size = min(file.bytes, MAX_DOCUMENT_BYTES)
    if size == file.bytes or not (file.compression or is_remote(file.path)):
        yield msgspec.structs.replace(file, bytes=size), size
        return
    descriptor = os.memfd_create("head")
    try:
        with open_raw(file.path, file.planned) as raw:
            head = read_chunk(raw, size).data
        os.write(descriptor, head)
        path = f"/proc/self/fd/{descriptor}"
        try:
            stored = _end_of_blocks(head) if file.compression == "bzip2" else size
            yield msgspec.structs.replace(file, path=path, bytes=size), stored
        except InputError as error:
            raise InputError(str(error).replace(path, shown(file.path))) from None
    finally:
        os.close(descriptor)


def _end_of_blocks(head: bytes) -> int:
    """Return the end of the last whole block of bzip2 data, in steps of STEP bytes: a block is 900 KB of text, and a
    part of one cannot be read. The whole length for data that begins with a larger or a damaged block."""
    decoder, end = bz2.BZ2Decompressor(), 0
    for start in range(0, len(head), STEP):
        data = head[start : start + STEP]
        while data:
            decoder = bz2.BZ2Decompressor() if decoder.eof else decoder
            try:
                end = min(start + STEP, len(head)) if decoder.decompress(data) else end
            except OSError:
                return end or len(head)
            data = decoder.unused_data
    return end or len(head)
