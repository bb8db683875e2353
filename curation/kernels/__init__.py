# SPDX-License-Identifier: Apache-2.0
"""Functions on one document, in the subset of Python that Numba compiles for CPUs and for CUDA.

Array arguments: `data` is uint8, the UTF-8 bytes of a column; `offsets` is int64 of documents + 1, document k is
data[offsets[k]:offsets[k + 1]]; `start`, `end` are positions in `data`. `out` is written from position `o`.
"""
