# SPDX-License-Identifier: Apache-2.0
"""A list of all CUDA kernels of the engine, for code that compiles, counts or replaces every kernel; and the kernels of
a run, which one thread loads in each process."""

from collections.abc import Iterable
from functools import cache
from types import ModuleType
from typing import Any

from gpu_pipeline.kernels import (
    core,
    document_kernels,
    json_kernels,
    long_repetition_kernels,
    measure_kernels,
    model_kernels,
    repetition_kernels,
    rewrite_kernels,
    rewrite_masks,
    stop_word_kernels,
    text_kernels,
    token_kernels,
    unit_kernels,
    window_kernels,
    word_break_kernels,
    word_kernels,
    word_kind_kernels,
)


def _of(*modules: ModuleType) -> tuple[Any, ...]:
    return tuple(kernel for module in modules for kernel in module.SIGNATURES)


OF_MEASURES = measure_kernels, word_kernels, repetition_kernels, long_repetition_kernels, word_kind_kernels
MODULES = (
    core, *OF_MEASURES, text_kernels, document_kernels, rewrite_masks, rewrite_kernels, token_kernels, json_kernels,
    model_kernels, unit_kernels, window_kernels, word_break_kernels, stop_word_kernels,
)  # fmt: skip
SIGNATURES = {kernel: signature for module in MODULES for kernel, signature in module.SIGNATURES.items()}
# The kernels of each group of `curation.stages.warm_up.GROUPS`; a group that is not here has those of every run
OF_EVERY_RUN = _of(core, text_kernels, document_kernels)
OF_GROUPS = {
    "json_lines": (*_of(json_kernels), token_kernels.place_pieces),
    "rewrite": (*_of(rewrite_masks, rewrite_kernels), model_kernels.count_bits),
    "measures": _of(*OF_MEASURES),
    "words": _of(word_break_kernels),
    "language": _of(model_kernels),
    "language_model": _of(model_kernels),
    "units": _of(unit_kernels, measure_kernels),
    "span_records": _of(window_kernels),
    "listed": _of(token_kernels),
    "lists": _of(stop_word_kernels),
}


def kernels_of(groups: Iterable[str]) -> list[Any]:
    """Return the kernels that a run with these groups may launch."""
    wanted = {*OF_EVERY_RUN, *(kernel for group in groups for kernel in OF_GROUPS.get(group, ()))}
    return [kernel for kernel in SIGNATURES if kernel in wanted]


@cache
def load_kernels(groups: tuple[str, ...]) -> None:
    """Load the kernels of a run in this process, one after the other. A kernel that Numba has not in its cache is
    compiled first."""
    for kernel in kernels_of(groups):
        core.load(kernel, SIGNATURES[kernel])
