# SPDX-License-Identifier: Apache-2.0
"""ONNX files of BERT from its tensors."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tests.needs import needs

onnx = needs("onnx")
helper = onnx.helper

INPUTS = ("input_ids", "attention_mask", "token_type_ids")
AXES = ["batch", "sequence"]


class Graph:
    """Nodes and tensors of a graph. The result of a call is the name of a value."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.tensors: dict[str, Any] = {}

    def __call__(self, operator: str, *given: Any, **attributes: Any) -> str:
        name = f"{operator}_{len(self.nodes)}"
        names = [value if isinstance(value, str) else self.constant(value) for value in given]
        self.nodes.append(helper.make_node(operator, names, [name], **attributes))
        return name

    def constant(self, value: np.ndarray) -> str:
        name = f"tensor_{len(self.tensors)}"
        self.tensors[name] = onnx.numpy_helper.from_array(np.array(value, order="C"), name)
        return name


def linear(graph: Graph, value: str, tensors: dict[str, np.ndarray], name: str) -> str:
    return graph("Add", graph("MatMul", value, tensors[f"{name}.weight"].T), tensors[f"{name}.bias"])


def norm(graph: Graph, value: str, tensors: dict[str, np.ndarray], name: str) -> str:
    parts = tensors[f"{name}.weight"], tensors[f"{name}.bias"]
    return graph("LayerNormalization", value, *parts, axis=-1, epsilon=1e-12)


def bert(graph: Graph, tensors: dict[str, np.ndarray], heads: int) -> str:
    """Add a BERT, and return the vectors of its tokens."""
    tensors = {name.removeprefix("bert."): value for name, value in tensors.items()}
    table = {kind: tensors[f"embeddings.{kind}_embeddings.weight"] for kind in ("word", "position", "token_type")}
    size = table["word"].shape[1] // heads
    length = graph("Squeeze", graph("Shape", "input_ids", start=1, end=2))
    places = graph("Range", np.array(0), length, np.array(1))
    hidden = graph("Add", graph("Gather", table["word"], "input_ids"), graph("Gather", table["position"], places))
    hidden = graph("Add", hidden, graph("Gather", table["token_type"], "token_type_ids"))
    hidden = norm(graph, hidden, tensors, "embeddings.LayerNorm")
    absent = graph("Sub", np.float32(1), graph("Cast", "attention_mask", to=onnx.TensorProto.FLOAT))
    mask = graph("Mul", graph("Unsqueeze", absent, np.array([1, 2])), np.float32(-1e9))
    number, split = 0, np.array([0, 0, heads, size])
    while f"encoder.layer.{number}.output.dense.weight" in tensors:
        name = f"encoder.layer.{number}"
        query, key, value = (
            graph("Reshape", linear(graph, hidden, tensors, f"{name}.attention.self.{part}"), split)
            for part in ("query", "key", "value")
        )
        scores = graph(
            "MatMul", graph("Transpose", query, perm=[0, 2, 1, 3]), graph("Transpose", key, perm=[0, 2, 3, 1])
        )
        weights = graph("Softmax", graph("Add", graph("Div", scores, np.float32(size**0.5)), mask), axis=-1)
        attended = graph("MatMul", weights, graph("Transpose", value, perm=[0, 2, 1, 3]))
        attended = graph("Reshape", graph("Transpose", attended, perm=[0, 2, 1, 3]), np.array([0, 0, heads * size]))
        attended = linear(graph, attended, tensors, f"{name}.attention.output.dense")
        hidden = norm(graph, graph("Add", hidden, attended), tensors, f"{name}.attention.output.LayerNorm")
        inner = linear(graph, hidden, tensors, f"{name}.intermediate.dense")
        half = graph("Mul", inner, np.float32(0.5))
        inner = graph("Mul", half, graph("Add", graph("Erf", graph("Div", inner, np.float32(2**0.5))), np.float32(1)))
        outer = linear(graph, inner, tensors, f"{name}.output.dense")
        hidden = norm(graph, graph("Add", hidden, outer), tensors, f"{name}.output.LayerNorm")
        number += 1
    return hidden


def model_of(
    tensors: dict[str, np.ndarray], heads: int, finish: Callable[[Graph, str], tuple[str, list[Any]]] | None = None
) -> Any:
    """Return the ONNX model of a BERT. `finish` adds nodes to the vectors of tokens, and returns the name of the output
    and its shape."""
    graph = Graph()
    width = next(value for name, value in tensors.items() if name.endswith("embeddings.LayerNorm.bias")).shape[0]
    last = bert(graph, tensors, heads)
    name, shape = finish(graph, last) if finish else ("last_hidden_state", [*AXES, width])
    graph.nodes.append(helper.make_node("Identity", [last if not finish else graph.nodes[-1].output[0]], [name]))
    made = helper.make_graph(
        graph.nodes, "bert",
        [helper.make_tensor_value_info(each, onnx.TensorProto.INT64, AXES) for each in INPUTS],
        [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)], [*graph.tensors.values()],
    )  # fmt: skip
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def scores_of(tensors: dict[str, np.ndarray]) -> Callable[[Graph, str], tuple[str, list[Any]]]:
    """Return the `finish` of a classifier."""

    def finish(graph: Graph, hidden: str) -> tuple[str, list[Any]]:
        first = graph("Gather", hidden, np.array(0), axis=1)
        pooled = graph("Tanh", linear(graph, first, tensors, "bert.pooler.dense"))
        linear(graph, pooled, tensors, "classifier")
        return "logits", ["batch", len(tensors["classifier.bias"])]

    return finish


def set_config(folder: Path, **values: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))
