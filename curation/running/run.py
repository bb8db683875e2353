# SPDX-License-Identifier: Apache-2.0
"""The loop: plan, segments with their barriers, outputs, report. `docs/architecture.md` has a table of the phases.

Each piece of work is skipped if its done-record is there, so that a killed run goes on where it was. Nothing here looks
at a document.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from curation.contract import Engine
from curation.engine import choose_engine, load_engine
from curation.errors import EngineError, counted
from curation.files import local_output, make_folder, piece_path, read_json, remove, sync_folder
from curation.interrupts import begin_writing
from curation.interrupts import check as check_interrupts
from curation.kernels import compiled_before
from curation.packing.token_files import write_tokens
from curation.packing.tokenization import Tokenizer
from curation.reading import probe
from curation.reading.inputs import entries_by_name, is_hub
from curation.reading.slices import plan_slices
from curation.reading.source_files import Slice, SourceFile
from curation.recipe import Recipe, check_readable
from curation.running.corpus_phase import (
    RunContext,
    SegmentState,
    input_spans,
    prepare_stages,
    run_corpus_stages,
    save_index,
    segment_folder,
)
from curation.running.exports import write_exports
from curation.running.input_warnings import nothing_kept
from curation.running.intermediate import Numbering
from curation.running.ledger import SliceRecord, check_ledger, total_stages
from curation.running.map_phase import Segment, SliceJob, cut_segments, run_slice, run_stored, store_job
from curation.running.memory import Resources, choose, explain_memory_errors, read_limits, read_processors
from curation.running.plan import (
    Plan,
    Preflight,
    Stored,
    check_same,
    identity_in,
    make_plan,
    preflight,
    urls_of,
)
from curation.running.progress import Progress
from curation.running.removed import RemovedRows, ids_of, write_rejected, write_removed
from curation.running.report import build, check_minima, tokenizer_warning, write_report
from curation.running.run_folder import (
    WORK,
    check_empty,
    discard,
    find_finished,
    locked,
    plan_path,
    rewrite_moved_paths,
    sweep,
)
from curation.running.stream_inputs import clear_work, collect
from curation.running.write_phase import (
    OutputJob,
    OutputPart,
    cut_output_parts,
    document_schema,
    write_empty_documents,
    write_output_part,
)
from curation.stages import Stage
from curation.stages.outcome import StageCount
from curation.stages.own_code import stage_for_job

MIN_SLICE_BYTES, MAX_SLICE_BYTES = 4 << 20, 32 << 20


class RunResult(NamedTuple):
    """A run that is done: its report, and whether it was before this call."""

    report: dict[str, Any]
    already_complete: bool

    @property
    def nothing_kept(self) -> str:
        """Why the run kept no document, in one sentence; empty where it kept some."""
        return nothing_kept(self.report)


def run(
    recipe: Recipe,
    output: str | Path,
    *,
    engine: str = "auto",
    force: bool = False,
    workers: int = 0,
    scheduler: str = "threads",
    slice_bytes: int = 0,
    progress: Progress | None = None,
) -> RunResult:
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
    progress = progress or Progress()
    folder = local_output(output).resolve()
    choice = choose_engine(engine)
    _check_session(workers, scheduler, slice_bytes)
    checked = preflight(recipe, folder)  # before anything is read
    begin_writing()
    with locked(folder, progress):
        if not force and (finished := find_finished(folder)):
            return _answer_again(recipe, folder, finished, checked, progress)
        module = load_engine(choice.name)
        resources_for = partial(_find_resources, module, choice.name, workers, scheduler)
        plan, stored, room = _make_plan(recipe, folder, checked, module, resources_for, slice_bytes, force, progress)
        progress.say(f"engine {choice.name} ({choice.reason}); {counted(room.workers, 'worker')}; {_described(plan)}")
        progress.say(f"memory: {room}")
        if not compiled_before():
            progress.say("first run: the kernels are compiled now, once, which takes some seconds")
        with explain_memory_errors(room), module.open_session(room.workers, scheduler) as session:
            shared = plan, stored, folder, module, choice.name, session, progress, room.workers, room.batch_bytes
            content = _run_phases(RunContext(*shared), checked.tokenizer)
        sweep(folder)  # what dead workers of a cluster have left
        content = {"engine": choice.name, "engine_reason": choice.reason} | content
        content["seconds"] = round(time.perf_counter() - started, 3)
        content["peak_memory_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        write_report(folder, content)
        if not recipe.output.keep_work:
            remove(folder / WORK)
    return RunResult(content, False)


def _answer_again(
    recipe: Recipe, folder: Path, finished: dict[str, Any], checked: Preflight, progress: Progress
) -> RunResult:
    """The answer of a finished run. OutputError where it was a run of something else."""
    check_same(folder, identity_in(folder, finished), checked.identity)
    if rewrite_moved_paths(folder, finished):
        progress.say(f"the folder has moved: tokens/_meta/ was written anew, with paths of {folder}")
    if not recipe.output.keep_work:
        remove(folder / WORK)
    return RunResult(finished, True)


def _make_plan(
    recipe: Recipe, folder: Path, checked: Preflight, engine: Engine, resources_for: Callable[[int], Resources],
    slice_bytes: int, force: bool, progress: Progress,
) -> tuple[Plan, Stored, Resources]:  # fmt: skip
    """The plan of the run, new or of one that was interrupted, its file, and what memory allows."""
    ready, room = checked.files, resources_for(len(checked.files))
    with explain_memory_errors(room):
        if force or not plan_path(folder).exists():
            check_empty(folder, force)
            ready = [file if is_hub(file.path) else probe(file) for file in checked.files]
            if force:  # not before all that can be wrong with the new run was looked at
                discard(folder)
            clear_work(folder / WORK)
            ready = collect(recipe, ready, engine, folder / WORK, progress)
            ready = [probe(file) if file.label else file for file in ready]
            room = resources_for(len(ready))  # what that loaded stays
        sweep(folder)
        cut = _slices_by(slice_bytes, room)
        plan, stored = make_plan(folder, recipe, checked.identity, checked.files, ready, cut)
    return plan, stored, room


def _run_phases(context: RunContext, tokenizer: Tokenizer | None) -> dict[str, Any]:
    with ThreadPoolExecutor(1) as background:
        note = background.submit(_say_note, tokenizer, context.progress)  # while the input is read
        content = _phases(context)
        note.result()
    return content


def _say_note(tokenizer: Tokenizer | None, progress: Progress) -> None:
    if tokenizer and tokenizer.note:
        progress.say(tokenizer_warning(tokenizer))


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


def _find_resources(engine: Engine, name: str, workers: int, scheduler: str, files: int) -> Resources:
    """Tasks at once and the input of each: all processors, unless the memory of this machine is short. What the GPU
    engine takes of it, or the workers of a cluster of theirs, was not measured."""
    count = workers or read_processors()
    batch = engine.batch_bytes(count)
    if name != "cpu" or scheduler not in ("threads", "processes"):
        return Resources(count, batch, MAX_SLICE_BYTES)
    return choose(
        read_limits(), count, batch, MAX_SLICE_BYTES,
        files=files, fixed_workers=workers > 0, processes=scheduler == "processes", compiled=compiled_before(),
    )  # fmt: skip


def _slices_by(slice_bytes: int, room: Resources) -> Callable[[Sequence[SourceFile]], list[Slice]]:
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
    run_: RunContext,
    label: str,
    function: Callable[..., None],
    job: Any,
    folder: Path,
    items: Sequence[tuple[Any, ...]],
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


def _phases(run_: RunContext) -> dict[str, Any]:
    recipe = run_.plan.recipe
    counts = [
        StageCount(kind=stage.kind, name=name, removes=stage.removes, compares=stage.compares)
        for stage, name in zip(recipe.stages, recipe.stage_names, strict=True)
    ]
    segments = cut_segments(recipe.stages)
    reached: SegmentState | None = None
    removed: list[RemovedRows] = []
    first_records: list[SliceRecord] = []
    for segment in segments:
        prepared = prepare_stages(run_, segment)
        records = _run_segment(run_, segment, prepared, reached)
        if not first_records:
            first_records = records
            check_minima(recipe.input, recipe.budget, run_.plan.slices, records)
        total_stages([counts[k] for k in segment.row_stages], records)
        reached = run_corpus_stages(run_, segment, prepared, records, counts)
        removed += reached.removed
    assert reached is not None
    rows = np.array([record.rows for record in first_records], np.int64)
    numbering = Numbering(run_.plan.slices, np.cumsum(rows) - rows)
    _name_groups(counts, removed, numbering)
    folders = [segment_folder(run_, segment.number) for segment in segments]
    parts, part_records = _write_documents(run_, reached, numbering)
    with ThreadPoolExecutor(1) as background:  # each of the two keeps one processor busy
        side_files = background.submit(_write_side_files, run_, folders, numbering, first_records, removed)
        numbered = [(part.number, part.source) for part in parts]
        tokens = write_tokens(recipe, _outputs_folder(run_), numbered, part_records, run_.folder)
    digests = side_files.result()
    digests |= write_exports(run_.engine, recipe, numbering, run_.batch_bytes, run_.folder)
    if recipe.output.index:
        run_.progress.say("saving the index")
        digests |= save_index(run_.folder, recipe, run_.engine, removed, numbering, run_.workers)
    planned = sum(part.documents for part in parts)  # the ledger compares it with what was written
    copies = planned - int(np.count_nonzero(reached.alive))
    written = {"records": part_records, "tokens": tokens, "copies": copies}
    return _conclude(run_, counts, first_records, written, digests, removed)


def _name_groups(counts: Sequence[StageCount], removed: Sequence[RemovedRows], numbering: Numbering) -> None:
    """Puts ids in place of rows in what stages say about their largest groups."""
    for found in removed:
        groups: list[dict[str, Any]] = (
            [] if found.index_folder else counts[found.stage].details.get("largest_groups", [])
        )
        rows = np.array([group["row"] for group in groups], np.int64)
        for group, id_ in zip(groups, ids_of(found.parts, rows, numbering).to_pylist(), strict=True):
            del group["row"]
            group["id"] = id_


def _run_segment(
    run_: RunContext, segment: Segment, prepared: Mapping[int, Stage], reached: SegmentState | None
) -> list[SliceRecord]:
    slices = run_.plan.slices
    job = SliceJob(
        segment=segment,
        engine=run_.engine_name,
        batch_bytes=run_.batch_bytes,
        folder=segment_folder(run_, segment.number),
        before=None if reached is None else reached.parts.folder,
        starts=np.zeros(0, np.int64) if reached is None else reached.parts.starts,
        mask=None if reached is None else reached.mask,
        cuts=None if reached is None else reached.cuts,
        stages={number: stage_for_job(stage) for number, stage in prepared.items()},
    )
    names = [run_.plan.recipe.stage_names[k] for k in segment.row_stages]
    label = " + ".join([*([] if reached else ["read"]), *names]) or "keys"
    items = [(piece.index, *([urls] if reached is None and (urls := urls_of(piece)) else [])) for piece in slices]
    records = _do_pieces(run_, label, run_slice, job, job.folder, items)
    return [msgspec.convert(record, SliceRecord) for record in records]


def _outputs_folder(run_: RunContext) -> Path:
    return run_.work / "outputs"


def _write_documents(
    run_: RunContext, reached: SegmentState, numbering: Numbering
) -> tuple[list[OutputPart], list[dict[str, Any]]]:
    """`documents/`, and in the work folder the tokens of its parts; gives the parts as planned, and their records."""
    output = run_.plan.recipe.output
    sources = input_spans(run_.plan.slices, reached.parts)
    copies = {name: entry.copies for name, entry in entries_by_name(run_.plan.recipe.input).items()}
    parts = cut_output_parts(sources, reached.parts.byte_lengths(), reached.alive, output, copies)
    job = OutputJob(
        offsets=numbering.offsets,
        parts=reached.parts,
        mask=reached.mask,
        output_parts=parts,
        work=_outputs_folder(run_),
        documents=run_.folder / "documents",
    )
    label = "write + tokenise" if output.formats else "write"
    records = _do_pieces(run_, label, write_output_part, job, job.work, [(part.number,) for part in parts])
    if not records:
        schema = document_schema(run_.plan.slices, run_.plan.recipe.stages)
        written = write_empty_documents(job.documents, schema)
        records = [written | dict.fromkeys(("documents", "bytes", "tokens"), 0)]
    return parts, records


def _write_side_files(
    run_: RunContext, folders: list[Path], numbering: Numbering, records: list[SliceRecord], removed: list[RemovedRows]
) -> dict[str, str]:
    """`removed/` and `rejected.jsonl`; gives path -> sha256."""
    names = run_.plan.recipe.stage_names
    digests = write_removed(run_.folder / "removed", names, numbering, folders, removed)
    rejected = write_rejected(run_.folder / "rejected.jsonl", folders[0], numbering, records)
    sync_folder(run_.folder)
    return digests | {"rejected.jsonl": rejected}


def _conclude(
    run_: RunContext,
    counts: list[StageCount],
    records: list[SliceRecord],
    written: dict[str, Any],
    digests: dict[str, str],
    removed: list[RemovedRows],
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
    return build(run_.plan, run_.engine.describe(), documents, (counts, lines), records, written, digests, run_.folder)
