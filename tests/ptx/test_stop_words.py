# SPDX-License-Identifier: Apache-2.0
"""Stop words on the device: the same counts wherever a word, a document or a batch begins."""

import random
import sys

import numpy as np
import pyarrow as pa
import pytest

import cpu_fallback
from curation.base.contract import TEXT
from curation.rules.columns import Texts
from curation.rules.listed import Listed, count_stop_words
from tests.ptx.engine import install_engine
from tests.ptx.test_kernels import SEEDS
from tests.ptx.workload import shifted_column

WORDS = ("a", "the", "eightbyt", "nine bytes".replace(" ", "_"), "x" * 17, "漢字", "🙂", "는", "습니다")
LISTS = {0: WORDS, 3: WORDS[::2], 4: tuple(f"w{number}" for number in range(70))}
LISTED = {number: Listed(words=words, as_="stop_word") for number, words in LISTS.items()}
SPACES = (" ", "\n", "\u3000", "\u2028", "\x1f", "  ", "\r\n")


def texts_of(chance: random.Random, count: int) -> list[bytes]:
    words = [*WORDS, *LISTS[4], "정부는", "있습니다", "thea", "漢", "é" * 9, "\u200b"]
    return [
        "".join(chance.choice(words) + chance.choice(SPACES) for _ in range(chance.randrange(30))).encode()
        for _ in range(count)
    ]


def assert_same_counts(engine, column: pa.LargeStringArray, seed: int = 1) -> None:
    numbers = np.array(random.Random(seed).choices([0, 1, 3, 4, 5, 2**31 - 1], k=len(column)), np.int32)
    text = cpu_fallback.from_arrow(pa.table({TEXT: column}))[TEXT]
    for words in ("spaces", "scripts"):
        found, expected = (
            count_stop_words(Texts(each, lambda: text, len(text)), LISTED, numbers, words)
            for each in (engine, cpu_fallback)
        )
        np.testing.assert_array_equal(found, expected, words, strict=True)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("skipped", "shift"), [(0, 0), (0, 3), (3, 5)])
def test_words_at_any_place(monkeypatch, seed, skipped, shift):
    """Buffers that start anywhere, slices, and bytes under nulls that are not UTF-8."""
    engine, _ = install_engine(monkeypatch, seed)
    pieces = texts_of(random.Random(seed), 60)
    pieces[2:2], pieces[6:6] = [b"\xe4\xb8 \x80\xf0"], [b"the\xff\xfe\xf7\xbf\xbf\xbf"]
    pieces.append(b"the \xf4\xbf\xe4")
    column = shifted_column(pieces, (2, 6, len(pieces) - 1), shift)[skipped:]
    assert_same_counts(engine, column)
    assert_same_counts(engine, column[:0])


def test_a_document_of_several_pieces(monkeypatch):
    """Different words are counted once, though several blocks find them."""
    engine, _ = install_engine(monkeypatch, 3)
    text = " ".join(LISTS[4] * 40)
    numbers = np.array([4, 4], np.int32)
    column = Texts(engine, lambda: cpu_fallback.from_arrow(pa.table({TEXT: [text, "w1 w1"]}))[TEXT], 2)
    assert [counts.tolist() for counts in count_stop_words(column, LISTED, numbers)] == [[70, 1], [2800, 2]]


def test_batches(monkeypatch):
    """Documents begin and end within eight bytes of those of other batches."""
    engine, _ = install_engine(monkeypatch, 6)
    columns, kernels, sizes = (
        *(sys.modules[f"gpu_pipeline.{name}"] for name in ("columns", "kernels.stop_word_kernels")),
        [],
    )
    count = kernels.count_batch

    def noted(*arguments):
        sizes.append(arguments[4].size)
        return count(*arguments)

    monkeypatch.setattr(kernels, "count_batch", noted)
    monkeypatch.setattr(columns, "MIN_SCRATCH_BYTES", 2000)
    monkeypatch.setattr(columns, "SCRATCH_SHARE", 0)
    assert_same_counts(engine, pa.array([text.decode() for text in texts_of(random.Random(6), 150)], pa.large_string()))
    assert len(sizes) > 10 and max(sizes) > 5
