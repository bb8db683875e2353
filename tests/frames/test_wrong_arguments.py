# SPDX-License-Identifier: Apache-2.0
"""Arguments of another type than a function expects: one message of this package, with what to write."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import curation
from tests.runs import made_texts, records_of

FRAME = pd.DataFrame({"text": ["one two", "three"]})
NO_TOKENS = {"formats": []}


@curation.stage
def unchanged(texts: Any) -> str:
    return texts


def run(**changed: Any) -> Any:
    content = {"stages": changed.pop("stages", []), "output": NO_TOKENS}
    return curation.run(content, "out", **{"input": FRAME, "engine": "cpu", "progress": False, **changed})


WRONG: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "a path as inputs": (
        lambda: curation.Recipe(stages=[curation.ExactDedup()], input="a.jsonl"), curation.RecipeError,
        r"input takes a list of inputs, not 'a.jsonl'. Write input=\[curation.Input\(PATH\)\]",
    ),
    "a word as workers": (lambda: run(workers="two"), curation.ArgumentError, "workers must be a whole number.*'two'"),
    "a list of shares": (
        lambda: curation.tokenize(FRAME, "out", splits=[0.9, 0.1]), curation.ArgumentError,
        r'splits must be shares by name, such as {"train": 0.9, "valid": 0.1}, not \[0.9, 0.1\]',
    ),
    "the class of a stage": (
        lambda: run(stages=[unchanged]), curation.RecipeError,
        r"got its class. Write unchanged\(\) - at `\$.stages\[0\]`",
    ),
    "a function": (
        lambda: run(stages=[unchanged.function]), curation.RecipeError,
        "got the function unchanged. Write @curation.stage before it",
    ),
    "a class in a structure": (
        lambda: curation.Recipe(stages=[unchanged]), curation.RecipeError, r"the class unchanged. Write unchanged\(\)",
    ),
    "a setting of another section": (
        lambda: curation.convert_recipe({"output": {"format": []}}), curation.RecipeError, "did you mean formats?",
    ),
    "a misspelt setting of a frame": (
        lambda: run(input={"path": FRAME, "text_colum": "text"}), curation.RecipeError, "did you mean text_column?",
    ),
    "frames in place of files": (
        lambda: curation.check_overlap(FRAME, FRAME), curation.ArgumentError,
        "expected paths or inputs, got a DataFrame. Write it to a file",
    ),
    "a frame in place of a run": (
        lambda: curation.compare_runs(FRAME, "."), curation.ArgumentError,
        "expected the folder of a run, or its RunResult, got DataFrame",
    ),
    "nothing to verify": (
        lambda: curation.verify(None), curation.ArgumentError, "expected the folder of a run.*got NoneType",
    ),
    "a number as output": (
        lambda: curation.run("default", 5, input=FRAME), curation.RecipeError,
        r"Expected `str`, got `int` - at `\$.output`",
    ),
    "no rules": (
        lambda: curation.filter(FRAME), curation.ArgumentError,
        r"filter: 1 argument missing \(rules\). Write curation.filter\(frame, rules\)",
    ),
    "a word as threshold": (
        lambda: curation.FuzzyDedup(threshold="high"), curation.RecipeError,
        r"fuzzy_dedup: Expected `float`, got `str` - at `\$.threshold`",
    ),
    "texts in place of paths": (
        lambda: run(input=["Is this\na text?\n" * 90, "one\ntwo"]), curation.ArgumentError,
        r"got the text '(Is this\\na text\?\\n){3}Is this\\na te\.\.\.'\. Give a frame of texts",
    ),
    "a long line in place of a path": (
        lambda: curation.read("words " * 50), curation.ArgumentError,
        r"got the text '(words ){10}\.\.\.'\. Give a frame",
    ),
    "a misspelt measure": (
        lambda: curation.filter(FRAME, ["gopher", {"wordz": {"min": 3}}]), curation.InputError,
        r"reads the column 'wordz', which the frame lacks.*; did you mean words\? Add the column",
    ),
    "a misspelt measure of a run": (
        lambda: run(stages=[{"filter": {"rules": {"wordz": {"min": 3}}}}]), curation.RecipeError,
        r"'wordz', which the input frame .* does not carry; did you mean words\? Or add columns",
    ),
    "effects without measures": (
        lambda: curation.rule_effects(FRAME, "fineweb"), curation.RecipeError,
        r"lack 7 columns: punctuated_lines, text_lines, .*words. Call curation.explain\(frame, 'fineweb'\) first",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_one_message_says_what_to_write(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    call, kind, message = WRONG[case]
    with pytest.raises(kind, match=message) as raised:
        call()
    assert isinstance(raised.value, curation.CurationError) and "\n" not in str(raised.value)


def test_a_recipe_whose_list_was_changed_is_shown_and_refused(tmp_path: Path):
    recipe = curation.convert_recipe({"stages": ["exact_dedup"], "output": NO_TOKENS})
    recipe.stages.append("fuzzy_dedup")
    assert repr(recipe) == "<recipe without name: 0 inputs; exact_dedup, 'fuzzy_dedup'; tokenizer gpt2>"
    assert "not a stage" in recipe._repr_html_()
    with pytest.raises(curation.RecipeError, match=r"stages takes stages, .*, not 'fuzzy_dedup'"):
        curation.run(recipe, tmp_path / "out", input=FRAME, progress=False)


def test_a_threshold_above_one_is_no_percentage():
    with pytest.raises(ValueError, match=r"threshold must be .*, not 1.5. It is the Jaccard similarity"):
        curation.FuzzyDedup(threshold=1.5)
    with pytest.raises(ValueError, match=r"Write 0.8 for 80 %"):
        curation.FuzzyDedup(threshold=80)


# Comparison of runs


def test_runs_are_compared_by_their_results_and_shown_by_their_folders(tmp_path: Path):
    path = tmp_path / "made.jsonl"
    path.write_bytes(records_of([*made_texts(60), "few words", "few  words"]))

    def made(folder: str, *stages: Any) -> curation.RunResult:
        recipe = {"input": [{"path": str(path)}], "stages": [*stages], "output": NO_TOKENS}
        return curation.run(recipe, tmp_path / folder, engine="cpu", progress=False)

    rules = {"filter": {"rules": [{"measure": "words", "min": 3, "reason": "few"}]}}
    a = made("a", rules, "exact_dedup")
    b = made("b", {"filter": {"rules": [{"measure": "words", "min": 30, "reason": "many"}]}}, "exact_dedup")
    found = curation.compare_runs(a, b.folder)
    # "few" is of the filter of A alone, "many" of that of B: both come before the stage after them
    assert [entry.stage for entry in found.removals] == ["filter", "filter", "exact_dedup"]
    page = found._repr_html_()
    assert f">{a.folder}</th><th" in page and f">{b.folder}</th></tr>" in page and "<p>different settings</p>" in page
    assert page.count("<table>") == 3 and "documents that only one run kept" in page
