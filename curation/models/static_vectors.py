# SPDX-License-Identifier: Apache-2.0
"""Static embeddings in the form of model2vec: a table with one vector per token, and the mean of the tokens of a text.

Static embeddings need neither a GPU nor PyTorch. The sum for the mean is taken in the order of the text, so every
machine computes the same mean.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from curation.base.errors import InputError
from curation.base.system.interrupts import check as check_interrupts
from curation.models.encoder_files import MODELS_KEPT, TOKENIZER, WEIGHTS, check_folder, decoded, encoder_digests
from curation.models.encoders import check_ids, package_versions, read_tokenizer
from curation.models.tensors import read_header, read_tensors
from curation.models.windows import TokenWindows, cut_windows

TABLES, FACTORS, ROWS = ("embeddings", "embedding.weight"), "weights", "mapping"  # names of tensors
WHOLE_TEXT = 1 << 40  # tokens of a window
TOKENS_AT_ONCE = 4096
_LOADING = threading.Lock()


def static_dimensions(model: str) -> int:
    """Return the dimensions of the table of vectors in a folder; 0 if it has no table, like the folder of an encoder.
    Raises InputError for a folder that is no model."""
    check_folder(model)
    header = read_header(Path(model) / WEIGHTS)
    shapes = [header[name].shape for name in TABLES if name in header]
    return shapes[0][1] if shapes and len(shapes[0]) == 2 else 0


def static_facts() -> dict[str, str]:
    """Return the facts that the vectors depend on, besides the model."""
    return package_versions("tokenizers")


def load_static(model: str) -> StaticVectors:
    """Return the static embeddings of a folder. A process keeps up to MODELS_KEPT of them. Raises InputError for a
    folder without static embeddings."""
    digests = tuple(encoder_digests(model).items())
    with _LOADING:
        return _load(model, digests)


@lru_cache(MODELS_KEPT)
def _load(model: str, digests: tuple[tuple[str, str], ...]) -> StaticVectors:
    return StaticVectors(Path(model))


class _TokenModel(msgspec.Struct):
    unk_token: str | None = None
    unk_id: int | None = None  # of Unigram
    vocab: Any = None


class _TokenizerFile(msgspec.Struct):
    model: _TokenModel


def _unknown_id(path: Path) -> int | None:
    """Return the id of unknown tokens, which have no meaning; None if the tokenizer has none."""
    model = decoded(path, _TokenizerFile).model
    if model.unk_id is not None or model.unk_token is None:
        return model.unk_id
    return dict(model.vocab).get(model.unk_token)


class StaticVectors:
    """Loaded static embeddings.

    width  dimensions
    """

    def __init__(self, folder: Path) -> None:
        path = folder / WEIGHTS
        tensors = read_tensors(path)
        self.tokenizer = read_tokenizer(folder)
        self.table = next((tensors[name] for name in TABLES if name in tensors), np.zeros(0))
        if self.table.ndim != 2:
            raise InputError(f"{path} has no tensor {' or '.join(TABLES)} of two axes: it holds no static embeddings")
        self.width = self.table.shape[1]
        self.factors, self.rows = tensors.get(FACTORS), tensors.get(ROWS)
        self.unknown = _unknown_id(folder / TOKENIZER)
        self._check(path)

    def _check(self, path: Path) -> None:
        for name, tensor in ((FACTORS, self.factors), (ROWS, self.rows)):
            if tensor is not None and (tensor.ndim != 1 or (name == ROWS and tensor.dtype.kind not in "iu")):
                expected = f"one {'integer' if name == ROWS else 'number'} per token"
                raise InputError(f"{path}: its {name} has {tensor.dtype} of {tensor.shape}; expected {expected}")
        per_token = (self.table if self.rows is None else self.rows, self.factors)
        check_ids(path.parent, self.tokenizer, min(len(each) for each in per_token if each is not None))
        if self.rows is not None and not 0 <= self.rows.min(initial=0) <= self.rows.max(initial=0) < len(self.table):
            raise InputError(f"{path}: its {ROWS} names rows outside its {len(self.table):,} vectors")
        if not (np.isfinite(self.table).all() and (self.factors is None or np.isfinite(self.factors).all())):
            raise InputError(f"{path} has NaN or infinite values: its training has failed")

    def windows(self, texts: Sequence[str | None], count: int) -> TokenWindows:
        """Return one window, the whole text, for each text that has tokens; `count` has no effect here."""
        return cut_windows(self.tokenizer, texts, WHOLE_TEXT, 0, ([], []))

    def run(self, windows: Sequence[np.ndarray]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield the number of each window and the mean of the vectors of its tokens: float64 of shape (1, width). The
        mean is 0 if all tokens are unknown."""
        for number, ids in enumerate(windows):
            check_interrupts()
            yield np.array([number]), self._mean(ids[ids != self.unknown] if self.unknown is not None else ids)[None]

    def _mean(self, ids: np.ndarray) -> np.ndarray:
        total = np.zeros(self.width)
        for first in range(0, len(ids), TOKENS_AT_ONCE):
            part = ids[first : first + TOKENS_AT_ONCE]
            vectors = self.table[part if self.rows is None else self.rows[part]].astype(np.float64)
            if self.factors is not None:
                vectors *= self.factors[part, None]
            total += np.add.reduce(vectors, axis=0)  # row after row
        return total / max(len(ids), 1)
