# SPDX-License-Identifier: Apache-2.0
"""Computes what rules would remove, from the stored measures of a finished run."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curation.base.errors import OutputError, RecipeError, nearest, sentence
from curation.recipes.recipe import Recipe
from curation.record.measure_files import FOLDER
from curation.record.tables import TablePart, read_tables
from curation.results.finished.results import FinishedRun, open_finished
from curation.rules.decide import BLOCK_ROWS
from curation.rules.grammar import Rule
from curation.rules.groups import GroupedRule, Groups, groups_in
from curation.stages import RowStage
from curation.stages.measured_rules import measured_rules, names_of

MARGIN = 1e-9  # relative margin of a bound for rounding errors


class StageEffect(NamedTuple):
    """The documents that the rules of a filter would remove.

    name     name of the filter in the recipe
    of       name of the filter of the finished run whose measures were used
    reached  documents that reached the filter of the finished run
    reasons  reason -> documents that break this rule, whatever other rules they break
    first    reason -> documents for which this rule is the first that they break
    removed  documents that break at least one rule
    before   documents that the filter of the finished run removed
    seconds  time of the computation, without loading
    """

    name: str
    of: str
    reached: int
    reasons: dict[str, int]
    first: dict[str, int]
    removed: int
    before: int
    seconds: float


def plan_by_measures(recipe: Recipe, folder: str | Path) -> list[StageEffect]:
    """Return which documents of a finished run each filter of a recipe would remove, without reading text.

    The first filter of the recipe uses the measures of the run's first filter, and so on.

    Raises OutputError for a folder without a finished run that kept its measures; RecipeError for a recipe without a
    filter, with more filters than the run had, or with a rule on a measure that was not kept.
    """
    run = open_finished(folder)
    files = run.parts(FOLDER)
    if not files:
        raise OutputError(f"{folder} has no measures/. Run its recipe again with output: {{measures: true}}")
    filters = [
        (name, stage)
        for name, stage in zip(recipe.stage_names, recipe.stages, strict=True)
        if isinstance(stage, RowStage) and measured_rules(stage)
    ]
    measured = {entry["name"]: measured_rules(run.judging_stage(entry["name"])) for entry in run.report["stages"]}
    kept = {name: names_of(rules) for name, rules in measured.items() if rules}
    if not filters:
        raise RecipeError("the recipe has no filter with rules on measures; --measures has nothing to judge")
    if len(filters) > len(kept):
        raise RecipeError(
            f"the recipe has {len(filters)} filters, but the run in {folder} kept measures of {len(kept)}: "
            f"{', '.join(kept) or 'none'}"
        )
    return [_effect(run, files, *found, *of) for found, of in zip(filters, kept.items(), strict=False)]


def _effect(
    run: FinishedRun, files: Sequence[Path], name: str, stage: RowStage, of: str, kept: Sequence[str]
) -> StageEffect:
    rules = measured_rules(stage)
    measures, columns = load_measures(run, files, rules, of, kept)
    started = time.perf_counter()
    numbers = {groups: groups.numbers_of(columns) for groups in groups_in(rules)}
    beyond, first, removed = _count(rules, measures, numbers)
    return StageEffect(
        name=name,
        of=of,
        reached=len(next(iter(measures.values()))),
        reasons=beyond,
        first=first,
        removed=removed,
        before=sum(next(entry["reasons"] for entry in run.report["stages"] if entry["name"] == of).values()),
        seconds=time.perf_counter() - started,
    )


def _count(
    rules: Sequence[Rule], measures: Mapping[str, np.ndarray], groups: Mapping[Groups, np.ndarray]
) -> tuple[dict[str, int], dict[str, int], int]:
    """Return three counts of documents: those that break each rule, those that break this rule first, and those that
    break any rule. `groups` has the group of each document. Rows are processed in blocks that fit the CPU cache.
    """
    beyond, first = (dict.fromkeys((rule.name for rule in rules), 0) for _ in range(2))
    rows = len(next(iter(measures.values())))
    removed = 0
    for start in range(0, rows, BLOCK_ROWS):
        numbers = _Block(measures, groups, slice(start, start + BLOCK_ROWS))
        kept = np.ones(min(BLOCK_ROWS, rows - start), bool)
        for rule in rules:
            broken = _broken(rule, numbers)
            beyond[rule.name] += len(broken)
            first[rule.name] += int(np.count_nonzero(kept[broken]))
            kept[broken] = False
        removed += len(kept) - int(np.count_nonzero(kept))
    return beyond, first, removed


class _Block:
    """The measures (float64) and groups of a block of documents."""

    def __init__(self, measures: Mapping[str, np.ndarray], groups: Mapping[Groups, np.ndarray], block: slice) -> None:
        self.measures, self.groups, self.block = measures, groups, block
        self.denominators: dict[str, np.ndarray] = {}

    def value(self, name: str) -> np.ndarray:
        return self.measures[name][self.block]

    def denominator(self, name: str) -> np.ndarray:
        """Return a measure in which each value is at least 1."""
        if name not in self.denominators:
            self.denominators[name] = np.maximum(self.value(name), 1.0)
        return self.denominators[name]


def _broken(rule: Rule, numbers: _Block) -> np.ndarray:
    """Return the positions of the documents that break a rule, the same ones as by `Rule.judge`.

    A division takes as long as five multiplications. So a multiplication first finds the ratios that may be beyond a
    bound, with a margin for rounding, and only these are divided.
    """
    if isinstance(rule, GroupedRule):
        return _broken_in_group(rule, numbers)
    values, (low, high) = numbers.value(rule.measures[0]), rule.bounds
    if not rule.ratio:
        return np.flatnonzero((values < low) | (values > high))
    below = numbers.denominator(rule.ratio[1])
    near = np.zeros(0, bool)
    if high < math.inf:
        near = values > below * (high * (1 - MARGIN))
    if low > -math.inf:
        near = (values < below * (low * (1 + MARGIN))) | (near if len(near) else False)
    at = np.flatnonzero(near)
    ratio = values[at] / below[at]
    return at[(ratio < low) | (ratio > high)]


def _broken_in_group(rule: GroupedRule, numbers: _Block) -> np.ndarray:
    """Return the same as `_broken` for a rule whose bounds depend on the group."""
    groups = numbers.groups[rule.groups][numbers.block]
    values = numbers.value(rule.measures[0])
    if rule.ratio:
        values = values / numbers.denominator(rule.ratio[1])
    low, high = rule.bounds_of(groups)
    return np.flatnonzero((values < low) | (values > high))


def load_measures(
    run: FinishedRun, files: Sequence[Path], rules: Sequence[Rule], stage: str, kept: Sequence[str]
) -> tuple[dict[str, np.ndarray], dict[str, pa.ChunkedArray]]:
    """Return the measures that rules need for the documents that reached a filter (name -> float64), and the columns by
    which the rules distinguish groups. `kept` has the measures that the run's own rules used in this filter."""
    names, groups = names_of(rules), list(dict.fromkeys(each.column for each in groups_in(rules)))
    stored = TablePart(files[0]).schema.names
    computed = [name for name in kept if name in stored]
    for rule in rules:
        for name in rule.measures:
            if name not in computed:
                raise RecipeError(
                    f"rule {rule.name} needs the measure {name!r}, which stage {stage} of the run in {run.folder} did "
                    f"not keep{sentence(nearest(name, computed))} Keep it: add a rule on it to that recipe"
                )
    for column in groups:
        if column not in stored:
            raise RecipeError(
                f"rules per {column} need the column {column}, which the run in {run.folder} did not keep. Run "
                f"its recipe again with rules per {column} and a new --output"
            )
    columns = {name: [np.zeros(0)] for name in names}
    chunks: dict[str, list[pa.Array]] = {column: [] for column in groups}
    types = dict.fromkeys(groups, pa.string()) | dict.fromkeys(names, pa.int64())
    for table in read_tables(files, list(dict.fromkeys(["stage", *groups, *names])), types):
        if len(run.report["stages"]) > 1:
            table = table.filter(pc.equal(table.column("stage"), stage))
        for name in names:
            columns[name].append(table.column(name).to_numpy().astype(np.float64, copy=False))
        for column in groups:
            chunks[column] += table.column(column).chunks
    measures = {name: np.concatenate(parts) for name, parts in columns.items()}
    return measures, {column: pa.chunked_array(parts, pa.string()) for column, parts in chunks.items()}
