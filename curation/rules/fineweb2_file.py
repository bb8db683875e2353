# SPDX-License-Identifier: Apache-2.0
"""The configuration of FineWeb-2: bounds and stop words of 1,929 languages, and the names of these languages.

`fineweb2.json.xz` is a compressed copy of the folder `configs` of https://github.com/huggingface/fineweb-2, which is
under the Apache License 2.0. `tests/scripts/make_fineweb2.py` writes it.
"""

from __future__ import annotations

import json
import lzma
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

ENGLISH = "eng_Latn"
STORED = Path(__file__).with_name("fineweb2.json.xz")
COLUMNS = (
    "dup_line_frac", "top_2_grams", "top_3_grams", "top_4_grams", "dup_5_grams", "dup_6_grams", "dup_7_grams",
    "dup_8_grams", "dup_9_grams", "dup_10_grams", "line_punct_thr", "new_line_ratio", "min_avg_word_length",
    "max_avg_word_length", "max_non_alpha_words_ratio",
)  # fmt: skip


class Configuration(NamedTuple):
    """The bounds and stop words of all languages: names, float64[languages, COLUMNS], and a list of words per
    language."""

    languages: list[str]
    bounds: np.ndarray
    stop_words: list[list[str]]


@cache
def configuration() -> Configuration:
    """Return the stored configuration."""
    content = json.loads(lzma.decompress(STORED.read_bytes()))
    return Configuration(content["languages"], np.array(content["bounds"]), content["stop_words"])


@cache
def languages() -> dict[str, int]:
    """Return language -> number of its group; English is last."""
    return {name: number for number, name in enumerate([*configuration().languages, ENGLISH])}
