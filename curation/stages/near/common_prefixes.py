# SPDX-License-Identifier: Apache-2.0
"""Beginnings that documents share, such as the system prompt of dialogues. Such beginnings are found first, and left
out of comparisons.

A text is a sequence of *steps* of STEP bytes; the last step may be shorter. A beginning of whole steps is common if at
least CONTINUATIONS different steps follow it in the corpus. Copies of one document all continue with the same step, but
dialogues with one prompt continue differently. The common beginning of a document is the longest one that it has, of at
most MAX_STEPS steps.

A key (uint64) identifies a beginning. A task per group of slices writes the distinct pairs of a key and the key one
step later. For each first key, a task of the next phase counts the different second keys. These files have 16 bytes per
step. A task per group of slices then finds the common beginning of each document, and writes the band keys of the rest.
The keys of common beginnings take at most 2 bytes per document of the corpus.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from curation.base.arrays import map_file, text_buffers
from curation.base.contract import TEXT, Engine
from curation.base.system.files import commit
from curation.kernels.hashing import GOLDEN
from curation.stages.base import Phase
from curation.stages.corpus.key_ranges import (
    division_of,
    division_phase,
    range_of,
    read_cell,
    reducer_count,
    row_type,
    runs_path,
    slice_group,
    slice_group_count,
    slice_group_starts,
    text_starts,
    write_cells,
)
from curation.stages.corpus.similarity import for_texts
from curation.stages.outcome import Corpus

if TYPE_CHECKING:
    from curation.base.contract import Text

NONE, COMMON = "none", "common"
PREFIXES = (NONE, COMMON)
STEP = 64  # bytes
MAX_STEPS = 1024
CONTINUATIONS = 5
PAIR_BYTES = 16  # in files, per step
FOLDER = "prefixes"
FOUND, KEYS = "prefix_found", "prefix_keys"  # phases


def prefix_phases(keys_of: Callable[[Engine, Text], np.ndarray], bands: Sequence[str]) -> tuple[Phase, ...]:
    """Return the phases that find common beginnings, and write the band keys of the texts without their common
    beginnings.

    keys_of  function that returns the band keys of texts, uint64 of shape (texts, bands)
    bands    name of each band
    """
    division = division_phase(1, lambda corpus: text_starts(corpus, STEP))

    def divide(engine: Engine, corpus: Corpus, task: int) -> None:
        division.run(engine, _own(corpus), task)

    def write_keys(engine: Engine, corpus: Corpus, task: int) -> None:
        _write_keys(engine, corpus, task, keys_of, len(bands))

    return (
        Phase("prefix_division", division.tasks, divide, durable=True),
        Phase("prefix_runs", lambda corpus: slice_group_count(_own(corpus)), _write_run, durable=True),
        Phase(FOUND, lambda corpus: reducer_count(_own(corpus)), _write_common, durable=True),
        Phase(KEYS, slice_group_count, write_keys, durable=True),
    )


def _own(corpus: Corpus) -> Corpus:
    """Return the corpus with a scratch folder of these phases: they divide it by bytes of texts, other phases by
    rows."""
    return Corpus(corpus.storage, corpus.given, corpus.stage, corpus.scratch / FOLDER, corpus.sources, corpus.workers)


# Steps


class _Steps:
    """The steps of texts, with the keys of the beginnings before and after each step."""

    def __init__(self, texts: pa.LargeStringArray) -> None:
        data, offsets = text_buffers(texts)
        self.padded = np.concatenate([data[offsets[0] : offsets[-1]], np.zeros(STEP, np.uint8)])
        self.starts, self.sizes = offsets[:-1] - offsets[0], np.diff(offsets)

    def __iter__(self) -> Iterator[tuple[int, np.ndarray, np.ndarray, np.ndarray]]:
        """Yield, for each number of steps, the number, the texts with that many whole steps, and their keys before and
        after the next step."""
        rows = np.flatnonzero(self.sizes)
        keys = np.full(len(rows), GOLDEN)
        for number in range(MAX_STEPS + 1):
            if not len(rows):
                return
            after = self._after(keys, self.starts[rows] + number * STEP, self.sizes[rows] - number * STEP)
            yield number, rows, keys, after
            long = self.sizes[rows] >= (number + 1) * STEP
            rows, keys = rows[long], after[long]

    def _after(self, keys: np.ndarray, first: np.ndarray, left: np.ndarray) -> np.ndarray:
        """Return the keys of the beginnings after the next step, which starts at byte `first`; `left` bytes of the text
        remain."""
        size = np.minimum(left, STEP)
        steps = np.lib.stride_tricks.sliding_window_view(self.padded, STEP)[first]
        steps[np.arange(STEP) >= size[:, None]] = 0
        state = keys ^ size.astype(np.uint64)
        for block in steps.view(np.uint64).T:
            state = (state ^ block) * GOLDEN
            state ^= state >> np.uint64(29)
        return state


def prefix_bytes(texts: pa.LargeStringArray, common: np.ndarray) -> np.ndarray:
    """Return the number of bytes of the common beginning of each text, int64; 0 if nothing follows the beginning.

    common  keys of the common beginnings, ascending
    """
    steps, ended = _Steps(texts), np.append(common, 0)
    found = np.zeros(len(texts), np.int64)
    for number, rows, keys, _ in steps:
        found[rows[ended[np.searchsorted(common, keys)] == keys]] = number * STEP
    found[found == steps.sizes] = 0
    for _ in range(3):  # back to the start of a code point, which has at most four bytes
        found[(found > 0) & (steps.padded[steps.starts + found] & 0xC0 == 0x80)] -= 1
    return found


def without_prefix(texts: pa.LargeStringArray, found: np.ndarray) -> pa.LargeStringArray:
    """Return the texts without their common beginnings, `found` by `prefix_bytes`; a null becomes an empty text."""
    if not found.any():
        return texts
    data, offsets = text_buffers(texts)
    edges = np.stack([offsets[:-1] + found, offsets[1:]], 1).ravel()
    pieces = pa.LargeStringArray.from_buffers(len(edges) - 1, pa.py_buffer(edges), pa.py_buffer(data))
    return pieces.take(pa.array(np.arange(0, len(edges), 2)))


# Phases


def _write_run(engine: Engine, corpus: Corpus, task: int) -> None:
    """Write the distinct pairs of a beginning's key and the key one step later, for a group of slices, by ranges of the
    first key."""
    own = _own(corpus)
    part, ranges = slice_group(own, task), division_of(own).ranges
    pieces = [np.zeros((2, 0), np.uint64), *for_texts(part, np.arange(len(part.rows)), _pairs_of)]
    pairs = _distinct(pieces)
    numbers = range_of(pairs[0], ranges)
    pairs = pairs[:, np.argsort(numbers, kind="stable")]
    bounds = np.concatenate([[0], np.cumsum(np.bincount(numbers, minlength=ranges))]).tolist()
    write_cells(runs_path(own, task), ([pairs[:, low:high]] for low, high in pairwise(bounds)), ranges)


def _pairs_of(texts: pa.LargeStringArray) -> np.ndarray:
    """Return the distinct pairs of the key of a beginning and the key one step later, of shape (2, n)."""
    pieces = [np.stack([keys, after]) for number, _, keys, after in _Steps(texts) if number]
    return _distinct([np.zeros((2, 0), np.uint64), *pieces])


def _distinct(pieces: Sequence[np.ndarray]) -> np.ndarray:
    """Return each pair once. Pairs with equal second keys are equal, because the second key depends on the first."""
    pairs = np.concatenate(pieces, axis=1)
    return pairs[:, np.unique(pairs[1], return_index=True)[1]]


def _write_common(engine: Engine, corpus: Corpus, task: int) -> None:
    """Write the keys of the common beginnings among the keys in this task's ranges."""
    own = _own(corpus)
    paths = [runs_path(own, number) for number in range(slice_group_count(own))]
    found = [np.zeros(0, np.uint64)]
    for cell in division_of(own).cells(task, 1):
        pairs = _distinct([np.frombuffer(read_cell(path, cell), np.uint64).reshape(2, -1) for path in paths])
        keys, continuations = np.unique(pairs[0], return_counts=True)
        found.append(keys[continuations >= CONTINUATIONS])
    write_cells(_found_path(corpus, task), [found], 1)


def _found_path(corpus: Corpus, task: int) -> Path:
    return corpus.scratch / FOUND / f"{task:06d}.bin"


def _keys_path(corpus: Corpus, task: int) -> Path:
    return corpus.scratch / KEYS / f"{task:06d}.bin"


def _rows_path(corpus: Corpus, task: int) -> Path:
    return corpus.scratch / KEYS / f"{task:06d}.rows"


def _write_keys(
    engine: Engine, corpus: Corpus, task: int, keys_of: Callable[[Engine, Text], np.ndarray], bands: int
) -> None:
    """Write the rows of a group of slices, and their keys of each band. Also write the number of documents with a
    common beginning, and the bytes left out."""
    part, common = slice_group(corpus, task), common_keys(corpus)

    def measure(texts: pa.LargeStringArray) -> tuple[np.ndarray, np.ndarray]:
        found = prefix_bytes(texts, common)
        rest = engine.from_arrow(pa.table({TEXT: without_prefix(texts, found)}))[TEXT]
        return keys_of(engine, rest), found

    counts, done = np.zeros(2, np.int64), 0
    with commit(_keys_path(corpus, task)) as path:
        keys = np.memmap(path, np.uint64, "w+", shape=(bands, max(len(part.rows), 1)))
        for found, sizes in for_texts(part, np.arange(len(part.rows)), measure):
            keys[:, done : done + len(found)] = found.T
            counts += np.count_nonzero(sizes), sizes.sum()
            done += len(found)
        keys.flush()
    write_cells(_rows_path(corpus, task), [[part.rows], [counts]], 2)


def common_keys(corpus: Corpus) -> np.ndarray:
    """Return the keys of all common beginnings, uint64, ascending."""
    cells = [read_cell(_found_path(corpus, task), 0) for task in range(reducer_count(_own(corpus)))]
    return np.sort(np.frombuffer(b"".join(cells), np.uint64))


def prefix_counts(corpus: Corpus) -> dict[str, int]:
    """Return how many documents have a common beginning, and the total bytes of these beginnings."""
    cells = (read_cell(_rows_path(corpus, task), 1) for task in range(slice_group_count(corpus)))
    documents, sizes = zip(*(np.frombuffer(cell, np.int64).tolist() for cell in cells), strict=True)
    return {"prefix_documents": sum(documents), "prefix_bytes": sum(sizes)}


class WithoutPrefix(Corpus):
    """A corpus whose texts and band keys are without common beginnings. The phases that find the beginnings must have
    run."""

    bands: Sequence[str] = ()

    @cached_property
    def common(self) -> np.ndarray:
        """The keys of the common beginnings."""
        return common_keys(self)

    @classmethod
    def over(cls, corpus: Corpus, bands: Sequence[str]) -> WithoutPrefix:
        """Return a corpus of the same rows."""
        found = cls(corpus.storage, corpus.given, corpus.stage, corpus.scratch, corpus.sources, corpus.workers)
        found.bands = bands
        return found

    def of(self, rows: np.ndarray) -> WithoutPrefix:
        return self.over(super().of(rows), self.bands)

    def texts(self, positions: np.ndarray, column: str = TEXT) -> Iterator[Callable[[], pa.Array]]:
        for read in super().texts(positions, column):
            yield partial(self._rest, read)

    def _rest(self, read: Callable[[], pa.Array]) -> pa.Array:
        texts = read()
        return without_prefix(texts, prefix_bytes(texts, self.common))

    def column(self, name: str, positions: np.ndarray | None = None) -> np.ndarray:
        if name not in self.bands:
            return super().column(name, positions)
        rows = self.rows if positions is None else self.rows[positions]
        out = np.empty(len(rows), np.uint64)
        bounds = np.searchsorted(rows, slice_group_starts(self).astype(rows.dtype)).tolist()
        for task, (low, high) in enumerate(pairwise(bounds)):
            if low < high:
                stored = np.frombuffer(read_cell(_rows_path(self, task), 0), row_type(self))
                keys = map_file(_keys_path(self, task), np.uint64).reshape(len(self.bands), -1)
                out[low:high] = keys[self.bands.index(name)][np.searchsorted(stored, rows[low:high])]
        return out
