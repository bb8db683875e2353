# SPDX-License-Identifier: Apache-2.0
"""Text columns on the device: their batches, the Unicode tables, and the pieces of documents that kernels take."""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import cupy as cp
import numpy as np

from curation.kernels import tables
from curation.kernels.words import character_lanes
from gpu_pipeline import batches
from gpu_pipeline.kernels import core, document_kernels
from gpu_pipeline.memory.buffers import buffers_of, eight_byte_blocks
from gpu_pipeline.memory.device import out_of_memory, shared, warn_of_short_memory

if TYPE_CHECKING:
    import cudf

SCRATCH_SHARE = 12  # the measures of a batch take 10, and the rest of a document's measures
MIN_SCRATCH_BYTES = 16 << 20  # smaller batches are not worth a launch: the device is full
# The CPU engine takes longer documents. Expected, not measured: a thread does 10 MB/s.
LONG_BYTES = 1 << 18
LONG_MEASURED_BYTES = 1 << 30  # positions of a batch of measures have 32 bits
NO_LIMIT = 1 << 62


@shared(1)
def device_tables() -> tuple[tables.UnicodeTables, tuple[cp.ndarray, ...]]:
    """The Unicode tables and the lanes of characters on the device, copied once per process."""
    unicode = tables.load_tables()
    return tables.UnicodeTables(*map(cp.asarray, unicode)), tuple(map(cp.asarray, character_lanes(unicode)))


class TextColumn(NamedTuple):
    """A text column on the device."""

    data: cp.ndarray
    offsets: cp.ndarray
    valid: cp.ndarray
    nulls: cp.ndarray | None  # `valid`, or None if all are
    lengths: cp.ndarray  # int64, in bytes; 0 for a null
    long: np.ndarray  # rows that the CPU engine takes, ascending
    bytes: int  # of all texts

    def documents(self, first: int, last: int) -> tuple[cp.ndarray, ...]:
        """Return the first arguments of every kernel: data, offsets, valid, and the rows from `first` to `last` - 1,
        longest first. Rows of `long` are left out."""
        order = core.longest_first(self.lengths[first:last]) + first
        return self.data, self.offsets, self.valid, order[len(self.long_between(first, last)) :]

    def long_between(self, first: int, last: int) -> np.ndarray:
        """Return the rows of `long` that are at least `first` and below `last`."""
        return self.long[slice(*np.searchsorted(self.long, (first, last)))]


def load_column(text: "cudf.Series", long_bytes: int = 0) -> TextColumn:
    """Return a column on the device. Its `long` has the rows of more than `long_bytes` bytes (0: LONG_BYTES)."""
    data, offsets, nulls = buffers_of(text)
    valid = cp.ones(len(text), bool) if nulls is None else nulls
    lengths = cp.where(valid, offsets[1:] - offsets[:-1], 0)
    long = cp.asnumpy(cp.flatnonzero(lengths > (long_bytes or LONG_BYTES)))
    return TextColumn(data, offsets, valid, nulls, lengths, long, int(lengths.sum()))


def in_batches(byte_starts: np.ndarray, text_bytes: int, run: Callable[[int, int], None], most: int = 1 << 62) -> None:
    """Call run(first, last) for each batch of rows in turn. A batch takes at most SCRATCH_SHARE times the text,
    and `most` bytes; after a MemoryError the limit is halved, and `run` is called again with fewer rows."""
    first, limit = 0, min(max(SCRATCH_SHARE * text_bytes, MIN_SCRATCH_BYTES), most)
    while first < len(byte_starts) - 1:
        last = core.batch_end(byte_starts, first, limit)
        try:
            run(first, last)
        except MemoryError as error:  # both CuPy and RMM raise it
            if limit <= MIN_SCRATCH_BYTES:
                raise out_of_memory(int(byte_starts[last] - byte_starts[first])) from error
            warn_of_short_memory()
            limit //= 2
        else:
            first = last


def pieces_of(starts: cp.ndarray, chosen: cp.ndarray) -> tuple[cp.ndarray, cp.ndarray]:
    """Cut the chosen documents into pieces; return the first piece of each document and the document of each piece.
    Document k is at starts[k]:starts[k + 1]."""
    chosen = chosen & (starts[:-1] < starts[1:])
    before = starts[:-1] // document_kernels.SECTOR * document_kernels.SECTOR
    return batches.pieces_of(cp.where(chosen, starts[1:] - before, 0), document_kernels.PIECE)


def documents_of(data: cp.ndarray, offsets: cp.ndarray) -> document_kernels.DocumentBytes:
    """Return documents as `DocumentBytes`, which also has the bytes as blocks of eight."""
    return document_kernels.DocumentBytes(data, eight_byte_blocks(data), offsets)
