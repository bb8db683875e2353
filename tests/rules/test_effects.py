# SPDX-License-Identifier: Apache-2.0
"""Effects of rules on measures, against a count document by document."""

import math
import random
from collections.abc import Sequence

import numpy as np
import pytest

import curation
from curation.base.errors import RecipeError
from curation.rules.decide import RULE_SETS, Rule, decide
from curation.rules.effects import BINS, MOVES, RANKS, rule_effects

RULES = (
    Rule(measure="words", min=50, max=1000, reason="length"),
    Rule(ratio=("digit_characters", "characters"), max=0.1, reason="digits"),
    Rule(matches="x", max_count=0),
    Rule(ratio=("word_characters", "words"), min=3, reason="short_words"),
)


def measures_of(count: int, seed: int) -> dict[str, np.ndarray]:
    chance = random.Random(seed)
    words = [chance.choice([0, 1, 49, 50, 51, chance.randrange(2000)]) for _ in range(count)]
    letters = [number * chance.randrange(1, 8) for number in words]
    digits = [chance.choice([0, number // 10, number]) for number in letters]
    columns = {"words": words, "characters": letters, "word_characters": letters, "digit_characters": digits}
    return {name: np.array(values, np.int64) for name, values in columns.items()}


def value_of(rule: Rule, measures: dict[str, np.ndarray], row: int) -> float:
    numbers = [int(measures[name][row]) for name in rule.measures]
    return numbers[0] / max(1, numbers[1]) if len(numbers) == 2 else float(numbers[0])


def is_beyond(value: float, side: str, bound: float) -> bool:
    return value < bound if side == "min" else value > bound


@pytest.mark.parametrize("seed", range(5))
def test_effects_equal_a_count_document_by_document(seed: int):
    measures, rows = measures_of(300, seed), 300
    effects = rule_effects(RULES, measures, rows)
    judged = [rule for rule in RULES if rule.measures]

    def breaks(rule: Rule, row: int) -> bool:
        value = value_of(rule, measures, row)
        return value < rule.min or value > rule.max

    broken = [sum(breaks(rule, row) for rule in judged) for row in range(rows)]
    assert effects.removed == sum(number > 0 for number in broken)
    assert (effects.documents, effects.skipped) == (rows, ("text_matches",))
    assert [(effect.rule.name, effect.side) for effect in effects.effects] == [
        ("length", "min"), ("length", "max"), ("digits", "max"), ("short_words", "min"),
    ]  # fmt: skip
    for effect in effects.effects:
        values = [value_of(effect.rule, measures, row) for row in range(rows)]
        moved = [effect.bound * (1 + move) for move in MOVES]
        assert list(effect.removed) == [
            sum(is_beyond(value, effect.side, bound) for value in values) for bound in moved
        ]
        alone = [
            value
            for row, value in enumerate(values)
            if broken[row] == 1 and is_beyond(value, effect.side, effect.bound)
        ]
        assert effect.alone == len(alone) and effect.removed_now == effect.removed[2]
        assert list(effect.percentiles) == [nearest_rank(values, rank) for rank in RANKS]
        check_histogram(effect.histogram, values, effect.bound)


def nearest_rank(values: Sequence[float], rank: float) -> float:
    return sorted(values)[max(math.ceil(len(values) * rank / 100) - 1, 0)]


def check_histogram(histogram: curation.Histogram, values: Sequence[float], bound: float) -> None:
    edges, counts = histogram
    assert len(counts) == BINS and counts.sum() == len(values) and (np.diff(edges) > 0).all()
    assert edges[0] <= bound <= edges[-1]
    expected = np.zeros(BINS, np.int64)
    for value in values:
        expected[histogram.bin_of(value)] += 1
    assert counts.tolist() == expected.tolist()


@pytest.mark.parametrize("rules", RULE_SETS)
def test_effects_of_a_set_remove_what_the_set_removes(rules: str):
    chosen = [rule for rule in RULE_SETS[rules] if rule.is_on_measures]  # others need the text
    chance = np.random.default_rng(1)
    measures = {name: chance.integers(0, 300, 200) for rule in chosen for name in rule.measures}
    removed = np.count_nonzero(~decide(chosen, measures, 200).kept)
    assert rule_effects(RULE_SETS[rules], measures, 200).removed == removed > 0


def test_no_documents_have_no_percentiles():
    effects = rule_effects(RULES, measures_of(0, 0), 0)
    assert effects.removed == 0 and all(effect.percentiles == () for effect in effects.effects)
    assert all(effect.histogram.counts.sum() == 0 for effect in effects.effects)


def test_equal_values_have_a_histogram():
    [effect] = rule_effects([Rule(measure="words", min=5)], {"words": np.full(9, 5)}, 9).effects
    assert effect.removed == (0, 0, 0, 9, 9) and effect.histogram.counts.sum() == 9


def test_blocks_of_rows_give_the_verdict_of_all_rows(monkeypatch: pytest.MonkeyPatch):
    measures = measures_of(1000, 7)
    rules = [rule for rule in RULES if rule.measures]
    whole = decide(rules, measures, 1000)
    monkeypatch.setattr("curation.rules.decide.BLOCK_ROWS", 7)
    in_blocks = decide(rules, measures, 1000)
    assert whole.reason.tolist() == in_blocks.reason.tolist()
    np.testing.assert_array_equal(whole.value, in_blocks.value)


def test_measures_come_as_frames_tables_and_arrays():
    import pandas as pd
    import pyarrow as pa

    words = {"words": [3, 45, 80, 400]}
    for measures in (words, pd.DataFrame(words), pa.table(words)):
        assert curation.decide(measures, [Rule(measure="words", min=50)]).kept.tolist() == [False, False, True, True]
        assert curation.rule_effects(measures, [Rule(measure="words", min=50)]).removed == 2
    for rules in ({"words": {"min": 50}}, [{"measure": "words", "min": 50}], Rule(measure="words", min=50)):
        assert curation.decide(words, rules).kept.tolist() == [False, False, True, True]
        assert curation.rule_effects(words, rules).removed == 2
    texts = {"text": ["a", "x"], "words": [1, 1]}
    assert curation.decide(texts, [Rule(matches="x", max_count=0)]).kept.tolist() == [True, False]


@pytest.mark.parametrize(
    ("measures", "rules", "message"),
    [
        ({"words": [1]}, "gopher", "columns: duplicate_paragraphs, "),
        ({"words": [1]}, "gofer", "no rule set named 'gofer'; did you mean gopher"),
        ({"words": [1]}, [], "rules is empty; name a rule set, such as gopher, or give a rule"),
        ({"words": [1.5]}, [Rule(measure="words", min=5)], "is no measure: it holds float64, expected integers"),
        ({"words": [1], "lines": [1, 2]}, [Rule(ratio=("words", "lines"), min=5)], "have different numbers of rows"),
        ({"words": [1], "word": ["a"]}, [Rule(column="wordy", in_=("a",))], "no column 'wordy' in the measures; did"),
    ],
)  # fmt: skip
def test_wrong_measures_and_rules_are_one_message(measures: dict[str, list[int]], rules: object, message: str):
    with pytest.raises(RecipeError) as error:
        curation.decide(measures, rules)  # type: ignore[arg-type]
    assert message in str(error.value)
