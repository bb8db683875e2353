# SPDX-License-Identifier: Apache-2.0
"""The stage `classify` with a transformer: scores, runs that resume, other devices, and what it refuses."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

import curation
from curation.models import encoders
from curation.recipes.recipe import Output, load_recipe, parse_recipe
from curation.running.run import run
from curation.stages.rows import classify
from tests.models import tiny_encoder as tiny
from tests.models.tiny_encoder import torch
from tests.models.tiny_networks import write_network
from tests.runs import recipe_of, records_of, table_rows

LETTERS = "a b c d e f g h i j . "
TEXTS = ["good text", "a bad text .", LETTERS * 5, "", "b" * 90, "c"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tiny.write_encoder(tmp_path_factory.mktemp("classify") / "tiny", 3))


def test_nemo_keeps_scores_of_a_regressor_from_three(tmp_path: Path):
    starts = ("good text", "a bad text .", "c d")
    texts = [f"{text} {LETTERS[:length]}".strip() for text in starts for length in range(0, 18, 2)]
    texts[5:5] = ["", " "]  # without tokens: no score, which is not 3 or above
    weights = tiny.weights_of(1)
    scores = curation.classify(
        pd.DataFrame({"text": texts}), tiny.write_encoder(tmp_path / "any", 1, problem_type="regression")
    )["quality"]
    weights["classifier.bias"] += 3 - float(scores.median())
    model = tiny.write_encoder(tmp_path / "model", 1, weights=weights, problem_type="regression")
    scores = curation.classify(pd.DataFrame({"text": texts}), model)["quality"]
    (tmp_path / "texts.jsonl").write_bytes(records_of(texts))
    settings = [f"stages.educational.model={model}", "input.texts.keep_blank=true"]
    recipe = load_recipe("nemo", input=str(tmp_path / "texts.jsonl"), settings=settings)
    first = recipe.stage_names.index("educational")
    recipe = msgspec.structs.replace(recipe, stages=recipe.stages[first : first + 2], output=Output(formats=[]))
    report = run(recipe, tmp_path / "out", engine="cpu").report
    counts = Counter(math.floor(score) for score in scores.dropna())
    details = report["stages"][0]["details"]
    assert {int(name[6:]): n for name, n in details.items() if name.startswith("whole_")} == counts
    expected = [text for text, score in zip(texts, scores, strict=True) if score >= 3]
    assert [row[0] for row in table_rows(tmp_path / "out" / "documents", "text")] == expected
    assert 0 < len(expected) < len(texts)
    without = [row for row in table_rows(tmp_path / "out" / "removed", "text", "value") if not row[0].strip()]
    assert [tuple(row) for row in without] == [("", None), (" ", None)]
    assert scores.isna().sum() == 2


def windows_of(folder: str, text: str) -> list[list[int]]:
    return [window.tolist() for window in encoders.load_encoder(folder, True).windows([text], 0).ids]


@pytest.mark.parametrize(("windows", "pooling"), [(1, "first"), (1, "mean"), (2, "mean"), (0, "max")])
def test_the_column_has_the_pooled_probability_in_ten_thousandths(folder: str, windows: int, pooling: str):
    found = curation.classify(pd.DataFrame({"text": TEXTS}), folder, label="high", windows=windows, pooling=pooling)
    weights = tiny.weights_of(3)
    for text, score in zip(TEXTS, found["quality"], strict=True):
        ids = windows_of(folder, text)[: windows or None]
        scores = [torch.softmax(tiny.logits_of(weights, window), 0)[2].item() for window in ids]
        if not scores:
            assert np.isnan(score)
            continue
        sizes = [len(window) for window in ids]
        expected = max(scores) if pooling == "max" else np.average(scores, weights=sizes)
        assert score == pytest.approx(expected, abs=6e-5) and round(score * 10_000) / 10_000 == score


@pytest.mark.parametrize("kind", ["regression", "multi_label_classification"])
def test_a_regressor_gives_its_number_and_independent_labels_a_probability(tmp_path: Path, kind: str):
    outputs = 1 if kind == "regression" else 3
    folder = tiny.write_encoder(tmp_path / "model", outputs, problem_type=kind)
    label = "" if kind == "regression" else "middle"
    found = curation.classify(pd.DataFrame({"text": TEXTS[:2]}), folder, label=label, column="edu")["edu"]
    ids = [windows_of(str(folder), text)[0] for text in TEXTS[:2]]
    logits = [tiny.logits_of(tiny.weights_of(outputs), window)[outputs // 2].item() for window in ids]
    expected = logits if kind == "regression" else [1 / (1 + np.exp(-value)) for value in logits]
    np.testing.assert_allclose(found, expected, atol=6e-5)


def test_a_regressor_of_modernbert_gives_its_number(tmp_path: Path):
    network = write_network(tmp_path / "m", "modernbert", id2label={0: "LABEL_0"}, problem_type="regression")
    found = curation.classify(pd.DataFrame({"text": TEXTS[:2]}), tmp_path / "m", column="edu")["edu"]
    with torch.inference_mode():
        given = [torch.tensor(windows_of(str(tmp_path / "m"), text)[:1]) for text in TEXTS[:2]]
        expected = [network(ids, torch.ones_like(ids)).logits.item() for ids in given]
    np.testing.assert_allclose(found, expected, atol=2e-4)


def recipe(tmp_path: Path, folder: str, **settings: Any) -> Any:
    if not (tmp_path / "in.jsonl").exists():  # a rewritten file is another input
        texts = [LETTERS * (number % 7) + "good " * (number % 5) for number in range(300)]
        (tmp_path / "in.jsonl").write_bytes(records_of(texts))
    stage = {"kind": "classify", "model": folder, "label": "high", **settings}
    return recipe_of(tmp_path / "in.jsonl", stages=[stage], output={"formats": []})


def scores_in(folder: Path) -> list[float | None]:
    return pq.read_table(folder / "documents", columns=["quality"])["quality"].to_pylist()


def test_stored_scores_do_not_depend_on_slices_and_workers(tmp_path: Path, folder: str):
    whole = run(recipe(tmp_path, folder), tmp_path / "one", engine="cpu", workers=1)
    run(recipe(tmp_path, folder), tmp_path / "two", engine="cpu", workers=2, slice_bytes=8000)
    assert scores_in(tmp_path / "one") == scores_in(tmp_path / "two")
    assert len({*scores_in(tmp_path / "one")}) == 20
    facts = whole.report["computed_with"]["classify"]
    assert facts["dtype"] == "float32" and facts["device"].startswith("CPU ") and {"torch", "transformers"} < {*facts}
    known = [score for score in scores_in(tmp_path / "one") if score is not None]
    tenths = [sum(tenth == round(10_000 * score) // 1000 for score in known) for tenth in range(10)]
    assert whole.report["stages"][0]["lines"][0] == f"quality in tenths from 0: {', '.join(map(str, tenths))} documents"
    assert whole.report["stages"][0]["lines"][1:] == [
        "9 documents without words of the model",
        "read 74.7 % of the characters in 291 windows; 128 documents truncated",
    ]


def stop_after(monkeypatch: pytest.MonkeyPatch, calls: int) -> list[int]:
    """Let the stage fail after so many calls; return a list with the documents of each call."""
    seen: list[int] = []
    score = classify.scores.score_texts

    def stopping(texts: Any, *arguments: Any) -> Any:
        if len(seen) == calls:
            raise MemoryError("stopped")
        seen.append(len(texts))
        return score(texts, *arguments)

    monkeypatch.setattr(classify.scores, "score_texts", stopping)
    return seen


def test_a_resumed_run_never_computes_a_stored_score_again(tmp_path: Path, folder: str, monkeypatch: Any):
    run(recipe(tmp_path, folder), tmp_path / "whole", engine="cpu", workers=1)
    with monkeypatch.context() as patch:
        before = stop_after(patch, 3)
        with pytest.raises(MemoryError):
            run(recipe(tmp_path, folder), tmp_path / "out", engine="cpu", workers=1, slice_bytes=3000)
    after = stop_after(monkeypatch, 10**9)
    run(recipe(tmp_path, folder), tmp_path / "out", engine="cpu", workers=1, slice_bytes=3000)
    assert sum(before) + sum(after) == 300 and len(before) == 3
    assert scores_in(tmp_path / "out") == scores_in(tmp_path / "whole")


def test_a_run_does_not_resume_on_another_device(tmp_path: Path, folder: str, monkeypatch: Any):
    with monkeypatch.context() as patch:
        stop_after(patch, 1)
        with pytest.raises(MemoryError):
            run(recipe(tmp_path, folder), tmp_path / "out", engine="cpu", workers=1, slice_bytes=3000)
    facts = {"device": "NVIDIA H200", "dtype": "bfloat16", "torch": encoders.device_facts()["torch"]}
    with monkeypatch.context() as patch:
        here = {name: encoders.version(name) for name in ("transformers", "tokenizers")}
        patch.setattr(classify, "transformer_facts", lambda _: facts | here)
        with pytest.raises(curation.OutputError) as caught:
            run(recipe(tmp_path, folder), tmp_path / "out", engine="cpu", workers=1)
    assert "began to compute the stage classify with device CPU " in str(caught.value)
    assert "dtype float32; here it would be device NVIDIA H200, dtype bfloat16. The results" in str(caught.value)
    run(recipe(tmp_path, folder), tmp_path / "out", engine="cpu", workers=1)


def test_a_finished_run_is_complete_on_any_device(tmp_path: Path, folder: str, monkeypatch: Any):
    run(recipe(tmp_path, folder), tmp_path / "out", engine="cpu")
    monkeypatch.setattr(classify, "transformer_facts", lambda model: {"device": "another"})
    assert run(recipe(tmp_path, folder), tmp_path / "out", engine="cpu").already_complete


def test_a_worker_with_another_device_ends_the_run(tmp_path: Path, folder: str, monkeypatch: Any):
    answers = iter([{"device": "one"}])
    monkeypatch.setattr(classify, "transformer_facts", lambda model: next(answers, {"device": "two"}))
    with pytest.raises(curation.OutputError, match="the run of this worker began to compute the stage classify"):
        run(recipe(tmp_path, folder), tmp_path / "out", engine="cpu", workers=1)


def test_a_changed_model_refuses_a_rerun(tmp_path: Path):
    folder = tiny.write_encoder(tmp_path / "model", 3)
    run(recipe(tmp_path, str(folder)), tmp_path / "out", engine="cpu")
    tiny.write_encoder(tmp_path / "model", 3, seed=2)
    with pytest.raises(curation.OutputError, match=r"model\.safetensors of stage classify \(content\)"):
        run(recipe(tmp_path, str(folder)), tmp_path / "out", engine="cpu")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("label: hihg", "label: no label 'hihg' in the model; did you mean high?"),
        ("column: x", "label is missing; the model has low, middle, high"),
        ("label: high, windows: -1", "windows must be 0 (the whole text) or more, not -1"),
        ("label: high, windows: 2, pooling: first", "pooling: first reads one window, and windows is 2"),
        ("label: high, pooling: median", "Invalid enum value 'median'"),
    ],
)
def test_wrong_settings_are_one_message(folder: str, settings: str, message: str):
    with pytest.raises(curation.RecipeError) as caught:
        parse_recipe(f"input: [{{path: x.jsonl}}]\nstages: [{{kind: classify, model: {folder}, {settings}}}]")
    assert message in str(caught.value) and str(caught.value).count("\n") == 0


def test_an_encoder_without_a_head_and_a_pickle_are_refused(tmp_path: Path):
    frame = pd.DataFrame({"text": ["a"]})
    with pytest.raises(curation.CurationError, match="has no head of a classifier or regressor"):
        curation.classify(frame, tiny.write_encoder(tmp_path / "model"), label="high")
    with pytest.raises(curation.CurationError, match=r"classifier\.pt is a pickle, and loading one can run code"):
        curation.classify(frame, tmp_path / "classifier.pt", label="high")


def test_scores_that_are_no_numbers_are_one_message(tmp_path: Path):
    weights = tiny.weights_of(3)
    weights["bert.encoder.layer.0.output.LayerNorm.weight"] *= 1e38
    weights["bert.encoder.layer.1.attention.self.value.weight"] *= 1e38
    folder = tiny.write_encoder(tmp_path / "model", 3, weights=weights)
    with pytest.raises(curation.InputError, match="gives NaN or an infinite number for 2 documents"):
        curation.classify(pd.DataFrame({"text": ["a b", "", "c"]}), folder, label="high")


def test_a_missing_package_is_one_message(folder: str, monkeypatch: Any):
    monkeypatch.setattr(encoders, "find_spec", lambda name: None)
    with pytest.raises(
        curation.EngineError, match=r"need torch and transformers, not installed here.*gpu-pipeline\[models\]'"
    ):
        curation.classify(pd.DataFrame({"text": ["a"]}), folder, label="high")
