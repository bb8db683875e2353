# SPDX-License-Identifier: Apache-2.0
"""The stage `perplexity` with a causal language model: values, windows, runs, and what it refuses."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import curation
from curation.models import encoder_files, encoders
from curation.models.causal import load_causal, score_texts
from curation.running.run import run
from tests.models import tiny_causal as tiny
from tests.models.tiny_networks import TOKENS, torch, write_network
from tests.runs import data_digests, recipe_of, records_of, table_rows

LETTERS = "a b c d e f g h i j . "
TEXTS = ["good text", "a bad text .", LETTERS * 4, "", None, " \n ", "b", "good " * 30, LETTERS + "bad"]


@pytest.fixture(scope="module", params=["gpt2", "llama"])
def model(request: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    return tiny.write_causal(tmp_path_factory.mktemp("causal") / request.param, request.param), request.param


def expected(folder: str, family: str, text: str, size: int, step: int) -> tuple[float, int]:
    """Sum of logarithms (base 10) and the number of predicted tokens, window by window."""
    ids = [2, *load_causal(folder).tokenizer.encode(text, add_special_tokens=False).ids]
    logs: dict[int, float] = {}
    for start in range(0, len(ids), step):
        for place, log in enumerate(tiny.log_probabilities(family, ids[start : start + size]), start + 1):
            logs.setdefault(place, log)
    return sum(logs.values()) / math.log(10), len(ids) - 1


@pytest.mark.parametrize(("context", "stride"), [(0, 0), (8, 3), (5, 4), (2, 1)])
@pytest.mark.parametrize("per", ["token", "word", "byte"])
def test_values_equal_a_plain_forward_pass(model: tuple[str, str], context: int, stride: int, per: str):
    folder, family = model
    found = curation.perplexity(pd.DataFrame({"text": TEXTS}), folder, per=per, context=context, stride=stride)
    size = context or tiny.POSITIONS
    for text, value in zip(TEXTS, found["perplexity"], strict=True):
        if not (text or "").strip():
            assert np.isnan(value)
            continue
        total, tokens = expected(folder, family, text, size, stride or size // 2)
        units = {"token": tokens, "word": len(text.split()), "byte": len(text.encode())}[per]
        assert value == pytest.approx(10 ** (-total / units), rel=2e-5, abs=6e-5)


@pytest.mark.parametrize("family", encoder_files.CAUSAL)
def test_scores_are_those_of_one_window_alone_and_the_same_bits_in_any_batches(
    family: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    network = write_network(tmp_path / "m", family, TOKENS)
    capfd.readouterr()
    reader = load_causal(str(tmp_path / "m"))
    chance = np.random.default_rng(4)
    texts = ["good " * int(n) + LETTERS[: 2 * int(n % 12)] for n in chance.integers(0, 36, 24)]
    whole = score_texts(texts, str(tmp_path / "m"), 12, 5)
    assert capfd.readouterr() == ("", "")
    window = reader.windows(0, "good text .", 12, 5)[0].ids
    with encoders.one_thread(), torch.inference_mode():
        logits = network(torch.from_numpy(window[None].astype(np.int64))).logits[0].log_softmax(1)
    expected = [logits[place, each].item() for place, each in enumerate(window[1:])]
    found = score_texts(["good text ."], str(tmp_path / "m"), 12, 5)
    assert found.total[0] * math.log(10) == pytest.approx(sum(expected), rel=1e-4)
    for part in np.array_split(chance.permutation(len(texts)), 5):
        again = score_texts([texts[number] for number in part], str(tmp_path / "m"), 12, 5)
        assert again.total.tolist() == whole.total[part].tolist()
        assert again.tokens.tolist() == whole.tokens[part].tolist()


def test_the_threads_of_pytorch_are_given_back(model: tuple[str, str], monkeypatch: pytest.MonkeyPatch):
    body, seen = load_causal(model[0]).network.base_model, []
    forward = body.forward
    monkeypatch.setattr(body, "forward", lambda *a, **b: seen.append(torch.get_num_threads()) or forward(*a, **b))
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        score_texts(TEXTS, model[0], 0, 0)
        assert set(seen) == {1} and torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


def test_without_a_begin_token_the_first_token_is_not_predicted(tmp_path: Path):
    folder = tiny.write_causal(tmp_path / "m", "gpt2", bos_token_id=None)
    found = score_texts(["good text", "good", ""], folder, 0, 0)
    ids = load_causal(folder).tokenizer.encode("good text", add_special_tokens=False).ids
    total = sum(tiny.log_probabilities("gpt2", ids)) / math.log(10)
    assert found.tokens.tolist() == [len(ids) - 1, 0, 0] and found.total[0] == pytest.approx(total, rel=1e-5)
    column = curation.perplexity(pd.DataFrame({"text": ["good text", "good"]}), folder)["perplexity"]
    assert column.notna().tolist() == [True, False]


def test_the_truncated_formula_is_that_of_a_loss_of_transformers(tmp_path: Path):
    """exp(loss) of the first tokens alone, without a begin token: of one token there is none."""
    network = write_network(tmp_path / "m", "gpt2", TOKENS)
    folder, texts = str(tmp_path / "m"), ["good text", LETTERS * 4, "good", ""]
    for context in (0, 5):
        settings = {"formula": "truncated", "context": context}
        found = curation.perplexity(pd.DataFrame({"text": texts}), folder, **settings)["perplexity"]
        most = context or load_causal(folder).files.max_tokens  # fewer than 512
        for text, value in zip(texts[:2], found, strict=False):
            ids = load_causal(folder).tokenizer.encode(text, add_special_tokens=False).ids[:most]
            given = torch.tensor([ids])
            with torch.inference_mode():
                assert value == pytest.approx(math.exp(network(given, labels=given).loss), rel=1e-4)
        assert found.isna().tolist() == [False, False, True, True]
        assert f"of the first {most} tokens" in curation.Perplexity(model=folder, **settings).explain()[0]


def test_a_truncated_text_has_512_tokens_by_default(tmp_path: Path):
    folder = tiny.write_causal(tmp_path / "m", "llama", max_position_embeddings=2000)
    scores = score_texts(["good " * 600], folder, 0, 0, "truncated")
    assert scores.tokens.tolist() == [511]


def test_a_run_is_the_same_for_other_slices_and_workers(model: tuple[str, str], tmp_path: Path):
    folder, _ = model
    texts = [text for text in TEXTS if text and text.strip()] * 4
    (tmp_path / "texts.jsonl").write_bytes(records_of(texts))
    recipe = recipe_of(tmp_path / "texts.jsonl", stages=[{"kind": "perplexity", "model": folder}])
    first = run(recipe, tmp_path / "one", engine="cpu", workers=1)
    second = run(recipe, tmp_path / "two", engine="cpu", workers=2, slice_bytes=300)
    assert data_digests(tmp_path / "one") == data_digests(tmp_path / "two")
    stage = first.report["stages"][0]
    assert stage["details"] == second.report["stages"][0]["details"]
    assert f"{stage['details']['tokens']:,} tokens predicted" in " ".join(stage["lines"])
    values = [row[0] for row in table_rows(tmp_path / "one" / "documents", "perplexity")]
    frame = curation.perplexity(pd.DataFrame({"text": texts}), folder)
    assert values == frame["perplexity"].tolist()


def test_the_identity_of_a_run_has_the_device_and_the_files(tmp_path: Path):
    stage = curation.Perplexity(model=tiny.write_causal(tmp_path / "m", "gpt2"))
    assert stage.computed_with() == encoders.device_facts()
    assert {Path(name).name for name in stage.files()} == {"config.json", "model.safetensors", "tokenizer.json"}


BAD: dict[str, tuple[str, dict[str, Any], dict[str, Any], str]] = {
    "family": ("gpt2", {"model_type": "bert"}, {}, "model_type 'bert', which is not supported; expected one of gpt2"),
    "heads": ("gpt2", {"n_head": 3}, {}, "m cannot be used by transformers: ValueError `embed_dim` must"),
    "no size": ("gpt2", {"n_positions": "absent"}, {}, "has no max_position_embeddings or n_positions of 2 or more"),
    "angles": ("llama", {"rope_scaling": {"rope_type": "x"}}, {}, "m cannot be used by transformers: "),
    "bias": ("llama", {"attention_bias": True}, {}, "has no tensor 'model.layers.0.self_attn.k_proj.bias'; did you"),
    "unequal": ("llama", {"num_key_value_heads": 3}, {}, "layers.0.self_attn.k_proj.weight has the shape (4, 8)"),
    "begin": ("gpt2", {"bos_token_id": 50256}, {}, "bos_token_id 50256, which is not supported; expected a token"),
    "context": ("gpt2", {}, {"context": 17}, "context must be 2 to 16, the positions of the model, not 17"),
    "stride": ("gpt2", {}, {"context": 8, "stride": 8}, "stride must be 1 to 7, below the context, not 8"),
    "negative": ("gpt2", {}, {"stride": -1}, "context and stride must be 0 or more, not 0 and -1"),
    "formula": ("gpt2", {}, {"formula": "published"}, "formula: no formula 'published'"),
    "parts": ("gpt2", {}, {"formula": "truncated", "per": "byte"}, "Leave out stride and per, or"),
    "vocabulary": ("gpt2", {"vocab_size": 5}, {}, "the tensor transformer.wte.weight has the shape"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_wrong_models_and_settings_end_in_one_message(tmp_path: Path, name: str):
    family, changes, settings, message = BAD[name]
    folder = tiny.write_causal(tmp_path / "m", family, **changes)
    with pytest.raises((curation.RecipeError, curation.InputError)) as error:
        curation.perplexity(pd.DataFrame({"text": ["good"]}), folder, **settings)
    assert message in str(error.value) and "\n" not in str(error.value)


def test_values_that_fit_the_weights_but_not_each_other_are_one_message(tmp_path: Path):
    write_network(tmp_path / "m", "llama", TOKENS, num_key_value_heads=3)
    with pytest.raises(curation.InputError, match=r"m cannot be used by transformers: RuntimeError .* must match"):
        load_causal(str(tmp_path / "m"))


def test_weights_that_are_missing_or_not_finite_are_named(tmp_path: Path):
    for name, values, message in (
        ("h.0.mlp.c_fc.weight", None, "has no tensor 'transformer.h.0.mlp.c_fc.weight'"),
        (
            "ln_f.bias",
            np.full(tiny.WIDTH, np.nan, np.float32),
            "the tensor transformer.ln_f.bias has NaN or infinite values",
        ),
    ):
        weights = tiny.weights_of("gpt2")
        weights = {key: value for key, value in weights.items() if key != name}
        weights |= {} if values is None else {name: values}
        folder = tiny.write_causal(tmp_path / name, "gpt2", weights)
        with pytest.raises(curation.InputError, match=message.replace(".", r"\.")):
            curation.perplexity(pd.DataFrame({"text": ["good"]}), folder)


def test_an_ngram_model_has_no_context(tmp_path: Path):
    for settings in ({"context": 8}, {"formula": "truncated"}):
        with pytest.raises(curation.RecipeError, match="context, stride and formula are settings of causal models"):
            curation.perplexity(pd.DataFrame({"text": ["good"]}), str(tmp_path / "x.arpa"), **settings)
