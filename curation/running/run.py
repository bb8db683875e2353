# SPDX-License-Identifier: Apache-2.0
"""The runner: it makes the plan, opens the session, runs the phases, and writes the report. `docs/phases.md` has a
table of the phases.

The runner skips each task that has a done-record, so a killed run resumes. This module never reads a document.
"""

from __future__ import annotations

import os
import resource
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from curation.base.engine import choose_engine, suit_engine
from curation.base.errors import DeviceLostError, EngineError, counted
from curation.base.speeds import PROCESSES_PER_DEVICE
from curation.base.system.cluster import begun_by
from curation.base.system.files import local_output
from curation.base.system.interrupts import Interrupted, begin_writing
from curation.base.system.leases import EXPIRE_SECONDS
from curation.base.system.memory import Resources, document_remark, explain_memory_errors, read_processors
from curation.base.system.os_errors import PASSING
from curation.base.system.progress import Progress, choose_progress
from curation.base.system.sealed import read_sealed, write_sealed
from curation.base.system.steps import each, shown_by
from curation.reading import probe
from curation.reading.formats import is_copied, probe_all
from curation.reading.inputs import is_hub
from curation.reading.slices import cut_slices
from curation.reading.source_files import Slice, SourceFile
from curation.recipes.keywords import check_types
from curation.record.context import RunContext
from curation.record.folder import (
    WORK,
    check_empty,
    check_entries,
    check_work,
    clear_work,
    discard,
    find_finished,
    locked,
    plan_path,
    remove_work,
    sweep,
)
from curation.record.identity import check_same, identity_in
from curation.record.limits import limit_slices
from curation.record.stored_plan import Plan, Stored
from curation.results.finished.moved_paths import rewrite_moved_paths
from curation.results.finished.object_copy import RUN, ObjectCopy, prepare_copy
from curation.results.finished.run_result import RunResult
from curation.results.report.report import output_notes, tokenizer_notes, write_report
from curation.running.array_tasks import ArrayDriver, advised_without_force, parse_array_task, run_array_task
from curation.running.cluster_resources import prepare_cluster
from curation.running.phase_loop import run_phases
from curation.running.planning.arguments import (
    LOCAL,
    Call,
    check_alone,
    check_session,
    check_shared,
    document_bytes,
    find_resources,
    work_of,
)
from curation.running.planning.disk import check_disk
from curation.running.planning.frame_inputs import frames_as_files, recipe_of
from curation.running.planning.plan import discard_undone, make_plan, preflight
from curation.running.planning.remote_copies import copy_inputs
from curation.running.planning.stream_inputs import collect
from curation.running.reused import note_reused, open_reused
from curation.running.tasks.deletion import delete_work, stored_report
from curation.stages.cells import refuse_cells, sender
from curation.stages.warm_up import recipe_groups, warm_up_recipe
from curation.tokens.tokenization import Tokenizer

MIN_SLICE_BYTES = 4 << 20
RESUME = "the same call resumes the run"
FINISHED = "the run was already finished"


def run(
    recipe: Any,
    output: str | Path,
    *,
    input: Any = None,
    engine: str = "auto",
    force: bool = False,
    force_disk: bool = False,
    workers: int = 0,
    scheduler: str = "auto",
    slice_bytes: int = 0,
    progress: Progress | bool = True,
    array_task: str = "",
    lease_seconds: float = EXPIRE_SECONDS,
    work: str | Path = "",
    reuse: str | Path = "",
) -> RunResult:
    """Run a recipe, write its output folder, and return the result with the report.

    docs/output_files.md lists the files of an output folder. Outputs do not depend on `workers`, `scheduler` and
    `slice_bytes`.

    recipe       the recipe to run: a Recipe, its name or path, or its dictionary, whose `input` may have frames; or a
                 frame, which the default recipe reads
    output       local folder, created if missing; or a URL such as "s3://BUCKET/PREFIX", to which the finished run is
                 copied (docs/object_storage.md)
    input        replaces `input` of the recipe: a path, a frame, an `Input`, a dictionary such as
                 {"path": frame, "text_column": "body"}, or a list of these. None (default) keeps the recipe's own
    engine       "auto" (default), "cpu" or "gpu"
    force        False (default): return the report of a finished run of the same recipe and inputs, or resume an
                 unfinished one. True: delete the outputs of earlier runs in `output` first
    force_disk   False (default): refuse a run that needs more disk than is free (`curation.running.planning.disk`)
    workers      tasks at once; 0 (default) uses every processor of this process, or fewer if memory is short
    scheduler    "auto" (default): threads, and from 16 workers on processes of up to 8 threads; "threads"; "processes"
                 of one thread; or the address of a Dask scheduler, such as "tcp://HOST:PORT"
    slice_bytes  maximum input bytes of a slice; 0 (default) lets the runner choose
    progress     True (default): show progress, in a notebook as one line, else on standard error, as bars in a
                 terminal or as lines. False: show nothing. Or a display of `curation.base.system.progress`
    array_task   "3/100": take part in the run as process 3 of 100 that share only `output` (docs/clusters.md)
    lease_seconds  with `array_task`: seconds after which the tasks of a silent process are taken over; default 60
    work         with a URL: the local folder of the run. Default: a folder in the current one, named by the URL
    reuse        local folder of an earlier run: scores and vectors of equal texts by the same models are read there in
                 place of being computed again (docs/runs.md). Outputs do not depend on it

    A frame is one of pandas, cuDF or Dask, or a table of polars, DuckDB or pyarrow. It is written once to
    `output/_frames/`, as a Parquet file with its SHA-256 in the name: a call with another frame is refused.

        >>> import curation, pandas
        >>> curation.run("recipe.yaml", "another", progress=False).report["documents"]["kept"]
        2
        >>> frame = pandas.DataFrame({"text": ["one two three", "one two three", "four"]})
        >>> recipe = {"stages": ["exact_dedup"], "output": {"formats": []}}
        >>> curation.run(recipe, "unique", input=frame, progress=False).kept()["text"].tolist()
        ['one two three', 'four']

    Raises the errors of `curation.base.errors`: RecipeError, InputError, TokenizerError and EngineError for wrong
    arguments; OutputError if `output` holds another run or other files, or if its disk is too small; InputError if an
    input changes during the run; StageError for a stage that breaks its contract; OutOfMemoryError; IntegrityError if a
    file of a stage, tokenizer or the run changes during the run, or if the counts do not add up.
    """
    recipe, frames = recipe_of(recipe, input)
    check_types("run", {"output": (output, str)})
    if array_task or scheduler not in LOCAL:
        refuse_cells(recipe.stages, "the processes of an array" if array_task else "a cluster")
    started = time.perf_counter()
    progress = choose_progress(progress)
    copy = prepare_copy(output, work, force, array_task)
    folder = copy.run_folder if copy else Path(os.path.realpath(local_output(output)))  # `resolve` fails for loops
    choice = choose_engine(engine)
    check_session(workers, scheduler, slice_bytes)
    if array_task:
        parse_array_task(array_task, lease_seconds)
        check_alone(scheduler, force)
        check_shared(folder)
    elif lease_seconds != EXPIRE_SECONDS:
        raise EngineError("lease_seconds is for the processes of an array, and array_task is missing")
    with (
        _interruptible(),
        shown_by(progress),
        frames_as_files(recipe, frames, folder, shared=bool(array_task)) as recipe,
    ):
        checked = preflight(recipe, folder)  # before anything is read
        if engine == "auto" and choice.name == "gpu" and scheduler in LOCAL:
            modelled = work_of(recipe, checked.files, checked.tokenizer, workers)
            processes = min(PROCESSES_PER_DEVICE, modelled.processors) if scheduler == "processes" else 1
            choice = suit_engine(modelled._replace(processes=processes))
        options = workers, scheduler, slice_bytes, force, force_disk
        call = Call(recipe, folder, checked, choice, *options, progress, started, reuse)
        begin_writing()
        with _advising(progress):
            if array_task:
                with advised_without_force():
                    finished, is_own = run_array_task(call, parse_array_task(array_task, lease_seconds), drive)
                    return RunResult(finished, False, folder) if is_own else repeat_result(call, finished)
            return _run_and_copy(call, copy) if copy else _run_alone(call)


@contextmanager
def _advising(progress: Progress) -> Iterator[None]:
    """After an interruption or a temporary error, show how to resume the run. After any other error, a resumed run
    would fail again."""
    progress.note = ""  # removes the note of an earlier call
    try:
        yield
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt | DeviceLostError) or getattr(error, "errno", None) in PASSING:
            progress.note = RESUME
        raise


@contextmanager
def _interruptible() -> Iterator[None]:
    """Raise Interrupted in place of any other KeyboardInterrupt, whose traceback would not help in a notebook."""
    try:
        yield
    except KeyboardInterrupt as error:
        raise error if isinstance(error, Interrupted) else Interrupted(signal.SIGINT) from None


def _run_alone(call: Call) -> RunResult:
    with locked(call.folder, call.progress):
        check_entries(call.folder)
        if not call.force and (report := find_finished(call.folder)):
            return repeat_result(call, report)
        return RunResult(drive(call), False, call.folder)


def _run_and_copy(call: Call, copy: ObjectCopy) -> RunResult:
    check_entries(copy.folder, (RUN,), levels=1)
    call.progress.log(f"work folder: {copy.folder}; the finished run is copied to {copy.url}")
    with copy.claimed(call.recipe.name, call.checked.identity.digest):
        if copy.finished is not None:
            check_same(copy.url, identity_in(copy.finished), call.checked.identity, "Give another prefix")
            call.progress.log(f"{copy.url} has the finished run, and {copy.run_folder} has none: nothing is written")
            return RunResult(copy.finished, True, copy.run_folder, copy.url)
        if copy.continues:
            call.progress.log(f"{copy.url} has a part of this run, copied from {copy.continues}: the copy continues")
        finished = _run_alone(call)
        is_new = copy.copy(finished.report)
    return finished._replace(already_complete=not is_new, address=copy.url)


def drive(call: Call, array: ArrayDriver | None = None) -> dict[str, Any]:
    """Run a recipe, or the rest of an interrupted run, and return the report.

    `array` is the driver of a run by processes that share only a folder.
    """
    recipe, folder, progress, tokenizer = call.recipe, call.folder, call.progress, call.checked.tokenizer
    with ExitStack() as stack:
        reused = stack.enter_context(open_reused(call.reuse, recipe, folder, progress))
        _check_folder(call, array)
        cluster = prepare_cluster(call)
        resumes = not array and not call.force and plan_path(folder).exists()
        plan, stored, resources = _make_plan(call, cluster, array)
        if resumes:
            progress.log(f"resuming the run in {folder}: finished tasks are not repeated")
        processes = array.processes if array else 1
        workers = resources.workers * processes
        workers_shown = counted(workers, "worker") + (f" of {counted(processes, 'array task')}" if array else "")
        progress.log(f"engine {call.choice.name} ({call.choice.reason}); {workers_shown}; {_describe_inputs(plan)}")
        notes = [tokenizer.memory_note] if tokenizer and tokenizer.memory_note else []
        memory = f"memory{' of each array task' * bool(array)}"
        progress.log("; ".join([f"{memory}: {resources}{document_remark(document_bytes(recipe.input))}", *notes]))
        warm_up_recipe(recipe, call.choice.name, min(resources.workers, read_processors()), progress)
        if call.choice.name == "gpu":
            progress.log("loading the GPU's kernels; the first run of a machine compiles them, which can take minutes")
        open_session = array.open_session if array else call.engine.open_session
        stack.enter_context(explain_memory_errors(resources))
        stack.enter_context(begun_by(sender(recipe.stages)))
        session = stack.enter_context(open_session(resources.workers, call.scheduler, recipe_groups(recipe, "cpu")))
        if session.dashboard:
            progress.log(f"Dask dashboard: {session.dashboard}")
        context = RunContext(
            plan=plan, stored_plan=stored, folder=folder, engine=call.engine, engine_name=call.choice.name,
            session=session, progress=progress, workers=workers, batch_bytes=resources.batch_bytes,
            reused=note_reused(folder, reused),
        )  # fmt: skip
        path = stored_report(folder)  # it exists if a run was killed while it deleted its work folder
        content = read_sealed(path, dict[str, Any]) if path.exists() else _content(call, array, context)
        if not recipe.output.keep_work:
            write_sealed(path, content)
            delete_work(context)
    sweep(folder)  # dead workers of a cluster leave temporary files
    write_report(folder, content)
    if not recipe.output.keep_work:
        remove_work(folder)
    return content


def _check_folder(call: Call, array: ArrayDriver | None) -> None:
    """Raise OutputError if the output folder has files of another run or program, or if its disk is too small."""
    if array:
        check_entries(call.folder)
    check_work(call.folder)
    if not (call.force or array):
        discard_undone(call.folder, call.checked.identity, call.progress)
    if call.force or not plan_path(call.folder).exists():
        check_empty(call.folder, call.force)  # before the mark of a run is written there
    if not call.force_disk:
        check_disk(call.recipe, call.checked.files, call.checked.tokenizer, call.engine, call.folder, call.progress)


def _content(call: Call, array: ArrayDriver | None, context: RunContext) -> dict[str, Any]:
    """Run the phases, and return the content of `report.json`."""
    with ThreadPoolExecutor(1) as background:
        note = background.submit(_log_notes, call.checked.tokenizer, context)  # runs while the input is read
        content = run_phases(context)
        note.result()
    content = {"engine": call.choice.name, "engine_reason": call.choice.reason} | content
    content["seconds"] = round(time.perf_counter() - call.started, 3)
    content["batch_bytes"] = context.batch_bytes
    content["peak_memory_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return array.agree(content) if array else content


def repeat_result(call: Call, report: dict[str, Any]) -> RunResult:
    """Return the result of a finished run. Raises OutputError if its recipe or inputs differ from those of this
    call."""
    folder = call.folder
    check_same(folder, identity_in(report), call.checked.identity)
    if rewrite_moved_paths(folder, report):
        call.progress.log(f"the folder has moved: rewrote tokens/_meta/ with paths in {folder}")
    if not call.recipe.output.keep_work:
        remove_work(folder)
    call.progress.note = FINISHED
    return RunResult(report, True, folder)


def _make_plan(call: Call, cluster: Resources | None, array: ArrayDriver | None) -> tuple[Plan, Stored, Resources]:
    """Return the plan (new, or that of the interrupted run in the folder), its stored file, and the resources of the
    run.

    cluster  the resources of a cluster, if there is one
    """
    recipe, folder, force, files = call.recipe, call.folder, call.force, call.checked.files
    find = partial(find_resources, call.engine, call.choice.name, call.workers, call.scheduler)
    processes = array.processes if array else 1
    local_files, resources = files, cluster or find(len(files))
    with explain_memory_errors(resources):
        if force or not plan_path(folder).exists():
            checking = each(files, "checking inputs", "file")
            local_files = probe_all(checking, lambda file: is_hub(file.path) or is_copied(file))
            if force:  # only after every check of the new run
                discard(folder)
            else:
                clear_work(folder)
            local_files = collect(recipe, local_files, call.engine, folder / WORK, call.progress)
            local_files = copy_inputs(local_files, folder / WORK)
            local_files = [probe(file) if file.label or file.copy else file for file in local_files]
            resources = cluster or find(len(local_files))  # again, since probing and collecting have loaded libraries
        if not array:  # others write to the folder of an array
            sweep(folder)
        planner = _slice_planner(call.slice_bytes, resources, resources.workers * processes)

        def cut(files: Sequence[SourceFile]) -> Iterator[Slice]:
            return limit_slices(planner(files), recipe)

        plan, stored = make_plan(folder, recipe, call.checked.identity, files, local_files, cut)
    return plan, stored, resources


def _log_notes(tokenizer: Tokenizer | None, context: RunContext) -> None:
    recipe = context.plan.recipe
    notes = tokenizer_notes(tokenizer, context.engine_name) if tokenizer else []
    if context.engine_name == "gpu":
        stages = zip(recipe.stage_names, recipe.stages, strict=True)
        notes += [f"{name}: {note}" for name, stage in stages if (note := stage.outputs().gpu_note)]
    for note in [*notes, *output_notes(recipe.output, context.engine_name)]:
        context.progress.log(note)


def _slice_planner(
    slice_bytes: int, resources: Resources, workers: int
) -> Callable[[Sequence[SourceFile]], Iterator[Slice]]:
    """Return the function that cuts files into slices for `workers` tasks at once. Slices have `slice_bytes`, or sizes
    that fit the memory and are at least `min_slice_bytes`."""
    if slice_bytes:
        return partial(cut_slices, slice_bytes=slice_bytes)
    max_bytes = max(resources.max_slice_bytes, resources.batch_bytes)
    min_bytes = min(resources.min_slice_bytes or max(MIN_SLICE_BYTES, resources.batch_bytes // 4), max_bytes)
    return partial(cut_slices, slice_bytes=max_bytes, min_bytes=min_bytes, workers=workers)


def _describe_inputs(plan: Plan) -> str:
    files, slices = counted(len(plan.files), "file"), counted(len(plan.slices), "slice")
    return f"{files}, {_size_of(plan.files) / 1e6:,.1f} MB, {slices}"


def _size_of(files: Sequence[SourceFile]) -> int:
    return sum(max(file.bytes, 0) for file in files)
