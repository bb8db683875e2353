# SPDX-License-Identifier: Apache-2.0
"""Excerpts for estimates: documents from randomly chosen pieces of files, read within bounds of time and memory.

Uncompressed JSON Lines are read at any position, and large Parquet files at the beginning of any row group. The
positions are spread evenly over the stored bytes. Other files are read from their beginning, and to their end if
SCAN_BYTES allows. Of the batches read, only some at even distances are kept. Of URLs, and of formats whose texts are
slow to extract, only the beginning of each file is read.
"""

from __future__ import annotations

import bz2
import math
import os
import random
import time
from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate, zip_longest
from typing import NamedTuple

import msgspec
import pyarrow as pa

from curation.base.arrays import text_bytes_of
from curation.base.contract import TEXT
from curation.base.errors import InputError
from curation.reading.documents import schema_of
from curation.reading.formats import format_of, probe
from curation.reading.formats.base import NEEDED
from curation.reading.slice_documents import read_documents
from curation.reading.source_files import FileRange, Slice, SourceFile
from curation.reading.streams import is_damage, open_raw, read_chunk
from curation.reading.urls import is_remote, shown

PIECE_BYTES = 256 << 10  # size of a piece of a file, or of the text of a row group
# Size of a piece of JSON Lines: many small pieces represent a file better, and all are read
LINES_PIECE_BYTES = 8 << 10
ROOT_BYTES = 32  # a file that is one document has sqrt(size) / 32 pieces, so a long one is drawn more likely
UNIT_BYTES = 32 << 10  # text of a batch
MAX_HEAD_BYTES = 1 << 20  # in total, for URLs and for files whose texts are slow to extract, if there are few of these
# In total, for all other files that are read from their beginning, by compression
SCAN_BYTES = {"": 32 << 20, "gzip": 12 << 20, "zstd": 12 << 20, "bzip2": 2 << 20, "xz": 6 << 20}
SCANNED_PARTS = 16 << 20  # a larger file of row groups is not scanned
MIN_BATCHES = 4
MAX_EXPANSION, MIN_TEXT = 12, 16 << 20  # maximum text per scanned byte, but at least MIN_TEXT per file
HEAD_BYTES = {"": PIECE_BYTES, "gzip": 96 << 10, "zstd": 96 << 10, "bzip2": 512 << 10, "xz": 192 << 10}
STEP = 8 << 10
MAX_DOCUMENT_BYTES = 16 << 20  # a longer document is no part of an excerpt
MAX_HEAD_TEXT = 16 << 20  # text of one head, since decompression can multiply its size by a thousand
MAX_PIECES = 400
MIN_PIECES = 40  # for each kind of file that has pieces, if there are few kinds
# Bounds for the files that are read fast, and again for the slow files, so that slow files do not use up the bound of
# the others. The first piece of each kind of file is always read.
MAX_TEXT = 6 << 20
MAX_SECONDS = 2.0  # reached only on a slow disk; otherwise the excerpts depend only on the seed


class Excerpt(NamedTuple):
    """The documents of one piece of a file.

    table     the documents, with the schema of `schema_of`
    rejected  number of records that are no documents, estimated in the same way as `documents`
    stored    stored bytes of the file that these records take up
    documents number of documents that the excerpt represents
    position  position in the file, to sort excerpts
    unread    share of the file, or of its row group, from which no excerpt can be drawn
    blank     number of rejected records whose text has no visible character
    """

    file: SourceFile
    table: pa.Table
    rejected: float
    stored: float
    seconds: float
    documents: float
    position: int = 0
    unread: float = 0.0
    blank: int = 0


def draw_excerpts(
    files: Sequence[SourceFile], seed: int, kind_of: Callable[[SourceFile], Hashable]
) -> Iterator[Excerpt]:
    """Yield excerpts of the files, drawn with `seed`: first one of each kind of file, then others until a bound is
    reached.

    A small input is read whole. Data sets that are streamed, empty files and files of unknown size are skipped.

    Raises InputError for a file that cannot be read, or that lacks its text column.
    """
    pieces = _pieces_to_read(files, seed, kind_of)
    limits = _limits([file for file, _ in pieces if not _is_cut(file)])
    total = sum(max(file.bytes, 0) for file in files)
    for is_slow in (False, True):
        selected = [(file, number) for file, number in pieces if _is_head(file) == is_slow]
        yield from _bounded(selected, limits, total, kind_of)


def _bounded(
    pieces: Sequence[tuple[SourceFile, int]], limits: Mapping[str, int], total: int,
    kind_of: Callable[[SourceFile], Hashable],
) -> Iterator[Excerpt]:  # fmt: skip
    """Yield the excerpts of pieces until a bound is reached."""
    text_bytes = 0
    kinds: set[Hashable] = set()
    if pieces:
        [*_read(*pieces[0], {}, 1)]  # the first read loads kernels; its time does not count
    started = time.perf_counter()
    groups: set[tuple[str, int]] = set()
    for file, number in pieces:
        is_full = text_bytes >= MAX_TEXT or time.perf_counter() - started > MAX_SECONDS
        if is_full and kind_of(file) in kinds:
            return
        kinds.add(kind_of(file))
        if format_of(file).parts == NEEDED and _is_cut(file):
            piece = format_of(file).piece(file, number, PIECE_BYTES)
            if piece and (file.path, piece.start) in groups:  # an earlier piece was in the same row group
                continue
            groups.add((file.path, piece.start if piece else 0))
        for excerpt in _read(file, number, limits, total):
            # `_scan` bounds the text of other files
            text_bytes += excerpt.table.column(TEXT).nbytes * _has_pieces(file)
            yield excerpt


def _limits(files: Sequence[SourceFile]) -> dict[str, int]:
    """Return path -> stored bytes to read, for each file that is read from its beginning. Small files are read whole.
    Of each larger file, the same share of its bound is read."""
    parts = {file.path: file.bytes / _scan_bytes(file) for file in files}
    left, level = 1.0, 1.0
    for number, part in enumerate(sorted(parts.values())):
        level = left / (len(parts) - number)
        if part > level:
            break
        left -= part
    else:
        level = 1.0
    return {file.path: file.bytes if parts[file.path] <= level else int(level * _scan_bytes(file)) for file in files}


def _scan_bytes(file: SourceFile) -> int:
    return MAX_HEAD_BYTES if _is_head(file) else SCAN_BYTES[file.compression]


def _pieces_to_read(
    files: Sequence[SourceFile], seed: int, kind_of: Callable[[SourceFile], Hashable]
) -> list[tuple[SourceFile, int]]:
    """Return the pieces to read as (file, number of the piece in it): the first of each kind, the second of each, and
    so on.

    All bytes are divided into up to MAX_PIECES equal parts, and one piece is drawn from each part. For a kind with few
    pieces, the drawing is repeated with the bytes of this kind. The pieces of a kind are in random order, since reading
    may end at any piece.
    """
    files = [file for file in files if file.bytes > 0]
    kinds: dict[Hashable, list[SourceFile]] = {}
    for file in files:
        kinds.setdefault(kind_of(file), []).append(file)
    source = random.Random(seed)
    drawn: dict[Hashable, list[tuple[SourceFile, int]]] = {}
    for file, number in _drawn(files, MAX_PIECES, source):
        drawn.setdefault(kind_of(file), []).append((file, number))
    least = min(MIN_PIECES, MAX_PIECES // max(len(kinds), 1))
    queues = []
    for kind, members in kinds.items():
        pieces = drawn.get(kind, [])
        if len(pieces) < least and not _is_head(members[0]) and _has_pieces(members[0]):
            pieces = [*_drawn(members, least, source)]
        queues.append(source.sample(pieces, len(pieces)) or [(members[0], 0)])
    ordered = [piece for row in zip_longest(*queues) for piece in row if piece]
    return list({(file.path, number): (file, number) for file, number in ordered}.values())


def _has_pieces(file: SourceFile) -> bool:
    """Return whether pieces of the file can be drawn, or the file is one document. Other files are read from their
    beginning."""
    return _is_cut(file) or format_of(file).is_one_document(file)


def _drawn(files: Sequence[SourceFile], most: int, source: random.Random) -> Iterator[tuple[SourceFile, int]]:
    """Yield a random piece from each of up to `most` equal parts of the files."""
    ends = list(accumulate(map(_number_of_pieces, files)))
    total = ends[-1] if ends else 0
    parts = min(total, most)
    for part in range(parts):
        number = source.randrange(part * total // parts, (part + 1) * total // parts)
        at = bisect_right(ends, number)
        yield files[at], number - (ends[at - 1] if at else 0) if _is_cut(files[at]) else 0


def _piece_bytes(file: SourceFile) -> int:
    return LINES_PIECE_BYTES if _is_cut(file) and format_of(file).parts != NEEDED else PIECE_BYTES


def _number_of_pieces(file: SourceFile) -> int:
    if format_of(file).is_one_document(file):
        return 1 + math.isqrt(file.bytes) // ROOT_BYTES
    return -(-file.bytes // _piece_bytes(file))


def _is_head(file: SourceFile) -> bool:
    """Return whether only the beginning of a file is read: of URLs, and of formats whose texts are slow to extract."""
    return is_remote(file.path) or "extract" in format_of(file).options


def _is_cut(file: SourceFile) -> bool:
    """Return whether pieces at any position of a file can be read. URLs are read from the start, since some servers
    cannot send a part."""
    kind = format_of(file)
    is_small = kind.parts == NEEDED and file.bytes <= SCANNED_PARTS
    return not is_remote(file.path) and kind.is_divisible(file) and not is_small


def _read(file: SourceFile, number: int, limits: Mapping[str, int], total: int) -> Iterator[Excerpt]:
    limited = msgspec.structs.replace(file, max_document_bytes=min(file.max_document_bytes, MAX_DOCUMENT_BYTES))
    probed = limited if file.text_column else probe(limited)
    started = time.perf_counter()
    if not _is_cut(file):
        yield from _scan(
            file, probed, limits.get(file.path, 0), max(MAX_TEXT * file.bytes // total // UNIT_BYTES, MIN_BATCHES)
        )
    elif piece := format_of(probed).piece(probed, number, _piece_bytes(file)):
        table, rejected, is_whole = _read_range(probed, piece.start, piece.stop, piece.max_text)
        stored, unread = float(piece.stop - piece.start), 0.0
        if piece.records:
            stored = probed.bytes * (len(table) + rejected) / piece.records or probed.bytes
            unread = 0.0 if is_whole else 1.0
        elif not is_whole:
            stored = min(stored, max(table.nbytes, 1))
        yield Excerpt(file, table, rejected, stored, time.perf_counter() - started, len(table), number, unread)


def _read_range(file: SourceFile, start: int, stop: int, max_bytes: int) -> tuple[pa.Table, int, bool]:
    """Read documents until they have `max_bytes`. Return the documents, the number of rejected records, and whether all
    records were read."""
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


def _scan(file: SourceFile, probed: SourceFile, limit: int, most: int) -> Iterator[Excerpt]:
    """Read a file from its beginning, up to a limit of stored bytes. Keep at most `most` batches at even distances.

    All records read and their text are counted. A kept batch represents a share of the stored bytes: its share of all
    text read.
    """
    max_text = MAX_HEAD_TEXT if _is_head(file) else max(MAX_EXPANSION * limit, MIN_TEXT)
    kept: list[tuple[int, pa.Table, int]] = []
    every, number, counted, rejected, size, is_whole = 1, 0, 0, 0, 0, True
    started = time.perf_counter()
    stored: float
    with _head(probed, file.bytes if format_of(file).parts == NEEDED else limit) as (head, stored):
        counts = format_of(probed).row_counts(probed) if probed.bytes else None
        whole = FileRange(file=head, start=0, stop=head.bytes if counts is None else len(counts))
        for documents in read_documents(Slice(index=0, ranges=[whole]), UNIT_BYTES):
            batch_rejected = sum(not is_damage(entry.error) for entry in documents.rejected)
            weight = batch_rejected + len(documents.table) + text_bytes_of(documents.table)
            counted, rejected, size = counted + len(documents.table), rejected + batch_rejected, size + weight
            if number % every == 0:
                kept.append((number, documents.table, weight))
            if len(kept) > most:
                every, kept = 2 * every, kept[::2]
            number += 1
            if size >= max_text:
                is_whole = False
                break
    if counts is not None:
        stored = file.bytes * (counted + rejected) / max(sum(counts), 1)
    unread = 1 - stored / file.bytes if is_whole or counts is not None else 1.0
    seconds = time.perf_counter() - started
    if not size:
        yield Excerpt(file, schema_of(file.carried).empty_table(), 0, stored, seconds, 0, 0, unread)
    for position, table, weight in kept if size else ():
        share = weight / size
        yield Excerpt(file, table, rejected * share, stored * share, seconds * share, counted * share, position, unread)


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
    """Return the end of the last whole block of bzip2 data, in steps of STEP bytes. A block is 900 KB of text, and a
    part of a block cannot be read. For data that begins with a larger or damaged block, return the whole length."""
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
