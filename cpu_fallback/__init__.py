# SPDX-License-Identifier: Apache-2.0
"""The engine for any machine: pandas frames, Arrow buffers, `nogil` loops. Implements `curation.base.contract.Engine`.

Its functions take frames and texts, and return integers and frames. Loops over documents are in `kernels`. Functions on
one document are in `vector_*` (vector instructions; `vectors` is about embeddings), `rewriting`, `rolling_shingles`,
`fasttext`, `language_model`, and in `curation.kernels`. The package decides nothing about documents, and knows neither
recipes, stages, runs nor the other engine. Functions on frames, such as `filter`, are those of `curation`
(docs/engine_functions.md).
"""

import pandas as pd

from cpu_fallback.dedup import connected_components, group_leaders, intersection_sizes
from cpu_fallback.io import filter_rows, from_arrow, read_slice, to_arrow, with_columns
from cpu_fallback.parquet import parquet_file
from cpu_fallback.session import batch_bytes, describe, open_session
from cpu_fallback.text import (
    band_keys,
    byte_lengths,
    classify,
    count_stop_words,
    hash_text,
    measure,
    ngram_hits,
    replace_texts,
    rewrite,
    score_text,
    shingles,
    signatures,
    split_words,
    spread_bytes,
    spread_windows,
)
from cpu_fallback.tokens import tokenize, tokens_at_once
from cpu_fallback.units import join_units, split_units
from cpu_fallback.vectors import close_vectors, fit_centroids, nearest_vectors
from cpu_fallback.windows import anchor_records, judge_records, node_records, window_records
from curation.frames.engine_functions import FUNCTIONS, function_of, with_frames

__all__ = [
    "anchor_records",
    "band_keys",
    "batch_bytes",
    "byte_lengths",
    "classify",
    "close_vectors",
    "connected_components",
    "count_stop_words",
    "describe",
    "filter_rows",
    "fit_centroids",
    "from_arrow",
    "group_leaders",
    "hash_text",
    "intersection_sizes",
    "join_units",
    "judge_records",
    "measure",
    "nearest_vectors",
    "ngram_hits",
    "node_records",
    "open_session",
    "parquet_file",
    "read_slice",
    "replace_texts",
    "rewrite",
    "score_text",
    "shingles",
    "signatures",
    "split_units",
    "split_words",
    "spread_bytes",
    "spread_windows",
    "to_arrow",
    "tokenize",
    "tokens_at_once",
    "window_records",
    "with_columns",
]

classify, measure, rewrite, tokenize = (with_frames(each, pd.Series) for each in (classify, measure, rewrite, tokenize))


def __getattr__(name: str):
    return function_of(__name__, name)


def __dir__() -> list[str]:
    return [*globals(), *FUNCTIONS]
