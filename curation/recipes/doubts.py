# SPDX-License-Identifier: Apache-2.0
"""Warnings about recipes that are valid but may not do what the user meant."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from curation.reading.inputs import entries_by_name
from curation.reading.urls import shown
from curation.recipes.exports import REMOVED_COLUMNS
from curation.stages import CorpusStage, ExactDedup, Filter, Language, MeasureStage, Stage
from curation.stages.base import ScoringStage, StageSample, noted_columns
from curation.stages.corpus.links import CHAIN_STAGE, VECTOR_STAGE
from curation.stages.invoke import forecast, saves_index

if TYPE_CHECKING:
    from curation.recipes.recipe import Recipe


def recipe_warnings(recipe: Recipe) -> list[str]:
    """Return the warnings about a recipe, for its plan and the report of its run."""
    unsaved = _unsaved_indexes(recipe) if recipe.output.index else []
    left_out = _left_out(recipe) if recipe.output.keeps_removed_text else []
    return [*_shared_keys(recipe), *unsaved, *left_out, *_orders(recipe)]


def _shared_keys(recipe: Recipe) -> Iterator[str]:
    """Yield a warning for each stage and split input if all parts of a document have the same key."""
    for stage_name, stage in zip(recipe.stage_names, recipe.stages, strict=True):
        columns = stage.key_columns if isinstance(stage, ExactDedup) else []
        for name, entry in entries_by_name(recipe.input).items():
            if columns and entry.parts and {*columns} <= {*entry.carried}:
                yield (
                    f"{stage_name}: the parts of a document of input {name!r} have the same {' and '.join(columns)}, "
                    f"so at most one of them is kept. To compare parts, write column: [{', '.join(columns)}, text]"
                )


def _left_out(recipe: Recipe) -> Iterator[str]:
    """Yield a warning for each carried column whose name `removed/` uses for another column."""
    own = {*REMOVED_COLUMNS, *noted_columns(recipe.stages)}
    for entry in recipe.input:
        for name, field in entry.carried.items():
            if name in own:
                yield (
                    f"columns of {shown(entry.path)} has {name!r}, which removed/ leaves out: it has its own column of "
                    f"that name. To have both, write columns: {{input_{name}: {field}}}"
                )


def _unsaved_indexes(recipe: Recipe) -> Iterator[str]:
    """Yield a warning for each kind of stage that occurs several times, since only the last one saves an index."""
    of_kind: dict[str, list[str]] = {}
    for name, stage in zip(recipe.stage_names, recipe.stages, strict=True):
        if saves_index(stage):
            of_kind.setdefault(stage.kind, []).append(name)
    for kind, names in of_kind.items():
        *others, last = names
        if others:
            yield f"output.index: the last {kind} ({last}) saves its index, and {', '.join(others)} saves none"


def _orders(recipe: Recipe) -> Iterator[str]:
    """Yield the warnings of corpus stages about the stages after them."""
    for number, stage in enumerate(recipe.stages, 1):
        if isinstance(stage, CorpusStage):
            yield from forecast(stage, StageSample(later=recipe.stages[number:])).warnings


def order_advice(recipe: Recipe) -> list[str]:
    """Return advice for the plan of a recipe: filters to put before a stage that compares documents, so that the stage
    compares fewer documents."""
    names = dict(zip(recipe.stage_names, recipe.stages, strict=True))
    for number, (name, stage) in enumerate(names.items(), 1):
        if stage.kind in (CHAIN_STAGE, VECTOR_STAGE):
            later = [*names.items()][number:]
            if filters := _movable({*stage.writes()}, later):
                them = " and ".join(filters)
                return [
                    f"{name} compares documents that {them} may remove later. Put {them} before {name}: the run "
                    "compares fewer documents, and needs less disk space"
                ]
    return []


def _movable(made: set[str], later: Sequence[tuple[str, Stage]]) -> list[str]:
    """Return the filters among the `later` stages that can also run before the stage that compares documents. There
    they judge the same texts and columns. Return [] if these filters remove nothing. `made`: columns that this stage
    writes."""
    filters: dict[str, bool] = {}
    for name, stage in later:
        if isinstance(stage, Filter | Language):
            if not made & {*stage.reads()}:
                filters[name] = isinstance(stage, Filter) or bool(stage.keep)
        elif isinstance(stage, MeasureStage | ScoringStage) or _removes_duplicates(stage):
            made |= {*stage.writes()}
        else:  # it may edit texts, or keep a share of the documents
            break
    return [*filters] if any(filters.values()) else []


def _removes_duplicates(stage: Stage) -> bool:
    return isinstance(stage, CorpusStage) and stage.finds_duplicates and not stage.cuts_text
