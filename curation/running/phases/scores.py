# SPDX-License-Identifier: Apache-2.0
"""The scores of a slice, looked up or computed, and the files of `scores/` (`curation.record.scores`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
import pyarrow as pa

from curation.base.contract import TEXT, Engine, Frame
from curation.base.system.files import commit, file_sha256, numbered_path
from curation.base.system.interrupts import check as check_interrupts
from curation.record.partitions import IpcFile, open_partition
from curation.record.scores import (
    FOLDER,
    HASH_BYTES,
    StoredScores,
    keys_of,
    row_bytes,
    schema_of,
    sorted_rows,
    stored_keys,
    suffix_of,
)  # fmt: skip
from curation.stages import Stage
from curation.stages.base import ScoringStage
from curation.stages.outcome import Outcome

BATCH_BYTES = FILE_BYTES = 16 << 20
FILES_AT_ONCE = 16  # per task, which opens all slices: 1 GB of 1,000 slices takes 5 CPU seconds, with 1 file 28


class ScoresFiles(NamedTuple):
    """Files `first` to `stop` (exclusive) of the 2^`bits` files of a stage in `scores/`."""

    stage: int
    segment: int
    bits: int
    first: int
    stop: int


class SliceScores:
    """The scores of a slice. They are looked up in an earlier run or else computed, and are written to files.

    stages  number -> the prepared stage
    paths   number -> temporary file, for stages whose scores are kept
    reused  number -> scores of an earlier run

    Use it as a context manager. On exit without an error, it writes the pending scores.
    """

    def __init__(
        self, stages: Mapping[int, Stage], paths: Mapping[int, Path], reused: Mapping[int, Sequence[StoredScores]]
    ) -> None:
        self.stages, self.reused = stages, reused
        self.files = {number: _SortedFile(path, schema_of(stages[number])) for number, path in paths.items()}

    def apply(self, number: int) -> Callable[[Engine, Frame], Outcome] | None:
        """Return a function to call in place of the stage's method `apply`; None if the stage has no scores to look up
        or keep."""
        stage = self.stages[number]
        if not isinstance(stage, ScoringStage) or not (number in self.files or number in self.reused):
            return None
        return lambda engine, frame: self._apply(engine, frame, number, stage)

    def _apply(self, engine: Engine, frame: Frame, number: int, stage: ScoringStage) -> Outcome:
        hashes = engine.hash_text(frame[TEXT])
        is_missing = np.ones(len(hashes), bool)
        places: list[np.ndarray] = []
        batches: list[pa.RecordBatch] = []
        for stored in self.reused.get(number, ()):
            missing = np.flatnonzero(is_missing)
            found, rows = stored.look_up(hashes[missing])
            places.append(missing[found])
            batches += rows
            is_missing[missing[found]] = False
        values = stage.score(engine, engine.filter_rows(frame, is_missing) if batches else frame)
        reused = len(hashes) - int(np.count_nonzero(is_missing))
        if batches:
            found_rows = pa.Table.from_batches(batches).select(values.column_names)
            values = pa.concat_tables([found_rows.cast(values.schema), values])
            order = np.concatenate([*places, np.flatnonzero(is_missing)])
            values = values.take(pa.array(np.argsort(order)))
        if number in self.files:
            self.files[number].write(hashes, values)
        outcome = stage.outcome(values)
        if number not in self.reused:
            return outcome
        return outcome._replace(details={**outcome.details, "reused": reused})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for file in self.files.values():
            file.close(is_complete=kind is None)


class _SortedFile:
    """A writer of the scores of a slice."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self.file, self.schema = IpcFile(path, schema), schema
        self.pending: list[pa.Table] = []
        self.row_bytes = row_bytes(schema)

    def write(self, hashes: np.ndarray, values: pa.Table) -> None:
        column = pa.Array.from_buffers(pa.binary(HASH_BYTES), len(hashes), [None, pa.py_buffer(keys_of(hashes))])
        rows = pa.table([column, *(values.column(name) for name in self.schema.names[1:])], self.schema.names)
        at_once = max(BATCH_BYTES // self.row_bytes, 1)
        for first in range(0, len(rows), at_once):
            self.pending.append(rows.slice(first, at_once).cast(self.schema))
            if sum(map(len, self.pending)) >= at_once:
                self._write_pending()

    def _write_pending(self) -> None:
        if self.pending:
            self.file.write(sorted_rows(pa.concat_tables(self.pending)))
        self.pending = []

    def close(self, is_complete: bool) -> None:
        with self.file:
            if is_complete:
                self._write_pending()


def plan_scores(stage: Stage, number: int, segment: int, documents: int) -> Iterator[ScoresFiles]:
    """Yield the files of `scores/` of a stage that `documents` documents reached, up to FILES_AT_ONCE per task."""
    size = documents * row_bytes(schema_of(stage))
    bits = max(math.ceil(math.log2(max(size, 1) / FILE_BYTES)), 0)
    for first in range(0, 1 << bits, FILES_AT_ONCE):
        yield ScoresFiles(number, segment, bits, first, min(first + FILES_AT_ONCE, 1 << bits))


def write_scores(run: Path, item: ScoresFiles, segment: Path, slices: int) -> dict[str, str]:
    """Write files of `scores/` from the scores of all slices; each slice is opened once. Return path in the run ->
    SHA-256."""
    begun = range(item.first, min(item.stop + 1, 1 << item.bits))
    bounds = np.array([(number << 64 - item.bits).to_bytes(8, "big") for number in begun], "S16")
    batches, places, schema = [], [], None
    for number in range(slices):
        check_interrupts()
        table = open_partition(numbered_path(segment, number, suffix_of(item.stage)))
        schema = schema or table.schema
        for batch in table.to_batches():
            batches.append(batch)
            places.append([*np.searchsorted(stored_keys(batch), bounds).tolist(), len(batch)])
    digests = {}
    for file in range(item.stop - item.first):
        check_interrupts()
        ranges = [(batch, at[file], at[file + 1]) for batch, at in zip(batches, places, strict=True)]
        rows = pa.Table.from_batches(
            [batch.slice(low, high - low) for batch, low, high in ranges if low < high], schema
        )
        name = f"{FOLDER}/stage-{item.stage + 1}/{item.first + file:05d}.arrow"
        with commit(run / name) as path, IpcFile(path, schema) as writer:
            writer.write(sorted_rows(rows))
        digests[name] = file_sha256(run / name)
    return digests
