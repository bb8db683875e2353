# SPDX-License-Identifier: Apache-2.0
"""Parses JSON Lines on the device, which finds lines and unescapes strings. The host parses lines that the device does
not recognise as plain documents."""

import logging
from collections.abc import Iterator
from functools import cache
from itertools import pairwise

import cudf
import cupy as cp
import numpy as np

from curation.base.contract import ID, ROW, TEXT
from curation.kernels import jsonl
from curation.reading import lines
from curation.reading.documents import LINES_AT_ONCE, Documents
from curation.reading.source_files import SourceFile
from gpu_pipeline.kernels.json_kernels import BlockLines, find_lines
from gpu_pipeline.memory.buffers import download, eight_byte_blocks, series_of, upload
from gpu_pipeline.memory.device import on_device

log = logging.getLogger(__name__)

MIN_BYTES = 1 << 20  # the host parses fewer in a millisecond
MAX_BYTES = (1 << 31) - 1  # positions of quotes have 32 bits
NEWLINE = 10
# A batch has at most one line for so many of its bytes, or LINES_AT_ONCE. The host's arrays took 423 bytes per document
# with 8 measures and the keys of duplicates (2026-11), so they take 800 with 55 measures: 5 of the batches that
# `choose_for_device` counts per task, besides the pool.
LINE_BYTES = 160


@cache
def _warn_of_short_memory() -> None:
    log.warning("device memory is short: JSON Lines are parsed on the host")


def parse_block(data: np.ndarray, offset: int, file: SourceFile, row: int, line: int) -> Iterator[Documents]:
    """Yield the documents of whole lines as `lines.parse_block` does, but with more lines at a time. If the device
    parsed them, the table of documents is a cuDF frame."""
    found = _upload(data) if MIN_BYTES <= data.size <= MAX_BYTES else None
    if found is None:
        yield from lines.parse_block(data, offset, file, row, line)
        return
    text, cuts = found
    for start, stop in pairwise(cuts):
        part = data[start:stop]
        parsed = parse_lines(part, text[start:stop], offset + start, file, row, line)
        if stop == data.size:
            del text  # before the documents are worked on
        for documents in lines.parse_block(part, offset + start, file, row, line) if parsed is None else (parsed,):
            row += documents.rows
            line += documents.lines
            parsed = None
            yield documents
            del documents


@on_device(lambda data: data.size)
def _upload(data: np.ndarray) -> tuple[cp.ndarray, list[int]] | None:
    """Copy a block of lines to the device. Return the copy, and where to cut it so that no part has more lines than a
    batch may have. Return None if device memory is short."""
    most = max(data.size // LINE_BYTES, LINES_AT_ONCE)
    try:
        text = upload(data)
        is_end = text == NEWLINE
        ends = cp.flatnonzero(is_end)[most - 1 :: most] + 1 if int(is_end.sum()) > most else cp.zeros(0, np.int64)
    except MemoryError:  # of CuPy and RMM
        _warn_of_short_memory()
        return None
    return text, [0, *(end for end in download(ends).tolist() if end < data.size), data.size]


def _find(text: cp.ndarray, file: SourceFile) -> BlockLines:
    keys = (cp.asarray(np.frombuffer(name.encode(), np.uint8)) for name in (file.text_column, file.id_column))
    text_key, id_key = keys
    return find_lines(text, eight_byte_blocks(text), text_key, id_key, min(file.max_document_bytes, MAX_BYTES))


@on_device(lambda data, *_: data.size)
def parse_lines(
    data: np.ndarray, text: cp.ndarray, offset: int, file: SourceFile, first_row: int, first_line: int
) -> Documents | None:
    """Parse JSON Lines as `lines.parse_lines` does. `text` is `data` on the device. The table of documents is a cuDF
    frame. Return None if device memory is short."""
    try:
        block = _find(text, file)
        starts, status = download(block.starts), download(block.status)
        is_plain = status == jsonl.PLAIN
        others = lines.parse_others(data, starts, status, offset, file, first_row, first_line)
        rows = first_row - 1 + np.cumsum(status != jsonl.BLANK)[is_plain]
        frame = _frame_of(block, rows)
        if len(others.table):
            joined = cudf.concat([frame, cudf.DataFrame.from_arrow(others.table)], ignore_index=True)
            frame = joined.sort_values(ROW, ignore_index=True)
    except MemoryError:  # of CuPy and RMM
        _warn_of_short_memory()
        return None
    return others._replace(table=frame)


def _frame_of(block: BlockLines, rows: np.ndarray) -> cudf.DataFrame:
    """Return a frame of the plain lines; `rows` has their positions."""
    plain = cp.flatnonzero(block.status == jsonl.PLAIN)
    ends = plain + 1
    index = cudf.RangeIndex(plain.size)
    text_offsets, id_offsets = (
        cp.concatenate([cp.zeros(1, np.int64), offsets[ends]]) for offsets in (block.text_offsets, block.id_offsets)
    )
    ids = series_of(block.ids, id_offsets, index, block.id_valid[plain])
    return cudf.DataFrame({ROW: cp.asarray(rows), ID: ids, TEXT: series_of(block.texts, text_offsets, index)})
