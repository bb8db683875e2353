# SPDX-License-Identifier: Apache-2.0
"""`packed`: documents kept whole and combined to rows of N tokens by best fit (Ding et al. 2024, "Fewer Truncations
Improve Language Modeling"). Only documents longer than N are cut.

Lengths are packed before any token is read: 60 bytes of memory per piece of a document at the peak, 1 s per million.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from curation.packing.forms.base import Form
from curation.packing.forms.chunks import cut_lengths
from curation.packing.forms.documents import Documents
from curation.packing.forms.shards import PIECE_TOKENS, check_counts, entry, shard_path, write_array


class Summary(msgspec.Struct):
    """Nothing of it is shown."""


class Packed(Form, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`packed/<split>_NNNNN.npy` of shape (rows, length), filled up with `output.pad_id`, and `.pieces.npy` (int32) of
    shape (pieces, 3): row in the shard, first token in the row, tokens; for masks and positions that end with the
    document.

    length      tokens of a row
    shard_rows  rows of a shard
    """

    name = "packed"
    pads = True
    summary = Summary

    length: int = 1024
    shard_rows: int = 50_000

    def __post_init__(self) -> None:
        check_counts(self, "length", "shard_rows")

    def needs_pad_id(self) -> bool:
        return True

    def write(self, documents: Documents, folder: Path, split: str, dtype: np.dtype, pad_id: int) -> dict[str, Any]:
        starts, lengths = documents.extents()
        packing = pack(starts, lengths, self.length)
        rows = len(packing.first_pieces) - 1
        files = []
        for number, first in enumerate(range(0, rows, self.shard_rows)):
            last = min(first + self.shard_rows, rows)
            path = shard_path(folder, split, number, ".npy")
            pieces = _rows(documents, packing, (first, last), self.length, pad_id)
            write_array(path, (last - first, self.length), dtype, pieces)
            table = _pieces(packing, first, last)
            beside = shard_path(folder, split, number, ".pieces.npy")
            write_array(beside, table.shape, table.dtype, [table])
            files += [entry(path, rows=last - first), entry(beside, pieces=len(table))]
        return {"files": files, "documents": documents.count, "rows": rows, "tokens": documents.tokens} | _shares(
            lengths, rows, self.length
        )


class Packing(NamedTuple):
    """Pieces sorted by row, then by document: `starts` in tokens over all documents, and where each row begins."""

    starts: np.ndarray
    lengths: np.ndarray
    first_pieces: np.ndarray  # of each row, and the number of pieces at the end


def _shares(lengths: np.ndarray, rows: int, length: int) -> dict[str, Any]:
    """How many documents are cut, here and where the same documents are cut as one stream (`blocks`)."""
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
    """Puts documents into rows: longest pieces first, each into the row whose space it leaves smallest. Rows come in
    the order of their first documents, and so do documents in a row."""
    from curation.kernels.packing import best_fit  # compiles on first use

    pieces = cut_lengths(lengths, length)
    order = np.argsort(-pieces, kind="stable")
    row_of = np.empty(len(pieces), np.int32)
    row_of[order] = best_fit(pieces[order], length)
    del order
    row_of = _by_first_piece(row_of)
    by_row = np.argsort(row_of, kind="stable")
    first_pieces = np.concatenate([[0], np.cumsum(np.bincount(row_of))])
    return Packing(_piece_starts(starts, lengths, length)[by_row], pieces[by_row], first_pieces)


def _by_first_piece(row_of: np.ndarray) -> np.ndarray:
    """Rows numbered in the order of their first pieces."""
    leaders = np.empty(int(row_of.max()) + 1, np.int64)
    leaders[row_of[::-1]] = np.arange(len(row_of) - 1, -1, -1)  # the first piece is assigned last
    rank = np.empty(len(leaders), np.int32)
    rank[np.argsort(leaders)] = np.arange(len(leaders))
    return rank[row_of]


def _piece_starts(starts: np.ndarray, lengths: np.ndarray, length: int) -> np.ndarray:
    counts = -(-lengths // length)
    found = np.repeat(starts - length * (np.cumsum(counts, dtype=np.int64) - counts), counts)
    found += length * np.arange(len(found))
    return found


def _rows(
    documents: Documents, packing: Packing, span: tuple[int, int], length: int, pad_id: int
) -> Iterator[np.ndarray]:
    step = max(1, PIECE_TOKENS // length)
    for first in range(*span, step):
        last = min(first + step, span[1])
        low, high = packing.first_pieces[first], packing.first_pieces[last]
        sizes = packing.lengths[low:high]
        table = _pieces(packing, first, last)
        rows = np.full((last - first, length), pad_id, documents.dtype)
        at = table[:, 0].astype(np.int64) * length + table[:, 1]
        inside = np.repeat(at - (np.cumsum(sizes) - sizes), sizes) + np.arange(int(sizes.sum()))
        rows.reshape(-1)[inside] = documents.gather(packing.starts[low:high], sizes)
        yield rows


def _pieces(packing: Packing, first: int, last: int) -> np.ndarray:
    """(row counted from `first`, first token in the row, tokens) of the pieces of rows."""
    low, high = packing.first_pieces[first], packing.first_pieces[last]
    sizes = packing.lengths[low:high]
    per_row = np.diff(packing.first_pieces[first : last + 1])
    row = np.repeat(np.arange(last - first), per_row)
    before = np.cumsum(sizes) - sizes
    return np.column_stack([row, before - before[packing.first_pieces[first:last] - low][row], sizes]).astype("<i4")
