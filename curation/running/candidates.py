# SPDX-License-Identifier: Apache-2.0
"""Candidates for the samples in the report: a few documents that row stages removed, per slice and reason.

A hash of the text chooses them, so the smallest hashes of all slices are the same however the input is sliced. Of equal
texts one is a candidate.
"""

from __future__ import annotations

from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curation.contract import ID, ROW, TEXT, Engine, Frame
from curation.rules.decide import Verdict

MAX_REASONS = 1_000  # with candidates; those with the smallest CRC-32 of their names
MAX_CHARACTERS = 8_000  # of a candidate's text
PENDING_ROWS = 2_000  # are cut back to the candidates
SCHEMA = pa.schema(
    [
        ("stage", pa.int32()),
        ("reason", pa.large_string()),
        ("hash", pa.uint64()),
        (ROW, pa.int64()),
        (ID, pa.large_string()),
        ("value", pa.float64()),
        ("bound", pa.float64()),
        ("characters", pa.int64()),
        (TEXT, pa.large_string()),
    ]
)


class Candidates:
    """The candidates of a slice. `samples` is the number per reason; 0 collects none."""

    def __init__(self, engine: Engine, samples: int) -> None:
        self.engine, self.samples = engine, samples
        self.pending: list[pa.Table] = []

    def add(self, stage: int, frame: Frame, verdict: Verdict) -> None:
        """Add the documents of a frame that a stage removed."""
        if not self.samples:
            return
        gone = np.flatnonzero(~verdict.kept)
        removed = self.engine.filter_rows(frame[[ROW, ID, TEXT]], ~verdict.kept)
        hashes, reason = self.engine.hash_text(removed[TEXT])[:, 0], verdict.reason[gone]
        chosen = np.sort(smallest(reason, hashes, self.samples))
        mask = np.zeros(len(gone), bool)
        mask[chosen] = True
        rows = self.engine.to_arrow(self.engine.filter_rows(removed, mask))
        text = pc.fill_null(rows.column(TEXT), "")
        at = gone[chosen]
        columns = [
            np.full(len(at), stage, np.int32),
            pa.array(verdict.reasons, pa.large_string()).take(pa.array(reason[chosen])),
            hashes[chosen],
            rows.column(ROW),
            rows.column(ID),
            verdict.value[at],
            verdict.broken_bounds()[at],
            pc.utf8_length(text).cast(pa.int64()),
            pc.utf8_slice_codeunits(text, 0, MAX_CHARACTERS),
        ]
        self.pending.append(pa.table(columns, schema=SCHEMA))
        if sum(map(len, self.pending)) > PENDING_ROWS:
            self.pending = [self.table()]

    def table(self) -> pa.Table:
        """Return the candidates of the frames so far."""
        return chosen_of(pa.concat_tables([SCHEMA.empty_table(), *self.pending]), self.samples)


def chosen_of(table: pa.Table, samples: int) -> pa.Table:
    """Return the candidates among rows: of each stage and reason those with the smallest hashes."""
    encoded = table.column("reason").combine_chunks().dictionary_encode()
    names, reason = encoded.dictionary.to_pylist(), encoded.indices.to_numpy()
    rows = np.arange(len(table))
    if len(names) > MAX_REASONS:
        allowed = np.zeros(len(names), bool)
        allowed[sorted(range(len(names)), key=lambda k: (crc32(names[k].encode()), names[k]))[:MAX_REASONS]] = True
        rows = rows[allowed[reason]]
    stage = table.column("stage").to_numpy()[rows].astype(np.int64)
    key, hashes = stage * max(len(names), 1) + reason[rows], table.column("hash").to_numpy()[rows]
    return table.take(pa.array(np.sort(rows[smallest(key, hashes, samples)]))).combine_chunks()


def smallest(key: np.ndarray, hashes: np.ndarray, samples: int) -> np.ndarray:
    """Return the positions of the `samples` smallest hashes of each key; of equal ones the first."""
    order = np.lexsort((hashes, key))
    key, hashes = key[order], hashes[order]
    first = np.ones(len(order), bool)
    first[1:] = (key[1:] != key[:-1]) | (hashes[1:] != hashes[:-1])
    order, key = order[first], key[first]
    starts = np.flatnonzero(np.append(True, key[1:] != key[:-1])) if len(key) else np.zeros(0, np.int64)
    rank = np.arange(len(key)) - np.repeat(starts, np.diff(np.append(starts, len(key))))
    return order[rank < samples]


__all__ = ["MAX_CHARACTERS", "SCHEMA", "Candidates", "chosen_of", "smallest"]
