# SPDX-License-Identifier: Apache-2.0
"""The tokenised documents of one split, as every form reads them: memory-mapped parts, in order or shuffled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from curation.arrays import pieces_by_size
from curation.errors import IntegrityError
from curation.packing.megatron import in_chunks, map_array
from curation.packing.ordering import seeded_order

BATCH_TOKENS = 4 << 20
Batch = tuple[np.ndarray, np.ndarray]  # ids back to back, lengths


class Documents:
    """Documents with tokens, batch by batch: `for ids, lengths in documents`.

    `parts` are files of ids in `dtype` and of their int32 lengths; documents without tokens are passed over. With a
    `seed` the documents come in a seeded order, which takes 20 bytes of memory per document; without one, none.
    `tokens`, `count`: of all documents.
    """

    def __init__(self, parts: Sequence[tuple[Path, Path]], dtype: np.dtype, seed: int | None = None) -> None:
        self.dtype = np.dtype(dtype)
        self.parts = [_open(ids, lengths, self.dtype) for ids, lengths in parts]
        self.count = sum(int(np.count_nonzero(chunk)) for _, lengths in self.parts for chunk in in_chunks(lengths))
        self.first_tokens = np.cumsum([0, *(len(ids) for ids, _ in self.parts)])
        self.tokens = int(self.first_tokens[-1])
        self.order = None if seed is None else seeded_order(self.count, seed)

    def __iter__(self) -> Iterator[Batch]:
        return self._in_file_order() if self.order is None else self._in_seeded_order()

    def _in_file_order(self) -> Iterator[Batch]:
        for ids, all_lengths in self.parts:
            done = 0
            for lengths in in_chunks(all_lengths):
                lengths = lengths[lengths != 0]
                for run, start, stop in _runs(lengths):
                    yield ids[done + start : done + stop], lengths[run]
                done += int(lengths.sum(dtype=np.int64))

    def _in_seeded_order(self) -> Iterator[Batch]:
        starts, lengths = self.extents()
        for run, _, _ in _runs(lengths):
            yield self.gather(starts[run], lengths[run]), lengths[run]

    def extents(self) -> Batch:
        """Where each document starts, in tokens over all parts (int64), and its length (int32); in the final order."""
        kept = [lengths[lengths != 0] for _, lengths in self.parts]
        lengths = np.concatenate([np.empty(0, "<i4"), *kept])
        starts = np.cumsum(lengths, dtype=np.int64) - lengths
        return (starts, lengths) if self.order is None else (starts[self.order], lengths[self.order])

    def gather(self, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """The tokens of pieces of documents, back to back."""
        part_of = np.searchsorted(self.first_tokens, starts, side="right") - 1
        local = starts - self.first_tokens[part_of]
        found = np.empty(int(lengths.sum(dtype=np.int64)), self.dtype)
        at = 0
        for part, start, length in zip(part_of.tolist(), local.tolist(), lengths.tolist(), strict=True):
            found[at : at + length] = self.parts[part][0][start : start + length]
            at += length
        return found


class TokenStream:
    """All tokens of all documents as one sequence, taken in pieces of any size."""

    def __init__(self, documents: Documents) -> None:
        self._batches = iter(documents)
        self._rest = np.empty(0, documents.dtype)

    def take(self, count: int) -> np.ndarray:
        """The next `count` tokens; fewer at the end."""
        pieces, missing = [self._rest[:count]], count - len(self._rest)
        self._rest = self._rest[count:]
        while missing > 0:
            ids, _ = next(self._batches, (None, None))
            if ids is None:
                break
            pieces.append(ids[:missing])
            self._rest = ids[missing:]
            missing -= len(ids)
        return np.concatenate(pieces)


def _open(ids_path: Path, lengths_path: Path, dtype: np.dtype) -> Batch:
    size, length_bytes = ids_path.stat().st_size, lengths_path.stat().st_size
    lengths = map_array(lengths_path, "<i4", 0, length_bytes // 4)
    counted = sum(int(chunk.sum(dtype=np.int64)) for chunk in in_chunks(lengths))
    if counted * dtype.itemsize != size:
        raise IntegrityError(f"{ids_path} has {size} bytes, its lengths count {counted} tokens. Run it again.")
    return map_array(ids_path, dtype, 0, counted), lengths


def _runs(lengths: np.ndarray) -> Iterator[tuple[slice, int, int]]:
    """Runs of documents of about BATCH_TOKENS tokens, one document at least, with their first and last token."""
    ends = np.cumsum(lengths, dtype=np.int64)
    start = 0
    for run in pieces_by_size(ends, BATCH_TOKENS):
        stop = int(ends[run.stop - 1])
        yield run, start, stop
        start = stop
