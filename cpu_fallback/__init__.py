# SPDX-License-Identifier: Apache-2.0
"""The engine for any machine: pandas frames, Arrow buffers, `nogil` loops. Implements `curation.contract.Engine`.

Frames and texts come in, integers and frames go out. Loops over documents are in `kernels`, what they do with one
document in `vector_*` (vector instructions; `vectors` is about embeddings), `rewriting`, `rolling_shingles`, `fasttext`
and `language_model`, and in `curation.kernels`. The package decides nothing about documents, and knows neither recipes,
stages, runs nor the other engine.
"""

from cpu_fallback.dedup import connected_components, group_leaders, intersection_sizes
from cpu_fallback.io import filter_rows, from_arrow, read_slice, to_arrow, with_columns
from cpu_fallback.parquet import parquet_file
from cpu_fallback.session import batch_bytes, describe, open_session
from cpu_fallback.text import (
    band_keys,
    byte_lengths,
    classify,
    hash_text,
    measure,
    ngram_hits,
    rewrite,
    score_text,
    shingles,
    signatures,
    split_words,
    spread_bytes,
)
from cpu_fallback.tokens import tokenize
from cpu_fallback.units import join_units, split_units
from cpu_fallback.vectors import close_vectors, fit_centroids, nearest_vectors

__all__ = [
    "band_keys",
    "batch_bytes",
    "byte_lengths",
    "classify",
    "close_vectors",
    "connected_components",
    "describe",
    "filter_rows",
    "fit_centroids",
    "from_arrow",
    "group_leaders",
    "hash_text",
    "intersection_sizes",
    "join_units",
    "measure",
    "nearest_vectors",
    "ngram_hits",
    "open_session",
    "parquet_file",
    "read_slice",
    "rewrite",
    "score_text",
    "shingles",
    "signatures",
    "split_units",
    "split_words",
    "spread_bytes",
    "to_arrow",
    "tokenize",
    "with_columns",
]
