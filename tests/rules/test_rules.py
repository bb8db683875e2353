# SPDX-License-Identifier: Apache-2.0
"""Rule sets against the plain Python of `tests/oracle/rules.py`: the same reason and the same value."""

import pickle
import random
import re
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given

from curation.base.measures import Measure, is_part
from curation.recipes.recipe import convert_recipe
from curation.rules.decide import RULE_SETS, Rule, Verdict, decide, expand_rules
from tests.conftest import frame_of
from tests.corpus import NASTY, assigned_characters, document_lists, real_documents
from tests.oracle import rules as oracle

PLAIN_RULES = {
    "gopher_quality": oracle.gopher_quality,
    "gopher_repetition": oracle.gopher_repetition,
    "gopher": lambda text: oracle.gopher_repetition(text) or oracle.gopher_quality(text),
    "fineweb": oracle.fineweb,
    "common_crawl": oracle.common_crawl,
    "nemo": oracle.nemo,
    "curator_english": oracle.curator_english,
    "dolma": oracle.dolma,
    "dclm_baseline": oracle.dclm_baseline,
    "datajuicer_redpajama": oracle.datajuicer_redpajama,
}
SETS = sorted(PLAIN_RULES)


def decided(engine: ModuleType, rules: tuple[Rule, ...], texts: list[str]) -> Verdict:
    names = tuple(dict.fromkeys(name for rule in rules for name in rule.measures))
    measures = engine.measure(frame_of(engine, texts)["text"], names) if names else {}
    return decide(rules, measures, len(texts), {"text": pa.chunked_array([texts], pa.large_string())})


def verdicts(engine: ModuleType, rules: tuple[Rule, ...], texts: list[str]) -> list[tuple[str, float] | None]:
    found = decided(engine, rules, texts)
    rows = zip(found.reason.tolist(), found.value.tolist(), strict=True)
    return [(found.reasons[reason], value) if reason >= 0 else None for reason, value in rows]


def check(engine: ModuleType, name: str, texts: list[str]) -> list[tuple[str, float] | None]:
    found = verdicts(engine, RULE_SETS[name], texts)
    for text, verdict in zip(texts, found, strict=True):
        assert verdict == PLAIN_RULES[name](text), text[:200]
    return found


@pytest.mark.parametrize("name", SETS)
def test_nasty_documents(engine: ModuleType, name: str):
    check(engine, name, NASTY)


@pytest.mark.parametrize("name", SETS)
def test_real_documents(engine: ModuleType, name: str):
    found = check(engine, name, real_documents(120))
    assert None in found


@pytest.mark.parametrize("name", sorted({*SETS} - {"fineweb", "dolma", "dclm_baseline", "datajuicer_redpajama"}))
@given(texts=document_lists())
def test_made_documents(engine: ModuleType, name: str, texts: list[str]):
    check(engine, name, texts)


def words(count: int, start: int = 0) -> str:
    """Words that do not repeat, with stop words and function words between them."""
    return " ".join(
        f"word{chr(97 + k % 26)}{k} the of and that is" if k % 12 == 0 else f"term{k}x"
        for k in range(start, start + count)
    )


def good() -> str:
    return ". ".join(words(12, start) for start in range(0, 120, 12)) + "."


def unique(count: int, length: int) -> list[str]:
    return [f"{k:x}".rjust(length, "u") for k in range(count)]


def top_ngram(n: int, others: int) -> str:
    """Ten times the same n words of 8 letters, `others` unique ones behind each."""
    fill = iter(unique(10 * others, 8))
    phrase = [letter * 8 for letter in "abcd"[:n]]
    return " ".join(" ".join([*phrase, *(next(fill) for _ in range(others))]) for _ in range(10))


def repeated_ngrams(n: int, share: float) -> str:
    """Three sequences of n words of 11 letters, each twice, so that the second ones are `share` of the text."""
    total = round(3 * n * 11 / (share * 12))
    fill = unique(total - 6 * n, 11)
    phrases = [" ".join(f"{phrase}{k}".rjust(11, "p") for k in range(n)) for phrase in "abc"]
    per_gap = len(fill) // 6
    parts = [phrases[k % 3] + " " + " ".join(fill[k * per_gap : (k + 1) * per_gap]) for k in range(6)]
    return " ".join([*parts, *fill[6 * per_gap :]])


def letters(count: int, start: int = 0, size: int = 6) -> list[str]:
    """Different words of letters alone."""
    return ["".join(random.Random(k).choices("bcdfgklmnprstvz", k=size)) for k in range(start, start + count)]


def plain(count: int, start: int = 0) -> str:
    return " ".join(["the", "of", *letters(count, start)])


def copied(n: int, share: float) -> str:
    """Three sequences of n words, each twice, so that the second ones are `share` of the words; then stop words."""
    fill = letters(round(3 * n / share) - 6 * n, 500, 9)
    phrases = [" ".join(letters(n, 100 * k, 9)) for k in range(3)]
    gap = len(fill) // 6
    parts = [f"{phrases[k % 3]} {' '.join(fill[k * gap : (k + 1) * gap])}" for k in range(6)]
    return " ".join([*parts, *fill[6 * gap :]]) + "\nof the end."


def top_of(n: int, others: int) -> str:
    """Ten times the same n words, `others` different ones behind each; stop words on a line."""
    fill = iter(letters(10 * others, 500))
    phrase = letters(n)
    return " ".join(" ".join([*phrase, *(next(fill) for _ in range(others))]) for _ in range(10)) + "\nof the end."


PAIRS = "\n".join(first + second for first in "bcdfgk" for second in "lmnprs")
COPIES = {  # of lines and paragraphs, in the order of Curator and DCLM
    "duplicate_lines": "\n".join([plain(60), *["too few"] * 9, *letters(8)]),
    "duplicate_paragraphs": "\n\n".join(
        [*("\n".join(plain(3, 100 * k + 3 * j) for j in range(8)) for k in range(3)), *["it is of the"] * 3]
    ),
    "duplicate_line_characters": "\n".join([plain(60), plain(60), *letters(8)]),
}
PARAGRAPH = "one line of text that is not long"
FIRING = {
    "gopher_quality": {
        "too_few_words": words(10),
        "too_many_words": "the of and that " * 25_001,
        "words_too_short": "a of b the c d e f g h " * 10,
        "words_too_long": "the and " + " ".join("x" * 12 for _ in range(60)),
        "too_many_hash_signs": words(60) + " #" * 20,
        "too_many_ellipses": words(60) + " wait..." * 20,
        "too_many_bullet_lines": "\n".join("- " + words(4, k) for k in range(20)),
        "too_many_ellipsis_lines": "\n".join(words(16, 100 * k) + ("..." if k % 2 else "") for k in range(10)),
        "too_few_words_with_letter": words(30) + " 1234" * 30,
        "too_few_stop_words": " ".join(f"term{k}" for k in range(60)),
    },
    "gopher_repetition": {
        "duplicate_paragraphs": "\n\n".join([PARAGRAPH, words(40), PARAGRAPH, words(40, 50), PARAGRAPH, PARAGRAPH]),
        "duplicate_paragraph_characters": "\n\n".join([words(60), words(60), *(f"p{k} x" for k in range(8))]),
        "duplicate_lines": "\n".join([PARAGRAPH, words(40), PARAGRAPH, words(40, 50), PARAGRAPH, PARAGRAPH]),
        "duplicate_line_characters": "\n".join([words(60), words(60), *(f"p{k} x" for k in range(8))]),
        "top_2gram": " ".join(f"same pair t{k}" for k in range(30)),
        "top_3gram": top_ngram(3, 10),
        "top_4gram": top_ngram(4, 16),
        **{
            f"duplicate_{n}grams": repeated_ngrams(n, share)
            for n, share in ((5, 0.16), (6, 0.145), (7, 0.137), (8, 0.127), (9, 0.117), (10, 0.108))
        },
    },
    "common_crawl": {
        "length": words(5),
        "word_len": "a " * 60,
        "symbol_ratio": words(40) + " " + "#" * 100,
        "too_bulleted": "\n".join("* " + words(4, 10 * k) for k in range(20)),
        "too_truncated": "\n".join(words(8, 100 * k) + ("…" if k % 2 else "") for k in range(10)),
        "repeat_2gram": "left right " * 40,
        "repeat_3gram": " ".join(f"left right both {a} {b}" for a, b in zip(unique(12, 5), unique(12, 6), strict=True))
        + " x y z v",
    },
    "nemo": {
        "length": "the short one",
        "word_count": "the " + "x" * 120,
        "mean_word_length": "a " * 60,
        "alphanumeric": " ".join("the! ???---" for _ in range(20)),
        "distinct_words": "the same words again " * 20,
        "function_words": " ".join(f"term{k}" for k in range(40)),
    },
    "fineweb": {
        "too_few_punctuated_lines": "\n".join(words(8, 10 * k) for k in range(10)),
        "too_many_short_lines": "\n".join(f"line {k}." for k in range(10)),
        "duplicate_line_characters": "\n".join([words(10) + ".", words(10) + ".", words(10, 20) + "."]),
        "too_many_newlines": words(10) + " x" * 20 + "." + "\n" * 30,
    },
    "curator_english": {
        "non_alphanumeric": "one-two; " * 30,
        "too_many_symbols": " ".join(f"# {word}" for word in letters(30, 0, 12)),
        "too_many_digits": f"{plain(50)} {'12345' * 20}",
        "too_many_urls": f"{plain(30)} https://{'x' * 100}",
        "too_much_white_space": plain(50) + "\n" * 200,
        "too_many_brackets": " ".join(f"{word}[]" for word in letters(30, 0, 15)),
        **COPIES,
        "duplicate_paragraph_characters": "",
        "word_count": plain(10),
        "too_few_end_marks": plain(60),
        "too_few_words_with_letter": plain(60) + " !" * 30,
        "too_few_stop_words": " ".join(letters(60)) + ".",
        "mean_word_length": " ".join(["the of", *letters(60, 0, 12)]) + ".",
        "long_word": f"{plain(300)} {'x' * 1001}.",
        "too_many_ellipsis_lines": "\n".join(f"{plain(12, 20 * k)}{'.' * (1 + k % 2 * 2)}" for k in range(10)),
        "top_2gram": top_of(2, 6),
        "top_3gram": top_of(3, 12),
        "top_4gram": top_of(4, 19),
        **{f"duplicate_{n}grams": copied(n, (20 - n) / 100 * 1.19) for n in range(5, 11)},
        "too_many_bullet_lines": "\n".join(f"• {plain(12, 20 * k)}." for k in range(10)),
    },
    "dolma": {
        "too_few_words": words(10),
        "too_many_words": "the of and that " * 25_001,
        "median_word_length": " ".join(["the", "of", *letters(60, 0, 12)]),
        "too_many_symbols": words(60) + " a#b#" * 20,
        "too_few_words_with_letter": words(30) + " 1234" * 30,
        "too_few_stop_words": " ".join(letters(60)),
        "too_many_bullet_lines": "\n".join("* " + plain(4, 10 * k) for k in range(20)),
        "too_many_ellipsis_lines": "\n".join(plain(12, 20 * k) + ("…" if k < 5 else "") for k in range(15)),
        "duplicate_lines": COPIES["duplicate_lines"],
        "duplicate_line_characters": COPIES["duplicate_line_characters"],
        "top_2gram": top_of(2, 6),
        "top_3gram": top_of(3, 12),
        "top_4gram": top_of(4, 19),
        **{f"duplicate_{n}grams": copied(n, (20 - n) / 100 * 1.06) for n in range(5, 11)},
    },
    "dclm_baseline": {
        "word_count": plain(10),
        "mean_word_length": "a " * 60,
        "too_many_symbols": plain(60) + " #. . ." * 5,
        "too_many_bullet_lines": "\n".join("● " + plain(4, 10 * k) for k in range(20)),
        "too_many_ellipsis_lines": "\n".join(plain(12, 20 * k) + (" . . ." if k < 5 else "") for k in range(15)),
        "too_few_words_with_letter": plain(60) + " 1234" * 30,
        "too_few_stop_words": " ".join(letters(60)),
        **COPIES,
        "duplicate_paragraph_characters": "",
        "top_2gram": top_of(2, 6),
        "top_3gram": top_of(3, 12),
        "top_4gram": top_of(4, 19),
        **{f"duplicate_{n}grams": copied(n, (20.5 - n) / 200) for n in range(5, 11)},
    },
    "datajuicer_redpajama": {
        "alphanumeric": "the! ???---" * 20,
        "mean_line_length": plain(600),
        "repeated_characters": "word " * 60,
        "longest_line": f"{plain(600)}\na short line",
        "special_characters": " ".join(f"{1_000_000 + 7919 * k}" for k in range(60)),
        "word_count": plain(10),
        "repeated_10grams": copied(10, 0.25),
    },
}
FIRING["curator_english"]["duplicate_paragraph_characters"] = FIRING["dclm_baseline"][
    "duplicate_paragraph_characters"
] = "\n\n".join([PAIRS, "\n".join(letters(24, 0, 5)), PAIRS, "\n".join(["the", "of", *letters(22, 50, 5)])])


@pytest.mark.parametrize(("name", "reason"), [(name, reason) for name in FIRING for reason in FIRING[name]])
def test_every_reason_fires(engine: ModuleType, name: str, reason: str):
    text = FIRING[name][reason]
    ((fired, value),) = verdicts(engine, RULE_SETS[name], [text])
    assert fired == reason
    if name in PLAIN_RULES:
        assert (fired, value) == PLAIN_RULES[name](text)


def test_every_reason_has_a_document():
    for name, texts in FIRING.items():
        assert list(texts) == list(dict.fromkeys(rule.name for rule in RULE_SETS[name])), name
    assert RULE_SETS["gopher"] == RULE_SETS["gopher_repetition"] + RULE_SETS["gopher_quality"]
    assert {*RULE_SETS} == {*FIRING, "gopher"}


@pytest.mark.parametrize("name", RULE_SETS)
def test_a_good_document_stays(engine: ModuleType, name: str):
    text = "\n".join(good().split(". "))
    text = text.replace("\n", ".\n").translate(str.maketrans("0123456789", "bcdfghjklm"))
    assert verdicts(engine, RULE_SETS[name], [text]) == [None]


EMPTY = {
    "gopher": ("too_few_words", 0.0),
    "gopher_quality": ("too_few_words", 0.0),
    "gopher_repetition": None,
    "common_crawl": ("length", 0.0),
    "nemo": ("length", 0.0),
    "fineweb": ("too_few_punctuated_lines", 0.0),
    "curator_english": ("word_count", 0.0),
    "dolma": ("too_few_words", 0.0),
    "dclm_baseline": ("word_count", 0.0),
    "datajuicer_redpajama": ("alphanumeric", 0.0),
}


@pytest.mark.parametrize("name", RULE_SETS)
def test_empty_documents_are_decided_without_dividing_by_zero(engine: ModuleType, name: str):
    assert verdicts(engine, RULE_SETS[name], ["", ""]) == [EMPTY[name]] * 2
    assert verdicts(engine, RULE_SETS[name], []) == []


def test_bounds_are_inclusive_and_the_first_broken_rule_is_the_reason(engine: ModuleType):
    rules = (
        Rule(measure="words", min=2, max=3),
        Rule(ratio=("characters", "words"), max=2.0, reason="wide"),
        Rule(measure="characters", max=4),
    )
    texts = ["a", "a b", "a b c", "a b c d", "aa bb", "a", "abcdef g"]
    found = decided(engine, rules, texts)
    assert found.reasons == ("words", "wide", "characters")
    assert verdicts(engine, rules, texts) == [
        ("words", 1.0), None, ("characters", 5.0), ("words", 4.0), ("wide", 2.5), ("words", 1.0), ("wide", 4.0),
    ]  # fmt: skip
    assert found.counts() == {"words": 3, "wide": 2, "characters": 1}
    assert found.kept.tolist() == [False, True] + [False] * 5
    assert np.isnan(found.value[1])


def test_matches_are_divided_by_a_measure(engine: ModuleType):
    rules = (Rule(matches=r"\S*#\S*", per="words", max=0.25), Rule(matches="(?m)!$", per="lines", min=0.5))
    assert [rule.name for rule in rules] == ["text_matches_per_words", "text_matches_per_lines"]
    assert rules[0].keys == ("text_matches_per_words", "text") and "matches of" in rules[0].describe()
    texts = ["#a b#c# d !", "#a b c d!\nno", "#a b c d!\nno\nno", "", "!"]
    assert verdicts(engine, rules, texts) == [
        ("text_matches_per_words", 0.5), None, ("text_matches_per_lines", 1 / 3), ("text_matches_per_lines", 0.0), None,
    ]  # fmt: skip
    changed = expand_rules([Rule(set="dolma", override={"too_many_symbols": {"max": 0.5}})])
    assert [rule.max for rule in changed if rule.name == "too_many_symbols"] == [0.5]


HASH = {"matches": "#", "per": "words"}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (HASH | {"per": "wordz", "max": 0.2}, "no measure named 'wordz'; did you mean words?"),
        (HASH, "a rule without min and max keeps everything; give at least one"),
        (HASH | {"max_count": 2}, "max_count has no meaning with per. Use max, of the count divided by the measure"),
        (HASH | {"max": -1}, "max: -1 removes everything: a count is never below 0"),
        (HASH | {"min": 0}, "min: 0 can never remove anything: a count is never below 0"),
        (HASH | {"column": "url", "max": 1}, "per is a measure of text, and matches are counted in column 'url'"),
        ({"measure": "words", "per": "lines", "max": 2},
         "per has no meaning with a measure. It divides the count of matches: PATTERN, or of words of a list"),
        ({"matches": "#", "max": 2}, "max has no meaning with matches. Use max_count, or add per: MEASURE"),
    ],
)  # fmt: skip
def test_a_wrong_rule_on_matches_per_measure_is_refused(settings: dict[str, Any], message: str):
    with pytest.raises(ValueError, match=rf"^{re.escape(message)}$"):
        Rule(**settings)


def test_rules_of_one_name_are_counted_together(engine: ModuleType):
    rules = (Rule(measure="words", min=2, reason="size"), Rule(measure="characters", max=3, reason="size"))
    assert decided(engine, rules, ["a", "a b", "a b c"]).counts() == {"size": 2}


def test_sets_and_free_rules_mix():
    free = Rule(measure="words", min=3)
    assert expand_rules(["nemo", free]) == (*RULE_SETS["nemo"], free)
    with pytest.raises(ValueError, match="no rule set named 'gofer'; did you mean gopher"):
        expand_rules(["nemo", "gofer"])
    for wrong in (free, {"measure": "words"}, [["nemo"]], [{"measure": "words"}], 5):
        with pytest.raises(ValueError, match="rules must be the name of a set, or a list of names and Rules, not"):
            expand_rules(wrong)


def test_measures_of_a_rule_may_be_members():
    assert Rule(measure=Measure.bytes, min=1) == Rule(measure="bytes", min=1)
    assert Rule(ratio=[Measure.bytes, "words"], min=1) == Rule(ratio=("bytes", "words"), min=1)
    for wrong in (["words"], 2, None):
        with pytest.raises(ValueError, match="no measure named"):
            Rule(measure=wrong, min=1)
    with pytest.raises(ValueError, match=r"ratio takes two measures, .* not 'ab'"):
        Rule(ratio="ab", min=1)


def test_a_bound_that_is_no_number_is_refused():
    with pytest.raises(ValueError, match="min and max must be numbers, not NaN"):
        Rule(measure="words", min=float("nan"))


# Bounds that decide nothing


NAMES = tuple(measure.name for measure in Measure)
SHARES = [(part, whole) for part in NAMES for whole in NAMES if is_part(part, whole)]
FIVE_WORDS = "a b. c d e "


def check_parts(engine: ModuleType, texts: list[str]) -> None:
    found = engine.measure(frame_of(engine, texts)["text"], NAMES)
    for part, whole in SHARES:
        larger = np.flatnonzero(found[part] > found[whole])
        assert not len(larger), f"{part} is above {whole} in {texts[larger[0]][:200]!r}"


def test_a_part_is_never_above_its_whole(engine: ModuleType):
    assert {name for measure in Measure for name in measure.parts_of} <= {*NAMES}
    check_parts(engine, [*NASTY, *real_documents(60), *(FIVE_WORDS * count for count in range(8))])
    check_parts(engine, list(assigned_characters()))


@given(texts=document_lists())
def test_a_part_is_never_above_its_whole_in_made_texts(engine: ModuleType, texts: list[str]):
    check_parts(engine, texts)


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [
        ("top_2gram_characters", "characters", "a a a a"),  # three times "a a", which overlap: 9 of 7
        ("uppercase_characters", "alphabetic_characters", "\u24b6"),  # an upper-case symbol
        ("newlines", "line_characters", "\n"),
        ("duplicate_paragraph_characters", "line_characters", "a\nb\n\n" * 4),  # line ends within count
        ("lines", "text_lines", "\n"),
        ("bytes", "characters", "é"),
    ],
)
def test_what_is_no_part(engine: ModuleType, part: str, whole: str, text: str):
    found = engine.measure(frame_of(engine, [text, ""])["text"], NAMES)
    assert found[part][0] > found[whole][0] and not is_part(part, whole)


NOTHING, EVERYTHING = "can never remove anything", "removes everything"
POSITIVE = "is finite and never below 0. Use a finite value above it"
SHARE = "bullet_lines is part of lines, the ratio is between 0 and 1"
RATIO, WORDS = {"ratio": ("bullet_lines", "lines")}, {"measure": "words"}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (RATIO | {"max": 30}, f"max: 30 {NOTHING}: {SHARE}. Write 0.3 for 30 %"),
        (RATIO | {"max": 2.5}, f"max: 2.5 {NOTHING}: {SHARE}. Write 0.025 for 2.5 %"),
        (RATIO | {"max": 300}, f"max: 300 {NOTHING}: {SHARE}. Use a value in between"),
        (RATIO | {"max": 1}, f"max: 1 {NOTHING}: {SHARE}. Use a value in between"),
        (RATIO | {"min": 0, "max": 1}, f"max: 1 {NOTHING}: {SHARE}. Use a value in between"),
        (RATIO | {"min": 0}, f"min: 0 {NOTHING}: {SHARE}. Use a value in between"),
        (RATIO | {"min": 0.1, "max": 90}, f"max: 90 {NOTHING}: {SHARE}. Write 0.9 for 90 %"),
        (RATIO | {"min": 10, "max": 90}, f"min: 10 {EVERYTHING}: {SHARE}. Write 0.1 for 10 %"),
        (RATIO | {"min": 1.5}, f"min: 1.5 {EVERYTHING}: {SHARE}. Write 0.015 for 1.5 %"),
        (RATIO | {"max": -0.1}, f"max: -0.1 {EVERYTHING}: {SHARE}. Use a value in between"),
        (WORDS | {"min": 0}, f"min: 0 {NOTHING}: words {POSITIVE}"),
        (WORDS | {"min": -5}, f"min: -5 {NOTHING}: words {POSITIVE}"),
        (WORDS | {"max": -1}, f"max: -1 {EVERYTHING}: words {POSITIVE}"),
        (WORDS | {"max": -float("inf")}, f"max: -inf {EVERYTHING}: words {POSITIVE}"),
        (WORDS | {"min": float("inf")}, f"min: inf {EVERYTHING}: words {POSITIVE}"),
        ({"ratio": ("newlines", "words"), "min": 0}, f"min: 0 {NOTHING}: newlines per words {POSITIVE}"),
    ],
)
def test_a_bound_that_decides_nothing_is_refused(settings: dict[str, Any], message: str):
    with pytest.raises(ValueError, match=rf"^{re.escape(message)}$"):
        Rule(**settings)


@pytest.mark.parametrize(
    "settings",
    [
        RATIO | {"max": 0},
        RATIO | {"min": 1},
        RATIO | {"min": 0.2, "max": 1},
        RATIO | {"min": 0, "max": 0.3},
        RATIO | {"min": -1, "max": 0.3},
        WORDS | {"max": 0},
        WORDS | {"min": 0, "max": 30},
        WORDS | {"min": 5, "max": float("inf")},
        {"ratio": ("top_2gram_characters", "characters"), "max": 1.5},
        {"ratio": ("newlines", "words"), "max": 30},
        {"ratio": ("lines", "bullet_lines"), "max": 30},
    ],
)
def test_bounds_that_decide_something(settings: dict[str, Any]):
    assert Rule(**settings).min <= Rule(**settings).max


@pytest.mark.parametrize("kind", ["filter", "lines"])
def test_a_stage_expands_its_rules_once(kind: str):
    content = [{"kind": kind, "rules": ["nemo", {"set": "gopher", "override": {"words": {"min": 9}}}]}]
    (stage,) = convert_recipe({"stages": content}).stages
    assert stage.expanded is stage.expanded and len(stage.expanded) == len(RULE_SETS["nemo"] + RULE_SETS["gopher"])
    assert pickle.loads(pickle.dumps(stage)) == stage
