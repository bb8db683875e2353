# SPDX-License-Identifier: Apache-2.0
"""`lines` cuts the units that break a rule, as plain Python does, and counts them."""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

import curation
from curation.base.contract import TEXT
from curation.base.errors import RecipeError
from curation.cli.main import main
from curation.recipes.recipe import convert_recipe, load_recipe
from curation.running.run import run
from curation.stages import Lines
from curation.stages.invoke import apply_stage
from tests.conftest import frame_of
from tests.corpus import NASTY, real_documents
from tests.oracle.lines import lines_of

SHAPES = [
    "exactly half of these lines\nx\n",
    "one two three four.\r\nHome\r\n\r\nfive six.", "a\x00b c\nNUL\x00", "x\u2028y z w.\u2029  end", "", "\n",
    " \n\t\n", "word", "Title\n\nA first line.\nA second one!\n\n\nTitle\n\nThe end…",
    "  indented line here \n\tother\t\n", "a\nb\na\nb\na\n\n\n",
    "One. Two three. Four (five.) Six \"seven.\" eight", "\ufeffmark at start\n",
    "\n\n  lead {\nDrop { me\n", "漢字。かな！\nภาษา",
    "word " * 3000, "LOUD LINE HERE\nquiet line here\nLOUD LINE HERE\n",
]  # fmt: skip
TEXTS = [*SHAPES, *(text for text in NASTY if len(text) < 1200)]
WORDS = {"name": "words", "measure": "words", "min": 3}
LOUD = {"name": "loud", "ratio": ["uppercase_characters", "characters"], "max": 0.5}
MARK = {"name": "mark", "matches": r"[.!?。]", "min_count": 1}
CURLY = {"name": "curly", "matches": r"\{", "max_count": 0, "removes": "document"}
SEVEN = {"name": "seven", "matches": "(?i)seven|HOME", "max_count": 0}
AS = {"name": "a", "matches": "a", "max_count": 2}
REPEATS = {"name": "repeats", "measure": "repeats", "max": 0}
SETTINGS: list[dict[str, Any]] = [
    {"rules": [WORDS]},
    {"rules": [MARK, CURLY, SEVEN, AS, WORDS], "strip": True},
    {"rules": [REPEATS]},
    {"rules": [LOUD, REPEATS], "unit": "paragraph"},
    {"rules": [SEVEN, AS, WORDS], "unit": "sentence", "max_removed": {"words": 0.5}},
    {"rules": [WORDS], "max_removed": {"lines": 0.5, "characters": 0.2}, "strip": True},
    {"rules": [{**WORDS, "removes": "document"}, AS], "cut": False, "max_removed": {"characters": 0.25},
     "unit": "sentence"},
    {"rules": [REPEATS, WORDS], "unit": "paragraph", "strip": True},
    {"rules": [SEVEN, CURLY], "cut": False},
]  # fmt: skip


def stage_of(settings: dict[str, Any]) -> Lines:
    rules = [{"reason" if key == "name" else key: value for key, value in rule.items()} for rule in settings["rules"]]
    stage = convert_recipe({"stages": [{"kind": "lines", **settings, "rules": rules}]}).stages[0]
    assert isinstance(stage, Lines)
    return stage


def applied(engine, texts: list[str | None], stage: Lines) -> tuple[list[str | None], list[str], list[bool], Counter]:
    """Texts after the stage (those of removed documents before it), reasons, edited rows, and details."""
    frame = frame_of(engine, texts)
    outcome = apply_stage(engine, frame, stage)[1]
    reasons = [outcome.verdict.reasons[number] if number >= 0 else "" for number in outcome.verdict.reason]
    after = frame if outcome.text is None else engine.with_columns(frame, {TEXT: outcome.text})
    edited = [False] * len(texts) if outcome.edited is None else outcome.edited.tolist()
    return engine.to_arrow(after).column(TEXT).to_pylist(), reasons, edited, Counter(outcome.details)


@pytest.mark.parametrize(
    "settings", SETTINGS, ids=lambda settings: "-".join(rule["name"] for rule in settings["rules"])
)
def test_texts_reasons_and_counts_are_those_of_the_oracle(engine, settings: dict[str, Any]):
    found, reasons, edited, details = applied(engine, TEXTS, stage_of(settings))
    expected = [lines_of(text, **settings) for text in TEXTS]
    assert reasons == [each.reason for each in expected]
    kept = [number for number, each in enumerate(expected) if each.text is not None]
    assert [found[number] for number in kept] == [expected[number].text for number in kept]
    assert edited == [each.text is not None and each.text != text for each, text in zip(expected, TEXTS, strict=True)]
    for key, counts in (("cut_units", "units"), ("cut_characters", "characters")):
        total = sum((getattr(each, counts) for each in expected), Counter())
        by_rule = {rule["name"]: details[f"{key}/{rule['name']}"] for rule in settings["rules"]}
        assert Counter(by_rule) == total and details[key] == total.total()


@pytest.mark.parametrize("settings", SETTINGS[1:6:2], ids=str)
def test_results_do_not_depend_on_how_documents_are_divided(engine, settings: dict[str, Any]):
    texts, stage = [None, *SHAPES, None], stage_of(settings)
    whole = applied(engine, texts, stage)
    parts = [applied(engine, texts[start : start + 5], stage) for start in range(0, len(texts), 5)]
    assert whole[:3] == tuple([value for part in parts for value in part[k]] for k in range(3))
    assert whole[3] == sum((part[3] for part in parts), Counter())
    assert whole[0][0] is None


def test_a_line_of_a_megabyte(engine):
    text = "word " * 200_000 + "\nshort\n" + "x" * 1_000_000
    assert applied(engine, [text], stage_of({"rules": [WORDS]}))[0] == ["word " * 200_000 + "\n"]


def test_real_documents(engine):
    settings = SETTINGS[1]
    texts = [text[:3000] for text in real_documents(20)]
    found, reasons, _, _ = applied(engine, texts, stage_of(settings))
    expected = [lines_of(text, **settings) for text in texts]
    assert reasons == [each.reason for each in expected]
    assert [text for text, why in zip(found, reasons, strict=True) if not why] == [
        each.text for each in expected if each.text is not None
    ]


MISTAKES = [
    ({"unit": "word"}, "unit must be one of line, paragraph, sentence, not 'word'"),
    ({"rules": []}, "rules is empty"),
    ({"max_removed": {"pages": 0.5}}, "max_removed takes words, lines, characters, not 'pages'"),
    ({"max_removed": {"words": 1}}, "max_removed: words must be a share from 0 to below 1, not 1"),
    ({"rules": {"url": {"in": ["a"]}}}, "a rule on column 'url' judges documents, and a unit has no columns"),
    ({"rules": {"words": {"min": 3, "removes": "page"}}}, "removes must be document, not 'page'"),
    ({"rules": {"repeats/words": {"max": 0.5}}}, "repeats has no ratio; give {repeats: {max: 0}}"),
    ({"rules": {"repeats": {"max": -1}}}, "max: -1 removes everything"),
    ({"rules": [{"matches": "a(?=b)", "max_count": 0}]}, "RE2 has no lookaround"),
    ({"rules": [{"any": [{"words": {"min": 3, "removes": "document"}}, {"repeats": {"max": 0}}]}]}, "give it to any"),
    ({"rules": [{"any": ["gopher", {"words": {"min": 3}}]}]}, "any takes single rules, not the set gopher"),
    ({"rules": {"wrods": {"min": 3}}}, "Put it into a filter stage, or name a measure; did you mean words"),
    ({"rules": [{"words": {"min": 3}, "removes": "document"}]}, "write {words: {..., removes: document}} - at `$.sta"),
    ({"rules": {}}, "rules is empty"),
    ({"cut": False}, "cut: false changes nothing without max_removed, and no rule removes a document"),
]


@pytest.mark.parametrize(("settings", "message"), MISTAKES, ids=[message[:40] for _, message in MISTAKES])
def test_mistakes(settings: dict[str, Any], message: str):
    with pytest.raises(RecipeError) as error:
        convert_recipe({"stages": [{"lines": {"rules": {"words": {"min": 3}}, **settings}}]})
    assert message in str(error.value)


def test_a_filter_has_neither_repeats_nor_removes():
    rule = {"repeats": {"max": 0}}  # a column of this name
    assert convert_recipe({"stages": [{"filter": {"rules": rule}}]}).stages[0].reads() == ("repeats",)
    with pytest.raises(RecipeError, match="removes"):
        convert_recipe({"stages": [{"filter": {"rules": {"words": {"min": 3, "removes": "document"}}}}]})


def test_the_function_on_a_frame():
    frame = pd.DataFrame({"body": ["Menu\nOne two three.\n", "x {\n"]}, index=[7, 8])
    rules = [{"words": {"min": 3, "reason": "short"}}, {"matches": "\\{", "max_count": 0, "removes": "document"}]
    assert curation.lines(frame, rules[::-1], text_column="body")["body"].to_dict() == {7: "One two three.\n"}
    assert curation.lines(frame, curation.Rule(measure="words", min=3), text_column="body")["body"].tolist()[1] == ""


def test_the_recipe_of_the_page_and_the_shipped_ones():
    page = (Path(__file__).resolve().parents[2] / "docs/lines.md").read_text("utf-8")
    [block] = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    shipped = [load_recipe("c4").stages[:4], load_recipe("refinedweb").stages[2:3]]
    chains = [convert_recipe(yaml.safe_load(block)).stages, *shipped]
    texts = [
        "Home | Menu\nIt has some words in it. \nIt has some words in it.\nLOUD WORDS ARE HERE\n",
        "Only words of javascript stay here.\nOne. Two. Three. Four! Five?\nThis ends in dots...\nNo end here\n",
        "A line { of a brace.\n", "Some words of a long text, not all of which is plain. " * 3 + "\n12 likes\nShare\n",
    ]  # fmt: skip
    after = []
    for stages in chains:
        frame = pd.DataFrame({"text": texts})
        for stage in stages:
            frame = curation.apply(frame, stage)
        after.append(frame["text"].to_dict())
    assert after[0] == {1: texts[1], 2: texts[2], 3: texts[3].replace("12 likes\nShare\n", "").replace(". \n", ".\n")}
    assert after[1] == {1: "One. Two. Three. Four! Five?\n"}
    assert after[2] == {1: texts[1], 2: texts[2]}


def test_listed_words_and_alternatives(engine, tmp_path: Path):
    (tmp_path / "words.txt").write_text("menu\nhome\n")
    alternatives = {"any": [{"words": {"min": 3}}, {"matches": "^#", "min_count": 1}], "reason": "short"}
    listed = {"listed": {"file": str(tmp_path / "words.txt"), "as": "word"}, "max_count": 0, "reason": "menu"}
    stage = convert_recipe({"stages": [{"lines": {"rules": [listed, alternatives]}}]}).stages[0]
    assert list(stage.files()) == [str(tmp_path / "words.txt")]
    for each in (stage, stage.prepare(tmp_path)):
        found = applied(engine, ["# Title\nHOME and the menu\none two\none two three\n"], each)
        assert found[0] == ["# Title\none two three\n"]
        assert (found[3]["cut_units/menu"], found[3]["cut_units/short"]) == (1, 1)


def test_long_units_that_repeat_are_cut(engine):
    rule = {"any": [{"repeats": {"max": 0}}, {"characters": {"max": 5}}], "reason": "repeated"}
    found = applied(engine, ["short\na longer one\nshort\na longer one\n"], stage_of({"rules": [rule]}))
    assert found[0] == ["short\na longer one\nshort\n"]
    assert found[3]["cut_units/repeated"] == 1


def recipe_of(folder: Path, **settings: Any) -> dict[str, Any]:
    texts = ["Menu\nOne two three.\nFour five six.\n", "Menu\nMenu", "Uno dos tres cuatro a@b.example\nx", "One {brace"]
    (folder / "in.jsonl").write_text(
        "".join(json.dumps({"id": str(k), "text": text}) + "\n" for k, text in enumerate(texts))
    )
    rules = [{"matches": "\\{", "max_count": 0, "removes": "document", "reason": "curly"}, {"words": {"min": 3}}]
    stages = [
        {"rewrite": {"lowercase": True}},
        {"kind": "lines", "rules": rules, "max_removed": {"words": 0.6}, **settings},
        {"redact": {"types": ["email"]}},
        {"rewrite": {"whitespace": "strip"}},
        {"filter": {"rules": {"words": {"min": 1}}}},
    ]
    return {
        "input": [{"path": str(folder / "in.jsonl")}], "stages": stages,
        "output": {"formats": [], "removed": "text", "measures": True},
    }  # fmt: skip


def test_a_run_counts_and_shows_what_it_cut(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    result = run(convert_recipe(recipe_of(tmp_path)), tmp_path / "out", engine="cpu")
    entry = result.report["stages"][1]
    assert entry["reasons"] == {"curly": 1, "too_much_removed": 1} and entry["unit"] == "line"
    assert entry["details"]["cut_units/words"] == 2 and entry["details"]["cut_characters/words"] == 5
    assert entry["lines"][0] == "2 of 8 lines cut, with 5 characters"
    [rule] = entry["unit_rules"]
    assert (rule["reason"], rule["below"], sum(rule["counts"])) == ("words", 5, 8)
    assert "rules" not in entry and "Rules and their bounds" in (tmp_path / "out/report.html").read_text("utf-8")
    assert curation.run_documents(tmp_path / "out", "kept").column("text").to_pylist() == [
        "one two three.\nfour five six.",
        "uno dos tres cuatro [REDACTED]_EMAIL",
    ]
    capsys.readouterr()
    for what, shown in (("edited", "[[Menu One]]"), ("removed", "[[menu]]\n[[menu]]"), ("removed", "[[one {brace]]")):
        assert main(["show", str(tmp_path / "out"), "--what", what, "--sample", "9"]) == 0
        assert shown in capsys.readouterr().out
    assert main(["verify", str(tmp_path / "out")]) == 0


def test_measure_draws_a_histogram_of_units(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "r.yaml").write_text(json.dumps(recipe_of(tmp_path)))
    assert main(["measure", "--recipe", str(tmp_path / "r.yaml"), "--engine", "cpu"]) == 0
    printed = capsys.readouterr().out
    assert "lines: 8 lines, of which the rules cut 2 (25.00%)" in printed
    assert [line.split()[:5] for line in printed.splitlines() if line.startswith("words ") and "62.50%" in line] == [
        ["words", ">=", "3", "62.50%", "25.00%"]
    ]


def test_measure_of_documents_that_lines_removed(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    rules = [{"matches": ".", "max_count": 0, "removes": "document", "reason": "any"}]
    recipe = recipe_of(tmp_path, rules=rules)
    recipe["stages"] = [recipe["stages"][1], recipe["stages"][-1]]
    (tmp_path / "r.yaml").write_text(json.dumps(recipe))
    assert main(["measure", "--recipe", str(tmp_path / "r.yaml"), "--engine", "cpu"]) == 3
    assert "nothing is kept: 4 of 4 records were removed, most of them by lines" in capsys.readouterr().err
