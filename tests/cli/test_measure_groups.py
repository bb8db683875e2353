# SPDX-License-Identifier: Apache-2.0
"""`curate measure` with rules that differ between groups of documents."""

import json
from pathlib import Path

import pytest

from curation.cli.main import main

RULES = "[{per: language, rules: {de: {words: {min: 3}}, en: {words: {min: 2}, bytes: {max: 30}}, other: keep}}]"
TEXTS = {"de": ["eins", "eins zwei", "eins zwei drei", "a b c d"], "en": ["one", "one two three"], "fr": ["un"]}


@pytest.fixture(autouse=True)
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [{"text": text, "language": language} for language, texts in TEXTS.items() for text in texts]
    Path("texts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    Path("recipe.yaml").write_text(
        f"input: [{{path: texts.jsonl, columns: [language]}}]\nstages: [{{kind: filter, rules: {RULES}}}]\n"
    )


def test_each_group_has_a_table(capsys: pytest.CaptureFixture[str]):
    assert main(["measure", "--recipe", "recipe.yaml", "--engine", "cpu", "--log", "text"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    start = next(k for k, line in enumerate(lines) if line[:2] == ["language", "de:"])
    shown = [[cell for cell in line if not {*cell} & {*"│▁█|.@"} or "%" in cell] for line in lines[start:]]
    assert " ".join(shown[0]) == "language de: 4 documents, of which its rules on measures remove 2 (50.00%)"
    assert shown[1] == ["rule", "keeps", "removes", "this", "only", "histogram", "1%", "50%", "99%"]
    assert shown[2] == ["words", ">=", "3", "50.00%", "50.00%", "1", "2", "4"]
    assert " ".join(shown[3]) == "language en: 2 documents, of which its rules on measures remove 1 (50.00%)"
    assert shown[5] == ["words", ">=", "2", "50.00%", "50.00%", "1", "1", "3"]
    assert shown[6] == ["bytes", "<=", "30", "0.00%", "0.00%", "3", "3", "13"]
    assert " ".join(shown[7]) == "language other: 1 document, of which its rules on measures remove 0 (0.00%)"
    assert len(shown) == 8  # no rule is left out


def test_groups_for_programs(capsys: pytest.CaptureFixture[str]):
    assert main(["measure", "--recipe", "recipe.yaml", "--engine", "cpu", "--log", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["rules"] == []
    assert [(entry["column"], entry["group"], entry["documents"], entry["removed"]) for entry in found["groups"]] == [
        ("language", "de", 4, 2), ("language", "en", 2, 1), ("language", "other", 1, 0),
    ]  # fmt: skip
    (rule,) = found["groups"][0]["rules"]
    assert (rule["min"], rule["removed"], rule["removed_if_moved"]["+0.25"]) == (3, 2, 3)
    assert [rule["measures"] for rule in found["groups"][1]["rules"]] == [["words"], ["bytes"]]
    assert found["groups"][2]["rules"] == []


def test_other_groups_are_counted_together(capsys: pytest.CaptureFixture[str]):
    rows = [{"text": "a b", "language": f"l{number}"} for number in range(10)]
    Path("texts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    rules = ", ".join(f"l{number}: {{words: {{min: {number + 1}}}}}" for number in range(10))
    setting = f"stages.filter.rules=[{{per: language, rules: {{{rules}}}}}]"
    command = ["measure", "--recipe", "recipe.yaml", "--engine", "cpu", "--set", setting]
    assert main([*command, "--log", "text"]) == 0
    out = capsys.readouterr().out
    assert out.count("of which its rules on measures remove") == 8
    assert out.splitlines()[-1] == "language: 2 groups more: 2 documents"
    assert main([*command, "--log", "json"]) == 0
    groups = json.loads(capsys.readouterr().out)["groups"]
    assert len(groups) == 10 and groups[9] == {"column": "language", "group": "l9", "documents": 1}


def test_a_stage_before_the_filter_writes_the_column(capsys: pytest.CaptureFixture[str]):
    rules = "{kind: filter, rules: [{set: fineweb2, other: keep, per: label}]}"
    Path("recipe.yaml").write_text(f"stages: [{{kind: exact_dedup}}, {{kind: language, column: label}}, {rules}]\n")
    text = "Niemand weiß so recht, warum er das tut, und viele andere tun es auch. " * 9
    Path("texts.jsonl").write_text((json.dumps({"text": text}) + "\n") * 2)
    assert main(["measure", "texts.jsonl", "--recipe", "recipe.yaml", "--engine", "cpu", "--log", "text"]) == 0
    out = capsys.readouterr().out
    assert "label deu_Latn: 2 documents, of which its rules on measures remove" in out
    last = out.splitlines()[-1]
    assert last == "not measured, since they are on columns or patterns: too_few_punctuated_lines, too_few_stop_words"


def test_a_missing_column_is_named(capsys: pytest.CaptureFixture[str]):
    assert main(["measure", "texts.jsonl", "--rules", RULES, "--engine", "cpu"]) == 2
    message = "stage measure reads the column 'language', which the input texts (texts.jsonl) does not carry"
    assert message in capsys.readouterr().err


def test_values_without_rules_are_named(capsys: pytest.CaptureFixture[str]):
    setting = "stages.filter.rules=[{per: language, rules: {de: {words: {min: 3}}, en: {words: {min: 2}}}}]"
    assert main(["measure", "--recipe", "recipe.yaml", "--engine", "cpu", "--set", setting]) == 2
    assert "rules per language: 1 document of 7 has a value without rules: 'fr' (1)" in capsys.readouterr().err
