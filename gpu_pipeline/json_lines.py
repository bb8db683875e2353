# SPDX-License-Identifier: Apache-2.0
"""Parses JSON Lines on the device, which finds lines and unescapes strings. The host parses lines that the device does
not recognise as plain documents."""

import logging
from functools import cache

import cudf
import cupy as cp
import numpy as np

from curation.base.contract import ID, ROW, TEXT
from curation.kernels import jsonl
from curation.reading import lines
from curation.reading.documents import Documents
from curation.reading.source_files import SourceFile
from gpu_pipeline.buffers import download, eight_byte_blocks, series_of, upload
from gpu_pipeline.device import on_device
from gpu_pipeline.json_kernels import BlockLines, find_lines

log = logging.getLogger(__name__)

MIN_BYTES = 1 << 20  # the host parses fewer in a millisecond
MAX_BYTES = (1 << 31) - 1  # positions of quotes have 32 bits


@cache
def _warn_of_short_memory() -> None:
    log.warning("device memory is short: JSON Lines are parsed on the host")


def _find(data: np.ndarray, file: SourceFile) -> BlockLines:
    text = upload(data)
    keys = (cp.asarray(np.frombuffer(name.encode(), np.uint8)) for name in (file.text_column, file.id_column))
    text_key, id_key = keys
    return find_lines(text, eight_byte_blocks(text), text_key, id_key, min(file.max_document_bytes, MAX_BYTES))


@on_device(lambda data, *_: data.size)
def parse_lines(
    data: np.ndarray, count: int, offset: int, file: SourceFile, first_row: int, first_line: int
) -> Documents:
    """Parse JSON Lines as `lines.parse_lines` does. If the device parsed the lines, the table of documents is a cuDF
    frame."""
    if not MIN_BYTES <= data.size <= MAX_BYTES:
        return lines.parse_lines(data, count, offset, file, first_row, first_line)
    try:
        block = _find(data, file)
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
        return lines.parse_lines(data, count, offset, file, first_row, first_line)
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
