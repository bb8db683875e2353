# SPDX-License-Identifier: Apache-2.0
"""What is asked of every stage before a run reads anything."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from curation.errors import RecipeError, nearest
from curation.reading.inputs import entries_by_name, input_names
from curation.reading.urls import shown
from curation.recipe import Recipe
from curation.running.workdir import check_inputs
from curation.stages.base import added_columns
from curation.stages.own_code import files_of


def check_stages(recipe: Recipe, folder: Path | None = None) -> None:
    """RecipeError, InputError for a stage whose columns, files or settings do not fit the inputs, or whose files lie in
    the output folder."""
    _check_columns(recipe)
    names = input_names(recipe.input)
    for stage in recipe.stages:
        stage.check(names)
        files = files_of(stage)
        if folder is not None:
            check_inputs(folder, files)


def _check_columns(recipe: Recipe) -> None:
    """RecipeError for a column that a stage reads and that no input carries or stage before it writes."""
    for number, stage in enumerate(recipe.stages):
        written = added_columns(recipe.stages[:number])
        for column in stage.reads():
            for name, entry in entries_by_name(recipe.input).items():
                if column not in written and column not in entry.columns:
                    advice = _advice(column, number, [*entry.columns, *written], recipe)
                    raise RecipeError(
                        f"stage {recipe.stage_names[number]} reads the column {column!r}, which the input {name} "
                        f"({shown(entry.path)}) does not carry{advice}"
                    )


def _advice(column: str, number: int, known: Sequence[str], recipe: Recipe) -> str:
    """What to do about a column that is not there."""
    later = [stage.kind for stage in recipe.stages[number + 1 :] if column in stage.writes()]
    if later:
        return f". Put the stage {later[0]}, which writes it, before this one"
    near = nearest(column, known)
    return f"{near if near.startswith('; did') else ''}. Add columns: [{column}] to the input"


__all__ = ["check_stages"]
