# SPDX-License-Identifier: Apache-2.0
"""Rules for each value of a column, such as the bounds of each language.

If the rules of groups differ only in bounds, they are one rule with a matrix of bounds. So a document needs one look-up
per rule, whatever the number of groups. Groups are numbered from 0. The number after the last group is for documents
without rules, and the next one for documents to remove.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curation.base.errors import RecipeError, counted, near_or_nothing
from curation.rules.columns import has_kind, on_host
from curation.rules.grammar import DIVIDED, KEEP, NORMALIZED, OTHER, REMOVE, Rule, divided_text
from curation.rules.languages import near_language, parse_label, same_language
from curation.rules.listed import STOP_WORD, Listed, count_stop_words

LANGUAGE = "lang"  # a column with this in its name is a column of languages
SHOWN_VALUES = 5  # values of a column in a message
BOUND_FIELDS = ("min", "max", "min_count", "max_count")
ADVICE = f"List each in rules, or give {OTHER}: {KEEP}, {REMOVE}, a listed value, or rules"
EMPTY: tuple[Any, np.ndarray] = (None, np.zeros(0, np.int32))

RulesOf = Callable[[str | Rule], Sequence[Rule]]


class Groups:
    """Groups of documents by their value in a column, and the look-up of the group of a value.

    column   name of the column
    numbers  value -> number of its group
    count    number of groups
    other    the group of other values and of nulls; None: such values are errors
    """

    def __init__(self, column: str, numbers: Mapping[str, int], count: int, other: int | None) -> None:
        self.column, self.numbers, self.count, self.other = column, numbers, count, other
        self.has_languages = LANGUAGE in column.lower()
        self._last = EMPTY  # cache: rules use the same column one after another

    def place(self, value: str | None) -> int | None:
        """Return the group of a value; None if it has no group."""
        found = None if value is None else self.find(value)
        return self.other if found is None else found

    def find(self, value: str) -> int | None:
        """Return the group that lists a value; None if there is none. In a column of languages, all forms of a label
        are equal."""
        if value in self.numbers or not self.has_languages or (language := parse_label(value)) is None:
            return self.numbers.get(value)
        return self._languages.get((language.code, language.script), self._languages.get((language.code, "")))

    def name(self, number: int) -> str:
        """Return a text with the values that a group lists, and with `other` if the group has all other values."""
        return _first([*self._values.get(number, []), *([OTHER] if self.other == number else [])])

    def lists(self, value: str) -> bool:
        """Return whether a group lists a value. The value `other` counts if there is a group only for other values."""
        has_others = self.other is not None and self.other < self.count and self.value(self.other) == OTHER
        return self.find(value) is not None or (value == OTHER and has_others)

    def value(self, number: int) -> str:
        """Return the first value that a group lists; `other` if the group lists none."""
        return next(iter(self._values.get(number, [])), OTHER)

    @cached_property
    def _values(self) -> dict[int, list[str]]:
        """Group -> the values that it lists."""
        found: dict[int, list[str]] = {}
        for value, number in self.numbers.items():
            found.setdefault(number, []).append(value)
        return found

    @cached_property
    def _languages(self) -> dict[tuple[str, str], int]:
        """(code, script) -> group; also (code, "") of a language that is listed without a script."""
        found = {}
        for value, number in self.numbers.items():
            if language := parse_label(value):
                found[language.code, language.script] = number
                if not language.names_script:
                    found[language.code, ""] = number
        return found

    def numbers_of(self, columns: Mapping[str, pa.ChunkedArray]) -> np.ndarray:
        """Return the group of each row. Raises RecipeError for values without a group."""
        column, (last, numbers) = columns[self.column], self._last
        if last is not column:
            strings = self.strings(column)
            values = strings.unique()
            places = np.array([-1 if (place := self.place(value)) is None else place for value in values.to_pylist()])
            if (places < 0).any():
                self.check(column)
            numbers = places.astype(np.int32)[pc.index_in(strings, value_set=values).to_numpy()]
            self._last = column, numbers
        return numbers

    def check(self, column: pa.ChunkedArray) -> None:
        """Raise RecipeError, with counts, for values of a column that belong to no group."""
        if self.other is not None:
            return
        pairs = [pair.values() for pair in self.strings(column).value_counts().to_pylist()]
        lost = {value: number for value, number in pairs if self.place(value) is None}
        if lost:
            largest = sorted(lost.items(), key=lambda pair: (-pair[1], pair[0] is None, pair[0]))
            shown = [f"{'null' if value is None else repr(value)} ({number:,})" for value, number in largest]
            verb = "has" if sum(lost.values()) == 1 else "have"
            raise RecipeError(
                f"rules per {self.column}: {counted(sum(lost.values()), 'document')} of {len(column):,} {verb} a value "
                f"without rules: {_first(shown)}. {ADVICE}"
            )

    def check_values(self, values: Sequence[str], stage: str) -> None:
        """Raise RecipeError if the stage can write a value without rules, or can write none of the values that have
        rules."""
        if values and not any(self.find(value) is not None for value in values):
            raise RecipeError(
                f"rules per {self.column}: the stage {stage} writes {_first([*map(repr, values)])}, and no group lists "
                f"any of these{' languages' * self.has_languages}. List them in rules, or name another column in per"
            )
        lost = [repr(value) for value in values if self.place(value) is None]
        if lost:
            raise RecipeError(
                f"rules per {self.column}: the stage {stage} can write {counted(len(lost), 'value')} without rules: "
                f"{_first(lost)}. {ADVICE}"
            )

    def strings(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        """Return the values of the column as strings. Raises RecipeError if the column has a type that groups cannot
        have."""
        kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        if not (has_kind(kind, "text") or has_kind(kind, "truth") or pa.types.is_integer(kind)):
            raise RecipeError(
                f"rules per {self.column}: the column holds {kind}; expected strings, integers, or true and false"
            )
        return on_host(column).cast(kind).cast(pa.large_string())


class _CheckedRule(Rule, frozen=True, kw_only=True, eq=False):
    """A rule made from checked rules, without further checks: a single bound in a table may have no effect."""

    def __post_init__(self) -> None:
        """Do nothing."""


class GroupedRule(_CheckedRule, frozen=True, kw_only=True, eq=False):
    """A rule of several groups: the fields of a rule, with bounds per group in place of its own bounds.

    limits      float64[2, groups + 2]: inclusive bounds of each group; infinite for no bound, NaN for a group without
                the rule
    normalized  whether it uses normalized texts, if the columns have them (`curation.stages.rows.normalized`)
    chooses     whether only the value of the column decides: all documents of groups with the rule are removed
    lists       for a rule on stop words: group -> its list
    instead     a second rule on the text, which also keeps a document if it holds; None: only stop words decide
    """

    groups: Groups
    limits: np.ndarray
    normalized: bool = False
    chooses: bool = False
    lists: Mapping[int, Listed] = MappingProxyType({})
    instead: Rule | None = None

    @property
    def member(self) -> np.ndarray:
        """Bool per group: whether it has the rule."""
        return ~np.isnan(self.limits[0])

    @property
    def conditions(self) -> tuple[str, ...]:
        if not self.has_bounds:
            return super().conditions
        return tuple(name for name, side in zip(("min", "max"), self.limits, strict=True) if np.isfinite(side).any())

    @property
    def parts(self) -> tuple[Rule, ...]:
        """One copy of the rule for each of its lists in a file, so that callers find all of these lists."""
        files = [listed for listed in self.lists.values() if listed.file]
        return tuple(msgspec.structs.replace(self, listed=listed, lists={}) for listed in files) or super().parts

    @property
    def measures(self) -> tuple[str, ...]:
        return (*super().measures, *(self.instead.measures if self.instead else ()))

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((self.groups.column, *super().columns)))

    @property
    def bounds(self) -> tuple[float, float]:
        """Infinite bounds, since bounds differ per row (`broken_bounds`)."""
        return -math.inf, math.inf

    def of_group(self, number: int) -> Rule | None:
        if not self.member[number]:
            return None
        low, high = self.limits[:, number].tolist()
        return _CheckedRule(**_fields_of(self) | {"min": low, "max": high})

    @property
    def condition(self) -> str:
        if self.chooses:
            return f"column {self.groups.column} has a value to keep"
        if len({*self.lists.values()}) > 1:
            line = f"{'share' if self.per else 'number of different'} stop words, {self._range()}"
            return f"{line}, or {self.instead.condition}" if self.instead else line
        line = super().condition
        return f"{line.rpartition(' in [')[0] if self.has_bounds else line} {self._range()}"

    def _range(self) -> str:
        sides = zip(("at least", "at most"), self.limits, strict=True) if self.has_bounds else ()
        found = [f"{word} {_range_of(side)}" for word, side in sides if np.isfinite(side).any()]
        groups = counted(int(np.count_nonzero(self.member)), "group")
        return f"{' and '.join(found)}, per {self.groups.column} ({groups})".removeprefix(", ")

    def looks_for_words(self, columns: Mapping[str, pa.ChunkedArray]) -> bool:
        return super().looks_for_words(columns) and bool(self._own(columns).any())

    def judge(
        self, measures: Mapping[str, np.ndarray], columns: Mapping[str, pa.ChunkedArray]
    ) -> tuple[np.ndarray, np.ndarray]:
        columns, own, subject = self._judged(columns), self._own(columns), super().columns
        if self.chooses:
            return np.full(len(own), np.nan), own
        bounds = self.bounds_of(self.groups.numbers_of(columns))
        if self.lists or not subject:
            values, breaks = self._judge_within(bounds, measures, columns)
            breaks &= own
        else:  # patterns and lists are slow, so only documents whose group has the rule are judged
            values, breaks = np.full(len(own), np.nan), np.zeros(len(own), bool)
            part = _rows_of(self, subject, own, measures, columns)
            values[own], breaks[own] = self._judge_within(bounds[:, own], *part)
        # Only for the few documents left, since a pattern takes more time than stop words
        if self.instead and breaks.any():
            part = _rows_of(self.instead, self.instead.columns, breaks, measures, columns)
            breaks[breaks] = self.instead.judge(*part)[1]
        return values, breaks

    def counts(self, columns: Mapping[str, pa.ChunkedArray]) -> np.ndarray:
        """Return the counts for the documents whose group has the rule, and 0 for all others."""
        return np.where(self._own(columns), self._counts(self._judged(columns)), 0.0)

    def _counts(self, columns: Mapping[str, pa.ChunkedArray]) -> np.ndarray:
        if not self.lists:
            return super()._counts(columns)
        from curation.kernels.stop_words import NO_LIST  # loads Numba

        numbers = np.where(self._own(columns), self.groups.numbers_of(columns), NO_LIST)
        words, column = divided_text(columns) if self.counts_words else ("", columns[str(self.column)])
        return count_stop_words(column, self.lists, numbers, words)[self.per is not None]

    def _own(self, columns: Mapping[str, pa.ChunkedArray]) -> np.ndarray:
        """Return a bool per document: whether its group has the rule."""
        return self.member[self.groups.numbers_of(columns)]

    def _judged(self, columns: Mapping[str, pa.ChunkedArray]) -> Mapping[str, pa.ChunkedArray]:
        """Return the columns, with normalized texts if the rule uses them."""
        if not self.normalized:
            return columns
        return {**columns, **{name: columns[key] for name, key in NORMALIZED.items() if key in columns}}

    def bounds_of(self, numbers: np.ndarray) -> np.ndarray:
        """Return the lower and the upper bound of each document, from its group: float64[2, documents]. NaN if the
        group does not have the rule."""
        return self.limits.take(numbers, axis=1)

    def broken_bounds(self, columns: Mapping[str, pa.ChunkedArray], values: np.ndarray) -> np.ndarray:
        """Return the bound of its group that each value breaks, float64; NaN for values that break none."""
        low, high = self.bounds_of(self.groups.numbers_of(columns))
        return np.where(values < low, low, np.where(values > high, high, np.nan))

    def has(self, value: str) -> bool:
        """Return whether the group of a value of the column has the rule; true for "". Raises ValueError for an unknown
        value."""
        if not value:
            return True
        if self.groups.find(value) is None:
            raise ValueError(f"override: no rules of {value!r}{near_or_nothing(value, [*self.groups.numbers])}")
        return bool(self.member[self.groups.find(value)])

    def changed(self, condition: str, bound: float | None, value: str = "") -> GroupedRule:
        """Return the rule with another `min` or `max`. The bound changes for the group of a value of the column, or for
        all groups (""). If `bound` is None, these groups lose the rule. Raises ValueError for a bound without an
        effect."""
        at = np.arange(self.limits.shape[1]) == self.groups.find(value) if value else self.member
        limits = self.limits.copy()
        if bound is None:
            limits[:, at] = np.nan
        else:
            counts = self.min_count is not None or self.max_count is not None
            Rule(**_fields_of(self) | {f"{condition}_count" if counts else condition: bound})
            limits[int(condition == "max"), at] = bound
        if (limits[0] > limits[1]).any():
            raise ValueError(f"the bounds of {self.name} would remove everything")
        return msgspec.structs.replace(self, limits=limits)


def _rows_of(
    rule: Rule,
    names: Iterable[str],
    rows: np.ndarray,
    measures: Mapping[str, np.ndarray],
    columns: Mapping[str, pa.ChunkedArray],
) -> tuple[dict[str, np.ndarray], dict[str, pa.ChunkedArray]]:
    """Return the measures of a rule and the columns `names` for the rows where `rows` (bool) is true."""
    at, mask = np.flatnonzero(rows), pa.array(rows)
    if any(part.counts_words for part in rule.parts):
        names = [*names, *(name for name in DIVIDED.values() if name in columns)]
    part = {name: columns[name].filter(mask) for name in names}  # `take` copies all chunks
    return {name: measures[name][at] for name in rule.measures}, part


def with_groups(rules: Sequence[GroupedRule], column: str | None, other: str | None) -> tuple[Rule, ...]:
    """Return the rules of a set for another column. `other` says what happens to other values: `keep`, `remove`, or the
    value whose rules they get. Rules that no group has are left out."""
    before = rules[0].groups
    place = None if other is None else _place(OTHER, other, before)
    groups = Groups(column or before.column, before.numbers, before.count, place)
    groups.has_languages = before.has_languages
    found = [msgspec.structs.replace(rule, groups=groups) for rule in rules if rule.member.any()]
    return (*_removed(groups, {place}), *found)


def of_different_groups(rules: Sequence[Rule]) -> bool:
    """Return whether all rules are rules of groups, and no group has two of these rules."""
    members = [rule.member for rule in rules if isinstance(rule, GroupedRule)]
    return len(members) == len(rules) > 0 and bool(np.sum(members, axis=0).max() == 1)


def rules_of_group(rules: Iterable[Rule], groups: Groups, number: int) -> list[Rule]:
    """Return the rules of `groups` that a group has, with its bounds."""
    grouped = (rule for rule in rules if isinstance(rule, GroupedRule) and rule.groups is groups)
    return [own for rule in grouped if (own := rule.of_group(number)) is not None]


def of_all_documents(rules: Iterable[Rule]) -> tuple[Rule, ...]:
    """Return the rules on measures whose bounds are the same for all documents."""
    return tuple(rule for rule in rules if rule.is_on_measures and not isinstance(rule, GroupedRule))


def groups_in(rules: Iterable[Rule]) -> list[Groups]:
    """Return the `Groups` objects of rules, each once."""
    return list(dict.fromkeys(rule.groups for rule in rules if isinstance(rule, GroupedRule)))


def _first(shown: Sequence[str]) -> str:
    return ", ".join(shown[:SHOWN_VALUES]) + (", ..." if len(shown) > SHOWN_VALUES else "")


def _range_of(side: np.ndarray) -> str:
    finite = side[np.isfinite(side)]
    low, high = finite.min(), finite.max()
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"


def grouped_rules(entry: Rule, sets: Container[str], rules_of: RulesOf) -> tuple[Rule, ...]:
    """Return the rules of an entry with `per: COLUMN` and `rules`. Equal rules of several groups are merged, in the
    order in which the groups list them.

    sets      names of rule sets
    rules_of  function that returns the rules of an entry

    Raises ValueError for a text that is no rule set, no listed value, and neither `keep` nor `remove`.
    """
    rules = entry.rules or {}
    own = values_with_rules(rules, sets)
    numbers = {value: number for number, value in enumerate(own)}
    listed = Groups(
        str(entry.per), {value: number for value, number in numbers.items() if value != OTHER}, len(own), None
    )
    _check_languages(listed, rules)
    places: dict[str, int] = {}
    for value, entries in rules.items():
        places[value] = numbers[value] if value in numbers else _place(value, str(entries), listed)
    other = places.pop(OTHER, None)
    groups = Groups(str(entry.per), places, len(own), other)
    found: dict[bytes, dict[int, Rule]] = {}
    for number, value in enumerate(own):
        counts: dict[bytes, int] = {}
        entries = rules[value]
        for rule in (each for one in ([entries] if isinstance(entries, str) else entries) for each in rules_of(one)):
            if isinstance(rule, GroupedRule):
                raise ValueError(
                    f"the rules of {value!r} are single rules and sets, not a set with rules for each language. Write "
                    "that set alone, with changes: {set: fineweb2, other: keep, override: {en: {words: {min: 30}}}}"
                )
            same = _key_of(rule)
            counts[same] = counts.get(same, 0) + 1
            found.setdefault(b"%d %b" % (counts[same], same), {})[number] = rule
    merged: list[Rule] = [_merged(groups, by_group) for by_group in found.values()]
    return (*_removed(groups, {other, *places.values()}), *merged)


def values_with_rules(rules: Mapping[str, Any], sets: Container[str]) -> list[str]:
    """Return the values that have their own rules, in the order of their groups."""
    return [
        value
        for value, entries in rules.items()
        if not isinstance(entries, str) or (entries in sets and entries not in rules)
    ]


def _check_languages(groups: Groups, values: Iterable[str]) -> None:
    """Raise ValueError for two labels of the same language, and for a label that looks like a misspelt language."""
    named = [value for value in values if value != OTHER] if groups.has_languages else []
    if same := same_language(named):
        raise ValueError(f"rules: {same[0]!r} and {same[1]!r} are the same language. List it once")
    for value in named:
        if parse_label(value) is None and "_" in value and (hint := near_language(value)):
            raise ValueError(f"rules: no language {value!r}{hint}")


def _place(value: str, target: str, groups: Groups) -> int:
    if target == KEEP:
        return groups.count
    if target == REMOVE:
        return groups.count + 1
    if (found := groups.find(target)) is not None:
        return found
    hint = near_or_nothing(target, [*groups.numbers, KEEP, REMOVE])
    raise ValueError(
        f"{value!r} is {target!r}, which is no value with rules, no rule set, and neither {KEEP} nor {REMOVE}{hint}"
    )


def _key_of(rule: Rule) -> bytes:
    """Return a key of a rule. Rules with equal keys differ only in their bounds, or in lists of stop words, and can be
    merged."""
    content = msgspec.to_builtins(rule)
    left_out = BOUND_FIELDS if rule.has_bounds else ()
    if rule.listed is not None and rule.listed.as_ == STOP_WORD:  # one table has the words of all groups
        content["listed"] = STOP_WORD
    return msgspec.json.encode({name: value for name, value in content.items() if name not in left_out}, order="sorted")


def _merged(groups: Groups, by_group: Mapping[int, Rule]) -> GroupedRule:
    limits = no_limits(groups)
    for number, rule in by_group.items():
        limits[:, number] = rule.bounds
    first = next(iter(by_group.values()))
    is_stop_word = first.listed is not None and first.listed.as_ == STOP_WORD
    lists = {number: rule.listed for number, rule in by_group.items() if rule.listed is not None and is_stop_word}
    return rule_of_groups(groups, first, limits, lists=lists)


def _removed(groups: Groups, places: Iterable[int | None]) -> list[Rule]:
    if groups.count + 1 not in places:
        return []
    limits = no_limits(groups)
    limits[:, groups.count + 1] = -math.inf, math.inf
    subject = Rule(column=groups.column, in_=("",), reason=f"{OTHER}_{groups.column}")
    return [rule_of_groups(groups, subject, limits, chooses=True)]


def no_limits(groups: Groups) -> np.ndarray:
    """Return limits for a rule that no group has yet (all NaN)."""
    return np.full((2, groups.count + 2), np.nan)


def rule_of_groups(groups: Groups, subject: Rule, limits: np.ndarray, **more: Any) -> GroupedRule:
    """Return a rule of groups with the fields of the rule `subject`."""
    return GroupedRule(**msgspec.structs.asdict(subject), groups=groups, limits=limits, **more)


def _fields_of(rule: Rule) -> dict[str, Any]:
    return {name: getattr(rule, name) for name in Rule.__struct_fields__}
