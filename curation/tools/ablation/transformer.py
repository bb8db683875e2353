# SPDX-License-Identifier: Apache-2.0
"""A small transformer over bytes in PyTorch: rotary positions, norms before each part, one table of embeddings for
inputs and outputs.

Its tokens are the 256 bytes, so no tokenizer favours one training text over another, and bits per byte compare with
those of `byte_model`. START precedes each document; it is never predicted. Requires PyTorch, by the extra `torch`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor, nn
from torch.nn import functional

from curation.base.arrays import text_buffers

START = 256
TOKENS = START + 1
DEVIATION = 0.02  # of initial weights
BETAS, DECAY, LONGEST = (0.9, 0.95), 0.1, 1.0  # of AdamW; the longest gradient
ROTATIONS = 10_000  # base of the rotary positions (Su et al. 2021)
SCORED_ROWS = 64  # sequences that are scored at once


class Size(NamedTuple):
    """The shape of a model: layers, width, heads that divide the width, and tokens of its context."""

    layers: int
    width: int
    heads: int
    context: int = 1024

    @property
    def parameters(self) -> int:
        """The number of all parameters, those of the embeddings included."""
        return self.layers * (12 * self.width**2 + 2 * self.width) + (TOKENS + 1) * self.width


SIZES = {"4M": Size(9, 192, 3), "10M": Size(8, 320, 5), "20M": Size(8, 448, 7)}


class Layer(nn.Module):
    """Attention and two linear maps, each after a norm and added to its input."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.heads = size.heads
        self.before_attention, self.before_maps = nn.RMSNorm(size.width), nn.RMSNorm(size.width)
        self.attention = nn.Linear(size.width, 3 * size.width, bias=False)
        self.attended = nn.Linear(size.width, size.width, bias=False)
        self.wide = nn.Linear(size.width, 4 * size.width, bias=False)
        self.narrow = nn.Linear(4 * size.width, size.width, bias=False)

    def forward(self, vectors: Tensor, turns: tuple[Tensor, Tensor]) -> Tensor:
        """Return the vectors after this layer: [rows, tokens, width]. `turns`: see `_turns`."""
        rows, tokens, width = vectors.shape
        parts = self.attention(self.before_attention(vectors)).view(rows, tokens, 3, self.heads, -1)
        queries, keys, values = parts.permute(2, 0, 3, 1, 4)
        queries, keys = (
            _turned(functional.rms_norm(part, part.shape[-1:]), turns).to(values.dtype) for part in (queries, keys)
        )
        found = functional.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        vectors = vectors + self.attended(found.transpose(1, 2).reshape(rows, tokens, width))
        return vectors + self.narrow(functional.gelu(self.wide(self.before_maps(vectors))))


class Transformer(nn.Module):
    """A model of bytes. `size`: its shape."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.size = size
        self.embedding = nn.Embedding(TOKENS, size.width)
        self.layers = nn.ModuleList(Layer(size) for _ in range(size.layers))
        self.norm = nn.RMSNorm(size.width)

    def forward(self, ids: Tensor) -> Tensor:
        """Return the logits of the token after each one: float32[rows, tokens, TOKENS]. `ids`: int64[rows, tokens]."""
        turns = _turns(ids.shape[1], self.size.width // self.size.heads, ids.device)
        vectors = self.embedding(ids)
        for layer in self.layers:
            vectors = layer(vectors, turns)
        with torch.autocast(ids.device.type, enabled=False):  # logits of bfloat16 have two digits
            return functional.linear(self.norm(vectors.float()), self.embedding.weight)


def make(size: Size, seed: int, device: str = "cpu") -> Transformer:
    """Return a new model with random weights, which the seed determines on every device."""
    model, random = Transformer(size), torch.Generator().manual_seed(seed)
    for name, weights in model.named_parameters():
        if weights.dim() > 1:
            is_added = name.endswith(("attended.weight", "narrow.weight"))
            nn.init.normal_(weights, 0, DEVIATION / (math.sqrt(2 * size.layers) if is_added else 1), random)
    return model.to(device)


def losses(model: nn.Module, ids: Tensor) -> Tensor:
    """Return the loss of each token after the first, in nats; 0 for START: float32[rows, tokens - 1].

    ids    int64[rows, tokens], with at most one token more than the context
    """
    return functional.cross_entropy(
        model(ids[:, :-1]).transpose(1, 2), ids[:, 1:], ignore_index=START, reduction="none"
    )


def optimizer_of(model: nn.Module, rate: float) -> torch.optim.Optimizer:
    """Return AdamW for a model. `rate`: the learning rate."""
    return torch.optim.AdamW(model.parameters(), rate, BETAS, weight_decay=DECAY)


def update(model: nn.Module, optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    """Change the weights by one step that lowers a loss."""
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), LONGEST)
    optimizer.step()


def windows(texts: pa.LargeStringArray, context: int) -> np.ndarray:
    """Return the tokens of texts, joined and cut: uint16[windows, context + 1]. Each window begins with the last token
    of the one before. Tokens of the end that do not fill a window are left out."""
    tokens = _joined(texts)
    count = max(len(tokens) - 1, 0) // context
    return (
        np.lib.stride_tricks.sliding_window_view(tokens, context + 1)[::context][:count].copy()
        if count
        else (np.empty((0, context + 1), np.uint16))
    )


def bits(model: Transformer, texts: pa.LargeStringArray) -> np.ndarray:
    """Return the bits that each text takes if the model encodes it: float64, one per text. A text of more bytes than
    the context is encoded in parts, each of which begins anew."""
    context, (data, offsets) = model.size.context, text_buffers(texts)
    parts = [
        (row, start, min(start + context, end))
        for row, (first, end) in enumerate(zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True))
        for start in range(first, end, context)
    ]
    parts.sort(key=lambda part: part[1] - part[2])  # rows of one batch have about the same length
    found, device = np.zeros(len(texts)), next(model.parameters()).device
    model.eval()
    with torch.inference_mode():
        for at in range(0, len(parts), SCORED_ROWS):
            batch = parts[at : at + SCORED_ROWS]
            ids = np.full((len(batch), 1 + batch[0][2] - batch[0][1]), START, np.int64)
            for row, (_, start, end) in zip(ids, batch, strict=True):
                row[1 : 1 + end - start] = data[start:end]
            nats = losses(model, torch.from_numpy(ids).to(device)).double().sum(1).cpu().numpy()
            np.add.at(found, [row for row, *_ in batch], nats / math.log(2))
    return found


def _joined(texts: pa.LargeStringArray) -> np.ndarray:
    """Return the bytes of texts with START before each: uint16."""
    data, offsets = text_buffers(texts)
    return np.insert(data[offsets[0] : offsets[-1]].astype(np.uint16), offsets[:-1] - offsets[0], START)


def _turns(tokens: int, width: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return cosine and sine of the angle by which a position turns each pair of values: float32[tokens, width / 2]."""
    speeds = ROTATIONS ** (-torch.arange(0, width, 2, device=device) / width)
    angles = torch.outer(torch.arange(tokens, device=device), speeds)
    return angles.cos(), angles.sin()


def _turned(vectors: Tensor, turns: tuple[Tensor, Tensor]) -> Tensor:
    """Return vectors turned by their positions: [rows, heads, tokens, width]."""
    cosine, sine = (part.to(vectors.dtype) for part in turns)
    first, second = vectors.chunk(2, -1)
    return torch.cat([first * cosine - second * sine, first * sine + second * cosine], -1)
