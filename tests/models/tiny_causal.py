# SPDX-License-Identifier: Apache-2.0
"""Tiny causal language models with random weights, and their forward pass written again: NumPy, float64, one token
after the other."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from tests.models.tiny_files import WORDS, write_safetensors, write_tokenizer

WIDTH, LAYERS, HEADS, KEYS, INNER, POSITIONS = 8, 2, 4, 2, 12, 16
GPT2: dict[str, Any] = {
    "model_type": "gpt2", "vocab_size": len(WORDS), "n_positions": POSITIONS, "n_embd": WIDTH, "n_layer": LAYERS,
    "n_head": HEADS, "n_inner": INNER, "bos_token_id": 2,
}  # fmt: skip
LLAMA: dict[str, Any] = {
    "model_type": "llama", "vocab_size": len(WORDS), "max_position_embeddings": POSITIONS, "hidden_size": WIDTH,
    "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": KEYS, "intermediate_size": INNER,
    "bos_token_id": 2, "rope_theta": 100.0,
}  # fmt: skip
CONFIGS = {"gpt2": GPT2, "llama": LLAMA}
Weights = dict[str, np.ndarray]


def weights_of(family: str, seed: int = 5) -> Weights:
    chance = np.random.default_rng(seed)
    size = WIDTH // HEADS
    if family == "gpt2":
        shapes: dict[str, tuple[int, ...]] = {"wte.weight": (len(WORDS), WIDTH), "wpe.weight": (POSITIONS, WIDTH)}
        for n in range(LAYERS):
            for part, shape in {
                "ln_1": (WIDTH,), "attn.c_attn": (WIDTH, 3 * WIDTH), "attn.c_proj": (WIDTH, WIDTH), "ln_2": (WIDTH,),
                "mlp.c_fc": (WIDTH, INNER), "mlp.c_proj": (INNER, WIDTH),
            }.items():  # fmt: skip
                shapes |= {f"h.{n}.{part}.weight": shape, f"h.{n}.{part}.bias": shape[-1:]}
        shapes |= {"ln_f.weight": (WIDTH,), "ln_f.bias": (WIDTH,)}
    else:
        shapes = {"model.embed_tokens.weight": (len(WORDS), WIDTH), "lm_head.weight": (len(WORDS), WIDTH)}
        for n in range(LAYERS):
            for part, shape in {
                "input_layernorm": (WIDTH,), "self_attn.q_proj": (HEADS * size, WIDTH),
                "self_attn.k_proj": (KEYS * size, WIDTH), "self_attn.v_proj": (KEYS * size, WIDTH),
                "self_attn.o_proj": (WIDTH, HEADS * size), "post_attention_layernorm": (WIDTH,),
                "mlp.gate_proj": (INNER, WIDTH), "mlp.up_proj": (INNER, WIDTH), "mlp.down_proj": (WIDTH, INNER),
            }.items():  # fmt: skip
                shapes[f"model.layers.{n}.{part}.weight"] = shape
        shapes["model.norm.weight"] = (WIDTH,)
    return {name: chance.normal(0, 0.7, shape).astype(np.float32) for name, shape in shapes.items()}


def write_causal(folder: Path, family: str, weights: Weights | None = None, **changes: Any) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    config = {key: value for key, value in (CONFIGS[family] | changes).items() if value != "absent"}
    (folder / "config.json").write_text(json.dumps(config))
    write_safetensors(folder / "model.safetensors", weights or weights_of(family))
    write_tokenizer(folder)
    return str(folder)


# The forward pass


def log_probabilities(family: str, ids: list[int]) -> list[float]:
    """The natural logarithm of the probability of each token but the first."""
    weights = {name: values.astype(np.float64) for name, values in weights_of(family).items()}
    logits = (_gpt2 if family == "gpt2" else _llama)(weights, ids)
    return [float(row[target] - math.log(np.exp(row).sum())) for row, target in zip(logits, ids[1:], strict=False)]


def _attended(queries: np.ndarray, keys: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Attention of one head: each token sees itself and the tokens before it."""
    out = np.zeros_like(values)
    for t, query in enumerate(queries):
        scores = np.exp(keys[: t + 1] @ query / math.sqrt(len(query)))
        out[t] = scores @ values[: t + 1] / scores.sum()
    return out


def _normed(x: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    return (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5) * weight + bias


def _gpt2(w: Weights, ids: list[int]) -> np.ndarray:
    size = WIDTH // HEADS
    x = w["wte.weight"][ids] + w["wpe.weight"][: len(ids)]
    for n in range(LAYERS):
        part = {name.removeprefix(f"h.{n}."): values for name, values in w.items() if name.startswith(f"h.{n}.")}
        a = _normed(x, part["ln_1.weight"], part["ln_1.bias"]) @ part["attn.c_attn.weight"] + part["attn.c_attn.bias"]
        heads = []
        for h in range(HEADS):
            q, k, v = (a[:, p * WIDTH + h * size : p * WIDTH + (h + 1) * size] for p in range(3))
            heads.append(_attended(q, k, v))
        x = x + np.concatenate(heads, 1) @ part["attn.c_proj.weight"] + part["attn.c_proj.bias"]
        m = _normed(x, part["ln_2.weight"], part["ln_2.bias"]) @ part["mlp.c_fc.weight"] + part["mlp.c_fc.bias"]
        m = 0.5 * m * (1 + np.tanh(math.sqrt(2 / math.pi) * (m + 0.044715 * m**3)))
        x = x + m @ part["mlp.c_proj.weight"] + part["mlp.c_proj.bias"]
    return _normed(x, w["ln_f.weight"], w["ln_f.bias"]) @ w["wte.weight"].T


def _scaled(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    return x / np.sqrt((x**2).mean(1, keepdims=True) + 1e-6) * weight


def _turned(x: np.ndarray) -> np.ndarray:
    """Each pair of dimensions (k, k + half) as a complex number, turned by position times its rate."""
    half = x.shape[1] // 2
    rates = 100.0 ** (-np.arange(half) / half)
    turned = (x[:, :half] + 1j * x[:, half:]) * np.exp(1j * np.outer(np.arange(len(x)), rates))
    return np.concatenate([turned.real, turned.imag], 1)


def _llama(w: Weights, ids: list[int]) -> np.ndarray:
    size = WIDTH // HEADS
    x = w["model.embed_tokens.weight"][ids]
    for n in range(LAYERS):
        name = f"model.layers.{n}."
        part = {key.removeprefix(name): values for key, values in w.items() if key.startswith(name)}
        a = _scaled(x, part["input_layernorm.weight"])
        heads = []
        for h in range(HEADS):
            shared = h * KEYS // HEADS
            q = (a @ part["self_attn.q_proj.weight"].T)[:, h * size : (h + 1) * size]
            k, v = (
                (a @ part[f"self_attn.{kind}_proj.weight"].T)[:, shared * size : (shared + 1) * size] for kind in "kv"
            )
            heads.append(_attended(_turned(q), _turned(k), v))
        x = x + np.concatenate(heads, 1) @ part["self_attn.o_proj.weight"].T
        m = _scaled(x, part["post_attention_layernorm.weight"])
        gate = m @ part["mlp.gate_proj.weight"].T
        x = x + (gate / (1 + np.exp(-gate)) * (m @ part["mlp.up_proj.weight"].T)) @ part["mlp.down_proj.weight"].T
    return _scaled(x, w["model.norm.weight"]) @ w["lm_head.weight"].T
