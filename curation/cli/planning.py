# SPDX-License-Identifier: Apache-2.0
"""What `plan` says of a recipe."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from curation.recipe import Recipe

SHOWN_JACCARD = 0.5  # where the S-curve begins


def chain_of(recipe: Recipe) -> list[tuple[str, list[str]]]:
    """The name of each stage, and what its settings mean, line by line."""
    return [(name, _explained(stage)) for name, stage in zip(recipe.stage_names, recipe.stages, strict=True)]


def _explained(stage: object) -> list[str]:
    """The rules behind a set's name, the files behind evaluation texts, the S-curve behind a threshold."""
    from curation.reading import shown
    from curation.stages import Decontaminate

    if isinstance(stage, Decontaminate):
        return [f"{stage.ngram}-grams of {shown(file.path)}" for file in stage.files]
    if hasattr(stage, "explain"):
        return list(stage.explain())
    from curation.stages.fuzzy_dedup import FuzzyDedup, s_curve

    if isinstance(stage, FuzzyDedup):
        curve = [(jaccard, found) for jaccard, found in s_curve(stage) if jaccard >= SHOWN_JACCARD]
        lines = [f"  Jaccard {jaccard:.2f}: {found:8.3%} of the pairs" for jaccard, found in curve]
        return ["{} bands of {} rows make candidates of".format(*stage.banding), *lines]
    return []
