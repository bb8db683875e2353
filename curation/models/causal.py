# SPDX-License-Identifier: Apache-2.0
"""Log probabilities of texts by GPT-2 or Llama, from safetensors in PyTorch.

A long text is read in windows of `context` tokens that begin `stride` tokens apart: each token is predicted once, by
the first window that has it, from at least `context - stride` tokens before it (except at the start of the text).

Batches have fixed shapes, as in `encoders`, so that results depend neither on slices nor on workers.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from curation.errors import InputError, counted
from curation.models.causal_files import CausalFiles, Gpt2Config, LlamaConfig, open_causal
from curation.models.encoder_files import MODELS_KEPT, WEIGHTS, encoder_digests
from curation.models.encoders import (
    LOADING,
    Tensors,
    activate,
    check_packages,
    fixed_batches,
    one_thread,
    padded,
    read_weights,
    tokenizer_of,
    torch_device,
)
from curation.system.steps import note_share

if TYPE_CHECKING:
    import torch

MOST_CONTEXT = 1024  # tokens of a window, by default; fewer if the model has fewer positions
LOGIT_TOKENS = {"cpu": 128, "cuda": 2048}  # whose logits are in memory at once


class TextScores(NamedTuple):
    """Per document: the sum of the logarithms (base 10) of the probabilities of its tokens, float64, and the number of
    tokens that were predicted, int64."""

    total: np.ndarray
    tokens: np.ndarray


class _Window(NamedTuple):
    document: int
    ids: np.ndarray
    first: int  # the first token of the window that it predicts


def score_texts(texts: Sequence[str | None], model: str, context: int, stride: int) -> TextScores:
    """Return the scores of texts. `context` and `stride`: 0 for their defaults (`window_of`).

    A begin token that the configuration names stands before each text; without one, the first token is not predicted.
    InputError for a model that cannot be used, EngineError without PyTorch.
    """
    reader = load_causal(model)
    size, step = window_of(reader.files, context, stride)
    windows = [window for number, text in enumerate(texts) for window in reader.windows(number, text or "", size, step)]
    total, tokens = np.zeros(len(texts)), np.zeros(len(texts), np.int64)
    sums, done = np.zeros(len(windows)), 0
    for numbers, rows, length in fixed_batches([window.ids for window in windows], size, reader.device):
        logs = reader.log_probabilities([windows[number].ids for number in numbers], rows, length)
        for number, log in zip(numbers.tolist(), logs, strict=True):
            window = windows[number]
            sums[number] = log[window.first - 1 : len(window.ids) - 1].sum(dtype=np.float64)
        done += len(numbers)
        note_share(done / len(windows))
    for window, value in zip(windows, sums.tolist(), strict=True):
        total[window.document] += value
        tokens[window.document] += len(window.ids) - window.first
    if wrong := np.count_nonzero(~np.isfinite(total)):
        raise InputError(
            f"{model} gives NaN or an infinite number for {counted(int(wrong), 'document')}: its weights are damaged, "
            "or too large for its dtype. Give another model"
        )
    return TextScores(total / np.log(10), tokens)


def window_of(files: CausalFiles, context: int, stride: int) -> tuple[int, int]:
    """Return the tokens of a window, and those by which windows advance: by default up to MOST_CONTEXT, and half a
    window. ValueError for more tokens than the model has positions, or a stride that skips tokens."""
    positions = files.config.positions
    size = context or min(positions, MOST_CONTEXT)
    if not 2 <= size <= positions:
        raise ValueError(f"context must be 2 to {positions:,}, the positions of the model, not {size:,}")
    step = stride or size // 2
    if not 1 <= step < size:
        raise ValueError(f"stride must be 1 to {size - 1:,}, below the context, not {step:,}")
    return size, step


def load_causal(model: str) -> Causal:
    """Return the model of a folder. A process keeps up to MODELS_KEPT. InputError for a folder that is none,
    EngineError without PyTorch."""
    check_packages()
    digests = tuple(encoder_digests(model).items())
    with LOADING:  # tasks that begin at once share one copy
        return _load(model, digests, torch_device())


@lru_cache(MODELS_KEPT)
def _load(model: str, digests: tuple[tuple[str, str], ...], device: str) -> Causal:
    return Causal(open_causal(model), device)


class Causal:
    """A loaded causal language model."""

    def __init__(self, files: CausalFiles, device: str) -> None:
        import torch

        self.files, self.device, config = files, device, files.config
        path = files.folder / WEIGHTS
        tensors = Tensors(
            path, read_weights(path), device, torch.float32 if device == "cpu" else torch.bfloat16
        )  # fmt: skip
        self.network = _Gpt2(config, tensors) if isinstance(config, Gpt2Config) else _Llama(config, tensors)
        self.tokenizer = tokenizer_of(files.folder, config.vocab_size)

    def windows(self, document: int, text: str, size: int, step: int) -> list[_Window]:
        """Return the windows of a text; none for a text with nothing to predict."""
        ids = self.tokenizer.encode(text, add_special_tokens=False).ids
        begin = self.files.config.bos_token_id
        sequence = np.array(ids if begin is None else [begin, *ids], np.int32)
        windows: list[_Window] = []
        start, predicted = 0, 1  # the first token is not predicted
        while predicted < len(sequence):
            end = min(start + size, len(sequence))
            windows.append(_Window(document, sequence[start:end], predicted - start))
            start, predicted = start + step, end
        return windows

    def log_probabilities(self, windows: Sequence[np.ndarray], rows: int, length: int) -> np.ndarray:
        """Return the natural logarithm of the probability of each token but the first: float32, shape (windows,
        length - 1). What follows the end of a window is unspecified."""
        import torch

        with one_thread(), torch.inference_mode():
            given = torch.from_numpy(padded(windows, rows, length, 0)).to(self.device)
            hidden, head = self.network.hidden(given), self.network.head
            hidden, wanted = hidden[:, :-1].reshape(-1, hidden.shape[-1]), given[:, 1:].reshape(-1)
            logs = []
            for first in range(0, len(wanted), LOGIT_TOKENS[self.device]):
                part = slice(first, first + LOGIT_TOKENS[self.device])
                logits = torch.nn.functional.linear(hidden[part], head).to(torch.float32)
                logs.append(logits.gather(1, wanted[part, None])[:, 0] - logits.logsumexp(1))
            found = torch.cat(logs).reshape(rows, length - 1)[: len(windows)].cpu().numpy()
        return np.asarray(found)


class _Gpt2:
    """The forward pass of GPT-2 up to the last norm; `head` gives logits."""

    def __init__(self, config: Gpt2Config, tensors: Tensors) -> None:
        self.config, width = config, config.n_embd
        name = "transformer." if "transformer.wte.weight" in tensors.tensors else ""
        inner = config.n_inner or 4 * width
        self.words = tensors.get(f"{name}wte.weight", config.vocab_size, width)
        self.places = tensors.get(f"{name}wpe.weight", config.n_positions, width)
        shapes = {
            "ln_1": (width,), "attn.c_attn": (width, 3 * width), "attn.c_proj": (width, width), "ln_2": (width,),
            "mlp.c_fc": (width, inner), "mlp.c_proj": (inner, width),
        }  # fmt: skip
        self.layers = [
            {
                part: (
                    tensors.get(f"{name}h.{number}.{part}.weight", *shape),
                    tensors.get(f"{name}h.{number}.{part}.bias", shape[-1]),
                )
                for part, shape in shapes.items()
            }
            for number in range(config.n_layer)
        ]
        self.norm = tensors.get(f"{name}ln_f.weight", width), tensors.get(f"{name}ln_f.bias", width)
        tied = config.tie_word_embeddings or "lm_head.weight" not in tensors.tensors
        self.head = self.words if tied else tensors.get("lm_head.weight", config.vocab_size, width)

    def hidden(self, ids: torch.Tensor) -> torch.Tensor:
        import torch
        from torch.nn import functional

        rows, length = ids.shape
        heads, width, eps = self.config.n_head, self.config.n_embd, self.config.layer_norm_epsilon
        hidden = self.words[ids] + self.places[:length]
        for layer in self.layers:
            values = functional.layer_norm(hidden, (width,), *layer["ln_1"], eps=eps)
            qkv = torch.matmul(values, layer["attn.c_attn"][0]) + layer["attn.c_attn"][1]
            query, key, value = qkv.view(rows, length, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
            attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
            attended = attended.transpose(1, 2).reshape(rows, length, width)
            hidden = hidden + torch.matmul(attended, layer["attn.c_proj"][0]) + layer["attn.c_proj"][1]
            values = functional.layer_norm(hidden, (width,), *layer["ln_2"], eps=eps)
            inner = torch.matmul(values, layer["mlp.c_fc"][0]) + layer["mlp.c_fc"][1]
            inner = activate(inner, self.config.activation_function)
            hidden = hidden + torch.matmul(inner, layer["mlp.c_proj"][0]) + layer["mlp.c_proj"][1]
        return functional.layer_norm(hidden, (width,), *self.norm, eps=eps)


class _Llama:
    """The forward pass of Llama up to the last norm; `head` gives logits."""

    def __init__(self, config: LlamaConfig, tensors: Tensors) -> None:
        self.config, width = config, config.hidden_size
        queries, keys, size = config.heads
        self.words = tensors.get("model.embed_tokens.weight", config.vocab_size, width)
        shapes = {
            "input_layernorm": (width,), "self_attn.q_proj": (queries * size, width),
            "self_attn.k_proj": (keys * size, width), "self_attn.v_proj": (keys * size, width),
            "self_attn.o_proj": (width, queries * size), "post_attention_layernorm": (width,),
            "mlp.gate_proj": (config.intermediate_size, width), "mlp.up_proj": (config.intermediate_size, width),
            "mlp.down_proj": (width, config.intermediate_size),
        }  # fmt: skip
        self.layers = [
            {part: tensors.get(f"model.layers.{number}.{part}.weight", *shape) for part, shape in shapes.items()}
            for number in range(config.num_hidden_layers)
        ]
        self.norm = tensors.get("model.norm.weight", width)
        tied = config.tie_word_embeddings or "lm_head.weight" not in tensors.tensors
        self.head = self.words if tied else tensors.get("lm_head.weight", config.vocab_size, width)

    def hidden(self, ids: torch.Tensor) -> torch.Tensor:
        from torch.nn import functional

        rows, length = ids.shape
        queries, keys, size = self.config.heads
        width, eps = self.config.hidden_size, self.config.rms_norm_eps
        angles = self._angles(length, ids.device)
        hidden = self.words[ids]
        for layer in self.layers:
            values = functional.rms_norm(hidden, (width,), layer["input_layernorm"], eps)
            parts = [
                functional.linear(values, layer[f"self_attn.{part}_proj"]).view(rows, length, -1, size).transpose(1, 2)
                for part in "qkv"
            ]
            query, key = (_turned(part, *angles).to(part.dtype) for part in parts[:2])
            key, value = (part.repeat_interleave(queries // keys, 1) for part in (key, parts[2]))
            attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
            attended = attended.transpose(1, 2).reshape(rows, length, queries * size)
            hidden = hidden + functional.linear(attended, layer["self_attn.o_proj"])
            values = functional.rms_norm(hidden, (width,), layer["post_attention_layernorm"], eps)
            inner = functional.silu(functional.linear(values, layer["mlp.gate_proj"]))
            inner = inner * functional.linear(values, layer["mlp.up_proj"])
            hidden = hidden + functional.linear(inner, layer["mlp.down_proj"])
        return functional.rms_norm(hidden, (width,), self.norm, eps)

    def _angles(self, length: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        """Return cosines and sines of shape (length, dimensions of a head)."""
        import torch

        size = self.config.heads[2]
        rates = self.config.theta ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
        angles = torch.outer(torch.arange(length, dtype=torch.float64), rates)
        angles = torch.cat((angles, angles), 1)
        return angles.cos().to(device, torch.float32), angles.sin().to(device, torch.float32)


def _turned(values: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor) -> torch.Tensor:
    """Turn the pairs (k, k + half) of dimensions by the angles of the positions."""
    import torch

    first, second = values.chunk(2, -1)
    return values * cosines + torch.cat((-second, first), -1) * sines
