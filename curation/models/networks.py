# SPDX-License-Identifier: Apache-2.0
"""Builds modules of the package `transformers` from the values of `config.json` and the tensors of safetensors.

The package is never given a folder or a name. So the package downloads nothing, and runs no code of a folder: it never
gets the code, templates and adapters that a folder may have.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from logging import CRITICAL
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from curation.base.errors import InputError, nearest
from curation.base.system.os_errors import is_of_system
from curation.models.encoder_files import CONFIG, ModelFiles, decoded, weight_files
from curation.models.tensors import read_tensors

if TYPE_CHECKING:
    import torch

# Tables of the package, from configurations to classes.
VECTORS, SCORES, TOKENS = "MODEL_MAPPING", "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING", "MODEL_FOR_CAUSAL_LM_MAPPING"
POOLER = "pooler."  # BERT's layer after the vectors
IN_LAYER = re.compile(r"\.\d+\.(?!.*(masked_bias|inv_freq)$)")  # without constants that old versions stored


def load_network(files: ModelFiles, kind: str, device: str) -> Any:
    """Return the module for the outputs `kind`, in evaluation mode on a device: float32 on a CPU, else bfloat16.

    InputError for weights that are missing, of another shape or not finite, and for values that the package refuses.
    """
    import torch

    tensors, dtype = read_weights(files.folder), torch.float32 if device == "cpu" else torch.bfloat16
    if kind == SCORES and files.config.is_of_curator:
        network = _with_curator_head(files, tensors, dtype)
    else:
        network = _loaded(files, kind, tensors, dtype)
    for name, values in network.named_parameters():
        if not values.isfinite().all():
            raise InputError(f"{files.folder}: the tensor {name} has NaN or infinite values: its training has failed")
    return network.to(device).eval()


def read_weights(folder: Path) -> dict[str, torch.Tensor]:
    """Return the tensors of floats in the files of a folder, float32."""
    import torch

    weights = {}
    for path in weight_files(folder):
        for name, values in read_tensors(path).items():
            if values.dtype.kind == "f":
                weights[name] = torch.from_numpy(values.astype(np.float32))
    return weights


def _loaded(files: ModelFiles, kind: str, tensors: dict[str, torch.Tensor], dtype: torch.dtype) -> Any:
    from transformers.models.auto import configuration_auto, modeling_auto

    folder = files.folder
    values = decoded(folder / CONFIG, dict[str, Any]) | {"return_dict": True}
    if kind == SCORES:
        values.pop("num_labels", None)
        values["id2label"] = dict(enumerate(files.labels))
    with explained(folder):
        config = configuration_auto.CONFIG_MAPPING[files.config.model_type].from_dict(values)
        if config.num_hidden_layers > len(tensors):  # to create the layers could take days
            raise ValueError(f"{config.num_hidden_layers:,} layers have only {len(tensors):,} tensors")
        module = getattr(modeling_auto, kind)[type(config)]
        network, info = module.from_pretrained(
            None, config=config, state_dict=tensors, dtype=dtype, output_loading_info=True,
            ignore_mismatched_sizes=True, attn_implementation="sdpa" if module._supports_sdpa else "eager",
        )  # fmt: skip
    for name in sorted(info["missing_keys"]):
        if kind != VECTORS or not name.startswith(POOLER):
            raise InputError(f"{folder} has no tensor {name!r}{nearest(name, tensors)}")
    for name, shape, expected in sorted(info["mismatched_keys"]):
        raise InputError(f"{folder}: the tensor {name} has the shape {tuple(shape)}, expected {tuple(expected)}")
    for name in sorted(filter(IN_LAYER.search, info["unexpected_keys"])):
        raise InputError(f"{folder} has a tensor {name!r} that a model with the values of its {CONFIG} lacks")
    return network


def _with_curator_head(files: ModelFiles, tensors: dict[str, torch.Tensor], dtype: torch.dtype) -> Any:
    """Return a classifier of NeMo Curator: an encoder, with a linear layer `fc` for the vector of the first token."""
    import torch

    head = {part: tensors.pop(f"fc.{part}") for part in ("weight", "bias") if f"fc.{part}" in tensors}
    encoder = _loaded(files, VECTORS, {name.removeprefix("model."): each for name, each in tensors.items()}, dtype)
    encoder.fc = torch.nn.Linear(encoder.config.hidden_size, len(files.labels), dtype=dtype)
    try:
        encoder.fc.load_state_dict(head)
    except RuntimeError as error:
        raise InputError(f"{files.folder}: its head fc is not that of its {CONFIG}: {line_of(error)}") from None
    return encoder


def line_of(error: Exception) -> str:
    """Return the message of an error of a library as one line."""
    return " ".join(str(error).split())


@contextmanager
def explained(folder: Path) -> Iterator[None]:
    """A context that turns errors of the package into an InputError about the model of a folder. In it, the package
    prints no warnings, log lines or progress: faults that matter are errors here."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity(CRITICAL)
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except Exception as error:  # its classes have no common base
        if is_of_system(error):
            raise
        raise InputError(f"{folder} cannot be used by transformers: {type(error).__name__} {line_of(error)}") from None
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
