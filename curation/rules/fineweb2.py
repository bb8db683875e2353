# SPDX-License-Identifier: Apache-2.0
"""The rule sets `fineweb2` and `gopher_multilingual`. They have bounds and stop words for 1,929 languages; for English,
those of Gopher and FineWeb.

Bounds and stop words are those of the configuration of FineWeb-2 (Penedo et al. 2025), in
`curation.rules.fineweb2_file`. Bounds that all languages share are those of its `fineweb-2-pipeline.py`. As in
datatrove, words that are only marks do not count for the number and the mean length of words.

Some of the lists of stop words do not fit prose, since bots wrote much of the text from which they were made. A
language label can also be wrong. So `gopher_multilingual`, which is this project's own set, also keeps text whose
sentences have end marks (docs/decisions/0124-judge-unknown-languages-by-sentences.md).
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import structs

from curation.base.measures import OF_NON_SYMBOLS
from curation.rules.fineweb2_file import COLUMNS, ENGLISH, configuration, languages
from curation.rules.grammar import Rule
from curation.rules.groups import GroupedRule, Groups, rule_of_groups
from curation.rules.languages import VOWEL_MARKS
from curation.rules.listed import STOP_WORD, Listed

COLUMN = "language"
# Reason -> column of bounds by language; the other rules have one bound for all languages, or are only for English
REASONS = {
    "duplicate_lines": "dup_line_frac",
    **{f"top_{size}gram": f"top_{size}_grams" for size in (2, 3, 4)},
    **{f"duplicate_{size}grams": f"dup_{size}_grams" for size in range(5, 11)},
    "too_few_punctuated_lines": "line_punct_thr",
    "too_many_newlines": "new_line_ratio",
    "words_too_short": "min_avg_word_length",
    "words_too_long": "max_avg_word_length",
    "too_few_words_with_letter": "max_non_alpha_words_ratio",
}
OFF_AT_ZERO = ("dup_line_frac", "line_punct_thr", "min_avg_word_length")
SHARED = (
    "too_few_words", "too_many_words", "too_many_hash_signs", "too_many_ellipses", "too_many_bullet_lines",
    "too_many_ellipsis_lines",
)  # fmt: skip
DUPLICATE_CHARACTERS = (
    ("duplicate_line_characters", "line_characters"),
    ("duplicate_prose_line_characters", "prose_line_characters"),
)
MAX_DUPLICATE_CHARACTERS = 0.1
STOP_WORDS, PUNCTUATED = "stop_words", "too_few_punctuated_lines"
UNKNOWN = "und"  # code of ISO 639-3 for the group of documents whose language is unknown
SENTENCE_ENDS = "too_few_sentence_ends"
# Minimum number of sentence ends per word. It is one per 50 words if stop words contradict the label, and one per 100
# without a label.
MIN_ENDS, MIN_ENDS_OF_UNKNOWN = 0.02, 0.01
# Marks that end a sentence in all scripts, as in datatrove 0.10.1: hexadecimal code points and ranges.
END_MARKS = """
21 2E 3F 589 61D-61F 6D4 700-702 7F9 837 839 83D-83E 964-965 104A-104B 1362 1367-1368 166E 1735-1736 17D4-17D6
17D9-17DA 1803 1809 1944-1945 1AA8-1AAB 1B5A-1B5B 1B5E-1B5F 1B7D-1B7E 1C3B-1C3C 1C7E-1C7F 203C-203D 2047-2049
2E2E 2E3C 2E53-2E54 3002 A4FF A60E-A60F A6F3 A6F7 A876-A877 A8CE-A8CF A92F A9C8-A9C9 AA5D-AA5F AAF0-AAF1 ABEB
FE52 FE56-FE57 FF01 FF0E FF1F FF61 10A56-10A57 10F55-10F59 10F86-10F89 11047-11048 110BE-110C1 11141-11143
111C5-111C6 111CD 111DE-111DF 11238-11239 1123B-1123C 112A9 1144B-1144C 115C2-115C3 115C9-115D7 11641-11642
1173C-1173E 11944 11946 11A42-11A43 11A9B-11A9C 11C41-11C42 11EF7-11EF8 11F43-11F44 16A6E-16A6F 16AF5
16B37-16B38 16B44 16E98 1BC9F 1DA88
"""
MARKS = "".join("-".join(rf"\x{{{code}}}" for code in codes.split("-")) for codes in END_MARKS.split())
# Two letters must precede a mark, so that `J.` and `3.` are not counted. Between them and the mark, Malayalam may have
# a zero-width character, and Hindi and French a space. White space or the end of the text must follow the mark, except
# in Chinese and Japanese, and after two Ethiopic word spaces, which stand for its full stop.
SENTENCE_END = (
    rf"[\p{{L}}\p{{M}}]{{2}}(?:\p{{Cf}}?\p{{Z}}?[{MARKS}][\p{{Pe}}\p{{Pf}}\"']*(?:[\s\p{{Z}}]|$)"
    r"|[\x{3002}\x{FF01}\x{FF1F}\x{FF61}]|\x{1361}\x{1361})"
)


def grouped_by_language(rules: Sequence[Rule], is_published: bool) -> tuple[GroupedRule, ...]:
    """Return the rules of Gopher and FineWeb with bounds per language.

    rules         the rules with the bounds for English
    is_published  true: as in FineWeb-2, words for English are defined as for other languages, and there is no group for
                  unknown languages. False: English has the unchanged rules. Documents of an unknown language have the
                  same, but with sentence ends in place of stop words
    """
    names = languages() | ({} if is_published else {UNKNOWN: len(languages())})
    groups = Groups(COLUMN, names, len(names), None)
    ends = None if is_published else Rule(matches=SENTENCE_END, per="words", min=MIN_ENDS, reason=SENTENCE_ENDS)
    found: list[GroupedRule] = []
    for rule in rules:
        grouped = _by_language(groups, _without_symbols(rule))
        found += [grouped] if is_published else _beside_english(groups, rule, grouped)
        if rule.name == PUNCTUATED:
            found.append(_punctuated(groups, rule))
        if rule.measure == STOP_WORDS:
            found.append(_stop_words(groups, rule, ends))
    if ends is None:
        return (*found,)
    return tuple(structs.replace(rule, normalized=True) for rule in (*found, _of_unknown(groups, ends)))


def _beside_english(groups: Groups, rule: Rule, grouped: GroupedRule) -> list[GroupedRule]:
    """Return `grouped` if it has the same measures as `rule`, the rule for English. Otherwise return two rules: `rule`
    for English and unknown languages, and `grouped` for all others."""
    if rule.measures == grouped.measures:
        return [grouped]
    is_english = np.arange(groups.count + 2) >= groups.numbers[ENGLISH]
    own, others = (np.where(side, grouped.limits, np.nan) for side in (is_english, ~is_english))
    return [rule_of_groups(groups, rule, own), structs.replace(grouped, limits=others)]


def _stop_words(groups: Groups, english: Rule, instead: Rule | None) -> GroupedRule:
    """Return the rule on the number of different stop words, for all languages but English. English has a measure for
    this number."""
    words = [tuple(each) for each in configuration().stop_words]
    if instead:  # `instead` is given for normalized texts, which have no vowel marks
        words = [
            tuple(dict.fromkeys([*each, *(re.sub(VOWEL_MARKS, "", word) or word for word in each)])) for each in words
        ]
    lists = {number: Listed(words=each, as_=STOP_WORD) for number, each in enumerate(words)}
    subject = Rule(listed=lists[0], min_count=int(english.min), reason=english.name)
    return _at_least(groups, subject, slice(groups.numbers[ENGLISH]), english.min, lists=lists, instead=instead)


def _of_unknown(groups: Groups, ends: Rule) -> GroupedRule:
    """Return the rule on sentence ends for documents of an unknown language."""
    return _at_least(groups, ends, groups.numbers[UNKNOWN], MIN_ENDS_OF_UNKNOWN)


def _without_symbols(rule: Rule) -> Rule:
    """Return the rule. If it bounds the number or the mean length of words, it counts only words that are not marks
    alone."""
    if rule.measure == "words":
        return structs.replace(rule, measure=OF_NON_SYMBOLS[0])
    if rule.ratio == ("word_characters", "words"):
        return structs.replace(rule, ratio=OF_NON_SYMBOLS[::-1])
    return rule


def _punctuated(groups: Groups, english: Rule) -> GroupedRule:
    """Return the rule on the share of lines that end a sentence, for all languages but English. The measure for English
    lacks the marks of India's scripts."""
    pattern = rf"(?m)[{MARKS}][\t\f\r\p{{Z}}]*$"
    subject = Rule(matches=pattern, per="text_lines", min=english.min, reason=PUNCTUATED)
    return _at_least(groups, subject, slice(groups.numbers[ENGLISH]), _column(REASONS[PUNCTUATED], -math.inf))


def _at_least(groups: Groups, subject: Rule, place: slice | int, least: Any, **more: Any) -> GroupedRule:
    """Return a rule with the lower bound `least` for the groups with the numbers `place`, and for no other group."""
    limits = _no_bounds(groups)
    limits[0, place] = least
    return _bounded(groups, subject, limits, **more)


def _by_language(groups: Groups, rule: Rule) -> GroupedRule:
    english = groups.numbers[ENGLISH]  # the group of unknown languages follows
    others, own = slice(english), slice(english, english + 1 if rule.measure == STOP_WORDS else groups.count)
    limits = _no_bounds(groups)
    limits[:, own] = np.array(rule.bounds)[:, None]
    if rule.name in REASONS and rule.name != PUNCTUATED:
        side = int(math.isinf(rule.min))
        limits[side, others] = _column(REASONS[rule.name], limits[side, -1])
    elif rule.name in SHARED:
        limits[:, others] = np.array(rule.bounds)[:, None]
    elif rule.ratio in DUPLICATE_CHARACTERS:
        limits[1, others] = MAX_DUPLICATE_CHARACTERS
    return _bounded(groups, rule, limits)


def _no_bounds(groups: Groups) -> np.ndarray:
    """Return infinite bounds for all groups, and for the two numbers after them (`curation.rules.groups`)."""
    return np.repeat([[-math.inf], [math.inf]], groups.count + 2, axis=1)


def _bounded(groups: Groups, subject: Rule, limits: np.ndarray, **more: Any) -> GroupedRule:
    """Return a rule for the groups that have a finite bound."""
    return rule_of_groups(groups, subject, np.where(np.isfinite(limits).any(axis=0), limits, np.nan), **more)


def _column(name: str, no_bound: float) -> np.ndarray:
    values = configuration().bounds[:, COLUMNS.index(name)]
    return np.where(values <= 0, no_bound, values) if name in OFF_AT_ZERO else values
