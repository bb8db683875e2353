# SPDX-License-Identifier: Apache-2.0
"""The runner: plan, session and report around the phases. `docs/architecture.md` has a table of the phases.

The runner skips each task that has a done-record, so a killed run resumes. This module never reads a document.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from curation.contract import Engine
from curation.engine import choose_engine, load_engine
from curation.errors import EngineError, counted, near_or_nothing
from curation.packing.tokenization import Tokenizer
from curation.reading import probe
from curation.reading.inputs import is_hub
from curation.reading.slices import cut_slices
from curation.reading.source_files import Slice, SourceFile
from curation.recipes.recipe import Recipe, check_readable
from curation.running.corpus_phase import (
    RunContext,
)
from curation.running.disk import check_disk
from curation.running.finished import RunResult
from curation.running.memory import Resources, choose, explain_memory_errors, read_limits, read_processors
from curation.running.phases import run_phases
from curation.running.plan import Preflight, check_same, identity_in, make_plan, preflight
from curation.running.progress import Progress, choose_progress
from curation.running.report import tokenizer_warning, write_report
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
from curation.running.stored_plan import Plan, Stored
from curation.running.stream_inputs import clear_work, collect
from curation.running.warm_up import warm_up_recipe
from curation.system.addresses import address_fault
from curation.system.files import local_output, remove
from curation.system.interrupts import begin_writing
from curation.system.steps import each, shown_by

MIN_SLICE_BYTES, MAX_SLICE_BYTES = 4 << 20, 32 << 20


def run(
    recipe: Recipe,
    output: str | Path,
    *,
    engine: str = "auto",
    force: bool = False,
    force_disk: bool = False,
    workers: int = 0,
    scheduler: str = "threads",
    slice_bytes: int = 0,
    progress: Progress | bool = True,
) -> RunResult:
    """Run a recipe, write its output folder, and return the report.

    README.md lists the files of an output folder. Outputs do not depend on `workers`, `scheduler` and `slice_bytes`.

    recipe       the recipe to run
    output       local folder, created if missing
    engine       "auto" (default), "cpu" or "gpu"
    force        False (default): return the report of a finished run of the same recipe and inputs, or resume an
                 unfinished one. True: delete the outputs of earlier runs in `output` first
    force_disk   False (default): refuse a run that needs more disk than is free (`curation.running.disk`)
    workers      tasks at once; 0 (default) uses every processor of this process, or fewer if memory is short
    scheduler    "threads" (default), "processes" or the address of a Dask scheduler, such as "tcp://HOST:PORT"
    slice_bytes  maximum input bytes of a slice; 0 (default) lets the runner choose
    progress     True (default): show progress on standard error, as bars in a terminal, else as lines. False: show
                 nothing. Or a display of `curation.running.progress`

        >>> import curation
        >>> curation.run(curation.load_recipe("recipe.yaml"), "another", progress=False).report["documents"]["kept"]
        2

    Raises the errors of `curation.errors`: RecipeError, InputError, TokenizerError and EngineError for wrong arguments;
    OutputError if `output` holds another run or other files, or if its disk is too small; InputError if an input
    changes during the run; StageError for a stage that breaks its contract; OutOfMemoryError; IntegrityError if a file
    of a stage, tokenizer or the run changes during the run, or if the counts do not add up.
    """
    check_readable(recipe)
    started = time.perf_counter()
    progress = choose_progress(progress)
    folder = Path(os.path.realpath(local_output(output)))  # `resolve` fails for a link to itself
    choice = choose_engine(engine)
    _check_session(workers, scheduler, slice_bytes)
    with shown_by(progress):
        checked = preflight(recipe, folder)  # before anything is read
    begin_writing()
    with locked(folder, progress), shown_by(progress):
        if not force and (report := find_finished(folder)):
            return _repeat_result(recipe, folder, report, checked, progress)
        module = load_engine(choice.name)
        if not force_disk:
            check_disk(recipe, checked.files, checked.tokenizer, module, folder, progress)
        resources_for = partial(find_resources, module, choice.name, workers, scheduler)
        plan, stored, resources = _make_plan(
            recipe, folder, checked, module, resources_for, slice_bytes, force, progress
        )
        workers_shown = counted(resources.workers, "worker")
        progress.log(f"engine {choice.name} ({choice.reason}); {workers_shown}; {_describe_inputs(plan)}")
        progress.log(f"memory: {resources}")
        warm_up_recipe(recipe, choice.name, resources.workers, progress)
        with explain_memory_errors(resources), module.open_session(resources.workers, scheduler) as session:
            if session.dashboard:
                progress.log(f"Dask dashboard: {session.dashboard}")
            context = RunContext(
                plan=plan,
                stored_plan=stored,
                folder=folder,
                engine=module,
                engine_name=choice.name,
                session=session,
                progress=progress,
                workers=resources.workers,
                batch_bytes=resources.batch_bytes,
            )
            content = _run_phases(context, checked.tokenizer)
        sweep(folder)  # dead workers of a cluster leave temporary files
        content = {"engine": choice.name, "engine_reason": choice.reason} | content
        content["seconds"] = round(time.perf_counter() - started, 3)
        content["peak_memory_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        write_report(folder, content)
        if not recipe.output.keep_work:
            remove(folder / WORK)
    return RunResult(content, False, folder)


def _repeat_result(
    recipe: Recipe, folder: Path, report: dict[str, Any], checked: Preflight, progress: Progress
) -> RunResult:
    """Return the result of a finished run. OutputError if its recipe or inputs are not those of this call."""
    check_same(folder, identity_in(folder, report), checked.identity)
    if rewrite_moved_paths(folder, report):
        progress.log(f"the folder has moved: rewrote tokens/_meta/ with paths in {folder}")
    if not recipe.output.keep_work:
        remove(folder / WORK)
    return RunResult(report, True, folder)


def _make_plan(
    recipe: Recipe,
    folder: Path,
    checked: Preflight,
    engine: Engine,
    resources_for: Callable[[int], Resources],
    slice_bytes: int,
    force: bool,
    progress: Progress,
) -> tuple[Plan, Stored, Resources]:
    """Return the plan, new or of the interrupted run in `folder`, its file, and the resources of the run."""
    local_files, resources = checked.files, resources_for(len(checked.files))
    with explain_memory_errors(resources):
        if force or not plan_path(folder).exists():
            check_empty(folder, force)
            local_files = [
                file if is_hub(file.path) else probe(file) for file in each(checked.files, "checking inputs", "file")
            ]
            if force:  # only after every check of the new run
                discard(folder)
            clear_work(folder / WORK)
            local_files = collect(recipe, local_files, engine, folder / WORK, progress)
            local_files = [probe(file) if file.label else file for file in local_files]
            resources = resources_for(len(local_files))  # probing and collecting have loaded libraries
        sweep(folder)
        cut = _slice_planner(slice_bytes, resources)
        plan, stored = make_plan(folder, recipe, checked.identity, checked.files, local_files, cut)
    return plan, stored, resources


def _run_phases(context: RunContext, tokenizer: Tokenizer | None) -> dict[str, Any]:
    with ThreadPoolExecutor(1) as background:
        note = background.submit(_log_note, tokenizer, context.progress)  # while the input is read
        content = run_phases(context)
        note.result()
    return content


def _log_note(tokenizer: Tokenizer | None, progress: Progress) -> None:
    if tokenizer and tokenizer.note:
        progress.log(tokenizer_warning(tokenizer))


def _check_session(workers: int, scheduler: str, slice_bytes: int) -> None:
    for name, number in (("workers", workers), ("slice_bytes", slice_bytes)):
        if not 0 <= number <= sys.maxsize:
            raise EngineError(f"{name} must be 0 (chosen for this machine) or more, and fit 64 bits, not {number}")
    if scheduler in ("threads", "processes"):
        return
    if ":" not in scheduler:
        raise EngineError(
            f"scheduler must be threads, processes or an address such as tcp://HOST:PORT, not {scheduler!r}"
            f"{near_or_nothing(scheduler, ('threads', 'processes'))}"
        )
    if fault := address_fault(scheduler):
        raise EngineError(f"scheduler {scheduler}: {fault}")
    if find_spec("distributed") is None:
        raise EngineError(
            f"scheduler {scheduler} needs Dask's distributed: pip install 'distributed=={version('dask')}'"
        )


def find_resources(engine: Engine, name: str, workers: int, scheduler: str, files: int) -> Resources:
    """Choose workers, batches and slices: all processors, or fewer if the memory of this machine is short.

    Memory is checked for the CPU engine on this machine only. The needs of the GPU engine and of the machines of a
    cluster were not measured.
    """
    count = workers or read_processors()
    batch = engine.batch_bytes(count)
    if name != "cpu" or scheduler not in ("threads", "processes"):
        return Resources(count, batch, MAX_SLICE_BYTES)
    return choose(
        read_limits(), count, batch, MAX_SLICE_BYTES,
        files=files, fixed_workers=workers > 0, processes=scheduler == "processes",
    )  # fmt: skip


def _slice_planner(slice_bytes: int, resources: Resources) -> Callable[[Sequence[SourceFile]], Iterator[Slice]]:
    """The function that cuts files: at `slice_bytes`, or as memory allows and at least a quarter of a batch."""
    if slice_bytes:
        return partial(cut_slices, slice_bytes=slice_bytes)
    max_bytes = max(resources.max_slice_bytes, resources.batch_bytes)
    min_bytes = min(max(MIN_SLICE_BYTES, resources.batch_bytes // 4), max_bytes)
    return partial(cut_slices, slice_bytes=max_bytes, min_bytes=min_bytes, workers=resources.workers)


def _describe_inputs(plan: Plan) -> str:
    files, slices = counted(len(plan.files), "file"), counted(len(plan.slices), "slice")
    return f"{files}, {_size_of(plan.files) / 1e6:,.1f} MB, {slices}"


def _size_of(files: Sequence[SourceFile]) -> int:
    return sum(max(file.bytes, 0) for file in files)
