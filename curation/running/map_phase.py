# SPDX-License-Identifier: Apache-2.0
"""Row stages over one slice, then the keys for the corpus stages after them; and the jobs that tasks are given."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

import msgspec
import numpy as np
import orjson
import pyarrow as pa

from curation.contract import ID, ROW, TEXT, Engine, Frame
from curation.engine import load_engine
from curation.files import commit, commit_all, piece_path, write_json
from curation.interrupts import check as check_interrupts
from curation.reading import schema_of
from curation.reading.sampling import read_sampled
from curation.reading.source_files import Slice
from curation.reading.streams import is_damage
from curation.rules import Verdict
from curation.running.intermediate import REMOVED_SCHEMA, Parts, PartWriter, TableFile, open_part
from curation.running.ledger import SliceRecord
from curation.running.plan import Loaded, Plan, Stored, check_stage_files, load_plan, load_shared, with_urls
from curation.stages import CorpusStage, RowStage, Stage
from curation.stages.base import added_columns, applied, keyed
from curation.stages.cutting import cut_texts
from curation.stages.outcome import BYTES, Cuts, StageCount, key_column
from curation.stages.own_code import stage_from_job

CUT = "cut_"  # before the names of spans in the file of a decision


def store_job(job: Any, folder: Path) -> Stored:
    """The file of a job, a structure whose fields are JSON, paths, arrays, `Parts` or `Stored`."""
    data = msgspec.json.encode(job, enc_hook=_encode)
    digest = hashlib.sha256(data).hexdigest()
    path = folder / f"job-{digest[:16]}.json"
    if not path.exists():
        with commit(path) as temporary:
            temporary.write_bytes(data)
    return Stored(path, digest)


def run_stored(
    function: Callable[..., None], kind: type[Any], plan: Stored, job: Stored, item: tuple[int, *tuple[Any, ...]]
) -> None:
    """`function` of the stored plan and job and of `item`, a number and whatever else its task carries, unless the
    number's done-record is there: Dask runs again what a worker had finished that died before the end of the phase."""
    if piece_path(job.path.parent, item[0], ".json").exists():
        return
    function(load_plan(plan), load_job(kind, job), *item)


def load_job(kind: type[Loaded], stored: Stored) -> Loaded:
    return load_shared(stored, lambda data: msgspec.json.decode(data, type=kind, dec_hook=_decode))


def _encode(value: Any) -> Any:
    match value:
        case Path():
            return str(value)
        case np.ndarray():
            return value.tolist()
        case Parts():
            return [str(value.folder), np.diff(value.starts).tolist()]
    raise NotImplementedError(f"a job cannot hold a {type(value).__name__}")


def _decode(kind: type[Any], value: Any) -> Any:
    if kind is Path:
        return Path(value)
    if kind is np.ndarray:
        return np.array(value, np.int64)
    if kind is Parts:
        return Parts(Path(value[0]), value[1])
    raise NotImplementedError(f"a job cannot hold a {kind.__name__}")


class Segment(NamedTuple):
    """Stage numbers: those that look at one frame at a time, then those that compare the whole corpus."""

    number: int
    row_stages: tuple[int, ...]
    corpus_stages: tuple[int, ...]
    first: int  # stages before the segment
    last: int  # and with its row stages


def cut_segments(stages: Sequence[Stage]) -> list[Segment]:
    """Row stages, and the corpus stages right after them, again and again; at least one segment. One that cuts texts
    ends its segment, and is never in the last: what comes next reads the texts that it left."""
    segments: list[tuple[list[int], list[int]]] = [([], [])]
    for number, stage in enumerate(stages):
        compared = segments[-1][1]
        if compared and (not stage.compares or _cuts(stages[compared[-1]])):
            segments.append(([], []))
        segments[-1][stage.compares].append(number)
    if stages and _cuts(stages[-1]):
        segments.append(([], []))
    found, done = [], 0
    for number, (rows, corpus) in enumerate(segments):
        found.append(Segment(number, tuple(rows), tuple(corpus), done, done + len(rows)))
        done += len(rows) + len(corpus)
    return found


def _cuts(stage: Stage) -> bool:
    return isinstance(stage, CorpusStage) and stage.cuts_text


class SliceJob(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker needs, with the plan, to run a segment on any slice."""

    segment: Segment
    engine: str
    batch_bytes: int
    folder: Path  # of this segment
    before: Path | None  # folder of the segment before; None reads the input
    starts: np.ndarray  # first row of each slice among all rows of the segment before
    mask: Path | None  # .npy of the rows (bool) that its barrier left
    cuts: Path | None  # of that barrier: the decision with the spans that it cuts out of texts
    stages: dict[int, dict[str, Any]]  # number -> the prepared stage as JSON


class _Task(NamedTuple):
    """A job on one slice."""

    plan: Plan
    job: SliceJob
    slice: Slice
    engine: Engine

    stages: dict[int, Stage]  # of the segment
    keys: dict[int, list[dict[str, np.dtype]]]  # the types of each stage's keys, once there are some

    @property
    def numbers(self) -> tuple[int, ...]:
        return self.job.segment.row_stages


def run_slice(plan: Plan, job: SliceJob, number: int, urls: Sequence[str] = ()) -> None:
    """Runs one slice and leaves its part, `.removed.arrow`, `.rejected.jsonl` and last the done-record. `urls`: the
    real ones of the slice's parts, where these have secrets."""
    stages = {k: stage_from_job(content) for k, content in job.stages.items()}
    task = _Task(plan, job, with_urls(plan.slices[number], urls), load_engine(job.engine), stages, {})
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
    names = [plan.recipe.stage_names[k] for k in task.numbers]
    check_stage_files(names, [stages[k] for k in task.numbers], plan.stage_files)
    write_json(piece_path(job.folder, number, ".json"), msgspec.to_builtins(record))


def _stage_counts(task: _Task) -> list[StageCount]:
    names = task.plan.recipe.stage_names
    return [StageCount(kind=task.stages[k].kind, name=names[k]) for k in task.numbers]


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
    return added_columns(task.plan.recipe.stages[: task.job.segment.first])


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
    cuts = load_cuts(job.cuts) if job.cuts else None
    done = 0
    for batch in table.to_batches():
        found = pa.Table.from_batches([batch])
        if cuts:
            text = cut_texts(batch.column(TEXT), cuts, start + done)
            found = found.set_column(found.schema.get_field_index(TEXT), TEXT, text)
        yield task.engine.from_arrow(found.filter(pa.array(np.asarray(mask[done : done + len(batch)]))))
        done += len(batch)


def cuts_in(stored: Mapping[str, np.ndarray]) -> Cuts | None:
    """The spans in the file of a decision; None where it has none."""
    return Cuts(*(stored[f"{CUT}{name}"] for name in Cuts._fields)) if f"{CUT}row" in stored else None


def load_cuts(path: Path) -> Cuts | None:
    with np.load(path) as stored:
        return cuts_in(stored)


def _apply_stages(task: _Task, frame: Frame, record: SliceRecord, removed: TableFile) -> Frame:
    """The row stages of the segment, one after the other; counts go to the record, removed rows to their file."""
    engine = task.engine
    lengths = engine.byte_lengths(frame[TEXT])
    for number, count in zip(task.numbers, record.stages, strict=True):
        started = time.perf_counter()
        before = frame
        frame, outcome = applied(engine, before, cast(RowStage, task.stages[number]))
        count.documents_in += len(before)
        count.bytes_in += int(lengths.sum())
        if outcome.verdict is not None:
            _note_removed(engine, number, before, outcome.verdict, count, removed)
            lengths = lengths[outcome.verdict.kept]
        if outcome.edited is not None and outcome.edited.any():
            lengths = engine.byte_lengths(frame[TEXT])
            count.edited += int(np.count_nonzero(outcome.edited))
        count.add_details(outcome.details)
        count.documents_out += len(frame)
        count.bytes_out += int(lengths.sum())
        count.seconds += time.perf_counter() - started
    return frame


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
    added = added_columns(task.plan.recipe.stages[: task.job.segment.last])
    return task.engine.to_arrow(frame[[ROW, ID, TEXT, *task.slice.columns, *added]])


def _keys(task: _Task, frame: Frame) -> dict[str, np.ndarray]:
    """The bytes of the text, and the keys of the whole-corpus stages."""
    columns = {BYTES: task.engine.byte_lengths(frame[TEXT])}
    for number in task.job.segment.corpus_stages:
        stage = cast(CorpusStage, task.stages[number])
        found = keyed(stage, task.engine, frame, task.keys.setdefault(number, []))
        columns |= {key_column(number, name): key for name, key in found.items()}
    return columns
