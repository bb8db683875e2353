# SPDX-License-Identifier: Apache-2.0
"""The words that measures look up: stop words of Gopher and English function words, in a perfect hash."""

import numpy as np

from curation.base.measures import ENGLISH_FUNCTION_WORDS, GOPHER_STOP_WORDS
from curation.kernels.cache import kernel
from curation.kernels.hashing import FMIX_1


def word_key(word: str) -> np.uint64:
    """Return a word of at most seven bytes as a uint64: its bytes, little-endian, and its length in the top byte."""
    return np.uint64(int.from_bytes(word.encode(), "little") | len(word) << 56)


CASE_OF_FOUR = np.uint64(0x20202020)  # bit 0x20 is the case of an ASCII letter
LISTED_BITS = 6
NUM_STOP_WORDS = len(GOPHER_STOP_WORDS)
FUNCTION_WORD = 1 << NUM_STOP_WORDS


def list_words() -> tuple[np.uint64, np.ndarray, np.ndarray, np.ndarray]:
    """Return a perfect hash of the listed words. The hash has a multiplier, and per slot (uint64) the key, the key with
    CASE_OF_FOUR, and the word's bits. Each stop word of Gopher has its own bit; English function words share one
    bit."""
    words = list(dict.fromkeys(GOPHER_STOP_WORDS + ENGLISH_FUNCTION_WORDS))
    assert max(map(len, words)) <= 7 and max(map(len, ENGLISH_FUNCTION_WORDS)) <= 4, "a listed word is too long"
    assert len(words) <= 1 << LISTED_BITS, "more listed words than slots"
    keys = np.array([word_key(word) for word in words], np.uint64)
    lower = keys | CASE_OF_FOUR
    bits = [sum(1 << k for k, stop in enumerate(GOPHER_STOP_WORDS) if stop == word) for word in words]
    bits = [bit | FUNCTION_WORD * (word in ENGLISH_FUNCTION_WORDS) for bit, word in zip(bits, words, strict=True)]
    multiplier = FMIX_1
    while len({*(lower * multiplier >> np.uint64(64 - LISTED_BITS)).tolist()}) < len(words):
        multiplier += np.uint64(2)
    tables = np.zeros((3, 1 << LISTED_BITS), np.uint64)
    tables[:, lower * multiplier >> np.uint64(64 - LISTED_BITS)] = keys, lower, np.array(bits, np.uint64)
    return multiplier, *tables


LISTED_MULTIPLIER, LISTED_KEYS, LISTED_LOWER, LISTED = list_words()


@kernel
def listed_bits(key):
    """The bits of a listed word: stop words match exactly, function words in any case. There is no branch, since
    branches on words cannot be predicted."""
    lower = key | CASE_OF_FOUR
    slot = lower * LISTED_MULTIPLIER >> np.uint64(64 - LISTED_BITS)
    written, any_case = int(LISTED_KEYS[slot] == key), int(LISTED_LOWER[slot] == lower)
    return int(LISTED[slot]) & ((FUNCTION_WORD - 1) * written | FUNCTION_WORD * any_case)
