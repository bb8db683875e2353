# SPDX-License-Identifier: Apache-2.0
"""Models of bytes against a plain implementation of modified Kneser-Ney with dictionaries."""

import math
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curation.kernels.byte_ngrams import ORDER
from curation.models.discounts import FALLBACK
from curation.tools.ablation.byte_model import LEAST, UNITS, ByteModel, HeldOut

START = b"\xff" * (ORDER - 1)
RECORDED = [218539, 38022474, 0]
TEXTS = st.lists(st.text(st.sampled_from("ab \né"), max_size=40), min_size=1, max_size=6)


def array(texts: list[str]) -> pa.LargeStringArray:
    return pa.array(texts, pa.large_string())


class Oracle:
    """Counts by order, from the definition of Chen and Goodman (1998)."""

    def __init__(self, texts: list[str]) -> None:
        padded = [START + text.encode() for text in texts]
        longest = Counter(text[i : i + ORDER] for text in padded for i in range(len(text) - ORDER + 1))
        self.counts = {ORDER: longest}
        for order in range(ORDER - 1, 0, -1):
            self.counts[order] = Counter(ngram[1:] for ngram in self.counts[order + 1])
        self.discounts = {order: self.discounts_of(counts) for order, counts in self.counts.items()}

    @staticmethod
    def discounts_of(counts: Counter[bytes]) -> tuple[float, ...]:
        n = [sum(count == k for count in counts.values()) for k in range(5)]
        if not (n[1] and n[2] and n[3]):
            return FALLBACK
        y = n[1] / (n[1] + 2 * n[2])
        return tuple(max(k - (k + 1) * y * n[k + 1] / n[k], LEAST[k - 1]) for k in (1, 2, 3))

    def probability(self, context: bytes, byte: int, order: int = ORDER) -> float:
        if order == 0:
            return 1 / 256
        lower = self.probability(context, byte, order - 1)
        context = context[len(context) - order + 1 :]
        seen = {ngram[-1]: count for ngram, count in self.counts[order].items() if ngram[:-1] == context}
        if not seen:
            return lower
        taken = {symbol: self.discounts[order][min(count, 3) - 1] for symbol, count in seen.items()}
        left = seen.get(byte, 0) - taken.get(byte, 0.0)
        return (left + sum(taken.values()) * lower) / sum(seen.values())

    def bits(self, text: str) -> float:
        padded = START + text.encode()
        return sum(-math.log2(self.probability(padded[i - 7 : i], padded[i])) for i in range(7, len(padded)))


@given(TEXTS, TEXTS)
def test_bits_are_those_of_the_definition(texts: list[str], held_out: list[str]):
    bits = ByteModel(array(texts)).bits(HeldOut.of(array(held_out)))
    oracle = Oracle(texts)
    for text, found in zip(held_out, bits.tolist(), strict=True):
        assert found / UNITS == pytest.approx(oracle.bits(text), abs=1e-6 * (len(text.encode()) + 1))


def test_the_probabilities_after_a_context_add_up_to_1():
    model = ByteModel(array(["the cat sat on the mat", "the dog sat on the cat", "ein Tag"]))
    for context in (b"the cat", b"\xff\xff\xff\xffthe", START, b"unknown", b"\x00" * 7):
        keys = np.sort(np.array([int.from_bytes(context[::-1] + bytes([k]), "big") for k in range(256)], np.uint64))
        assert model.probabilities(keys).sum() == pytest.approx(1, abs=1e-12)


@given(TEXTS, st.randoms(use_true_random=False))
def test_the_order_of_training_texts_does_not_matter(texts: list[str], random):
    held_out = HeldOut.of(array(["ab é", "b a\n"]))
    bits = ByteModel(array(texts)).bits(held_out)
    random.shuffle(texts)
    assert ByteModel(array(texts)).bits(held_out).tolist() == bits.tolist()


def test_texts_may_be_a_slice_of_a_larger_array():
    texts = array(["left out", "abab", "abba", "left out"])
    bits = ByteModel(texts[1:3]).bits(HeldOut.of(array(["x", "aab"])[1:]))
    assert bits.tolist() == ByteModel(array(["abab", "abba"])).bits(HeldOut.of(array(["aab"]))).tolist()


def test_bits_have_recorded_values():
    """Every machine computes the same integers."""
    bits = ByteModel(array(["the cat sat on the mat"])).bits(HeldOut.of(array(["the cat", "a dog", ""])))
    assert bits.tolist() == RECORDED
