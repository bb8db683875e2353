# SPDX-License-Identifier: Apache-2.0
"""Kernels that cut the measures by bytes, words and lines: documents at which a cut can go wrong, or a thread long."""

import os
import random
import re

import numpy as np
import pyarrow as pa
import pytest

import cpu_fallback
from curation.base.contract import TEXT
from curation.base.measures import Measure
from gpu_pipeline.kernels import long_repetition_kernels, measure_kernels, repetition_kernels, word_kernels
from tests.conftest import frame_of
from tests.ptx.engine import install_engine, kernels
from tests.ptx.test_kernels import SOME_SEEDS
from tests.ptx.workload import shifted_column

NAMES = tuple(measure.name for measure in Measure)
# Without three of the nine walks of repeated n-grams: for all, a thread of a block takes 123,550 instructions on 2,048
# equal words. That number has a bound: documents of more than LARGE_WORDS words take no block, and
# `test_threads_of_blocks_are_bounded_for_the_densest_documents` has the densest ones of blocks.
FEWER_WALKS = tuple(name for name in NAMES if not re.fullmatch("duplicate_[234]gram_characters", name))
OF_REPETITION = tuple(name for name in NAMES if re.search("gram|distinct|duplicate", name))
SIZE = 1 << 20 if "PTX_ALL_SEEDS" in os.environ else 1 << 15  # bytes of a long document; `make ptx` sets it
PIECE = measure_kernels.LONG_PIECE
LONGEST_THREAD = 100_000
OF_LONG = [kernel.py_func.__name__ for kernel in long_repetition_kernels.SIGNATURES]


def repeated(unit: str, size: int) -> str:
    return unit * (size // len(unit.encode()) + 1)


LONG = {
    "one word": "x" * SIZE,
    "dots": "." * SIZE,
    "a word of dots and letters": repeated("a" + "." * 5000, SIZE),
    "quotes after a full stop": "." + '"' * SIZE,
    "only quotes": repeated("”", SIZE),
    "characters of three bytes, cut anywhere": "a" + repeated("漢", SIZE) + "。”",
    "addresses in one word": repeated("http://www.", SIZE),
    "blank lines": "\n" * SIZE,
    "pairs of line breaks": repeated("\r\n", SIZE) + "\r",
    "white space": " " * SIZE + "end",
    "short words": repeated("a ", SIZE),
    "two words at random": " ".join(random.Random(1).choices("ab", k=SIZE // 2)),
}
OF_A_BLOCK = word_kernels.SMALL_WORDS, word_kernels.MEDIUM_WORDS, word_kernels.LARGE_WORDS
LONG |= {f"{size} equal words": "a " * size for size in OF_A_BLOCK}
DENSE = {f"{size} words of two": " ".join(random.Random(1).choices("ab", k=size)) for size in OF_A_BLOCK}
MOST_DENSE = 400_000  # instructions of a thread, above which no document of a block may go
WORDS = random.Random(2)
WALKED = [f"w{k}" for k in range(700)]  # to overlap, so that each round of the walk settles one passage more
PASSAGE = [f"word{k}" for k in range(20)]  # twice 17 words are 32 pairs that repeat: what one warp takes
CUTS = [
    *("w" * size for size in range(PIECE - 1, PIECE + 2)),
    *("x" * size + "..." for size in range(PIECE - 4, PIECE + 2)),
    *("." * size + " end." for size in range(3 * PIECE - 2, 3 * PIECE + 3)),
    *("." + "é" * (size // 2) + ".”" * 700 for size in range(PIECE - 2, PIECE + 2)),
    *(" " * size + "a\r\n\r\nb\n\nc" for size in range(28, 36)),
    *("a b " * size for size in range(62, 67)),
    *("é" * size for size in range(126, 131)),
    *(" ".join(WORDS.choices("abcd", k=size)) for size in (2, 31, 32, 33, 64, 300, 511, 512, 513, 900)),
    *(" ".join(WORDS.choices("ab", k=size)) for size in (511, 2047, 2048, 2049, 4095, 4096, 4097)),
    *(" ".join([*PASSAGE[:size], "x", *PASSAGE[:size]]) for size in (15, 16, 17, 18, 19)),
    # What one warp takes, of a document that has a larger block
    *(" ".join([*PASSAGE[:17], *map(str, range(size)), *PASSAGE[:17]]) for size in OF_A_BLOCK[:2]),
    # 5-grams that more rounds than a block takes would settle, in a document of each size of block
    *(" ".join([*WALKED[:5], *(w for k in range(n) for w in WALKED[k : k + 6])]) for n in (80, 330, 660)),
    " ".join(["w" * (PIECE + 9) + "."] * 3),
    "see http://www.a.org www.http://b xhttps://é.www.c://d http:// www. end",
    " ".join(f"{'x' * size}www.{'y' * 40}http://{'z' * 40}www.end" for size in range(32)),
    *("\n".join(WORDS.choices("abcd", k=size)) for size in (511, 512, 513)),
    "\n\n".join(("p\nq\nr", "p\nq", "p\r\nq\r\nr", "p\nr\nq", "p\nq\nr")),
    "",
]


def assert_same_measures(engine, column, names=NAMES):
    found, expected = engine.measure(column, names), cpu_fallback.measure(column, names)
    for name in names:
        np.testing.assert_array_equal(found[name], expected[name], name, strict=True)


@pytest.mark.slow("long documents shared by several warps have the CPU engine's measures")
@pytest.mark.parametrize("seed", [5])
def test_measures_of_documents_that_are_cut(monkeypatch, seed):
    engine, _ = install_engine(monkeypatch, seed)
    assert_same_measures(engine, frame_of(engine, [*CUTS, *LONG.values()])[TEXT])


@pytest.mark.slow("no thread of a GPU measures more than its share of a document")
def test_no_thread_is_long(monkeypatch):
    engine, device = install_engine(monkeypatch, None)
    for name, text in LONG.items():
        device.counts = {}
        assert_same_measures(engine, frame_of(engine, [text])[TEXT], FEWER_WALKS)
        longest = {kernel: counts.longest for kernel, counts in device.counts.items()}
        assert max(longest.values()) < LONGEST_THREAD, (name, longest)


@pytest.mark.slow("threads that measure the densest documents take a bounded number of steps")
def test_threads_of_blocks_are_bounded_for_the_densest_documents(monkeypatch):
    """Nearly all n-grams repeat, and the walk takes many rounds."""
    engine, device = install_engine(monkeypatch, None)
    for text in DENSE.values():
        assert_same_measures(engine, frame_of(engine, [text])[TEXT], OF_REPETITION)
    longest = max(device.counts.items(), key=lambda pair: pair[1].longest)
    assert longest[0].startswith("repeat_words") and LONGEST_THREAD < longest[1].longest < MOST_DENSE


REPEATED = {
    "equal words": lambda size: "a " * (size // 2),
    "equal lines": lambda size: "a\n" * (size // 2),
    "two words": lambda size: " ".join(random.Random(1).choices("ab", k=size // 2)),
    "a long period": lambda size: " ".join(f"w{k % 997}" for k in range(size // 5)),
}


@pytest.mark.slow("no GPU thread works longer if words or lines repeat")
def test_no_thread_grows_with_repeated_words_or_lines(monkeypatch):
    engine, device = install_engine(monkeypatch, None)
    monkeypatch.setattr(kernels, "MIN_BLOCKS", 1)  # a thread has as many items in both
    longest = []
    for size in (SIZE, 4 * SIZE):
        device.counts = {}
        assert_same_measures(engine, frame_of(engine, [made(size) for made in REPEATED.values()])[TEXT])
        longest.append({name: device.counts[name].longest for name in OF_LONG})
    small, large = longest
    assert max(large.values()) < LONGEST_THREAD, large
    grown = {name: (small[name], large[name]) for name in OF_LONG if large[name] > 1.5 * small[name] + 100}
    assert not grown


@pytest.mark.slow("the device code measures documents of any length as long ones")
@pytest.mark.parametrize("seed", SOME_SEEDS)
def test_documents_of_any_length_as_long_ones(monkeypatch, seed):
    engine, _ = install_engine(monkeypatch, seed)
    monkeypatch.setattr(repetition_kernels, "SMALL_SLOTS", 0)
    for name in ("SMALL_WORDS", "MEDIUM_WORDS", "LARGE_WORDS"):
        monkeypatch.setattr(word_kernels, name, 0)
    chance = random.Random(seed)
    texts = [" ".join(chance.choices("abc", k=size)) for size in (1, 9, 31, 32, 33, 300, 1500)]
    cuts = CUTS if "PTX_ALL_SEEDS" in os.environ else CUTS[::12]
    assert_same_measures(engine, frame_of(engine, [*texts, *cuts, None])[TEXT], OF_REPETITION)


@pytest.mark.parametrize(("skipped", "shift"), [(0, 0), (0, 3), (1, 0), (3, 5), (5, 1)])
def test_measures_of_any_column(monkeypatch, skipped, shift):
    """Buffers that start anywhere, slices, and bytes under nulls that are not UTF-8."""
    engine, _ = install_engine(monkeypatch, 7)
    pieces = ["x" * 70 + " é\u2003y", "end", "", "漢字 words\u0085of\u00a0all kinds", "start\r", "\na\n" * 40, "…"]
    documents = [text.encode() for text in pieces]
    documents[2:2], documents[6:6] = [b"\xe2\x80 \x80\xf0"], [b"\xff\xfe\xc2"]
    documents.append(b"\xff\xf4\xbf\xe2")
    column = shifted_column(documents, (2, 6, len(documents) - 1), shift)[skipped:]
    assert_same_measures(engine, cpu_fallback.from_arrow(pa.table({TEXT: column}))[TEXT])
