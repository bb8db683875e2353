# SPDX-License-Identifier: Apache-2.0
"""The scan by masks gives the measures, words and lines of the oracle, on every processor."""

import os
import platform
import random
import subprocess
import sys
import unicodedata
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from llvmlite import binding

from cpu_fallback import vector_scan
from cpu_fallback.buffers import buffers_of
from curation.base.measures import NUM_MEASURES, Measure, WantedScan
from curation.kernels import tables
from curation.kernels.cache import WHEEL_CPU, WHEEL_FEATURES
from curation.kernels.words import character_lanes
from tests.corpus import NASTY, document_lists
from tests.oracle.measures import are_prose, measure_text, paragraphs_of

ROOT = Path(__file__).resolve().parents[2]
UNICODE = tables.load_tables()
LANES, _ = character_lanes(UNICODE)


class Scanned(NamedTuple):
    word_hash: np.ndarray
    word_end: np.ndarray
    line_mark: np.ndarray
    measures: np.ndarray


def scan(data: np.ndarray, start: int, end: int) -> Scanned:
    """The results of the scan of data[start:end]."""
    items = (end - start) // 2 + 1
    word_hash, word_end, line_hash, line_mark = (np.zeros(items, kind) for kind in (np.uint64, np.int64) * 2)
    out = np.zeros((NUM_MEASURES, 1), np.int64)
    results = word_hash, word_end, line_hash, line_mark, np.zeros(end - start + 1, np.int32), out, 0
    positions = vector_scan.allocate_positions(end - start)
    words, lines = vector_scan.scan_document(
        data, start, end, *UNICODE[:4], LANES, (True,) * len(WantedScan._fields), True, positions, *results
    )
    return Scanned(word_hash[:words], word_end[:words], line_mark[:lines], out[:, 0])


def line_marks(text: str) -> list[int]:
    """Four times the characters of each text line, plus 2 for a line of prose and 1 for the first of a paragraph."""
    lines = [(line, k == 0) for run in paragraphs_of(text) for k, line in enumerate(run)]
    prose = are_prose([line for line, _ in lines])
    return [4 * len(line) + 2 * own + first for (line, first), own in zip(lines, prose, strict=True)]


def assert_defined(texts: list[str]) -> None:
    """The scan gives what the oracle gives, and different words have different hashes."""
    data, offsets, _ = buffers_of(pd.Series(texts, dtype="str"))
    hash_of: dict[str, int] = {}
    for text, start, end in zip(texts, offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
        expected, actual, words = measure_text(text), scan(data, start, end), text.split()
        wrong = [name for name, value in expected.items() if actual.measures[Measure[name]] != value]
        assert not wrong, text
        assert actual.word_end.tolist() == list(accumulate(map(len, words))), text
        assert actual.line_mark.tolist() == line_marks(text), text
        for word, hashed in zip(words, actual.word_hash.tolist(), strict=True):
            assert hash_of.setdefault(word, hashed) == hashed, (word, text)
    assert len(set(hash_of.values())) == len(hash_of)


PIECES = [
    *("a", "B", ".", "...", "....", "é", "\u3000", "\u2028", "\u0085", "…", "⟨", "\n", "\r\n", "\r", " ", " ", " "),
    *("x" * 7, "y" * 8, "z" * 9, "the", "The", "with", "www.", "http://", "https://", '"', ")", "?", "漢", "🙂", ".”"),
    *("»", "\x1c", "#", "-", "*", "•", "\x00", "the\x00", "have"),
]


def test_documents_that_end_around_a_block():
    assert_defined(
        [
            before * size + piece + after
            for size in (*range(52, 70), *range(124, 131))
            for before in ("x", " ", "é")
            for piece in PIECES
            for after in ("", " y")
        ]
    )


def test_pieces_at_every_position_of_a_block():
    dice = random.Random(7)
    assert_defined(["".join(dice.choices(PIECES, k=dice.randrange(150))) for _ in range(1000)])
    assert_defined(["".join(map(chr, dice.choices(range(128), k=dice.randrange(300)))) for _ in range(300)])
    noise = [bytes(dice.choices(range(256), k=300)).decode(errors="ignore") for _ in range(300)]
    # Python's own tables may be older than ours: what they do not know is left out.
    assert_defined(["".join(char for char in text if unicodedata.category(char) != "Cn") for text in noise])


@pytest.mark.slow("hostile texts are scanned alike together and alone")
def test_nasty_corpus_together_and_alone():
    assert_defined(NASTY)
    for text in NASTY[::5]:
        assert_defined([text])


@given(document_lists())
def test_generated_documents(texts: list[str]):
    assert_defined(texts)


@pytest.mark.slow("masks are made without reading bytes behind the data")
def test_bytes_behind_the_data_are_not_read():
    """The last page of an array is followed by one that cannot be read: a read there would end the process."""
    code = f"""
import ctypes, mmap, sys
import numpy as np
sys.path.insert(0, {str(ROOT)!r})
from tests.kernels.test_vector_scan import *
memory = mmap.mmap(-1, 2 * mmap.PAGESIZE)
pages = np.frombuffer(memory, np.uint8)
assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(pages.ctypes.data + mmap.PAGESIZE), mmap.PAGESIZE, 0) == 0
for size in (1, 7, 8, 9, 63, 64, 65, 100, 128):
    data = pages[mmap.PAGESIZE - size : mmap.PAGESIZE]
    data[:] = np.frombuffer((b"word of seven a " * 9)[:size], np.uint8)
    data.setflags(write=False)
    scanned = scan(data, 0, size)
print("read", scanned.measures[Measure.bytes])
"""
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert finished.stdout == "read 128\n", (finished.returncode, finished.stderr)


MASKS = """
import numpy as np
from cpu_fallback.masks import append_positions, class_masks, fold_product, mark_masks, text_masks
from curation.kernels.cache import kernel

@kernel
def masks_of(data, position, out, positions):
    text, classes, marks = text_masks(data, position), class_masks(data, position), mark_masks(data, position)
    for k in range(7):
        out[k] = text[k]
    for k in range(4):
        out[7 + k] = classes[k]
    for k in range(5):
        out[11 + k] = marks[k]
    out[16] = fold_product(np.uint64(2**63 + 5), np.uint64(2**62 + 3))
    return append_positions(text[0], position, positions, 0)

data = np.array([(7 * k + 64) % 256 for k in range(300)], np.uint8)
for position in (0, 64, 128, 192, 236, 299):
    out, positions = np.zeros(17, np.uint64), np.zeros(80, np.int64)
    count = masks_of(data, position, out, positions)
    print(*out, *positions[:count])
"""
LEVELS = {"x86-64-v2": ("sse4.2", "popcnt"), WHEEL_CPU: WHEEL_FEATURES, "x86-64-v4": ("avx512bw", "avx512vl")}


def expected_masks() -> str:
    """The output of MASKS, from the Unicode database of Python."""
    data = [(7 * k + 64) % 256 for k in range(300)]
    classes = (
        lambda c: c.isspace(),
        lambda c: c != "\x1f" and len(f"a{c}b".splitlines()) == 2,
        str.isalpha,
        None,
        None,
        ".".__eq__,
        "#".__eq__,
        str.isdecimal,
        str.isupper,
        lambda c: unicodedata.category(c).startswith("P"),
        "()[]{}".__contains__,
        ".!?".__contains__,
        lambda c: c in "\"')]}",
        ":".__eq__,
        "/".__eq__,
        "w".__eq__,
    )
    lines = []
    for position in (0, 64, 128, 192, 236, 299):
        block = data[position : position + 64] + [0] * (64 - len(data[position : position + 64]))
        bits = [[byte < 128 and bool(kind and kind(chr(byte))) for byte in block] for kind in classes]
        bits[3] = [byte >= 0x80 for byte in block]
        bits[4] = [0x80 <= byte < 0xC0 for byte in block]
        bits[12] = [closes or byte >= 0x80 for closes, byte in zip(bits[12], block, strict=True)]
        masks = [sum(1 << k for k, bit in enumerate(mask) if bit) for mask in bits]
        product = (2**63 + 5) * (2**62 + 3)
        positions = [position + k for k, bit in enumerate(bits[0]) if bit]
        lines.append(" ".join(map(str, (*masks, product >> 64 ^ product % 2**64, *positions))))
    return "\n".join(lines) + "\n"


@pytest.mark.slow("masks are the same on every level of processor")
@pytest.mark.parametrize("level", [None, *LEVELS])
def test_masks_on_every_level_of_processor(level: str | None, tmp_path: Path):
    features = LEVELS.get(level or "", ())
    if level and (platform.machine() != "x86_64" or not all(map(binding.get_host_cpu_features().get, features))):
        pytest.skip(f"this processor is not of the level {level}")
    chosen = {"NUMBA_CPU_NAME": level, "NUMBA_CPU_FEATURES": ",".join(f"+{name}" for name in features)} if level else {}
    environment = os.environ | chosen | {"NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    (tmp_path / "masks.py").write_text(MASKS)
    command = [sys.executable, tmp_path / "masks.py"]
    finished = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (finished.stdout, finished.stderr) == (expected_masks(), "")
