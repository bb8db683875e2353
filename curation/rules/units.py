# SPDX-License-Identifier: Apache-2.0
"""Rules on the units of texts: lines, paragraphs or sentences (`curation.stages.rows.lines`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import groupby

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curation.measures import near_measure
from curation.records import TEXT
from curation.rules.columns import pattern_problem
from curation.rules.decide import BLOCK_ROWS, expand_rules, rules_of_entry
from curation.rules.grammar import Rule
from curation.rules.groups import GroupedRule

REPEATS = "repeats"
DOCUMENT = "document"


class UnitRule(Rule, frozen=True, kw_only=True, forbid_unknown_fields=True, repr_omit_defaults=True):
    """A `curation.Rule` on units: on a measure or a ratio of each unit, or on matches in it.

    removes   `document`: a unit that breaks the rule removes its document; default: the unit is cut

    `repeats` is a measure of units alone: the number of equal ones before it in its document, 0 for a blank unit.
    """

    removes: str = ""
    any_: tuple[UnitRule, ...] | None = None

    def __post_init__(self) -> None:
        if self.removes not in ("", DOCUMENT):
            raise ValueError(f"removes must be {DOCUMENT}, not {self.removes!r}; without it the unit is cut")
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

    def _check_measures(self) -> None:
        if REPEATS in self.ratio:
            raise ValueError(f"{REPEATS} has no ratio; give {{{REPEATS}: {{max: 0}}}}")
        if self.measure != REPEATS:
            return Rule._check_measures(self)
        self._allow("a measure", "min", "max")
        self._check_bounds("min", "max")
        self._check_effect()


def expand_unit_rules(rules: str | Sequence[str | Rule]) -> tuple[UnitRule, ...]:
    """Return the rules of a set's name, or of a list of names and rules. `removes` of a set is that of its rules."""
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
    fields = {name: getattr(rule, name) for name in Rule.__struct_fields__}
    return UnitRule(**fields, removes=getattr(entry, "removes", ""))


def first_broken(
    rules: Sequence[UnitRule], units: int, measures: Mapping[str, np.ndarray], texts: pa.ChunkedArray | None
) -> np.ndarray:
    """Return the number of the first rule that each unit breaks, -1 for none; int16.

    measures  name -> int64, one per unit, for every measure in the rules
    texts     the contents of the units, if a rule needs them
    """
    broken = np.full(units, -1, np.int16)
    for start in range(0, units, BLOCK_ROWS):
        block = slice(start, start + BLOCK_ROWS)
        part = {name: values[block] for name, values in measures.items()}
        _judge(rules, part, None if texts is None else texts.slice(start, BLOCK_ROWS), broken[block])
    return broken


def values_of(
    rule: UnitRule, measures: Mapping[str, np.ndarray], texts: pa.ChunkedArray | None, at: np.ndarray
) -> np.ndarray:
    """Return the values of a rule for the units at some positions, float64."""
    columns = {} if texts is None else {TEXT: texts.take(pa.array(at))}
    return rule.judge({name: values[at] for name, values in measures.items()}, columns)[0]


def _judge(
    rules: Sequence[UnitRule], measures: Mapping[str, np.ndarray], texts: pa.ChunkedArray | None, broken: np.ndarray
) -> None:
    """Fill `broken` for a block. Patterns are searched only in units that break no earlier rule."""
    numbered = enumerate(rules)
    for is_ceiling, group in groupby(numbered, lambda entry: _is_ceiling(entry[1])):
        entries = list(group)
        rows = np.flatnonzero(broken < 0)
        if is_ceiling and len(entries) > 1 and (union := _union(tuple(str(rule.matches) for _, rule in entries))):
            assert texts is not None
            rows = rows[_found(_at(texts, rows), union)]
        for number, rule in entries:
            rows = rows[broken[rows] < 0]
            broken[rows[_breaks(rule, measures, texts, rows)]] = number


def _breaks(
    rule: UnitRule, measures: Mapping[str, np.ndarray], texts: pa.ChunkedArray | None, rows: np.ndarray
) -> np.ndarray:
    """Whether each of some units breaks a rule, bool."""
    bounds = rule.bounds if rule.per is None else ()
    if rule.matches is not None and bounds in ((0, 0), (1, np.inf)):  # whether it matches is faster than how often
        assert texts is not None
        found = _found(_at(texts, rows), rule.matches)
        return found if bounds == (0, 0) else ~found
    everything = len(rows) == len(next(iter(measures.values()), ()))
    part = measures if everything else {name: measures[name][rows] for name in rule.measures}
    columns = {} if texts is None or not rule.columns else {TEXT: _at(texts, rows)}
    return rule.judge(part, columns)[1]


def _at(texts: pa.ChunkedArray, rows: np.ndarray) -> pa.ChunkedArray:
    return texts if len(rows) == len(texts) else texts.take(pa.array(rows))


def _found(texts: pa.ChunkedArray, pattern: str) -> np.ndarray:
    return pc.match_substring_regex(texts, pattern=pattern).to_numpy()


def _is_ceiling(rule: UnitRule) -> bool:
    """Whether only units with a match of a pattern can break the rule."""
    return rule.matches is not None and rule.bounds[0] == 0


@lru_cache
def _union(patterns: tuple[str, ...]) -> str:
    """A pattern that matches where one of the patterns does: few units match it; "" if RE2 does not take it."""
    union = "|".join(f"(?:{pattern})" for pattern in patterns)
    return "" if pattern_problem(union) else union
