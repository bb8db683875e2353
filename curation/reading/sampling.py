# SPDX-License-Identifier: Apache-2.0
"""Which documents of an input are taken: a seeded share of them, by their own content."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from curation.contract import ID, TEXT, Batch, Engine, Frame
from curation.reading.changes import check_unchanged
from curation.reading.source_files import Slice

GOLDEN = 0x9E3779B97F4A7C15


def chosen(engine: Engine, frame: Frame, share: float, seed: int) -> np.ndarray:
    """Which rows (bool) are among the `share` of all: by a 64-bit hash of id, text and seed, so that a document is
    taken or not wherever it stands, and however the work is cut. Equal records are taken together or not at all."""
    if share >= 1:
        return np.ones(len(frame), bool)
    text, id_ = engine.hash_text(frame[TEXT])[:, 0], engine.hash_text(frame[ID])[:, 1]
    with np.errstate(over="ignore"):
        x = text ^ (id_ * np.uint64(GOLDEN) + np.uint64(seed * GOLDEN % 2**64))
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (x ^ (x >> np.uint64(31))) < np.uint64(int(share * 2.0**64))


def read_sampled(engine: Engine, piece: Slice, batch_bytes: int, seed: int) -> Iterator[tuple[Batch, int]]:
    """The batches of a slice with the chosen documents alone, and how many were passed over. InputError behind the last
    one where a file is not what was planned."""
    share = piece.parts[0].file.sample
    for batch in engine.read_slice(piece, batch_bytes):
        if share >= 1:
            yield batch, 0
            continue
        taken = chosen(engine, batch.frame, share, seed)
        yield batch._replace(frame=engine.filter_rows(batch.frame, taken)), int(np.count_nonzero(~taken))
    check_unchanged(piece)
