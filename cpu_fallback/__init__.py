# SPDX-License-Identifier: Apache-2.0
"""The engine for any machine: pandas frames, Arrow buffers, `nogil` loops. It satisfies `curation.contract.Engine`."""

from curation.kernels import CACHE_KEY  # first: it sets where Numba keeps what it compiles

from cpu_fallback.dedup import connected, first_of_group, overlap  # isort: skip
from cpu_fallback.io import filter_rows, from_arrow, read_slice, to_arrow, with_columns  # isort: skip
from cpu_fallback.session import batch_bytes, describe, open_session  # isort: skip
from cpu_fallback.text import (  # isort: skip
    band_keys,
    byte_lengths,
    classify,
    hash_text,
    measure,
    ngram_hits,
    rewrite,
    shingles,
    signatures,
)

__all__ = [
    "CACHE_KEY",
    "band_keys",
    "batch_bytes",
    "byte_lengths",
    "classify",
    "connected",
    "describe",
    "filter_rows",
    "first_of_group",
    "from_arrow",
    "hash_text",
    "measure",
    "ngram_hits",
    "open_session",
    "overlap",
    "read_slice",
    "rewrite",
    "shingles",
    "signatures",
    "to_arrow",
    "with_columns",
]
