# SPDX-License-Identifier: Apache-2.0
"""`explain`, `plot` and the details of duplicates; measures that a frame has are not computed again."""

import inspect
import sys
import threading
from pathlib import Path
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

import cpu_fallback
import curation
from curation.base.errors import InputError, InputWarning, RecipeError
from curation.base.system.progress import NotebookLine
from curation.base.system.svg import KEPT, REMOVED
from curation.frames.measured import CHECKED_ROWS
from curation.rules.decide import RULE_SETS
from tests.needs import needs
from tests.runs import made_texts, recipe_of

RULES = ["gopher_repetition", {"measure": "words", "min": 5, "reason": "short"}]
SHORT = curation.Rule(measure="words", min=2, reason="short")


@pytest.fixture
def frame() -> pd.DataFrame:
    texts = made_texts(120, 3)
    return pd.DataFrame({"id": [f"d{k}" for k in range(len(texts))], "text": texts}, index=range(100, 220))


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The names of each call of the kernel of measures, except those that compare a few rows."""
    names: list[tuple[str, ...]] = []
    measure = cpu_fallback.measure

    def noted(text: Any, wanted: tuple[str, ...]) -> Any:
        names.extend([wanted] if len(text) > CHECKED_ROWS else [])
        return measure(text, wanted)

    monkeypatch.setattr(cpu_fallback, "measure", noted)
    return names


# Verdicts


def test_explain_has_measures_and_the_verdict_of_every_row(frame: pd.DataFrame):
    explained = curation.explain(frame, RULES)
    assert explained.index.equals(frame.index) and explained["text"].equals(frame["text"])
    assert explained["kept"].tolist() == frame.index.isin(curation.filter(frame, RULES).index).tolist()
    assert 0 < explained["kept"].sum() < len(frame)
    names = [name for name in explained if name in curation.Measure.__members__]
    pd.testing.assert_frame_equal(explained[names], curation.measure(frame, names)[names])
    rules = {rule.name: rule for rule in (*RULE_SETS["gopher_repetition"], curation.Rule(**RULES[1]))}
    assert {*rules} >= {*explained["reason"].dropna()} and explained["reason"].notna().equals(~explained["kept"])
    for row in explained[~explained["kept"]].to_dict("records"):
        rule = rules[row["reason"]]
        measured = {name: np.array([row[name]]) for name in rule.measures}
        assert row["value"] == rule.values(measured)[0] and row["bound"] in rule.bounds
        assert not rule.bounds[0] <= row["value"] <= rule.bounds[1]
    assert explained.loc[explained["kept"], ["value", "bound"]].isna().all(axis=None)


def test_explain_takes_the_settings_of_filter():
    frame, rule = pd.DataFrame({"text": ["東京の夏は暑い。", "one"]}), curation.Rule(measure="words", min=2)
    explained = curation.explain(frame, rule, words="scripts")
    assert explained["kept"].tolist() == [True, False]
    assert curation.filter(frame, rule, words="scripts").index.tolist() == [0]
    assert curation.explain(frame, curation.Filter(rules=[rule], words="scripts")).equals(explained)
    keywords = [[*inspect.signature(function).parameters] for function in (curation.explain, curation.filter)]
    assert keywords[0] == keywords[1]


def test_explain_has_the_count_of_every_pattern_on_kept_rows_too():
    rules = [
        {"matches": "a", "min_count": 2}, {"matches": "(?i)b", "max_count": 9},
        {"column": "url", "matches": "/", "max_count": 1, "reason": "deep"},
    ]  # fmt: skip
    frame = pd.DataFrame({"text": ["aab B", "a", None], "url": ["a/b", "a/b/c", None]})
    for given in (frame, dd.from_pandas(frame, npartitions=2)):
        found = curation.explain(given, rules)
        found = found if given is frame else found.compute()
        names = ["text_matches", "text_matches_2", "deep_matches"]
        assert found[names].values.tolist() == [[2, 2, 1], [1, 0, 2], [0, 0, 0]]
        assert found[names].dtypes.unique().tolist() == [np.int64] and found["kept"].tolist() == [True, False, False]


def test_explain_of_a_lazy_frame_is_the_same(frame: pd.DataFrame):
    lazy = curation.explain(dd.from_pandas(frame, npartitions=3), RULES)
    assert isinstance(lazy, dd.DataFrame)
    pd.testing.assert_frame_equal(lazy.compute(), curation.explain(frame, RULES), check_dtype=False)


def test_rules_on_columns_need_no_measure(calls: list[Any]):
    frame = pd.DataFrame({"text": ["a", "b"], "lang": ["en", "de"]})
    explained = curation.explain(frame, {"column": "lang", "in": ["en"]})
    assert explained["kept"].tolist() == [True, False] and calls == []


# Measures are computed once


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("first", [lambda frame: curation.explain(frame, RULES), curation.measure])
def test_a_measured_frame_is_not_measured_again(frame: pd.DataFrame, calls: list[Any], first: Any, lazy: bool):
    expected = curation.filter(frame, RULES)["id"].tolist()
    measured = first(dd.from_pandas(frame, npartitions=3) if lazy else frame)
    measured = measured.persist() if lazy else measured
    assert calls
    calls.clear()
    found = curation.filter(measured[measured["id"] != "d7"], RULES)
    assert (found.compute() if lazy else found)["id"].tolist() == [name for name in expected if name != "d7"]
    again = curation.explain(measured, RULES)
    assert (again.compute() if lazy else again)["kept"].sum() == len(expected) and calls == []


def test_measures_in_parquet_are_still_known(tmp_path: Path, frame: pd.DataFrame, calls: list[Any]):
    curation.measure(frame).to_parquet(tmp_path / "measured.parquet")
    calls.clear()
    assert len(curation.filter(pd.read_parquet(tmp_path / "measured.parquet"), RULES)) and calls == []


@pytest.mark.parametrize(
    "change",
    [
        lambda frame: curation.rewrite(frame, lowercase=True),
        lambda frame: curation.measure(frame.drop(columns="words").assign(words=3.5), "bytes"),
        lambda frame: frame.drop(columns="words"),
        lambda frame: pd.DataFrame(frame.to_dict("list")),
    ],
    ids=["rewritten", "floats", "a measure less", "without the note"],
)
def test_a_frame_without_measures_of_its_text_is_measured(frame: pd.DataFrame, calls: list[Any], change: Any):
    changed = change(curation.measure(frame))
    calls.clear()
    expected = curation.filter(pd.DataFrame({"text": changed["text"].tolist()}), RULES)["text"].tolist()
    assert len(calls) == 1
    assert curation.filter(changed, RULES)["text"].tolist() == expected and len(calls) == 2


def test_a_call_leaves_the_note_of_its_frame(frame: pd.DataFrame):
    measured = curation.measure(frame, ["words"])
    curation.rewrite(measured, lowercase=True)
    curation.measure(measured, ["lines"])
    assert measured.attrs == {"curation.measured": {"text": ["words"]}, "curation.written": ["words"]}
    assert frame.attrs == {}


# Duplicates


@pytest.mark.parametrize("parts", [0, 1, 4])
def test_pairs_and_groups_of_near_duplicates(parts: int):
    base = [" ".join(f"{row}-{k}" for k in range(40)) for row in range(4)]
    texts = [*base, base[0] + " more", base[2], "", base[0] + " more words"]
    frame = pd.DataFrame({"body": texts, "id": list("abcdefgh")})
    given = dd.from_pandas(frame, npartitions=parts) if parts else frame
    found = curation.fuzzy_dedup(given, threshold=0.7, text_column="body", details=True)
    kept = found.kept.compute() if parts else found.kept
    assert kept["id"].tolist() == ["a", "b", "c", "d", "g"]
    pairs = found.pairs
    assert pairs[["row", "kept_row"]].values.tolist() == [[4, 0], [5, 2], [7, 0]]
    assert pairs[["id", "kept_id"]].values.tolist() == [["e", "a"], ["f", "c"], ["h", "a"]]
    assert pairs["text"].tolist() == [texts[4], texts[5], texts[7]]
    assert pairs["kept_text"].tolist() == [texts[0], texts[2], texts[0]]
    assert pairs["similarity"].tolist() == pytest.approx([36 / 37, 1, 36 / 38])
    assert found.groups[["kept_row", "documents"]].values.tolist() == [[0, 3], [2, 2]]
    assert found.groups["similarity"].tolist() == pytest.approx([36 / 38, 1])
    assert repr(found) == "<duplicates: 3 documents in 2 groups>"


def test_pairs_of_equal_texts():
    found = curation.exact_dedup(pd.DataFrame({"text": ["a", "b", "a"]}), details=True)
    assert list(found.pairs) == ["row", "kept_row", "similarity", "text", "kept_text"]
    assert found.pairs.values.tolist() == [[2, 0, 1.0, "a", "a"]] and found.groups.values.tolist() == [[0, 2, 1.0]]


def test_no_duplicates_and_no_rows():
    for texts in ([], ["a", "b"]):
        found = curation.fuzzy_dedup(pd.DataFrame({"text": pd.Series(texts, dtype="str")}), details=True)
        assert len(found.pairs) == len(found.groups) == 0 and len(found.kept) == len(texts)


def test_unverified_pairs_have_no_similarity():
    frame = pd.DataFrame({"text": ["one two three four five six", "one two three four five six"]})
    found = curation.fuzzy_dedup(frame, verify="none", details=True)
    assert found.pairs["similarity"].isna().tolist() == found.groups["similarity"].isna().tolist() == [True]


def test_pairs_with_a_saved_index(tmp_path: Path):
    text = "one two three four five six seven"
    (tmp_path / "a.txt").write_text(text)
    output = {"formats": [], "index": True}
    recipe = recipe_of(tmp_path / "a.txt", stages=["fuzzy_dedup"], output=output)
    curation.run(recipe, tmp_path / "out", engine="cpu", progress=False)
    frame = pd.DataFrame({"text": ["new", text, "other " + text, "other " + text]})
    found = curation.fuzzy_dedup(frame, index=tmp_path / "out" / "index", details=True)
    assert found.pairs[["row", "kept_row"]].values.tolist() == [[1, -1], [3, 2]]
    assert found.pairs["kept_text"].isna().tolist() == [True, False] and len(found.groups) == 1


# Charts


def test_a_chart_has_the_bins_and_the_bound(frame: pd.DataFrame):
    needs("altair")
    explained = curation.explain(frame, [SHORT])
    chart = curation.plot(explained, [SHORT]).to_dict()
    [drawn] = chart["concat"]
    bars, line = (layer["data"]["values"] for layer in drawn["layer"])
    assert sum(row["documents"] for row in bars) == len(frame) and line == [{"bound": 2}]
    effect = curation.rule_effects(explained, [SHORT]).effects[0]
    assert [row["documents"] for row in bars] == effect.histogram.counts.tolist()
    assert {row["color"] for row in bars if row["to"] <= 2} == {REMOVED}
    assert {row["color"] for row in bars if row["from"] >= 2} == {KEPT}
    assert f"short: removes {effect.removed_now}" in drawn["title"]["subtitle"]


def test_a_chart_does_not_grow_with_the_documents():
    needs("altair")
    sizes = []
    for count in (100, 100_000):
        chart = curation.plot({"words": np.arange(count)}, [SHORT])
        sizes.append(len(chart.to_json()))
    assert sizes[1] < 1.2 * sizes[0] < 10_000


def test_a_chart_without_altair_names_the_package(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "altair", None)
    with pytest.raises(ImportError, match=r"curation.plot needs Altair \(.*\); pip install 'gpu-pipeline\[notebook\]'"):
        curation.plot({"words": [1]}, [SHORT])


# Wrong arguments


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda frame: curation.explain(frame[["id"]], "gopher"), InputError, "column 'text' not found in the frame"),
        (lambda frame: curation.explain(frame, {"measure": "wordz", "min": 1}), RecipeError, "did you mean words"),
        (lambda frame: curation.explain(frame, "gophr"), RecipeError, "no rule set named 'gophr'; did you mean gopher"),
        (lambda frame: curation.explain(frame, []), RecipeError, "rules is empty"),
        (lambda frame: curation.explain(frame, "gopher", words="script"), RecipeError, "did you mean scripts"),
        (lambda frame: curation.explain(frame, "gopher", word="scripts"), RecipeError, "'word'; did you mean words"),
        (lambda frame: curation.plot(frame, [SHORT]), RecipeError, "no column 'words' in the measures.*Compute it"),
        (lambda frame: curation.plot({"wordz": [1]}, [SHORT]), RecipeError, "no column 'words'.*did you mean wordz"),
        (lambda frame: curation.exact_dedup(frame[["id"]], details=True), InputError, "column 'text' not found"),
    ],
)
def test_a_wrong_argument_ends_in_one_message(frame: pd.DataFrame, call: Any, error: Any, message: str):
    needs("altair")
    with pytest.raises(error, match=message):
        call(frame)


def test_immediate_calls_show_progress_in_notebooks(frame: pd.DataFrame, monkeypatch: pytest.MonkeyPatch):
    shown, lines = threading.Event(), []
    line = NotebookLine(lambda data, **_: lines.append(data["text/plain"]) or shown.set())
    line.every = line.loop_delay = 0.001
    measure = cpu_fallback.measure
    monkeypatch.setattr(cpu_fallback, "measure", lambda text, names: shown.wait(60) and measure(text, names))
    monkeypatch.setattr("curation.frames.frames.notebook_progress", lambda: line)
    curation.measure(frame, "words")
    assert lines[0] == "measure" and lines[-1].startswith("done in ")


def test_measures_of_other_texts_are_not_used():
    frame = pd.DataFrame({"body": ["one two three four"] * 300})
    measured = curation.measure(frame, ["words"], text_column="body")
    assert len(curation.filter(measured[::7], {"words": {"min": 3}}, text_column="body")) == 43
    measured["body"] = measured["body"].str[:7]
    told = r"the measures in the frame are not those of 'body': words is 4 in the frame and 2 in the text"
    for function in (curation.filter, curation.explain):
        with pytest.warns(InputWarning, match=told) as warned:
            found = function(measured, {"words": {"min": 3}}, text_column="body")
        assert not len(found) or not found["kept"].any()
        assert warned[0].filename == __file__
