# SPDX-License-Identifier: Apache-2.0
"""A transformer in a local folder, in safetensors (`encoders`) or in ONNX (`onnx_encoder`)."""

from __future__ import annotations

from curation.models import encoders
from curation.models.encoder_files import EncoderFiles, encoder_digests, open_encoder
from curation.models.encoders import Encoder, load_encoder
from curation.models.onnx_encoder import OnnxEncoder, load_onnx, onnx_facts
from curation.models.onnx_files import OnnxFiles, onnx_digests, onnx_path, open_onnx


def open_transformer(model: str) -> EncoderFiles | OnnxFiles:
    """Return the checked folder of a model, without its weights. Raises InputError for a folder without a model."""
    path = onnx_path(model)
    return open_onnx(path) if path else open_encoder(model)


def transformer_digests(model: str) -> dict[str, str]:
    """Return path -> SHA-256 of the files that the results depend on."""
    path = onnx_path(model)
    return onnx_digests(path) if path else encoder_digests(model)


def transformer_facts(model: str) -> dict[str, str]:
    """Return the facts that results depend on, besides the model: device, dtype, versions of libraries."""
    return onnx_facts() if onnx_path(model) else encoders.device_facts()


def load_transformer(model: str, with_head: bool) -> Encoder | OnnxEncoder:
    """Return a loaded model: for its scores if `with_head`, else for its vectors. Raises InputError for a folder
    without such a model, EngineError for a missing package."""
    path = onnx_path(model)
    return load_onnx(path, with_head) if path else load_encoder(model, with_head)
