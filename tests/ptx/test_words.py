# SPDX-License-Identifier: Apache-2.0
"""Words of scripts without spaces: the same wherever a thread, a document or a piece of a run begins."""

import random
import sys

import numpy as np
import pyarrow as pa
import pytest

import cpu_fallback
from curation.base.contract import TEXT
from curation.kernels.word_breaks import MAX_SPAN, MAX_TAIL, PIECES, WORDS
from tests.gpu.stand_ins import all_kernels
from tests.parity.test_words import SAMPLES
from tests.ptx.engine import install_engine
from tests.ptx.test_kernels import SEEDS
from tests.ptx.test_text import SIZE
from tests.ptx.workload import UNSPACED, WRAPS, shifted_column

breaking = all_kernels.word_break_kernels
MARKS = "(（“《[)）”。，.-':’!…"
LETTERS = "aé1_ \n\r\t\u200b\u1361\u3000中人アｱกံ\u0e31เ\u1000𠀀가"
# Instructions; most of them search a piece of 256 characters, which a thread does not share
LONGEST_THREAD = 100_000


def assert_same_words(engine, texts) -> None:
    """For texts or a column of them."""
    array = texts if isinstance(texts, pa.Array) else pa.array(texts, pa.large_string())
    text = cpu_fallback.from_arrow(pa.table({TEXT: array}))[TEXT]
    for words in (*WORDS, PIECES):
        (found, wanted), (expected, rows) = (each.split_words(text, words) for each in (engine, cpu_fallback))
        np.testing.assert_array_equal(wanted, rows, words, strict=True)
        for before, actual, right in zip(text[rows].tolist(), found.tolist(), expected.tolist(), strict=True):
            assert actual == right, (words, before)


def texts_of(chance: random.Random, count: int) -> list[str | None]:
    """Short texts in which marks often follow each other and letters, and nulls."""
    texts: list[str | None] = []
    for _ in range(count):
        pieces = []
        for _ in range(chance.randrange(12)):
            pieces.append(chance.choice(LETTERS) * chance.choice((1, 1, 1, 9)))
            kinds = chance.choice((MARKS, MARKS[:5], MARKS[5:]))
            pieces.append("".join(chance.choices(kinds, k=chance.choice((0, 0, 1, 2, MAX_TAIL, MAX_TAIL + 1)))))
            if kinds != MARKS:
                pieces.append("".join(chance.choices(MARKS[:5], k=chance.choice((0, MAX_TAIL, MAX_TAIL + 1)))))
        texts.append(None if chance.random() < 0.05 else "".join(pieces))
    return texts


@pytest.mark.parametrize("seed", SEEDS)
def test_marks_at_any_place(monkeypatch, seed):
    engine, _ = install_engine(monkeypatch, seed)
    assert_same_words(engine, texts_of(random.Random(seed), 400))


@pytest.mark.parametrize("kind", ["中", "(", "a", " ", "\u1361"])
def test_context_of_a_thread(monkeypatch, kind):
    """The marks after a character decide on a word end as far as they can, at each place of 32 bytes."""
    engine, _ = install_engine(monkeypatch, 3)
    after = [m * "." + n * "(" for m in range(MAX_TAIL + 2) for n in range(MAX_TAIL + 2)]
    assert_same_words(engine, ["中" + "x" * k + kind + marks + "中b" for k in range(20, 32) for marks in after])


def test_line_ends_and_hidden_characters_at_any_place(monkeypatch):
    """They wrap a run or end a word, before and after each place of 32 bytes, and where a document ends."""
    engine, _ = install_engine(monkeypatch, 2)
    between = [*WRAPS, *("\u200b" * count for count in (1, MAX_TAIL, MAX_TAIL + 1)), "\u200b\n", ".\n", "\u200b."]
    texts = ["x" * k + "中" + each + "国" + each + "a'" + each + "b" for each in between for k in range(9, 32, 2)]
    texts += ["中" + "." * MAX_TAIL + "\u200b" * MAX_TAIL + "(" + "x" * k + "国(中" for k in range(12)]
    texts += [piece for each in between for piece in ("中" + each, "国", each + "中", "a'" + each, "b")]
    assert_same_words(engine, texts)


def test_runs_of_any_length(monkeypatch):
    """Pieces end at MAX_SPAN characters of three and four bytes, and a thread takes several pieces."""
    monkeypatch.setattr(breaking, "SPAN_THREADS", 3)
    engine, _ = install_engine(monkeypatch, 4)
    sizes = (1, MAX_SPAN - 1, MAX_SPAN, MAX_SPAN + 1, 3 * MAX_SPAN + 2)
    runs = [(unit * size)[:size] for unit in ("中国人民", "ア", "𠀀中", "กา", "\u0e31", "เ") for size in sizes]
    assert_same_words(engine, [*(f"{start}{run}." for run in runs for start in ("", "x")), "".join(runs)])


@pytest.mark.parametrize(("skipped", "shift"), [(0, 0), (0, 3), (1, 0), (3, 5)])
def test_words_of_any_column(monkeypatch, skipped, shift):
    """Buffers that start anywhere, slices, and bytes under nulls that are not UTF-8."""
    engine, _ = install_engine(monkeypatch, 5)
    pieces = [text.encode() for text in ("x " * 30, *SAMPLES, "", "plain (words)", *UNSPACED)]
    pieces[2:2], pieces[6:6] = [b"\xe4\xb8 \x80\xf0"], ["中".encode() + b"\xff\xfe\xf7\xbf\xbf\xbf"]
    pieces.append(b"\xff\xf4\xbf\xe4")
    column = shifted_column(pieces, (2, 6, len(pieces) - 1), shift)[skipped:]
    assert_same_words(engine, column)
    assert_same_words(engine, column[:0])
    assert_same_words(engine, ["", None, ""])


def test_batches(monkeypatch):
    """Documents begin and end within eight bytes of those of other batches."""
    engine, _ = install_engine(monkeypatch, 6)
    columns, split, sizes = sys.modules["gpu_pipeline.columns"], breaking.split_documents, []

    def noted(text, *rest):
        sizes.append(text.offsets.size - 1)
        return split(text, *rest)

    monkeypatch.setattr(breaking, "split_documents", noted)
    monkeypatch.setattr(columns, "MIN_SCRATCH_BYTES", 5000)
    monkeypatch.setattr(columns, "SCRATCH_SHARE", 0)
    assert_same_words(engine, [*SAMPLES, *UNSPACED, *texts_of(random.Random(6), 200)])
    assert len(sizes) > 10 and max(sizes) > 5


def repeated(unit: str) -> str:
    return unit * (SIZE // len(unit.encode()) + 1)


@pytest.mark.slow("no thread of a GPU divides more than its share of a document into words")
def test_no_thread_is_long(monkeypatch):
    """However long a run, a word or a row of marks is."""
    engine, device = install_engine(monkeypatch, None)
    for unit in ("中国人民", "ア", "กา", "\u0e31", "เ", "a", "(", "中(", "中.", "ア中", "((.中"):
        device.counts = {}
        assert_same_words(engine, [repeated(unit), "中"])
        longest = {kernel: counts.longest for kernel, counts in device.counts.items()}
        assert max(longest.values()) < LONGEST_THREAD, (unit, longest)
