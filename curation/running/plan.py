# SPDX-License-Identifier: Apache-2.0
"""The plan of a run: checks before it starts, its identity, and the comparison with the run in the output folder."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import orjson

from curation import __version__
from curation.errors import IntegrityError, OutputError, RecipeError, near_or_nothing
from curation.measures import WORD_LENGTHS, similar_measures
from curation.packing.blends import check_folder
from curation.packing.forms.writing import check_forms
from curation.packing.tokenization import Tokenizer, load_tokenizer
from curation.reading.inputs import RESERVED, entries_by_name, input_names, is_hub
from curation.reading.paths import find_files
from curation.reading.slice_table import SliceTable
from curation.reading.source_files import Slice, SourceFile
from curation.reading.urls import shown
from curation.recipes.recipe import Recipe, as_builtins, changed_keys
from curation.running.context import WORK
from curation.running.run_folder import check_inputs, check_names, plan_path
from curation.running.stored_plan import (
    Plan,
    Stored,
    StoredPlan,
    as_plan,
    digest_of,
    keep_plan,
    read_stored_plan,
    store_plan,
)
from curation.running.stream_inputs import FOLDER as COLLECTED
from curation.stages import Stage
from curation.stages.base import added_columns
from curation.stages.checks import check_announced, stage_errors
from curation.stages.own_code import check_class, files_of, stage_for_job

FACTS_OF_FILES = {"bytes": "size", "modified_ns": "modified time"}
MAX_SHOWN_CHANGES = 10
LANGUAGE_COLUMNS = ("language", "language_probability")  # of a language stage with its default column
VECTOR_STAGES = ("semantic_dedup", "assign_clusters")  # read what an embed stage writes


def find_tokenizer(recipe: Recipe, folder: Path) -> Tokenizer | None:
    """Return the tokenizer of a recipe; None if the recipe writes no tokens.

    TokenizerError or OutputError if it does not fit the output formats or the folder, an error that a run would meet
    only after hours of work.
    """
    if not recipe.output.formats:
        return None
    tokenizer = load_tokenizer(recipe.tokenizer)
    check_forms(recipe.output, tokenizer)
    if "megatron" in recipe.output.formats:
        check_folder(folder)
    return tokenizer


class Preflight(NamedTuple):
    """Input files, tokenizer and identity of a run, known before it reads documents or writes."""

    files: list[SourceFile]
    tokenizer: Tokenizer | None
    identity: Identity


def preflight(recipe: Recipe, folder: Path) -> Preflight:
    """Check stages, inputs, names and the tokenizer before the run reads documents or writes.

    `folder` is the absolute path of the output. Raises the errors of `curation.errors`.
    """
    stage_files = check_stages(recipe)
    for paths in stage_files.values():
        check_inputs(folder, paths)
    files = find_files(recipe.input, folder)
    check_inputs(folder, [file.path for file in files] + [entry.path for entry in recipe.input if is_hub(entry.path)])
    check_names(recipe, folder)
    tokenizer = find_tokenizer(recipe, folder)
    return Preflight(files, tokenizer, identity_of(recipe, files, stage_files, tokenizer))


class Identity(NamedTuple):
    """The facts that a rerun must share with the plan or the report in its folder."""

    recipe: dict[str, Any]
    files: list[SourceFile]
    stage_files: dict[str, dict[str, str]]  # stage -> path -> SHA-256
    tokenizer: dict[str, Any]
    stage_revisions: dict[str, int]  # stage -> revision above 1

    @property
    def digest(self) -> str:
        """The SHA-256 of the identity and of this version."""
        facts = [__version__, *map(msgspec.to_builtins, self)]
        return hashlib.sha256(orjson.dumps(facts, option=orjson.OPT_SORT_KEYS)).hexdigest()


def revisions_of(recipe: Recipe) -> dict[str, int]:
    """Return the revisions above 1 of the stages of a recipe, by name."""
    stages = zip(recipe.stage_names, recipe.stages, strict=True)
    return {name: stage.revision for name, stage in stages if stage.revision > 1}


def identity_of(
    recipe: Recipe, files: Sequence[SourceFile], stage_files: dict[str, dict[str, str]], tokenizer: Tokenizer | None
) -> Identity:
    """Return the identity of a run. Its files are without passwords and signed queries."""
    shown_files = [file.without_secrets() for file in files]
    known = tokenizer.identity if tokenizer else {}
    return Identity(as_builtins(recipe), shown_files, stage_files, known, revisions_of(recipe))


def identity_in(folder: Path | str, report: dict[str, Any]) -> Identity:
    """Return the identity of the run in a report. OutputError for a report of an earlier version."""
    if "stage_files" not in report:
        version = report.get("versions", {}).get("gpu-pipeline", "an earlier version")
        raise OutputError(
            f"{folder} was finished by version {version}, this is {__version__}; give a new --output, or --force"
        )
    files = msgspec.convert(report["files"], list[SourceFile])
    revisions = report.get("stage_revisions", {})
    return Identity(report["recipe"], files, report["stage_files"], report.get("tokenizer", {}), revisions)


def check_same(
    folder: Path | str, before: Identity, now: Identity, advice: str = "Give a new --output, or --force"
) -> None:
    """Raise OutputError, naming the changes, if the identity in a folder or prefix is not the identity of this run."""
    files = _without_new_facts(before.files, now.files)
    changes = changed_keys(before.recipe, now.recipe) + _changed_files(before.files, files)
    changes += changed_stage_files(before.stage_files, now.stage_files)
    changes += changed_keys(before.tokenizer, now.tokenizer, "tokenizer")
    if not any(change.split("[")[0] == "stages" for change in changes):  # otherwise other stages have other revisions
        changes += changed_keys(before.stage_revisions, now.stage_revisions, "stage_revisions")
    if changes:
        shown_changes = ", ".join(changes[:MAX_SHOWN_CHANGES]) + (", ..." if len(changes) > MAX_SHOWN_CHANGES else "")
        raise OutputError(f"{folder} belongs to another recipe or input; changed: {shown_changes}. {advice}")


def changed_stage_files(before: Mapping[str, Mapping[str, str]], now: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Return one phrase per file that differs between two `stage_files`."""
    return [
        f"{path} of stage {name} ({'content' if path in old and path in new else 'gone' if path in old else 'new'})"
        for name in dict.fromkeys([*before, *now])
        for old, new in [(before.get(name, {}), now.get(name, {}))]
        for path in dict.fromkeys([*old, *new])
        if old.get(path) != new.get(path)
    ]


def check_stage_files(names: Sequence[str], stages: Sequence[Stage], planned: Mapping[str, Mapping[str, str]]) -> None:
    """Raise IntegrityError if a file that these stages read has changed since the plan.

    Prepared stages may read fewer files than planned, and files that they wrote; the latter are not compared.
    """
    known = {name: planned.get(name, {}) for name in names}
    now = {
        name: {path: digest for path, digest in files_of(stage).items() if path in known[name]}
        for name, stage in zip(names, stages, strict=True)
    }
    before = {name: {path: known[name][path] for path in files} for name, files in now.items()}
    if changes := changed_stage_files(before, now):
        raise IntegrityError(f"changed during the run: {', '.join(changes)}. Put it back, then run again")


def _facts_of(names: Sequence[str], stages: Sequence[Stage]) -> dict[str, dict[str, str]]:
    """Return stage -> `computed_with()` of the stages whose results depend on the machine."""
    found = {}
    for name, stage in zip(names, stages, strict=True):
        with stage_errors(stage):
            if facts := stage.computed_with():
                found[name] = facts
    return found


def check_computed_with(
    names: Sequence[str], stages: Sequence[Stage], planned: Mapping[str, Mapping[str, str]], run: str
) -> None:
    """Raise OutputError if a stage would compute floats otherwise than where the run began: scores of two devices do
    not mix. `run` names the run in the message."""
    for name, facts in _facts_of(names, stages).items():
        before = planned.get(name, {})
        if changes := [key for key in {**before, **facts} if before.get(key) != facts.get(key)]:
            then, now = (", ".join(f"{key} {known.get(key, 'none')}" for key in changes) for known in (before, facts))
            raise OutputError(
                f"{run} began to compute the stage {name} with {then}; here it would be {now}. Results of both do not "
                "mix: resume where the run began, or give a new --output, or --force"
            )


def _without_new_facts(before: Sequence[SourceFile], now: Sequence[SourceFile]) -> list[SourceFile]:
    """The files now, without versions of URLs (ETag, date) that were unknown before."""
    known = {file.path: file.version for file in before}
    return [msgspec.structs.replace(file, version="") if not known.get(file.path, "?") else file for file in now]


def _changed_files(before: Sequence[SourceFile], now: Sequence[SourceFile]) -> list[str]:
    if before == now:
        return []
    old, new = ({file.path: file for file in files} for files in (before, now))
    changes = [
        f"file {path} ({_change_of(old.get(path), new.get(path))})"
        for path in sorted({*old, *new})
        if old.get(path) != new.get(path)
    ]
    return changes or ["the number or the order of the files"]


def _change_of(before: SourceFile | None, now: SourceFile | None) -> str:
    if before is None or now is None:
        return "gone" if before else "new"
    keys = [key for key in SourceFile.__struct_fields__ if getattr(before, key) != getattr(now, key)]
    return ", ".join(FACTS_OF_FILES.get(key, key) for key in keys)


def make_plan(
    folder: Path, recipe: Recipe, identity: Identity, files: Sequence[SourceFile],
    local_files: Sequence[SourceFile],
    cut: Callable[[Sequence[SourceFile]], Iterable[Slice]],
) -> tuple[Plan, Stored]:  # fmt: skip
    """Return the plan of the unfinished run in `folder`, or a new plan, and the plan's file.

    files        the inputs as the recipe names them
    local_files  the same, with each streamed data set replaced by the local files collected from it
    cut          the function that cuts `local_files` into slices

    OutputError if the stored plan belongs to another run, IntegrityError if it is damaged or names other files.
    """
    path = plan_path(folder)
    content = read_stored_plan(path)
    if content is not None:
        compared = Identity(
            content.recipe, content.files, content.stage_files, content.tokenizer, content.stage_revisions
        )
        check_same(folder, compared, identity)
        check_computed_with(recipe.stage_names, recipe.stages, content.computed_with, f"the run in {folder}")
        plan = as_plan(content, recipe, _read_now(folder, content, files))
    else:
        plan = Plan(
            version=__version__, recipe=recipe, files=identity.files, slices=SliceTable.of(cut(local_files)),
            stage_files=identity.stage_files, tokenizer=identity.tokenizer, stage_revisions=identity.stage_revisions,
            computed_with=_facts_of(recipe.stage_names, recipe.stages),
        )  # fmt: skip
        store_plan(path, plan)
    stored = digest_of(path)
    keep_plan(stored, plan)
    return plan, stored


def _read_now(folder: Path, content: StoredPlan, files: Sequence[SourceFile]) -> list[SourceFile]:
    """The files of a stored plan, with the paths of the recipe. IntegrityError if the plan names other files.

    A plan holds no secrets of URLs, so the recipe supplies them. A process that can write to the folder must not
    choose which files the run reads.
    """
    collected = folder / WORK / COLLECTED
    paths = [file.path for file in files if not is_hub(file.path)]
    own = [number for number, file in enumerate(content.read) if not file.label]
    foreign = [file.path for file in content.read if file.label and collected not in Path(file.path).parents]
    if foreign or [content.read[number].path for number in own] != [shown(path) for path in paths]:
        raise IntegrityError(f"{plan_path(folder)} names files that are not inputs of the run. Start over with --force")
    real = dict(zip(own, paths, strict=True))
    return [
        msgspec.structs.replace(file, path=real[number]) if number in real else file
        for number, file in enumerate(content.read)
    ]


def check_stages(recipe: Recipe) -> dict[str, dict[str, str]]:
    """Return stage name -> path -> SHA-256 of the files that stages read, after checks of every stage.

    RecipeError, InputError or StageError for a stage whose columns, files or settings do not fit the inputs.
    """
    for stage in recipe.stages:
        check_class(stage)
        check_announced(stage)
    _check_columns(recipe)
    inputs, stage_files = input_names(recipe.input), {}
    for number, (name, stage) in enumerate(zip(recipe.stage_names, recipe.stages, strict=True)):
        stage_for_job(stage)
        with stage_errors(stage):
            stage.check(inputs)
            stage.check_order(recipe.stages[:number])
        if files := files_of(stage):
            stage_files[name] = files
    return stage_files


def _check_columns(recipe: Recipe) -> None:
    """RecipeError if a stage reads a column that an input lacks and no earlier stage writes."""
    for number, stage in enumerate(recipe.stages):
        earlier = added_columns(recipe.stages[:number])
        for column in stage.reads():
            for name, entry in entries_by_name(recipe.input).items():
                if column not in earlier and column not in entry.columns:
                    carry = f"columns: [{column}] to the input"
                    if isinstance(entry.columns, dict):
                        carry = f"{column}: {column} to the columns of the input"
                    advice = _advice(column, number, [*entry.columns, *earlier], recipe, carry)
                    raise RecipeError(
                        f"stage {recipe.stage_names[number]} reads the column {column!r}, which the input {name} "
                        f"({shown(entry.path)}) does not carry{advice}"
                    )


def _advice(column: str, number: int, known: Sequence[str], recipe: Recipe, carry: str) -> str:
    """The remedy for a missing column. `carry` is what to add to the input."""
    later = [stage.kind for stage in recipe.stages[number + 1 :] if column in stage.writes()]
    if later:
        return f". Put the stage {later[0]}, which writes it, before this one"
    if column in RESERVED:
        return (
            f". The outputs have their own {column}. Add columns: {{input_{column}: {column}}}, and name input_{column}"
        )
    if close := near_or_nothing(column, known):
        return f"{close} Or add {carry}"
    if measures := similar_measures(column):
        return f"; did you mean the measure {measures[0]}? Or add {carry}"
    if WORD_LENGTHS.fullmatch(column):
        return f"; did you mean the ratio word_characters/words? Or add {carry}"
    if column in LANGUAGE_COLUMNS:
        return f". Put a language stage before this one, or add {carry}"
    if recipe.stages[number].kind in VECTOR_STAGES:
        return f". Put an embed stage before this one, or add {carry}"
    return f". Add {carry}"
