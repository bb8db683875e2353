# SPDX-License-Identifier: Apache-2.0
"""The words and lines of a batch of documents, and the pieces of documents that warps take."""

from typing import Any, NamedTuple

import cupy as cp
import numpy as np

from gpu_pipeline.kernels import core
from gpu_pipeline.kernels import measure_kernels as parts


class WordSpans(NamedTuple):
    """The words and lines of a batch, as arguments of kernels (`measure_kernels` says what each is)."""

    data: cp.ndarray
    blocks: cp.ndarray
    offsets: cp.ndarray
    valid: cp.ndarray
    origin: int
    bits: cp.ndarray
    ranks: cp.ndarray
    row_ranks: cp.ndarray
    word_starts: cp.ndarray
    word_ends: cp.ndarray


def pieces_of(counts: cp.ndarray, size: int) -> tuple[cp.ndarray, cp.ndarray]:
    """Cut documents into pieces of up to `size` items; return the first piece of each document and the document of each
    piece."""
    pieces = core.starts_of(-(-counts // size))
    return pieces, cp.searchsorted(pieces, cp.arange(int(pieces[-1])), side="right") - 1


def launch_warps(kernel: Any, pieces: cp.ndarray, *arguments: Any) -> None:
    """Run a kernel with one warp per piece."""
    core.launch(kernel, pieces.size * parts.LANES, *arguments)


def count_per_row(spans: WordSpans, mask: int) -> cp.ndarray:
    """Return the number of bits that a ranked mask has in each document, int64; 0 for a null."""
    ranks = spans.row_ranks[mask]
    return cp.where(spans.valid, ranks[1:] - ranks[:-1], 0).astype(np.int64)
