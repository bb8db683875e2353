# SPDX-License-Identifier: Apache-2.0
"""Rules on the units of texts: lines, paragraphs or sentences (`curation.stages.rows.lines`)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import groupby
from types import MappingProxyType

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curation.base.measures import near_measure
from curation.base.patterns import pattern_problem
from curation.base.records import TEXT
from curation.kernels.fasttext import SCORE_UNITS
from curation.rules.decide import BLOCK_ROWS, expand_rules, rules_of_entry
from curation.rules.grammar import Rule
from curation.rules.groups import GroupedRule

EMPTY: Mapping[str, pa.ChunkedArray] = MappingProxyType({})
REPEATS, LANGUAGE = "repeats", "language"
DOCUMENT = "document"


class UnitRule(Rule, frozen=True, kw_only=True, forbid_unknown_fields=True, repr_omit_defaults=True):
    """A `curation.Rule` on units. It bounds a measure, a ratio or the matches of each unit, or lists its languages.

    removes          `document`: a unit that breaks the rule removes its document; default: the unit is cut
    language         the most probable language of the unit is one of these, in any form: `zh`, `zho`, `cmn_Hani`
    min_probability  lower bound of the probability of that language, in [0, 1]; needs `language`

    `repeats` is a measure that only units have: the number of equal units before it in its document; 0 for a blank
    unit.
    """

    removes: str = ""
    any_: tuple[UnitRule, ...] | None = None
    language: str | tuple[str, ...] | None = None
    min_probability: float = 0.0

    def __post_init__(self) -> None:
        if self.removes not in ("", DOCUMENT):
            raise ValueError(f"removes must be {DOCUMENT}, not {self.removes!r}; without it the unit is cut")
        if self.language is not None:
            self._check_language()
            return
        if self.min_probability:
            raise ValueError("min_probability needs a rule on languages: {language: [en, de], min_probability: 0.5}")
        Rule.__post_init__(self)
        for name in self.columns:
            if name != TEXT:
                raise ValueError(
                    f"a rule on column {name!r} judges documents, and a unit has no columns. Put it into a filter "
                    f"stage, or name a measure{near_measure(name)}"
                )

    def _check_any(self) -> None:
        Rule._check_any(self)
        if any(getattr(rule, "removes", "") for rule in self.any_ or ()):
            raise ValueError(f"removes has no meaning inside any; give it to any: {{any: [...], removes: {DOCUMENT}}}")

    def _check_language(self) -> None:
        if self.measure or self.ratio or self.column or self.any_ or self.set or self.rules or self.conditions:
            raise ValueError(
                "language is a rule of its own; give it languages, and perhaps min_probability, removes and reason: "
                "{language: [en, de], min_probability: 0.5}"
            )
        codes = (self.language,) if isinstance(self.language, str) else tuple(self.language or ())
        if not codes or not all(codes):
            raise ValueError("language lists no languages; give some: {language: [en, de]}")
        if not 0 <= self.min_probability <= 1:
            raise ValueError(f"min_probability must be from 0 to 1, not {self.min_probability}")
        msgspec.structs.force_setattr(self, "language", codes)

    @property
    def codes(self) -> tuple[str, ...]:
        """The languages of a rule on languages; empty for any other rule."""
        return (self.language,) if isinstance(self.language, str) else self.language or ()

    @property
    def is_on_measures(self) -> bool:
        return bool(self.codes) or super().is_on_measures

    @property
    def is_share(self) -> bool:
        return bool(self.codes) or super().is_share

    @property
    def measures(self) -> tuple[str, ...]:
        """The measures that the rule needs. For a rule on languages, it is the score of the most probable language in
        units of 1 / SCORE_UNITS; 0 if this language is not listed."""
        return (f"probability of {' or '.join(self.codes)}",) if self.codes else super().measures

    @property
    def name(self) -> str:
        return (self.reason or LANGUAGE) if self.codes else super().name

    @property
    def bounds(self) -> tuple[float, float]:
        return (max(self.min_probability, 1 / SCORE_UNITS), math.inf) if self.codes else super().bounds

    @property
    def condition(self) -> str:
        if not self.codes:
            return super().condition
        least = f" with a probability of at least {self.min_probability:g}" if self.min_probability else ""
        return f"in {' or '.join(self.codes)}{least}"

    def values(self, measures: Mapping[str, np.ndarray]) -> np.ndarray:
        return measures[self.measures[0]] / SCORE_UNITS if self.codes else super().values(measures)

    def _check_measures(self) -> None:
        if LANGUAGE in (self.measure, *self.ratio):
            raise ValueError("language is no measure; list the languages: {language: [en, de], min_probability: 0.5}")
        if REPEATS in self.ratio:
            raise ValueError(f"{REPEATS} has no ratio; give {{{REPEATS}: {{max: 0}}}}")
        if self.measure != REPEATS:
            return Rule._check_measures(self)
        self._allow("a measure", "min", "max")
        self._check_bounds("min", "max")
        self._check_effect()


def expand_unit_rules(rules: str | Sequence[str | Rule]) -> tuple[UnitRule, ...]:
    """Return the rules for the name of a set, or for a list of names and rules. Rules of a set get the `removes` of
    their entry."""
    expand_rules(rules)  # checks the types
    entries = [rules] if isinstance(rules, str) else rules
    return tuple(_on_units(rule, entry) for entry in entries for rule in rules_of_entry(entry))


def _on_units(rule: Rule, entry: str | Rule) -> UnitRule:
    if isinstance(rule, UnitRule):
        return rule
    if isinstance(rule, GroupedRule):
        raise ValueError(
            f"{rule.name} differs per {rule.groups.column}, and a unit has no columns. Put it into a filter"
        )
    return UnitRule(**msgspec.structs.asdict(rule), removes=getattr(entry, "removes", ""))


def first_broken(
    rules: Sequence[UnitRule],
    units: int,
    measures: Mapping[str, np.ndarray],
    columns: Mapping[str, pa.ChunkedArray],
) -> np.ndarray:
    """Return the number of the first rule that each unit breaks, int16; -1 for none.

    measures  name -> int64, one per unit, for every measure in the rules
    columns   `text` (the contents of the units) and one of `DIVIDED`, if a rule needs them
    """
    broken = np.full(units, -1, np.int16)
    for start in range(0, units, BLOCK_ROWS):
        block = slice(start, start + BLOCK_ROWS)
        part = {name: values[block] for name, values in measures.items()}
        cut = {name: column.slice(start, BLOCK_ROWS) for name, column in columns.items()}
        _judge(rules, part, cut, broken[block])
    return broken


def values_of(
    rule: UnitRule, measures: Mapping[str, np.ndarray], columns: Mapping[str, pa.ChunkedArray], at: np.ndarray
) -> np.ndarray:
    """Return the values of a rule for the units at some positions, float64."""
    return rule.judge({name: values[at] for name, values in measures.items()}, _rows(columns, at))[0]


def _judge(
    rules: Sequence[UnitRule],
    measures: Mapping[str, np.ndarray],
    columns: Mapping[str, pa.ChunkedArray],
    broken: np.ndarray,
) -> None:
    """Fill `broken` for a block of units. Patterns are searched only in units that break no earlier rule."""
    numbered = enumerate(rules)
    for is_ceiling, group in groupby(numbered, lambda entry: _is_ceiling(entry[1])):
        entries = list(group)
        rows = np.flatnonzero(broken < 0)
        if is_ceiling and len(entries) > 1 and (union := _union(tuple(str(rule.matches) for _, rule in entries))):
            rows = rows[_found(_at(columns[TEXT], rows), union)]
        for number, rule in entries:
            rows = rows[broken[rows] < 0]
            broken[rows[_breaks(rule, measures, columns, rows)]] = number


def _breaks(
    rule: UnitRule, measures: Mapping[str, np.ndarray], columns: Mapping[str, pa.ChunkedArray], rows: np.ndarray
) -> np.ndarray:
    """Return a bool per unit of `rows`: whether it breaks a rule."""
    bounds = rule.bounds if rule.per is None else ()
    # To test for a match is faster than to count matches
    if rule.matches is not None and bounds in ((0, 0), (1, np.inf)):
        found = _found(_at(columns[TEXT], rows), rule.matches)
        return found if bounds == (0, 0) else ~found
    everything = len(rows) == len(next(iter(measures.values()), ()))
    part = measures if everything else {name: measures[name][rows] for name in rule.measures}
    return rule.judge(part, _rows(columns, rows) if rule.columns else EMPTY)[1]


def _rows(columns: Mapping[str, pa.ChunkedArray], rows: np.ndarray) -> Mapping[str, pa.ChunkedArray]:
    return {name: _at(column, rows) for name, column in columns.items()}


def _at(column: pa.ChunkedArray, rows: np.ndarray) -> pa.ChunkedArray:
    return column if len(rows) == len(column) else column.take(pa.array(rows))


def _found(texts: pa.ChunkedArray, pattern: str) -> np.ndarray:
    return pc.match_substring_regex(texts, pattern=pattern).to_numpy()


def _is_ceiling(rule: UnitRule) -> bool:
    """Return whether a unit can break the rule only if the rule's pattern matches in it."""
    return rule.matches is not None and rule.bounds[0] == 0


@lru_cache
def _union(patterns: tuple[str, ...]) -> str:
    """Return a pattern that matches if one of the patterns does, to skip most units quickly; "" if RE2 does not accept
    it."""
    union = "|".join(f"(?:{pattern})" for pattern in patterns)
    return "" if pattern_problem(union) else union
