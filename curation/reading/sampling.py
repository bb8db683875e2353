# SPDX-License-Identifier: Apache-2.0
"""Sampling: a seeded share of an input's documents, chosen by their content."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from curation.contract import ID, TEXT, Batch, Engine, Frame
from curation.reading.changes import check_unchanged
from curation.reading.source_files import Slice

GOLDEN = 0x9E3779B97F4A7C15


def chosen(engine: Engine, frame: Frame, share: float, seed: int) -> np.ndarray:
    """Return per row whether it is in the sample (bool array).

    share   fraction of all documents, in (0, 1]
    seed    of a 64-bit hash of id, text and seed: the choice depends on neither position nor slices

    Records with equal id and text are either all in the sample or all out.
    """
    if share >= 1:
        return np.ones(len(frame), bool)
    text, id_ = engine.hash_text(frame[TEXT])[:, 0], engine.hash_text(frame[ID])[:, 1]
    with np.errstate(over="ignore"):
        x = text ^ (id_ * np.uint64(GOLDEN) + np.uint64(seed * GOLDEN % 2**64))
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (x ^ (x >> np.uint64(31))) < np.uint64(int(share * 2.0**64))


def read_sampled(engine: Engine, input_slice: Slice, batch_bytes: int, seed: int) -> Iterator[tuple[Batch, int]]:
    """Yield the batches of a slice with the chosen documents, each with the number of skipped documents.

    Raises InputError after the last batch where a file has changed since planning.
    """
    share = input_slice.ranges[0].file.sample
    for batch in engine.read_slice(input_slice, batch_bytes):
        unsampled = 0
        if share < 1:
            mask = chosen(engine, batch.frame, share, seed)
            batch, unsampled = batch._replace(frame=engine.filter_rows(batch.frame, mask)), int(np.count_nonzero(~mask))
        yield batch, unsampled
        del batch  # the caller alone decides how long its frame lives
    check_unchanged(input_slice)
