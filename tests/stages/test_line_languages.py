# SPDX-License-Identifier: Apache-2.0
"""Rules of `lines` on the language of each line, paragraph or sentence."""

import json
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd
import pytest

import curation
from curation.base.errors import RecipeError
from curation.cli.main import main
from curation.recipes.recipe import convert_recipe
from curation.recipes.schema import recipe_schema
from curation.rules.languages import matching
from curation.running.run import run
from curation.stages import Lines
from tests.corpus import NASTY, real_documents
from tests.oracle.fasttext_reference import Model, as_bytes
from tests.oracle.units import units_of
from tests.stages.test_lines import applied

ENGLISH = "This is a line of English words that is long enough.\n"
GERMAN = "Dies ist eine Zeile aus deutschen Wörtern, die lang genug ist.\n"  # codespell:ignore
RUSSIAN = "Это строка русских слов, и она тоже достаточно длинная.\n"
TEXTS = [
    ENGLISH + GERMAN + "Menu\n\n12\n" + RUSSIAN, "", GERMAN, f"{ENGLISH}\n\n{RUSSIAN}\n{GERMAN}", "???\n\n漢字\n",
    *(text for text in NASTY if len(text) < 1200),
]  # fmt: skip
SHORT = {"alphabetic_characters": {"max": 12}}
EITHER = {"any": [{"language": ["en", "deu"], "min_probability": 0.7}, SHORT], "reason": "other"}


def stage_of(rules: Any, **settings: Any) -> Lines:
    stage = convert_recipe({"stages": [{"lines": {"rules": rules, **settings}}]}).stages[0]
    assert isinstance(stage, Lines)
    return stage


def labelled(contents: list[str]) -> list[tuple[str | None, float]]:
    """The language and its probability of each text, by the stage `language`."""
    frame = curation.language(pd.DataFrame({"text": contents}))
    labels = frame["language"].astype(object).where(frame["language"].notna(), None)
    return list(zip(labels, frame["language_probability"], strict=True))


@pytest.mark.parametrize("unit", ["line", "paragraph", "sentence"])
def test_units_in_other_languages_are_cut(engine: ModuleType, unit: str):
    texts = [*TEXTS, *(text[:1500] for text in real_documents(5))]
    units = [units_of(text, unit) for text in texts]
    contents = [content for own in units for _, content, _ in own]
    found = iter(labelled(contents))
    languages, probabilities = {"en", "de"}, []
    expected: dict[str, list[str]] = {"plain": [], "either": []}
    for text, own in zip(texts, units, strict=True):
        kept = {"plain": "", "either": ""}
        for before, content, after in own:
            label, probability = next(found)
            probabilities.append(probability)
            is_wanted = label in languages and probability >= 0.7
            kept["plain"] += f"{before}{content}{after}" if is_wanted else ""
            is_short = sum(map(str.isalpha, content)) <= 12
            kept["either"] += f"{before}{content}{after}" if is_wanted or is_short else ""
        for name, value in kept.items():
            expected[name].append(value if own else text)
    assert sum(0 < each < 0.7 for each in probabilities) > 5
    after, _, _, details = applied(engine, [*texts, None], stage_of(EITHER["any"][0], unit=unit))
    assert after == [*expected["plain"], None] and details["cut_units/language"] == details["cut_units"] > 5
    after, _, _, details = applied(engine, [*texts, None], stage_of([EITHER], unit=unit))
    assert after == [*expected["either"], None] and details["cut_units/other"] > 2


def test_results_do_not_depend_on_how_documents_are_divided(engine: ModuleType):
    stage = stage_of([{"language": "ru", "removes": "document"}, EITHER], max_removed={"lines": 0.6})
    whole = applied(engine, TEXTS, stage)
    parts = [applied(engine, TEXTS[start : start + 3], stage) for start in range(0, len(TEXTS), 3)]
    assert whole[:3] == tuple([value for part in parts for value in part[k]] for k in range(3))
    assert whole[3] == sum((part[3] for part in parts), Counter())
    assert {*whole[1]} == {"", "language", "too_much_removed"}


def test_a_language_removes_documents(engine: ModuleType):
    stage = stage_of([{"language": ["en", "de", "ru"], "min_probability": 0.5, "removes": "document"}])
    french = "Voici une ligne de mots français qui est assez longue.\n"
    assert applied(engine, [ENGLISH, ENGLISH + french, RUSSIAN], stage)[1] == ["", "language", ""]


def test_a_model_of_ones_own(engine: ModuleType, tmp_path: Path):
    path = tmp_path / "model.bin"
    labels = [(b"__label__deu_Latn", 2), (b"__label__eng_Latn", 1)]
    path.write_bytes(as_bytes(Model([b"fine", b"gut"], labels, [[-4.0], [4.0]], [[2.0], [-2.0]])))
    stage = stage_of({"language": "de"}, model=str(path))
    assert applied(engine, ["gut\nfine\nelse\n"], stage)[0] == ["gut\n"]
    assert [*stage.files()] == [str(path)] and matching("de", ["deu_Latn"]) == ["deu_Latn"]
    assert [*stage_of({"language": "de"}).files()] == ["lid.176.ftz"]


MISTAKES = [
    ({"rules": {"language": []}}, "language lists no languages; give some: {language: [en, de]}"),
    ({"rules": {"language": [""]}}, "language lists no languages"),
    ({"rules": {"language": ["enq"]}}, "language: no language 'enq' in the model; did you mean en"),
    ({"rules": {"language": ["en", "eng_Latn"]}}, "language: 'en' and 'eng_Latn' are the same language. List it once"),
    ({"rules": {"language": ["en"], "min_probability": 1.5}}, "min_probability must be from 0 to 1, not 1.5"),
    ({"rules": {"language": ["en"], "min": 0.5}}, "language is a rule of its own; give it languages, and perhaps min"),
    ({"rules": {"language": ["en"], "matches": "a", "max_count": 0}}, "language is a rule of its own"),
    ({"rules": {"language": {"in": ["en"]}}}, "language is no measure; list the languages: {language: [en, de], min"),
    ({"rules": [{"measure": "words", "min": 3, "min_probability": 0.5}]}, "min_probability needs a rule on languages"),
    ({"rules": {"words": {"min": 3}}, "model": "x.bin"}, "model 'x.bin' has no use: no rule is on languages. Leave it"),
    ({"rules": {"language": ["en"]}, "model": "absent.bin"}, "no fastText model can be read at absent.bin"),
    ({"rules": {"language": 3}}, "Expected `str | array | null`"),
]


@pytest.mark.parametrize(("settings", "message"), MISTAKES, ids=[message[:40] for _, message in MISTAKES])
def test_mistakes(settings: dict[str, Any], message: str):
    with pytest.raises(RecipeError) as error:
        convert_recipe({"stages": [{"lines": settings}]})
    assert message in str(error.value)


def test_a_filter_takes_a_column_of_languages_alone():
    with pytest.raises(RecipeError, match="needs conditions, such as language"):
        convert_recipe({"stages": [{"filter": {"rules": {"language": ["en"]}}}]})


def test_the_schema_has_the_rule_for_lines_alone():
    definitions = recipe_schema()["$defs"]
    assert {"language", "min_probability"} <= {*definitions["UnitRule"]["properties"]}
    assert "language" not in definitions["Rule"]["properties"]
    assert not {"language", "min_probability"} & {*definitions["UnitConditions"]["properties"]}


def test_a_run_reports_shows_and_draws_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    texts = [ENGLISH + RUSSIAN + GERMAN, RUSSIAN + "12\n", GERMAN]
    data = tmp_path / "in.jsonl"
    data.write_text("".join(json.dumps({"id": str(k), "text": text}) + "\n" for k, text in enumerate(texts)))
    rules = [{"language": ["en", "de"], "min_probability": 0.5}]
    recipe = {
        "input": [{"path": str(data)}],
        "stages": [{"kind": "lines", "rules": rules, "max_removed": {"words": 0.6}}],
        "output": {"formats": [], "removed": "text"},
    }
    explained = convert_recipe(recipe).stages[0].explain()
    assert explained[0] == "language: in en or de with a probability of at least 0.5 or the line is cut"
    entry = run(convert_recipe(recipe), tmp_path / "out", engine="cpu").report["stages"][0]
    assert entry["reasons"] == {"too_much_removed": 1}
    assert entry["details"]["cut_units/language"] == 1
    [rule] = entry["unit_rules"]
    assert (rule["reason"], rule["measure"], rule["min"]) == ("language", "probability of en or de", 0.5)
    assert (rule["share"], rule["below"], sum(rule["counts"])) == (True, 3, 6)
    kept = curation.run_documents(tmp_path / "out", "kept").column("text").to_pylist()
    assert kept == [ENGLISH + GERMAN, GERMAN]
    capsys.readouterr()
    for what, shown in (("edited", f"[[{RUSSIAN.strip()[:20]}"), ("removed", "[[Это строка")):
        assert main(["show", str(tmp_path / "out"), "--what", what, "--sample", "9"]) == 0
        assert shown in capsys.readouterr().out
    (tmp_path / "r.yaml").write_text(json.dumps(recipe))
    assert main(["measure", "--recipe", str(tmp_path / "r.yaml"), "--engine", "cpu"]) == 0
    lines = [line.split()[:4] for line in capsys.readouterr().out.splitlines() if line.startswith("language ")]
    assert lines == [["language", ">=", "0.5", "50.00%"]]
