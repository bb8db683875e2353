# SPDX-License-Identifier: Apache-2.0
"""Checks of a recipe with the stage `mix`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from curation.reading.urls import shown
from curation.stages import Mix

if TYPE_CHECKING:
    from curation.recipes.recipe import Recipe


def check_mix(recipe: Recipe) -> None:
    """Raise ValueError for a `mix` that does not fit the other parts of a recipe."""
    numbers = [number for number, stage in enumerate(recipe.stages) if isinstance(stage, Mix)]
    if not numbers:
        return
    name, last, mix = recipe.stage_names[numbers[0]], recipe.stage_names[-1], recipe.stages[-1]
    if numbers[0] != len(recipe.stages) - 1 or not isinstance(mix, Mix):
        raise ValueError(f"mix must be the last stage, but {last} comes after {name}. Move {name} to the end")
    for entry in recipe.input:
        if entry.copies > 1:
            raise ValueError(
                f"copies of {shown(entry.path)} and mix both repeat documents. Leave copies out, and raise its weight"
            )
    counted, packed = (mix.tokenizer, mix.append_eod), (recipe.tokenizer.name, recipe.tokenizer.append_eod)
    if mix.tokens and recipe.output.formats and (counted != packed or recipe.tokenizer.prepend_bos):
        raise ValueError(
            f"mix counts tokens of {counted[0]} (append_eod: {str(counted[1]).lower()}), but the recipe packs "
            f"{packed[0]} (append_eod: {str(packed[1]).lower()}, prepend_bos: "
            f"{str(recipe.tokenizer.prepend_bos).lower()}). Set the same in both, without prepend_bos"
        )


__all__ = ["check_mix"]
