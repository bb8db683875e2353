# SPDX-License-Identifier: Apache-2.0
"""Computes vectors and scores of windows by a transformer in ONNX, with onnxruntime on the CPU.

A window runs alone, without padding, with one thread. So its result depends only on the window, the processor and the
version of onnxruntime. In a batch it could depend on other windows: a graph that quantises its inputs scales them by
the largest number of the batch. Batches would be 1.7 times as fast for windows of 16 tokens, and no faster for 128 and
more.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from llvmlite import binding

from curation.base.errors import EngineError, InputError, installation
from curation.base.system.interrupts import check as check_interrupts
from curation.base.system.os_errors import is_of_system
from curation.models.encoder_files import MODELS_KEPT
from curation.models.encoders import largest_id, package_versions, tokenizer_of
from curation.models.networks import line_of
from curation.models.onnx_files import LOGITS, POOLED, OnnxFiles, onnx_digests, open_onnx
from curation.models.windows import TokenWindows, cut_windows, special_ids

FEATURES = ("avx2", "avx512f", "avx512vnni", "avxvnni", "amx-int8", "dotprod", "i8mm", "bf16", "sve")  # of processors
ANY_TOKENS = 1 << 62
_LOADING = threading.Lock()


def onnx_facts() -> dict[str, str]:
    """Return the facts that results depend on, besides the model: the processor, and versions of libraries."""
    _check_package()
    present = binding.get_host_cpu_features()
    processor = ["CPU", *(name for name in FEATURES if present.get(name))]
    return {"device": " ".join(processor)} | package_versions("onnxruntime", "tokenizers")


def _check_package() -> None:
    if find_spec("onnxruntime") is None:
        raise EngineError(f"models in ONNX need onnxruntime, which is not installed here. {installation('embeddings')}")


def load_onnx(path: Path, with_head: bool) -> OnnxEncoder:
    """Return the model of an ONNX file: its scores if `with_head`, else its vectors. A process keeps up to MODELS_KEPT
    models.

    Raises InputError for a file that is no such model, EngineError without onnxruntime.
    """
    _check_package()
    digests = tuple(onnx_digests(path).items())
    with _LOADING:
        return _load(path, digests, with_head)


@lru_cache(MODELS_KEPT)
def _load(path: Path, digests: tuple[tuple[str, str], ...], with_head: bool) -> OnnxEncoder:
    return OnnxEncoder(open_onnx(path), with_head)


class OnnxEncoder:
    """A loaded model.

    width  numbers per window: outputs of the head, or dimensions of the vector
    """

    def __init__(self, files: OnnxFiles, with_head: bool) -> None:
        import onnxruntime

        self.files, graph = files, files.graph
        self.output = LOGITS if with_head else files.output
        if self.output not in graph.outputs:
            wanted = f"no output {LOGITS}: it is no classifier" if with_head else "no vectors: it is a classifier"
            raise InputError(f"{files.path} has {wanted}. It gives {', '.join(graph.outputs)}")
        self.width = len(files.labels) if with_head else files.width
        self.tokenizer = tokenizer_of(files.folder, files.config.vocab_size or ANY_TOKENS)
        self.special = special_ids(self.tokenizer)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.enable_mem_pattern = False  # it helps only for inputs of one shape
        options.use_deterministic_compute = True
        options.log_severity_level = 4  # exceptions have the same text
        try:
            self.session = onnxruntime.InferenceSession(
                files.path, options, providers=["CPUExecutionProvider"],
                enable_fallback=0,  # it prints lines on standard output, and tries the same again
            )  # fmt: skip
        except Exception as error:  # its classes have no common base
            if is_of_system(error):
                raise
            raise InputError(f"{files.path} cannot be loaded by onnxruntime: {line_of(error)}") from None
        # A model that cannot compute, or has no vector for the largest id, fails now
        self._result(np.array([*self.tokenizer.encode("a").ids, max(largest_id(self.tokenizer), 0)]))

    def windows(self, texts: Sequence[str | None], count: int) -> TokenWindows:
        """Return the windows of texts, up to `count` of each (0: all)."""
        return cut_windows(self.tokenizer, texts, self.files.max_tokens, count, self.special)

    def run(self, windows: Sequence[np.ndarray]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield the number of each window and its result: float64 of shape (1, width)."""
        for number, window in enumerate(windows):
            check_interrupts()
            yield np.array([number]), self._result(window)[None]

    def _result(self, window: np.ndarray) -> np.ndarray:
        constants = {"input_ids": window, "attention_mask": 1, "token_type_ids": 0}
        given = {
            name: np.full((1, len(window)), constants[name], value.dtype)
            for name, value in self.files.graph.inputs.items()
        }
        try:
            result = self.session.run([self.output], given)[0][0].astype(np.float64)
        except Exception as error:
            if is_of_system(error):
                raise
            what = f"{self.files.path} fails for a window of {len(window):,} tokens"
            raise InputError(f"{what}: {line_of(error)}") from None
        if self.output not in (LOGITS, POOLED):
            result = result.mean(axis=0) if self.files.by_mean else result[0]
        if result.shape != (self.width,):
            raise InputError(f"{self.files.path} gives {result.shape} numbers per text, expected {self.width:,}")
        return result
