# SPDX-License-Identifier: Apache-2.0
"""Reads the tokenised documents of one split for all forms, from memory-mapped token files, in file order or a seeded
order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from curation.base.arrays import batches_by_size
from curation.base.errors import IntegrityError
from curation.tokens.megatron import in_batches, map_array
from curation.tokens.ordering import seeded_order

BATCH_TOKENS = 4 << 20
Batch = tuple[np.ndarray, np.ndarray]  # ids back to back, lengths


class TokenizedDocuments:
    """Documents with tokens in batches: `for ids, lengths in documents`. Documents without tokens are skipped.

    `ids` has shape (sum of lengths,) in `dtype`, `lengths` is int32 of shape (documents of the batch,).

    token_parts  paths (ids, lengths): raw ids in `dtype`, and little-endian int32 tokens of each document
    dtype        dtype of the ids
    seed         seed of a seeded order, which takes 20 bytes of memory per document. None: file order, which takes none

    `tokens` and `count` are the tokens and documents in total. IntegrityError: lengths that do not fit the ids.
    """

    def __init__(self, token_parts: Sequence[tuple[Path, Path]], dtype: np.dtype, seed: int | None = None) -> None:
        self.dtype = np.dtype(dtype)
        self.parts = [_open_part(ids, lengths, self.dtype) for ids, lengths in token_parts]
        self.count = sum(int(np.count_nonzero(batch)) for _, lengths in self.parts for batch in in_batches(lengths))
        self.first_tokens = np.cumsum([0, *(len(ids) for ids, _ in self.parts)])
        self.tokens = int(self.first_tokens[-1])
        self.order = None if seed is None else seeded_order(self.count, seed)

    def __iter__(self) -> Iterator[Batch]:
        return self._in_file_order() if self.order is None else self._in_seeded_order()

    def _in_file_order(self) -> Iterator[Batch]:
        for ids, all_lengths in self.parts:
            position = 0  # in tokens
            for lengths in in_batches(all_lengths):
                lengths = lengths[lengths != 0]
                for batch, start, stop in _batches(lengths):
                    yield ids[position + start : position + stop], lengths[batch]
                position += int(lengths.sum(dtype=np.int64))

    def _in_seeded_order(self) -> Iterator[Batch]:
        starts, lengths = self.extents()
        for batch, _, _ in _batches(lengths):
            yield self.gather(starts[batch], lengths[batch]), lengths[batch]

    def extents(self) -> Batch:
        """Return (starts, lengths) of all documents in the final order.

        starts   int64, in tokens over all token files
        lengths  int32, tokens
        """
        kept = [lengths[lengths != 0] for _, lengths in self.parts]
        lengths = np.concatenate([np.empty(0, "<i4"), *kept])
        starts = np.cumsum(lengths, dtype=np.int64) - lengths
        return (starts, lengths) if self.order is None else (starts[self.order], lengths[self.order])

    def gather(self, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Return the tokens of segments of documents back to back. `starts`, `lengths`: in tokens, as in `extents`."""
        part_of = np.searchsorted(self.first_tokens, starts, side="right") - 1
        local = starts - self.first_tokens[part_of]
        ids = np.empty(int(lengths.sum(dtype=np.int64)), self.dtype)
        position = 0
        for part, start, length in zip(part_of.tolist(), local.tolist(), lengths.tolist(), strict=True):
            ids[position : position + length] = self.parts[part][0][start : start + length]
            position += length
        return ids


class TokenStream:
    """All tokens of all documents as one sequence."""

    def __init__(self, documents: TokenizedDocuments) -> None:
        self._batches = iter(documents)
        self._rest = np.empty(0, documents.dtype)

    def take(self, count: int) -> np.ndarray:
        """Return the next `count` tokens, or fewer at the end: shape (tokens,), in the dtype of the documents."""
        arrays, missing = [self._rest[:count]], count - len(self._rest)
        self._rest = self._rest[count:]
        while missing > 0:
            ids, _ = next(self._batches, (None, None))
            if ids is None:
                break
            arrays.append(ids[:missing])
            self._rest = ids[missing:]
            missing -= len(ids)
        return np.concatenate(arrays)


class BoundedStream(TokenStream):
    """A token stream that knows where documents end."""

    def __init__(self, documents: TokenizedDocuments) -> None:
        super().__init__(documents)
        self._batches = self._noted(self._batches)
        self._ends = np.empty(0, np.int64)  # of the documents that were read and not yet taken, in tokens of the stream
        self._read = self._taken = 0  # tokens
        self.begins = True  # whether the next token is the first of a document

    def take_bounded(self, count: int) -> Batch:
        """Return the result of `take`, and where documents end in it: int64, in tokens from 1 to the ids' number."""
        ids = self.take(count)
        ended = np.searchsorted(self._ends, self._taken + len(ids), side="right")
        ends, self._ends = self._ends[:ended] - self._taken, self._ends[ended:]
        self._taken += len(ids)
        if len(ids):
            self.begins = len(ends) > 0 and int(ends[-1]) == len(ids)
        return ids, ends

    def _noted(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        for ids, lengths in batches:
            self._ends = np.append(self._ends, self._read + np.cumsum(lengths, dtype=np.int64))
            self._read += len(ids)
            yield ids, lengths


def _open_part(ids_path: Path, lengths_path: Path, dtype: np.dtype) -> Batch:
    size, length_bytes = ids_path.stat().st_size, lengths_path.stat().st_size
    lengths = map_array(lengths_path, "<i4", 0, length_bytes // 4)
    counted = sum(int(batch.sum(dtype=np.int64)) for batch in in_batches(lengths))
    if counted * dtype.itemsize != size:
        raise IntegrityError(f"{ids_path} has {size} bytes, its lengths count {counted} tokens. Run again.")
    return map_array(ids_path, dtype, 0, counted), lengths


def _batches(lengths: np.ndarray) -> Iterator[tuple[slice, int, int]]:
    """Yield (documents, start, stop) for batches of about BATCH_TOKENS tokens, at least one document: its documents,
    and the range of its tokens."""
    ends = np.cumsum(lengths, dtype=np.int64)
    start = 0
    for batch in batches_by_size(ends, BATCH_TOKENS):
        stop = int(ends[batch.stop - 1])
        yield batch, start, stop
        start = stop
