# SPDX-License-Identifier: Apache-2.0
"""Rule sets by name, and the verdict of rules on documents. The grammar of a rule is in `curation.rules.grammar`.

A document that breaks a rule is removed. The first rule that it breaks is the reason.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from curation.base.errors import counted, nearest
from curation.base.system.html_table import html_table
from curation.base.system.terminal import printable_line
from curation.rules.grammar import OFF, Bounds, Rule
from curation.rules.groups import (
    GroupedRule,
    grouped_rules,
    groups_in,
    of_different_groups,
    with_groups,
)

MAX_RULES = 32_767  # per stage, since the number of a rule has 15 bits
SHOWN_REASONS = 5  # reasons in the repr of a verdict
# Arrays of this size fit the CPU cache: 23 rules on a million documents take 64 ms CPU, without blocks 95
BLOCK_ROWS = 1 << 16


class Verdict(NamedTuple):
    """The rows of a frame to remove, with reasons.

    reason   integer per row: index of its reason in `reasons`, -1 for a kept row
    reasons  names of the reasons
    value    float64 per row: number shown with the reason, such as the measure; NaN for kept rows
    bounds   lowest and highest value that the rule of each reason keeps, inclusive; infinite for no bound. () if no
             reason has bounds
    notes    columns for `removed/`, which the stage's `notes` declares: name -> one value per removed row, in order
    broken   float64 per row: the bound that the row breaks, for reasons whose bounds differ between rows; NaN for other
             rows. None if there are no such reasons
    others   bool per row: whether it breaks a rule that does not bound a measure. None if there are no such rules
    """

    reason: np.ndarray
    reasons: tuple[str, ...]
    value: np.ndarray
    bounds: tuple[tuple[float, float], ...] = ()
    notes: Mapping[str, Any] = MappingProxyType({})
    broken: np.ndarray | None = None
    others: np.ndarray | None = None

    @classmethod
    def dropping(cls, gone: np.ndarray, reason: str, value: np.ndarray | float = 1.0) -> Verdict:
        """Return a verdict that removes the rows where `gone` (bool) is true, for one reason. `value` is a number per
        row, or a single number."""
        return cls(np.where(gone, 0, -1).astype(np.int16), (reason,), np.where(gone, value, np.nan))

    @property
    def kept(self) -> np.ndarray:
        """True for each kept row, bool."""
        return self.reason < 0

    def broken_bounds(self) -> np.ndarray:
        """Return the bound that each value breaks: float64, NaN for kept rows and reasons without bounds."""
        broken = np.full(len(self.reason), np.nan) if self.broken is None else self.broken.copy()
        if self.bounds:
            gone = np.flatnonzero(self.reason >= 0)
            low, high = np.array(self.bounds, np.float64)[self.reason[gone]].T
            value = self.value[gone]
            broken[gone] = np.where(value < low, low, np.where(value > high, high, broken[gone]))
        return broken

    def counts(self) -> dict[str, int]:
        """Return reason -> number of removed documents, including zeros, in the order of the rules. Equal reasons are
        counted together."""
        totals: dict[str, int] = {}
        numbers = np.bincount(self.reason[self.reason >= 0], minlength=len(self.reasons))
        for name, number in zip(self.reasons, numbers.tolist(), strict=True):
            totals[name] = totals.get(name, 0) + number
        return totals

    def __repr__(self) -> str:
        reasons = ", ".join(f"{printable_line(name)} {number:,}" for name, number in self._most())
        removed, judged = int(np.count_nonzero(~self.kept)), counted(len(self.reason), "document")
        return f"<verdict: {removed:,} of {judged} removed{': ' if removed else ''}{reasons}>"

    def _repr_html_(self) -> str:
        rows = [(name, number, f"{number / len(self.reason):.2%}") for name, number in self.counts().items() if number]
        removed, title = int(np.count_nonzero(~self.kept)), "documents removed"
        return html_table(f"{removed:,} of {len(self.reason):,} {title}", ("reason", "documents", "share"), rows)

    def _most(self) -> list[tuple[str, int]]:
        """Return the most frequent reasons, each with its number of documents, and the sum of these numbers for all
        other reasons."""
        counts = sorted(((name, number) for name, number in self.counts().items() if number), key=lambda each: -each[1])
        others = sum(number for _, number in counts[SHOWN_REASONS:])
        return counts[:SHOWN_REASONS] + ([("others", others)] if others else [])


def decide(
    rules: Sequence[Rule],
    measures: Mapping[str, np.ndarray],
    rows: int,
    columns: Mapping[str, pa.ChunkedArray] = MappingProxyType({}),
) -> Verdict:
    """Return the verdict: the first rule that each row breaks.

    measures  name -> int64, one per row, for every measure in the rules
    rows      number of rows
    columns   name -> values of every column in the rules

    Raises RecipeError if the type of a column does not fit its rule, and if no group of rules lists a value of a
    column.
    """
    reason = np.full(rows, -1, np.int16)
    value = np.full(rows, np.nan)
    for groups in (found := groups_in(rules)):
        groups.check(columns[groups.column])
    bound = np.full(rows, np.nan) if found else None
    others = None if all(rule.is_on_measures for rule in rules) else np.zeros(rows, bool)
    wanted = {name: measures[name] for name in dict.fromkeys(name for rule in rules for name in rule.measures)}
    for start in range(0, max(rows, 1), BLOCK_ROWS):
        block = slice(start, start + BLOCK_ROWS)
        measured = {name: values[block] for name, values in wanted.items()}
        cut = {name: column.slice(start, BLOCK_ROWS) for name, column in columns.items()}
        optional = (None if array is None else array[block] for array in (bound, others))
        _decide_block(rules, measured, cut, reason[block], value[block], *optional)
    names, bounds = tuple(rule.name for rule in rules), tuple(rule.bounds for rule in rules)
    return Verdict(reason, names, value, bounds, broken=bound, others=others)


def _decide_block(
    rules: Sequence[Rule],
    measures: Mapping[str, np.ndarray],
    columns: Mapping[str, pa.ChunkedArray],
    reason: np.ndarray,
    value: np.ndarray,
    bound: np.ndarray | None,
    others: np.ndarray | None,
) -> None:
    """Fill `reason`, `value`, `bound` and `others` for a block of rows."""
    for number, rule in enumerate(rules):
        values, breaks = rule.judge(measures, columns)
        if breaks.any():
            broken = breaks & (reason < 0)
            reason[broken] = number
            value[broken] = values[broken]
            if bound is not None and isinstance(rule, GroupedRule):
                bound[broken] = rule.broken_bounds(columns, values)[broken]
            if others is not None and not rule.is_on_measures:
                others |= breaks


def _bound(measure: str | tuple[str, str], reason: str, min: float = -math.inf, max: float = math.inf) -> Rule:
    if isinstance(measure, str):
        return Rule(measure=measure, reason=reason, min=min, max=max)
    return Rule(ratio=measure, reason=reason, min=min, max=max)


def _per(pattern: str, measure: str, reason: str, min: float = -math.inf, max: float = math.inf) -> Rule:
    return Rule(matches=pattern, per=measure, reason=reason, min=min, max=max)


# Rae et al. 2021 (Gopher), appendix A1.1. As in datatrove, the symbol rule is split in two. Words and lines
# are those of `curation.base.measures`.
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

# Rae et al. 2021, table A1. The 5- to 10-grams follow datatrove's walk, which does not count the first copy.
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

# datatrove's FineWebQualityFilter, except that a value on a bound is kept. Penedo et al. 2024 (FineWeb), section 3.6,
# has 0.1 for the characters of duplicate lines and no rule on newlines.
FINEWEB = (
    _bound(("punctuated_lines", "text_lines"), "too_few_punctuated_lines", min=0.12),
    _bound(("short_lines", "text_lines"), "too_many_short_lines", max=0.67),
    _bound(("duplicate_line_characters", "line_characters"), "duplicate_line_characters", max=0.01),
    _bound(("newlines", "words"), "too_many_newlines", max=0.3),
)

# The literal rules and reasons of the WET pipeline that the shipped recipe `common_crawl` reproduces.
COMMON_CRAWL = (
    _bound("words", "length", min=50, max=100_000),
    _bound(("word_characters", "words"), "word_len", min=3, max=10),
    _bound(("symbol_characters", "characters"), "symbol_ratio", max=0.10),
    _bound(("bullet_or_star_lines", "lines"), "too_bulleted", max=0.90),
    _bound(("ellipsis_character_lines", "lines"), "too_truncated", max=0.30),
    _bound(("top_2gram_count", "num_2grams"), "repeat_2gram", max=0.20),
    _bound(("top_3gram_count", "num_3grams"), "repeat_3gram", max=0.18),
)

# The literal heuristics of the pipeline that the shipped recipe `nemo` reproduces.
NEMO = (
    _bound("characters", "length", min=100, max=100_000),
    _bound("words", "word_count", min=20),
    _bound(("word_characters", "words"), "mean_word_length", min=3, max=15),
    _bound(("alphanumeric_characters", "characters"), "alphanumeric", min=0.7),
    _bound(("distinct_words", "words"), "distinct_words", min=0.2),
    _bound("function_words", "function_words", min=1),
)

# Rules of `gopher_multilingual` that replace Gopher's four rules on lines and paragraphs, and its rule on letters
# (docs/decisions/0128-weigh-repeated-lines-by-their-prose.md).
DUPLICATE_PROSE = _bound(
    ("duplicate_prose_line_characters", "prose_line_characters"), "duplicate_line_characters", max=0.1
)
WORDS_WITH_LETTER = _bound(("words_with_letter", "non_symbol_words"), "too_few_words_with_letter", min=0.8)

_TOP, _DUPLICATE = GOPHER_REPETITION[4:7], GOPHER_REPETITION[7:]

# The order matters, because the first broken rule is the reason. So rules with plain reasons come first: length, words
# and marks, repeated lines, repeated n-grams, stop words. In short texts, any n-gram is a large share
# (docs/decisions/0136-name-the-plainest-reason.md).
GOPHER_MULTILINGUAL = *GOPHER_QUALITY[:-2], WORDS_WITH_LETTER, DUPLICATE_PROSE, *_TOP, *_DUPLICATE, GOPHER_QUALITY[-1]


def _of_words(kind: str) -> tuple[Rule, ...]:
    """Return the rules on duplicate n-grams with `kind` in place of `duplicate` in their measures. Bounds are shares of
    the characters of words."""
    names = [rule.ratio[0].replace("duplicate", kind) for rule in _DUPLICATE]
    return tuple(
        _bound((name, "word_characters"), rule.reason, max=rule.max)
        for name, rule in zip(names, _DUPLICATE, strict=True)
    )


# Rules that NeMo Curator and DCLM-Baseline share
_REPEATED_PARTS = (
    _bound(("duplicate_lines", "text_lines"), "duplicate_lines", max=0.3),
    _bound(("duplicate_paragraphs", "paragraphs"), "duplicate_paragraphs", max=0.3),
    _bound(("duplicate_line_characters", "line_characters"), "duplicate_line_characters", max=0.2),
    _bound(("duplicate_paragraph_characters", "characters"), "duplicate_paragraph_characters", max=0.2),
)

# The English heuristics of NeMo Curator 1.4.0 (config/text/heuristic_filter_english_pipeline.yaml), without its rule on
# boilerplate, which is about paragraphs. docs/peer_recipes.md lists how this set and the next three differ from their
# originals.
CURATOR_ENGLISH = (
    _per(r"[^a-zA-Z0-9\n?!,.]", "characters", "non_alphanumeric", max=0.25),
    _per(
        r"(?:^|\s)(?:\.\.\.|\[\.\.\.\]|\(\.\.\.\)|…|\[…\]|-»|#(?:[^\s#]#)*)(?:\s|$)",
        "words", "too_many_symbols", max=0.1,
    ),
    _bound(("digit_characters", "characters"), "too_many_digits", max=0.15),
    _bound(("url_characters", "characters"), "too_many_urls", max=0.2),
    _bound(("space_characters", "characters"), "too_much_white_space", max=0.25),
    _bound(("bracket_characters", "characters"), "too_many_brackets", max=0.1),
    *_REPEATED_PARTS,
    _bound("words", "word_count", min=50, max=100_000),
    _per(r"(?m)[.?!\"'][\t\f\r\p{Z}]*$", "text_lines", "too_few_end_marks", min=0.15),
    _bound(("words_with_letter", "words"), "too_few_words_with_letter", min=0.8),
    _bound("stop_word_count", "too_few_stop_words", min=2),
    _bound(("word_characters", "words"), "mean_word_length", min=3, max=10),
    _bound("max_word_characters", "long_word", max=1000),
    _per(
        r"(?im)(?:\.\.\.|\[\.\.\.\]|\(\.\.\.\)|…|\[…\]|-»|read more(?:\.\.)?)[\t\f\r\p{Z}]*$",
        "text_lines", "too_many_ellipsis_lines", max=0.3,
    ),
    *_TOP,
    *_DUPLICATE,
    _per(r"(?m)^[\t\f\r\p{Z}]*[•‣⁃⁌⁍∙○●◘◦⦾⦿]", "text_lines", "too_many_bullet_lines", max=0.9),
)  # fmt: skip

# Gopher's rules as the mixer of Dolma 1.5 and 1.6 has them for Common Crawl, by the attributes of its tagger gopher_v1.
DOLMA = (
    _bound("words", "too_few_words", min=50),
    _bound("words", "too_many_words", max=100_000),
    _bound("median_word_characters", "median_word_length", min=3, max=10),
    _per(r"\S*[#…]\S*", "words", "too_many_symbols", max=0.1),
    _bound(("words_with_letter", "words"), "too_few_words_with_letter", min=0.8),
    _bound("stop_word_count", "too_few_stop_words", min=2),
    _per(r"(?m)^[*-]", "lines", "too_many_bullet_lines", max=0.9),
    _per(r"(?m)…$", "lines", "too_many_ellipsis_lines", max=0.3),
    _bound(("duplicate_lines", "text_lines"), "duplicate_lines", max=0.3),
    _bound(("duplicate_line_characters", "word_characters"), "duplicate_line_characters", max=0.3),
    *_TOP,
    *_of_words("duplicate"),
)

# The document rules of DCLM-Baseline (baselines_configs/dclm_baseline_refinedweb.yaml), after RefinedWeb.
DCLM_BASELINE = (
    _bound("words", "word_count", min=50, max=100_000),
    _bound(("word_characters", "words"), "mean_word_length", min=3, max=10),
    _per(r"#|\.\.\.|\. \. \.|…", "words", "too_many_symbols", max=0.1),
    _per(r"(?m)^[\t\f\r\p{Z}]*[●•*-]", "text_lines", "too_many_bullet_lines", max=0.9),
    _per(r"(?m)(?:\.\.\.|\. \. \.|…)[\t\f\r\p{Z}]*$", "text_lines", "too_many_ellipsis_lines", max=0.3),
    _bound(("words_with_letter", "words"), "too_few_words_with_letter", min=0.8),
    _bound("stop_word_count", "too_few_stop_words", min=2),
    *_REPEATED_PARTS,
    *_TOP,
    *_of_words("covered"),
)

# The filters of data-juicer's redpajama-c4-refine.yaml that need no model.
DATAJUICER_REDPAJAMA = (
    _bound(("alphanumeric_characters", "characters"), "alphanumeric", min=0.65, max=0.9),
    _bound(("characters", "lines"), "mean_line_length", min=10, max=3000),
    _bound(("repeated_10character_characters", "num_10characters"), "repeated_characters", max=0.3),
    _bound("max_line_characters", "longest_line", min=10, max=4000),
    _bound(("alphabetic_characters", "characters"), "special_characters", min=0.6),
    _bound("words", "word_count", min=20, max=10_000),
    _bound(("duplicate_10gram_characters", "word_characters"), "repeated_10grams", max=0.231),
)


class RuleSet(tuple[Rule, ...]):
    """The rules of a set, as a tuple with a name. It has a short repr, and is a table in notebooks."""

    name: str

    def __new__(cls, name: str, rules: Iterable[Rule]) -> RuleSet:
        rule_set = super().__new__(cls, rules)
        rule_set.name = name
        return rule_set

    def __getnewargs__(self) -> tuple[str, tuple[Rule, ...]]:
        return self.name, (*self,)

    def __repr__(self) -> str:
        return f"<rule set {self.name}: {counted(len(self), 'rule')}>"

    def _repr_html_(self) -> str:
        rows = [(rule.name, _subject(rule), *map(_bound_text, rule.bounds)) for rule in self]
        return html_table(f"rule set {self.name}", ("reason", "measure", "at least", "at most"), rows)


def _subject(rule: Rule) -> str:
    return f"{rule.matches} / {rule.per}" if rule.per else " / ".join(rule.measures)


def _bound_text(bound: float) -> str:
    return f"{bound:g}" if math.isfinite(bound) else ""


class RuleSets(dict[str, RuleSet]):
    """Name -> rule set. It has a short repr, and is a table in notebooks."""

    def __repr__(self) -> str:
        return f"<rule sets: {', '.join(f'{name} ({len(rules)})' for name, rules in self.items())}>"

    def _repr_html_(self) -> str:
        rows = [(name, len(rules), ", ".join(rule.name for rule in rules)) for name, rules in self.items()]
        return html_table("rule sets", ("name", "rules", "reasons"), rows)


RULES_BY_NAME: dict[str, tuple[Rule, ...]] = {
    "gopher_quality": GOPHER_QUALITY,
    "gopher_repetition": GOPHER_REPETITION,
    "gopher": GOPHER_REPETITION + GOPHER_QUALITY,
    "fineweb": FINEWEB,
    "common_crawl": COMMON_CRAWL,
    "nemo": NEMO,
    "curator_english": CURATOR_ENGLISH,
    "dolma": DOLMA,
    "dclm_baseline": DCLM_BASELINE,
    "datajuicer_redpajama": DATAJUICER_REDPAJAMA,
}
RULE_SETS = RuleSets({name: RuleSet(name, rules) for name, rules in RULES_BY_NAME.items()})

GROUP_SETS = ("fineweb2", "gopher_multilingual")  # sets whose rules differ per language
SET_NAMES = (*RULE_SETS, *GROUP_SETS)


def expand_rules(rules: str | Sequence[str | Rule]) -> tuple[Rule, ...]:
    """Return the rules for the name of a set, or for a list of names and rules. Raises ValueError for anything else."""
    expanded: list[Rule] = []
    if not isinstance(rules, str | list | tuple) or not all(isinstance(entry, str | Rule) for entry in rules):
        raise ValueError(f"rules must be the name of a set, or a list of names and Rules, not {rules!r}")
    for entry in [rules] if isinstance(rules, str) else rules:
        expanded.extend(rules_of_entry(entry))
    if len(expanded) > MAX_RULES:
        raise ValueError(
            f"rules has {len(expanded):,} rules, at most {MAX_RULES:,} are allowed. Put values into a file and use one "
            "rule: {column: url, listed: {file: FILE, as: value}, max_count: 0}"
        )
    return tuple(expanded)


def rules_of_entry(entry: str | Rule) -> Sequence[Rule]:
    """Return the rules of one entry of `rules`."""
    if isinstance(entry, str):
        return _named(entry)
    if entry.rules is not None:
        return grouped_rules(entry, SET_NAMES, rules_of_entry)
    return [entry] if entry.set is None else rules_of_set(entry)


def _named(name: str) -> tuple[Rule, ...]:
    if name in GROUP_SETS:
        return _of_languages(name)
    if name not in RULE_SETS:
        advice = "" if name.isidentifier() else ". Write a rule as a mapping: {words: {min: 50}}"
        raise ValueError(f"no rule set named {name!r}{nearest(name, SET_NAMES)}{advice}")
    return RULE_SETS[name]


@lru_cache(len(GROUP_SETS))
def _of_languages(name: str) -> tuple[Rule, ...]:
    from curation.rules.fineweb2 import grouped_by_language

    if name == "fineweb2":
        return grouped_by_language(GOPHER_REPETITION + FINEWEB + GOPHER_QUALITY, is_published=True)
    return grouped_by_language(GOPHER_MULTILINGUAL, is_published=False)


def rules_of_set(entry: Rule) -> Sequence[Rule]:
    """Return the rules of `entry.set` with the changes that the entry makes. Changes for all documents come before
    changes for a group. Raises ValueError if a key names no rule, or several rules of the same documents."""
    name = str(entry.set)
    for field in ("per", "other", "group_override"):
        if name not in GROUP_SETS and getattr(entry, field) is not None:
            where = f"override of {next(iter(entry.group_override or {}))}" if field == "group_override" else field
            raise ValueError(
                f"{where} has no meaning with {name}: only the rules of {' and '.join(GROUP_SETS)} have groups"
            )
    rules = [*_named(name)]
    for value, override in [("", entry.override or {}), *(entry.group_override or {}).items()]:
        for key, change in override.items():
            for condition, bound in change.given.items() if isinstance(change, Bounds) else [("", None)]:
                for number in _fits(rules, key, condition, value, name):
                    try:
                        rules[number : number + 1] = _changed(rules[number], condition, bound, value)
                    except ValueError as error:
                        raise ValueError(f"override of {value or key}: {error}") from None
    grouped = [rule for rule in rules if isinstance(rule, GroupedRule)]
    return with_groups(grouped, entry.per, entry.other) if grouped else rules


def _changed(rule: Rule, condition: str, bound: float | None, value: str) -> list[Rule]:
    """Return the rule with another bound, for the group of `value` or for all groups (""). If `bound` is None, the rule
    is left out."""
    if isinstance(rule, GroupedRule):
        return [rule.changed(condition, bound, value)]
    return [] if bound is None else [msgspec.structs.replace(rule, **{condition: bound})]


def _fits(rules: Sequence[Rule], key: str, condition: str, value: str, name: str) -> list[int]:
    """Return the index of the rule with a key, among the rules of a set. There are several indexes only if the rules
    are of different groups."""
    own = [number for number, rule in enumerate(rules) if not isinstance(rule, GroupedRule) or rule.has(value)]
    known = [rules[number] for number in own]
    fits = fitting(known, key, condition)
    if not fits:
        where = f"{name}{' of ' * bool(value)}{value}"
        raise ValueError(f"override: {where} has no rule {key!r}{nearest(key, keys_of(known))}")
    if len(fits) > 1 and not of_different_groups([known[fit] for fit in fits]):
        raise ValueError(f"override: {key!r} may be {reasons_of(known, fits)}; use one of these")
    return [own[fit] for fit in fits]


def numbers_by_key(rules: Sequence[Rule]) -> dict[str, list[int]]:
    """Return key -> the indexes of the rules that have this key."""
    found: dict[str, list[int]] = {}
    for number, rule in enumerate(rules):
        for key in dict.fromkeys(rule.keys):
            found.setdefault(key, []).append(number)
    return found


def fitting(rules: Sequence[Rule], key: str, condition: str = "", having: Sequence[int] | None = None) -> list[int]:
    """Return the indexes of the rules with `key` as reason, measure, ratio or column. If there are several, prefer
    those with the bound `condition`, then those with the reason `key`. `having` may have the indexes that
    `numbers_by_key` found for `key`."""
    fits = [number for number, rule in enumerate(rules) if key in rule.keys] if having is None else [*having]
    fits = [number for number in fits if condition in rules[number].conditions] or fits
    return ([number for number in fits if rules[number].name == key] or fits) if len(fits) > 1 else fits


def keys_of(rules: Iterable[Rule]) -> list[str]:
    """Return the keys by which overrides and settings name the rules."""
    return list(dict.fromkeys(key for rule in rules for key in rule.keys))


def reasons_of(rules: Sequence[Rule], numbers: Iterable[int]) -> str:
    """Return the reasons of the rules at `numbers`, for messages. If all have the same reason, return other keys of
    these rules."""
    keys = [*dict.fromkeys(rules[number].name for number in numbers)]
    return " or ".join(keys if len(keys) > 1 else dict.fromkeys(rules[number].keys[-1] for number in numbers))


__all__ = [
    "OFF", "RULE_SETS", "SET_NAMES", "Bounds", "Rule", "Verdict", "decide", "expand_rules", "fitting", "keys_of",
    "numbers_by_key", "reasons_of", "rules_of_entry",
]  # fmt: skip
