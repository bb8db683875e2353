# SPDX-License-Identifier: Apache-2.0
"""Rules for each value of a column, such as the bounds of each language.

Rules of all groups that differ only in bounds are one rule with an array of bounds: a document costs one look-up per
rule, whatever the number of groups. Groups are numbered; the two numbers after the last one are those of documents
without rules, and of documents to remove.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curation.base.errors import RecipeError, counted, near_or_nothing
from curation.base.records import TEXT
from curation.rules.columns import has_kind
from curation.rules.grammar import DIVIDED, KEEP, NORMALIZED, OTHER, REMOVE, Rule, divided_text
from curation.rules.languages import near_language, parse_label, same_language
from curation.rules.listed import STOP_WORD, Listed, count_stop_words

LANGUAGE = "lang"  # in the name of a column of languages
SHOWN_VALUES = 5  # of a column, in a message
BOUND_FIELDS = ("min", "max", "min_count", "max_count")
ADVICE = f"List each in rules, or give {OTHER}: {KEEP}, {REMOVE}, a listed value, or rules"
NO_LIST = np.int32(2**31 - 1)
EMPTY: tuple[Any, np.ndarray] = (None, np.zeros(0, np.int32))

RulesOf = Callable[[str | Rule], Sequence[Rule]]


class Groups:
    """The groups of the rows of a column.

    column   name of the column
    numbers  value -> number of its group
    count    number of groups
    other    the group of other values and of nulls; None: they are errors
    """

    def __init__(self, column: str, numbers: Mapping[str, int], count: int, other: int | None) -> None:
        self.column, self.numbers, self.count, self.other = column, numbers, count, other
        self.has_languages = LANGUAGE in column.lower()
        self._last = EMPTY  # rules judge the same column one after another

    def place(self, value: str | None) -> int | None:
        """Return the group of a value; None for one without."""
        found = None if value is None else self.find(value)
        return self.other if found is None else found

    def find(self, value: str) -> int | None:
        """Return the group that lists a value, in a column of languages in any form of its label; None without one."""
        if value in self.numbers or not self.has_languages or (language := parse_label(value)) is None:
            return self.numbers.get(value)
        return self._languages.get((language.code, language.script), self._languages.get((language.code, "")))

    def name(self, number: int) -> str:
        """Return the values that a group lists, and `other` if it has all others."""
        return _first([*self._values.get(number, []), *([OTHER] if self.other == number else [])])

    @property
    def has_others(self) -> bool:
        """Whether values that no group lists have rules of their own."""
        return self.other is not None and self.other < self.count and self.value(self.other) == OTHER

    def value(self, number: int) -> str:
        """Return the first value that a group lists; `other` for a group that lists none."""
        return next(iter(self._values.get(number, [])), OTHER)

    @cached_property
    def _values(self) -> dict[int, list[str]]:
        """group -> the values that it lists."""
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

    def numbers_of(self, column: pa.ChunkedArray) -> np.ndarray:
        """Return the group of each row. RecipeError for values without one."""
        last, numbers = self._last
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
        """Raise RecipeError for values without rules among those that a stage can write, and if it can write none of
        those with rules."""
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
        """Return the values of the column as strings. RecipeError for a column of another type."""
        kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        if not (has_kind(kind, "text") or has_kind(kind, "truth") or pa.types.is_integer(kind)):
            raise RecipeError(
                f"rules per {self.column}: the column holds {kind}; expected strings, integers, or true and false"
            )
        return column.cast(kind).cast(pa.large_string())


class GroupedRule(Rule, frozen=True, kw_only=True, eq=False):
    """A rule of several groups.

    template  the rule of the first group that has it: its subject, reason and, if it has no bounds, its conditions
    low, high  float64, inclusive bounds by group, infinite where there is none
    member    bool, by group: whether it has the rule
    normalized  whether it judges the normalized texts, where the columns have them (`curation.stages.rows.normalized`)
    """

    chooses: ClassVar[bool] = False  # whether the value of the column alone decides

    groups: Groups
    template: Rule
    low: np.ndarray
    high: np.ndarray
    member: np.ndarray
    normalized: bool = False

    def __post_init__(self) -> None:
        """The template is checked."""

    @property
    def conditions(self) -> tuple[str, ...]:
        if not self.has_bounds:
            return self.template.conditions
        return tuple(name for name, side in (("min", self.low), ("max", self.high)) if np.isfinite(side).any())

    @property
    def has_bounds(self) -> bool:
        """Whether only bounds decide."""
        return not self.any_ and self.in_ is None and self.not_in is None

    @property
    def is_on_measures(self) -> bool:
        return False  # one histogram would mix the groups

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((self.groups.column, *self.template.columns)))

    @property
    def name(self) -> str:
        return self.template.name

    @property
    def keys(self) -> tuple[str, ...]:
        return self.template.keys

    @property
    def bounds(self) -> tuple[float, float]:
        """Infinite: `broken_bounds` has those of single rows."""
        return -math.inf, math.inf

    def of_group(self, number: int) -> Rule | None:
        """Return the rule with the bounds of a group; None for a group without the rule."""
        if not self.member[number]:
            return None
        return _RuleOfGroup(
            **_fields_of(self.template) | {"min": float(self.low[number]), "max": float(self.high[number])}
        )

    def describe(self) -> str:
        name = self.template.describe().rpartition(" in [")[0] if self.has_bounds else self.template.describe()
        return f"{name} {self._range()}"

    def _range(self) -> str:
        sides = (("at least", self.low), ("at most", self.high)) if self.has_bounds else ()
        found = [f"{word} {_range_of(side)}" for word, side in sides if np.isfinite(side).any()]
        groups = counted(int(np.count_nonzero(self.member)), "group")
        return f"{' and '.join(found)}, per {self.groups.column} ({groups})".removeprefix(", ")

    def looks_for_words(self, columns: Mapping[str, pa.ChunkedArray]) -> bool:
        wanted = any(part.counts_words for part in self.parts)
        return wanted and bool(self.member[self.groups.numbers_of(columns[self.groups.column])].any())

    def judge(
        self, measures: Mapping[str, np.ndarray], columns: Mapping[str, pa.ChunkedArray]
    ) -> tuple[np.ndarray, np.ndarray]:
        columns = self._judged(columns)
        numbers = self.groups.numbers_of(columns[self.groups.column])
        own = self.member[numbers]
        if not self.template.columns:
            values, breaks = self.template.judge(measures, columns)
        else:  # patterns and lists take time
            at = np.flatnonzero(own)
            counts_words = any(part.counts_words for part in self.template.parts)
            divided = [name for name in DIVIDED.values() if counts_words and name in columns]
            names = [*self.template.columns, *divided]
            part = {name: columns[name].filter(pa.array(own)) for name in names}  # `take` copies all chunks
            judged = self.template.judge({name: measures[name][at] for name in self.measures}, part)
            values, breaks = np.full(len(numbers), np.nan), np.zeros(len(numbers), bool)
            values[at], breaks[at] = judged
        if self.has_bounds:
            breaks = ~((values >= self.low[numbers]) & (values <= self.high[numbers]))
        return values, breaks & own

    def counts(self, columns: Mapping[str, pa.ChunkedArray]) -> np.ndarray:
        """As of any rule, in documents of groups with the rule; 0 in others."""
        own = self.member[self.groups.numbers_of(columns[self.groups.column])]
        return np.where(own, self.template.counts(self._judged(columns)), 0.0)

    def _judged(self, columns: Mapping[str, pa.ChunkedArray]) -> Mapping[str, pa.ChunkedArray]:
        """Return the columns with the texts that the rule judges."""
        if not self.normalized:
            return columns
        return {**columns, **{name: columns[key] for name, key in NORMALIZED.items() if key in columns}}

    def broken_bounds(self, columns: Mapping[str, pa.ChunkedArray], values: np.ndarray) -> np.ndarray:
        """Return the bound of its group that each value breaks, float64; NaN for none."""
        numbers = self.groups.numbers_of(columns[self.groups.column])
        low, high = self.low[numbers], self.high[numbers]
        return np.where(values < low, low, np.where(values > high, high, np.nan))

    def has(self, value: str) -> bool:
        """Whether a value of the column has the rule; "" for any of them. ValueError for an unknown value."""
        if not value:
            return True
        if self.groups.find(value) is None:
            raise ValueError(f"override: no rules of {value!r}{near_or_nothing(value, [*self.groups.numbers])}")
        return bool(self.member[self.groups.find(value)])

    def changed(self, key: str, bounds: Mapping[str, float] | None, value: str = "") -> GroupedRule:
        """Return the rule with other bounds, or without any (None), for the group of a value of the column, or for all
        groups (""). ValueError for bounds without an effect."""
        at = self.member if not value else np.arange(len(self.member)) == self.groups.find(value)
        sides = {"min": self.low, "max": self.high}
        if bounds is None:
            return msgspec.structs.replace(self, member=self.member & ~at)
        counts = self.template.min_count is not None or self.template.max_count is not None
        try:
            fields = {f"{name}_count" * counts or name: bound for name, bound in bounds.items()}
            msgspec.structs.replace(self.template, **fields)
        except ValueError as error:
            raise ValueError(f"override of {value or key}: {error}") from None
        sides |= {name: np.where(at, bound, sides[name]) for name, bound in bounds.items()}
        if (sides["min"] > sides["max"]).any():
            raise ValueError(f"override of {value or key}: the bounds of {key} would remove everything")
        return msgspec.structs.replace(self, low=sides["min"], high=sides["max"])


class _RuleOfGroup(Rule, frozen=True, kw_only=True, eq=False):
    """A rule of one group."""

    def __post_init__(self) -> None:
        """The rule of all groups is checked."""


class GroupedStopWords(GroupedRule, frozen=True, kw_only=True, eq=False):
    """A rule on stop words, of which each group has a list of its own.

    lists    group -> its list
    instead  a rule on the text that also keeps a document; None: only stop words do
    """

    lists: Mapping[int, Listed]
    instead: Rule | None = None

    @property
    def measures(self) -> tuple[str, ...]:
        return (*self.template.measures, *(self.instead.measures if self.instead else ()))

    @property
    def parts(self) -> tuple[Rule, ...]:
        """A rule for each list in a file, so that all of them are found."""
        files = [listed for listed in self.lists.values() if listed.file]
        return tuple(msgspec.structs.replace(self.template, listed=listed) for listed in files) or (self.template,)

    def describe(self) -> str:
        if len({*self.lists.values()}) == 1:
            return GroupedRule.describe(self)
        line = f"{self.name}: {'share' if self.per else 'number of different'} stop words, {self._range()}"
        return f"{line}, or {self.instead.describe().partition(': ')[2]}" if self.instead else line

    def judge(
        self, measures: Mapping[str, np.ndarray], columns: Mapping[str, pa.ChunkedArray]
    ) -> tuple[np.ndarray, np.ndarray]:
        columns = self._judged(columns)
        column = columns[str(self.column)]
        self.template.check_type(column.type)
        values = self.counts(columns)
        if self.per is not None:
            values = values / np.maximum(measures[self.per].astype(np.float64), 1.0)
        numbers = self.groups.numbers_of(columns[self.groups.column])
        within = (values >= self.low[numbers]) & (values <= self.high[numbers])
        breaks = ~within & self.member[numbers]
        if self.instead and breaks.any():  # few documents: a pattern takes more time than stop words
            at = np.flatnonzero(breaks)
            text = {TEXT: columns[TEXT].filter(pa.array(breaks))}
            breaks[at] = self.instead.judge({name: measures[name][at] for name in self.instead.measures}, text)[1]
        return values, breaks

    def counts(self, columns: Mapping[str, pa.ChunkedArray]) -> np.ndarray:
        columns = self._judged(columns)
        numbers = self.groups.numbers_of(columns[self.groups.column])
        numbers = np.where(self.member[numbers], numbers, NO_LIST)
        words, column = divided_text(columns) if self.counts_words else ("", columns[str(self.column)])
        found = count_stop_words(column, self.lists, numbers, words)
        return found[self.per is not None]


class RemovedOthers(GroupedRule, frozen=True, kw_only=True, eq=False):
    """The rule that removes documents of groups that are to be removed."""

    chooses: ClassVar[bool] = True

    def describe(self) -> str:
        return f"{self.name}: column {self.groups.column} has a value to keep"

    def judge(
        self, measures: Mapping[str, np.ndarray], columns: Mapping[str, pa.ChunkedArray]
    ) -> tuple[np.ndarray, np.ndarray]:
        numbers = self.groups.numbers_of(columns[self.groups.column])
        return np.full(len(numbers), np.nan), self.member[numbers]


def with_groups(rules: Sequence[GroupedRule], column: str | None, other: str | None) -> tuple[Rule, ...]:
    """Return the rules of a set for another column, and with what becomes of other values: `keep`, `remove` or a value.
    Rules that no group has any more are left out."""
    before = rules[0].groups
    place = None if other is None else _place(OTHER, other, before)
    groups = Groups(column or before.column, before.numbers, before.count, place)
    groups.has_languages = before.has_languages
    found = [msgspec.structs.replace(rule, groups=groups) for rule in rules if rule.member.any()]
    return (*_removed(groups, {place}), *found)


def of_different_groups(rules: Sequence[Rule]) -> bool:
    """Return whether these are rules of groups, of which no group has two."""
    members = [rule.member for rule in rules if isinstance(rule, GroupedRule)]
    return len(members) == len(rules) > 0 and bool(np.sum(members, axis=0).max() == 1)


def bounds_measures(rule: Rule) -> bool:
    """Return whether a rule bounds a measure or ratio, of all documents or in each of its groups."""
    return rule.template.is_on_measures if isinstance(rule, GroupedRule) else rule.is_on_measures


def groups_in(rules: Iterable[Rule]) -> list[Groups]:
    """Return the groups of rules, each once."""
    return list(dict.fromkeys(rule.groups for rule in rules if isinstance(rule, GroupedRule)))


def _first(shown: Sequence[str]) -> str:
    return ", ".join(shown[:SHOWN_VALUES]) + (", ..." if len(shown) > SHOWN_VALUES else "")


def _range_of(side: np.ndarray) -> str:
    finite = side[np.isfinite(side)]
    low, high = finite.min(), finite.max()
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"


def grouped_rules(entry: Rule, sets: Container[str], rules_of: RulesOf) -> tuple[Rule, ...]:
    """Return the rules of `per: COLUMN` with `rules`: each rule once for all its groups, in the order in which the
    groups list them.

    sets      names of rule sets
    rules_of  function that returns the rules of an entry

    ValueError for a text that is no set, no listed value, and neither `keep` nor `remove`.
    """
    rules = entry.rules or {}
    own = [value for value, entries in rules.items() if not isinstance(entries, str) or _is_set(entries, rules, sets)]
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


def _is_set(name: str, values: Container[str], sets: Container[str]) -> bool:
    return name in sets and name not in values


def _check_languages(groups: Groups, values: Iterable[str]) -> None:
    """Raise ValueError for two labels of one language, and for a label that is nearly one of a language."""
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
    """Rules with equal keys are one rule: they differ only in bounds."""
    content = msgspec.to_builtins(rule)
    bounded = not rule.any_ and rule.in_ is None and rule.not_in is None
    left_out = BOUND_FIELDS if bounded else ()
    if rule.listed is not None and rule.listed.as_ == STOP_WORD:  # one table has the words of all groups
        content["listed"] = STOP_WORD
    return msgspec.json.encode({name: value for name, value in content.items() if name not in left_out}, order="sorted")


def _merged(groups: Groups, by_group: Mapping[int, Rule]) -> GroupedRule:
    low, high = np.full(groups.count + 2, -math.inf), np.full(groups.count + 2, math.inf)
    member = np.zeros(groups.count + 2, bool)
    for number, rule in by_group.items():
        low[number], high[number] = rule.bounds
        member[number] = True
    template = next(iter(by_group.values()))
    if template.listed is not None and template.listed.as_ == STOP_WORD:
        lists = {number: rule.listed for number, rule in by_group.items() if rule.listed is not None}
        return rule_of_groups(GroupedStopWords, groups, template, low, high, member, lists=lists)
    return rule_of_groups(GroupedRule, groups, template, low, high, member)


def _removed(groups: Groups, places: Iterable[int | None]) -> list[Rule]:
    if groups.count + 1 not in places:
        return []
    member = np.arange(groups.count + 2) == groups.count + 1
    template = Rule(column=groups.column, in_=("",), reason=f"{OTHER}_{groups.column}")
    bounds = np.full(len(member), -math.inf), np.full(len(member), math.inf)
    return [rule_of_groups(RemovedOthers, groups, template, *bounds, member)]


def rule_of_groups(
    kind: type[GroupedRule],
    groups: Groups,
    template: Rule,
    low: np.ndarray,
    high: np.ndarray,
    member: np.ndarray,
    **more: Any,
) -> GroupedRule:
    """Return a rule of groups that has the subject of a template."""
    return kind(**_fields_of(template), groups=groups, template=template, low=low, high=high, member=member, **more)


def _fields_of(template: Rule) -> dict[str, Any]:
    return {name: getattr(template, name) for name in Rule.__struct_fields__}
