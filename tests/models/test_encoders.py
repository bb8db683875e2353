# SPDX-License-Identifier: Apache-2.0
"""Encoders from a folder: their numbers in every family, fixed batches, windows, and the folders that they refuse."""

from __future__ import annotations

import json
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from curation.base.errors import InputError
from curation.models import encoder_files, encoders, windows
from curation.models.tensors import read_tensors
from curation.models.windows import TokenWindows, pool
from tests.models import tiny_encoder as tiny
from tests.models.tiny_files import write_safetensors
from tests.models.tiny_networks import torch, write_network

LETTERS = "a b c d e f g h i j . "
TEXTS = ["good text", "a bad text .", LETTERS * 5, "", None, "b" * 90, "c"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write_encoder(tmp_path_factory.mktemp("encoder") / "tiny", 3)


def results(encoder: encoders.Encoder, windows: list[np.ndarray]) -> np.ndarray:
    found = np.full((len(windows), encoder.width), np.nan, np.float32)
    for numbers, values in encoder.run(windows):
        found[numbers] = values
    return found


def test_scores_are_those_of_the_layers_of_pytorch(folder: Path):
    encoder, weights = encoders.load_encoder(str(folder), True), tiny.weights_of(3)
    windows = encoder.windows(TEXTS, 0).ids
    expected = [tiny.logits_of(weights, window.tolist()).numpy() for window in windows]
    np.testing.assert_allclose(results(encoder, windows), expected, atol=2e-5)


@pytest.mark.parametrize("by_mean", [True, False])
def test_a_vector_is_the_mean_of_the_tokens_or_the_first(tmp_path: Path, by_mean: bool):
    folder, weights = tiny.write_encoder(tmp_path / "e"), tiny.weights_of(0)
    (folder / "1_Pooling").mkdir()
    modes = {"pooling_mode_mean_tokens": by_mean, "pooling_mode_cls_token": not by_mean}
    (folder / "1_Pooling/config.json").write_text(json.dumps(modes))
    encoder = encoders.load_encoder(str(folder), False)
    windows = encoder.windows(TEXTS, 0).ids
    hidden = [tiny.hidden_of(weights, window.tolist()).numpy() for window in windows]
    expected = [vectors.mean(0) if by_mean else vectors[0] for vectors in hidden]
    np.testing.assert_allclose(results(encoder, windows), expected, atol=2e-5)


@pytest.mark.parametrize("family", encoder_files.ENCODERS)
def test_scores_are_those_of_one_window_alone_and_the_same_bits_in_any_batches(
    family: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    network = write_network(tmp_path / "m", family)
    capfd.readouterr()
    monkeypatch.setattr(socket, "socket", None)
    encoder = encoders.load_encoder(str(tmp_path / "m"), True)
    windows = encoder.windows([LETTERS * (number % 9) + "good " * (number % 5) for number in range(36)], 0).ids
    found = results(encoder, windows)
    assert capfd.readouterr() == ("", "")
    sizes = [len(window) for window in windows]
    assert len({*sizes}) > 10 and max(sizes) == encoder.files.max_tokens
    with encoders.one_thread(), torch.inference_mode():
        given = [torch.from_numpy(window[None].astype(np.int64)) for window in windows[::4]]
        expected = [network(ids, torch.ones_like(ids)).logits[0].numpy() for ids in given]
    np.testing.assert_allclose(found[::4], expected, rtol=1e-4, atol=1e-4)
    for part in np.array_split(np.random.default_rng(2).permutation(len(windows)), 5):
        assert results(encoder, [windows[number] for number in part]).tobytes() == found[part].tobytes()


def test_a_full_window_never_shares_a_batch_with_padding(folder: Path, monkeypatch: pytest.MonkeyPatch):
    encoder, masks = encoders.load_encoder(str(folder), True), []
    forward = encoder.forward
    monkeypatch.setattr(encoder, "forward", lambda ids, mask: masks.append(mask) or forward(ids, mask))
    results(encoder, encoder.windows([LETTERS * 20, "good " * 36, "good " * 14, "good " * 13], 0).ids)
    assert sorted((bool(mask.all()), *mask.shape) for mask in masks) == [
        (False, 12, 40), (False, 16, 32), (False, 32, 16), (True, 12, 40)
    ]  # fmt: skip


def test_all_batches_of_a_length_have_one_shape(folder: Path, monkeypatch: pytest.MonkeyPatch):
    encoder = encoders.load_encoder(str(folder), True)
    shapes = set()
    forward = encoder.forward
    monkeypatch.setattr(encoder, "forward", lambda ids, sizes: shapes.add(tuple(ids.shape)) or forward(ids, sizes))
    results(encoder, encoder.windows([*TEXTS, *["good bad text"] * 70], 0).ids)
    assert shapes == {(32, 16), (16, 32), (12, 40)}


def test_a_batch_has_one_thread_and_gives_the_others_back(folder: Path, monkeypatch: pytest.MonkeyPatch):
    encoder = encoders.load_encoder(str(folder), True)
    windows, forward, seen = encoder.windows(["good text"], 1).ids, encoder.forward, []
    both = threading.Barrier(2, timeout=20)

    def watched(ids: Any, sizes: Any) -> Any:
        both.wait()  # the two batches overlap, so the second one finds the thread count of the first
        seen.append(torch.get_num_threads())
        return forward(ids, sizes)

    monkeypatch.setattr(encoder, "forward", watched)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        with ThreadPoolExecutor(2) as pool:
            assert len([*pool.map(lambda each: results(encoder, each), [windows, windows])]) == 2
            counts = {pool.submit(torch.get_num_threads).result() for _ in range(4)}
        assert (seen, counts, torch.get_num_threads()) == ([1, 1], {3}, 3)
        monkeypatch.setattr(encoder, "forward", lambda ids, sizes: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            results(encoder, windows)
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


def test_windows_cover_a_text_from_its_start(folder: Path):
    encoder = encoders.load_encoder(str(folder), True)
    text = LETTERS * 20  # 220 tokens
    whole, two = (encoder.windows([text, "a", " "], count) for count in (0, 2))
    assert [len(window) for window in whole.ids] == [40, 40, 40, 40, 40, 32, 3]
    assert [window.tolist() for window in two.ids] == [window.tolist() for window in [*whole.ids[:2], whole.ids[-1]]]
    assert all(window[0] == 2 and window[-1] == 3 for window in whole.ids)
    assert (two.document.tolist(), two.is_truncated.sum(), whole.is_truncated.sum()) == ([0, 0, 1], 1, 0)
    assert two.seen.tolist() == [2 * 76 - 1, 1, 0] and two.characters.tolist() == [len(text), 1, 1]


def test_a_text_that_fills_its_windows_at_the_end_of_a_piece_is_truncated(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(windows, "PIECE", 76)
    text = LETTERS * 20  # the 38 tokens of a window are the letters of the first piece
    cut = encoders.load_encoder(str(folder), True).windows([text], 1)
    assert (cut.seen.tolist(), cut.is_truncated.sum()) == ([75], 1)


def test_a_text_is_tokenised_as_far_as_its_windows_reach(folder: Path):
    encoder = encoders.load_encoder(str(folder), True)
    text = LETTERS * 5000
    assert encoder.windows([text], 1).ids[0].tolist() == encoder.windows([text], 0).ids[0].tolist()


def test_equal_windows_are_read_once():
    class Sums:
        width, read = 1, 0

        def run(self, given: list[np.ndarray]) -> Any:
            self.read += len(given)
            yield np.arange(len(given)), np.array([[float(window.sum())] for window in given])

    texts = [[1, 2], [7], [1, 2], [3], [7], [2, 1]]
    ids = [np.array(text, np.int32) for text in texts]
    reader, counts = Sums(), np.arange(6)
    found = windows.results_of(reader, TokenWindows(ids, counts, counts, counts), "")
    assert found[:, 0].tolist() == [sum(text) for text in texts] and reader.read == 4


@pytest.mark.parametrize(
    ("pooling", "expected"), [("first", [1, 10]), ("max", [5, 10]), ("mean", [(1 * 4 + 5 * 2) / 6, 10])]
)
def test_windows_are_pooled(pooling: str, expected: list[float]):
    ids = [np.zeros(size, np.int32) for size in (4, 2, 3)]
    windows = TokenWindows(ids, np.array([0, 0, 2]), np.array([1, 0, 1]), np.array([1, 0, 1]))
    found = pool(np.array([[1], [5], [10]], np.float32), windows, pooling)
    assert found[[0, 2], 0].tolist() == pytest.approx(expected) and np.isnan(found[1, 0])


def broken(folder: Path, name: str) -> None:
    """Damage a folder in one way."""
    config = json.loads((folder / "config.json").read_text())
    weights = tiny.weights_of(3)
    match name:
        case "family":
            config["model_type"] = "gpt2"
        case "width":
            config["hidden_size"] = "wide"
        case "activation":
            config["hidden_act"] = "none"
        case "heads":
            config["num_attention_heads"] = 3
        case "code":
            config["auto_map"] = {"AutoModel": "modeling.Model"}
        case "quantised":
            config["quantization_config"] = {"quant_method": "awq"}
        case "endless":
            config["num_hidden_layers"] = 1 << 40
        case "positions":
            config["max_position_embeddings"] = 1 << 40
        case "more layers":
            config["num_hidden_layers"] = 1
        case "short":
            config["max_position_embeddings"] = 4
        case "no config":
            (folder / "config.json").unlink()
        case "no tokenizer":
            (folder / "tokenizer.json").unlink()
        case "foreign tokenizer":
            (folder / "tokenizer.json").write_text("{}")
        case "larger tokenizer":
            tokenizer = json.loads((folder / "tokenizer.json").read_text())
            tokenizer["model"]["vocab"]["new"] = 28
            (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
        case "pickle":
            (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
        case "shards":
            (folder / "model.safetensors").rename(folder / "model-00001-of-00002.safetensors")
        case "shard elsewhere":
            (folder / "model.safetensors").unlink()
            (folder / "model.safetensors.index.json").write_text('{"weight_map": {"x": "../x.safetensors"}}')
        case "damaged":
            (folder / "model.safetensors").write_bytes(b"no weights")
        case "no tensor":
            del weights["bert.encoder.layer.1.output.dense.bias"]
        case "shape":
            weights["classifier.weight"] = weights["classifier.weight"][:2].clone()
        case "NaN":
            weights["classifier.bias"][1] = torch.nan
    if name in ("no tensor", "shape", "NaN"):
        tiny.write_tensors(folder / "model.safetensors", weights)
    if name != "no config":
        (folder / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("family", "has model_type 'gpt2', which is not supported; expected one of bert, camembert"),
        ("width", "is not the configuration of a transformer: Expected `int | null`, got `str` - at `$.hidden_size`"),
        ("activation", "model cannot be used by transformers: KeyError 'none'"),
        ("heads", "model cannot be used by transformers: ValueError The hidden size (16) is not a multiple"),
        ("code", "config.json has auto_map: the model needs code that is not in transformers, or is quantised"),
        ("quantised", "config.json has quantization_config: the model needs code that is not in transformers, or"),
        ("endless", "model cannot be used by transformers: ValueError 1,099,511,627,776 layers have only 41 tensors"),
        ("positions", "Expected `int` <= 1048576 - at `$.max_position_embeddings`"),
        ("more layers", "has a tensor 'bert.encoder.layer.1.attention.output.LayerNorm.bias' that a model with the"),
        ("short", "its windows have 4 tokens, expected 8 or more"),
        ("no config", "it has no config.json. The folder needs config.json, model.safetensors, tokenizer.json"),
        ("no tokenizer", "it has no tokenizer.json"),
        ("foreign tokenizer", "tokenizer.json cannot be read as a tokenizer"),
        ("larger tokenizer", "ids up to 28, and the model has vectors for 28. Give the tokenizer of this model"),
        ("pickle", "its weights pytorch_model.bin are a pickle, which can run code. Save the model as model.saf"),
        ("shards", "it has no model.safetensors. The folder needs config.json, model.safetensors, tokenizer.json"),
        ("shard elsewhere", "model.safetensors.index.json names '../x.safetensors'; expected names of .safetensors"),
        ("damaged", "model.safetensors is no file of safetensors: its header would have"),
        ("no tensor", "has no tensor 'bert.encoder.layer.1.output.dense.bias'; did you mean"),
        ("shape", "the tensor classifier.weight has the shape (2, 16), expected (3, 16)"),
        ("NaN", "the tensor classifier.bias has NaN or infinite values: its training has failed"),
    ],
)
def test_a_folder_that_is_no_encoder_is_one_message(tmp_path: Path, name: str, message: str):
    folder = tiny.write_encoder(tmp_path / "model", 3)
    broken(folder, name)
    with pytest.raises(InputError) as caught:
        encoders.load_encoder(str(folder), True)
    assert message in str(caught.value) and str(caught.value).count("\n") == 0


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("org/model", "there is no folder org/model. Models are never downloaded"),
        ("model.pt", "model.pt is a pickle, and loading one can run code"),
    ],
)
def test_a_path_that_is_no_folder_is_one_message(path: str, message: str):
    with pytest.raises(InputError, match=message):
        encoder_files.open_encoder(path)


def test_a_folder_with_other_weights_is_loaded_again(tmp_path: Path):
    first: Any = encoders.load_encoder(str(tiny.write_encoder(tmp_path / "model", 3)), True)
    second: Any = encoders.load_encoder(str(tiny.write_encoder(tmp_path / "model", 3, seed=2)), True)
    assert first is not second
    assert second is encoders.load_encoder(str(tmp_path / "model"), True)


def test_weights_in_shards_are_those_of_one_file(tmp_path: Path):
    one, two = (tiny.write_encoder(tmp_path / name, 3) for name in ("one", "two"))
    tensors = {name: np.array(values) for name, values in read_tensors(two / "model.safetensors").items()}
    (two / "model.safetensors").unlink()
    files = {name: f"model-0000{number % 2}.safetensors" for number, name in enumerate(tensors)}
    for file in {*files.values()}:
        write_safetensors(two / file, {name: tensors[name] for name in tensors if files[name] == file})
    (two / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": files}))
    loaded = [encoders.load_encoder(str(folder), True) for folder in (one, two)]
    windows = loaded[0].windows(TEXTS, 0).ids
    assert results(loaded[0], windows).tobytes() == results(loaded[1], windows).tobytes()
    assert {Path(path).name for path in encoder_files.encoder_digests(str(two))} == {
        "config.json", "tokenizer.json", "model.safetensors.index.json", *files.values()
    }  # fmt: skip


def test_a_classifier_of_nemo_curator_is_a_linear_map_of_the_first_token(tmp_path: Path):
    folder = tmp_path / "m"
    network = write_network(folder, "deberta-v2", "MODEL_MAPPING", architectures=None, fc_dropout=0.2)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"architectures": None}))
    head = torch.nn.Linear(16, 3)
    tensors = {f"model.{name}": each.numpy() for name, each in network.state_dict().items()}
    tensors |= {f"fc.{name}": each.numpy() for name, each in head.state_dict().items()}
    write_safetensors(folder / "model.safetensors", tensors)
    encoder = encoders.load_encoder(str(folder), True)
    assert encoder.files.labels == ("low", "middle", "high")
    windows = encoder.windows(TEXTS, 0).ids
    with encoders.one_thread(), torch.inference_mode():
        hidden = [network(torch.from_numpy(window[None].astype(np.int64))).last_hidden_state for window in windows]
        expected = [head(each[0, 0]).numpy() for each in hidden]
    np.testing.assert_allclose(results(encoder, windows), expected, atol=1e-4)
    write_safetensors(folder / "model.safetensors", {name: tensors[name] for name in tensors if name != "fc.bias"})
    with pytest.raises(InputError, match=r"its head fc is not that of its config\.json: .*Missing key.*bias"):
        encoders.load_encoder(str(folder), True)
