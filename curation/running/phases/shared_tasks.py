# SPDX-License-Identifier: Apache-2.0
"""Slices that share a task: they are read into common frames, and each slice has its own counts.

Without common frames and files, an input of five documents takes 25 ms. The rows of a task are numbered as if its
slices were one slice. So a partition has one numbering, and the row number tells the slice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import BinaryIO

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from curation.base.arrays import text_bytes_of
from curation.base.contract import ROW, TEXT, Batch, Engine, Frame
from curation.base.engine import load_engine
from curation.reading.blank import BLANK, read_visible
from curation.reading.changes import check_unchanged
from curation.reading.locations import Location, shifted
from curation.reading.other_records import add_counts, add_records
from curation.reading.sampling import Passed, read_sampled
from curation.reading.source_files import Slice
from curation.reading.splitting import Parts
from curation.reading.streams import is_damage
from curation.record.ledger import SliceRecord
from curation.record.slice_notes import SliceNotes
from curation.record.stored_plan import Plan
from curation.rules.decide import Verdict
from curation.rules.tallies import Tally, tally_of
from curation.stages.outcome import StageCount
from curation.tokens.token_spans import parts_of

READ = ("rows", "lines", "rejected", "blank", "unsampled", "skipped", "split", "repaired")  # counts that reading fills


def count_batch(record: SliceRecord, batch: Batch, passed: Passed) -> None:
    """Add the numbers of records of a batch to the counts of its slice. Bytes of texts are counted elsewhere."""
    record.unsampled += passed.unsampled
    record.skipped += passed.skipped
    record.split += passed.split
    record.rows += batch.rows
    record.lines += batch.lines
    record.repaired += batch.repaired
    record.rejected += len(batch.rejected)
    record.blank += sum(entry.error == BLANK for entry in batch.rejected)
    record.damaged += [(entry.file_index, entry.error) for entry in batch.rejected if is_damage(entry.error)]
    add_records(record.others, batch.others)


class SharedCounts:
    """The counts of each slice of a task. For a task with a single slice, the counts of the task are enough.

    records  one record per slice; its counts of stages have only reasons and cuts. Empty for a single slice
    starts   first row of each slice in the partition
    """

    def __init__(self, records: list[SliceRecord], starts: list[int]) -> None:
        self.records, self.starts = records, starts

    @staticmethod
    def of(record: SliceRecord, slices: Sequence[Slice], docs: np.ndarray) -> SharedCounts:
        """Return empty counts for slices whose task has the record `record`. `docs` has the `doc` of the first row of
        each slice (int64); it is empty before the slices are read."""
        records = [
            SliceRecord(stages=[StageCount(kind=stage.kind, name=stage.name) for stage in record.stages])
            for _ in (slices if len(slices) > 1 else ())
        ]
        return SharedCounts(records, (docs - docs[:1]).tolist())

    def add_removed(self, stage: int, rows: np.ndarray, verdict: Verdict) -> None:
        """Count the rows (positions in the partition) that the stage number `stage` of the segment removed."""
        if not (self.records and len(rows)):
            return
        reasons, count = verdict.reason[verdict.reason >= 0].astype(np.int64), len(verdict.reasons)
        found, numbers = np.unique(self._slices_of(rows) * count + reasons, return_counts=True)
        for key, number in zip(found.tolist(), numbers.tolist(), strict=True):
            place, reason = divmod(key, count)
            counts, name = self.records[place].stages[stage].reasons, verdict.reasons[reason]
            counts[name] = counts.get(name, 0) + number

    def add_cuts(self, stage: int, frame: Frame, engine: Engine, before: np.ndarray, after: np.ndarray) -> None:
        """Count the bytes of the texts of a frame before and after a stage of the segment."""
        if not (self.records and len(frame)):
            return
        places = self._slices_of(engine.to_arrow(frame[[ROW]]).column(0).to_numpy())  # ascending, as the rows are
        firsts = np.flatnonzero(np.diff(places, prepend=-1)).tolist()
        for first, last in pairwise([*firsts, len(places)]):
            self.records[places[first]].stages[stage].add_cuts(before[first:last], after[first:last])

    def add_documents(self, table: pa.Table) -> None:
        """Count the documents of a table of the partition."""
        if self.records and len(table):
            places, numbers = np.unique(self._slices_of(table.column(ROW).to_numpy()), return_counts=True)
            for place, number in zip(places.tolist(), numbers.tolist(), strict=True):
                self.records[place].documents += number

    def _slices_of(self, rows: np.ndarray) -> np.ndarray:
        return np.asarray(np.searchsorted(self.starts, rows, side="right") - 1)

    def finish(self, record: SliceRecord) -> None:
        """Put the sums over the slices, and the slices' records, in the record of their task. Ids and seconds of the
        task are put in the first slice's record, since they are only used in sums over all inputs."""
        if not self.records:
            return
        for name in READ:
            setattr(record, name, sum(getattr(own, name) for own in self.records))
        for own in self.records:
            add_counts(record.others, own.others)
        first = self.records[0]
        first.ids, first.read_seconds, first.write_seconds = record.ids, record.read_seconds, record.write_seconds
        record.slices = self.records


def read_together(
    engine: Engine, plan: Plan, slices: Sequence[Slice], batch_bytes: int, record: SliceRecord, shared: SharedCounts,
    rejected_file: BinaryIO, notes: SliceNotes,
) -> Iterator[Frame]:  # fmt: skip
    """Yield the documents of slices in frames of about `batch_bytes`, and count them.

    The host reads the slices, since their files are small. The counts of the task are added to `record`, and those of
    the slices to `shared`.
    """
    rows = records = ranges = size = 0  # rows, records and file ranges before the slice; bytes of pending tables
    tables: list[pa.Table] = []

    def frame() -> Frame:
        table = pa.concat_tables(tables)
        tables.clear()
        found = engine.from_arrow(table)
        notes.add_lengths(pc.binary_length(table.column(TEXT)).to_numpy())
        record.ids.add_frame(engine, found)
        return found

    for input_slice, own in zip(slices, shared.records, strict=True):
        shared.starts.append(rows)
        notes.locations.append(Location(records, ranges, 0))
        parts = parts_of(input_slice, batch_bytes, plan.recipe.tokenizer, plan.tokenizer)
        for batch, passed in _batches(input_slice, batch_bytes, plan.recipe.seed, parts):
            count_batch(own, batch, passed)
            notes.locations += shifted(batch.locations, records, ranges)
            _count_texts(own, batch.frame, input_slice.columns)
            record.bytes_read += text_bytes_of(batch.frame)
            for entry in batch.rejected:
                moved = entry._replace(row=entry.row + rows, file_index=entry.file_index + ranges)
                rejected_file.write(orjson.dumps(moved._asdict()) + b"\n")
            table = batch.frame
            tables.append(table.set_column(0, ROW, pc.add(table.column(ROW), pa.scalar(rows, pa.int64()))))
            size += table.nbytes
            del batch, table
            if size >= batch_bytes:
                size = 0
                yield frame()
        if parts:
            notes.firsts += [first + rows for first in parts.firsts]
        rows += own.rows
        records += parts.records if parts else own.rows
        ranges += len(input_slice.ranges)
    if tables:
        yield frame()


def _batches(input_slice: Slice, batch_bytes: int, seed: int, parts: Parts | None) -> Iterator[tuple[Batch, Passed]]:
    """Yield the batches of a slice, with Arrow tables as frames. Each comes with the counts of records that sampling
    leaves out (`Passed`)."""
    if parts is None and not input_slice.is_limited and input_slice.ranges[0].file.sample >= 1:
        for documents in read_visible(input_slice, batch_bytes):
            yield Batch(*documents), Passed()
        check_unchanged(input_slice)
        return
    engine = load_engine("cpu")
    for batch, passed in read_sampled(engine, input_slice, batch_bytes, seed, parts):
        yield batch._replace(frame=engine.to_arrow(batch.frame)), passed


def _count_texts(own: SliceRecord, table: pa.Table, columns: Sequence[str]) -> None:
    """Add the sizes of texts to the counts of a slice, and note the carried columns that have a value."""
    sizes = pc.binary_length(table.column(TEXT)).to_numpy()
    own.bytes_read += int(sizes.sum())
    own.lengths = own.lengths or Tally()
    own.lengths.add(tally_of(sizes))
    known = {*own.filled}
    filled = (name for name in columns if name not in known)
    own.filled += [name for name in filled if table.column(name).null_count < len(table)]
