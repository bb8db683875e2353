# SPDX-License-Identifier: Apache-2.0
"""The typical words of clusters of documents."""

from __future__ import annotations

import math
from collections import Counter

SIGNIFICANT = 1.96  # standard deviations: 5 % of the words that clusters use equally often are outside this limit


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
        """Return up to `words` words of each cluster that it uses more than other clusters, the most typical first.

        The measure is a z-score: a log-odds ratio divided by its standard deviation. Its informative Dirichlet prior is
        the counts of all clusters (Monroe, Colaresi and Quinn, "Fightin' Words", Political Analysis 2008). Only words
        above 1.96 count. A single cluster has no typical words. Equally typical words are in the order of their code
        points."""
        prior: Counter[str] = sum(self.counts.values(), Counter())
        whole = prior.total()
        chosen = {}
        for cluster, counts in self.counts.items():
            size = counts.total()
            scored = []
            for word, count in counts.items():
                both, rest = prior[word], prior[word] - count
                mine, theirs = count + both, rest + both
                odds = math.log(mine / (size + whole - mine)) if size + whole > mine else math.inf
                others = math.log(theirs / (2 * whole - size - theirs)) if 2 * whole - size > theirs else math.inf
                score = (odds - others) / math.sqrt(1 / mine + 1 / theirs) if odds != others else 0.0
                if score > SIGNIFICANT:
                    scored.append((-score, word))
            chosen[cluster] = [word for _, word in sorted(scored)[:words]]
        return chosen


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
