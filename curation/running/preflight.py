# SPDX-License-Identifier: Apache-2.0
"""What is asked of every stage before a run reads anything."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from curation.errors import RecipeError, nearest
from curation.reading.inputs import entries_by_name
from curation.reading.source_files import SourceFile
from curation.reading.urls import shown
from curation.recipe import Recipe
from curation.running.workdir import check_inputs
from curation.stages import Stage
from curation.stages.base import added_columns
from curation.stages.own_code import files_of


def check_stages(recipe: Recipe, files: Sequence[SourceFile], folder: Path) -> None:
    """RecipeError, InputError for a stage whose columns, files or settings do not fit the inputs or the folder."""
    check_columns(recipe, files)
    names = list(dict.fromkeys(file.source for file in files))
    for stage in recipe.stages:
        stage.check(names)
        check_inputs(folder, files_of(stage))


def check_columns(recipe: Recipe, files: Sequence[SourceFile]) -> None:
    """RecipeError for a column that a stage reads and that no input carries or stage before it writes."""
    entries = entries_by_name(recipe.input)
    for number, stage in enumerate(recipe.stages):
        written = added_columns(recipe.stages[:number])
        for column in stage.reads():
            for name, entry in entries.items():
                if column not in written and column not in entry.columns:
                    path = next((file.path for file in files if file.source == name), entry.path)
                    raise RecipeError(
                        f"stage {recipe.stage_names[number]} reads the column {column!r}, which {shown(path)} is read "
                        f"without{_advice(column, name, stage, recipe, number)}"
                    )


def _advice(column: str, source: str, stage: Stage, recipe: Recipe, number: int) -> str:
    later = [later.kind for later in recipe.stages[number + 1 :] if column in later.writes()]
    if later:
        return f"; put the stage {later[0]}, which writes it, before {stage.kind}"
    known = [*recipe.input[0].columns, *added_columns(recipe.stages[:number])]
    near = nearest(column, known)
    hint = near if near.startswith("; did") else ""
    return f"{hint}. Add columns: [{column}] to the input {source}, or leave the rule or stage out"


__all__ = ["check_columns", "check_stages"]
