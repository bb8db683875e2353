# SPDX-License-Identifier: Apache-2.0
"""Functions on one document or batch, in the subset of Python that Numba compiles.

Some serve both engines, some one of them: `masks` and `vector_*` the CPU; `byte_checks`, `flat_rewrite`, `json_masks`
and `spans` the GPU. Plain Python in `tests/oracle` defines the results, and tests hold every
implementation equal to it.

Array arguments: `data` is uint8, the UTF-8 bytes of a column; `offsets` is int64 of documents + 1, document k is
data[offsets[k]:offsets[k + 1]]; `start`, `end` are positions in `data`. `out` is written from position `o`.
"""
