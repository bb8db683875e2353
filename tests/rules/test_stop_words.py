# SPDX-License-Identifier: Apache-2.0
"""Rules on stop words: one list, and a list for each language."""

import random
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import curation
from curation.base.contract import TEXT
from curation.base.errors import RecipeError
from curation.recipes.recipe import convert_recipe
from curation.rules.columns import Texts
from curation.rules.decide import expand_rules
from curation.rules.listed import (
    PARTICLES,
    VERB_ENDINGS,
    Listed,
    count_listed,
    count_stop_words,
    notes_of,
    store,
)
from curation.stages.invoke import apply_stage
from tests.conftest import frame_of, table_of
from tests.corpus import NASTY, real_documents
from tests.runs import assert_refused

LISTS = {
    0: ("der", "und", "für", "\u200b", "a", "x" * 30),
    2: ("the", "of", "a", "漢字", "🙂", "der"),
    7: ("और", "the", "."),
}


def counted(text: str | None, words: tuple[str, ...]) -> tuple[int, int]:
    """(different words of the list, all) in a text, by plain Python."""
    split = (text or "").split()
    return len({*words}.intersection(split)), sum(word in words for word in split)


def column_of(texts: list[Any]) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(texts[:3], pa.string()), pa.array(texts[3:], pa.string())])


def counts_of(engine: ModuleType, texts: list[Any], *arguments: Any, **settings: Any) -> list[np.ndarray]:
    """The counts by an engine, which are those of a column on the host."""
    frame = frame_of(engine, texts)
    found = count_stop_words(Texts(engine, lambda: frame[TEXT], len(frame)), *arguments, **settings)
    expected = count_stop_words(column_of(texts), *arguments, **settings)
    np.testing.assert_array_equal(found, expected, strict=True)
    return found


def made(count: int) -> list[str | None]:
    """Texts of listed words, others, and all white space."""
    chance = random.Random(3)
    spaces = [chr(code) for code in range(0x3001) if chr(code).isspace()]
    words = [
        *(word for words in LISTS.values() for word in words),
        "Der",
        "theof",
        "the.",
        "\u200c",
        "ünd",
        "\ufeff",
        "é",
    ]
    rows = [
        "".join(chance.choice(words) + chance.choice(spaces) * chance.choice((1, 1, 2)) for _ in range(number % 40))
        for number in range(count)
    ]
    return [*rows, *(f" {row.strip()}" for row in rows[:50]), *(row.strip() for row in rows[:50]), None]


def test_words_are_counted_as_plain_python_counts_them(engine: ModuleType):
    texts = [*made(300), *[text for text in NASTY if len(text or "") < 10_000], *real_documents(5)]
    chance = random.Random(1)
    numbers = np.array([chance.choice((0, 1, 2, 7, 9)) for _ in texts], np.int32)
    lists = {number: Listed(words=words, as_="stop_word") for number, words in LISTS.items()}
    different, occurrences = counts_of(engine, texts, lists, numbers)
    expected = [counted(text, LISTS.get(number, ())) for text, number in zip(texts, numbers.tolist(), strict=True)]
    assert list(zip(different.tolist(), occurrences.tolist(), strict=True)) == expected
    assert max(expected) > (4, 10)


def test_a_list_of_ones_own(engine: ModuleType, tmp_path: Path):
    path = tmp_path / "stop.txt"
    path.write_text("# German\nder\n  und \nzwei Hunde\n\nfür\n", "utf-8")
    listed = Listed(file=str(path), as_="stop_word")
    texts = ["der Hund und der Hund", "Der", "derund für,", None, "für"]
    assert count_listed(column_of(texts), listed).tolist() == [2, 0, 0, 0, 1]
    assert count_listed(column_of(texts), store(listed, tmp_path)).tolist() == [2, 0, 0, 0, 1]
    assert notes_of(listed)[:3] == (3, 1, ("line 4: 'zwei Hunde'",))
    for rule, kept in (
        ({"min_count": 2}, [0]),
        ({"per": "words", "min": 0.6}, [0, 4]),
        ({"per": "words", "max": 0.6}, [0, 1, 2, 3]),
    ):
        rules = [{"listed": {"file": str(path), "as": "stop_word"}, **rule}]
        stage = convert_recipe({"stages": [{"kind": "filter", "rules": rules}]}).stages[0]
        frame, outcome = apply_stage(engine, engine.from_arrow(table_of(texts)), stage)
        assert engine.to_arrow(frame).column("row").to_pylist() == kept
        assert outcome.verdict.reasons == ("text_listed" + "_per_words" * ("per" in rule),)


def rules_of(tmp_path: Path) -> list[Any]:
    (tmp_path / "de.txt").write_text("der\nund\nfür\n", "utf-8")
    few = {"min_count": 2, "reason": "too_few_stop_words"}
    german = {"listed": {"file": str(tmp_path / "de.txt"), "as": "stop_word"}}
    english = {"listed": {"words": ["the", "of"], "as": "stop_word"}}
    share = {"per": "words", "min": 0.5, "reason": "few_stop_words"}
    rules = {"de": [german | few, german | share], "en": [english | few | {"min_count": 1}], "other": "keep"}
    return [{"per": "language", "rules": rules}]


def test_each_language_has_a_list(engine: ModuleType, tmp_path: Path):
    texts = ["der und", "der der", "the", "der und", "der und x y z", None, "x"]
    languages = ["de", "de", "en", "en", "de", "de", "fr"]
    frame = engine.from_arrow(table_of(texts).append_column("language", pa.array(languages, pa.large_string())))
    stage = convert_recipe({"stages": [{"kind": "filter", "rules": rules_of(tmp_path)}]}).stages[0]
    rules = expand_rules(stage.rules)
    assert [len(rule.lists) for rule in rules] == [2, 1]
    assert [*stage.files()] == [str(tmp_path / "de.txt")]
    for prepared in (stage, stage.prepare(tmp_path)):
        verdict = apply_stage(engine, frame, prepared)[1].verdict
        reasons = ["" if number < 0 else verdict.reasons[number] for number in verdict.reason.tolist()]
        few = "too_few_stop_words"
        assert reasons == ["", few, "", few, "few_stop_words", few, ""]
        np.testing.assert_equal(verdict.value, [np.nan, 1, np.nan, 0, 0.4, 0, np.nan])
        np.testing.assert_equal(verdict.broken_bounds(), [np.nan, 2, np.nan, 1, 0.5, 2, np.nan])
    assert stage.explain()[:2] == [
        "too_few_stop_words: number of different stop words, at least 1 to 2, per language (2 groups)",
        f"few_stop_words: entries of {tmp_path}/de.txt as stop_word per words at least 0.5, per language (1 group)",
    ]


def test_counts_are_columns(tmp_path: Path):
    import pandas

    frame = pandas.DataFrame({"text": ["der und der", "the of"], "language": ["de", "en"]})
    found = curation.explain(frame, rules_of(tmp_path))
    assert found["too_few_stop_words_listed"].tolist() == [2, 2]
    assert found["few_stop_words_listed"].tolist() == [3, 0]


WRONG = {
    "{listed: {as: stop_word}, min_count: 1}": ("file of listed must be the path of a file, not ''",),
    "{listed: {words: [a, b c], as: stop_word}, min_count: 1}": ("single words without white space, not 'b c'",),
    "{listed: {words: [a], as: word}, min_count: 1}": ("words of listed are for as: stop_word without member",),
    "{listed: {words: [a], file: x, as: stop_word}, min_count: 1}": ("a file or words, not both: x and 'a'",),
    "{listed: {file: x, as: word}, per: words, min: 0.5}": ("per divides the count of words, as: stop_word, not as:",),
    "{listed: {words: [a], as: stop_word}, per: words, min_count: 1}": ("min_count has no meaning with per",),
    "{listed: {words: [a], as: stop_word}, column: url, per: words, min: 1}": ("words are counted in column 'url'",),
    "{listed: {words: [a], as: stop_word}, min: 1}": ("min has no meaning with listed. Use min_count",),
}


@pytest.mark.parametrize("rule", WRONG)
def test_wrong_lists_are_refused(rule: str):
    assert_refused(f"stages: [{{kind: filter, rules: [{rule}]}}]", WRONG[rule])


def test_a_column_of_numbers_has_no_words(tmp_path: Path):
    import pandas

    rule = {"column": "n", "listed": {"words": ["a"], "as": "stop_word"}, "min_count": 1}
    told = "rule n_listed: column 'n' holds int64, but listed as stop_word is for strings"
    frame = pandas.DataFrame({"text": ["a"], "n": [1], "language": ["a"]})
    for rules in (rule, {"per": "language", "rules": {"a": [rule]}}):
        with pytest.raises(RecipeError, match=re.escape(told)):
            curation.filter(frame, rules)


@pytest.mark.parametrize(("words", "kept"), [("spaces", [2]), ("scripts", [0, 2]), ("table", [0, 1, 2])])
def test_words_are_those_of_the_filter(engine: ModuleType, words: str, kept: list[int]):
    """`的` is a word in the first text by the table, and `book` in the second one without its marks."""
    texts = ["我们的书", "(book)", "的 book"]
    listed = {"listed": {"words": ["的", "book"], "as": "stop_word"}, "min_count": 1}
    either = {"any": [listed, {"measure": "words", "min": 99}]}
    column = pa.array(["zh"] * 3, pa.large_string())
    frame = engine.from_arrow(table_of(texts).append_column("language", column))
    for rules in ([listed], [either], *([{"per": "language", "rules": {"zh": rule}}] for rule in ([listed], [either]))):
        stage = convert_recipe({"stages": [{"kind": "filter", "words": words, "rules": rules}]}).stages[0]
        found, _ = apply_stage(engine, frame, stage)
        assert engine.to_arrow(found).column("row").to_pylist() == kept, rules


def test_long_lists_do_not_mix(engine: ModuleType):
    """Lists so long that every word passes the filter of bits."""
    lists = {number: Listed(words=tuple(f"w{number}{k}" for k in range(3000)), as_="stop_word") for number in (1, 2)}
    texts = [" ".join(lists[1].words[:40])] * 2
    different, occurrences = counts_of(engine, texts, lists, np.array([1, 2], np.int32))
    assert different.tolist() == occurrences.tolist() == [40, 0]


# Korean


def test_endings_of_korean_words_count_as_words(engine: ModuleType, tmp_path: Path):
    """With `words: scripts` or `table`, and only those that a list has."""
    korean = ("는", "을", "다", "에서", "서", "습니다", "정부는")
    texts = {  # text -> different words by spaces, scripts (a mark belongs to the word before it) and table
        "정부는 사람을": (1, 3, 3), "정부 사람": (0, 0, 0), "는 을": (2, 2, 2), "API는 é을 🙂다": (0, 3, 3),
        "漢을": (0, 1, 1),
        "있습니다": (0, 1, 1), "학교에서 집에서": (0, 1, 1), "는는": (0, 1, 1), "정부는.": (0, 0, 2),
        "갔다. 했다": (0, 1, 1),
    }  # fmt: skip
    (tmp_path / "ko.txt").write_text("\n".join(korean), "utf-8")
    for place, words in enumerate(("spaces", "scripts", "table")):
        for source in ({"words": korean}, {"file": str(tmp_path / "ko.txt")}):
            rules = [{"listed": {**source, "as": "stop_word"}, "max_count": 0}]
            stage = convert_recipe({"stages": [{"kind": "filter", "rules": rules, "words": words}]}).stages[0]
            frame = engine.from_arrow(table_of([*texts, None]))
            found = stage.prepare(tmp_path).count_patterns(engine, frame)["text_listed"].tolist()
            assert found == [*(counts[place] for counts in texts.values()), 0], words


def test_endings_are_found_as_plain_python_finds_them(engine: ModuleType):
    chance = random.Random(5)
    endings = (*PARTICLES, *VERB_ENDINGS)
    words = (*chance.sample(endings, 30), "정부", "학교에서")
    stems = ["", "정부", "학교", "가", "abc", "a", "漢", "먹었", "ㄱ", "é", "🙂", "\u11a8"]
    made = [[chance.choice(stems) + chance.choice(endings) for _ in range(chance.randrange(9))] for _ in range(400)]

    def ending(word: str) -> str:
        known = (word[-count:] for count in (3, 2, 1) if len(word) > count)
        return next((part for part in known if part in endings and part in words), "")

    texts = [" ".join(text) for text in made]
    different, all_of_them = counts_of(engine, texts, {0: Listed(words=words, as_="stop_word")}, words="scripts")
    expected = [[word for word in [*text, *map(ending, text)] if word in words] for text in made]
    assert different.tolist() == [len({*text}) for text in expected] and max(different) > 6
    assert all_of_them.tolist() == [len(text) for text in expected]
