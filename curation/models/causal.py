# SPDX-License-Identifier: Apache-2.0
"""Computes log probabilities of texts by a causal language model in safetensors, with the package transformers.

A long text is read in windows of `context` tokens that begin `stride` tokens apart: each token is predicted once, in
the first window that contains it, from at least `context - stride` tokens before it. Only tokens at the start of a text
have fewer tokens before them.

Batches have fixed shapes, as in `encoders`, so that results depend neither on slices nor on workers.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from curation.base.errors import InputError, counted
from curation.base.system.panics import without_panics
from curation.base.system.steps import note_share
from curation.models.encoder_files import MODELS_KEPT, CausalFiles, encoder_digests, open_causal
from curation.models.encoders import (
    LENGTHS,
    LOADING,
    check_packages,
    fixed_batches,
    one_thread,
    padded,
    tokenizer_of,
    torch_device,
)
from curation.models.networks import TOKENS, explained, load_network

MOST_CONTEXT = 1024  # tokens of a window, by default; fewer if the model has fewer positions
MOST_TRUNCATED = 512  # default tokens of a window with the formula TRUNCATED
WINDOWS, TRUNCATED = FORMULAS = ("windows", "truncated")
LOGIT_TOKENS = {"cpu": 128, "cuda": 2048}  # tokens whose logits are in memory at once


class TextScores(NamedTuple):
    """Per document: the sum of the logarithms (base 10) of the probabilities of its tokens, float64, and the number of
    tokens that were predicted, int64."""

    total: np.ndarray
    tokens: np.ndarray


class _Window(NamedTuple):
    document: int
    ids: np.ndarray
    first: int  # the first token of the window that it predicts


def score_texts(
    texts: Sequence[str | None], model: str, context: int, stride: int, formula: str = WINDOWS
) -> TextScores:
    """Return the scores of texts. `context` and `stride`: 0 for their defaults (`window_of`).

    If the configuration names a begin token, it is put before each text; otherwise the first token is not predicted.
    With the formula TRUNCATED, only the first window of a text is read, without a begin token. Raises InputError for a
    model that cannot be used, EngineError without PyTorch.
    """
    reader = load_causal(model)
    size, step = window_of(reader.files, context, stride, formula)
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


def window_of(files: CausalFiles, context: int, stride: int, formula: str) -> tuple[int, int]:
    """Return the number of tokens of a window, and the number by which windows advance: by default up to MOST_CONTEXT,
    and half a window; for TRUNCATED up to MOST_TRUNCATED, and 0. Raises ValueError for more tokens than the model has
    positions, or a stride that skips tokens."""
    positions = files.max_tokens
    size = context or min(positions, MOST_TRUNCATED if formula == TRUNCATED else MOST_CONTEXT)
    if not 2 <= size <= positions:
        raise ValueError(f"context must be 2 to {positions:,}, the positions of the model, not {size:,}")
    if formula == TRUNCATED:
        return size, 0
    step = stride or size // 2
    if not 1 <= step < size:
        raise ValueError(f"stride must be 1 to {size - 1:,}, below the context, not {step:,}")
    return size, step


def load_causal(model: str) -> Causal:
    """Return the model of a folder. A process keeps up to MODELS_KEPT models. Raises InputError for a folder without
    such a model, EngineError without PyTorch."""
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
        self.files, self.device = files, device
        self.network = load_network(files, TOKENS, device)
        self.tokenizer = tokenizer_of(files.folder, files.config.vocab_size)
        with explained(files.folder):  # values of a configuration may fit the weights, but contradict each other
            self.log_probabilities([np.zeros(2, np.int32)], 1, min(LENGTHS[0], files.max_tokens))

    @without_panics()
    def windows(self, document: int, text: str, size: int, step: int) -> list[_Window]:
        """Return the windows of a text; none for a text with nothing to predict. With a `step` of 0, return only the
        first window, without a begin token."""
        ids = self.tokenizer.encode(text, add_special_tokens=False).ids
        begin = self.files.config.bos_token_id if step else None
        sequence = np.array(ids if begin is None else [begin, *ids], np.int32)
        if not step:
            sequence = sequence[:size]
        windows: list[_Window] = []
        start, predicted = 0, 1  # the first token is not predicted
        while predicted < len(sequence):
            end = min(start + size, len(sequence))
            windows.append(_Window(document, sequence[start:end], predicted - start))
            start, predicted = start + step, end
        return windows

    def log_probabilities(self, windows: Sequence[np.ndarray], rows: int, length: int) -> np.ndarray:
        """Return the natural logarithm of the probability of each token but the first: float32, shape (windows,
        length - 1). Values after the end of a window are unspecified."""
        import torch

        ids, _ = padded(windows, rows, length, 0)
        body, head = self.network.base_model, self.network.get_output_embeddings()
        with one_thread(), torch.inference_mode():
            given = torch.from_numpy(ids).to(self.device)
            hidden = body(given, use_cache=False).last_hidden_state  # no later token is read: padding needs no mask
            hidden, wanted = hidden[:, :-1].reshape(-1, hidden.shape[-1]), given[:, 1:].reshape(-1)
            logs = []
            for first in range(0, len(wanted), LOGIT_TOKENS[self.device]):
                part = slice(first, first + LOGIT_TOKENS[self.device])
                logits = head(hidden[part]).to(torch.float32)
                logs.append(logits.gather(1, wanted[part, None])[:, 0] - logits.logsumexp(1))
            result = torch.cat(logs).reshape(rows, length - 1)[: len(windows)].cpu().numpy()
        return np.asarray(result)
