# SPDX-License-Identifier: Apache-2.0
"""Warnings about stages that treat the parts of a document as if they were documents of their own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from curation.reading.inputs import entries_by_name
from curation.stages import ExactDedup

if TYPE_CHECKING:
    from curation.recipes.recipe import Recipe


def shared_keys(recipe: Recipe) -> Iterator[str]:
    """Yield a warning for each stage and split input if all parts of a document have the same key."""
    for stage_name, stage in zip(recipe.stage_names, recipe.stages, strict=True):
        columns = stage.key_columns if isinstance(stage, ExactDedup) else []
        for name, entry in entries_by_name(recipe.input).items():
            if columns and entry.parts and {*columns} <= {*entry.carried}:
                yield (
                    f"{stage_name}: the parts of a document of input {name!r} have the same {' and '.join(columns)}, "
                    f"so at most one of them is kept. To compare parts, write column: [{', '.join(columns)}, text]"
                )
