# SPDX-License-Identifier: Apache-2.0
"""Sampling: a seeded share of an input's documents, chosen by their content."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from curation.base.arrays import GOLDEN, split_mix
from curation.base.contract import ID, ROW, TEXT, Batch, Engine, Frame
from curation.base.records import NOT_PAGE
from curation.reading.blank import BlankRows
from curation.reading.changes import check_unchanged
from curation.reading.source_files import Slice
from curation.reading.splitting import Parts


def chosen(engine: Engine, frame: Frame, share: float, seed: int) -> np.ndarray:
    """Return per row whether it is in the sample (bool array).

    share   fraction of all documents, in (0, 1]
    seed    the choice is by a 64-bit hash of id, text and seed, so it does not depend on positions or slices

    Records with equal id and text are either all in the sample or all out.
    """
    if share >= 1:
        return np.ones(len(frame), bool)
    text, id_ = engine.hash_text(frame[TEXT])[:, 0], engine.hash_text(frame[ID])[:, 1]
    hashes = split_mix(text ^ (id_ * np.uint64(GOLDEN) + np.uint64(seed * GOLDEN % 2**64)))
    return hashes < np.uint64(int(share * 2.0**64))


class Passed(NamedTuple):
    """Counts of the positions in a batch that have no document, or a further part of a document.

    unsampled   records that `sample` leaves out
    skipped     records that `skip` leaves out
    split       positions of parts beyond the first of each document
    """

    unsampled: int = 0
    skipped: int = 0
    split: int = 0


def read_sampled(
    engine: Engine, input_slice: Slice, batch_bytes: int, seed: int, parts: Parts | None = None
) -> Iterator[tuple[Batch, Passed]]:
    """Yield the batches of a slice with only the sampled documents, each with its counts of `Passed`.

    parts   splits the documents; None: they are not split

    After the last batch, raises InputError if a file has changed since planning.
    """
    file, row, blank = input_slice.ranges[0].file, 0, BlankRows()
    share = file.sample
    for batch in engine.read_slice(input_slice, batch_bytes):
        passed = Passed()
        if not (file.keep_blank or parts):
            batch = blank.reject(engine, batch)
        if input_slice.is_limited:
            batch, passed = _between(engine, batch, row, input_slice)
            row += batch.rows
        if share < 1:
            mask = chosen(engine, batch.frame, share, seed)
            batch = batch._replace(frame=engine.filter_rows(batch.frame, mask))
            passed = passed._replace(unsampled=int(np.count_nonzero(~mask)))
        if parts:
            batch = batch._replace(frame=engine.to_arrow(batch.frame))  # an engine plans memory for one frame
            for part, passed_of_part in _split(engine, batch, passed, parts):
                yield part if file.keep_blank else blank.reject(engine, part, parts), passed_of_part
                del part
        else:
            yield batch, passed
        del batch  # do not keep its frame alive while the next batch is read
        if input_slice.is_limited and row >= input_slice.stop >= 0:
            break
    check_unchanged(input_slice)


def _between(engine: Engine, batch: Batch, row: int, limits: Slice) -> tuple[Batch, Passed]:
    """Return the records of a batch that are within the limits of its slice. `row` is the first row of the batch."""
    stop = row + batch.rows if limits.stop < 0 else min(limits.stop, row + batch.rows)
    rows = engine.to_arrow(batch.frame[[ROW]]).column(0).to_numpy()
    frame = engine.filter_rows(batch.frame, (rows >= limits.skip) & (rows < stop))
    rejected = [entry for entry in batch.rejected if limits.skip <= entry.row < stop]
    others = [
        record
        for record in batch.others
        if not 0 <= limits.stop <= record.row and (record.why != NOT_PAGE or limits.skip <= record.row)
    ]
    skipped = min(max(limits.skip - row, 0), stop - row)
    batch = batch._replace(frame=frame, rejected=rejected, rows=stop - row, others=others)
    return batch, Passed(skipped=skipped)


def _split(engine: Engine, batch: Batch, passed: Passed, parts: Parts) -> Iterator[tuple[Batch, Passed]]:
    """Split the documents of a batch, and yield their parts in smaller batches. The first of these has the counts of
    the whole batch."""
    for part, added in parts.batches(engine, batch):
        yield part, passed._replace(split=added)
        passed = Passed()
        del part
