# SPDX-License-Identifier: Apache-2.0
"""The loop: plan, segments with their barriers, outputs, report. `docs/design.md`, section 4.

Each piece of work is skipped if its done-record is there, so that a killed run goes on where it was. Nothing here looks
at a document.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgspec
import numpy as np

from curation.arrays import positions_of, save_array
from curation.contract import Engine, Session
from curation.engine import choose_engine, load_engine
from curation.errors import EngineError, counted
from curation.files import commit, local_output, make_folder, piece_path, read_json, remove, sync_folder
from curation.interrupts import begin_writing
from curation.interrupts import check as check_interrupts
from curation.kernels import compiled_before
from curation.packing.token_files import write_tokens
from curation.packing.tokenization import Tokenizer
from curation.reading import probe
from curation.reading.inputs import entries_by_name, is_hub
from curation.reading.paths import find_files
from curation.reading.slices import plan_slices
from curation.reading.source_files import Slice, SourceFile
from curation.recipe import Recipe, check_readable
from curation.running import outputs, report
from curation.running.barriers import Decided, load_decision, save_cuts, save_decision, save_index
from curation.running.collecting import clear_work, collect
from curation.running.emptiness import nothing_kept
from curation.running.exports import write_exports
from curation.running.jobs import Plan, Stored, run_stored, store_job, urls_of
from curation.running.ledger import SliceRecord, check_ledger, total_stages
from curation.running.moved import mend
from curation.running.parts import Parts
from curation.running.plans import (
    check_same,
    check_stage_files,
    find_tokenizer,
    identity_in,
    identity_of,
    make_plan,
)
from curation.running.preflight import check_stages
from curation.running.progress import Silent
from curation.running.resources import Room, choose, read_limits, read_processors, shortage_told
from curation.running.segments import Segment, SliceJob, cut_segments, run_slice
from curation.running.sources import check_minima
from curation.running.workdir import (
    WORK,
    check_empty,
    check_inputs,
    check_names,
    discard,
    find_finished,
    locked,
    plan_path,
    sweep,
)
from curation.stages import CorpusStage
from curation.stages.base import decided
from curation.stages.outcome import StageCount
from curation.stages.own_code import stage_for_job

MIN_SLICE_BYTES, MAX_SLICE_BYTES = 4 << 20, 32 << 20


class Finished(NamedTuple):
    """A run that is done: its report, and whether it was before this call."""

    report: dict[str, Any]
    already_complete: bool

    @property
    def nothing_kept(self) -> str:
        """Why the run kept no document, in one sentence; empty where it kept some."""
        return nothing_kept(self.report)


class _Run(NamedTuple):
    """Everything the phases share."""

    plan: Plan
    stored_plan: Stored
    folder: Path
    engine: Engine
    engine_name: str
    session: Session
    progress: Silent
    workers: int
    batch_bytes: int

    @property
    def work(self) -> Path:
        return self.folder / WORK


class _Reached(NamedTuple):
    """Where the chain stands after a segment: its parts, the rows that its barrier left, and what it removed."""

    parts: Parts
    alive: np.ndarray
    mask: Path
    cuts: Path | None
    removed: list[outputs.RemovedRows]


def run(
    recipe: Recipe,
    output: str | Path,
    *,
    engine: str = "auto",
    force: bool = False,
    workers: int = 0,
    scheduler: str = "threads",
    slice_bytes: int = 0,
    progress: Silent | None = None,
) -> Finished:
    """Runs a recipe and leaves the output folder that README.md describes. Gives the content of its `report.json`, and
    whether the run was complete before.

    engine       "auto", "cpu" or "gpu"
    force        deletes what an earlier run left in `output`; without it a finished run of the same recipe and input
                 is reported as complete, an unfinished one goes on, and any other is an OutputError
    workers      tasks at once; 0 takes all processors this process may use, fewer where memory is short
    scheduler    "threads", "processes" or the address of a Dask scheduler
    slice_bytes  input bytes of a unit of work; 0 chooses. The result does not depend on it
    progress     what tells how far it is: of `curation.running.progress`, `Lines()` prints to standard error, `Bars()`
                 draws there; None is silent

    Raises the errors of `curation.errors`.
    """
    check_readable(recipe)
    started = time.perf_counter()
    progress = progress or Silent()
    folder = local_output(output).resolve()
    choice = choose_engine(engine)
    _check_session(workers, scheduler, slice_bytes)
    check_stages(recipe, folder)  # before anything is read
    files = find_files(recipe.input, folder)
    check_inputs(folder, [file.path for file in files] + [entry.path for entry in recipe.input if is_hub(entry.path)])
    check_names(recipe, folder)
    tokenizer = find_tokenizer(recipe, folder)
    identity = identity_of(recipe, files, tokenizer)
    begin_writing()
    with locked(folder, progress):
        finished = None if force else find_finished(folder)
        if finished:
            check_same(folder, identity_in(folder, finished), identity)
            if mend(folder, finished):
                progress.say(f"the folder has moved: tokens/_meta/ was written anew, with paths of {folder}")
            if not recipe.output.keep_work:
                remove(folder / WORK)
            return Finished(finished, True)
        module, ready = load_engine(choice.name), files
        room = _find_room(module, choice.name, workers, scheduler, len(files))
        with shortage_told(room):
            if force or not plan_path(folder).exists():
                check_empty(folder, force)
                ready = [file if is_hub(file.path) else probe(file) for file in files]
                if force:  # not before all that can be wrong with the new run was looked at
                    discard(folder)
                clear_work(folder / WORK)
                ready = collect(recipe, ready, module, folder / WORK, progress)
                ready = [probe(file) if file.label else file for file in ready]
                room = _find_room(module, choice.name, workers, scheduler, len(ready))  # what that loaded stays
            sweep(folder)
            plan, stored = make_plan(folder, recipe, identity, files, ready, _slices_by(slice_bytes, room))
        progress.say(f"engine {choice.name} ({choice.reason}); {counted(room.workers, 'worker')}; {_described(plan)}")
        progress.say(f"memory: {room}")
        if not compiled_before():
            progress.say("first run: the kernels are compiled now, once, which takes some seconds")
        with (
            shortage_told(room),
            module.open_session(room.workers, scheduler) as session,
            ThreadPoolExecutor(1) as beside,
        ):
            said = beside.submit(_say_note, tokenizer, progress)  # while the input is read
            shared = plan, stored, folder, module, choice.name, session, progress, room.workers, room.batch_bytes
            content = _phases(_Run(*shared))
            said.result()
        sweep(folder)  # what dead workers of a cluster have left
        content = {"engine": choice.name, "engine_reason": choice.reason} | content
        content["seconds"] = round(time.perf_counter() - started, 3)
        content["peak_memory_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        report.write(folder, content)
        if not recipe.output.keep_work:
            remove(folder / WORK)
    return Finished(content, False)


def _say_note(tokenizer: Tokenizer | None, progress: Silent) -> None:
    if tokenizer and tokenizer.note:
        progress.say(report.tokenizer_warning(tokenizer))


def _check_session(workers: int, scheduler: str, slice_bytes: int) -> None:
    for name, number in (("workers", workers), ("slice_bytes", slice_bytes)):
        if not 0 <= number <= sys.maxsize:
            raise EngineError(f"{name} must be 0 (chosen for this machine) or more, and fit 64 bits, not {number}")
    if scheduler in ("threads", "processes"):
        return
    if ":" not in scheduler:
        raise EngineError(f"scheduler must be threads, processes or an address as tcp://HOST:PORT, not {scheduler!r}")
    if find_spec("distributed") is None:
        raise EngineError(f"scheduler {scheduler} needs Dask's distributed: install gpu-pipeline[distributed]")


def _find_room(engine: Engine, name: str, workers: int, scheduler: str, files: int) -> Room:
    """Tasks at once and the input of each: all processors, unless the memory of this machine is short. What the GPU
    engine takes of it, or the workers of a cluster of theirs, was not measured."""
    count = workers or read_processors()
    batch = engine.batch_bytes(count)
    if name != "cpu" or scheduler not in ("threads", "processes"):
        return Room(count, batch, MAX_SLICE_BYTES)
    return choose(
        read_limits(), count, batch, MAX_SLICE_BYTES,
        files=files, fixed_workers=workers > 0, processes=scheduler == "processes", compiled=compiled_before(),
    )  # fmt: skip


def _slices_by(slice_bytes: int, room: Room) -> Callable[[Sequence[SourceFile]], list[Slice]]:
    """How files are cut: as asked for, else as memory allows and not below a quarter of the engine's batch."""
    if slice_bytes:
        return partial(plan_slices, slice_bytes=slice_bytes)
    most, least = max(room.max_slice_bytes, room.batch_bytes), max(MIN_SLICE_BYTES, room.batch_bytes // 4)
    return partial(plan_slices, slice_bytes=most, least_bytes=min(least, most), workers=room.workers)


def _described(plan: Plan) -> str:
    files, slices = counted(len(plan.files), "file"), counted(len(plan.slices), "slice")
    return f"{files}, {_size_of(plan.files) / 1e6:,.1f} MB, {slices}"


def _size_of(files: Sequence[SourceFile]) -> int:
    return sum(max(file.bytes, 0) for file in files)


# Phases


def _do_pieces(
    run_: _Run, label: str, function: Callable[..., None], job: Any, folder: Path, items: Sequence[tuple[Any, ...]]
) -> list[Any]:
    """Runs `function` of the plan, the job and the item of every piece without a done-record, and gives all records.
    Items are the numbers from 0 on, each with whatever else its task carries."""
    make_folder(folder)
    records = [piece_path(folder, item[0], ".json") for item in items]
    task = partial(run_stored, function, type(job), run_.stored_plan, store_job(job, folder))
    check_interrupts()
    with run_.progress.watch(label, folder, len(items)):
        run_.session.map(task, [item for item, path in zip(items, records, strict=True) if not path.exists()])
    return [read_json(path) for path in records]


def _phases(run_: _Run) -> dict[str, Any]:
    recipe = run_.plan.recipe
    counts = [
        StageCount(kind=stage.kind, name=name, removes=stage.removes, compares=stage.compares)
        for stage, name in zip(recipe.stages, recipe.stage_names, strict=True)
    ]
    segments = cut_segments(recipe.stages)
    reached: _Reached | None = None
    removed: list[outputs.RemovedRows] = []
    first_records: list[SliceRecord] = []
    for segment in segments:
        records = _run_segment(run_, segment, reached)
        if not first_records:
            first_records = records
            check_minima(recipe.input, recipe.budget, run_.plan.slices, records)
        total_stages([counts[k] for k in segment.row_stages], records)
        reached = _barrier(run_, segment, records, counts)
        removed += reached.removed
    assert reached is not None
    rows = np.array([record.rows for record in first_records], np.int64)
    bases = np.cumsum(rows) - rows  # the first doc of each slice
    _name_groups(counts, removed, run_.plan.slices, bases)
    folders = [_segment_folder(run_, segment.number) for segment in segments]
    parts, part_records = _write_documents(run_, reached, bases)
    with ThreadPoolExecutor(1) as beside:  # each of the two keeps one processor busy
        side_files = beside.submit(_write_side_files, run_, folders, bases, first_records, removed)
        numbered = [(part.number, part.source) for part in parts]
        tokens = write_tokens(recipe, _outputs_folder(run_), numbered, part_records, run_.folder)
    digests = side_files.result()
    digests |= write_exports(run_.engine, recipe, run_.plan.slices, bases, run_.batch_bytes, run_.folder)
    if recipe.output.index:
        run_.progress.say("saving the index")
        digests |= save_index(run_.folder, recipe, run_.engine, removed, run_.plan.slices, bases, run_.workers)
    planned = sum(part.documents for part in parts)  # the ledger compares it with what was written
    copies = planned - int(np.count_nonzero(reached.alive))
    written = {"records": part_records, "tokens": tokens, "copies": copies}
    return _conclude(run_, counts, first_records, written, digests, removed)


def _name_groups(
    counts: Sequence[StageCount], removed: Sequence[outputs.RemovedRows], slices: Sequence[Slice], bases: np.ndarray
) -> None:
    """Puts ids in place of rows in what stages say about their largest groups."""
    for found in removed:
        groups: list[dict[str, Any]] = (
            [] if found.index_folder else counts[found.stage].details.get("largest_groups", [])
        )
        rows = np.array([group["row"] for group in groups], np.int64)
        for group, id_ in zip(groups, outputs.ids_of(found.parts, rows, slices, bases).to_pylist(), strict=True):
            del group["row"]
            group["id"] = id_


def _segment_folder(run_: _Run, number: int) -> Path:
    return run_.work / f"segment-{number}"


def _run_segment(run_: _Run, segment: Segment, reached: _Reached | None) -> list[SliceRecord]:
    slices = run_.plan.slices
    job = SliceJob(
        segment=segment,
        engine=run_.engine_name,
        batch_bytes=run_.batch_bytes,
        folder=_segment_folder(run_, segment.number),
        before=None if reached is None else reached.parts.folder,
        starts=np.zeros(0, np.int64) if reached is None else reached.parts.starts,
        mask=None if reached is None else reached.mask,
        cuts=None if reached is None else reached.cuts,
        stages=_prepared(run_, segment),
    )
    names = [run_.plan.recipe.stage_names[k] for k in segment.row_stages]
    label = " + ".join([*([] if reached else ["read"]), *names]) or "keys"
    items = [(piece.index, *([urls] if reached is None and (urls := urls_of(piece)) else [])) for piece in slices]
    records = _do_pieces(run_, label, run_slice, job, job.folder, items)
    return [msgspec.convert(record, SliceRecord) for record in records]


def _prepared(run_: _Run, segment: Segment) -> dict[int, dict[str, Any]]:
    """The stages of a segment as its tasks use them, by number."""
    numbers = (*segment.row_stages, *segment.corpus_stages)
    _check_files(run_, numbers)
    return {number: stage_for_job(run_.plan.recipe.stages[number].prepare(run_.work)) for number in numbers}


def _check_files(run_: _Run, numbers: Sequence[int]) -> None:
    recipe = run_.plan.recipe
    names = [recipe.stage_names[number] for number in numbers]
    check_stage_files(names, [recipe.stages[number] for number in numbers], run_.plan.stage_files)


def _barrier(run_: _Run, segment: Segment, records: list[SliceRecord], counts: list[StageCount]) -> _Reached:
    """The corpus stages of a segment: which of all its rows are left, and what went because of what."""
    parts = Parts(_segment_folder(run_, segment.number), [record.documents for record in records])
    mask, cuts = (
        run_.work / f"{name}-{segment.number}.{suffix}" for name, suffix in (("barrier", "npy"), ("cuts", "npz"))
    )
    alive = np.ones(len(parts), bool)
    removed = []
    for number in segment.corpus_stages:
        found = _decide(run_, number, parts, alive)
        _count(counts[number], found, alive, parts.byte_lengths())  # read anew: 8 bytes per document less meanwhile
        alive[found.rows] = False
        removed += found.removed
        if found.cuts and not cuts.exists():
            save_cuts(cuts, found.cuts)
    if not mask.exists():
        with commit(mask) as path:
            save_array(path, alive)
    return _Reached(parts, alive, mask, cuts if cuts.exists() else None, removed)


def _count(count: StageCount, found: Decided, alive: np.ndarray, sizes: np.ndarray) -> None:
    """What a decision does to the rows that are `alive`, of these `sizes` in bytes."""
    count.details, count.seconds = found.details, found.seconds
    count.documents_in, count.bytes_in = int(np.count_nonzero(alive)), int(sizes.sum(where=alive))
    count.documents_out = count.documents_in - len(found.rows)
    count.bytes_out = count.bytes_in - int(sizes[found.rows].sum())
    count.reasons = {each.reason: len(each.row) for each in found.removed if len(each.row)}
    if found.cuts:
        count.edited = len(np.unique(found.cuts.row))
        count.bytes_out -= int((found.cuts.stop - found.cuts.start).sum())


def _decide(run_: _Run, number: int, parts: Parts, alive: np.ndarray) -> Decided:
    """The decision of a corpus stage about the rows that are `alive`; its file is its done-record."""
    path = run_.work / f"decision-{number}.npz"
    if not path.exists():
        check_interrupts()
        _check_files(run_, [number])
        started = time.perf_counter()
        stage = cast(CorpusStage, run_.plan.recipe.stages[number])
        run_.progress.say(f"{run_.plan.recipe.stage_names[number]}: {int(alive.sum()):,} documents")
        sources = _sources(run_.plan.slices, parts)
        corpus = parts.corpus(number, positions_of(alive), sources, run_.workers)
        found = decided(stage, run_.engine, corpus)
        save_decision(path, found, time.perf_counter() - started)
        del corpus, found  # up to 20 bytes per document, while the next stage decides
    return load_decision(path, parts, number)


def _sources(slices: Sequence[Slice], parts: Parts) -> list[tuple[str, int, int]]:
    """(name, first row, row after the last) of each input; its slices stand together."""
    spans: dict[str, tuple[int, int]] = {}
    for piece in slices:
        first = spans.get(piece.source, (int(parts.starts[piece.index]), 0))[0]
        spans[piece.source] = (first, int(parts.starts[piece.index + 1]))
    return [(name, low, high) for name, (low, high) in spans.items()]


def _outputs_folder(run_: _Run) -> Path:
    return run_.work / "outputs"


def _write_documents(
    run_: _Run, reached: _Reached, bases: np.ndarray
) -> tuple[list[outputs.OutputPart], list[dict[str, Any]]]:
    """`documents/`, and in the work folder the tokens of its parts; gives the parts as planned, and their records."""
    output = run_.plan.recipe.output
    sources = _sources(run_.plan.slices, reached.parts)
    copies = {name: entry.copies for name, entry in entries_by_name(run_.plan.recipe.input).items()}
    parts = outputs.cut_output_parts(sources, reached.parts.byte_lengths(), reached.alive, output, copies)
    job = outputs.OutputJob(
        bases=bases,
        parts=reached.parts,
        mask=reached.mask,
        output_parts=parts,
        work=_outputs_folder(run_),
        documents=run_.folder / "documents",
    )
    label = "write + tokenise" if output.formats else "write"
    records = _do_pieces(run_, label, outputs.write_output_part, job, job.work, [(part.number,) for part in parts])
    if not records:
        schema = outputs.document_schema(run_.plan.slices, run_.plan.recipe.stages)
        written = outputs.write_empty_documents(job.documents, schema)
        records = [written | dict.fromkeys(("documents", "bytes", "tokens"), 0)]
    return parts, records


def _write_side_files(
    run_: _Run, folders: list[Path], bases: np.ndarray, records: list[SliceRecord], removed: list[outputs.RemovedRows]
) -> dict[str, str]:
    """`removed/` and `rejected.jsonl`; gives path -> sha256."""
    slices, names = run_.plan.slices, run_.plan.recipe.stage_names
    digests = outputs.write_removed(run_.folder / "removed", names, slices, bases, folders, removed)
    rejected = outputs.write_rejected(run_.folder / "rejected.jsonl", folders[0], slices, bases, records)
    sync_folder(run_.folder)
    return digests | {"rejected.jsonl": rejected}


def _conclude(
    run_: _Run,
    counts: list[StageCount],
    records: list[SliceRecord],
    written: dict[str, Any],
    digests: dict[str, str],
    removed: list[outputs.RemovedRows],
) -> dict[str, Any]:
    """Adds everything up, checks the ledger, and writes `tokens/_meta/`."""
    rejected = sum(record.rejected for record in records)
    documents = {
        "read": sum(record.rows - record.unsampled for record in records),
        "copies": written["copies"],
        "kept": sum(record["documents"] for record in written["records"]),
        "removed": sum(sum(count.reasons.values()) for count in counts),
        "rejected": rejected,
        "edited": sum(count.edited for count in counts),
        "repaired": sum(record.repaired for record in records),
    }
    check_ledger(documents, counts)
    lines = [stage.report_lines(count) for stage, count in zip(run_.plan.recipe.stages, counts, strict=True)]
    return report.build(
        run_.plan, run_.engine.describe(), documents, (counts, lines), records, written, digests, run_.folder
    )
