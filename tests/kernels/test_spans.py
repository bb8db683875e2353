# SPDX-License-Identifier: Apache-2.0
"""Records of anchors, nodes and windows find the repeated bytes that a dictionary of windows finds."""

import random
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import pytest

import cpu_fallback
from cpu_fallback import anchor_records, judge_records
from curation.base.contract import Engine
from curation.kernels.spans import CLOSER, KEPT, REPEATED, fill_spans, new_memory, spans_of_mask
from tests.oracle.substring_dedup import repeated_bytes


def buffers(texts: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
    return np.frombuffer(b"".join(texts), np.uint8), np.cumsum([0, *map(len, texts)], dtype=np.int64)


def found_bytes(
    texts: Sequence[bytes], length: int, pieces: int = 1, bits: int = 64, engine: Engine = cpu_fallback
) -> np.ndarray:
    """Whether each byte is repeated, by records. Texts are read in so many pieces, and only so many bits of the first
    number of a record count."""
    data, offsets = buffers(texts)
    mask, memory = np.zeros(len(data), np.uint8), new_memory()
    parts = []
    bounds = np.linspace(0, len(texts), pieces + 1).astype(int).tolist()
    for first, last in pairwise(bounds):
        records, places, spans = engine.anchor_records(data, offsets[first : last + 1], length, memory)
        assert (np.diff(places[:, 0]) > 0).all()
        fill_spans(mask, *spans.T)
        parts.append((records, places))
    records, places = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    for closer in (engine.node_records, engine.window_records, None):
        records[:, 0] &= np.uint64((1 << bits) - 1)
        verdicts = engine.judge_records(records, True)
        repeated = places[verdicts == REPEATED]
        fill_spans(mask, repeated[:, 0], repeated[:, 1] + length)
        if closer:
            records, places = closer(data, places[verdicts == CLOSER], length)
    return mask.astype(bool)


def made_corpus(chance: random.Random) -> list[bytes]:
    """Texts of few letters and phrases, with periods and copies."""
    letters = chance.choice([b"a", b"ab", b"abcd", bytes(range(97, 123))])
    phrases = [bytes(chance.choices(letters, k=chance.randint(1, 40))) for _ in range(chance.randint(1, 8))]
    texts: list[bytes] = []
    for _ in range(chance.randint(1, 12)):
        kind = chance.random()
        if kind < 0.2:
            texts.append(chance.choice(phrases)[: chance.randint(1, 5)] * chance.randint(1, 60))
        elif kind < 0.9:
            some = (chance.choice(phrases)[: chance.randint(1, 40)] for _ in range(chance.randint(0, 12)))
            texts.append(b"".join(some))
        else:
            texts.append(chance.choice([*texts, b""]))
    return texts


def test_records_find_what_a_dictionary_finds_in_500_corpora():
    cut = 0
    for seed in range(500):
        chance = random.Random(seed)
        texts, length = made_corpus(chance), chance.randint(2, 40)
        expected = [byte for mask in repeated_bytes(texts, length) for byte in mask]
        found = found_bytes(texts, length, chance.randint(1, 3), chance.choice([1, 3, 64]))
        assert found.tolist() == expected, seed
        cut += sum(expected)
    assert cut > 50_000


def test_a_long_text_is_hashed_in_chunks():
    """Texts longer than the chunk of hashes, with copies and runs across its end."""
    chance = random.Random(1)
    words = [bytes(chance.choices(b"abcdefgh ", k=300)) for _ in range(40)]
    texts = [b"".join(chance.choices(words, k=90)), b"x" * 20_000, b"".join(chance.choices(words, k=90))]
    expected = [byte for mask in repeated_bytes(texts, 200) for byte in mask]
    assert found_bytes(texts, 200, 2).tolist() == expected


def noise(chance: random.Random, size: int) -> bytes:
    return bytes(chance.choices(b"abcdefghijklmnopqrstuvwxyz     ", k=size))


def morse(size: int) -> bytes:
    text = np.zeros(1, np.uint8)
    while len(text) < size:
        text = np.concatenate([text, 1 - text])
    return (text + 97).tobytes()


def fibonacci(size: int) -> bytes:
    text, longer = b"b", b"a"
    while len(longer) < size:
        text, longer = longer, longer + text
    return longer


def phrases(chance: random.Random, size: int) -> list[bytes]:
    vocabulary = [noise(chance, 150) for _ in range(max(size // 5000, 4))]
    return [b"".join(chance.choices(vocabulary, k=7)) for _ in range(size // 1050)]


def around(chance: random.Random, middle: bytes, size: int) -> list[bytes]:
    return [noise(chance, 200) + middle + noise(chance, 200) for _ in range(size // (400 + len(middle)))]


TRAPS: dict[str, Callable[[random.Random, int], list[bytes]]] = {
    "one byte, one text": lambda chance, size: [b"a" * size],
    "one byte, 1 KB texts": lambda chance, size: [b"a" * 1000] * (size // 1000),
    "period 3": lambda chance, size: [b"abc" * (size // 3)],
    "period 150": lambda chance, size: [noise(chance, 150) * (size // 150)],
    "period 1000": lambda chance, size: [noise(chance, 1000) * (size // 1000)],
    "Thue-Morse": lambda chance, size: [morse(size // 2)],
    "Fibonacci": lambda chance, size: [fibonacci(size // 2)],
    "equal texts": lambda chance, size: [noise(chance, 700)] * (size // 700),
    "a span in each": lambda chance, size: around(chance, noise(random.Random(1), 300), size),
    "a footer in each": lambda chance, size: around(chance, noise(random.Random(1), 150), size),
    "phrases": phrases,
    "random bytes": lambda chance, size: [noise(chance, 2000) for _ in range(size // 2000)],
    "short texts": lambda chance, size: [noise(chance, 199) for _ in range(size // 199)],
}


def check_trap(name: str, size: int) -> int:
    """Compare, and return how many records the anchors have."""
    texts = TRAPS[name](random.Random(7), size)
    expected = [byte for mask in repeated_bytes(texts, 200) for byte in mask]
    assert found_bytes(texts, 200, 3).tolist() == expected
    return len(anchor_records(*buffers(texts), 200, new_memory())[0])


@pytest.mark.parametrize("name", TRAPS)
def test_texts_that_are_hard(name: str):
    records = check_trap(name, 20_000)
    assert records <= 20_000 // 25
    if name.startswith(("one byte", "period")):
        assert records < 100


@pytest.mark.slow("substring_dedup finds what a dictionary finds in 300 KB of each hard text")
@pytest.mark.parametrize("name", TRAPS)
def test_longer_texts_that_are_hard(name: str):
    assert check_trap(name, 300_000) <= 300_000 // 40


def test_spans_of_a_mask_end_with_their_text():
    mask = np.array([1, 1, 0, 1, 1, 1, 0, 0, 1, 1], np.uint8)
    offsets = np.array([0, 5, 5, 6, 10])
    assert spans_of_mask(mask, offsets, 1, 0).tolist() == [[0, 0, 2], [0, 3, 5], [2, 5, 6], [3, 8, 10]]
    assert spans_of_mask(mask, offsets, 1, 1).tolist() == [[0, 0, 5], [2, 5, 6], [3, 8, 10]]


def test_texts_without_windows():
    for texts in ([], [b""], [b"a" * 199, b""]):
        records, places, spans = anchor_records(*buffers(texts), 200, new_memory())
        assert (len(records), len(places), len(spans)) == (0, 0, 0)


def test_verdicts_about_records():
    records = np.array([[1, 5, 5], [2, 5, 5], [1, 5, 5], [1, 5, 6], [3, 9, 9], [3, 9, 9], [1, 5, 5]], np.uint64)
    assert judge_records(records, True).tolist() == [CLOSER, KEPT, REPEATED, CLOSER, KEPT, REPEATED, REPEATED]
    assert judge_records(records, False).tolist() == [CLOSER, CLOSER, REPEATED, CLOSER, CLOSER, REPEATED, REPEATED]
    assert judge_records(records[:, :2].copy(), True).tolist() == [KEPT, KEPT, 1, 1, KEPT, 1, 1]
    assert judge_records(records[:0], True).tolist() == []
