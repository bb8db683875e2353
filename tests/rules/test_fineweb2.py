# SPDX-License-Identifier: Apache-2.0
"""The rule set `fineweb2`: its stored bounds, English, changes per language, and what it refuses."""

import gzip
import json
import lzma
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import yaml

from curation.recipes.recipe import as_builtins, convert_recipe, parse_recipe
from curation.rules.decide import Rule, expand_rules
from curation.rules.fineweb2 import MIN_ENDS_OF_UNKNOWN
from curation.rules.fineweb2_file import COLUMNS, STORED, configuration, languages
from curation.rules.grammar import divided_override
from curation.stages import Filter
from curation.stages.invoke import apply_stage
from curation.stages.outcome import StageCount
from tests.conftest import table_of
from tests.corpus import DATA, real_documents
from tests.runs import assert_refused
from tests.scripts.make_fineweb2 import pack

GERMAN_WORDS = (
    "der", "und", "die", "in", "von", "im", "den", "des", "mit", "das", "er", "dem", "wurde", "für",
    "als",  # codespell:ignore als
)  # fmt: skip
PAGE = Path(__file__).parents[2] / "docs" / "rules_per_language.md"
ALONE = re.compile(r"(?<!\S)(?:[^\w\s]|_)+(?!\S)")  # marks that are no part of a word
OF_NGRAMS = ("top_2gram", "top_3gram", "top_4gram", *(f"duplicate_{size}grams" for size in range(5, 11)))
GERMAN = [  # of configs/deu_Latn.yml, by hand
    Rule(ratio=("duplicate_lines", "text_lines"), max=0.263, reason="duplicate_lines"),
    *(
        Rule(ratio=(f"top_{size}gram_characters", "characters"), max=bound, reason=f"top_{size}gram")
        for size, bound in ((2, 0.169), (3, 0.153), (4, 0.137))
    ),
    *(
        Rule(ratio=(f"duplicate_{size}gram_characters", "characters"), max=bound, reason=f"duplicate_{size}grams")
        for size, bound in ((5, 0.141), (6, 0.134), (7, 0.126), (8, 0.117), (9, 0.108), (10, 0.098))
    ),
    Rule(ratio=("duplicate_line_characters", "line_characters"), max=0.1, reason="duplicate_line_characters"),
    Rule(ratio=("newlines", "words"), max=0.152, reason="too_many_newlines"),
    Rule(measure="non_symbol_words", min=50, reason="too_few_words"),
    Rule(measure="non_symbol_words", max=100_000, reason="too_many_words"),
    Rule(ratio=("non_symbol_word_characters", "non_symbol_words"), max=15, reason="words_too_long"),
    Rule(ratio=("hash_signs", "words"), max=0.1, reason="too_many_hash_signs"),
    Rule(ratio=("ellipses", "words"), max=0.1, reason="too_many_ellipses"),
    Rule(ratio=("bullet_lines", "lines"), max=0.9, reason="too_many_bullet_lines"),
    Rule(ratio=("ellipsis_lines", "lines"), max=0.3, reason="too_many_ellipsis_lines"),
    Rule(ratio=("words_with_letter", "words"), min=0.774, reason="too_few_words_with_letter"),
    Rule(listed={"words": GERMAN_WORDS, "as": "stop_word"}, min_count=2, reason="too_few_stop_words"),
]


def german_documents() -> list[str]:
    """Texts in German with some of their lines, long and short ones."""
    records = [json.loads(line) for line in gzip.decompress((DATA / "corpus.jsonl.gz").read_bytes()).splitlines()]
    texts = [record["text"] for record in records if record["language"] == "de"]
    lines = [line for text in texts for line in text.splitlines()]
    made = [" ".join(lines[start : start + size]) for start in range(0, 120, 9) for size in (3, 20, 40)]
    return [*texts, *made, f"{made[2]} {made[1]}", "# ... " * 60, "\n".join(f"- {line}" for line in lines[:60])]


def verdict_of(
    engine: ModuleType, texts: list[str], rules: Any, language: str | list[str | None] = "deu_Latn"
) -> list[Any]:
    """(reason, value, broken bound) of each text in a language, or each in its own; None for a kept one."""
    column = pa.array([language] * len(texts) if isinstance(language, str) else language, pa.large_string())
    frame = engine.from_arrow(table_of(texts).append_column("language", column))
    stage = convert_recipe({"stages": [{"kind": "filter", "rules": rules}]}).stages[0]
    verdict = apply_stage(engine, frame, stage)[1].verdict
    rows = zip(verdict.reason.tolist(), verdict.value.tolist(), verdict.broken_bounds().tolist(), strict=True)
    return [None if reason < 0 else (verdict.reasons[reason], value, bound) for reason, value, bound in rows]


def test_german_is_judged_by_its_configuration(engine: ModuleType):
    texts = german_documents()
    found = verdict_of(engine, texts, ["fineweb2"])
    frame = engine.from_arrow(table_of(texts))
    alone = apply_stage(engine, frame, Filter(rules=GERMAN))[1].verdict
    expected = [("" if number < 0 else alone.reasons[number]) for number in alone.reason.tolist()]
    assert [gone[0] if gone else "" for gone in found] == expected
    assert [gone[1:] for gone in found if gone] == [
        pair for pair in zip(alone.value.tolist(), alone.broken_bounds().tolist(), strict=True) if pair[0] == pair[0]
    ]
    reasons = {gone[0] for gone in found if gone}
    assert len(reasons) > 5 and None in found


def test_german_has_these_bounds_and_no_others():
    place = languages()["deu_Latn"]
    own = [rule for rule in expand_rules("fineweb2") if rule.member[place]]
    found = [(rule.name, rule.measures, *rule.limits[:, place]) for rule in own]
    assert found == [(rule.name, rule.measures, *rule.bounds) for rule in GERMAN]


def test_english_is_judged_by_gopher_and_fineweb(engine: ModuleType):
    texts = [ALONE.sub("sign", text) for text in real_documents(150)]
    texts += ["The cat and the dog. " * 30, "one\ntwo\none\n\none\n"]
    alone = verdict_of(engine, texts, ["gopher_repetition", "fineweb", "gopher_quality"])
    assert verdict_of(engine, texts, ["fineweb2"], "eng_Latn") == alone
    assert 10 < alone.count(None) < len(texts) - 10


@pytest.mark.parametrize("language", ["deu_Latn", "eng_Latn"])
def test_marks_alone_are_no_words(engine: ModuleType, language: str):
    few = {"override": dict.fromkeys(("too_few_stop_words", *OF_NGRAMS), "off")}
    words = [f"Wort{number}" for number in range(50)]
    texts = [" ".join([*words[:49], "-", "»", "."]), f"{' '.join(words)}.", " ".join(["x" * 16, "."] * 50)]
    found = verdict_of(engine, texts, [{"set": "fineweb2", **few}], language)
    assert found[:2] == [("too_few_words", 49, 50), None]
    assert found[2] == ("words_too_long", 16, 15 if language == "deu_Latn" else 10)


def test_lines_end_in_marks_of_all_scripts(engine: ModuleType):
    """`hin_Deva` wants 9.1 % of lines with one, `deu_Latn` none."""
    words = [f"शब्द{number} है की" for number in range(40)]
    lines = [" ".join(words[start : start + 10]) for start in range(0, 40, 10)]
    few = {"override": {"hin_Deva": {"too_few_words": "off", "too_few_stop_words": "off", "too_many_newlines": "off"}}}
    off = dict.fromkeys(("top_2gram", "top_3gram", "top_4gram"), "off")
    few["override"]["hin_Deva"] |= off
    rule = [{"set": "fineweb2", **few}]
    texts = ["\n".join(lines), "\n".join([*lines[:3], f"{lines[3]}।"]), "\n".join([*lines[:3], f"{lines[3]}؟ \n"])]
    assert verdict_of(engine, texts, rule, "hin_Deva") == [("too_few_punctuated_lines", 0.0, 0.091), None, None]


def test_the_stored_configuration():
    names, bounds, words = configuration()
    assert len(names) == 1929 and bounds.shape == (1929, 15) and sum(map(len, words)) == 37_294
    assert ({*words[names.index("deu_Latn")]}, languages()["eng_Latn"]) == ({*GERMAN_WORDS}, 1929)
    assert all(len(word.split()) == 1 for own in words for word in own)
    assert b"Apache-2.0" in lzma.decompress(STORED.read_bytes())[:200]


def test_a_configuration_is_stored_as_it_is(tmp_path: Path):
    config = {
        "dup_line_frac": 0.263, "line_punct_thr": 0.0, "new_line_ratio": 0.152, "min_avg_word_length": 0,
        "max_avg_word_length": 15, "max_non_alpha_words_ratio": 0.774, "language_score": 0.821,
        "top_n_grams": [[2, 0.169], [3, 0.153], [4, 0.137]], "stopwords": ["der", "für", "zwei Hunde"],
        "dup_n_grams": [[5, 0.141], [6, 0.134], [7, 0.126], [8, 0.117], [9, 0.108], [10, 0.098]],
    }  # fmt: skip
    (tmp_path / "deu_Latn.yml").write_text(yaml.safe_dump(config))
    content = json.loads(lzma.decompress(pack(tmp_path)))
    assert (content["languages"], content["stop_words"]) == (["deu_Latn"], [["der", "für"]])
    names, bounds, _ = configuration()
    assert dict(zip(COLUMNS, content["bounds"][0], strict=True)) == dict(
        zip(COLUMNS, bounds[names.index("deu_Latn")].tolist(), strict=True)
    )


CHANGES = [
    ({"words": {"min": 5}}, {"deu_Latn": 5, "rus_Cyrl": 5, "eng_Latn": 5}, "too_few_words"),
    ({"deu_Latn": {"words": {"min": 5}}}, {"deu_Latn": 5, "rus_Cyrl": 50, "eng_Latn": 50}, "too_few_words"),
    ({"words": {"min": 9}, "rus_Cyrl": {"too_few_words": {"min": 5}}}, {"deu_Latn": 9, "rus_Cyrl": 5}, "too_few_words"),
    ({"too_few_stop_words": {"min": 1}}, {"deu_Latn": 1, "eng_Latn": 1}, "too_few_stop_words"),
    ({"deu_Latn": {"too_few_words": "off"}}, {"deu_Latn": None, "rus_Cyrl": 50}, "too_few_words"),
]


@pytest.mark.parametrize(("override", "bounds", "reason"), CHANGES)
def test_bounds_are_changed_for_all_or_one_language(override: dict[str, Any], bounds: dict[str, Any], reason: str):
    recipe = convert_recipe({"stages": [{"kind": "filter", "rules": [{"set": "fineweb2", "override": override}]}]})
    assert convert_recipe(json.loads(json.dumps(as_builtins(recipe)))) == recipe
    for rules in (expand_rules(recipe.stages[0].rules), expand_rules([Rule(set="fineweb2", override=override)])):
        named = [(rule, rule.groups.numbers) for rule in rules if rule.name == reason]
        assert bounds == {
            name: next((rule.limits[0, places[name]] for rule, places in named if rule.member[places[name]]), None)
            for name in bounds
        }


def test_a_mapping_and_settings_change_bounds_too():
    text = "stages: [{filter: {rules: {fineweb2: {other: remove, words: {min: 20}, deu_Latn: {words: {min: 10}}}}}}]"
    names = ["too_many_hash_signs", "duplicate_line_characters/line_characters"]  # English has two of this reason
    recipe = parse_recipe(text, settings=[f"stages.filter.{name}.max=0.3" for name in names])
    (rule,) = recipe.stages[0].rules
    assert (rule.other, set(rule.override), set(rule.group_override)) == (
        "remove", {"words", *names}, {"deu_Latn"},
    )  # fmt: skip
    rules = {rule.keys[-1]: rule for rule in expand_rules([rule])}
    assert next(iter(rules.values())).name == "other_language"
    for name in ("hash_signs/words", names[1]):
        assert rules[name].limits[1, [languages()["rus_Cyrl"], languages()["eng_Latn"]]].tolist() == [0.3, 0.3]
    both = expand_rules([Rule(set="fineweb2", override={"too_few_punctuated_lines": {"min": 0.5}})])
    changed = [rule for rule in both if rule.name == "too_few_punctuated_lines"]
    assert [np.unique(rule.limits[0, rule.member]).tolist() for rule in changed] == [[0.5], [0.5]]


def test_changes_of_languages_keep_their_order():
    names = [*languages()][:50]
    changes = {name: {"words": "off"} for name in names}
    assert [*divided_override({"words": {"min": 5}, **changes})[1]] == names


WRONG = {
    "{set: fineweb2, other: deutsch}": ("'other' is 'deutsch', which is no value with rules",),
    "{set: fineweb2, override: {deu_Latin: {words: {min: 5}}}}": ("no rules of 'deu_Latin'; did you mean deu_Latn",),
    "{set: fineweb2, override: {deu_Latn: {wrods: {min: 5}}}}": ("fineweb2 of deu_Latn has no rule 'wrods'; did you",),
    "{set: fineweb2, override: {deu_Latn: {words: {mim: 5}}}}": ("unknown field `mim`", "group_override"),
    "{set: fineweb2, override: {deu_Latn: {top_2gram: {max: -1}}}}": ("override of deu_Latn: max: -1 removes every",),
    "{set: fineweb2, override: {duplicate_line_characters: off}}": (
        "may be duplicate_line_characters/characters or duplicate_line_characters/line_characters; use one of these",
    ),
    "{set: gopher, other: keep}": (
        "other has no meaning with gopher: only the rules of fineweb2 and gopher_multilingual have groups",
    ),
    "{set: gopher, override: {deu_Latn: {words: off}}}": ("override of deu_Latn has no meaning with gopher",),
    "{words: {min: 5, other: keep}}": ("other and group_override need a set",),
}


@pytest.mark.parametrize("rule", WRONG)
def test_wrong_changes_are_refused(rule: str):
    assert_refused(f"stages: [{{kind: filter, rules: [{rule}]}}]", WRONG[rule])


FEW_MARKS = "too_few_punctuated_lines"
LEFT_OUT = (FEW_MARKS, "too_many_newlines")
PLAINEST_FIRST = (
    "too_few_words", "too_many_words", "words_too_short", "words_too_long", "too_many_hash_signs", "too_many_ellipses",
    "too_many_bullet_lines", "too_many_ellipsis_lines", "too_few_words_with_letter", "duplicate_line_characters",
    *(f"top_{size}gram" for size in (2, 3, 4)), *(f"duplicate_{size}grams" for size in range(5, 11)),
    "too_few_stop_words",
)  # fmt: skip


def bounds_of(name: str, language: str) -> list[tuple[Any, ...]]:
    rules = expand_rules(name)
    place = rules[0].groups.numbers[language]
    own = [rule for rule in rules if rule.member[place]]
    return [(rule.name, rule.measures, *rule.limits[:, place]) for rule in own]


def with_prose(rules: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The rules of FineWeb-2 as `gopher_multilingual` has them: its order, one rule on repeated lines of prose in place
    of those on lines and paragraphs, and marks are no words."""
    prose = "duplicate_line_characters", ("duplicate_prose_line_characters", "prose_line_characters"), -np.inf, 0.1
    letters = "too_few_words_with_letter", ("words_with_letter", "non_symbol_words")
    others = [rule for rule in rules if not rule[0].startswith(("duplicate_line", "duplicate_paragraph"))]
    own = [prose, *((*letters, *rule[2:]) if rule[0] == letters[0] else rule for rule in others)]
    return sorted(own, key=lambda rule: PLAINEST_FIRST.index(rule[0]))


def test_gophers_rules_in_every_language():
    few, name = "too_few_stop_words", "gopher_multilingual"
    for language in ("deu_Latn", "cmn_Hani", "hin_Deva"):
        whole = bounds_of("fineweb2", language)
        own = [rule if rule[0] != few else (few, (), *rule[2:]) for rule in bounds_of(name, language)]
        assert own == with_prose([rule for rule in whole if rule[0] not in LEFT_OUT])
    english = with_prose([(rule.name, rule.measures, *rule.bounds) for rule in expand_rules("gopher")])
    assert bounds_of(name, "eng_Latn") == english
    ends = ("too_few_sentence_ends", ("words",), MIN_ENDS_OF_UNKNOWN, np.inf)
    assert bounds_of(name, "und") == [*(rule for rule in english if rule[0] != few), ends]


def test_the_reason_is_the_plainest_only_in_the_own_set(engine: ModuleType):
    """Ten words, one of which is repeated: of the own set, of it with an override, of a list of the user, of others."""
    own, text = "gopher_multilingual", "the sun sun sun sun sun sun sun sun sun"
    override = {"set": own, "override": {"top_2gram": {"max": 0.1}}}
    for rules in (own, [override], ["gopher_quality", "gopher_repetition"]):
        assert verdict_of(engine, [text], rules, "en")[0][0] == "too_few_words"
    for rules in ("fineweb2", "gopher", ["gopher_repetition", own]):
        assert verdict_of(engine, [text], rules, "en")[0][0] == "top_2gram"


@pytest.mark.parametrize(
    ("language", "start", "reasons"),
    [("de", "der und", ["too_many_newlines", "", "too_many_newlines"]), ("en", "the of", ["", "", FEW_MARKS])],
)
def test_the_page_turns_off_rules_for_english(engine: ModuleType, language: str, start: str, reasons: list[str]):
    """Lines of five words, without marks: by the rules of the page, by the set of the default recipe, by fineweb2."""
    pattern = r"only Gopher's rules to English.*?^```yaml\n(.*?)^```$"
    [block] = re.findall(pattern, PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    of_page = yaml.safe_load(block)["stages"][1]["rules"]
    lines = [" ".join(f"{word}{line}" for word in ("sea", "sun", "air", "ice", "fog")) for line in range(12)]
    text = "\n".join([start, *lines])
    found = [verdict_of(engine, [text], rules, language)[0] for rules in (of_page, "gopher_multilingual", "fineweb2")]
    assert [gone[0] if gone else "" for gone in found] == reasons


def test_lines_have_no_language():
    told = ["duplicate_paragraphs differs per language, and a unit has no columns. Put it into a filter"]
    assert_refused("stages: [{kind: lines, rules: fineweb2}]", told)


def test_what_a_filter_says_of_the_set():
    stage = Filter(rules="fineweb2")
    lines = stage.explain()
    assert len(lines) == 29 and stage.files() == {} and stage.warnings(StageCount(kind="filter", name="filter")) == []
    assert "top_2gram: top_2gram_characters / characters at most 0.033 to 3.919, per language (1,930 groups)" in lines
    assert stage.kernels() == ("measures", "lists") and stage.reads() == ("language",)
    assert stage.shown_rules() == ((), expand_rules("fineweb2"), "")
    of_english = "words_too_short: word_characters / words at least 3, per language (2 groups)"
    assert of_english in Filter(rules="gopher_multilingual").explain()
