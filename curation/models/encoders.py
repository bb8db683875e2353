# SPDX-License-Identifier: Apache-2.0
"""Computes scores or vectors of windows by an encoder in safetensors, with the package transformers.

A window runs in a batch whose shape depends only on the window's own length and on the device, so its result depends
neither on slices nor on workers. Copies of the last window fill a batch. PyTorch uses one thread per batch, since
several workers already use all processors. The dtype is bfloat16 on a GPU, float32 on a CPU.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from curation.base.errors import EngineError, InputError, installation
from curation.base.system.interrupts import check as check_interrupts
from curation.base.system.os_errors import is_of_system
from curation.base.system.panics import without_panics
from curation.models.encoder_files import MODELS_KEPT, TOKENIZER, EncoderFiles, encoder_digests, open_encoder
from curation.models.networks import SCORES, VECTORS, explained, load_network
from curation.models.tokenizer_files import parse_tokenizer
from curation.models.windows import TokenWindows, cut_windows, special_ids

if TYPE_CHECKING:
    import torch

PACKAGES = ("torch", "transformers")
LENGTHS = (16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 2048, 4096, 8192)  # tokens of a padded window
BATCH_TOKENS = {"cpu": 512, "cuda": 65536}  # larger batches are slower on a CPU: 2,048 tokens take 18 % more time
LOADING = threading.Lock()


def check_packages() -> None:
    """Raise EngineError if PyTorch or transformers is not installed. Does not import them."""
    if missing := " and ".join(name for name in PACKAGES if find_spec(name) is None):
        raise EngineError(f"transformer models need {missing}, not installed here. {installation('models')}")


def device_facts() -> dict[str, str]:
    """Return the facts that results of encoders depend on, besides the model: device, dtype, versions of libraries."""
    check_packages()
    device = torch_device()
    return {"device": _device_name(device), "dtype": "float32" if device == "cpu" else "bfloat16"} | package_versions(
        *PACKAGES, "tokenizers"
    )


def package_versions(*names: str) -> dict[str, str]:
    """Return name -> version, for the record of a run; PackageNotFoundError if one is missing."""
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

    A process keeps up to MODELS_KEPT models. Raises InputError for a folder without an encoder, EngineError without
    PyTorch.
    """
    check_packages()
    digests = tuple(encoder_digests(model).items())
    with LOADING:  # tasks that begin at once share one copy
        return _load(model, digests, with_head, torch_device())


@lru_cache(MODELS_KEPT)
def _load(model: str, digests: tuple[tuple[str, str], ...], with_head: bool, device: str) -> Encoder:
    return Encoder(open_encoder(model), with_head, device)


class _OneThread:
    """A context in which PyTorch computes with one thread; it counts the threads of this process that are inside, and
    keeps PyTorch's earlier number of threads."""

    def __init__(self) -> None:
        self.lock, self.users, self.before = threading.Lock(), 0, 1

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Return a context in which PyTorch has one thread; after it, PyTorch has its earlier number of threads
        again."""
        import torch

        with self.lock:  # PyTorch stores the number per thread, but a new thread begins with the number set last
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


def fixed_batches(windows: Sequence[np.ndarray], max_tokens: int, device: str) -> Iterator[tuple[np.ndarray, int, int]]:
    """Yield, per batch, the numbers of its windows, and its shape: rows and padded length.

    Full windows have separate batches; all other batches are padded. So a window runs always with padding, or always
    without padding: without padding, the package calls other kernels.
    """
    lengths = [*(length for length in LENGTHS if length < max_tokens), max_tokens]
    bucket = np.searchsorted(lengths, [len(window) for window in windows], side="right")
    for index, length in enumerate([*lengths, max_tokens]):
        chosen = np.flatnonzero(bucket == index)
        rows = max(1, BATCH_TOKENS[device] // length)
        for first in range(0, len(chosen), rows):
            check_interrupts()
            yield chosen[first : first + rows], rows, length


def padded(windows: Sequence[np.ndarray], rows: int, length: int, padding: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the ids of a batch, int64 of shape (rows, length) with `padding` after each window, and a mask: 1 for
    tokens. Copies of the last window fill the batch."""
    ids, mask = np.full((rows, length), padding, np.int64), np.zeros((rows, length), np.int64)
    for row in range(rows):
        window = windows[min(row, len(windows) - 1)]
        ids[row, : len(window)], mask[row, : len(window)] = window, 1
    return ids, mask


class Encoder:
    """A loaded encoder.

    width  numbers per window: outputs of the head, or dimensions of the vector
    """

    def __init__(self, files: EncoderFiles, with_head: bool, device: str) -> None:
        self.files, self.with_head, self.device = files, with_head, device
        self.network = load_network(files, SCORES if with_head else VECTORS, device)
        self.tokenizer = tokenizer_of(files.folder, files.config.vocab_size)
        self.special = special_ids(self.tokenizer)
        self.width = len(files.labels) if with_head else files.config.width
        with explained(files.folder):  # values of a configuration may fit the weights, but not each other
            result = self._batch([np.array([*self.tokenizer.encode("a").ids, 0], np.int32)], 1, LENGTHS[0])
        if result.shape != (1, self.width):
            raise InputError(f"{files.folder} gives {result.shape[1]:,} numbers per text, expected {self.width:,}")

    def windows(self, texts: Sequence[str | None], count: int) -> TokenWindows:
        """Return the windows of texts, up to `count` of each (0: all)."""
        return cut_windows(self.tokenizer, texts, self.files.max_tokens, count, self.special)

    def run(self, windows: Sequence[np.ndarray]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield, per batch, the numbers of its windows and their results: float32 of shape (windows, width)."""
        for numbers, rows, length in fixed_batches(windows, self.files.max_tokens, self.device):
            yield numbers, self._batch([windows[number] for number in numbers], rows, length)

    def _batch(self, windows: Sequence[np.ndarray], rows: int, length: int) -> np.ndarray:
        import torch

        batch = padded(windows, rows, length, self.files.config.pad_token_id or 0)
        with one_thread(), torch.inference_mode():
            results = self.forward(*(torch.from_numpy(each).to(self.device) for each in batch))[: len(windows)]
            return np.asarray(results.to(torch.float32).cpu().numpy())

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return the results of a batch of ids, both of shape (rows, tokens)."""
        import torch

        output = self.network(ids, attention_mask=mask)
        if self.with_head:
            return output.logits if "logits" in output else self.network.fc(output.last_hidden_state[:, 0])
        hidden = output.last_hidden_state.to(torch.float32)
        return (hidden * mask[:, :, None]).sum(1) / mask.sum(1)[:, None] if self.files.by_mean else hidden[:, 0]


def read_tokenizer(folder: Path) -> Any:
    """Return the tokenizer of a folder, without its truncation and padding. Raises InputError for a file that is no
    tokenizer."""
    path = folder / TOKENIZER
    try:
        tokenizer, _ = parse_tokenizer(path.read_bytes())
        with without_panics():
            tokenizer.encode("a")
    except Exception as error:  # the package raises no narrower class
        if is_of_system(error):
            raise
        raise InputError(f"{path} cannot be read as a tokenizer: {error}") from None
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def tokenizer_of(folder: Path, vocab_size: int) -> Any:
    """Return the tokenizer of a folder. Raises InputError for a tokenizer with ids for which the model has no
    vector."""
    tokenizer = read_tokenizer(folder)
    check_ids(folder, tokenizer, vocab_size)
    return tokenizer


def check_ids(folder: Path, tokenizer: Any, rows: int) -> None:
    """Raise InputError for a tokenizer that may give the id `rows` or a larger id. Ids may have gaps, and the ids
    around a text (`post_processor`) need not be in the vocabulary."""
    if (largest := largest_id(tokenizer)) >= rows:
        raise InputError(
            f"{folder / TOKENIZER} has {tokenizer.get_vocab_size():,} tokens with ids up to {largest:,}, and the model "
            f"has vectors for {rows:,}. Give the tokenizer of this model"
        )


def largest_id(tokenizer: Any) -> int:
    """Return the largest id that a tokenizer can give; -1 if it has none."""
    return max([*tokenizer.get_vocab().values(), *tokenizer.encode("a").ids], default=-1)
