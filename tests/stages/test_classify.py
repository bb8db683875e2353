# SPDX-License-Identifier: Apache-2.0
"""The stage `classify`: the column that it writes, what it counts, and the settings that it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import curation
from curation.base.errors import RecipeError
from curation.recipes.recipe import parse_recipe
from curation.running.run import run
from curation.stages import Classify, invoke
from tests.conftest import frame_of
from tests.oracle import fasttext_reference as reference
from tests.runs import recipe_of, records_of

MODEL = reference.model_of(3, words=[b"good", b"bad", b"</s>"])
TEXTS = ["good good", "bad", "a bad good", "", "good\nbad"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("classify") / "quality.bin"
    path.write_bytes(reference.as_bytes(MODEL))
    return str(path)


def expected(label: int) -> np.ndarray:
    return np.array([reference.score_of(MODEL, text, label) for text in TEXTS])


@pytest.mark.parametrize("label", [0, 1, 2])
def test_the_column_has_the_probability_of_the_label(engine: Any, model: str, label: int):
    stage = Classify(model=model, label=f"l{label}", column="p")
    frame, outcome = invoke.apply_stage(engine, frame_of(engine, TEXTS), stage)
    found = engine.to_arrow(frame)["p"].to_numpy()
    np.testing.assert_allclose(found, expected(label), atol=2e-6)
    assert outcome.verdict is None and len(frame) == len(TEXTS)


def test_a_text_without_anything_known_has_no_probability(tmp_path: Path):
    path = tmp_path / "no_end.bin"
    path.write_bytes(reference.as_bytes(reference.model_of(2, words=[b"good"])))
    frame = curation.classify(pd.DataFrame({"text": ["good", "other", ""]}), path, label="l0")
    assert frame["quality"].isna().tolist() == [False, True, True]


def test_a_run_counts_probabilities_by_tenths_and_a_later_stage_selects(tmp_path: Path, model: str):
    (tmp_path / "in.jsonl").write_bytes(records_of(TEXTS * 4))
    stages = [
        {"kind": "classify", "model": model, "label": "l0"},
        {"kind": "select", "column": "quality", "drop_lowest": 0.25},
    ]
    recipe = recipe_of(tmp_path / "in.jsonl", stages=stages, output={"formats": []})
    report = run(recipe, tmp_path / "out", engine="cpu").report
    assert report["documents"]["kept"] == 15
    tenths = np.bincount(np.minimum((expected(0) * 10).astype(int), 9), minlength=10) * 4
    assert report["stages"][0]["lines"] == [
        f"quality in tenths from 0: {', '.join(map(str, tenths.tolist()))} documents"
    ]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("label: lO", "label: no label 'lO' in the model; expected one of l0, l1, l2"),
        ("column: x", "label is missing; the model has l0, l1, l2"),
        ("label: l0, column: text", "column must be letters, digits and '_', and none of"),
        ("label: l0, max_characters: -1", "max_characters must be 0 (all) or more, not -1"),
    ],
)
def test_wrong_settings_are_one_message(model: str, settings: str, message: str):
    with pytest.raises(RecipeError) as caught:
        parse_recipe(f"input: [{{path: x.jsonl}}]\nstages: [{{kind: classify, model: {model}, {settings}}}]")
    assert message in str(caught.value) and str(caught.value).count("\n") == 0


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no fastText model can be read at"),
        (b"", "is not a supported fastText model: it is empty"),
        (b"PK\x03\x04 a zip", "is not a supported fastText model: it starts with"),
        (reference.as_bytes(MODEL)[:200], "is not a supported fastText model: it ends at byte 200"),
    ],
)
def test_a_file_that_is_no_model_is_one_message(tmp_path: Path, content: bytes | None, message: str):
    path = tmp_path / "model.bin"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(curation.CurationError) as caught:
        curation.classify(pd.DataFrame({"text": ["a"]}), path, label="l0")
    assert message in str(caught.value) and str(caught.value).count("\n") == 0
