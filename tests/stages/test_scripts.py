# SPDX-License-Identifier: Apache-2.0
"""The main script of texts, and shares of scripts: `measure` with `script` and `script_shares`."""

import gzip
import json
import unicodedata
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd
import pytest

import curation
from curation.base.errors import RecipeError
from curation.kernels.scripts import CODES, JOINED
from curation.recipes.recipe import convert_recipe
from curation.running.run import run
from curation.stages import MeasureStage
from curation.stages.invoke import apply_stage
from curation.stages.rows import scripts
from tests.conftest import frame_of
from tests.corpus import NASTY, real_documents
from tests.oracle.scripts import is_letter, letters_of, main_script, scripts_of
from tests.runs import data_digests, recipe_of, records_of, removed_rows, report_of, table_rows

MADE = [
    "漢字", "漢字漢字漢字漢字漢か", "漢字漢字漢字漢字漢字か", "カタカナ", "ひら ab", "한국어 漢字", "한국 漢字",
    "ab αβ", "zя", "漢 א", "かかか אאא", "ー ー", "abcdefgh" * 3 + "é", "éabcdefgé", "abcdefg\U0001e900",
    "[a]{b}@`z", "1234567890", "ªº",
]  # fmt: skip
DATA = Path(__file__).parents[1] / "data"
SHARED = ("Latn", "Hani", "Jpan", "Kore", "Hang", "Cyrl", "Adlm")


def columns_of(engine: ModuleType, texts: list[Any], stage: MeasureStage) -> dict[str, list[Any]]:
    table = engine.to_arrow(apply_stage(engine, frame_of(engine, texts), stage)[0])
    return {name: table.column(name).to_pylist() for name in stage.writes()}


@pytest.mark.slow("every letter of Unicode has its script")
def test_every_letter_of_unicode_has_its_script():
    letters = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000 and is_letter(chr(code))]
    of_regex, columns = scripts_of(letters), curation.measure(pd.DataFrame({"text": letters}), script=True)
    found = columns["script"].astype(object).where(columns["script"].notna(), None).tolist()
    expected = [{"Hira": "Jpan", "Kana": "Jpan"}.get(of_regex.get(each, ""), of_regex.get(each)) for each in letters]
    assert found == expected and len({*found}) > 160


def test_scripts_and_shares_are_those_of_plain_python(engine: ModuleType, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(scripts, "BLOCK_ROWS", 7)
    texts = [*MADE, *NASTY, *(text[:3000] for text in real_documents(30))]
    found = columns_of(engine, [*texts, None], MeasureStage(script=True, script_shares=SHARED))
    counts = [*letters_of(texts), Counter()]
    assert found["script"] == [main_script(letters) for letters in counts]
    assert len({*found["script"]}) > 10
    for code in SHARED:
        parts = [sum(letters[part] for part in JOINED.get(code, (code,))) for letters in counts]
        shares = [part / max(letters.total(), 1) for part, letters in zip(parts, counts, strict=True)]
        assert found[f"{code}_share"] == shares and any(shares)


def test_the_script_is_that_of_the_names_of_the_letters():
    """The commonest first word of their Unicode names, in 821 texts of ten languages. Texts differ that mix kana, Han
    and Latin: these names are three words, and one script."""
    lines = gzip.decompress((DATA / "languages.jsonl.gz").read_bytes()).splitlines()
    texts = [json.loads(line)["text"] for line in lines]
    found = curation.measure(pd.DataFrame({"text": texts}), script=True)["script"]
    words = [
        Counter(unicodedata.name(letter).split()[0] for letter in text if letter.isalpha()).most_common(1)[0][0]
        for text in texts
    ]
    same = {("LATIN", "Latn"), ("CYRILLIC", "Cyrl"), ("CJK", "Hani"), ("HANGUL", "Hang"), ("HIRAGANA", "Jpan")}
    pairs = Counter(zip(words, found, strict=True))
    assert {*pairs} == {*same, ("KATAKANA", "Jpan"), ("LATIN", "Jpan")}
    assert pairs["LATIN", "Jpan"] == 15 and len(texts) == 821


def test_ties_and_japanese(engine: ModuleType):
    found = columns_of(engine, MADE[:11], MeasureStage(script=True))["script"]
    assert found == ["Hani", "Jpan", "Hani", "Jpan", "Jpan", "Hang", "Hang", "Grek", "Cyrl", "Hani", "Hebr"]


def test_only_what_is_asked_for_is_written(engine: ModuleType):
    assert [*columns_of(engine, ["a"], MeasureStage(script=True))] == ["script"]
    assert [*columns_of(engine, [], MeasureStage(script_shares=("Grek",)))] == ["Grek_share"]
    both = MeasureStage(names=("words",), script=True, script_shares=("Grek",))
    assert columns_of(engine, ["a"], both) == {"words": [1], "script": ["Latn"], "Grek_share": [0.0]}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"script_shares": ["Latin"]},
            "script_shares takes codes of ISO 15924, such as Latn or Cyrl, not 'Latin'; did",
        ),
        ({"script_shares": ["Zyyy"]}, "codes of ISO 15924"),
        ({"script_shares": ["Hans"]}, "letters do not tell Hans from Hant. Give Hani, not Hans"),
        ({"script_shares": ["Latn", "Latn"]}, "script_shares has Latn twice. List it once"),
        ({"script": "Latn"}, "Expected `bool`"),
        ({"script_shares": True}, "Expected `array`"),
    ],
    ids=str,
)
def test_mistakes(settings: dict[str, Any], message: str):
    with pytest.raises(RecipeError) as error:
        convert_recipe({"stages": [{"measure": settings}]})
    assert message in str(error.value)


def test_a_run_filters_by_script(tmp_path: Path):
    data = tmp_path / "a.jsonl"
    data.write_bytes(records_of(["Some words", "Несколько слов", "漢字かな", "Ελληνικά with Latin words", "12"]))
    stages = [
        {"kind": "measure", "script": True, "script_shares": ["Latn"]},
        {"kind": "filter", "rules": [{"column": "script", "in": ["Latn", "Cyrl"]}, {"Latn_share": {"max": 0.9}}]},
        {"kind": "filter", "name": "by", "rules": [{"per": "script", "rules": {"Cyrl": "keep", "other": "remove"}}]},
    ]
    digests = []
    for settings in ({}, {"slice_bytes": 40}):
        out = tmp_path / f"out{len(settings)}"
        run(recipe_of(data, stages=stages, output={"formats": []}), out, engine="cpu", progress=False, **settings)
        assert table_rows(out / "documents", "text", "script", "Latn_share") == [("Несколько слов", "Cyrl", 0.0)]
        assert len(removed_rows(out)) == 4
        digests.append(data_digests(out))
        lines = report_of(out)["stages"][0]["lines"]
        assert lines == ["2 measures of 5 documents", "scripts: Latn 2, Cyrl 1, Jpan 1, none 1"]
    assert digests[0] == digests[1]
    recipe = recipe_of(
        data, stages=[stages[0], {**stages[2], "rules": [{"per": "script", "rules": {"Cyrl": ["gopher"]}}]}]
    )
    with pytest.raises(RecipeError, match="can write 170 values without rules: 'Adlm'"):
        run(recipe, tmp_path / "refused", engine="cpu", progress=False)


def test_codes_are_those_of_iso_15924():
    assert len({*CODES}) == len(CODES) and {*JOINED, "Hans", "Hant"}.isdisjoint(CODES)
