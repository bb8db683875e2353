# SPDX-License-Identifier: Apache-2.0
"""All CUDA kernels of the engine, for what compiles, counts or replaces each of them."""

from gpu_pipeline import (
    document_kernels,
    json_kernels,
    kernels,
    model_kernels,
    rewrite_kernels,
    rewrite_masks,
    text_kernels,
    token_kernels,
    unit_kernels,
)

# The kernels of measures are in `kernels.SIGNATURES`, too.
MODULES = (
    kernels, text_kernels, document_kernels, rewrite_masks, rewrite_kernels, token_kernels, json_kernels, model_kernels,
    unit_kernels,
)  # fmt: skip
SIGNATURES = {kernel: signature for module in MODULES for kernel, signature in module.SIGNATURES.items()}
