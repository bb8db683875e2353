# SPDX-License-Identifier: Apache-2.0
"""The map phase: a task applies the row stages to its slices, then computes the keys of the corpus stages. Small slices
of several inputs share a task, its frames and its partition, but each slice has its own counts."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

import msgspec
import numpy as np
import orjson
import pyarrow as pa

from curation.base.arrays import load_mapped
from curation.base.contract import ID, ROW, TEXT, Engine, Frame
from curation.base.engine import load_engine
from curation.base.number_lists import is_list
from curation.base.system.files import commit_all, numbered_path
from curation.base.system.interrupts import check as check_interrupts
from curation.base.system.sealed import write_sealed
from curation.models.vectors import arrow_type
from curation.reading import schema_of
from curation.reading.sampling import read_sampled
from curation.reading.source_files import Slice
from curation.record import slice_notes
from curation.record.identity import check_computed_with, check_stage_files, facts_of_files, facts_of_stages
from curation.record.jobs import URLS
from curation.record.ledger import SliceRecord
from curation.record.locations import store_locations
from curation.record.partitions import REMOVED_SCHEMA, IpcFile, PartitionWriter, open_partition
from curation.record.records import RunningNote, TaskCounts
from curation.record.removed_texts import AddedColumns
from curation.record.scores import StoredScores, kept_stages, suffix_of
from curation.record.segments import Segment
from curation.record.slice_notes import SliceNotes
from curation.record.stored_plan import Plan, urls_of, with_urls
from curation.rules.decide import Verdict
from curation.running.phases.scores import SliceScores
from curation.running.phases.shared_tasks import SharedCounts, count_batch, read_together
from curation.stages import CorpusStage, RowStage, Stage
from curation.stages.base import added_columns
from curation.stages.checks import stage_errors
from curation.stages.corpus.cutting import StoredCuts, cut_texts
from curation.stages.corpus.written_columns import WrittenColumns
from curation.stages.invoke import apply_stage, compute_keys
from curation.stages.outcome import BYTES, Outcome, StageCount, key_column
from curation.stages.own_code import stage_from_job
from curation.stages.text_sizes import TextsGrowError, bounded_texts, divided
from curation.tokens.token_spans import parts_of


class SliceJob(msgspec.Struct, frozen=True, kw_only=True):
    """The job of the map phase. With the plan, it has everything to run any task of a segment."""

    segment: Segment
    engine: str
    batch_bytes: int
    folder: Path  # of this segment
    before: Path | None  # folder of the segment before; None: read the input
    starts: np.ndarray  # int64: first row of each partition, counted over all rows of the segment before
    docs: np.ndarray  # int64: `doc` of the first row of each slice; empty in the first segment
    mask: Path | None  # .npy (bool): rows that the corpus phase of the segment before kept
    cuts: StoredCuts | None  # spans that the last stage of the segment before cuts from texts
    columns: WrittenColumns | None = None  # columns that the last stage of the segment before writes
    stages: dict[int, dict[str, Any]]  # number -> the prepared stage as JSON
    reused: dict[int, list[StoredScores]] = {}  # number -> scores of an earlier run


class _Task(NamedTuple):
    """What a task of a map job needs, loaded."""

    plan: Plan
    job: SliceJob
    number: int
    slices: list[Slice]
    engine: Engine

    removed: pa.Schema  # of the removed rows
    stages: dict[int, Stage]  # of the segment
    keys: dict[int, list[dict[str, np.dtype]]]  # the dtypes of each stage's keys, known after its first batch

    @property
    def numbers(self) -> tuple[int, ...]:
        return self.job.segment.row_stages

    @property
    def columns(self) -> list[str]:
        """The carried columns of the slices."""
        return self.slices[0].columns


def run_slice(plan: Plan, job: SliceJob, number: int, urls: Sequence[str] = ()) -> TaskCounts:
    """Run a task and write its partition, `.removed.arrow` and `.rejected.jsonl`, then the done-record.

    `urls` are the URLs of the file ranges of its slices, including secrets; empty if no URL has a secret.
    """
    stages = {k: stage_from_job(content) for k, content in job.stages.items()}
    slices = with_urls(plan.slices.of_task(number), urls)
    task = _Task(plan, job, number, slices, load_engine(job.engine), _removed_schema(plan), stages, {})
    stage_names = plan.recipe.stage_names
    names = [stage_names[k] for k in task.numbers]
    facts = facts_of_stages(names, [stages[k] for k in task.numbers])
    if job.before is None:
        facts |= facts_of_files(part.file for each in slices for part in each.ranges)
    check_computed_with(facts, plan.computed_with, "the run of this worker")
    record = SliceRecord(stages=_stage_counts(task))
    suffixes = (".arrow", ".keys.arrow", ".removed.arrow", ".rejected.jsonl")
    noted_suffixes = slice_notes.suffixes(plan.recipe, job.before is None)
    kept_scores = {suffix_of(k): k for k in kept_stages(plan.recipe, task.numbers)}
    paths = [numbered_path(job.folder, number, suffix) for suffix in (*suffixes, *noted_suffixes, *kept_scores)]
    with (
        commit_all(*paths) as (documents, keys, removed, rejected, *more),
        PartitionWriter(documents, keys) as partition,
        IpcFile(removed, task.removed) as removed_file,
        open(rejected, "wb") as rejected_file,
        SliceNotes(task.engine, plan.recipe, dict(zip(noted_suffixes, more, strict=False)), task.columns) as notes,
        SliceScores(
            stages, dict(zip(kept_scores.values(), more[len(noted_suffixes) :], strict=True)), job.reused
        ) as scores,
        RunningNote(job.folder, number) as note,
    ):
        shared = SharedCounts.of(record, slices, job.docs[slices[0].index : slices[-1].index + 1])
        for frame in _frames(task, record, shared, rejected_file, notes):
            check_interrupts()
            note.begin(len(frame), max(record.bytes_read - record.read_counts()[1], 0))
            for kept in _apply_stages(task, frame, record, shared, removed_file, notes, scores):
                started = time.perf_counter()
                columns, table = _keys(task, kept), _documents(task, kept)
                partition.write(table, columns)
                shared.add_documents(table)
                record.bytes_kept += int(columns[BYTES].sum())
                record.write_seconds += time.perf_counter() - started
                record.documents, record.removed = partition.documents.rows, removed_file.rows
                note.write(*record.read_counts(), record.documents)
                del kept, table
            del frame  # before the next batch is read: an engine plans memory for one batch
        notes.finish(task.numbers, record)
        shared.finish(record)
    check_stage_files(names, [stages[k] for k in task.numbers], plan.stage_files)
    store_locations(job.folder, number, notes.locations, notes.firsts)
    write_sealed(numbered_path(job.folder, number, ".json"), msgspec.to_builtins(record))
    return slice_counts(record)


def urls_of_slice(plan: Plan, job: SliceJob, number: int) -> tuple[str, ...]:
    """Return the URLs that a task reads, including their secrets; empty if none has a secret."""
    return () if job.before else urls_of(plan.slices.of_task(number))


URLS[run_slice] = urls_of_slice


def slice_counts(record: SliceRecord) -> TaskCounts:
    """Return the counts of a slice for the display of progress."""
    return TaskCounts(*record.read_counts(), record.documents)


def _removed_schema(plan: Plan) -> pa.Schema:
    if not plan.recipe.output.keeps_removed_text:
        return REMOVED_SCHEMA
    return pa.schema([*REMOVED_SCHEMA, *AddedColumns.of(plan.slices.carried, plan.recipe.stages).of_records])


def _stage_counts(task: _Task) -> list[StageCount]:
    names = task.plan.recipe.stage_names
    stages = [(names[k], cast(RowStage, task.stages[k])) for k in task.numbers]
    return [StageCount(kind=stage.kind, name=name, unit=stage.shown_rules().unit) for name, stage in stages]


def _frames(
    task: _Task, record: SliceRecord, shared: SharedCounts, rejected_file: BinaryIO, notes: SliceNotes
) -> Iterator[Frame]:
    """Yield the batches of a task as frames. Without any batch, yield one empty frame, so that every partition has its
    columns."""
    if task.job.before is not None:
        batches = _partition_frames(task)
    elif len(task.slices) > 1:
        batches = read_together(
            task.engine, task.plan, task.slices, task.job.batch_bytes, record, shared, rejected_file, notes
        )
    else:
        batches = _input_frames(task, record, rejected_file, notes)
    empty = True
    started = time.perf_counter()
    for frame in batches:
        record.read_seconds += time.perf_counter() - started
        empty = False
        yield frame
        del frame
        started = time.perf_counter()
    if empty:
        added = [(name, arrow_type(kind)) for name, kind in _added_before(task).items()]
        schema = pa.schema([*schema_of(task.columns), *added])
        yield task.engine.from_arrow(schema.empty_table())


def _added_before(task: _Task) -> dict[str, str]:
    """Return the columns that stages of earlier segments wrote: name -> Arrow type."""
    return added_columns(task.plan.recipe.stages[: task.job.segment.first])


def _input_frames(task: _Task, record: SliceRecord, rejected_file: BinaryIO, notes: SliceNotes) -> Iterator[Frame]:
    engine, seed, [own] = task.engine, task.plan.recipe.seed, task.slices
    parts = parts_of(own, task.job.batch_bytes, task.plan.recipe.tokenizer, task.plan.tokenizer)
    for batch, passed in read_sampled(engine, own, task.job.batch_bytes, seed, parts):
        count_batch(record, batch, passed)
        notes.locations += batch.locations
        sizes = engine.byte_lengths(batch.frame[TEXT])
        notes.add_lengths(sizes)
        record.bytes_read += int(sizes.sum())
        record.ids.add_frame(engine, batch.frame)
        empty = dict.fromkeys(task.columns)
        for name in record.filled:
            del empty[name]
        record.filled += [name for name in empty if batch.frame[name].count()]
        rejected_file.writelines(orjson.dumps(entry._asdict()) + b"\n" for entry in batch.rejected)
        yield batch.frame
        del batch
    if parts:
        notes.firsts = parts.firsts


def _partition_frames(task: _Task) -> Iterator[Frame]:
    """Yield the kept rows of the task's partition in the segment before, one frame per batch of the partition's
    file."""
    job, number = task.job, task.number
    assert job.before is not None
    table = open_partition(numbered_path(job.before, number, ".arrow"))
    written = job.columns.names if job.columns else ()
    added = [name for name in _added_before(task) if name not in written]
    table = table.select([ROW, ID, TEXT, *task.columns, *added])
    start, stop = int(job.starts[number]), int(job.starts[number + 1])
    mask = load_mapped(job.mask)[start:stop] if job.mask else np.ones(stop - start, bool)
    cuts = job.cuts.of(number) if job.cuts else None
    done = 0
    for batch in table.to_batches():
        rows = pa.Table.from_batches([batch])
        if cuts:
            with stage_errors(task.plan.recipe.stages[job.segment.first - 1]):
                text = cut_texts(batch.column(TEXT), cuts, done)
            rows = rows.set_column(rows.schema.get_field_index(TEXT), TEXT, text)
        if job.columns:
            for name, values in job.columns.of(number, done, done + len(batch)).items():
                rows = rows.append_column(name, values)
        yield task.engine.from_arrow(rows.filter(pa.array(np.asarray(mask[done : done + len(batch)]))))
        done += len(batch)


def _apply_stages(
    task: _Task, frame: Frame, record: SliceRecord, shared: SharedCounts, removed: IpcFile, notes: SliceNotes,
    scores: SliceScores, done: int = 0,
) -> Iterator[Frame]:  # fmt: skip
    """Apply the row stages of the segment, except the first `done`, in order. Add counts to the record and the notes,
    and write removed rows to their file. Yield one frame, or several if texts grow so much that the frame is
    divided."""
    engine = task.engine
    lengths = engine.byte_lengths(frame[TEXT])
    for place in range(done, len(task.numbers)):
        number, count = task.numbers[place], record.stages[place]
        started = time.perf_counter()
        before = frame
        stage = cast(RowStage, task.stages[number])
        try:
            with bounded_texts(task.slices[0].ranges[0].file.max_document_bytes):
                frame, outcome = apply_stage(engine, before, stage, scores.apply(number))
        except TextsGrowError as error:
            for part in divided(engine, before, error.parts):
                yield from _apply_stages(task, part, record, shared, removed, notes, scores, place)
            return
        notes.add_measures(number, stage, before, outcome)
        count.documents_in += len(before)
        count.bytes_in += int(lengths.sum())
        if outcome.verdict is not None:
            rows = _note_removed(task, number, before, outcome, outcome.verdict, count, removed, notes)
            shared.add_removed(number - task.numbers[0], rows, outcome.verdict)
            lengths = lengths[outcome.verdict.kept]
        if outcome.edited is not None:
            whole, lengths = lengths, engine.byte_lengths(frame[TEXT]) if outcome.edited.any() else lengths
            count.edited += int(np.count_nonzero(outcome.edited))
            count.add_cuts(whole, lengths)
            shared.add_cuts(place, frame, engine, whole, lengths)
        count.add_details(outcome.details)
        count.documents_out += len(frame)
        count.bytes_out += int(lengths.sum())
        count.seconds += time.perf_counter() - started
        del before, outcome
    yield frame


def _note_removed(
    task: _Task, stage: int, frame: Frame, outcome: Outcome, verdict: Verdict, count: StageCount, removed: IpcFile,
    notes: SliceNotes,
) -> np.ndarray:  # fmt: skip
    """Count the rows of a frame that a verdict removes, and write them to `removed`. Return their row numbers."""
    for reason, number in verdict.counts().items():
        count.reasons[reason] = count.reasons.get(reason, 0) + number
    dropped = ~verdict.kept
    if not dropped.any():
        return np.zeros(0, np.int64)
    schema, known = task.removed, {*frame.columns}
    names = [ROW, ID]
    if task.plan.recipe.output.keeps_removed_text:
        names += [TEXT, *(name for name in schema.names if name in known and name not in (ROW, ID, TEXT))]
    gone = task.engine.filter_rows(frame[list(dict.fromkeys([*names, TEXT, *task.columns]))], dropped)
    bound = verdict.broken_bounds()[dropped]
    rows = task.engine.to_arrow(gone[names])
    has_all = {TEXT, *task.columns} <= {*names}
    notes.candidates.add(task.engine, stage, gone, verdict, bound, rows if has_all else None)
    columns = {name: rows.column(name) for name in names}
    columns |= {name: values.filter(pa.array(dropped)) for name, values in outcome.columns.items()}
    columns |= {
        "stage": np.full(len(rows), stage, np.int32),
        "reason": pa.array(verdict.reasons, pa.large_string()).take(pa.array(verdict.reason[dropped])),
        "value": verdict.value[dropped],
        "bound": bound,
    }
    columns |= verdict.notes
    arrays = [columns[field.name] if field.name in columns else pa.nulls(len(rows), field.type) for field in schema]
    removed.write(pa.table(arrays, schema=schema))
    return np.asarray(rows.column(ROW).to_numpy())


def _documents(task: _Task, frame: Frame) -> pa.Table:
    """Return the documents of a frame as the partition stores them: row, id, text, carried columns, and columns of
    stages."""
    added = added_columns(task.plan.recipe.stages[: task.job.segment.last])
    table = task.engine.to_arrow(frame[[ROW, ID, TEXT, *task.columns, *added]])
    # An engine may change the type of list.
    for name in (name for name, kind in added.items() if is_list(arrow_type(kind))):
        place = table.column_names.index(name)
        table = table.set_column(place, name, table.column(place).cast(arrow_type(added[name])))
    return table


def _keys(task: _Task, frame: Frame) -> dict[str, np.ndarray]:
    """Return the size of each text in bytes, and the keys of the corpus stages, by column name."""
    columns = {BYTES: task.engine.byte_lengths(frame[TEXT])}
    for number in task.job.segment.corpus_stages:
        stage = cast(CorpusStage, task.stages[number])
        keys = compute_keys(stage, task.engine, frame, task.keys.setdefault(number, []))
        columns |= {key_column(number, name): key for name, key in keys.items()}
    return columns
