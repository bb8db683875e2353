# SPDX-License-Identifier: Apache-2.0
"""Folders of tiny encoders with random weights, and their results by PyTorch's own transformer layers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.models.tiny_files import WORDS, write_safetensors, write_tokenizer
from tests.needs import needs

torch = needs("torch")
needs("transformers")

WIDTH, INNER, HEADS, LAYERS, POSITIONS = 16, 32, 2, 2, 40
CONFIG = {
    "model_type": "bert", "vocab_size": len(WORDS), "hidden_size": WIDTH, "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS, "intermediate_size": INNER, "max_position_embeddings": POSITIONS,
}  # fmt: skip
LABELS = {"0": "low", "1": "middle", "2": "high"}


def shapes(outputs: int) -> dict[str, tuple[int, ...]]:
    """The tensors of a BERT with a head of so many outputs; 0: none."""
    norms, linears = {"embeddings.LayerNorm": WIDTH}, {}
    for number in range(LAYERS):
        name = f"encoder.layer.{number}"
        norms |= {f"{name}.attention.output.LayerNorm": WIDTH, f"{name}.output.LayerNorm": WIDTH}
        linears |= {f"{name}.attention.self.{part}": (WIDTH, WIDTH) for part in ("query", "key", "value")}
        linears |= {
            f"{name}.attention.output.dense": (WIDTH, WIDTH),
            f"{name}.intermediate.dense": (INNER, WIDTH),
            f"{name}.output.dense": (WIDTH, INNER),
        }
    if outputs:
        linears["pooler.dense"] = (WIDTH, WIDTH)
    found = {f"embeddings.{name}_embeddings.weight": (size, WIDTH) for name, size in (
        ("word", len(WORDS)), ("position", POSITIONS), ("token_type", 2),
    )}  # fmt: skip
    for name, size in norms.items():
        found |= {f"{name}.weight": (size,), f"{name}.bias": (size,)}
    for name, shape in linears.items():
        found |= {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
    if outputs:
        found = {f"bert.{name}": shape for name, shape in found.items()}
        found |= {"classifier.weight": (outputs, WIDTH), "classifier.bias": (outputs,)}
    return found


def weights_of(outputs: int, seed: int = 1) -> dict[str, Any]:
    random = torch.Generator().manual_seed(seed)
    return {name: torch.randn(*shape, generator=random) * 0.5 for name, shape in shapes(outputs).items()}


def write_tensors(path: Path, weights: dict[str, Any]) -> None:
    write_safetensors(path, {name: value.numpy() for name, value in weights.items()})


def write_encoder(
    folder: Path, outputs: int = 0, *, seed: int = 1, weights: dict[str, Any] | None = None, **config: Any
) -> Path:
    """Write an encoder with a head of so many outputs; `config` replaces values of `config.json`."""
    folder.mkdir(exist_ok=True)
    values: dict[str, Any] = dict(CONFIG)
    if outputs:
        values["architectures"] = ["BertForSequenceClassification"]
        values["id2label"] = dict(list(LABELS.items())[:outputs]) if outputs > 1 else {"0": "LABEL_0"}
    (folder / "config.json").write_text(json.dumps(values | config))
    write_tensors(folder / "model.safetensors", weights or weights_of(outputs, seed))
    write_tokenizer(folder)
    return folder


def hidden_of(weights: dict[str, Any], ids: list[int]) -> Any:
    """The vectors of the tokens of one window, by `torch.nn.TransformerEncoderLayer`."""
    weights = {name.removeprefix("bert."): value for name, value in weights.items()}
    functional = torch.nn.functional
    words, positions, kinds = (weights[f"embeddings.{name}_embeddings.weight"] for name in (
        "word", "position", "token_type",
    ))  # fmt: skip
    summed = words[ids] + positions[: len(ids)] + kinds[0]
    norm = [weights[f"embeddings.LayerNorm.{part}"] for part in ("weight", "bias")]
    hidden = functional.layer_norm(summed, (WIDTH,), *norm, eps=1e-12)[None]
    for number in range(LAYERS):
        layer = torch.nn.TransformerEncoderLayer(
            WIDTH, HEADS, INNER, 0.0, "gelu", layer_norm_eps=1e-12, batch_first=True
        )
        layer.load_state_dict(_as_torch_names(weights, f"encoder.layer.{number}"))
        with torch.no_grad():
            hidden = layer.eval()(hidden)
    return hidden[0]


def _as_torch_names(weights: dict[str, Any], name: str) -> dict[str, Any]:
    own = {
        "self_attn.out_proj": "attention.output.dense", "norm1": "attention.output.LayerNorm",
        "linear1": "intermediate.dense", "linear2": "output.dense", "norm2": "output.LayerNorm",
    }  # fmt: skip
    found = {f"{theirs}.{part}": weights[f"{name}.{ours}.{part}"] for theirs, ours in own.items() for part in (
        "weight", "bias",
    )}  # fmt: skip
    for part in ("weight", "bias"):
        found[f"self_attn.in_proj_{part}"] = torch.cat(
            [weights[f"{name}.attention.self.{which}.{part}"] for which in ("query", "key", "value")]
        )
    return found


def logits_of(weights: dict[str, Any], ids: list[int]) -> Any:
    """The outputs of the head for one window."""
    first = hidden_of(weights, ids)[0]
    pooled = torch.tanh(weights["bert.pooler.dense.weight"] @ first + weights["bert.pooler.dense.bias"])
    return weights["classifier.weight"] @ pooled + weights["classifier.bias"]
