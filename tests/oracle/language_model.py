# SPDX-License-Identifier: Apache-2.0
"""N-gram language models in plain Python: interpolated modified Kneser-Ney from lists of words, and scores by an ARPA
file."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from math import log10

SPACES = re.compile(rb"[ \t\r\v\f]+")
Ngram = tuple[str, ...]


def sentences_of(texts: Sequence[str]) -> list[list[str]]:
    lines = [SPACES.split(line.strip(b" \t\r\v\f")) for text in texts for line in text.encode().split(b"\n")]
    return [[word.decode() for word in line] for line in lines if line != [b""]]


def in_bytes(text: str) -> str:
    """Return a text with each byte except line ends as a word of two hexadecimal digits."""
    return "\n".join(" ".join(f"{byte:02x}" for byte in line.encode()) for line in text.split("\n"))


def train(
    texts: Sequence[str], order: int, limits: Sequence[int], closed: frozenset[str] = frozenset()
) -> tuple[dict[Ngram, float], dict[Ngram, float]]:
    """Return the log probability and the back-off weight (log) of each n-gram. `closed`: all words that there can be;
    if it is empty, the words of the texts and `<unk>`."""
    raw: list[Counter[Ngram]] = [Counter() for _ in range(order + 1)]
    left: list[defaultdict[Ngram, set[str]]] = [defaultdict(set) for _ in range(order + 1)]
    for sentence in sentences_of(texts):
        words = ["<s>", *(word for word in sentence if word not in ("<s>", "</s>", "<unk>")), "</s>"]
        if len(words) == 2:
            continue
        for end in range(1, len(words)):
            for n in range(1, min(order, end + 1) + 1):
                ngram = tuple(words[end - n + 1 : end + 1])
                raw[n][ngram] += 1
                if end - n >= 0:
                    left[n][ngram].add(words[end - n])
    adjusted: list[dict[Ngram, int]] = [
        {g: count if n == order or g[0] == "<s>" else len(left[n][g]) for g, count in raw[n].items()}
        for n in range(order + 1)
    ]
    discounts = [_discounts([*adjusted[n].values()]) for n in range(order + 1)]
    vocabulary = closed | {"</s>"} if closed else {word for (word,) in raw[1]} | {"<unk>"}
    total = sum(adjusted[1].values())
    rest = sum(discounts[1][min(a, 3)] for a in adjusted[1].values()) / total / len(vocabulary)
    values: list[dict[Ngram, float]] = [{}, {(word,): rest for word in vocabulary}]
    for g, a in adjusted[1].items():
        values[1][g] += (a - discounts[1][min(a, 3)]) / total
    back_off: dict[Ngram, float] = {}
    for n in range(2, order + 1):
        following: defaultdict[Ngram, list[Ngram]] = defaultdict(list)
        for g in adjusted[n]:
            following[g[:-1]].append(g)
        values.append({})
        for context, ngrams in following.items():
            kept = [g for g in ngrams if raw[n][g] > limits[n - 1]]
            total = sum(adjusted[n][g] for g in ngrams)
            taken = sum(discounts[n][min(adjusted[n][g], 3)] if g in kept else adjusted[n][g] for g in ngrams)
            if kept:
                back_off[context] = log10(taken / total)
            for g in kept:
                own = (adjusted[n][g] - discounts[n][min(adjusted[n][g], 3)]) / total
                values[n][g] = own + taken / total * values[n - 1][g[1:]]
    return {g: log10(p) for level in values for g, p in level.items()}, back_off


def _discounts(counts: Sequence[int]) -> list[float]:
    one, two, three, four = (sum(count == k for count in counts) for k in (1, 2, 3, 4))
    if one and two and three:
        share = one / (one + 2 * two)
        found = [
            0,
            *(
                k - (k + 1) * share * more / less
                for k, less, more in ((1, one, two), (2, two, three), (3, three, four))
            ),
        ]
        if all(0 <= taken <= k for k, taken in enumerate(found)):
            return found
    return [0, 0.5, 1.0, 1.5]


def read_arpa(data: bytes) -> tuple[dict[Ngram, float], dict[Ngram, float]]:
    """Return the log probability and the back-off weight of each n-gram of an ARPA file."""
    probability: dict[Ngram, float] = {}
    back_off: dict[Ngram, float] = {}
    order = 0
    for line in data.decode().split("\n"):
        if line.endswith("-grams:"):
            order = int(line[1:].partition("-")[0])
        elif order and line and not line.startswith("\\"):
            first, words, *rest = line.split("\t")
            probability[tuple(words.split(" "))] = float(first)
            if rest:
                back_off[tuple(words.split(" "))] = float(rest[0])
    return probability, back_off


def score(model: tuple[dict[Ngram, float], dict[Ngram, float]], text: str) -> tuple[float, int, int, int]:
    """Return the sum of the log probabilities of a text, its words, lines, and unknown words."""
    probability, back_off = model
    order = max(map(len, probability))
    total, words, lines, unknown = 0.0, 0, 0, 0
    for sentence in sentences_of([text]):
        history = ["<s>"]
        for word in [*sentence, "</s>"]:
            known = (word,) in probability
            word = word if known else "<unk>"
            context = history[max(len(history) - order + 1, 0) :]
            while (*context, word) not in probability:
                total += back_off.get(tuple(context), 0.0)
                context = context[1:]
            total += probability[(*context, word)]
            history.append(word)
            unknown += word == "<unk>"
        words += len(sentence)
        lines += 1
    return total, words, lines, unknown
