# SPDX-License-Identifier: Apache-2.0
"""The forward pass of BERT and RoBERTa in PyTorch, from safetensors: scores of a head, or one vector per window.

A window runs in a batch whose shape depends only on the window's own length and on the device, so its result depends
neither on slices nor on workers. The rest of a batch is filled with empty windows. A batch gets one thread of PyTorch:
workers use the processors. bfloat16 on a GPU, float32 on a CPU.

The package transformers would do the same for 135 MB more, and its batches are those of its caller.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from curation.errors import EngineError, InputError, nearest
from curation.models.encoder_files import (
    MODELS_KEPT,
    OFFSET_FAMILIES,
    TOKENIZER,
    WEIGHTS,
    EncoderFiles,
    encoder_digests,
    open_encoder,
)
from curation.models.tensors import read_tensors
from curation.models.windows import Windows, cut_windows, special_ids
from curation.system.interrupts import check as check_interrupts

if TYPE_CHECKING:
    import torch

EXTRA = "pip install torch"
LENGTHS = (16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 2048, 4096, 8192)  # tokens of a padded window
BATCH_TOKENS = {"cpu": 512, "cuda": 65536}  # larger ones are slower on a CPU: 2,048 take 18 % more time
LOADING = threading.Lock()


def check_packages() -> None:
    """Raise EngineError if PyTorch is not installed. Does not import it."""
    if find_spec("torch") is None:
        raise EngineError(f"transformer models need PyTorch, which is not installed here. {EXTRA}")


def device_facts() -> dict[str, str]:
    """Return what the results of encoders depend on besides the model: device, dtype, versions of libraries."""
    check_packages()
    device = torch_device()
    return {"device": _device_name(device), "dtype": "float32" if device == "cpu" else "bfloat16"} | package_versions(
        "torch", "tokenizers"
    )


def package_versions(*names: str) -> dict[str, str]:
    """Return the versions of installed packages."""
    return {name: version(name) for name in names}


def torch_device() -> str:
    """Return where PyTorch computes: cuda if it can use a GPU, else cpu."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


@lru_cache(1)
def _device_name(device: str) -> str:
    import torch

    return torch.cuda.get_device_name() if device == "cuda" else f"CPU {torch.backends.cpu.get_cpu_capability()}"


def load_encoder(model: str, with_head: bool) -> Encoder:
    """Return the encoder of a folder, with the head of its classifier or regressor if `with_head`.

    A process keeps up to MODELS_KEPT models. InputError for a folder that is no encoder, EngineError without PyTorch.
    """
    check_packages()
    digests = tuple(encoder_digests(model).items())
    with LOADING:  # tasks that begin at once share one copy
        return _load(model, digests, with_head, torch_device())


@lru_cache(MODELS_KEPT)
def _load(model: str, digests: tuple[tuple[str, str], ...], with_head: bool, device: str) -> Encoder:
    files = open_encoder(model)
    return Encoder(files, read_weights(files.folder / WEIGHTS), with_head, device)


class _OneThread:
    """The threads of this process that compute with one thread of PyTorch, and the number that PyTorch had before."""

    def __init__(self) -> None:
        self.lock, self.users, self.before = threading.Lock(), 0, 1

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """PyTorch has one thread in this context, and the number of before after it."""
        import torch

        with self.lock:  # the number belongs to a thread, but a new thread begins with the last one that was set
            self.before = self.before if self.users else torch.get_num_threads()
            self.users += 1
            torch.set_num_threads(1)
        try:
            yield
        finally:
            with self.lock:
                self.users -= 1
                torch.set_num_threads(self.before)


one_thread = _OneThread()


def read_weights(path: Path) -> dict[str, torch.Tensor]:
    """Return the tensors of floats in a file, float32."""
    import torch

    tensors = {name: values for name, values in read_tensors(path).items() if values.dtype.kind == "f"}
    return {name: torch.from_numpy(values.astype(np.float32)) for name, values in tensors.items()}


def padded_lengths(max_tokens: int) -> list[int]:
    """Return the padded lengths of windows, ascending. The last one is that of a full window."""
    return [*(length for length in LENGTHS if length < max_tokens), max_tokens]


def fixed_batches(windows: Sequence[np.ndarray], max_tokens: int, device: str) -> Iterator[tuple[np.ndarray, int, int]]:
    """Yield, per batch, the numbers of its windows, and its shape: rows and padded length."""
    lengths = padded_lengths(max_tokens)
    padded = np.searchsorted(lengths, [len(window) for window in windows])
    for index, length in enumerate(lengths):
        chosen = np.flatnonzero(padded == index)
        rows = max(1, BATCH_TOKENS[device] // length)
        for first in range(0, len(chosen), rows):
            check_interrupts()
            yield chosen[first : first + rows], rows, length


def padded(windows: Sequence[np.ndarray], rows: int, length: int, padding: int) -> np.ndarray:
    """Return the ids of a batch: int64 of shape (rows, length), with `padding` after each window and in empty rows."""
    ids = np.full((rows, length), padding, np.int64)
    for row, window in enumerate(windows):
        ids[row, : len(window)] = window
    return ids


class Encoder:
    """A loaded encoder.

    width  numbers per window: outputs of the head, or dimensions of the vector
    """

    def __init__(self, files: EncoderFiles, weights: Mapping[str, torch.Tensor], with_head: bool, device: str) -> None:
        import torch

        self.files, self.config, self.device = files, files.config, device
        self.dtype = torch.float32 if device == "cpu" else torch.bfloat16
        self.weights = _Weights(files, weights, self)
        self.tokenizer = tokenizer_of(files.folder, files.config.vocab_size)
        self.prefix, self.suffix = special_ids(self.tokenizer)
        self.layers = [self.weights.layer(number) for number in range(self.config.num_hidden_layers)]
        self.head = self.weights.head(len(files.labels)) if with_head else None
        self.width = len(files.labels) if with_head else self.config.hidden_size
        self.tables = self.weights.embeddings()
        del self.weights

    def windows(self, texts: Sequence[str | None], count: int) -> Windows:
        """Return the windows of texts, up to `count` of each (0: all)."""
        return cut_windows(self.tokenizer, texts, self.files.max_tokens, count, (self.prefix, self.suffix))

    def run(self, windows: Sequence[np.ndarray]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield, per batch, the numbers of its windows and their results: float32 of shape (windows, width)."""
        for numbers, rows, length in fixed_batches(windows, self.files.max_tokens, self.device):
            yield numbers, self._batch([windows[number] for number in numbers], rows, length)

    def _batch(self, windows: Sequence[np.ndarray], rows: int, length: int) -> np.ndarray:
        import torch

        ids = padded(windows, rows, length, self.config.pad_token_id)
        sizes = np.ones(rows, np.int64)  # a window of one padding token fills the batch: attention needs one
        sizes[: len(windows)] = [len(window) for window in windows]
        with one_thread(), torch.inference_mode():
            on_device = torch.from_numpy(ids).to(self.device), torch.from_numpy(sizes).to(self.device)
            result = self.forward(*on_device)[: len(windows)].to(torch.float32).cpu().numpy()
        return np.asarray(result)

    def forward(self, ids: torch.Tensor, sizes: torch.Tensor) -> torch.Tensor:
        """Return the results of a batch: `ids` of shape (rows, tokens), of which `sizes` per row are not padding."""
        import torch
        from torch.nn import functional

        rows, length = ids.shape
        words, positions, norm = self.tables
        present = torch.arange(length, device=ids.device) < sizes[:, None]
        hidden = functional.layer_norm(
            words[ids] + positions[:length], words.shape[1:], *norm, eps=self.config.layer_norm_eps
        )
        mask = torch.zeros((rows, 1, 1, length), dtype=hidden.dtype, device=ids.device)
        mask.masked_fill_(~present[:, None, None, :], float("-inf"))
        for layer in self.layers:
            hidden = layer(hidden, mask)
        if self.head:
            return self.head(hidden[:, 0])
        if not self.files.by_mean:
            return hidden[:, 0].to(torch.float32)
        summed = (hidden.to(torch.float32) * present[:, :, None]).sum(1)
        return summed / sizes[:, None]


class _Layer:
    """One layer: attention and two linear maps, each with its sum and norm."""

    def __init__(self, config: Any, tensors: Mapping[str, tuple[torch.Tensor, torch.Tensor]], qkv: Any) -> None:
        self.heads, self.eps, self.activation = config.num_attention_heads, config.layer_norm_eps, config.hidden_act
        self.qkv, self.tensors = qkv, tensors

    def __call__(self, hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        from torch.nn import functional

        rows, length, width = hidden.shape
        shape = rows, length, 3, self.heads, width // self.heads
        query, key, value = functional.linear(hidden, *self.qkv).view(shape).permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        attended = attended.transpose(1, 2).reshape(rows, length, width)
        hidden = self._normed("attention.output", hidden + self._linear("attention.output.dense", attended))
        inner = activate(self._linear("intermediate.dense", hidden), self.activation)
        return self._normed("output", hidden + self._linear("output.dense", inner))

    def _linear(self, name: str, values: torch.Tensor) -> torch.Tensor:
        from torch.nn import functional

        return functional.linear(values, *self.tensors[name])

    def _normed(self, name: str, values: torch.Tensor) -> torch.Tensor:
        from torch.nn import functional

        return functional.layer_norm(values, values.shape[-1:], *self.tensors[f"{name}.LayerNorm"], eps=self.eps)


def activate(values: torch.Tensor, name: str) -> torch.Tensor:
    """Return the values after the activation function of this name in a configuration."""
    from torch.nn import functional

    if name == "relu":
        return functional.relu(values)
    return functional.gelu(values, approximate="none" if name == "gelu" else "tanh")


class Tensors:
    """The tensors of a file by name, checked against the shapes that the configuration gives."""

    def __init__(self, path: Path, tensors: Mapping[str, torch.Tensor], device: str, dtype: torch.dtype) -> None:
        self.path, self.tensors, self.device, self.dtype = path, tensors, device, dtype

    def get(self, name: str, *shape: int) -> torch.Tensor:
        """Return a tensor on the device. InputError for one that is missing, has another shape, or is not finite."""
        value = self.tensors.get(name)
        if value is None:
            raise InputError(f"{self.path} has no tensor {name!r}{nearest(name, self.tensors)}")
        if tuple(value.shape) != shape:
            raise InputError(f"{self.path}: the tensor {name} has the shape {tuple(value.shape)}, expected {shape}")
        if not value.isfinite().all():
            raise InputError(f"{self.path}: the tensor {name} has NaN or infinite values: its training has failed")
        return value.to(self.device, self.dtype)


class _Weights(Tensors):
    """The tensors of an encoder."""

    def __init__(self, files: EncoderFiles, tensors: Mapping[str, torch.Tensor], encoder: Encoder) -> None:
        super().__init__(files.folder / WEIGHTS, tensors, encoder.device, encoder.dtype)
        self.config = files.config
        self.prefix = next(
            (f"{name}." for name in ("bert", "roberta") if f"{name}.embeddings.word_embeddings.weight" in tensors), ""
        )

    def linear(self, name: str, out: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.get(f"{name}.weight", out, width), self.get(f"{name}.bias", out)

    def norm(self, name: str) -> tuple[torch.Tensor, torch.Tensor]:
        width = self.config.hidden_size
        return self.get(f"{name}.weight", width), self.get(f"{name}.bias", width)

    def embeddings(self) -> tuple[torch.Tensor, torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
        """Return the vectors of words, those of positions with that of the first segment, and the norm."""
        config, name = self.config, f"{self.prefix}embeddings"
        words = self.get(f"{name}.word_embeddings.weight", config.vocab_size, config.hidden_size)
        positions = self.get(f"{name}.position_embeddings.weight", config.max_position_embeddings, config.hidden_size)
        if config.model_type in OFFSET_FAMILIES:
            positions = positions[config.pad_token_id + 1 :]
        segments = self.tensors.get(f"{name}.token_type_embeddings.weight")
        if segments is not None:
            kinds = segments.shape[0]
            positions = positions + self.get(f"{name}.token_type_embeddings.weight", kinds, config.hidden_size)[0]
        return words, positions, self.norm(f"{name}.LayerNorm")

    def layer(self, number: int) -> _Layer:
        import torch

        name, width, inner = (
            f"{self.prefix}encoder.layer.{number}",
            self.config.hidden_size,
            self.config.intermediate_size,
        )
        parts = [self.linear(f"{name}.attention.self.{part}", width, width) for part in ("query", "key", "value")]
        qkv = tuple(torch.cat(tensors) for tensors in zip(*parts, strict=True))
        tensors = {
            "attention.output.dense": self.linear(f"{name}.attention.output.dense", width, width),
            "attention.output.LayerNorm": self.norm(f"{name}.attention.output.LayerNorm"),
            "intermediate.dense": self.linear(f"{name}.intermediate.dense", inner, width),
            "output.dense": self.linear(f"{name}.output.dense", width, inner),
            "output.LayerNorm": self.norm(f"{name}.output.LayerNorm"),
        }
        return _Layer(self.config, tensors, qkv)

    def head(self, outputs: int) -> Any:
        """Return the function from the first token of windows to the outputs of a classifier or regressor, float32."""
        import torch
        from torch.nn import functional

        width = self.config.hidden_size
        is_bert = self.config.model_type == "bert"
        dense = self.linear(f"{self.prefix}pooler.dense" if is_bert else "classifier.dense", width, width)
        last = self.linear("classifier" if is_bert else "classifier.out_proj", outputs, width)

        def apply(first: torch.Tensor) -> torch.Tensor:
            return functional.linear(torch.tanh(functional.linear(first, *dense)), *last).to(torch.float32)

        return apply


def read_tokenizer(folder: Path) -> Any:
    """Return the tokenizer of a folder, without its truncation and padding. InputError for a file that is none."""
    from tokenizers import Tokenizer

    path = folder / TOKENIZER
    try:
        tokenizer = Tokenizer.from_file(str(path))
        tokenizer.encode("a")
    except Exception as error:  # the package raises no narrower class
        raise InputError(f"{path} cannot be read as a tokenizer: {error}") from None
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def tokenizer_of(folder: Path, vocab_size: int) -> Any:
    """Return the tokenizer of a folder. InputError for one with ids above the vectors of the model."""
    tokenizer = read_tokenizer(folder)
    check_ids(folder, tokenizer, vocab_size)
    return tokenizer


def check_ids(folder: Path, tokenizer: Any, rows: int) -> None:
    """InputError for a tokenizer that may give the id `rows` or a larger one. Ids may have gaps, and those around a
    text (`post_processor`) need not be in the vocabulary."""
    if (largest := largest_id(tokenizer)) >= rows:
        raise InputError(
            f"{folder / TOKENIZER} has {tokenizer.get_vocab_size():,} tokens with ids up to {largest:,}, and the model "
            f"has vectors for {rows:,}. Give the tokenizer of this model"
        )


def largest_id(tokenizer: Any) -> int:
    """Return the largest id that a tokenizer can give; -1 if it has none."""
    return max([*tokenizer.get_vocab().values(), *tokenizer.encode("a").ids], default=-1)
