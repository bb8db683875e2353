# SPDX-License-Identifier: Apache-2.0
"""The folder of a causal language model: `config.json` of GPT-2 or Llama, `model.safetensors`, `tokenizer.json`.

Everything here is read without PyTorch, as in `encoder_files`.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from curation.errors import InputError
from curation.models.encoder_files import CONFIG, MODELS_KEPT, Family, Size, check_folder, decoded, unsupported

FAMILIES = ("gpt2", "llama")
GPT2_ACTIVATIONS = ("gelu_new", "gelu_pytorch_tanh", "gelu", "relu")


class Gpt2Config(msgspec.Struct, frozen=True, kw_only=True):
    """The values of GPT-2's `config.json` that the forward pass needs."""

    vocab_size: Size
    n_positions: Size
    n_embd: Size
    n_layer: Size
    n_head: Size
    n_inner: int | None = None
    activation_function: str = "gelu_new"
    layer_norm_epsilon: float = 1e-5
    bos_token_id: int | None = None
    tie_word_embeddings: bool = True
    scale_attn_weights: bool = True
    scale_attn_by_inverse_layer_idx: bool = False

    @property
    def positions(self) -> int:
        return self.n_positions


class LlamaConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The values of Llama's `config.json` that the forward pass needs."""

    vocab_size: Size
    max_position_embeddings: Size
    hidden_size: Size
    num_hidden_layers: Size
    num_attention_heads: Size
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    intermediate_size: Size
    rms_norm_eps: float = 1e-6
    rope_theta: float = 10000.0
    rope_scaling: dict[str, Any] | None = None
    rope_parameters: dict[str, Any] | None = None
    hidden_act: str = "silu"
    attention_bias: bool = False
    mlp_bias: bool = False
    bos_token_id: int | None = None
    tie_word_embeddings: bool = False

    @property
    def positions(self) -> int:
        return self.max_position_embeddings

    @property
    def theta(self) -> float:
        """The base of the angles of positions."""
        return float((self.rope_parameters or {}).get("rope_theta", self.rope_theta))

    @property
    def heads(self) -> tuple[int, int, int]:
        """The heads of queries, those of keys and values, and the dimensions of a head."""
        keys = self.num_key_value_heads or self.num_attention_heads
        return self.num_attention_heads, keys, self.head_dim or self.hidden_size // self.num_attention_heads


class CausalFiles(msgspec.Struct, frozen=True):
    """A checked folder: its path and its configuration."""

    folder: Path
    config: Gpt2Config | LlamaConfig


def open_causal(model: str) -> CausalFiles:
    """Return the checked folder of a causal language model, without its weights. InputError for a folder that is none,
    or of another family."""
    return _open(Path(model), check_folder(model))


@lru_cache(MODELS_KEPT)
def _open(folder: Path, stamps: tuple[tuple[int, int], ...]) -> CausalFiles:
    path = folder / CONFIG
    family = decoded(path, Family).model_type
    if family not in FAMILIES:
        raise unsupported(path, "model_type", family, f"one of {', '.join(FAMILIES)}")
    config: Gpt2Config | LlamaConfig
    if family == "gpt2":
        config = decoded(path, Gpt2Config)
        _check_gpt2(path, config)
    else:
        config = decoded(path, LlamaConfig)
        _check_llama(path, config)
    begin = config.bos_token_id
    if begin is not None and not 0 <= begin < config.vocab_size:
        raise unsupported(path, "bos_token_id", begin, f"a token below {config.vocab_size}")
    return CausalFiles(folder, config)


def _check_gpt2(path: Path, config: Gpt2Config) -> None:
    if config.activation_function not in GPT2_ACTIVATIONS:
        expected = f"one of {', '.join(GPT2_ACTIVATIONS)}"
        raise unsupported(path, "activation_function", config.activation_function, expected)
    if config.n_embd % config.n_head:
        raise unsupported(path, "n_embd", config.n_embd, f"a multiple of its {config.n_head} heads")
    for name, normal in (("scale_attn_weights", True), ("scale_attn_by_inverse_layer_idx", False)):
        if getattr(config, name) != normal:
            raise unsupported(path, name, not normal, str(normal))


def _check_llama(path: Path, config: LlamaConfig) -> None:
    if config.hidden_act != "silu":
        raise unsupported(path, "hidden_act", config.hidden_act, "silu")
    for name, given in (("rope_scaling", config.rope_scaling), ("rope_parameters", config.rope_parameters)):
        kind = (given or {}).get("rope_type", (given or {}).get("type", "default"))
        if kind != "default":
            raise unsupported(path, name, kind, "default: angles that are not scaled")
    for name in ("attention_bias", "mlp_bias"):
        if getattr(config, name):
            raise unsupported(path, name, True, "false")
    queries, keys, size = config.heads
    if queries % keys or size % 2:
        raise InputError(f"{path}: {queries} heads cannot share {keys} heads of keys with {size} dimensions each")
