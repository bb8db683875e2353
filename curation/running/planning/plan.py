# SPDX-License-Identifier: Apache-2.0
"""The plan of a run: checks before it starts, its identity, and the comparison with the run in the output folder."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from curation import __version__
from curation.base.errors import IntegrityError, RecipeError, near_or_nothing
from curation.base.measures import WORD_LENGTHS, close_measure, similar_measures
from curation.base.system.progress import Progress
from curation.reading.inputs import entries_by_name, input_names, is_hub
from curation.reading.paths import find_files
from curation.reading.slice_table import SliceTable
from curation.reading.source_files import RESERVED, Slice, SourceFile
from curation.reading.urls import shown
from curation.recipes.recipe import Recipe
from curation.record.folder import COLLECTED, WORK, check_inputs, check_names, delete_plan, has_work, plan_path
from curation.record.identity import (
    Identity,
    changes_between,
    check_computed_with,
    check_same,
    facts_of_files,
    facts_of_stages,
    identity_of,
)
from curation.record.stored_plan import (
    Plan,
    Stored,
    StoredPlan,
    as_plan,
    digest_of,
    keep_plan,
    read_stored_plan,
    store_plan,
)
from curation.stages.checks import check_arguments, check_columns, stage_errors
from curation.stages.own_code import check_class, files_of, stage_for_job
from curation.tokens.blends import check_folder
from curation.tokens.forms.writing import check_forms
from curation.tokens.token_spans import bytes_of_ids
from curation.tokens.tokenization import Tokenizer, load_tokenizer

LANGUAGE_COLUMNS = ("language", "language_probability")  # columns that a language stage writes by default
VECTOR_STAGES = ("semantic_dedup", "assign_clusters")  # they read the vectors that an embed stage writes


def find_tokenizer(recipe: Recipe, folder: Path) -> Tokenizer | None:
    """Return the tokenizer of a recipe; None if the recipe writes no tokens.

    Raises TokenizerError or OutputError if it does not fit the output formats or the folder. Without this check, a run
    would fail only after hours of work.
    """
    if not recipe.output.formats:
        return None
    tokenizer = load_tokenizer(recipe.tokenizer)
    check_forms(recipe.output, tokenizer)
    if "megatron" in recipe.output.formats:
        check_folder(folder)
    return tokenizer


def splitting_tokenizer(recipe: Recipe) -> Tokenizer | None:
    """Return the tokenizer that splits inputs; None if no input is split by tokens.

    Raises TokenizerError if the tokenizer cannot be loaded, and InputError if its tokens are not bytes of the text.
    """
    if not any(entry.parts and isinstance(entry.parts.tokens, int) for entry in recipe.input):
        return None
    tokenizer = load_tokenizer(recipe.tokenizer)
    bytes_of_ids(tokenizer)
    return tokenizer


class Preflight(NamedTuple):
    """Input files, tokenizer and identity of a run, known before it reads documents or writes."""

    files: list[SourceFile]
    tokenizer: Tokenizer | None
    identity: Identity


def preflight(recipe: Recipe, folder: Path) -> Preflight:
    """Check stages, inputs, names and the tokenizer before the run reads documents or writes.

    `folder` is the absolute path of the output. Raises the errors of `curation.base.errors`.
    """
    stage_files = check_stages(recipe)
    for paths in stage_files.values():
        check_inputs(folder, paths)
    files = find_files(recipe.input, folder)
    check_inputs(folder, [file.path for file in files] + [entry.path for entry in recipe.input if is_hub(entry.path)])
    check_names(recipe, folder)
    tokenizer = find_tokenizer(recipe, folder)
    known = tokenizer or splitting_tokenizer(recipe)
    return Preflight(files, tokenizer, identity_of(recipe, files, stage_files, known))


def make_plan(
    folder: Path, recipe: Recipe, identity: Identity, files: Sequence[SourceFile],
    local_files: Sequence[SourceFile],
    cut: Callable[[Sequence[SourceFile]], Iterable[Slice]],
) -> tuple[Plan, Stored]:  # fmt: skip
    """Return the plan of the unfinished run in `folder`, or a new plan; and the stored file of the plan.

    files        the inputs as the recipe names them
    local_files  the same files, but each streamed data set is replaced by the local files collected from it
    cut          the function that cuts `local_files` into slices

    Raises OutputError if the stored plan belongs to another run, and IntegrityError if it is damaged or names other
    files.
    """
    path = plan_path(folder)
    facts = facts_of_stages(recipe.stage_names, recipe.stages) | facts_of_files(files)
    content = read_stored_plan(path)
    if content is not None:
        check_same(folder, _identity_of(content), identity)
        check_computed_with(facts, content.computed_with, f"the run in {folder}")
        plan = as_plan(content, recipe, _read_now(folder, content, files))
    else:
        plan = Plan(
            version=__version__, recipe=recipe, files=identity.files, slices=SliceTable.of(cut(local_files)),
            stage_files=identity.stage_files, tokenizer=identity.tokenizer, stage_revisions=identity.stage_revisions,
            computed_with=facts,
        )  # fmt: skip
        store_plan(path, plan)
    stored = digest_of(path)
    keep_plan(stored, plan)
    return plan, stored


def discard_undone(folder: Path, identity: Identity, progress: Progress) -> None:
    """Delete the plan of another run in `folder` if that run has finished no task, for example because a stage had an
    error."""
    content = read_stored_plan(plan_path(folder))
    if content and changes_between(_identity_of(content), identity) and not has_work(folder):
        progress.log(f"replacing the plan in {folder}: its recipe or input has changed, and none of its tasks was done")
        delete_plan(folder)


def _identity_of(content: StoredPlan) -> Identity:
    return Identity(content.recipe, content.files, content.stage_files, content.tokenizer, content.stage_revisions)


def _read_now(folder: Path, content: StoredPlan, files: Sequence[SourceFile]) -> list[SourceFile]:
    """Return the files of a stored plan, with the paths of the recipe. Raises IntegrityError if the plan names other
    files.

    A plan does not store secrets of URLs, so the paths come from the recipe. Because of the check, another process that
    changes the plan cannot choose which files the run reads.
    """
    collected = folder / WORK / COLLECTED
    paths = [file.path for file in files if not is_hub(file.path)]
    own = [number for number, file in enumerate(content.read) if not file.label]
    made = [Path(os.path.normpath(file.copy or file.path)) for file in content.read if file.label or file.copy]
    foreign = [path for path in made if collected not in path.parents]
    if foreign or [content.read[number].path for number in own] != [shown(path) for path in paths]:
        raise IntegrityError(f"{plan_path(folder)} names files that are not inputs of the run. Start over with --force")
    real = dict(zip(own, paths, strict=True))
    return [
        msgspec.structs.replace(file, path=real[number]) if number in real else file
        for number, file in enumerate(content.read)
    ]


def check_stages(recipe: Recipe) -> dict[str, dict[str, str]]:
    """Return stage name -> path -> SHA-256 of the files that stages read, after checks of every stage.

    Raises RecipeError, InputError or StageError if the columns, files or settings of a stage do not fit the inputs.
    """
    for stage in {type(stage): stage for stage in reversed(recipe.stages)}.values():
        check_class(stage)
        check_arguments(stage)
    for stage in recipe.stages:
        check_columns(stage)
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
    """Raise RecipeError if a stage reads a column that an input lacks and no earlier stage writes."""
    earlier: dict[str, str] = {}
    carried = [(name, entry, {*entry.output_columns}) for name, entry in entries_by_name(recipe.input).items()]
    for number, stage in enumerate(recipe.stages):
        for column in stage.reads():
            for name, entry, own in carried if column not in earlier else ():
                if column not in own:
                    carry = f"columns: [{column}] to the input"
                    if isinstance(entry.columns, dict):
                        carry = f"{column}: {column} to the columns of the input"
                    advice = _advice(column, number, [*entry.columns, *earlier], recipe, carry)
                    raise RecipeError(
                        f"stage {recipe.stage_names[number]} reads the column {column!r}, which the input {name} "
                        f"({shown(entry.path)}) does not carry{advice}"
                    )
        earlier |= stage.writes()


def _advice(column: str, number: int, known: Sequence[str], recipe: Recipe, carry: str) -> str:
    """Return the advice about a missing column. `carry` is the setting that the user could add to the input."""
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
    if hasattr(recipe.stages[number], "rules") and (close := close_measure(column)):
        return f"{close} Or add {carry}"
    if column in LANGUAGE_COLUMNS:
        return f". Put a language stage before this one, or add {carry}"
    if recipe.stages[number].kind in VECTOR_STAGES:
        return f". Put an embed stage before this one, or add {carry}"
    return f". Add {carry}"
