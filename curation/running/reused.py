# SPDX-License-Identifier: Apache-2.0
"""`--reuse`: finds the scores of an earlier run that a new run can use, before the new run begins."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import orjson

from curation.base.errors import InputError, IntegrityError, counted
from curation.base.system.damage import damaged, reading
from curation.base.system.files import file_sha256, numbered_folders
from curation.base.system.locks import locked
from curation.base.system.progress import Progress
from curation.base.system.sealed import read_sealed, write_sealed
from curation.base.system.steps import each
from curation.recipes.changes import changed_keys
from curation.recipes.recipe import Recipe
from curation.record.context import Reused
from curation.record.finished_report import read_report
from curation.record.folder import REPORT, WORK, plan_path
from curation.record.scores import FACTS, FOLDER, StoredScores, facts_of, kept_values, open_scores, schema_of, suffix_of
from curation.stages.base import ScoringStage

WHICH = "embed, classify or perplexity with a transformer, or embed with static embeddings"
REUSED_FROM = "reused-from.json"
ADVICE = "Leave --reuse out to compute all scores"


@contextmanager
def open_reused(old: str | Path, recipe: Recipe, output: Path, progress: Progress) -> Iterator[Reused]:
    """Yield the scores in the run `old` ("": none) that a run of the recipe can reuse. Lock the folder of `old` against
    runs that write to it while the context is open.

    Raises InputError if there is no run, if another process writes it, or if it has no score that this run can use.
    Raises IntegrityError if a file of that run is damaged.
    """
    if not old:
        yield Reused()
        return
    folder = Path(os.path.realpath(old))
    if folder == output:
        raise InputError(
            f"--reuse {old} is the output folder of this run, which repeats no finished task anyway. Leave --reuse out"
        )
    if not (os.path.lexists(folder / REPORT) or plan_path(folder).exists()):
        raise InputError(
            f"--reuse {old}: no run is there, neither {REPORT} nor {WORK}/plan.json. Give the local folder of a run"
        )
    with _held(folder, old):
        try:
            found = _matching(recipe, _stored_in(folder), old, progress)
        except IntegrityError as error:
            raise IntegrityError(f"--reuse {old}: {error}. {ADVICE}") from None
        yield Reused(str(folder), found)


def note_reused(folder: Path, reused: Reused) -> Reused:
    """Return `reused` with the folders of all runs whose scores this run has reused in any call, for its report. The
    work folder stores their names, since a resumed run may have such scores even if `--reuse` is not repeated."""
    path = folder / WORK / REUSED_FROM
    names = read_sealed(path, list[str]) if path.exists() else []
    if reused.folder and reused.folder not in names:
        names.append(reused.folder)
        write_sealed(path, names)
    return reused._replace(folder=", ".join(names))


@contextmanager
def _held(folder: Path, old: str | Path) -> Iterator[None]:
    """Lock a folder against runs that write to it. Several runs may use a finished run at once."""
    is_finished = (folder / REPORT).exists()
    with ExitStack() as stack:
        try:
            stack.enter_context(locked(folder, (fcntl.LOCK_SH if is_finished else fcntl.LOCK_EX) | fcntl.LOCK_NB))
        except BlockingIOError:
            raise InputError(f"--reuse {old}: another process uses this run. Wait until it ends") from None
        yield


def _matching(
    recipe: Recipe, stored: list[StoredScores], old: str | Path, progress: Progress
) -> dict[int, list[StoredScores]]:
    """Return number of a stage -> the stored scores whose facts (`facts_of`: settings, model files, versions) are those
    of the stage. Raises InputError if no stage has such scores."""
    wanted = {
        number: facts_of(stage)
        for number, stage in enumerate(recipe.stages)
        if isinstance(stage, ScoringStage) and kept_values(stage)
    }
    if not wanted:
        raise InputError(f"--reuse {old}: the recipe has no stage with scores to reuse: {WHICH}. {ADVICE}")
    if not stored:
        raise InputError(
            f"--reuse {old}: that run has no scores. Runs keep those of {WHICH}, unless they have "
            f"output: {{scores: false}}. {ADVICE}"
        )
    known = [(_facts_in(scores), scores) for scores in stored]
    matching = {number: [scores for then, scores in known if then == now] for number, now in wanted.items()}
    lines = []
    for number, now in wanted.items():
        name = recipe.stage_names[number]
        if matching[number]:
            rows = sum(_rows_of(scores) for scores in matching[number])
            lines.append(f"{name}: {counted(rows, 'score')} stored")
        else:
            lines.append(f"{name}: none, since {_difference([then for then, _ in known], now)}")
    found = {number: scores for number, scores in matching.items() if scores}
    if not found:
        raise InputError(f"--reuse {old}: nothing can be reused. {'; '.join(lines)}. {ADVICE}")
    for number, scores in found.items():
        _check_schemas(scores, schema_of(recipe.stages[number]))
    progress.log(f"reusing scores of {old}: {'; '.join(lines)}")
    return found


def _difference(known: list[dict[str, Any]], now: Mapping[str, Any]) -> str:
    """Return how the facts of the earlier run's most similar stage differ from `now`, those of the new run's stage."""
    same = [then for then in known if then.get("stage") == now["stage"]]
    if not same:
        return f"that run has no scores of {now['stage']}"
    changes = min((changed_keys(then, dict(now)) for then in same), key=len)
    return f"these differ: {', '.join(dict.fromkeys(change.split('[')[0] for change in changes))}"


def _facts_in(scores: StoredScores) -> dict[str, Any]:
    path = scores.files[0]
    metadata = open_scores(path).schema.metadata or {}
    with reading(path):
        return dict(orjson.loads(metadata.get(FACTS, b"{}")))


def _rows_of(scores: StoredScores) -> int:
    return sum(len(open_scores(path)) for path in scores.files)


def _check_schemas(found: list[StoredScores], schema: Any) -> None:
    for path in (path for scores in found for path in scores.files):
        if not open_scores(path).schema.equals(schema):
            raise damaged(path, f"it has other columns than {', '.join(schema.names)}")


def _stored_in(folder: Path) -> list[StoredScores]:
    """Return the scores of all stages of a run. Raises IntegrityError if a file is damaged."""
    report = read_report(folder)
    if report is None:
        return list(_in_work(folder / WORK))
    names = sorted(name for name in report["outputs"] if name.startswith(f"{FOLDER}/"))
    for name in each(names, "checking scores", "file"):
        if not (folder / name).is_file() or file_sha256(folder / name) != report["outputs"][name]:
            raise damaged(folder / name, f"it is missing, or its SHA-256 is not that of {REPORT}")
    stages: dict[str, list[Path]] = {}
    for name in names:
        stages.setdefault(os.path.dirname(name), []).append(folder / name)
    return [StoredScores(files, len(files).bit_length() - 1) for files in stages.values()]


def _in_work(work: Path) -> Iterator[StoredScores]:
    """Yield the scores of the finished slices of an unfinished run, by stage."""
    for segment in sorted(work.glob("segment-*")):
        stages: dict[str, list[Path]] = {}
        for folder in numbered_folders(segment):
            for record in sorted(folder.glob("[0-9]*.json")):
                for path in sorted(folder.glob(f"{record.stem}{suffix_of('*')}")):
                    stages.setdefault(path.name.removeprefix(record.stem), []).append(path)
        yield from map(StoredScores, stages.values())
