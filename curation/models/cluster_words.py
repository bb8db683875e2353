# SPDX-License-Identifier: Apache-2.0
"""The typical words of clusters of documents, and their places on a map of two dimensions."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np

SIGNIFICANT = 1.96  # standard deviations: 5 % of the words that do not differ are above or below it


class ClusterWords:
    """The words of the documents of each cluster: `add` the documents, then take `typical`.

    Words are separated by white space, in lower case, without marks before and after them. Memory: the different words
    of each cluster.
    """

    def __init__(self) -> None:
        self.counts: dict[int, Counter[str]] = {}

    def add(self, cluster: int, text: str) -> None:
        """Count the words of a document."""
        self.counts.setdefault(cluster, Counter()).update(filter(None, map(_bare, text.lower().split())))

    def typical(self, words: int) -> dict[int, list[str]]:
        """Return up to so many words of each cluster that it uses more than the others, the most typical first.

        The measure is the log-odds ratio with an informative Dirichlet prior, which is the counts of all clusters, in
        standard deviations (Monroe, Colaresi and Quinn, "Fightin' Words", Political Analysis 2008). Only words above
        1.96 count. A single cluster has none. Of equally typical words the first by code points counts."""
        prior: Counter[str] = sum(self.counts.values(), Counter())
        whole = prior.total()
        found = {}
        for cluster, own in self.counts.items():
            size = own.total()
            scored = []
            for word, count in own.items():
                both, rest = prior[word], prior[word] - count
                mine, theirs = count + both, rest + both
                odds = math.log(mine / (size + whole - mine)) if size + whole > mine else math.inf
                others = math.log(theirs / (2 * whole - size - theirs)) if 2 * whole - size > theirs else math.inf
                score = (odds - others) / math.sqrt(1 / mine + 1 / theirs) if odds != others else 0.0
                if score > SIGNIFICANT:
                    scored.append((-score, word))
            found[cluster] = [word for _, word in sorted(scored)[:words]]
        return found


def _bare(word: str) -> str:
    """Return a word without the characters around it that are neither letters nor digits."""
    if word.isalnum():
        return word
    first, last = 0, len(word)
    while first < last and not word[first].isalnum():
        first += 1
    while first < last and not word[last - 1].isalnum():
        last -= 1
    return word[first:last]


def plane(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return vectors (float, shape (n, dimensions)) on their two principal components, float64 of shape (n, 2), and the
    share of the variance on each.

    The largest loading of a component is positive, of equal ones the first, so the map is not mirrored from one machine
    to another. A component without variance is 0."""
    centred = np.zeros((len(vectors), max(vectors.shape[1], 2)))
    centred[:, : vectors.shape[1]] = vectors - vectors.mean(axis=0) if len(vectors) else vectors
    variances, components = np.linalg.eigh(centred.T @ centred)
    axes = components[:, ::-1][:, :2]
    largest = np.abs(np.round(axes, 9)).argmax(axis=0)
    axes = axes * np.where(axes[largest, [0, 1]] < 0, -1, 1)
    whole = max(float(variances.sum()), 0.0)
    shares = np.maximum(variances[::-1][:2], 0) / whole if whole > 0 else np.zeros(2)
    return np.where(shares > 1e-12, centred @ axes, 0.0), shares
