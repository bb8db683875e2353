# SPDX-License-Identifier: Apache-2.0
"""What the whole-corpus stages leave: what they removed, as files of `_work/`, and the saved index of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import orjson

from curation.contract import Engine
from curation.engine import load_engine
from curation.errors import IntegrityError, RecipeError
from curation.files import commit
from curation.reading.source_files import Slice
from curation.recipe import Recipe
from curation.running.outputs import RemovedRows, ids_of
from curation.running.parts import AliveCorpus, Parts
from curation.running.workdir import check_inputs
from curation.stages import Decontaminate, FuzzyDedup
from curation.stages.ngram_table import save_table
from curation.stages.outcome import Duplicates, OldDuplicates
from curation.stages.saved_index import FOLDER, index_digests


def against_digests(recipe: Recipe) -> dict[str, str]:
    """SHA-256 of what every stage with `against` goes by, an index or evaluation texts, by the stage's name: part of
    what makes a run this run. RecipeError, InputError for what is not there, does not fit the stage, or is no text."""
    digests = {}
    for name, stage in zip(recipe.stage_names, recipe.stages, strict=True):
        if isinstance(stage, Decontaminate):
            digests[name] = stage.table(load_engine("cpu")).digest
        elif isinstance(stage, FuzzyDedup) and stage.against:
            digests[name] = stage.open_index().digest
    return digests


def check_against(recipe: Recipe, folder: Path) -> None:
    """RecipeError, InputError for an index or evaluation texts that are not there, do not fit the stage, or lie where
    the run writes."""
    against_digests(recipe)
    for stage in recipe.stages:
        if isinstance(stage, Decontaminate):
            check_inputs(folder, [file.path for file in stage.files])
        elif isinstance(stage, FuzzyDedup) and stage.against and folder in Path(stage.against).resolve().parents:
            raise RecipeError(f"against: {stage.against} lies in the output folder {folder}; give another --output")


def check_indexes(recipe: Recipe, numbers: Sequence[int], digests: Mapping[str, str]) -> None:
    """IntegrityError where the saved index of one of these stages is another one than the run was planned with."""
    for number in numbers:
        stage, name = recipe.stages[number], recipe.stage_names[number]
        if isinstance(stage, FuzzyDedup) and stage.against and stage.open_index().digest != digests[name]:
            raise IntegrityError(f"the index {stage.against} changed during the run. Put it back, then run again")


def prepare(recipe: Recipe, numbers: Sequence[int], digests: Mapping[str, str], work: Path) -> dict[int, Path]:
    """The files with the n-grams of evaluation texts that tasks look up, by the numbers of their stages: a text that
    changes during the run changes nothing. IntegrityError where it has changed since the run was planned."""
    found: dict[int, Path] = {}
    for number in numbers:
        stage, name = recipe.stages[number], recipe.stage_names[number]
        if isinstance(stage, Decontaminate):
            path = work / f"ngrams-{digests[name][:16]}.npz"
            if not path.exists():
                table = stage.table(load_engine("cpu"))
                if table.digest != digests[name]:
                    raise IntegrityError(f"the evaluation texts of {name} have changed while the run began; run again")
                save_table(path, table)
            found[number] = path
    return found


def save_removed(path: Path, found: Duplicates, seconds: float) -> None:
    old: dict[str, Any] = {}
    if found.old:
        old = {f"old_{name}": np.asarray(value) for name, value in found.old._asdict().items()}
    with commit(path) as temporary, open(temporary, "wb") as file:
        np.savez(
            file,
            row=found.row,
            kept_row=found.kept_row,
            value=found.value,
            reason=np.array(found.reason),
            details=np.array(orjson.dumps(dict(found.details)).decode()),
            seconds=np.array(seconds),
            **old,
        )


def load_removed(path: Path, parts: Parts, stage: int) -> tuple[list[RemovedRows], float, dict[str, Any]]:
    """What a stage removed, by reason; its seconds and details."""
    with np.load(path) as stored:
        found = [RemovedRows(parts, stage, str(stored["reason"]), stored["row"], stored["kept_row"], stored["value"])]
        if "old_row" in stored:
            row, number, value, reason, folder = (stored[f"old_{name}"] for name in OldDuplicates._fields)
            found.append(RemovedRows(parts, stage, str(reason), row, number, value, str(folder)))
        return found, float(stored["seconds"]), orjson.loads(str(stored["details"]))


def save_index(
    folder: Path,
    recipe: Recipe,
    engine: Engine,
    removed: Sequence[RemovedRows],
    slices: Sequence[Slice],
    bases: np.ndarray,
    workers: int,
) -> dict[str, str]:
    """Writes `index/` of what the last `fuzzy_dedup` kept, unless it is there; gives path -> sha256."""
    number = max(k for k, stage in enumerate(recipe.stages) if isinstance(stage, FuzzyDedup))
    parts = next(found.parts for found in removed if found.stage == number)
    alive = np.ones(len(parts), bool)
    for found in removed:
        if found.parts is parts and found.stage <= number:
            alive[found.row] = False
    stage = cast(FuzzyDedup, recipe.stages[number])
    if not (folder / FOLDER).exists():
        corpus = AliveCorpus(parts, number, np.flatnonzero(alive), workers=workers)
        work = folder / "_work" / FOLDER
        stage.write_index(engine, corpus, folder / FOLDER, work, lambda rows: ids_of(parts, rows, slices, bases))
    return index_digests(folder / FOLDER)


__all__ = ["against_digests", "check_against", "load_removed", "save_index", "save_removed"]
