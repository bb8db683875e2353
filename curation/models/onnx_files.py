# SPDX-License-Identifier: Apache-2.0
"""The folder of a transformer in ONNX: `model.onnx` or `onnx/model.onnx`, `config.json`, `tokenizer.json`.

A model is the folder, or one of its `.onnx` files. All files are read without onnxruntime, so that recipes are checked
fast.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Annotated

import msgspec

from curation.base.errors import InputError
from curation.base.system.files import known_sha256
from curation.models.encoder_files import (
    CONFIG,
    MODELS_KEPT,
    OFFSET_FAMILIES,
    OPTIONAL,
    TOKENIZER,
    WEIGHTS,
    ModelConfig,
    ModelFiles,
    check_labels,
    decoded,
    is_by_mean,
    tokens_of,
)
from curation.models.onnx_graph import GraphValue, OnnxGraph, read_graph

SUFFIX, FOLDER, MODEL = ".onnx", "onnx", "model.onnx"
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
REQUIRED_INPUTS = INPUTS[:2]
TOKENS, POOLED, LOGITS = ("last_hidden_state", "token_embeddings"), "sentence_embedding", "logits"
INPUT_DTYPES, OUTPUT_DTYPES = ("int64", "int32"), ("float32", "float16")
DOMAINS = ("", "ai.onnx", "ai.onnx.ml", "com.microsoft")  # domains of the operators that onnxruntime has
Count = Annotated[int, msgspec.Meta(ge=1)]


class OnnxConfig(ModelConfig, frozen=True, kw_only=True):
    """The values of `config.json` that a graph does not state."""

    vocab_size: Count | None = None
    hidden_size: Count | None = None
    max_position_embeddings: Count = 512


class OnnxFiles(ModelFiles, frozen=True, kw_only=True):
    """The checked folder of a transformer in ONNX.

    path     the file
    output   the output that gives vectors
    width    dimensions of the vectors; 0 without such an output
    """

    path: Path
    config: OnnxConfig
    graph: OnnxGraph
    output: str
    width: int


def onnx_path(model: str) -> Path | None:
    """Return the ONNX file of a model, or None for a model of another form. A folder with safetensors is no model in
    ONNX."""
    path = Path(model)
    if path.suffix == SUFFIX:
        return path
    candidates = [path / MODEL, path / FOLDER / MODEL] if not (path / WEIGHTS).is_file() else []
    return next((each for each in candidates if each.is_file()), None)


def open_onnx(path: Path) -> OnnxFiles:
    """Return the checked folder of an ONNX file. Raises InputError for a file that is no ONNX, or whose inputs or
    outputs are not those of an encoder."""
    return _open(path, tuple(onnx_digests(path).items()))


def onnx_digests(path: Path) -> dict[str, str]:
    """Return path -> SHA-256 of the files that the results depend on."""
    folder = _folder(path)
    required = [path, folder / CONFIG, folder / TOKENIZER, *_external(path)]
    for each in required:
        if not each.is_file():
            raise InputError(
                f"{path} is no transformer: there is no {each}. It needs {CONFIG} and {TOKENIZER} in its folder, or in "
                f"the one above if that is named {FOLDER}, and all files that hold its tensors"
            )
    others = [folder / name for name in OPTIONAL if (folder / name).is_file()]
    return {str(each): known_sha256(each) for each in (*required, *others)}


def _folder(path: Path) -> Path:
    is_above = path.parent.name == FOLDER and not (path.parent / CONFIG).is_file()
    return path.parent.parent if is_above else path.parent


def _external(path: Path) -> list[Path]:
    """Return the files that hold tensors of an ONNX file."""
    if not path.is_file():
        return []
    names = _graph(path, known_sha256(path)).external
    for name in names:
        given = PurePosixPath(name)
        if not name or given.is_absolute() or ".." in given.parts:
            raise InputError(f"{path} names {name!r} as a file of its tensors, which is not inside its folder")
    return [path.parent / name for name in names]


@lru_cache(MODELS_KEPT)
def _graph(path: Path, digest: str) -> OnnxGraph:
    return read_graph(path)


@lru_cache(MODELS_KEPT)
def _open(path: Path, digests: tuple[tuple[str, str], ...]) -> OnnxFiles:
    folder = _folder(path)
    graph, config = _graph(path, known_sha256(path)), decoded(folder / CONFIG, OnnxConfig)
    check_labels(folder / CONFIG, config)
    _check_operators(path, graph)
    _check_inputs(path, graph.inputs)
    positions = config.max_position_embeddings
    if config.model_type in OFFSET_FAMILIES:
        positions -= (config.pad_token_id or 0) + 1
    output = next((name for name in (*TOKENS, POOLED) if name in graph.outputs), "")
    if not output and LOGITS not in graph.outputs:
        raise InputError(
            f"{path} gives {', '.join(graph.outputs) or 'nothing'}; expected an output {', '.join(TOKENS)} or {POOLED} "
            f"(vectors), or {LOGITS} (a classifier)"
        )
    files = OnnxFiles(
        folder=folder, config=config, max_tokens=tokens_of(folder, positions), by_mean=is_by_mean(folder), path=path,
        graph=graph, output=output, width=0,
    )  # fmt: skip
    rows = 1 if output == POOLED else 2
    for name, axes in ((output, rows + 1), (LOGITS, 2)):
        if name in graph.outputs:
            _check_output(path, name, graph.outputs[name], axes)
    width = _width(path, config, graph.outputs[output]) if output else 0
    return msgspec.structs.replace(files, width=width)


def _check_operators(path: Path, graph: OnnxGraph) -> None:
    for domain, name in sorted(graph.operators):
        if domain not in DOMAINS:
            raise InputError(
                f"{path} has the custom operator {name} of {domain}, which runs code of a library; operators of "
                f"{', '.join(each for each in DOMAINS if each)} are supported"
            )


def _check_inputs(path: Path, inputs: dict[str, GraphValue]) -> None:
    missing = [name for name in REQUIRED_INPUTS if name not in inputs]
    unknown = [name for name in inputs if name not in INPUTS]
    if missing or unknown:
        raise InputError(
            f"{path} takes {', '.join(inputs) or 'nothing'}; expected {', '.join(REQUIRED_INPUTS)}, and optionally "
            f"{INPUTS[2]}"
        )
    for name, (dtype, shape) in inputs.items():
        if dtype not in INPUT_DTYPES or len(shape) != 2:
            raise InputError(
                f"{path}: its input {name} has {_shown(dtype, shape)}; expected {' or '.join(INPUT_DTYPES)} of two axes"
            )
        if shape[0] > 1 or shape[1]:
            raise InputError(
                f"{path}: its input {name} has the fixed shape {_sizes(shape)}. Export the model with dynamic axes"
            )


def _check_output(path: Path, name: str, value: GraphValue, axes: int) -> None:
    if value.dtype not in OUTPUT_DTYPES or len(value.shape) not in (0, axes):
        expected = f"{' or '.join(OUTPUT_DTYPES)} of {axes} axes"
        raise InputError(f"{path}: its output {name} has {_shown(*value)}; expected {expected}")


def _width(path: Path, config: OnnxConfig, value: GraphValue) -> int:
    """Return the dimensions of vectors. Raises InputError if neither the graph nor the configuration states them."""
    width = (value.shape[-1] if value.shape else 0) or config.hidden_size
    if not width:
        raise InputError(f"{path} states no size of its vectors, and its {CONFIG} has no hidden_size")
    return width


def _shown(dtype: str, shape: tuple[int, ...]) -> str:
    return f"{dtype or 'another dtype'} of the shape {_sizes(shape)}"


def _sizes(shape: tuple[int, ...]) -> str:
    return f"({', '.join(str(size) if size else 'any' for size in shape)})"
