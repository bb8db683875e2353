# SPDX-License-Identifier: Apache-2.0
"""`train_classifier`: which texts it trains on and holds out, its metrics, its files, and what it refuses.

A stand-in writes the model, except in the tests of fastText itself, which need the package that trains."""

from __future__ import annotations

import importlib
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pandas as pd
import pytest

import curation
from curation.base.errors import InputError, OutputError, RecipeError
from curation.tools import classifier_training as training
from curation.tools.scoring_metrics import calibration, label_metrics, roc_auc
from tests.oracle import fasttext_reference as reference
from tests.runs import records_of

GOOD = [f"good text {number}" for number in range(60)]
BAD = [f"bad text {number}" for number in range(60)]


def inputs(folder: Path, **texts: list[str]) -> dict[str, Path]:
    """A file per label, in a folder of its own."""
    folder.mkdir(exist_ok=True)
    for name, lines in texts.items():
        (folder / f"{name}.jsonl").write_bytes(records_of(lines))
    return {name: folder / f"{name}.jsonl" for name in texts}


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Replace the trainer by a stand-in, whose model knows the words `good` and `bad`; return the task that it gets."""
    found: dict[str, Any] = {}

    def train(task: dict[str, Any], output: BinaryIO) -> str:
        if task:
            found.update(task, lines=Path(task["arguments"]["input"]).read_text("utf-8").splitlines())
            model = reference.Model(
                [b"good", b"bad"], [(b"__label__hq", 2), (b"__label__lq", 1)],
                [[1.0, 0.0], [0.0, 1.0]], [[4.0, -4.0], [-4.0, 4.0]],
            )  # fmt: skip
            output.write(reference.as_bytes(model))
        return str(found.get("fault", ""))

    monkeypatch.setattr(training, "_run_trainer", train)
    return found


def test_training_and_held_out_texts_are_all_different_texts(seen: dict[str, Any], tmp_path: Path):
    labels = inputs(tmp_path / "in", hq=[*GOOD, *GOOD[:7], "both", ""], lq=[*BAD, "both", "both"])
    found = curation.train_classifier(labels, tmp_path / "m.bin", held_out=0.25)
    trained = {line.split(" ", 1)[1] for line in seen["lines"]}
    assert trained < {*GOOD, *BAD} and len(trained) == len(seen["lines"]) == sum(found.trained.values())
    assert {metrics.texts + found.trained[name] for name, metrics in found.held_out.items()} == {60}
    assert 0.1 < found.held_out["hq"].texts / 60 < 0.4
    assert (found.duplicates, found.conflicts, found.empty) == (7, 1, 1)
    assert all(line.split(" ", 1)[0] == f"__label__{'hq' if 'good' in line else 'lq'}" for line in seen["lines"])
    other = curation.train_classifier(labels, tmp_path / "o.bin", held_out=0.25, seed=1)
    assert other.held_out["hq"].texts != found.held_out["hq"].texts or {*seen["lines"]} != trained


def test_the_report_has_the_metrics_and_the_model_serves_classify(seen: dict[str, Any], tmp_path: Path):
    found = curation.train_classifier(inputs(tmp_path / "in", hq=GOOD, lq=BAD), tmp_path / "m.bin")
    report = json.loads(found.report_path.read_bytes())
    assert report["labels"]["lq"]["held_out"] == found.held_out["lq"]._asdict()
    assert found.held_out["hq"][1:] == (1.0, 1.0, 1.0) and report["settings"]["word_ngrams"] == 2
    assert report["sha256"] == curation.known_sha256(str(found.path))
    scores = curation.classify(pd.DataFrame({"text": ["good", "bad"]}), found.path, label="hq")["quality"]
    assert scores.iloc[0] > 0.99 and scores.iloc[1] < 0.01
    bins = report["calibration"]["bins"]
    assert [row.texts for row in found.calibration] == [row["texts"] for row in bins]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "m.bin", "m.json"]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a\n b\t\tc\x0b\x0c\rd\0", "a b c d"),
        (" \n ", ""),
        ("x __label__lq y", "x y"),
        ("__label__lq", ""),
        ("a </s> b", "a"),
        ("a</s> </s>b x__label__y", "a</s> </s>b x__label__y"),
        ("\u00a0 é", "\u00a0 é"),
    ],
)
def test_a_line_is_read_as_the_kernels_read_the_text(text: str, line: str):
    assert training._as_line(text) == line


def test_metrics_equal_their_definitions():
    rng = np.random.default_rng(3)
    truth, scores = rng.integers(3, size=90), np.round(rng.random((90, 3)), 1)
    for label, metrics in enumerate(label_metrics(truth, scores)):
        has, found = truth == label, scores.argmax(axis=1) == label
        pairs = itertools.product(scores[has, label], scores[~has, label])
        wins = [1.0 if above > below else 0.5 if above == below else 0.0 for above, below in pairs]
        assert metrics.auc == pytest.approx(np.mean(wins))
        assert (metrics.precision, metrics.recall) == (
            (has & found).sum() / found.sum(),
            (has & found).sum() / has.sum(),
        )
    assert np.isnan(roc_auc(np.ones(3, bool), np.arange(3.0)))
    table = calibration(np.array([True, False, True]), np.array([0.05, 0.09, 1.0]))
    assert [(row.texts, row.share) for row in table if row.texts] == [(2, 0.5), (1, 1.0)]


# bad input


def settings(**given: Any) -> dict[str, Any]:
    return {"settings": training.ClassifierSettings(**given)}


BAD_INPUT: list[tuple[str, Callable[[Path], dict[str, Any]], type[Exception], str]] = [
    ("one label", lambda at: {"labels": inputs(at, hq=GOOD)}, RecipeError, "needs at least two labels, not 1 label"),
    ("label with a space", lambda at: {"labels": {"a b": GOOD, "c": BAD}}, RecipeError, "label 'a b' must be one word"),
    ("few texts", lambda at: {"labels": inputs(at, hq=GOOD, lq=BAD[:4])}, InputError,
     "label lq has 4 different texts, of which"),
    ("no texts", lambda at: {"labels": inputs(at, hq=GOOD, lq=[""])}, InputError, "label lq has 0 different texts"),
    ("the same texts", lambda at: {"labels": inputs(at, hq=GOOD, lq=GOOD)}, InputError, "has 0 different texts"),
    ("missing file", lambda at: {"labels": {"hq": at / "a.jsonl", "lq": at / "b.jsonl"}}, InputError, "does not exist"),
    ("suffix", lambda at: {"output": at / "m.txt"}, OutputError, "expected a model with the suffix .bin"),
    ("suffix of a quantized one", lambda at: {"quantize": True}, OutputError, "with the suffix .ftz"),
    ("share", lambda at: {"held_out": 10}, RecipeError, "held_out must be from 0.01 to 0.5, not 10"),
    ("dimensions", lambda at: settings(dimensions=0), RecipeError, "dimensions must be at least 1, not 0"),
    ("learning rate", lambda at: settings(learning_rate=0), RecipeError, "learning_rate must be above 0"),
    ("buckets", lambda at: settings(buckets=0), RecipeError, "buckets must be above 0 for n-grams"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "error", "message"), [row[1:] for row in BAD_INPUT], ids=[row[0] for row in BAD_INPUT]
)
def test_bad_input_is_one_message(
    seen: dict[str, Any], tmp_path: Path, change: Callable[[Path], dict[str, Any]], error: type[Exception], message: str
):
    given = {"labels": inputs(tmp_path / "in", hq=GOOD, lq=BAD), "output": tmp_path / "m.bin"}
    given |= change(tmp_path / "in")
    with pytest.raises(error) as caught:
        curation.train_classifier(given.pop("labels"), given.pop("output"), **given)
    assert message in str(caught.value) and str(caught.value).count("\n") == 0
    assert [path.name for path in tmp_path.iterdir()] in ([], ["in"])


def test_a_model_is_replaced_only_by_force(seen: dict[str, Any], tmp_path: Path):
    labels = inputs(tmp_path / "in", hq=GOOD, lq=BAD)
    curation.train_classifier(labels, tmp_path / "m.bin")
    with pytest.raises(OutputError, match="exists already"):
        curation.train_classifier(labels, tmp_path / "m.bin")
    assert curation.train_classifier(labels, tmp_path / "m.bin", force=True).trained


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("Encountered NaN.", "the training diverged with learning_rate 0.5: weights are not finite. Give a lower one"),
        ("Matrix too small for quantization, must have at least 256 rows", "too small to quantize"),
        ("its process ended with -9", "fastText cannot train: its process ended with -9"),
    ],
)
def test_a_failed_training_says_what_to_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, message: str
):
    labels = inputs(tmp_path / "in", hq=GOOD, lq=BAD)
    monkeypatch.setattr(training, "_run_trainer", lambda task, output: fault if task else "")
    with pytest.raises(RecipeError) as caught:
        curation.train_classifier(labels, tmp_path / "m.bin")
    assert message in str(caught.value) and not (tmp_path / "m.bin").exists()


# fastText itself


def can_train() -> bool:
    try:
        return hasattr(importlib.import_module("fasttext"), "train_supervised")
    except ImportError:
        return False


needs_fasttext = pytest.mark.skipif(
    not can_train(), reason="no fasttext that trains is installed: run `make test-models`"
)


def texts_of(words: str, rng: np.random.Generator, count: int) -> list[str]:
    return [" ".join(rng.choice(words.split(), 30)) for _ in range(count)]


@pytest.fixture
def labelled(tmp_path: Path) -> dict[str, Path]:
    rng = np.random.default_rng(0)
    shared = "the of and to in is it that was for on with as his they at be this from have"
    prose = texts_of(f"{shared} walked river evening garden voice", rng, 120)
    spam = texts_of(f"{shared} click free winner offer now", rng, 120)
    return inputs(tmp_path / "in", hq=prose, lq=spam)


@needs_fasttext
def test_training_twice_gives_the_same_bytes_and_separates_the_labels(labelled: dict[str, Path], tmp_path: Path):
    runs = [curation.train_classifier(labelled, tmp_path / f"{k}.bin", held_out=0.2) for k in range(3)]
    assert len({run.path.read_bytes() for run in runs}) == 1
    assert runs[0].held_out["hq"].auc >= 0.95


@needs_fasttext
@pytest.mark.parametrize("quantize", [False, True])
def test_scores_are_those_of_fasttext(labelled: dict[str, Path], tmp_path: Path, quantize: bool):
    import fasttext

    path = tmp_path / f"m.{'ftz' if quantize else 'bin'}"
    settings = training.ClassifierSettings(min_characters=2, max_characters=4)
    curation.train_classifier(labelled, path, settings=settings, quantize=quantize)
    texts = [*pd.read_json(labelled["hq"], lines=True)["text"], "winner", "unknown words", ""]
    model = fasttext.load_model(str(path))
    predicted = [model.f.predict(f"{text}\n", 2, 0.0, "strict") for text in texts]  # (probability, label) pairs
    expected = [{label: share for share, label in pairs}["__label__hq"] for pairs in predicted]
    found = curation.classify(pd.DataFrame({"text": texts}), path, label="hq")["quality"]
    np.testing.assert_allclose(found, expected, atol=1e-5)
