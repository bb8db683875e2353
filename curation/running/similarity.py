# SPDX-License-Identifier: Apache-2.0
"""The Jaccard similarity of two texts, for people who look at pairs of duplicates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from curation.contract import TEXT, Engine
from curation.stages.fuzzy_dedup import COMPARISONS

VECTOR_STAGE = "semantic_dedup"  # the kind of stage whose values are cosines


def jaccard(engine: Engine, settings: Mapping[str, Any], left: str, right: str) -> float:
    """Return the similarity of two texts by the n-grams of a `fuzzy_dedup` stage, or by five words.

    settings   those of the stage; empty for another kind of stage
    """
    text = engine.from_arrow(pa.table({TEXT: pa.array([left, right], pa.large_string())}))[TEXT]
    text, _ = engine.rewrite(text, COMPARISONS[settings.get("compare", "lowercase")])
    hashes, offsets = engine.shingles(text, settings.get("ngram", 5), settings.get("unit") == "character")
    shared = int(engine.intersection_sizes(hashes, offsets, np.array([0]), np.array([1]))[0])
    total = int(offsets[2]) - shared
    return shared / total if total else float(left == right)


__all__ = ["VECTOR_STAGE", "jaccard"]
