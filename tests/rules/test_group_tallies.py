# SPDX-License-Identifier: Apache-2.0
"""Counts of documents by group and value."""

from collections import Counter
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from curation.base.errors import RecipeError
from curation.recipes.recipe import convert_recipe
from curation.rules.decide import Rule, decide, expand_rules
from curation.rules.effects import group_effects, rule_effects
from curation.rules.group_tallies import SHOWN_GROUPS, GroupCounts, tallies_of_groups
from curation.rules.tallies import Tallies, as_report
from curation.stages import Filter

PLAIN = [{"measure": "words", "max": 90}, {"ratio": ["symbols", "words"], "max": 0.5}]
RULES = [
    *PLAIN,
    {"per": "language", "rules": {
        "deu_Latn": [{"measure": "words", "min": 30}, {"ratio": ["newlines", "words"], "max": 0.15, "reason": "lines"}],
        "nld_Latn": "deu_Latn",
        "fra_Latn": [{"measure": "words", "min": 60}, {"column": "kind", "in": ["a"]}],
        "rus_Cyrl": "keep",
        "other": "remove",
    }},
]  # fmt: skip
LANGUAGES = ["deu_Latn", "nld_Latn", "fra_Latn", "rus_Cyrl", "eng_Latn", None]
NAMES = {"deu_Latn, nld_Latn": [0, 1], "fra_Latn": [2], "rus_Cyrl": [3], "other": [4, 5]}
GERMAN = [{"measure": "words", "min": 30}, {"ratio": ["newlines", "words"], "max": 0.15, "reason": "lines"}]
OWN = {"deu_Latn, nld_Latn": GERMAN, "fra_Latn": [{"measure": "words", "min": 60}], "rus_Cyrl": [], "other": []}
ROWS = 3_000


def rules_of(content: Any) -> tuple[Rule, ...]:
    stage = convert_recipe({"stages": [{"kind": "filter", "rules": content}]}).stages[0]
    assert isinstance(stage, Filter)
    return expand_rules(stage.rules)


@pytest.fixture(scope="module")
def documents() -> tuple[np.ndarray, dict[str, np.ndarray], dict[str, pa.ChunkedArray]]:
    """The place of each document in LANGUAGES, measures and columns."""
    chance = np.random.default_rng(0)
    place = chance.integers(0, len(LANGUAGES), ROWS)
    highest = {"words": 110, "symbols": 9, "newlines": 9}
    measures = {name: chance.integers(0, high, ROWS) for name, high in highest.items()}
    language = pa.chunked_array([pa.array(LANGUAGES, pa.large_string()).take(pa.array(place))])
    kind = pa.chunked_array([pa.array(chance.choice(["a", "b"], ROWS), pa.large_string())])
    return place, measures, {"language": language, "kind": kind}


def counts_of(documents: Any, rules: tuple[Rule, ...], frames: int) -> GroupCounts:
    """The counts of documents in so many frames, each a slice of its own."""
    _, measures, columns = documents
    total = GroupCounts()
    for rows in np.array_split(np.arange(ROWS), frames):
        own = {name: values[rows] for name, values in measures.items()}
        cut = {name: values.take(pa.array(rows)) for name, values in columns.items()}
        (tallies,) = tallies_of_groups(rules)
        reason = decide(rules, own, len(rows), cut).reason
        half = len(rows) // 2
        for part in (slice(0, half), slice(half, None)):
            numbers = tallies.groups.numbers_of(cut)
            tallies.add(numbers[part], {name: values[part] for name, values in own.items()}, reason[part])
        total.add(msgspec.json.decode(msgspec.json.encode(tallies.result()), type=GroupCounts))
    return total


@pytest.mark.parametrize("frames", [1, 7])
def test_a_group_has_the_counts_of_its_documents_alone(documents: Any, frames: int):
    place, measures, columns = documents
    rules = rules_of(RULES)
    verdict = decide(rules, measures, ROWS, columns)
    report = tallies_of_groups(rules)[0].as_report(counts_of(documents, rules, frames))
    assert report["column"] == "language"
    found = {entry["group"]: entry for entry in report["groups"]}
    assert {*found} == {*NAMES}
    assert [entry["documents"] for entry in report["groups"]] == sorted(
        (int(np.isin(place, own).sum()) for own in NAMES.values()), reverse=True
    )
    for name, own in NAMES.items():
        rows = np.flatnonzero(np.isin(place, own))
        reasons = Counter(verdict.reasons[number] for number in verdict.reason[rows].tolist() if number >= 0)
        alone = rules_of([*PLAIN, *OWN[name]])
        tallies = Tallies(alone)
        tallies.add({measure: values[rows] for measure, values in measures.items()})
        assert found[name]["documents"] == len(rows)
        assert found[name]["reasons"] == reasons
        assert found[name]["rules"] == [as_report(*pair) for pair in zip(alone, tallies.result(), strict=True)]
    assert found["other"]["reasons"]["other_language"] > 0


def test_all_groups_have_counts_and_the_largest_ones_have_values():
    names = [f"v{number}" for number in range(40)]
    rules = rules_of([{"per": "source", "rules": {name: {"words": {"min": k + 1}} for k, name in enumerate(names)}}])
    (tallies,) = tallies_of_groups(rules)
    numbers = np.repeat(np.arange(40), np.arange(40) + 1)  # v0 once, v39 40 times
    reason = np.where(numbers % 2, 0, -1)
    tallies.add(numbers, {"words": np.full(len(numbers), 37)}, reason)
    entries = tallies.as_report(tallies.result())["groups"]
    assert [entry["group"] for entry in entries] == names[::-1]
    assert [entry["documents"] for entry in entries] == [*range(40, 0, -1)]
    assert [entry["reasons"] for entry in entries[:2]] == [{"words": 40}, {}]
    assert ["rules" in entry for entry in entries] == [True] * SHOWN_GROUPS + [False] * (40 - SHOWN_GROUPS)
    assert [(entry["rules"][0]["min"], entry["rules"][0]["below"]) for entry in entries[:4]] == [
        (40, 40), (39, 39), (38, 38), (37, 0),
    ]  # fmt: skip


def test_the_memory_is_that_of_bins_with_documents():
    rules = rules_of([{"set": "fineweb2", "other": "keep"}])
    (tallies,) = tallies_of_groups(rules)
    names = {name for rule in rules for name in rule.measures}
    for _ in range(3):
        tallies.add(np.arange(1_929), {name: np.ones(1_929, np.int64) for name in names}, np.full(1_929, -1))
    bins, largest = 1 + len(tallies.measured), 2 * len(tallies.measured)
    assert 1_929 < len(tallies.codes) <= 1_929 * (bins + largest)


def test_effects_of_a_group_are_those_of_its_documents_alone(documents: Any):
    place, measures, columns = documents
    found = group_effects(rules_of(RULES), measures, lambda name: columns[name])
    assert {group.group for group in found} == {*NAMES}
    for group in found:
        rows = np.flatnonzero(np.isin(place, NAMES[group.group]))
        alone = rules_of([*PLAIN, *OWN[group.group]])
        expected = rule_effects(alone, {name: values[rows] for name, values in measures.items()}, len(rows))
        assert group.effects is not None and group.documents == len(rows)
        assert group.effects.removed == expected.removed and len(group.effects.effects) == len(expected.effects)
        for one, other in zip(group.effects.effects, expected.effects, strict=True):
            assert one.rule.name == other.rule.name and one[1:6] == other[1:6]
            assert one.histogram.counts.tolist() == other.histogram.counts.tolist()


def test_effects_need_rules_for_each_value(documents: Any):
    _, measures, columns = documents
    rules = rules_of([{"per": "language", "rules": {"deu_Latn": {"words": {"min": 3}}}}])
    with pytest.raises(RecipeError, match="have a value without rules"):
        group_effects(rules, measures, lambda name: columns[name])
