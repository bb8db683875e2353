# SPDX-License-Identifier: Apache-2.0
"""Call the methods of a stage and check their results. The runner and the library call stages only through these
functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from curation.base.contract import TEXT, Engine, Frame
from curation.base.errors import StageError
from curation.base.system.files import commit, make_folder, sync_files
from curation.base.system.steps import each
from curation.stages.base import CorpusStage, Forecast, NewIndex, Phase, RowStage, Stage, StageSample
from curation.stages.checks import checked_decision, checked_keys, checked_outcome, stage_errors
from curation.stages.outcome import Corpus, Decision, Outcome
from curation.stages.text_sizes import without_large_texts


def apply_stage(
    engine: Engine, frame: Frame, stage: RowStage, apply: Callable[[Engine, Frame], Outcome] | None = None
) -> tuple[Frame, Outcome]:
    """Apply a row stage to a frame; `apply`, if given, replaces the method of the stage. Return the frame without the
    removed rows and with new texts and columns, and the outcome. Inside `bounded_texts`, rows whose edited texts are
    too large are removed. Raises StageError for an outcome that differs from what the stage announces, TextsGrowError
    if the frame must be divided.
    """
    with stage_errors(stage):
        outcome = checked_outcome(stage, engine, frame, (apply or stage.apply)(engine, frame))
    if outcome.text is not None:
        frame = engine.with_columns(frame, {TEXT: as_column(engine, frame, outcome.text)})
        outcome = without_large_texts(engine, frame[TEXT], outcome)
    columns = outcome.columns
    if outcome.verdict is not None:
        kept = outcome.verdict.kept
        frame = engine.filter_rows(frame, kept)
        columns = {name: values.filter(pa.array(kept)) for name, values in columns.items()}
    if columns:
        frame = engine.with_columns(frame, {name: as_column(engine, frame, values) for name, values in columns.items()})
    return frame, outcome


def compute_keys(
    stage: CorpusStage, engine: Engine, frame: Frame, types: list[dict[str, np.dtype]] | None = None
) -> dict[str, np.ndarray]:
    """Return the keys of a frame: name -> int64 or uint64, one per row.

    `types` holds the key types of the first frame; an empty list is filled. Raises StageError for keys that are not
    integers, not one per row, or not of these types."""
    with stage_errors(stage):
        return checked_keys(stage.keys(engine, frame), len(frame), [] if types is None else types)


def prepare_stage(stage: Stage, folder: Path) -> Stage:
    """Return the stage that tasks use: the result of `stage.prepare(folder)`."""
    with stage_errors(stage):
        return stage.prepare(folder)


def as_column(engine: Engine, frame: Frame, values: Any) -> Any:
    """Return values as a column of the frame's library, aligned with the frame. NumPy arrays pass unchanged."""
    if not isinstance(values, pa.Array | pa.ChunkedArray):
        return values
    column = engine.from_arrow(pa.table({TEXT: values}))[TEXT]
    column.index = frame.index  # frames align columns by index
    return column


def forecast(stage: CorpusStage, sample: StageSample) -> Forecast:
    """Return the forecast of a stage for a sample. Raises StageError if the stage returns something else."""
    with stage_errors(stage):
        found = stage.forecast(sample)
        if not isinstance(found, Forecast):
            raise StageError(f"forecast() must return a Forecast, not {type(found).__name__}")
    return found


def saves_index(stage: Stage) -> bool:
    """Return whether a stage saves an index for `output.index`. Raises RecipeError if the stage's settings do not allow
    an index, StageError if `new_index()` returns neither an index nor None."""
    return isinstance(stage, CorpusStage) and _new_index(stage) is not None


def index_of(stage: CorpusStage) -> NewIndex:
    """Return the index of a stage that saves one."""
    index = _new_index(stage)
    assert index is not None
    return index


def _new_index(stage: CorpusStage) -> NewIndex | None:
    with stage_errors(stage):
        index = stage.new_index()
        if not isinstance(index, NewIndex | None):
            raise StageError(f"new_index() must return a NewIndex or None, not {type(index).__name__}")
    return index


def _phases_of(stage: CorpusStage, saving: bool) -> Sequence[Phase]:
    """Return the phases of a stage; with `saving`, the phases that save its index. Raises StageError for duplicate or
    invalid names."""
    phases = index_of(stage).phases if saving else stage.phases()
    names = [phase.name for phase in phases]
    if len({*names}) < len(names) or not all(name.isidentifier() for name in names):
        raise StageError(f"phases must have different names of letters, digits and '_', not {names}")
    return phases


def _record(folder: Path, number: int) -> Path:
    """Return the path of a task's done-record, which is in the folder of the task's phase."""
    return folder / f"{number:06d}.done"


def run_phase_task(
    stage: CorpusStage, engine: Engine, corpus: Corpus, phase_number: int, number: int, saving: bool = False
) -> None:
    """Run one task of a phase and write its done-record, unless the record exists. With `saving`, the phase is one that
    saves the index."""
    with stage_errors(stage):
        phase = _phases_of(stage, saving)[phase_number]
        folder = corpus.scratch / phase.name
        record = _record(folder, number)
        if record.exists():
            return
        phase.run(engine, corpus, number)
        if not phase.durable:
            sync_files(folder)
        with commit(record) as path:
            path.touch()


def run_phases(
    stage: CorpusStage, corpus: Corpus, run: Callable[[int, Sequence[int]], None], saving: bool = False
) -> None:
    """Call `run(phase, tasks)` for each phase; with `saving`, for each phase that saves the index. `tasks` are the
    numbers of the tasks without a done-record; they may run in any order."""
    with stage_errors(stage):
        phases = _phases_of(stage, saving)
    for index, phase in enumerate(phases):
        folder = corpus.scratch / phase.name
        with stage_errors(stage):
            tasks = phase.tasks(corpus)
        if missing := [number for number in range(tasks) if not _record(folder, number).exists()]:
            make_folder(folder)
            run(index, missing)


def decide(
    stage: CorpusStage, engine: Engine, corpus: Corpus, run: Callable[[int, Sequence[int]], None] | None = None
) -> Decision:
    """Run the phases of a corpus stage and return its decision. The caller removes the files of the phases after it has
    stored the decision. Raises StageError for a decision about rows outside the corpus, or one that the class variables
    exclude.

    `run` is as in `run_phases`; by default tasks run one after the other in this process.
    """

    def run_here(place: int, numbers: Sequence[int]) -> None:
        for number in each(numbers, stage.phases()[place].name, "task"):
            run_phase_task(stage, engine, corpus, place, number)

    run_phases(stage, corpus, run or run_here)
    with stage_errors(stage):
        return checked_decision(stage, stage.decide(engine, corpus), corpus)
