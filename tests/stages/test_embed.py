# SPDX-License-Identifier: Apache-2.0
"""The stage `embed`: the vectors of encoders and of static embeddings, runs, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import curation
from curation.models import static_vectors, vectors
from curation.recipes.recipe import parse_recipe
from curation.running.run import run
from tests.models.tiny_files import WORDS, write_safetensors, write_static
from tests.needs import needs
from tests.runs import recipe_of, records_of

LETTERS = "a b c d e f g h i j . "
TEXTS = ["good text", "a bad text .", LETTERS * 5, "", None, "?", "bad"]
TABLE = np.random.default_rng(3).standard_normal((len(WORDS), 4)).astype(np.float32)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_static(tmp_path_factory.mktemp("static") / "tiny"))


def column_of(model: str | Path, texts: Any = TEXTS, **settings: Any) -> list[list[int] | None]:
    found = curation.embed(pd.DataFrame({"text": texts}, dtype="str"), model, **settings)["embedding"]
    return [None if value is pd.NA or value is None else list(value) for value in found]


def quantised(vector: np.ndarray) -> list[int]:
    return np.rint(127 * vector / np.abs(vector).max()).astype(int).tolist()


def mean_of(text: str, table: np.ndarray = TABLE) -> np.ndarray:
    return np.mean([table[WORDS.index(word)].astype(np.float64) for word in text.split()], axis=0)


def test_a_static_vector_is_the_mean_of_the_known_tokens(folder: str):
    expected = [quantised(mean_of(text)) if text and text != "?" else None for text in TEXTS]
    assert column_of(folder) == expected


def test_rows_and_factors_of_a_table_are_used(tmp_path: Path):
    rows = np.arange(len(WORDS))[::-1] // 2
    factors = np.linspace(0.1, 2, len(WORDS)).astype(np.float32)
    table = (TABLE[: len(WORDS) // 2] * 40).astype(np.int8)
    model = write_static(tmp_path / "m", embeddings=table, mapping=rows.astype(np.int64), weights=factors)
    whole = table[rows].astype(np.float64) * factors[:, None].astype(np.float64)
    assert column_of(model, ["good text", "a bad ."]) == [
        quantised(mean_of(t, whole)) for t in ("good text", "a bad .")
    ]


def test_unknown_tokens_of_a_unigram_tokenizer_do_not_count(tmp_path: Path):
    from tokenizers import Tokenizer, models, pre_tokenizers

    model = write_static(tmp_path / "m")
    tokenizer = Tokenizer(models.Unigram([(word, -1.0) for word in WORDS], unk_id=1))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(model / "tokenizer.json"))
    assert column_of(model, ["good ?? text", "?"]) == [quantised(mean_of("good text")), None]


def test_a_long_text_is_summed_in_parts(folder: str, monkeypatch: pytest.MonkeyPatch):
    whole = column_of(folder, [LETTERS * 2000])
    monkeypatch.setattr(static_vectors, "TOKENS_AT_ONCE", 7)
    assert column_of(folder, [LETTERS * 2000]) == whole == [quantised(mean_of(LETTERS))]


def recipe(tmp_path: Path, model: str, **settings: Any) -> Any:
    if not (tmp_path / "in.jsonl").exists():  # a rewritten file is another input
        texts = [LETTERS * (number % 7) + "good " * (number % 5) for number in range(300)]
        (tmp_path / "in.jsonl").write_bytes(records_of(texts))
    stage = {"kind": "embed", "model": model, **settings}
    return recipe_of(tmp_path / "in.jsonl", stages=[stage], output={"formats": []})


def test_a_run_stores_the_same_vectors_for_any_slices_and_workers(tmp_path: Path, folder: str):
    report = run(recipe(tmp_path, folder), tmp_path / "one", engine="cpu", workers=1).report
    run(recipe(tmp_path, folder), tmp_path / "two", engine="cpu", workers=2, slice_bytes=8000)
    one, two = (pq.read_table(tmp_path / name / "documents")["embedding"] for name in ("one", "two"))
    assert one.equals(two) and str(one.type).endswith(": int8>[4]")
    assert one.null_count == 9 and len({str(value) for value in one.to_pylist()}) == 19
    assert report["stages"][0]["lines"] == [
        "embedding: 291 vectors of 4 dimensions; 9 documents without words of the model",
        "read 100.0 % of the characters in 291 windows",
    ]
    assert [*report["computed_with"]["embed"]] == ["tokenizers"]


def test_the_vector_of_an_encoder_is_the_mean_of_the_tokens_of_its_windows(tmp_path: Path):
    needs("torch")
    from curation.models.encoders import load_encoder
    from tests.models import tiny_encoder as tiny

    model = tiny.write_encoder(tmp_path / "m")
    weights, found = tiny.weights_of(0), column_of(model, TEXTS, windows=2)
    for text, vector in zip(TEXTS, found, strict=True):
        ids = load_encoder(str(model), False).windows([text], 2).ids
        if not ids:
            assert vector is None
            continue
        expected = np.concatenate([tiny.hidden_of(weights, window.tolist()).numpy() for window in ids]).mean(0)
        assert np.abs(np.array(vector) - 127 * expected / np.abs(expected).max()).max() < 0.51
    assert found[2] != column_of(model, TEXTS, windows=1)[2]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("windows: -1", "windows must be 0 (the whole text) or more, not -1"),
        ("pooling: first", "pooling: first reads one window, and windows is 4"),
        ("column: text", "column must be letters, digits and '_', and none of"),
        ("max_characters: -1", "max_characters must be 0 (all) or more, not -1"),
    ],
)
def test_wrong_settings_are_one_message(folder: str, settings: str, message: str):
    with pytest.raises(curation.RecipeError) as caught:
        parse_recipe(f"input: [{{path: x.jsonl}}]\nstages: [{{kind: embed, model: {folder}, {settings}}}]")
    assert message in str(caught.value) and str(caught.value).count("\n") == 0


def broken(folder: Path, name: str) -> None:
    """Damage a folder in one way."""
    match name:
        case "none":
            (folder / "model.safetensors").unlink()
        case "pickle":
            (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
        case "neither":
            write_safetensors(folder / "model.safetensors", {"weight": TABLE})
        case "rows":
            write_static(folder, embeddings=TABLE[:5])
        case "mapping":
            write_static(folder, mapping=np.full(len(WORDS), len(WORDS)))
        case "NaN":
            write_static(folder, embeddings=TABLE * np.float32(np.nan))
        case "layers":
            (folder / "config.json").write_text('{"model_type": "bert"}')
            write_safetensors(folder / "model.safetensors", {"weight": TABLE})
        case "no ONNX":
            (folder / "model.safetensors").rename(folder / "model.onnx")
        case "dense":
            from tests.models.tiny_encoder import write_encoder

            write_encoder(folder)
            modules = [{"type": f"sentence_transformers.models.{kind}"} for kind in ("Transformer", "Dense")]
            (folder / "modules.json").write_text(json.dumps(modules))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("none", "it has no model.safetensors. The folder needs config.json"),
        ("pickle", "its weights pytorch_model.bin are a pickle, which can run code"),
        ("neither", "config.json has model_type 'model2vec', which is not supported; expected one of bert, c"),
        ("no ONNX", "model.onnx is no ONNX file, or a part of one: "),
        ("rows", "has 28 tokens with ids up to 27, and the model has vectors for 5. Give"),
        ("mapping", "its mapping names rows outside its 28 vectors"),
        ("NaN", "has NaN or infinite values: its training has failed"),
        ("layers", "config.json is not the configuration of a transformer: Object missing required field `vocab_size`"),
        ("dense", "has the module Dense; Transformer, Pooling, Normalize are supported"),
    ],
)
def test_a_folder_that_is_no_model_is_one_message(tmp_path: Path, name: str, message: str):
    if name == "dense":
        needs("torch")
    folder = write_static(tmp_path / "m")
    broken(folder, name)
    with pytest.raises(curation.CurationError) as caught:
        column_of(folder)
    assert message in str(caught.value) and str(caught.value).count("\n") == 0


def test_a_name_of_the_hub_is_not_downloaded():
    with pytest.raises(curation.CurationError, match=r"there is no folder org/model\. Models are never downloaded"):
        column_of("org/model")


def test_later_stages_read_the_column(folder: str):
    frame = curation.embed(pd.DataFrame({"text": ["good text", "bad"]}), folder)
    found, present = vectors.from_column(pa.array(frame["embedding"]), "embedding")
    assert found.dtype == np.int8 and found.shape == (2, 4) and present.all()
    assert np.abs(found).max(axis=1).tolist() == [127, 127]
