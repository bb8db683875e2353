# SPDX-License-Identifier: Apache-2.0
"""Functions on one document or batch, in the subset of Python that Numba compiles.

A module is here if both engines call it, or `curation` itself. Functions that only one engine calls are in that
engine's package. Plain Python in `tests/oracle` defines the results. Modules work on arrays of bytes and numbers, and
know no frames, recipes or runs.

Array arguments: `data` is uint8, the UTF-8 bytes of a column; `offsets` is int64 of documents + 1, document k is
data[offsets[k]:offsets[k + 1]]; `start`, `end` are positions in `data`. `out` is written from position `o`.
"""
