# SPDX-License-Identifier: Apache-2.0
"""Computes vectors of texts by a transformer or by static embeddings, quantised to int8 (`curation.models.vectors`)."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from curation.models.encoder_files import EncoderFiles
from curation.models.encoders import Encoder
from curation.models.onnx_encoder import OnnxEncoder
from curation.models.onnx_files import onnx_path
from curation.models.static_vectors import StaticVectors, load_static, static_dimensions, static_facts
from curation.models.transformers import load_transformer, open_transformer, transformer_digests, transformer_facts
from curation.models.vectors import quantised
from curation.models.windows import TokenWindows, pool, results_of


class Embedded(NamedTuple):
    """The vectors of documents.

    vectors  int8, shape (documents, dimensions); zeros where `present` is false
    present  bool, one per document: False for a document without tokens
    windows  the windows that the model read
    """

    vectors: np.ndarray
    present: np.ndarray
    windows: TokenWindows


def dimensions_of(model: str) -> int:
    """Return the dimensions of the vectors of a model, without loading it. Raises InputError for a folder without a
    model."""
    if is_static(model):
        return static_dimensions(model)
    files = open_transformer(model)
    return files.config.width if isinstance(files, EncoderFiles) else files.width


def is_static(model: str) -> bool:
    """Return whether a folder holds static embeddings, which read whole texts."""
    return onnx_path(model) is None and static_dimensions(model) > 0


def digest_of_model(model: str) -> str:
    """Return one SHA-256 for the files of a model. The SHA-256 does not depend on the path of the folder."""
    lines = sorted(f"{digest}  {Path(path).name}\n" for path, digest in transformer_digests(model).items())
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def facts_of(model: str) -> dict[str, str]:
    """Return the facts that the vectors of a model depend on, besides the model itself."""
    return static_facts() if is_static(model) else transformer_facts(model)


def load_model(model: str) -> Encoder | OnnxEncoder | StaticVectors:
    """Return the model of a folder. InputError for a folder that holds none, EngineError for missing packages."""
    return load_static(model) if is_static(model) else load_transformer(model, False)


def embed_texts(texts: Sequence[str | None], model: str, windows: int, pooling: str) -> Embedded:
    """Return the vectors of texts. The arguments are as in `score_texts`; static embeddings read the whole text."""
    reader = load_model(model)
    read = reader.windows(texts, windows)
    pooled = pool(results_of(reader, read, model), read, pooling)
    vectors, present = quantised(np.nan_to_num(pooled))
    return Embedded(vectors, present, read)
