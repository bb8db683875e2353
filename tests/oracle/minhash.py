# SPDX-License-Identifier: Apache-2.0
"""N-grams, exact Jaccard and MinHash in plain Python: sets and integers."""

import numpy as np

MASK = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15
FMIX_1, FMIX_2 = 0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53


def mix(x: int) -> int:
    x = (x ^ x >> 33) * FMIX_1 & MASK
    x = (x ^ x >> 33) * FMIX_2 & MASK
    return x ^ x >> 33


def combine(left: int, right: int) -> int:
    x = left * FMIX_1 + right & MASK
    x = (x ^ x >> 32) * GOLDEN & MASK
    return x ^ x >> 29


def hash_word(word: str) -> int:
    data = word.encode()
    whole = len(data) // 8 * 8
    state = 0
    for i in range(0, whole, 8):
        state = combine(state + 1 & MASK, int.from_bytes(data[i : i + 8], "big"))
    return mix(combine(state, int.from_bytes(data[whole:], "big")) + len(data) * GOLDEN & MASK)


def hash_character(char: str) -> int:
    return mix(ord(char) + GOLDEN & MASK)


def shingles(text: str, ngram: int, by_character: bool) -> set[int]:
    """The hashes of all n-grams; a text with fewer items than `ngram` is one n-gram."""
    return set(all_shingles(text, ngram, by_character))


def all_shingles(text: str, ngram: int, by_character: bool = False) -> list[int]:
    """As `shingles`, one after the other as they stand in the text."""
    items = list(map(hash_character, text)) if by_character else list(map(hash_word, text.split()))
    found = []
    for start in range(max(len(items) - ngram + 1, 1) if items else 0):
        value = 0
        for item in items[start : start + ngram]:
            value = value * GOLDEN + item & MASK
        found.append(mix(value))
    return found


def ngrams(text: str, ngram: int) -> set[tuple[str, ...]]:
    """The word n-grams themselves."""
    words = text.split()
    return {tuple(words[k : k + ngram]) for k in range(max(len(words) - ngram + 1, 1) if words else 0)}


def jaccard(left: set, right: set) -> float:
    return len(left & right) / len(left | right)


def signature(hashes: set[int], a: np.ndarray, b: np.ndarray) -> list[int]:
    return [
        min(((int(a_k) * (x >> 32) + int(b_k)) % 2**32 for x in hashes), default=2**32 - 1)
        for a_k, b_k in zip(a, b, strict=True)
    ]


def band_key(numbers: list[int]) -> int:
    if all(number == 2**32 - 1 for number in numbers):
        return 0
    key = len(numbers) * FMIX_1 & MASK
    for number in numbers:
        key = combine(key, number)
    return mix(key) or 1


def labels(edges: list[tuple[int, int]], rows: int) -> list[int]:
    """The smallest row that each is connected with."""
    label = list(range(rows))
    changed = True
    while changed:
        changed = False
        for left, right in edges:
            low = min(label[left], label[right])
            changed |= label[left] != low or label[right] != low
            label[left] = label[right] = low
    return label
