# SPDX-License-Identifier: Apache-2.0
"""The grammar of rules (`docs/rules.md`), and the code that decides which documents break a rule.

A rule bounds a measure, a ratio of two measures, or a number in a column. Or it bounds the number of matches of a
regular expression, or of entries of a file that are found. Or it lists values of a column. A rule `any` has several
rules, of which one must hold. A rule with `per` and `rules` has rules for each value of a column. All bounds are
inclusive. A denominator counts as at least 1, so ratios of an empty document are 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from curation.base.errors import RecipeError
from curation.base.measures import highest_ratio, name_of
from curation.base.patterns import pattern_problem
from curation.base.records import TEXT
from curation.kernels.word_breaks import SCRIPTS, TABLE
from curation.rules.columns import (
    EXPECTED,
    count_matches,
    has_kind,
    is_among,
    kind_of,
    numbers_of,
    written_numbers,
)
from curation.rules.listed import OF_WORDS, STOP_WORD, Listed, check_listed, count_listed, count_stop_words

OFF = "off"
# Setting `words` -> the internal column that replaces `text` in rules on words. Real columns have no spaces in their
# names.
DIVIDED = {words: f"text divided into words by {words}" for words in (SCRIPTS, TABLE)}
NORMALIZED = {name: f"normalized {name}" for name in (TEXT, *DIVIDED.values())}
# `other` stands for the values of a column without own rules; `keep` and `remove` say what happens to documents
OTHER, KEEP, REMOVE = "other", "keep", "remove"
SHOWN_CHARACTERS = 60  # of a pattern or a value in a message
NOT_GIVEN: dict[str, float | None] = {  # the conditions of a rule
    "min": -math.inf, "max": math.inf,
    **dict.fromkeys(("in_", "not_in", "matches", "listed", "min_count", "max_count", "per")),
}  # fmt: skip
UNQUOTED = "YAML reads yes, no, on and off as true and false; quote them"


class Bounds(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, repr_omit_defaults=True):
    """New bounds that an override gives to a rule: `min`, `max` or both, finite numbers."""

    min: float | None = None
    max: float | None = None

    def __post_init__(self) -> None:
        if not self.given:
            raise ValueError(f"an override needs min, max, or {OFF}, which removes the rule")
        if not all(map(math.isfinite, self.given.values())):
            raise ValueError(f"min and max of an override must be finite; {OFF} removes the rule")

    @property
    def given(self) -> dict[str, float]:
        """The bounds that are set, by name."""
        return {name: value for name, value in (("min", self.min), ("max", self.max)) if value is not None}


class Rule(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, repr_omit_defaults=True,
    rename={"in_": "in", "any_": "any"},
):  # fmt: skip
    """A condition that kept documents satisfy, or a rule set with changes. One of these forms:

    measure, min, max       `min <= measure <= max`, for a measure of `curation.Measure`
    ratio, min, max         the same for `ratio[0] / max(1, ratio[1])`, with two measures
    column, min, max        the same for a number in a column, or written in a column of strings; a null, NaN or another
                            string is outside all bounds
    column, in_ (`in`)      the value is in this list of strings, numbers or truth values; a null is in no list
    column, not_in          the value is not in this list; a null is kept
    column, matches, min_count, max_count
                            bounds on the number of non-overlapping matches of an RE2 regular expression, in `text` by
                            default; a null is an empty text
    matches, per, min, max  bounds on the number of matches in `text`, divided by the measure `per`, at least 1
    column, listed, min_count, max_count
                            bounds on the number of different entries of a file that are found, in `text` by default; a
                            null has none
    listed, per, min, max   bounds on the number of words in `text` that a list has as `stop_word`, divided by the
                            measure `per`, at least 1
    any_ (`any`)            rules of which at least one must hold; no sets, and no `any` inside
    set, override           the rules of a set, by its name; `override` maps a rule, by reason or measure, to the bounds
                            to replace, or to `off`, which removes the rule
    set, per, other, group_override
                            the same for a set whose rules differ per language: `per` is the column, `other` what
                            becomes of values without rules, `group_override` an `override` of single values
    per, rules              rules for each value of the column `per`: `rules` maps a value, or `other` for all others
                            and nulls, to rules, `keep`, `remove`, or the value whose rules it takes

    reason                  name of the rule in `removed/` and in the report; default: the measure, `a_per_b` for a
                            ratio, the column, `<column>_matches`, `<column>_listed`, or the names in `any` with `_or_`

    Raises ValueError for bounds that remove no document or every document. No measure is below 0, and no ratio is above
    1 if its first measure counts a part of the second (`Measure.parts_of`).
    """

    measure: str = ""
    ratio: tuple[str, ...] = ()
    min: float = -math.inf
    max: float = math.inf
    reason: str = ""
    # None: not given. A run does not store it in its copy of the recipe.
    column: str | None = None
    in_: tuple[str | int | float | bool, ...] | None = None
    not_in: tuple[str | int | float | bool, ...] | None = None
    matches: str | None = None
    min_count: int | None = None
    max_count: int | None = None
    per: str | None = None
    listed: Listed | None = None
    any_: tuple[Rule, ...] | None = None
    set: str | None = None
    override: dict[str, Bounds | str | bool] | None = None
    rules: dict[str, str | list[str | Rule]] | None = None
    other: str | None = None
    group_override: dict[str, dict[str, Bounds | str | bool]] | None = None

    def __post_init__(self) -> None:
        on_column = self.column is not None or self.matches is not None or self.listed is not None
        others = sum(form is not None for form in (self.set, self.any_, self.rules))
        if (self.measure != "") + bool(self.ratio) + on_column + others != 1:  # a `Measure` may be 0
            raise ValueError(
                "give one of measure: NAME, ratio: [NAME, NAME], column: NAME, matches: PATTERN, listed: {file: FILE}, "
                "any: [RULE, RULE], set: NAME, and per: COLUMN with rules"
            )
        if self.override is not None and self.set is None:
            raise ValueError("override needs a set: {set: gopher, override: {words: {min: 100}}}")
        if self.set is None and (self.other is not None or self.group_override is not None):
            raise ValueError("other and group_override need a set: {set: fineweb2, other: keep}")
        if self.set is not None:
            self._check_set()
        elif self.any_ is not None:
            self._check_any()
        elif self.rules is not None:
            self._check_groups()
        elif on_column:
            self._check_column()
        else:
            self._check_measures()

    def _check_measures(self) -> None:
        if self.ratio and (isinstance(self.ratio, str) or len(self.ratio) != 2):
            raise ValueError(f"ratio takes two measures, [above, below], not {self.ratio!r}")
        if self.measure != "":
            _put(self, "measure", name_of(self.measure))
        _put(self, "ratio", tuple(name_of(name) for name in self.ratio))
        self._allow("a measure", "min", "max")
        self._check_bounds("min", "max")
        self._check_effect()

    def _check_effect(self) -> None:
        """Raise ValueError for a bound that removes no document or every document, whatever the texts are."""
        highest = highest_ratio(*self.ratio) if self.ratio else math.inf
        share = highest < math.inf
        if self.max < 0:
            bound, effect = "max", "removes everything"
        elif self.min > highest or self.min == math.inf:
            bound, effect = "min", "removes everything"
        elif highest < self.max < math.inf or (self.min <= 0 and self.max >= highest):
            bound, effect = "min" if self.max == math.inf else "max", "can never remove anything"
        else:
            return
        value, advice = getattr(self, bound), "Use a value in between" if share else "Use a finite value above it"
        if share and highest < value <= 100:
            advice = f"Write {value / 100:g} for {value:g} %"
        cause = f"{' is part of '.join(self.ratio)}, the ratio is between 0 and 1"
        if share and highest > 1:
            cause = f"{' per '.join(self.ratio)} is at most {highest:g}"
        if not share:
            cause = f"{' per '.join(self.measures)} is finite and never below 0"
        raise ValueError(f"{bound}: {value:g} {effect}: {cause}. {advice}")

    def _check_column(self) -> None:
        if self.column is None:
            _put(self, "column", TEXT)
        if not isinstance(self.column, str) or not self.column:
            raise ValueError(f"column must be the name of a column, not {self.column!r}")
        if self.matches is not None:
            if problem := pattern_problem(self.matches):
                raise ValueError(f"matches {shortened(self.matches)} {problem}")
            self._check_counts("matches", "documents that match")
        elif self.listed is not None:
            if isinstance(self.listed, dict):
                _put(self, "listed", msgspec.convert(self.listed, Listed))
            if self.per is not None and self.listed.as_ != STOP_WORD:
                raise ValueError(f"per divides the count of words, as: {STOP_WORD}, not as: {self.listed.as_}")
            self._check_counts("listed", "documents with an entry")
        elif self.in_ is not None:
            self._allow("in", "in_")
            _put(self, "in_", _checked_values("in", self.in_))
        elif self.not_in is not None:
            self._allow("not_in", "not_in")
            _put(self, "not_in", _checked_values("not_in", self.not_in))
        else:
            self._allow("a column", "min", "max")
            self._check_numbers()

    def _check_per(self) -> None:
        self._allow("per", "matches", "listed", "per", "min", "max")
        if self.column != TEXT:
            what = "matches" if self.matches is not None else "words"
            raise ValueError(f"per is a measure of {TEXT}, and {what} are counted in column {self.column!r}")
        _put(self, "per", name_of(self.per))
        self._check_bounds("min", "max")
        self._check_effect_on_counts("min", "max")

    def _check_numbers(self) -> None:
        if self.column == TEXT:
            raise ValueError(f"{TEXT} is not a number; give measure: NAME, or matches: PATTERN")
        if not self.conditions:
            raise ValueError(f"a rule on column {self.column!r} needs min or max, in, not_in, or matches")
        self._check_bounds("min", "max")
        if self.min == math.inf or self.max == -math.inf:
            raise ValueError(f"the bounds {self.min:g} and {self.max:g} remove everything; use finite ones")

    def _check_counts(self, condition: str, kept: str) -> None:
        if self.per is not None:
            self._check_per()
            return
        self._allow(condition, condition, "min_count", "max_count")
        if self.min_count is None and self.max_count is None:
            raise ValueError(f"{condition} needs bounds: min_count: 1 keeps {kept}, max_count: 0 keeps the others")
        self._check_effect_on_counts("min_count", "max_count")
        self._check_bounds("min_count", "max_count")

    def _check_effect_on_counts(self, lower: str, upper: str) -> None:
        """Raise ValueError for bounds that no count can break, or that every count breaks."""
        low, high = self.bounds
        if high < 0:
            raise ValueError(f"{upper}: {high:g} removes everything: a count is never below 0")
        if low <= 0 and high == math.inf:
            raise ValueError(f"{lower}: {low:g} can never remove anything: a count is never below 0")

    def _check_bounds(self, lower: str, upper: str) -> None:
        low, high = self.bounds
        if math.isnan(low) or math.isnan(high):
            raise ValueError(f"{lower} and {upper} must be numbers, not NaN")
        if low == -math.inf and high == math.inf:
            raise ValueError(f"a rule without {lower} and {upper} keeps everything; give at least one")
        if low > high:
            raise ValueError(f"{lower} {low} is above {upper} {high}: the rule would remove everything")

    def _check_any(self) -> None:
        self._allow("any")
        if not isinstance(self.any_, list | tuple) or not all(isinstance(rule, Rule) for rule in self.any_):
            raise ValueError(f"any takes a list of rules, not {shortened(self.any_)}")
        if len(self.any_) < 2:
            raise ValueError(f"any needs two rules or more, not {len(self.any_)}; a rule alone needs no any")
        for rule in self.any_:
            if rule.set is not None or rule.any_ is not None or rule.rules is not None:
                kind = f"the set {rule.set}" if rule.set is not None else "any" if rule.any_ else "rules per column"
                raise ValueError(f"any takes single rules, not {kind}. Write the rules of a set one by one")
            if rule.reason:
                raise ValueError(f"reason {rule.reason!r} has no meaning inside any; give any a reason")
        _put(self, "any_", tuple(self.any_))

    def _check_set(self) -> None:
        if self.reason:
            raise ValueError("a set uses the reasons of its rules; remove reason")
        self._allow("a set", "per")
        if not isinstance(self.override, dict | None):
            raise ValueError(f"override must map rules to bounds, not {self.override!r}")
        if self.override is not None:
            own, by_value = divided_override(self.override)
            _put(self, "override", {key: _checked_change(key, change) for key, change in own.items()})
            if by_value:
                _put(self, "group_override", {**(self.group_override or {}), **by_value})
        if self.group_override is not None:
            changes = {
                value: {key: _checked_change(key, change) for key, change in rules.items()}
                for value, rules in self.group_override.items()
            }
            _put(self, "group_override", changes)

    def _check_groups(self) -> None:
        self._allow("rules per column", "per")
        if self.reason:
            raise ValueError("the rules of a column have reasons of their own; remove reason")
        if not isinstance(self.per, str) or self.per in ("", TEXT):
            raise ValueError(f"rules for each value of a column need per: COLUMN, not {self.per!r}")
        groups = self.rules if isinstance(self.rules, dict) else {}
        if not groups.keys() - {OTHER}:
            raise ValueError("rules of per: COLUMN map a value of the column to rules: {deu_Latn: {words: {min: 50}}}")
        for value, entries in groups.items():
            for entry in [] if isinstance(entries, str) else entries:
                if isinstance(entry, Rule) and entry.rules is not None:
                    raise ValueError(f"the rules of {value!r} are single rules and sets, not rules per column")

    def _allow(self, subject: str, *names: str) -> None:
        """Raise ValueError if the rule has another condition than `names`, those that fit its `subject`."""
        for name in self.conditions:
            if name not in names:
                raise ValueError(f"{name.rstrip('_')} has no meaning with {subject}. {_advice(subject, name)}")

    @property
    def conditions(self) -> tuple[str, ...]:
        """The Python names of the conditions that are given."""
        return tuple(name for name, empty in NOT_GIVEN.items() if getattr(self, name) != empty)

    @property
    def parts(self) -> tuple[Rule, ...]:
        """The rules of `any`, or the rule itself."""
        return self.any_ or (self,)

    @property
    def is_on_measures(self) -> bool:
        """Whether the rule bounds one measure or ratio."""
        return bool(self.measure or self.ratio)

    @property
    def has_bounds(self) -> bool:
        """Whether the rule decides by its own bounds, and not by a list of values or by other rules."""
        return not self.any_ and self.in_ is None and self.not_in is None

    @property
    def bounds_numbers(self) -> bool:
        """Whether the rule bounds the numbers in a column."""
        return self.column is not None and self.matches is None and self.listed is None and self.has_bounds

    @property
    def is_share(self) -> bool:
        """Whether the values of the rule are shares: from 0 to 1, or rarely above, such as those of overlapping
        n-grams."""
        return bool(self.ratio) and highest_ratio(*self.ratio) < math.inf

    @property
    def counts_words(self) -> bool:
        """Whether the rule counts words of `text` that are in a list. The stage's setting `words` defines words."""
        return self.column == TEXT and self.listed is not None and self.listed.as_ in OF_WORDS

    @property
    def measures(self) -> tuple[str, ...]:
        """The measures that the rule needs."""
        if self.any_:
            return tuple(dict.fromkeys(name for rule in self.any_ for name in rule.measures))
        if self.per is not None:
            return (self.per,)
        return (self.measure,) if self.measure else self.ratio

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the rule needs on the host; empty for a rule on measures."""
        if self.rules is not None:
            return (str(self.per),)
        return tuple(dict.fromkeys(rule.column for rule in self.parts if rule.column is not None))

    @property
    def name(self) -> str:
        """The name of the rule in `removed/` and in the report."""
        if self.any_:
            return self.reason or "_or_".join(rule.name for rule in self.any_)
        if self.reason or self.column is None:
            return self.reason or "_per_".join(self.measures)
        per = f"_per_{self.per}" if self.per else ""
        if self.listed is not None:
            return f"{self.column}_listed{per}"
        return self.column if self.matches is None else f"{self.column}_matches{per}"

    @property
    def keys(self) -> tuple[str, ...]:
        """The names by which overrides and settings refer to the rule: its reason, and its measure, ratio (`a/b`) or
        column. Rules that count only words that are not marks alone also have the names of rules on all words, such as
        `words`."""
        if self.any_:
            return (self.name,)
        subject = self.column or "/".join(self.measures)
        of_words = subject.replace("non_symbol_word", "word")
        return (self.name, subject) if of_words == subject else (self.name, subject, of_words)

    @property
    def bounds(self) -> tuple[float, float]:
        """The lower and the upper bound, both inclusive; infinite if not given. For `any`, the bounds of its first
        rule."""
        if self.any_:
            return self.any_[0].bounds
        if self.per is not None or (self.matches is None and self.listed is None):
            return self.min, self.max
        low, high = self.min_count, self.max_count
        return 0 if low is None else low, math.inf if high is None else high

    def describe(self) -> str:
        """Return the rule as one readable line."""
        return f"{self.name}: {self.condition}"

    @property
    def condition(self) -> str:
        """The condition that kept documents satisfy, as readable text."""
        if self.any_:
            return f"one of {'; '.join(rule.condition for rule in self.any_)}"
        low, high = self.bounds
        within = f"in [{low:g}, {high:g}]"
        if self.column is None:
            return f"{' / '.join(self.measures)} {within}"
        place = f"per {self.per}" if self.per else f"in column {self.column}"
        if self.matches is not None:
            return f"matches of {shortened(self.matches)} {place} {within}"
        if self.listed is not None:
            return f"{self.listed.describe()} {place} {within}"
        if self.has_bounds:
            return f"column {self.column} {within}"
        values, word = (self.in_, "in") if self.in_ is not None else (self.not_in or (), "not in")
        return f"column {self.column} {word} {', '.join(map(shortened, values))}"

    def of_group(self, number: int) -> Rule | None:
        """Return the rule with the bounds for a group of documents; None for a group without the rule. By default, all
        groups have the same rule."""
        return self

    def values(self, measures: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return the measure or the ratio of each document, float64."""
        if self.measure:
            return measures[self.measure].astype(np.float64)
        above, below = (measures[name].astype(np.float64) for name in self.ratio)
        return above / np.maximum(below, 1.0)

    def check_type(self, kind: pa.DataType) -> None:
        """Raise RecipeError if the rule cannot judge a column of this Arrow type."""
        listed = self.in_ if self.in_ is not None else self.not_in
        if self.listed is not None:
            check_listed(self.name, str(self.column), kind, self.listed)
            return
        if self.matches is not None:
            wanted, condition = "text", "matches"
        elif listed is not None:
            wanted, condition = kind_of(listed[0]), "in" if self.in_ is not None else "not_in"
        else:
            wanted, condition = "number", "a bound"
        if not has_kind(kind, wanted) and not (condition == "a bound" and has_kind(kind, "text")):
            hint = "; the columns of inputs are strings" if has_kind(kind, "text") else ""
            hint += f". {UNQUOTED}" if wanted == "truth" else ""
            where = f"rule {self.name}: column {self.column!r} holds {kind}"
            raise RecipeError(f"{where}, but {condition} is for {EXPECTED[wanted]}{hint}")

    def looks_for_words(self, columns: Mapping[str, pa.ChunkedArray]) -> bool:
        """Return whether the rule counts listed words in the texts of any of these rows."""
        return any(part.counts_words for part in self.parts)

    def judge(
        self, measures: Mapping[str, np.ndarray], columns: Mapping[str, pa.ChunkedArray]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return two arrays: the value of every document (float64; NaN for a null and for strings in a list), and
        whether the document breaks the rule (bool). The value of `any` is that of its first rule."""
        return self._judge_within(self.bounds, measures, columns)

    def _judge_within(
        self,
        bounds: tuple[float, float] | np.ndarray,
        measures: Mapping[str, np.ndarray],
        columns: Mapping[str, pa.ChunkedArray],
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the result of `judge` for the given bounds in place of the rule's own: two numbers, or float64[2,
        documents]."""
        if self.any_:
            judged = [rule.judge(measures, columns) for rule in self.any_]
            return judged[0][0], np.logical_and.reduce([breaks for _, breaks in judged])
        if self.column is None:
            values = self.values(measures)
        else:
            column = columns[self.column]
            self.check_type(column.type)
            if self.in_ is not None:
                return numbers_of(column), ~is_among(column, self.in_)
            if self.not_in is not None:
                return numbers_of(column), is_among(column, self.not_in)
            has_counts = self.listed is not None or self.matches is not None
            values = self._counts(columns) if has_counts else self._numbers(column)
            if self.per is not None:
                values = values / np.maximum(measures[self.per].astype(np.float64), 1.0)
        low, high = bounds
        return values, ~((values >= low) & (values <= high))  # NaN is outside all bounds

    def counts(self, columns: Mapping[str, pa.ChunkedArray]) -> np.ndarray:
        """Return the number of matches of the pattern, or of entries of the list, in each document; float64."""
        return self._counts(columns)

    def _counts(self, columns: Mapping[str, pa.ChunkedArray]) -> np.ndarray:
        column = columns[str(self.column)]
        if self.listed is not None:
            words, column = divided_text(columns) if self.counts_words else ("", column)
            if self.listed.as_ == STOP_WORD:
                return count_stop_words(column, {0: self.listed}, words=words)[self.per is not None]
            return count_listed(column, self.listed, words)
        return count_matches(column, str(self.matches))

    @staticmethod
    def _numbers(column: pa.ChunkedArray) -> np.ndarray:
        return numbers_of(column) if has_kind(column.type, "number") else written_numbers(column)


def _put(rule: Rule, name: str, value: Any) -> None:
    msgspec.structs.force_setattr(rule, name, value)


def _advice(subject: str, name: str) -> str:
    """Return advice about what to write in place of a condition that does not fit a subject."""
    if subject == "a set":
        return "Change a rule of the set with override: {words: {min: 100}}"
    if subject == "any":
        return "Give it in each rule"
    if subject == "rules per column":
        return "Give it in the rules of a value"
    if name == "per":
        return "It divides the count of matches: PATTERN, or of words of a list"
    if subject == "per":
        return f"Use {name.removesuffix('_count')}, of the count divided by the measure"
    if name in ("min_count", "max_count"):
        return f"It bounds the count of matches: PATTERN; for a number use {name.removesuffix('_count')}"
    if subject in ("matches", "listed") and name in ("min", "max"):
        return f"Use {name}_count{', or add per: MEASURE' * (subject == 'matches')}"
    return "A rule on strings needs column: NAME" if subject == "a measure" else "Use two rules"


def _checked_values(name: str, values: object) -> tuple[Any, ...]:
    """Return the values of `in` or `not_in`. Raises ValueError for an empty list, mixed kinds, or a value of an unknown
    kind."""
    if not isinstance(values, list | tuple | set | frozenset):
        raise ValueError(f"{name} takes a list of values, not {values!r}")
    if not values:
        effect = "removes everything" if name == "in" else "can never remove anything"
        raise ValueError(f"{name}: [] {effect}; list one or more values")
    kinds = {kind_of(value): value for value in values}
    if "" in kinds:
        raise ValueError(f"{name} takes strings, finite numbers or true and false, not {kinds['']!r}")
    if len(kinds) > 1:
        shown = " and ".join(repr(value) for value in kinds.values())
        hint = f". {UNQUOTED}" if "truth" in kinds else ""
        raise ValueError(f"{name} takes values of one kind, not {shown}{hint}")
    return tuple(values)


def divided_override(override: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Divide an override into changes for all documents, and changes for single values of the column of groups."""
    of_values = {key for key, change in override.items() if isinstance(change, dict) and _are_changes(change.values())}
    own = {key: change for key, change in override.items() if key not in of_values}
    return own, {key: change for key, change in override.items() if key in of_values}


def _are_changes(values: Iterable[Any]) -> bool:
    found = [*values]
    return bool(found) and all(isinstance(value, dict | Bounds) or value is False or value == OFF for value in found)


def _checked_change(key: str, change: object) -> Bounds | str:
    if change is False or change == OFF:  # YAML reads `off` as false
        return OFF
    if isinstance(change, Bounds):
        return change
    if isinstance(change, dict):
        return msgspec.convert(change, Bounds)
    raise ValueError(f"override of {key} must be {{min: }}, {{max: }} or {OFF}, not {change!r}")


def divided_text(columns: Mapping[str, pa.ChunkedArray]) -> tuple[str, pa.ChunkedArray]:
    """Return the setting `words` that defines a word ("" if spaces separate words), and the texts with spaces between
    words."""
    words = next((words for words, name in DIVIDED.items() if name in columns), "")
    return words, columns[DIVIDED[words] if words else TEXT]


def shortened(value: object) -> str:
    """Return a value for a message, cut to SHOWN_CHARACTERS."""
    shown = repr(value)
    return shown if len(shown) <= SHOWN_CHARACTERS else f"{shown[:SHOWN_CHARACTERS]}..."
