# SPDX-License-Identifier: Apache-2.0
"""Draws a sample of the documents that reached each filter, with their measures, for the sliders of the page.

For a small run, the sample has all documents. For a larger run, positions are divided into MAX_ROWS equal ranges, and
the sample has one document of each range. So it does not depend on slices and workers. The documents whose texts the
report shows come first, in addition to the sample.
"""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from curation.base.measures import highest_ratio
from curation.recipes.recipe import Recipe
from curation.recipes.rule_settings import bound_paths
from curation.record.measured_rows import OTHERS, ReachedRows, WantedRows, drawn_positions, group_column, read_rows
from curation.rules.decide import Rule
from curation.rules.group_tallies import tallies_of_groups
from curation.rules.groups import GroupedRule, Groups, groups_in, of_all_documents, rules_of_group
from curation.stages import RowStage, Stage
from curation.stages.measured_rules import measured_rules, names_of, rules_of
from curation.stages.outcome import StageCount

MAX_ROWS = 10_000  # per filter: shares then differ by at most 1 percentage point from those of all documents
MAX_NUMBERS = 220_000  # for all filters together: at most 1.5 MB in the page, about 0.4 MB for real text
NO_GROUP = 255  # index of all groups that the report does not show


def sample_measures(
    recipe: Recipe,
    filters: Sequence[ReachedRows],
    counts: Sequence[StageCount],
    texts: Mapping[str, Any],
    offsets: np.ndarray,
) -> list[dict[str, Any]]:
    """Return the sample of each filter, as `measured` in `report.json`.

    filters  the rows of all filters
    counts   counts of all stages
    texts    `texts` of the report, whose documents are added
    offsets  int64: `doc` of the first document of each slice
    """
    numbers = sum(len(names_of(measured_rules(recipe.stages[reached.stage]))) for reached in filters)
    limit = min(MAX_ROWS, MAX_NUMBERS // max(numbers, 1))
    names, filters = recipe.stage_names, [reached for reached in filters if reached.counts.any()]
    stages = [reached.stage for reached in filters]
    shown = [_shown(texts, names[stage], offsets) for stage in stages]
    wanted = [
        WantedRows(reached, [*places.values()], drawn_positions(int(reached.counts.sum()), limit))
        for reached, places in zip(filters, shown, strict=True)
    ]
    return [
        _sampled(names[k], recipe.stages[k], counts[k], places, each, rows)
        for k, places, each, rows in zip(stages, shown, wanted, read_rows(wanted), strict=True)
    ]


def _shown(texts: Mapping[str, Any], stage: str, offsets: np.ndarray) -> dict[str, tuple[int, int]]:
    """Return name on the page -> (slice, row), for documents that a filter may have judged and whose texts the report
    shows."""
    named = [(f"k{place}", sample["doc"]) for place, sample in enumerate(texts["kept"])]
    for number, entry in enumerate(texts["removed"]):
        if entry["stage"] == stage:
            named += [(f"r{number}.{place}", sample["doc"]) for place, sample in enumerate(entry["samples"])]
    docs = np.array([doc for _, doc in named], np.int64)
    slices = np.searchsorted(offsets, docs, side="right") - 1
    rows = docs - offsets[slices]
    places = zip(slices.tolist(), rows.tolist(), strict=True)
    return {name: place for (name, _), place in zip(named, places, strict=True)}


def _sampled(
    name: str, stage: Stage, count: StageCount, shown: Iterable[str], wanted: WantedRows,
    read: tuple[np.ndarray, pa.Table],
) -> dict[str, Any]:  # fmt: skip
    found, table = read
    assert isinstance(stage, RowStage)
    every = rules_of(stage)
    rules = [rule for rule in every if rule.is_on_measures]
    names, columns = names_of(rules), groups_in(every)
    own = {column: table.column(column).to_numpy() for column in table.column_names}
    measures = {measure: own[measure].astype(np.int64) for measure in names}
    fixed = own[OTHERS].astype(bool)
    largest = _largest(every, count)
    places = []
    for number, groups in enumerate(columns):
        members = own[group_column(number)].astype(np.int64)
        place = np.full(len(members), NO_GROUP, np.int64)
        for index, group in enumerate(largest[groups]):
            place[members == group] = index
        grouped = [rule for rule in rules if isinstance(rule, GroupedRule) and rule.groups is groups]
        fixed |= (place == NO_GROUP) & _beyond(grouped, measures, members)
        places.append(place)
    return {
        "stage": name,
        "documents": int(wanted.reached.counts.sum()),
        "drawn": len(wanted.positions),
        "shown": [key for key, is_there in zip(shown, found.tolist(), strict=True) if is_there],
        "measures": names,
        "groups": [[groups.name(group) for group in largest[groups]] for groups in columns],
        "rules": [*_entries(name, stage, rules, names, largest)],
        "data": packed([*measures.values(), *places, fixed]),
    }


def _largest(rules: Sequence[Rule], count: StageCount) -> dict[Groups, list[int]]:
    """Return the groups that the report shows, for each column."""
    tallies = tallies_of_groups(rules)
    return {each.groups: each.largest(counts) for each, counts in zip(tallies, count.groups, strict=True)}


def _beyond(rules: Sequence[GroupedRule], measures: Mapping[str, np.ndarray], groups: np.ndarray) -> np.ndarray:
    """Return a bool per document: whether it breaks one of the rules, with the bounds of its group."""
    broken = np.zeros(len(groups), bool)
    for rule in rules:
        values, (low, high) = rule.values(measures), rule.bounds_of(groups)
        broken |= (values < low) | (values > high)
    return broken


def _entries(
    name: str, stage: RowStage, rules: Sequence[Rule], names: Sequence[str], largest: Mapping[Groups, Sequence[int]]
) -> Iterator[dict[str, Any]]:
    """Yield each rule for all documents, then the rules of each group that the report shows."""
    shared = of_all_documents(rules)
    for rule, path in zip(shared, bound_paths(name, stage, shared), strict=True):
        yield _entry(rule, names) | {"path": path}
    for column, (groups, shown) in enumerate(largest.items()):
        for place, group in enumerate(shown):
            own = rules_of_group(rules, groups, group)
            for rule, path in zip(own, bound_paths(name, stage, own, groups.value(group)), strict=True):
                yield _entry(rule, names) | {"path": path, "column": column, "group": place}


def _entry(rule: Rule, names: Sequence[str]) -> dict[str, Any]:
    low, high = rule.bounds
    highest = highest_ratio(*rule.ratio) if rule.ratio else math.inf
    sides = {"min": low, "max": high, "highest": highest}
    finite = {side: bound for side, bound in sides.items() if math.isfinite(bound)}
    return {"reason": rule.name, "measures": [names.index(measure) for measure in rule.measures], **finite}


def packed(columns: Sequence[np.ndarray]) -> str:
    """Return columns of integers (0 to 2**35 - 1), concatenated, as base64 of LEB128. A byte has 7 bits of a number,
    the lowest first, and one bit that says whether more bytes follow."""
    values = np.concatenate([np.zeros(0, np.int64), *columns])
    sizes = np.searchsorted(1 << 7 * np.arange(1, 5), values, side="right") + 1
    starts = np.cumsum(sizes) - sizes
    found = np.zeros(int(sizes.sum()), np.uint8)
    for number in range(5):
        at = np.flatnonzero(sizes > number)
        found[starts[at] + number] = values[at] >> 7 * number & 127 | (sizes[at] > number + 1) << 7
    return b64encode(found.tobytes()).decode()
