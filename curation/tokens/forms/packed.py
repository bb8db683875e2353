# SPDX-License-Identifier: Apache-2.0
"""`packed`: whole documents are combined into rows of equal length by best fit. Only documents longer than a row are
cut.

Source: Ding et al. 2024, "Fewer Truncations Improve Language Modeling". A *segment* is the part of a document in a row:
all of the document, or a part of a longer one. Segments are placed before any token is read, which takes at most 60
bytes of memory per segment and 1 s per million.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from curation.base.arrays import load_mapped
from curation.base.system.damage import damaged
from curation.base.system.steps import each
from curation.tokens.forms import base
from curation.tokens.forms.base import Form
from curation.tokens.forms.chunks import cut_lengths
from curation.tokens.forms.documents import TokenizedDocuments
from curation.tokens.forms.shards import WRITE_TOKENS, check_counts, entry, open_rows, write_array


class PackedSummary(base.SplitSummary, kw_only=True):
    """Fields of a split in `report.json`."""


class Packed(Form, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`packed/<split>_NNNNN.npy`: shards of shape (rows, length), padded with `output.pad_id`, and `.pieces.npy`.

    shard_name  name of shards without suffix, as of `blocks`
    length      tokens of a row
    shard_rows  rows of a shard; the last shard of a split may have fewer

    Rows are uint16 or int32, the tokenizer's dtype. `.pieces.npy` is int32 of shape (segments, 3), sorted by row and
    position: row in the shard, first token in the row, tokens. With it, attention masks and positions can end at the
    end of a document.
    """

    name, unit = "packed", "rows"
    pads = True
    summary = PackedSummary

    length: int = 1024
    shard_rows: int = 50_000

    def __post_init__(self) -> None:
        check_counts(self, "length", "shard_rows")

    def needs_pad_id(self) -> bool:
        return True

    def open_shard(self, path: Path, dtype: np.dtype, count: int) -> Sequence[np.ndarray]:
        read_segments(path, count, self.length)
        return open_rows(path, count, self.length)  # type: ignore[return-value]  # it has a length and rows

    def write(
        self, documents: TokenizedDocuments, folder: Path, split: str, dtype: np.dtype, pad_id: int
    ) -> dict[str, Any]:
        starts, lengths = documents.extents()
        packing = pack(starts, lengths, self.length)
        rows = len(packing.first_segments) - 1
        files = []
        for number, first in enumerate(each(range(0, rows, self.shard_rows), "writing packed", "file")):
            last = min(first + self.shard_rows, rows)
            path = self.shard_path(folder, split, number, ".npy")
            batches = _row_batches(documents, packing, (first, last), self.length, pad_id)
            write_array(path, (last - first, self.length), dtype, batches)
            table = _segment_table(packing, first, last)
            table_path = self.shard_path(folder, split, number, ".pieces.npy")
            write_array(table_path, table.shape, table.dtype, [table])
            files += [entry(path, rows=last - first), entry(table_path, pieces=len(table))]
        return {"files": files, "documents": documents.count, "rows": rows, "tokens": documents.tokens} | _shares(
            lengths, rows, self.length
        )


def read_segments(path: Path, rows: int, length: int) -> np.ndarray:
    """Return the segments of a shard of `rows` rows: row, first token in the row, tokens. IntegrityError: the segments
    are not in the order of rows, or do not follow each other from the start of each row."""
    path = path.with_suffix(".pieces.npy")
    segments = load_mapped(path)
    if segments.ndim != 2 or segments.shape[1] != 3 or segments.dtype.kind != "i":
        raise damaged(
            path, f"it has {segments.dtype} of shape {segments.shape}, expected integers of shape (segments, 3)"
        )
    row, start, tokens = segments.T.astype(np.int64)
    step = np.diff(row, prepend=-1)
    expected = np.where(step == 1, 0, np.roll(start + tokens, 1))
    in_rows = len(row) and step[0] == 1 and row[-1] == rows - 1 and np.isin(step, (0, 1)).all()
    if not in_rows or (start != expected).any() or tokens.min() < 1 or (start + tokens).max() > length:
        raise damaged(path, f"expected segments that follow each other in each of {rows:,} rows")
    return segments


class Packing(NamedTuple):
    """Segments sorted by row, then by document.

    starts          int64, shape (segments,): first token, counted over all token files
    lengths         int32, shape (segments,): tokens
    first_segments  int64, shape (rows + 1,): number of the first segment of each row, then the number of segments
    """

    starts: np.ndarray
    lengths: np.ndarray
    first_segments: np.ndarray


def _shares(lengths: np.ndarray, rows: int, length: int) -> dict[str, Any]:
    """Return counts and shares of cut documents and of padding. For comparison, also return the share of documents that
    `blocks` would cut."""
    cut = int(np.count_nonzero(lengths > length))
    ends = np.cumsum(lengths, dtype=np.int64)
    cut_in_blocks = int(np.count_nonzero((ends - lengths) // length != (ends - 1) // length))
    padding = rows * length - int(ends[-1])
    return {
        "truncated_documents": cut,
        "truncated_share": round(cut / len(lengths), 6),
        "truncated_share_of_blocks": round(cut_in_blocks / len(lengths), 6),
        "padding": padding,
        "padding_share": round(padding / (rows * length), 6),
    }


def pack(starts: np.ndarray, lengths: np.ndarray, length: int) -> Packing:
    """Pack documents into rows of `length` tokens: the longest segments first, each into the row with the least
    sufficient space.

    starts   int64, shape (documents,): first token of each document, counted over all token files
    lengths  int32, shape (documents,): tokens, at least 1

    Rows are sorted by their first documents, and segments in a row by document.
    """
    from curation.kernels.packing import best_fit  # compiles on first use

    segment_lengths = cut_lengths(lengths, length)
    order = np.argsort(-segment_lengths, kind="stable")
    row_of = np.empty(len(segment_lengths), np.int32)
    row_of[order] = best_fit(segment_lengths[order], length)
    del order
    row_of = _number_rows(row_of)
    by_row = np.argsort(row_of, kind="stable")
    first_segments = np.concatenate([[0], np.cumsum(np.bincount(row_of))])
    return Packing(_segment_starts(starts, lengths, length)[by_row], segment_lengths[by_row], first_segments)


def _number_rows(row_of: np.ndarray) -> np.ndarray:
    """Number rows in the order of their first segments."""
    leaders = np.empty(int(row_of.max()) + 1, np.int64)
    leaders[row_of[::-1]] = np.arange(len(row_of) - 1, -1, -1)  # the first segment is assigned last
    rank = np.empty(len(leaders), np.int32)
    rank[np.argsort(leaders)] = np.arange(len(leaders))
    return rank[row_of]


def _segment_starts(starts: np.ndarray, lengths: np.ndarray, length: int) -> np.ndarray:
    counts = -(-lengths // length)
    segment_starts = np.repeat(starts - length * (np.cumsum(counts, dtype=np.int64) - counts), counts)
    segment_starts += length * np.arange(len(segment_starts))
    return segment_starts


def _row_batches(
    documents: TokenizedDocuments, packing: Packing, span: tuple[int, int], length: int, pad_id: int
) -> Iterator[np.ndarray]:
    step = max(1, WRITE_TOKENS // length)
    for first in range(*span, step):
        last = min(first + step, span[1])
        low, high = packing.first_segments[first], packing.first_segments[last]
        sizes = packing.lengths[low:high]
        table = _segment_table(packing, first, last)
        rows = np.full((last - first, length), pad_id, documents.dtype)
        targets = table[:, 0].astype(np.int64) * length + table[:, 1]
        inside = np.repeat(targets - (np.cumsum(sizes) - sizes), sizes) + np.arange(int(sizes.sum()))
        rows.reshape(-1)[inside] = documents.gather(packing.starts[low:high], sizes)
        yield rows


def _segment_table(packing: Packing, first: int, last: int) -> np.ndarray:
    """Return three columns for the segments of the rows `first` to `last` - 1: row, counted from `first`; first token
    in the row; tokens."""
    low, high = packing.first_segments[first], packing.first_segments[last]
    sizes = packing.lengths[low:high]
    per_row = np.diff(packing.first_segments[first : last + 1])
    row = np.repeat(np.arange(last - first), per_row)
    before = np.cumsum(sizes) - sizes
    return np.column_stack([row, before - before[packing.first_segments[first:last] - low][row], sizes]).astype("<i4")
