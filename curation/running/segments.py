# SPDX-License-Identifier: Apache-2.0
"""A segment: row-local stages over one slice, then the keys that the whole-corpus stages after them ask for."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

import msgspec
import numpy as np
import orjson
import pyarrow as pa

from curation.contract import ID, ROW, TEXT, Engine, Frame
from curation.engine import load_engine
from curation.files import commit_all, piece_path, write_json
from curation.interrupts import check as check_interrupts
from curation.reading import schema_of
from curation.reading.sampling import read_sampled
from curation.reading.source_files import Slice
from curation.reading.streams import is_damage
from curation.rules import Verdict
from curation.running.jobs import Plan, with_urls
from curation.running.ledger import SliceRecord, StageCount
from curation.running.parts import BYTES, REMOVED_SCHEMA, PartWriter, TableFile, key_column, open_part
from curation.stages import Stage
from curation.stages.decontaminate import Decontaminate, LookUp
from curation.stages.language import check_models
from curation.stages.outcome import CorpusStage, RowStage, added_columns


class Segment(NamedTuple):
    """Stage numbers: those that look at one frame at a time, then those that compare the whole corpus."""

    number: int
    row_stages: tuple[int, ...]
    corpus_stages: tuple[int, ...]


def cut_segments(stages: Sequence[object]) -> list[Segment]:
    """Row-local stages, and the whole-corpus stages right after them, again and again; at least one segment."""
    segments: list[tuple[list[int], list[int]]] = [([], [])]
    for number, stage in enumerate(stages):
        compares = hasattr(stage, "decide")
        if segments[-1][1] and not compares:
            segments.append(([], []))
        segments[-1][compares].append(number)
    return [Segment(number, tuple(rows), tuple(corpus)) for number, (rows, corpus) in enumerate(segments)]


class SliceJob(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker needs, with the plan, to run a segment on any slice."""

    segment: Segment
    engine: str
    batch_bytes: int
    folder: Path  # of this segment
    before: Path | None  # folder of the segment before; None reads the input
    starts: np.ndarray  # first row of each slice among all rows of the segment before
    mask: Path | None  # .npy of the rows (bool) that its barrier left
    tables: dict[int, Path]  # of decontaminating stages, by their numbers


class _Task(NamedTuple):
    """A job on one slice."""

    plan: Plan
    job: SliceJob
    slice: Slice
    engine: Engine

    @property
    def stages(self) -> Sequence[Stage]:
        return self.plan.recipe.stages

    @property
    def numbers(self) -> tuple[int, ...]:
        return self.job.segment.row_stages


def run_slice(plan: Plan, job: SliceJob, number: int, urls: Sequence[str] = ()) -> None:
    """Runs one slice and leaves its part, `.removed.arrow`, `.rejected.jsonl` and last the done-record. `urls`: the
    real ones of the slice's parts, where these have secrets."""
    task = _Task(plan, job, with_urls(plan.slices[number], urls), load_engine(job.engine))
    names = [plan.recipe.stage_names[k] for k in task.numbers]
    check_models(names, [task.stages[k] for k in task.numbers], plan.models)
    record = SliceRecord(stages=_stage_counts(task))
    suffixes = (".arrow", ".keys.arrow", ".removed.arrow", ".rejected.jsonl")
    paths = [piece_path(job.folder, number, suffix) for suffix in suffixes]
    with (
        commit_all(*paths) as (documents, keys, removed, rejected),
        PartWriter(documents, keys) as part,
        TableFile(removed, REMOVED_SCHEMA) as removed_file,
        open(rejected, "wb") as rejected_file,
    ):
        for frame in _frames(task, record, rejected_file):
            check_interrupts()  # of a signal to the main thread, which waits for this one; processes finish their slice
            frame = _apply_stages(task, frame, record, removed_file)
            started = time.perf_counter()
            part.write(_documents(task, frame), _keys(task, frame))
            record.write_seconds += time.perf_counter() - started
        record.documents, record.removed = part.documents.rows, removed_file.rows
    write_json(piece_path(job.folder, number, ".json"), msgspec.to_builtins(record))


def _stage_counts(task: _Task) -> list[StageCount]:
    names = task.plan.recipe.stage_names
    return [StageCount(kind=str(task.stages[k].__struct_config__.tag), name=names[k], reasons={}) for k in task.numbers]


def _frames(task: _Task, record: SliceRecord, rejected_file: BinaryIO) -> Iterator[Frame]:
    """The batches of a slice as frames; an empty one where there is none, so that every part has its columns."""
    batches = _input_frames(task, record, rejected_file) if task.job.before is None else _part_frames(task)
    empty = True
    started = time.perf_counter()
    for frame in batches:
        record.read_seconds += time.perf_counter() - started
        empty = False
        yield frame
        started = time.perf_counter()
    if empty:
        schema = schema_of(task.slice.columns)
        for field in _added_before(task).items():
            schema = schema.append(pa.field(*field))
        yield task.engine.from_arrow(schema.empty_table())


def _added_before(task: _Task) -> dict[str, str]:
    """The columns that the stages of the segments before have written: name -> Arrow type."""
    return added_columns(task.stages[: min(task.numbers, default=0)])


def _input_frames(task: _Task, record: SliceRecord, rejected_file: BinaryIO) -> Iterator[Frame]:
    engine, seed = task.engine, task.plan.recipe.seed
    for batch, unsampled in read_sampled(engine, task.slice, task.job.batch_bytes, seed):
        record.unsampled += unsampled
        record.rows += batch.rows
        record.lines += batch.lines
        record.repaired += batch.repaired
        record.bytes_read += int(engine.byte_lengths(batch.frame[TEXT]).sum())
        record.rejected += len(batch.rejected)
        record.damaged += [(entry.part, entry.error) for entry in batch.rejected if is_damage(entry.error)]
        record.filled += [
            name for name in task.slice.columns if name not in record.filled and batch.frame[name].count()
        ]
        rejected_file.writelines(orjson.dumps(entry._asdict()) + b"\n" for entry in batch.rejected)
        yield batch.frame


def _part_frames(task: _Task) -> Iterator[Frame]:
    """The rows of the part of the segment before that its barrier left, in the batches they were written in."""
    job, number = task.job, task.slice.index
    assert job.before is not None
    table = open_part(piece_path(job.before, number, ".arrow"))
    table = table.select([ROW, ID, TEXT, *task.slice.columns, *_added_before(task)])
    start, stop = int(job.starts[number]), int(job.starts[number + 1])
    mask = np.load(job.mask, mmap_mode="r")[start:stop] if job.mask else np.ones(stop - start, bool)
    done = 0
    for batch in table.to_batches():
        rows = pa.array(np.asarray(mask[done : done + len(batch)]))
        yield task.engine.from_arrow(pa.Table.from_batches([batch]).filter(rows))
        done += len(batch)


def _apply_stages(task: _Task, frame: Frame, record: SliceRecord, removed: TableFile) -> Frame:
    """The row-local stages of the segment, one after the other; counts go to the record, removed rows to their file."""
    engine = task.engine
    lengths = engine.byte_lengths(frame[TEXT])
    for number, count in zip(task.numbers, record.stages, strict=True):
        stage = _stage(task, number)
        started = time.perf_counter()
        outcome = stage.apply(engine, frame)
        count.documents_in += len(frame)
        count.bytes_in += int(lengths.sum())
        if outcome.verdict is not None:
            _note_removed(engine, number, frame, outcome.verdict, count, removed)
            lengths = lengths[outcome.verdict.kept]
        if outcome.edited:
            lengths = engine.byte_lengths(outcome.frame[TEXT])
        frame = outcome.frame
        count.edited += outcome.edited
        count.add_details(outcome.details)
        count.documents_out += len(frame)
        count.bytes_out += int(lengths.sum())
        count.seconds += time.perf_counter() - started
    return frame


def _stage(task: _Task, number: int) -> RowStage:
    """A stage of the recipe, or what looks its n-grams up in the table that all tasks share."""
    stage = task.stages[number]
    return LookUp(stage, task.job.tables[number]) if isinstance(stage, Decontaminate) else cast(RowStage, stage)


def _note_removed(
    engine: Engine, stage: int, frame: Frame, verdict: Verdict, count: StageCount, removed: TableFile
) -> None:
    for reason, number in verdict.counts().items():
        count.reasons[reason] = count.reasons.get(reason, 0) + number
    gone = ~verdict.kept
    if not gone.any():
        return
    rows = engine.to_arrow(engine.filter_rows(frame[[ROW, ID]], gone))
    reasons = pa.array(verdict.reasons, pa.large_string()).take(pa.array(verdict.reason[gone]))
    columns = [rows.column(ROW), rows.column(ID), np.full(len(rows), stage, np.int32), reasons, verdict.value[gone]]
    removed.write(pa.table(columns, schema=REMOVED_SCHEMA))


def _documents(task: _Task, frame: Frame) -> pa.Table:
    """What the part holds of a frame: position, id, text, what is carried along and what stages have added."""
    added = added_columns(task.stages[: max(task.numbers, default=-1) + 1])
    return task.engine.to_arrow(frame[[ROW, ID, TEXT, *task.slice.columns, *added]])


def _keys(task: _Task, frame: Frame) -> dict[str, np.ndarray]:
    """The bytes of the text, and the keys of the whole-corpus stages."""
    columns = {BYTES: task.engine.byte_lengths(frame[TEXT])}
    for number in task.job.segment.corpus_stages:
        stage = cast(CorpusStage, task.stages[number])
        columns |= {key_column(number, name): key for name, key in stage.keys(task.engine, frame).items()}
    return columns
