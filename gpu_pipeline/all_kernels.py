# SPDX-License-Identifier: Apache-2.0
"""A list of all CUDA kernels of the engine, for code that compiles, counts or replaces every kernel."""

from gpu_pipeline import (
    document_kernels,
    json_kernels,
    kernels,
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

OF_MEASURES = measure_kernels, word_kernels, repetition_kernels, long_repetition_kernels, word_kind_kernels
MODULES = (
    kernels, *OF_MEASURES, text_kernels, document_kernels, rewrite_masks, rewrite_kernels, token_kernels, json_kernels,
    model_kernels, unit_kernels, window_kernels, word_break_kernels, stop_word_kernels,
)  # fmt: skip
SIGNATURES = {kernel: signature for module in MODULES for kernel, signature in module.SIGNATURES.items()}
