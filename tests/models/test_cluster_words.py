# SPDX-License-Identifier: Apache-2.0
"""Typical words of clusters against the formulas of their source."""

from __future__ import annotations

import math
import random
from collections import Counter
from statistics import NormalDist

import pytest

from curation.models import cluster_words
from curation.models.cluster_words import ClusterWords


def words_of(texts: list[tuple[int, str]], count: int) -> dict[int, list[str]]:
    found = ClusterWords()
    for cluster, text in texts:
        found.add(cluster, text)
    return found.typical(count)


def score(own: Counter[str], others: Counter[str], word: str) -> float:
    """The z-score of a word, by the definition of Monroe et al.: the difference of log odds by its deviation."""
    prior = own + others
    both = sum(prior.values())

    def log_odds(side: Counter[str]) -> float:
        top = side[word] + prior[word]
        return math.log(top / (sum(side.values()) + both - top))

    variance = 1 / (own[word] + prior[word]) + 1 / (others[word] + prior[word])
    return (log_odds(own) - log_odds(others)) / math.sqrt(variance)


def test_typical_words_are_those_of_the_highest_scores():
    chance = random.Random(3)
    names = [f"w{number}" for number in range(60)]
    texts = [
        (k % 3, " ".join(chance.choices(names, [1 + 8 * (n % 3 == k % 3) for n in range(60)], k=40))) for k in range(30)
    ]
    counts = [Counter(word for k, text in texts if k == cluster for word in text.split()) for cluster in range(3)]
    for cluster, found in words_of(texts, 12).items():
        others = sum((counts[k] for k in range(3) if k != cluster), Counter())
        scores = {word: score(counts[cluster], others, word) for word in counts[cluster]}
        expected = sorted(((-z, word) for word, z in scores.items() if z > 1.96))
        assert found == [word for _, word in expected[:12]] and len(expected) > 5
        assert {int(word[1:]) % 3 for word in found} == {cluster}


def test_words_are_in_lower_case_without_marks_around_them_and_common_ones_are_not_typical():
    law, sport = "The «Court», the court's (court) -- 42. " * 40, "The match; the MATCH! naïve… " * 40
    found = words_of([(7, law), (2, sport)], 9)
    assert found == {7: ["court", "42", "court's"], 2: ["match", "naïve"]}
    assert words_of([(0, law), (0, sport)], 9) == {0: []}
    assert words_of([(0, ""), (1, "?!")], 9) == {0: [], 1: []}


def test_the_bound_is_that_of_five_per_cent():
    assert pytest.approx(NormalDist().inv_cdf(0.975), abs=0.001) == cluster_words.SIGNIFICANT
