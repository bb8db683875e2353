# SPDX-License-Identifier: Apache-2.0
"""Rules on columns and on matches of regular expressions, and sets of which rules are changed."""

import math
import re
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pytest

from curation.base.errors import RecipeError
from curation.recipes.recipe import as_builtins, convert_recipe, parse_recipe
from curation.rules.decide import RULE_SETS, Bounds, Rule, decide, expand_rules
from curation.running.run import run
from curation.stages import Filter
from curation.stages.invoke import apply_stage
from tests.conftest import frame_of, table_of
from tests.corpus import NASTY, real_documents
from tests.runs import assert_refused, kept_rows, removed_rows

NAN = math.nan


def judged(values: list[Any], kind: pa.DataType | None = None, **settings: Any) -> list[float | None]:
    """Of each row of the column `c` the value that broke a rule, None where it stays."""
    rule = Rule(**{"column": "c", **settings})
    verdict = decide([rule], {}, len(values), {"c": pa.chunked_array([pa.array(values, kind)])})
    return [value if gone else None for gone, value in zip(~verdict.kept, verdict.value.tolist(), strict=True)]


NUMBERS = [0.2, 0.5, 0.9, None, NAN]
WRITTEN = ["0.25", "0.5", " 3 ", "1e3", "-7", "+.9", "", "x1", "nan", "1,5", None]
URLS = ["https://a.org/x", "http://b.org", "", None, "see https://c.org and https://d.org"]


@pytest.mark.parametrize(
    ("settings", "values", "gone"),
    [
        ({"min": 0.5}, NUMBERS, {0: 0.2, 3: NAN, 4: NAN}),
        ({"max": 0.5}, NUMBERS, {2: 0.9, 3: NAN, 4: NAN}),
        ({"min": 0.5, "max": 0.5}, NUMBERS, {0: 0.2, 2: 0.9, 3: NAN, 4: NAN}),
        ({"min": -2}, [-3, -2, 7, None], {0: -3.0, 3: NAN}),
        ({"max": 0}, [2**63 - 1, -(2**63)], {0: float(2**63)}),
        ({"min": 1}, [None, None], {0: NAN, 1: NAN}),
        ({"min": 0.5, "max": 200}, WRITTEN, {0: 0.25, 3: 1000.0, 4: -7.0, 6: NAN, 7: NAN, 8: NAN, 9: NAN, 10: NAN}),
        ({"in_": ["en", "de"]}, ["en", "fr", "EN", "", None], {1: NAN, 2: NAN, 3: NAN, 4: NAN}),
        ({"not_in": ["en", "de"]}, ["en", "fr", "EN", "", None], {0: NAN}),
        ({"not_in": [""]}, ["en", "", None], {1: NAN}),
        ({"in_": [1, 2.0]}, [1, 2, 3, None], {2: 3.0, 3: NAN}),
        ({"in_": [1.5, 2**70]}, [1, 2], {0: 1.0, 1: 2.0}),
        ({"in_": [2**53 + 1]}, [2**53, 2**53 + 1], {0: float(2**53)}),
        ({"in_": [0.1, 1]}, [0.1, 1.0, NAN, None], {2: NAN, 3: NAN}),
        ({"not_in": [0.1, 1]}, [0.1, 1.0, NAN, None], {0: 0.1, 1: 1.0}),
        ({"in_": [True]}, [True, False, None], {1: 0.0, 2: NAN}),
        ({"not_in": [True]}, [True, False, None], {0: 1.0}),
        ({"matches": "https?://", "min_count": 1}, URLS, {2: 0.0, 3: 0.0}),
        ({"matches": "https?://", "max_count": 0}, URLS, {0: 1.0, 1: 1.0, 4: 2.0}),
        ({"matches": "https?://", "min_count": 1, "max_count": 1}, URLS, {2: 0.0, 3: 0.0, 4: 2.0}),
        ({"matches": "^https?://", "max_count": 0}, URLS, {0: 1.0, 1: 1.0}),
        ({"matches": "^$", "max_count": 0}, URLS, {2: 1.0, 3: 1.0}),
    ],
)
def test_what_a_rule_removes(settings: dict[str, Any], values: list[Any], gone: dict[int, float]):
    expected = [gone.get(row) for row in range(len(values))]
    np.testing.assert_equal(judged(values, **settings), expected)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        *((kind, [1, 2, None]) for kind in (pa.int8(), pa.uint64(), pa.float32(), pa.decimal128(5, 2))),
        (pa.dictionary(pa.int8(), pa.int64()), [1, 2, None]),
    ],
    ids=str,
)
def test_numbers_of_all_types(kind: pa.DataType, values: list[Any]):
    np.testing.assert_equal(judged(values, kind, min=2), [1.0, None, NAN])
    np.testing.assert_equal(judged(values, kind, in_=[2, 300]), [1.0, None, NAN])


def test_a_number_is_compared_in_the_type_of_its_column():
    assert judged([0.1, 0.2], pa.float32(), not_in=[0.1]) == [float(np.float32(0.1)), None]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())], ids=str)
def test_strings_of_all_types(kind: pa.DataType):
    np.testing.assert_equal(judged(["en", "fr", None], kind, in_=["en"]), [None, NAN, NAN])
    assert judged(["en", "fr", None], kind, matches="e", max_count=0) == [1.0, None, None]


WRONG_TYPES = {
    ("min", 0.5): ([[True], [b"a"]], "a bound is for numbers"),
    ("in_", ("a",)): ([[1], [1.5], [False], [b"a"]], "in is for strings"),
    ("not_in", (1,)): ([["a"], [True]], "not_in is for numbers"),
    ("in_", (False,)): ([["a"], [1]], "in is for columns of true and false"),
}


@pytest.mark.parametrize("condition", WRONG_TYPES, ids=str)
def test_a_column_of_another_type_is_refused(condition: tuple[str, Any]):
    columns, told = WRONG_TYPES[condition]
    for values in columns:
        kind = pa.array(values).type
        with pytest.raises(RecipeError, match=rf"^rule c: column 'c' holds {kind}, but {told}"):
            judged(values, **dict([condition]))
    with pytest.raises(RecipeError, match=r"^rule c_matches: column 'c' holds int64, but matches is for strings$"):
        judged([1], matches="1", min_count=1)
    assert len(judged([None], **dict([condition]))) == 1  # a column of nulls alone has no type


def test_a_list_of_true_and_false_for_strings_says_why():
    told = "in is for columns of true and false; the columns of inputs are strings. YAML reads yes, no, on and off as"
    with pytest.raises(RecipeError, match=told):
        judged(["no", "en"], in_=[False])


# Patterns that RE2 and Python read alike on these texts; empty matches beside others are counted by Python alone.
PATTERNS = ["a", "(?i)THE", "^.", "(?m)^.", "https?://[^ ]+", "(a)(b)?", "[.!?]{2,}", "[0-9]+", "aa"]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_matches_are_counted_as_python_does(pattern: str):
    texts = [text for text in [*NASTY, *real_documents(20), "aaaa", "ab\nab"] if text is not None]
    found = judged(texts, matches=pattern, max_count=0)
    assert [value or 0 for value in found] == [len(re.findall(pattern, text)) for text in texts]
    assert any(found)


LISTS = "takes values of one kind, not"


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({}, "column: NAME, matches: PATTERN, listed: {file: FILE}, any: [RULE, RULE], set: NAME, and per"),
        ({"measure": "words", "column": "c", "min": 1}, "give one of measure: NAME"),
        ({"set": "gopher", "column": "c"}, "give one of measure: NAME"),
        ({"measure": "words", "in_": ["a"]}, "in has no meaning with a measure. A rule on strings needs column: NAME"),
        ({"measure": "words", "min_count": 1}, "min_count has no meaning with a measure. It bounds the count"),
        ({"column": ""}, "column must be the name of a column, not ''"),
        ({"column": "c"}, "a rule on column 'c' needs min or max, in, not_in, or matches"),
        ({"column": "c", "min": NAN}, "min and max must be numbers, not NaN"),
        ({"column": "c", "min": 2, "max": 1}, "min 2 is above max 1"),
        ({"column": "c", "min": math.inf}, "the bounds inf and inf remove everything"),
        ({"column": "text", "min": 1}, "text is not a number; give measure: NAME, or matches: PATTERN"),
        ({"column": "c", "min": 1, "in_": ["a"]}, "min has no meaning with in. Use two rules"),
        ({"column": "c", "in_": ["a"], "not_in": ["b"]}, "not_in has no meaning with in. Use two rules"),
        ({"column": "c", "in_": "en"}, "in takes a list of values, not 'en'"),
        ({"column": "c", "in_": []}, "in: [] removes everything; list one or more values"),
        ({"column": "c", "not_in": []}, "not_in: [] can never remove anything; list one or more values"),
        ({"column": "c", "in_": ["a", 1]}, f"in {LISTS} 'a' and 1"),
        ({"column": "c", "in_": ["en", False]}, f"in {LISTS} 'en' and False. YAML reads yes, no, on and off as true"),
        ({"column": "c", "in_": [NAN]}, "in takes strings, finite numbers or true and false, not nan"),
        ({"column": "c", "min_count": 1}, "min_count has no meaning with a column. It bounds the count of matches"),
        ({"matches": ""}, "matches '' is empty, and matches every text"),
        ({"matches": 5}, "matches 5 must be a string"),
        ({"matches": "a"}, "matches needs bounds: min_count: 1 keeps documents that match, max_count: 0"),
        ({"matches": "a", "min": 1}, "min has no meaning with matches. Use min_count"),
        ({"matches": "a", "in_": ["a"]}, "in has no meaning with matches. Use two rules"),
        ({"matches": "a", "min_count": 0}, "min_count: 0 can never remove anything: a count is never below 0"),
        ({"matches": "a", "max_count": -1}, "max_count: -1 removes everything: a count is never below 0"),
        ({"matches": "a", "min_count": 2, "max_count": 1}, "min_count 2 is above max_count 1"),
        ({"matches": "(", "min_count": 1}, "matches '(' is not a regular expression of RE2: missing ): ("),
        ({"matches": "a(?=b)", "min_count": 1}, "invalid perl operator: (?=; RE2 has no lookaround"),
        ({"matches": r"(a)\1", "min_count": 1}, r"invalid escape sequence: \1; RE2 has no lookaround and no backref"),
        ({"matches": "a" * 100 + "(", "min_count": 1}, f"matches '{'a' * 59}... is not a regular expression of RE2"),
        ({"matches": "\ud800", "min_count": 1}, "must be text that UTF-8 can hold"),
        ({"set": "gopher", "min": 1}, "min has no meaning with a set. Change a rule of the set with override: {words:"),
        ({"set": "gopher", "reason": "x"}, "a set uses the reasons of its rules; remove reason"),
        ({"measure": "words", "min": 1, "override": {}}, "override needs a set: {set: gopher"),
        ({"set": "gopher", "override": ["words"]}, "override must map rules to bounds, not ['words']"),
        ({"set": "gopher", "override": {"words": 5}}, "override of words must be {min: }, {max: } or off, not 5"),
        ({"set": "gopher", "override": {"words": {}}}, "an override needs min, max, or off, which removes the rule"),
        ({"set": "gopher", "override": {"words": {"min": NAN}}}, "min and max of an override must be finite"),
        ({"set": "gopher", "override": {"words": {"in": ["a"]}}}, "unknown field `in`"),
    ],
)  # fmt: skip
def test_a_rule_without_a_meaning_is_refused(settings: dict[str, Any], told: str):
    with pytest.raises(ValueError, match=re.escape(told)):
        Rule(**settings)


WRONG_IN_RECIPES = {
    "{column: c, in: en}": ("Expected `array | null`, got `str`", ".rules[0].in`"),
    "{column: c, in: [en, null]}": ("got `null`", ".rules[0].in[1]`"),
    "{column: c, in: [en, 2024-01-01]}": ("got `date`", ".rules[0].in[1]`"),
    "{column: c, in_: [en]}": ("unknown field `in_`",),
    "{column: c, mni: 1}": ("unknown field `mni`", "did you mean min"),
    "{matches: a, mincount: 1}": ("unknown field `mincount`", "did you mean min_count"),
    "{matches: a, min_count: 1.5}": ("Expected `int", ".rules[0].min_count`"),
    "{matches: a, max_count: 9223372036854775808}": ("stages[0].rules[0].max_count must fit 64 bits",),
    "{column: c, in: [9223372036854775808]}": ("stages[0].rules[0].in[0] must fit 64 bits",),
    "{set: gofer}": ("no rule set named 'gofer'; did you mean gopher",),
    "{set: gopher, override: {wrods: {min: 5}}}": ("override: gopher has no rule 'wrods'; did you mean words",),
    "{set: gopher, override: {words: off}}": ("override: 'words' may be too_few_words or too_many_words; use one",),
    "{set: gopher, override: {words: }}": ("Expected `", "got `null` - at `$.stages[0].rules[0].override[...]`"),
    "{set: gopher, override: {words: {min: '5'}}}": ("Expected `float | null`, got `str`", ".override[...].min`"),
    "{set: gopher, override: {words: {mim: 5}}}": ("unknown field `mim`", "rules[0].override[...]`; did you mean min"),
    "{set: gopher, override: {words: {min: 0}}}": ("override of words: min: 0 can never remove anything",),
    "{set: nemo, override: {length: {min: 200000}}}": ("override of length: min 200000.0 is above max 100000",),
    "{set: nemo, override: {alphanumeric: {min: 70}}}": ("override of alphanumeric: min: 70 removes everything",),
}


@pytest.mark.parametrize("rule", WRONG_IN_RECIPES)
def test_a_recipe_with_a_wrong_rule_is_refused(rule: str):
    assert_refused(f"stages: [{{kind: filter, rules: [{rule}]}}]", WRONG_IN_RECIPES[rule])


ALL = """
stages:
  - kind: filter
    rules:
      - fineweb
      - {set: gopher, override: {words: {min: 100}, too_few_stop_words: off, too_many_hash_signs: {max: 0.2}}}
      - {column: quality, min: 0.5}
      - {column: language, in: [en, de], reason: foreign}
      - {column: adult, not_in: [true]}
      - {column: url, matches: "^https:", min_count: 1}
      - {matches: "(?i)lorem ipsum", max_count: 0}
"""


def test_what_a_run_stores_of_rules_is_the_rules():
    recipe = parse_recipe(ALL)
    stored = as_builtins(recipe)
    assert convert_recipe(orjson.loads(orjson.dumps(stored))) == recipe
    rules = stored["stages"][0]["rules"]
    assert rules[3]["in"] == ["en", "de"] and "in_" not in rules[3] and "not_in" not in rules[3]
    assert rules[1]["override"]["too_few_stop_words"] == "off"
    assert rules[6]["column"] == "text"
    assert recipe.stages[0].rules[3] == Rule(column="language", in_=["en", "de"], reason="foreign")


def test_what_a_filter_says_of_itself():
    stage = parse_recipe(ALL).stages[0]
    assert stage.reads() == ("quality", "language", "adult", "url")
    lines = stage.explain()
    assert len(lines) == len(expand_rules(stage.rules)) == 4 + 22 + 5
    assert "too_few_words: words in [100, inf]" in lines
    assert lines[-5:] == [
        "quality: column quality in [0.5, inf]",
        "foreign: column language in 'en', 'de'",
        "adult: column adult not in True",
        "url_matches: matches of '^https:' in column url in [1, inf]",
        "text_matches: matches of '(?i)lorem ipsum' in column text in [0, 0]",
    ]
    either = Rule(any_=[Rule(column="dc: type", in_=["a"]), Rule(measure="words", min=5)])
    assert either.describe() == "dc: type_or_words: one of column dc: type in 'a'; words in [5, inf]"
    assert Filter(rules="gopher").reads() == ()
    assert Filter(rules=[Rule(column="id", not_in=["a"])]).reads() == ()


CHANGES = [
    ({"words": {"min": 100}}, "too_few_words", {"min": 100}),
    ({"too_few_words": {"min": 100}}, "too_few_words", {"min": 100}),
    ({"words": {"max": 100}}, "too_many_words", {"max": 100}),
    ({"hash_signs/words": {"max": 0.2}}, "too_many_hash_signs", {"max": 0.2}),
    ({"stop_words": Bounds(min=1, max=8)}, "too_few_stop_words", {"min": 1, "max": 8}),
    ({"words": {"min": 100}, "too_few_words": {"min": 70}}, "too_few_words", {"min": 70}),
]


@pytest.mark.parametrize(("override", "reason", "bounds"), CHANGES)
def test_an_override_changes_one_rule(override: dict[str, Any], reason: str, bounds: dict[str, float]):
    found = expand_rules([Rule(set="gopher", override=override)])
    changed = [(old, new) for old, new in zip(RULE_SETS["gopher"], found, strict=True) if old != new]
    assert [(old.name, new.name) for old, new in changed] == [(reason, reason)]
    assert {name: getattr(changed[0][1], name) for name in changed[0][1].conditions} == bounds


def test_one_override_may_change_two_rules_of_one_measure_and_leave_rules_out():
    override = {"words": {"min": 9, "max": 99}, "too_few_stop_words": "off", "top_2gram": False}
    found = {rule.name: rule for rule in expand_rules([Rule(set="gopher", override=override)])}
    assert (found["too_few_words"].min, found["too_many_words"].max) == (9, 99)
    assert {rule.name for rule in RULE_SETS["gopher"]} - found.keys() == {"too_few_stop_words", "top_2gram"}


# On frames


def documents(engine: ModuleType) -> Any:
    columns = {
        "url": pa.array(["https://a.org", "http://b.org", None, "https://c.org"], pa.large_string()),
        "quality": pa.array([0.9, 0.8, 0.7, None]),
        "adult": pa.array([False, False, False, True]),
    }
    table = table_of(["one two three", "one two", "one", None])
    for name, column in columns.items():
        table = table.append_column(name, column)
    return engine.from_arrow(table)


def kept(engine: ModuleType, *rules: dict[str, Any]) -> tuple[list[str], dict[str, int]]:
    frame, outcome = apply_stage(engine, documents(engine), Filter(rules=[Rule(**rule) for rule in rules]))
    assert outcome.verdict is not None
    ids = engine.to_arrow(frame).column("id").to_pylist()
    return [name.removeprefix("doc-") for name in ids], outcome.verdict.counts()


def test_a_filter_on_columns_and_measures(engine: ModuleType):
    secure = {"column": "url", "matches": "^https:", "min_count": 1}
    assert kept(engine, secure) == (["0", "3"], {"url_matches": 2})
    assert kept(engine, secure, {"column": "quality", "min": 0.5}) == (["0"], {"url_matches": 2, "quality": 1})
    assert kept(engine, {"measure": "words", "min": 2}, {"column": "quality", "max": 0.85}) == (
        ["1"], {"words": 2, "quality": 1},
    )  # fmt: skip
    assert kept(engine, {"matches": "two|three", "max_count": 1}) == (["1", "2", "3"], {"text_matches": 1})
    assert kept(engine, {"column": "adult", "not_in": [True]}) == (["0", "1", "2"], {"adult": 1})
    assert kept(engine, {"column": "id", "in_": ["doc-1", "doc-7"]}) == (["1"], {"id": 3})
    either = ({"column": "quality", "min": 0.5}, {"matches": "two", "min_count": 1})
    assert kept(engine, {"any_": [Rule(**rule) for rule in either], "reason": "x"})[0] == [
        name for name in "0123" if any(name in kept(engine, rule)[0] for rule in either)
    ]


def test_a_filter_on_lists(engine: ModuleType, tmp_path: Path):
    path = tmp_path / "list"
    path.write_text("two\none two three\n")
    assert kept(engine, {"listed": {"file": str(path), "as": "word"}, "max_count": 1}) == (
        ["1", "2", "3"],
        {"text_listed": 1},
    )
    assert kept(engine, {"listed": {"file": str(path), "as": "part"}, "min_count": 1}) == (
        ["0", "1"],
        {"text_listed": 2},
    )


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        ({"column": "ulr", "in_": ["a"]}, "rule ulr: no column 'ulr' in the documents; did you mean url"),
        ({"column": "wrods", "min": 1}, "rule wrods: no column 'wrods' in the documents; did you mean words"),
        ({"column": "adult", "min": 1}, "rule adult: column 'adult' holds bool, but a bound is for numbers"),
    ],
)
def test_a_frame_without_such_a_column_is_refused(engine: ModuleType, rule: dict[str, Any], told: str):
    with pytest.raises(RecipeError, match=told):
        kept(engine, rule)


def test_only_what_a_rule_needs_comes_to_the_host(engine: ModuleType):
    seen: list[list[str]] = []

    def to_arrow(frame: Any) -> pa.Table:
        seen.append(list(frame.columns))
        return engine.to_arrow(frame)

    def measure(text: Any, names: tuple[str, ...]) -> dict[str, np.ndarray]:
        seen.append(list(names))
        return engine.measure(text, names)

    watched = SimpleNamespace(to_arrow=to_arrow, measure=measure)
    Filter(rules="gopher_quality").apply(watched, frame_of(engine, ["a", "b"]))
    assert len(seen) == 1 and "words" in seen[0]
    seen.clear()
    rules = [Rule(column="url", in_=["a"]), Rule(column="url", not_in=["b"]), Rule(column="quality", min=0.5)]
    Filter(rules=rules).apply(watched, documents(engine))
    assert seen == [["url"], ["quality"]]


def test_a_run_with_rules_on_columns(tmp_path: Path):
    path = tmp_path / "a.jsonl"
    urls = ["https://a.org", "http://b.org", None, "https://spam.org"]
    lines = [{"text": f"the text number {row}", "id": str(row), "url": url} for row, url in enumerate(urls)]
    path.write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))
    rules = [{"column": "url", "matches": "^https:", "min_count": 1}, {"column": "url", "not_in": ["https://spam.org"]}]
    content = {"stages": [{"kind": "filter", "rules": rules}], "output": {"formats": []}}
    inputs = [{"path": str(path), "columns": ["url"]}]
    run(convert_recipe({"input": inputs, **content}), tmp_path / "out")
    assert [row[1] for row in kept_rows(tmp_path / "out")] == ["0"]
    removed = [(row[1], row[4], row[5]) for row in removed_rows(tmp_path / "out")]
    assert removed == [("1", "url_matches", 0.0), ("2", "url_matches", 0.0), ("3", "url", None)]
    with pytest.raises(RecipeError, match="reads the column 'url'"):
        run(convert_recipe({"input": [{"path": str(path)}], **content}), tmp_path / "other")
    listed = {"stages": [{"kind": "filter", "rules": {"url": {"in": [1]}}}]}
    with pytest.raises(RecipeError, match="rule url: column 'url' holds large_string, but in is for numbers; the"):
        run(convert_recipe({"input": inputs, **content, **listed}), tmp_path / "third")
    bounded = {"stages": [{"kind": "filter", "rules": {"id": {"min": 1, "max": 2}}}]}
    run(convert_recipe({"input": inputs, **content, **bounded}), tmp_path / "fourth")
    assert [row[1] for row in kept_rows(tmp_path / "fourth")] == ["1", "2"]


@pytest.mark.parametrize("kind", [pa.large_string(), pa.null()], ids=str)
def test_no_rows(kind: pa.DataType):
    assert judged([], kind, in_=["a"]) == judged([], kind, matches="a", min_count=1) == []
    assert judged([], pa.float64(), min=1) == judged([], pa.int64(), in_=[1]) == []
