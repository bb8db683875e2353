# SPDX-License-Identifier: Apache-2.0
"""`measure` with `listed_words`: the rate of the user's words, against plain Python, and its bad input."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import curation
from curation.recipes.recipe import parse_recipe
from curation.running.run import run
from curation.stages import MeasureStage, invoke
from curation.stages.rows.word_list import CLOSINGS, OPENINGS
from tests.conftest import frame_of
from tests.runs import kept_rows, recipe_of, records_of

WORDS = ("Darn", "straße", "ЁЖ", "don't", "中")
TEXTS = [
    "", "  ", "darn", "DARN it, (Darn!) darned", "“darn,” said the ёж... Ёж's darn-it", "STRASSE Straße.",
    "DON'T don't dont", "中 中文 [中]", "a b c d darn", None,
]  # fmt: skip


def rate(text: str | None) -> float:
    forms = {f"{a}{word}{b}".lower() for word in WORDS for a, b in itertools.product(OPENINGS, CLOSINGS)}
    words = (text or "").split()
    return sum(word.lower() in forms for word in words) / max(len(words), 1)


def test_engines_give_the_rate_of_listed_words(engine: Any):
    chance = random.Random(2)
    parts = [*WORDS, "other", "words,", "DARN", "(don't", "ёж!", "darn?!x"]
    texts = [*TEXTS, *(" ".join(chance.choices(parts, k=chance.randrange(40))) for _ in range(50))]
    frame, outcome = invoke.apply_stage(engine, frame_of(engine, texts), MeasureStage(listed_words=WORDS))
    assert engine.to_arrow(frame)["listed_words"].to_pylist() == [rate(text) for text in texts]
    assert outcome.details == {"listed": sum(rate(text) > 0 for text in texts)}
    assert rate("“darn,” said the ёж... Ёж's darn-it") == 3 / 6 and rate("DARN it, (Darn!) darned") == 2 / 4


def test_filter_removes_by_the_rate_and_a_changed_list_refuses_a_rerun(tmp_path: Path):
    (tmp_path / "in.jsonl").write_bytes(records_of(["darn darn it", "well well", "one darn of so very many words"]))
    (tmp_path / "bad.txt").write_text("darn\n\nheck\n")
    stages = [
        {"kind": "measure", "names": ["words"], "listed_words": str(tmp_path / "bad.txt")},
        {"kind": "filter", "rules": [{"column": "listed_words", "max": 0.3}]},
    ]
    recipe = recipe_of(tmp_path / "in.jsonl", stages=stages, output={"formats": []})
    report = run(recipe, tmp_path / "out", engine="cpu").report
    assert [row[0] for row in kept_rows(tmp_path / "out")] == [1, 2]
    assert report["stages"][0]["lines"][-1] == "2 documents with listed words"
    (tmp_path / "bad.txt").write_text("heck\n")
    with pytest.raises(curation.OutputError, match=r"bad\.txt of stage measure \(content\)"):
        run(recipe, tmp_path / "out", engine="cpu")


def test_names_and_listed_words_add_their_columns():
    frame = pd.DataFrame({"text": ["heck no"]})
    assert list(curation.measure(frame, listed_words=["heck"]).columns) == ["text", "listed_words"]
    both = curation.measure(frame, "words", listed_words=["heck"])
    assert both.iloc[0].tolist() == ["heck no", 2, 0.5]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot open"),
        (b" \n\n", "bad.txt has no words, expected one per line"),
        (b"one\ntwo words\n", "line 2 of bad.txt has several words: 'two words'. Give one per line"),
        (b"\xff\xfe\x00", "bad.txt is not UTF-8"),
    ],
)
def test_a_wrong_file_is_one_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None, message: str
):
    monkeypatch.chdir(tmp_path)
    if content is not None:
        Path("bad.txt").write_bytes(content)
    with pytest.raises(curation.InputError) as caught:
        curation.measure(pd.DataFrame({"text": ["a"]}), listed_words="bad.txt")
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_a_phrase_in_a_recipe_is_one_message():
    stage = "{kind: measure, listed_words: [one, 'two words']}"
    with pytest.raises(curation.RecipeError, match="'two words' is not one word"):
        parse_recipe(f"input: [{{path: x.jsonl}}]\nstages: [{stage}]")
