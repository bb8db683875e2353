# SPDX-License-Identifier: Apache-2.0
"""Rules are data: a measure, or a ratio of two, must lie between two bounds, both inclusive.

The first rule that a document breaks is the reason it goes. A denominator counts as at least 1, so that an empty
document has ratios of 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from curation.errors import nearest
from curation.measures import is_part, name_of


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Keep documents with `min <= value <= max`, where value is `measure`, or `ratio[0] / max(1, ratio[1])`.

    Bounds that remove no document, or every one, raise ValueError: no value is below 0, and none above 1 where the
    first measure of the ratio counts a part of the second (`curation.measures.PARTS`).
    """

    measure: str = ""
    ratio: tuple[str, ...] = ()
    min: float = -math.inf
    max: float = math.inf
    reason: str = ""

    def __post_init__(self) -> None:
        if (self.measure != "") == bool(self.ratio):  # a Measure may be 0
            raise ValueError("give either measure: NAME or ratio: [NAME, NAME]")
        if self.ratio and (isinstance(self.ratio, str) or len(self.ratio) != 2):
            raise ValueError(f"ratio takes two measures, [above, below], not {self.ratio!r}")
        if self.measure != "":
            msgspec.structs.force_setattr(self, "measure", name_of(self.measure))
        msgspec.structs.force_setattr(self, "ratio", tuple(name_of(name) for name in self.ratio))
        if math.isnan(self.min) or math.isnan(self.max):
            raise ValueError("min and max must be numbers; nothing is above or below NaN")
        if self.min == -math.inf and self.max == math.inf:
            raise ValueError("a rule without min and max keeps everything; give one of them")
        if self.min > self.max:
            raise ValueError(f"min {self.min} is above max {self.max}: the rule would remove everything")
        self._check_effect()

    def _check_effect(self) -> None:
        """ValueError for a bound that removes no document whatever its text, or every one."""
        share = bool(self.ratio) and is_part(*self.ratio)
        highest = 1.0 if share else math.inf
        if self.max < 0:
            bound, effect = "max", "removes everything"
        elif self.min > highest or self.min == math.inf:
            bound, effect = "min", "removes everything"
        elif highest < self.max < math.inf or (self.min <= 0 and self.max >= highest):
            bound, effect = "min" if self.max == math.inf else "max", "can never remove anything"
        else:
            return
        value, advice = getattr(self, bound), "Give one in between" if share else "Give a finite one above"
        if share and 1 < value <= 100:
            advice = f"Write {value / 100:g} for {value:g} %"
        why = f"{' is part of '.join(self.ratio)}, the ratio is between 0 and 1"
        if not share:
            why = f"{' per '.join(self.measures)} is finite and never below 0"
        raise ValueError(f"{bound}: {value:g} {effect}: {why}. {advice}")

    @property
    def measures(self) -> tuple[str, ...]:
        return (self.measure,) if self.measure else self.ratio

    @property
    def name(self) -> str:
        """What `removed/` and the report call it."""
        return self.reason or "_per_".join(self.measures)

    def values(self, measures: Mapping[str, np.ndarray]) -> np.ndarray:
        """float64, one per document."""
        if self.measure:
            return measures[self.measure].astype(np.float64)
        above, below = (measures[name].astype(np.float64) for name in self.ratio)
        return above / np.maximum(below, 1.0)


class Verdict(NamedTuple):
    """What is decided about the rows of one frame: `reason` numbers `reasons`, -1 keeps; `value` is what broke it."""

    reason: np.ndarray
    reasons: tuple[str, ...]
    value: np.ndarray

    @property
    def kept(self) -> np.ndarray:
        return self.reason < 0

    def counts(self) -> dict[str, int]:
        """Removed documents per reason, zeros too, in the order of the rules; rules with the same reason are one."""
        totals: dict[str, int] = {}
        numbers = np.bincount(self.reason[self.reason >= 0], minlength=len(self.reasons))
        for name, number in zip(self.reasons, numbers.tolist(), strict=True):
            totals[name] = totals.get(name, 0) + number
        return totals


def decide(rules: Sequence[Rule], measures: Mapping[str, np.ndarray], rows: int) -> Verdict:
    """The first broken rule of every row."""
    reason = np.full(rows, -1, np.int16)
    value = np.full(rows, np.nan)
    for number, rule in enumerate(rules):
        found = rule.values(measures)
        broken = ((found < rule.min) | (found > rule.max)) & (reason < 0)
        reason[broken] = number
        value[broken] = found[broken]
    return Verdict(reason, tuple(rule.name for rule in rules), value)


def _bound(measure: str | tuple[str, str], reason: str, min: float = -math.inf, max: float = math.inf) -> Rule:
    if isinstance(measure, str):
        return Rule(measure=measure, reason=reason, min=min, max=max)
    return Rule(ratio=measure, reason=reason, min=min, max=max)


# Rae et al. 2021 (Gopher), appendix A1.1, with datatrove's split of the symbol rule in two and our words and lines.
GOPHER_QUALITY = (
    _bound("words", "too_few_words", min=50),
    _bound("words", "too_many_words", max=100_000),
    _bound(("word_characters", "words"), "words_too_short", min=3),
    _bound(("word_characters", "words"), "words_too_long", max=10),
    _bound(("hash_signs", "words"), "too_many_hash_signs", max=0.1),
    _bound(("ellipses", "words"), "too_many_ellipses", max=0.1),
    _bound(("bullet_lines", "lines"), "too_many_bullet_lines", max=0.9),
    _bound(("ellipsis_lines", "lines"), "too_many_ellipsis_lines", max=0.3),
    _bound(("words_with_letter", "words"), "too_few_words_with_letter", min=0.8),
    _bound("stop_words", "too_few_stop_words", min=2),
)

# Rae et al. 2021, table A1; the 5- to 10-grams by datatrove's walk, which leaves the first copy out.
GOPHER_REPETITION = (
    _bound(("duplicate_paragraphs", "paragraphs"), "duplicate_paragraphs", max=0.30),
    _bound(("duplicate_paragraph_characters", "characters"), "duplicate_paragraph_characters", max=0.20),
    _bound(("duplicate_lines", "text_lines"), "duplicate_lines", max=0.30),
    _bound(("duplicate_line_characters", "characters"), "duplicate_line_characters", max=0.20),
    *(
        _bound((f"top_{n}gram_characters", "characters"), f"top_{n}gram", max=bound)
        for n, bound in ((2, 0.20), (3, 0.18), (4, 0.16))
    ),
    *(
        _bound((f"duplicate_{n}gram_characters", "characters"), f"duplicate_{n}grams", max=bound)
        for n, bound in ((5, 0.15), (6, 0.14), (7, 0.13), (8, 0.12), (9, 0.11), (10, 0.10))
    ),
)

# datatrove's FineWebQualityFilter, but that a value on a bound is kept. Penedo et al. 2024 (FineWeb), section 3.6, has
# 0.1 for the characters of duplicate lines, and no rule about newlines.
FINEWEB = (
    _bound(("punctuated_lines", "text_lines"), "too_few_punctuated_lines", min=0.12),
    _bound(("short_lines", "text_lines"), "too_many_short_lines", max=0.67),
    _bound(("duplicate_line_characters", "line_characters"), "duplicate_line_characters", max=0.01),
    _bound(("newlines", "words"), "too_many_newlines", max=0.3),
)

# The literal rules of the WET pipeline in the shipped recipe `common_crawl`, with its reasons.
COMMON_CRAWL = (
    _bound("words", "length", min=50, max=100_000),
    _bound(("word_characters", "words"), "word_len", min=3, max=10),
    _bound(("symbol_characters", "characters"), "symbol_ratio", max=0.10),
    _bound(("bullet_or_star_lines", "lines"), "too_bulleted", max=0.90),
    _bound(("ellipsis_character_lines", "lines"), "too_truncated", max=0.30),
    _bound(("top_2gram_count", "num_2grams"), "repeat_2gram", max=0.20),
    _bound(("top_3gram_count", "num_3grams"), "repeat_3gram", max=0.18),
)

# The literal heuristics of the shipped recipe `nemo`.
NEMO = (
    _bound("characters", "length", min=100, max=100_000),
    _bound("words", "word_count", min=20),
    _bound(("word_characters", "words"), "mean_word_length", min=3, max=15),
    _bound(("alphanumeric_characters", "characters"), "alphanumeric", min=0.7),
    _bound(("distinct_words", "words"), "distinct_words", min=0.2),
    _bound("function_words", "function_words", min=1),
)

RULE_SETS: dict[str, tuple[Rule, ...]] = {
    "gopher_quality": GOPHER_QUALITY,
    "gopher_repetition": GOPHER_REPETITION,
    "gopher": GOPHER_REPETITION + GOPHER_QUALITY,
    "fineweb": FINEWEB,
    "common_crawl": COMMON_CRAWL,
    "nemo": NEMO,
}


def expand_rules(rules: str | Sequence[str | Rule]) -> tuple[Rule, ...]:
    """The rules behind a set's name, or behind a list of names and rules; ValueError for anything else."""
    expanded: list[Rule] = []
    if not isinstance(rules, str | list | tuple) or not all(isinstance(entry, str | Rule) for entry in rules):
        raise ValueError(f"rules must be the name of a set, or a list of names and Rules, not {rules!r}")
    for entry in [rules] if isinstance(rules, str) else rules:
        if isinstance(entry, Rule):
            expanded.append(entry)
        elif entry in RULE_SETS:
            expanded.extend(RULE_SETS[entry])
        else:
            raise ValueError(f"no rule set named {entry!r}{nearest(entry, RULE_SETS)}")
    return tuple(expanded)
