# SPDX-License-Identifier: Apache-2.0
"""How many pairs the bands of MinHash signatures find."""

from __future__ import annotations

from functools import lru_cache

RECALL = 0.995  # share of the pairs with a similarity of `threshold` that the default bands find


@lru_cache(maxsize=64)
def most_rows(permutations: int, threshold: float) -> int:
    """Return the largest number of rows per band with which bands find RECALL of the pairs; 0 if no number does. The
    result is cached, because each task of a run needs it."""
    for rows in range(permutations, 0, -1):
        if share_probability(threshold, permutations // rows, rows) >= RECALL:
            return rows
    return 0


def share_probability(jaccard: float, bands: int, rows: int) -> float:
    """Return the probability that two documents with this Jaccard similarity share a band (Leskovec, Rajaraman, Ullman:
    Mining of Massive Datasets, section 3.4.2)."""
    return float(1 - (1 - jaccard**rows) ** bands)


def s_curve(bands: int, rows: int) -> list[tuple[float, float]]:
    """Return Jaccard similarities in steps of 0.05, each with the probability that such a pair becomes a candidate."""
    return [(step / 20, share_probability(step / 20, bands, rows)) for step in range(1, 21)]
