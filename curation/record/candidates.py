# SPDX-License-Identifier: Apache-2.0
"""Candidates for the samples in the report: some documents that row stages removed, per slice and reason. The report
shows a few of them. From the starts of all their texts, `lost_groups` finds which languages a rule removes.

Candidates are the documents whose texts have the smallest hashes, so they do not depend on how the input is divided
into slices. Of documents with equal hashes, one is a candidate.
"""

from __future__ import annotations

from collections.abc import Sequence
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curation.base.arrays import seeded_hashes
from curation.base.contract import ID, ROW, TEXT, Engine, Frame, Text
from curation.record.lost_groups import GROUP_CHARACTERS, GROUP_SAMPLES, values_of
from curation.rules.decide import Verdict

MAX_REASONS = 1_000  # reasons with candidates: those with the smallest CRC-32 of their names
MAX_CHARACTERS = 8_000  # of the text of a candidate for the report
HASHED_BYTES = 16  # bytes of a text that its hash depends on
PENDING_ROWS = 10_000  # rows that are collected before all except the candidates are dropped
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
        ("values", pa.list_(pa.large_string())),  # of the carried columns
    ]
)


class Candidates:
    """The candidates of a slice. `samples` is the number of samples per reason in the report; `columns` are the carried
    columns."""

    def __init__(self, samples: int, columns: Sequence[str] = ()) -> None:
        self.samples = samples
        self.columns = list(columns)
        self.pending: list[pa.Table] = []

    def add(
        self,
        engine: Engine,
        stage: int,
        frame: Frame,
        verdict: Verdict,
        bound: np.ndarray,
        on_host: pa.Table | None = None,
    ) -> None:
        """Add the documents of a frame that a stage removed. Only the texts of candidates are copied to the host.

        frame    `row`, `id`, `text` and the carried columns of the removed documents
        bound    float64: the bound that each document broke
        on_host  all columns of the frame, if the host has them already
        """
        if not len(frame):
            return
        gone = np.flatnonzero(verdict.reason >= 0)
        reason, hashes = verdict.reason[gone], text_hashes(engine, frame[TEXT])
        chosen = np.sort(smallest(reason, hashes, held(self.samples)))
        is_short = np.ones(len(chosen), bool)
        is_short[smallest(reason[chosen], hashes[chosen], self.samples)] = False
        is_chosen = np.zeros(len(frame), bool)
        is_chosen[chosen] = True
        if on_host is None:
            rows = engine.to_arrow(engine.filter_rows(frame[[ROW, ID, TEXT, *self.columns]], is_chosen))
        else:
            rows = on_host.filter(pa.array(is_chosen))
        text = pc.fill_null(rows.column(TEXT), "")
        starts = [pc.utf8_slice_codeunits(text, 0, size) for size in (GROUP_CHARACTERS, MAX_CHARACTERS)]
        columns = [
            np.full(len(chosen), stage, np.int32),
            pa.array(verdict.reasons, pa.large_string()).take(pa.array(reason[chosen])),
            hashes[chosen],
            rows.column(ROW),
            rows.column(ID),
            verdict.value[gone[chosen]],
            bound[chosen],
            pc.utf8_length(text).cast(pa.int64()),
            pc.if_else(pa.array(is_short), *starts),
            values_of(rows, self.columns),
        ]
        self.pending.append(pa.table(columns, schema=SCHEMA))
        if sum(map(len, self.pending)) > PENDING_ROWS:
            self.pending = [self.table()]

    def table(self) -> pa.Table:
        """Return the candidates of the frames so far."""
        return sample_of(pa.concat_tables([SCHEMA.empty_table(), *self.pending]), held(self.samples))


def held(samples: int) -> int:
    """Return how many removed documents to store per reason, of which the report shows `samples`."""
    return max(samples, GROUP_SAMPLES)


def text_hashes(engine: Engine, text: Text) -> np.ndarray:
    """Return a hash (uint64) of each text, of its length and of HASHED_BYTES bytes spread over the text."""
    hashes = engine.byte_lengths(text).astype(np.uint64)
    for column in engine.spread_bytes(text, HASHED_BYTES).view(np.uint64).T:
        hashes = seeded_hashes(hashes ^ column, 0)
    return hashes


def sample_of(table: pa.Table, samples: int) -> pa.Table:
    """Return the rows that are candidates: for each stage and reason, those with the smallest hashes."""
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
    """Return the positions of the `samples` smallest hashes of each key; of equal hashes, only the first."""
    order = np.lexsort((hashes, key))
    key, hashes = key[order], hashes[order]
    first = np.ones(len(order), bool)
    first[1:] = (key[1:] != key[:-1]) | (hashes[1:] != hashes[:-1])
    order, key = order[first], key[first]
    starts = np.flatnonzero(np.append(True, key[1:] != key[:-1])) if len(key) else np.zeros(0, np.int64)
    rank = np.arange(len(key)) - np.repeat(starts, np.diff(np.append(starts, len(key))))
    return order[rank < samples]
