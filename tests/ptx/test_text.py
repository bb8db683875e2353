# SPDX-License-Identifier: Apache-2.0
"""Kernels that cut checks and rewriting by bytes: the same results wherever a document or a character begins."""

import os
import random
import sys

import numpy as np
import pyarrow as pa
import pytest
import unicodedata2

import cpu_fallback
from cpu_fallback import normal_forms
from curation.base.contract import TEXT
from curation.kernels import tables
from curation.kernels.normalization import normalize_spans
from curation.kernels.rewrite import FORM_FLAGS, RewriteSteps
from curation.kernels.units import UNITS
from curation.stages.exact.unit_keys import COMPARISONS, UnitSettings, unit_keys
from tests.corpus import NASTY, assigned_characters
from tests.gpu.stand_ins import eight_byte_blocks, text_kernels
from tests.kernels import test_normalization
from tests.ptx.engine import install_engine
from tests.ptx.test_kernels import ORDERS, SEEDS
from tests.ptx.workload import ALL_STEPS, made_texts, rewritten, shifted_column
from tests.stages import test_rewrite

WELL_FORMED = [text.encode() for text in ("a", "é", "漢", "𐐀", "\U0010ffff", "\ud7ff", "\ue000", "\u0800", "\x7f")]
MALFORMED = [
    b"\x80", b"\xbf\xbf", b"\xc0\x80", b"\xc1\xbf", b"\xe0\x80\x80", b"\xe0\x9f\xbf", b"\xed\xa0\x80", b"\xed\xbf\xbf",
    b"\xf0\x80\x80\x80", b"\xf0\x8f\xbf\xbf", b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80", b"\xff", b"\xfe",
    b"\xe6\xbc\xa2\xa2", b"\xc3\xc3\xa9", b"\xf0\x90\xf0\x90\x90\x80", b"\xe6a\xa2", b"\xf0\x90\x90a",
]  # fmt: skip


def is_utf8(document: bytes) -> bool:
    try:
        document.decode()
    except UnicodeDecodeError:
        return False
    return True


def byte_documents(seed: int) -> list[bytes]:
    """Well-formed and malformed sequences, and every truncation of them, at every place of a block."""
    chance = random.Random(seed)
    pieces = [*WELL_FORMED, *MALFORMED]
    pieces += [piece[:size] for piece in pieces for size in range(1, len(piece))]
    pieces += [piece[size:] for piece in pieces for size in range(1, len(piece))]
    padded = [b"x" * chance.randrange(9) + piece + b"y" * chance.randrange(9) for piece in pieces for _ in range(8)]
    mixed = [b"".join(chance.choices([*WELL_FORMED * 9, *pieces], k=chance.randrange(60))) for _ in range(200)]
    documents = [*pieces, *padded, *mixed, b"", b""]
    chance.shuffle(documents)
    return documents


def arrays_of(documents, nulls, skipped):
    """Arguments of the checks, and the valid rows, for the documents without the first `skipped` ones."""
    offsets = np.cumsum([0, *map(len, documents)])[skipped:]
    valid = np.array([number not in nulls for number in range(len(documents))])[skipped:]
    data = np.frombuffer(b"".join(documents), np.uint8)
    return data, eight_byte_blocks(data), offsets, valid


@pytest.mark.parametrize("skipped", [0, 5])
@pytest.mark.parametrize("seed", SEEDS)
def test_utf8(monkeypatch, seed, skipped):
    install_engine(monkeypatch, seed)
    documents = byte_documents(seed)
    nulls = random.Random(seed).sample(range(len(documents)), 50)
    found = text_kernels.sound_documents(*arrays_of(documents, nulls, skipped))
    expected = [number in nulls or is_utf8(document) for number, document in enumerate(documents)]
    assert found.tolist() == expected[skipped:]


MARKS = [
    "\u0301",
    "\u0323",
    "\u0345",
    "\u0334",
    "e",
    "é",
    "\u1161",
    "\uac00",
    "漢",
    "𐐀",
    "ﬁ",
    "\xa0",
    " ",
    "\U0001611e",
]


@pytest.mark.parametrize("seed", SEEDS[:2])
@pytest.mark.parametrize("form", FORM_FLAGS)
def test_spans_of_normal_forms(monkeypatch, form, seed):
    """The spans that come from the device are those of the CPU engine, wherever documents and characters begin. Nulls,
    some of which have bytes that are no characters, have none."""
    install_engine(monkeypatch, seed)
    module = sys.modules["gpu_pipeline.normal_forms"]
    chance = random.Random(seed)
    texts = ["x" * chance.randrange(9) + "".join(chance.choices(MARKS, k=chance.choice((0, 1, 2, 3, 5, 8))))
             for _ in range(600)]  # fmt: skip
    documents = [text.encode() for text in texts]
    nulls = [*chance.sample(range(len(documents)), 50), len(documents)]
    for number in nulls[:-1]:
        documents[number] = chance.choice([b"\xcc", b"\xf4\xbf\xbf\xbf", b"\xff\x81", "\u0301".encode()])
    documents.append(b"\xe2\x80")
    data, _, offsets, valid = arrays_of(documents, nulls, 3)
    unicode = tables.load_tables()
    properties = *unicode[:3], unicode.combining
    spans, firsts = normal_forms.find_spans(data, offsets, valid, FORM_FLAGS[form], *properties)
    expected = np.empty(int((spans[:, 1] - spans[:, 0]).sum()) + len(spans), np.uint8)
    normal_forms.join_spans(data, spans, expected)
    joined = []

    def recorded(spans_of_batch, count, form):
        joined.append(bytes(spans_of_batch))
        return normalize_spans(spans_of_batch, count, form)

    monkeypatch.setattr(module, "normalize_spans", recorded)
    lengths = np.where(valid, np.diff(offsets), 0)
    column = module.TextColumn(data, offsets, valid, valid, lengths, np.zeros(0, np.int64), int(lengths.sum()))
    for batch_bytes in (1 << 24, 5000):
        monkeypatch.setattr(sys.modules["gpu_pipeline.columns"], "MIN_SCRATCH_BYTES", batch_bytes)
        monkeypatch.setattr(sys.modules["gpu_pipeline.columns"], "SCRATCH_SHARE", 0)
        joined.clear()
        rows, normal = module.normalised_documents(column, form, properties)
        assert b"".join(joined) == expected.tobytes() and (len(joined) > 1) == (batch_bytes == 5000)
        for row, start, end in zip(rows, normal.offsets[:-1], normal.offsets[1:], strict=True):
            text = documents[row + 3].decode()
            assert normal.data[start:end].tobytes().decode() == unicodedata2.normalize(form.upper(), text) != text
        changed = [row for row in np.flatnonzero(valid) if is_changed(documents[row + 3].decode(), form)]
        assert rows.tolist() == changed and 50 < len(changed) < np.count_nonzero(np.diff(firsts)) < 550


def is_changed(text: str, form: str) -> bool:
    return unicodedata2.normalize(form.upper(), text) != text


@pytest.mark.parametrize("form", FORM_FLAGS)
def test_normal_forms_of_adversarial_texts(monkeypatch, form):
    engine, _ = install_engine(monkeypatch, 3)
    assert_same_texts(engine, [*test_normalization.adversarial_texts(2000, 4), None, ""], RewriteSteps(unicode=form))


# Rewriting

PIECES = [*"<<<>> \n\n\r\taAbZ.,!?#'1٣·:ΣΣΣİ\u0301\xa0\u3000\u2028\x85\x00\x7f\x1c中Ⱥ\U0001d7ce’²\xadǅẞ\ue000𐐀", "word"]
SIZE = 1 << 20 if "PTX_ALL_SEEDS" in os.environ else 1 << 13  # bytes of a long document; `make ptx` sets it
LONGEST_THREAD = 9000  # of any document; the goal was 100,000. In longer texts a thread takes eight blocks


def texts_of(chance: random.Random, count: int) -> list[str | None]:
    """Short texts of what the steps treat, with runs of it, and nulls."""
    texts: list[str | None] = []
    for _ in range(count):
        runs = (1, 1, 1, 7, 40) if chance.random() < 0.3 else (1,)
        pieces = [chance.choice(PIECES) * chance.choice(runs) for _ in range(chance.randrange(30))]
        texts.append(None if chance.random() < 0.03 else "".join(pieces))
    return texts


def assert_same_texts(engine, texts, steps):
    found, expected = (rewritten(each, texts, steps) for each in (engine, cpu_fallback))
    for text, actual, wanted in zip(texts, found[0], expected[0], strict=True):
        assert actual == wanted, (steps, text)
    np.testing.assert_array_equal(found[1], expected[1], str(steps), strict=True)


@pytest.mark.parametrize(
    ("seed", "capability"),
    [
        ORDERS[0],
        *(
            pytest.param(
                *order, marks=pytest.mark.slow("the device code rewrites texts alike in other orders of threads")
            )
            for order in ORDERS[1:]
        ),
    ],
    ids=str,
)
def test_rewriting(monkeypatch, seed, capability):
    engine, _ = install_engine(monkeypatch, seed, capability)
    chance = random.Random(f"{seed} {capability}")
    for steps in [ALL_STEPS, *chance.sample(test_rewrite.ALL_STEPS[1:], 15)]:
        assert_same_texts(engine, texts_of(chance, 300), steps)


@pytest.mark.parametrize(
    "steps", [*test_rewrite.SINGLE[2:], RewriteSteps(lowercase=True)], ids=lambda s: "-".join(map(str, s))
)
def test_each_step_alone(monkeypatch, steps):
    engine, _ = install_engine(monkeypatch, 3)
    assert_same_texts(engine, [*test_rewrite.TEXTS, None, "x" * 5000], steps)


@pytest.mark.slow("every character is rewritten on the device as on the CPU")
def test_every_character(monkeypatch):
    engine, _ = install_engine(monkeypatch, 4)
    every = list(assigned_characters())
    texts = ["".join(f"a{char}" for char in every[k : k + 3000]) for k in range(0, len(every), 3000)]
    for steps in (
        RewriteSteps(lowercase=True, whitespace="collapse"),
        RewriteSteps(characters="folded", lowercase=True),
        RewriteSteps(characters="visible", lowercase=True),
    ):
        assert_same_texts(engine, texts, steps)


def repeated(unit: str) -> str:
    return unit * (SIZE // len(unit.encode()) + 1)


LONG = {
    "blanks": repeated(" "),
    "blanks between words": "a" + repeated(" ") + "b",
    "blanks with line feeds": "a" + repeated(" \n ") + "b",
    "line feeds": repeated("\n") + "end",
    "opening brackets": repeated("<"),
    "opening brackets, closed": repeated("<") + ">",
    "tags": repeated("<b>"),
    "empty tags": repeated("<>"),
    "one tag": "<" + repeated("x") + ">",
    "closing brackets": repeated(">") + "<b>",
    "controls": "a " + repeated("\x00") + " b",
    "ignorable characters around sigmas": "ΑΣ" + repeated("'") + "ΣΑ" + repeated("\u0301") + "Σ",
    "sigmas": repeated("Σ"),
    "characters that grow": repeated("İȺ"),
    "ideographic spaces": "x" + repeated("\u3000"),
    "marks in any order": "a" + repeated("\u0301\u0323\u0345"),
    "accents that compose": repeated("e\u0301"),
    "words": repeated("Some WORDS, and <b>1</b> tag.\n"),
}
MANY_STEPS = [
    RewriteSteps("nfc", "brackets", "strip_all", "keep", True, "collapse"),
    RewriteSteps("keep", "brackets_line", "keep", "keep", True, "lines"),
    RewriteSteps("keep", "keep", "strip", "folded", True, "strip"),
    RewriteSteps("keep", "keep", "keep", "visible", True, "keep"),
    RewriteSteps(spaceless=True),
    RewriteSteps(characters="folded", lowercase=True, spaceless=True),
]


@pytest.mark.slow("no thread of a GPU rewrites more than its share of a document")
@pytest.mark.parametrize("steps", MANY_STEPS, ids=lambda steps: "-".join(map(str, steps)))
def test_no_thread_is_long(monkeypatch, steps):
    engine, device = install_engine(monkeypatch, None)
    for name, text in LONG.items():
        device.counts = {}
        assert_same_texts(engine, [text], steps)
        longest = {kernel: counts.longest for kernel, counts in device.counts.items()}
        assert max(longest.values()) < LONGEST_THREAD, (name, longest)


EDGES = [1, 2, 7, 8, 9, *(32 * words + k for words in (1, 7, 8, 9, 31, 32, 33) for k in (-2, -1, 0, 1))]
RUNS = [
    lambda n: "a" + " " * n + "b",
    lambda n: "a" + "\n" * n + "b",
    lambda n: " " * n + "a\n" + " " * n,
    lambda n: "a" + "\x00" * n + " \n b",
    lambda n: "<" + "x" * n + "> y <b" + "<" * n,
    lambda n: "<" * n + "a>" + ">" * n + "<a>b",
    lambda n: "Α" + "'" * n + "Σ" + "'" * n + "Α Σ",
    lambda n: "Α" + "." * n + "Σ" + "\u0301" * n + " ",
    lambda n: "x" * n + "ȺİǅΣ’\u3000½𐐀éX",
    lambda n: "y" * n + "ẞX" + "Ⱥ" * n,
]


@pytest.mark.slow("the device code rewrites runs that end at words, chunks and warps")
@pytest.mark.parametrize("steps", [ALL_STEPS, *MANY_STEPS], ids=lambda steps: "-".join(map(str, steps)))
def test_runs_that_end_at_words_chunks_and_warps(monkeypatch, steps):
    """Stops, tags and sigmas are found across words of 32 bytes, eight words and 32 words."""
    engine, _ = install_engine(monkeypatch, 5)
    texts = [run(n) for n in EDGES for run in RUNS]
    assert_same_texts(engine, texts, steps)
    for run in RUNS:
        assert_same_texts(engine, [run(n) for n in EDGES if n > 200], steps)


@pytest.mark.parametrize(("skipped", "shift"), [(0, 0), (0, 3), (1, 0), (3, 5), (5, 1)])
def test_rewriting_of_any_column(monkeypatch, skipped, shift):
    """Buffers that start anywhere, slices, and bytes under nulls that are not UTF-8."""
    engine, _ = install_engine(monkeypatch, 7)
    pieces = ["x " * 70 + " é\u2003y", "<i", "", "漢字 <words\u0085of> e\u0301\u00a0all", "> ΑΣ", "\na\n" * 40, "Σ"]
    documents = [text.encode() for text in pieces]
    documents[2:2], documents[6:6] = [b"\xe2\x80 <\x80\xf0"], [b"\xff\xce\xa3\xfe\xc2"]
    documents.append(b"\xff\xf4\xbf\xe2")
    column = shifted_column(documents, (2, 6, len(documents) - 1), shift)[skipped:]
    frame = cpu_fallback.from_arrow(pa.table({TEXT: column}))
    for steps in (ALL_STEPS, *MANY_STEPS, RewriteSteps(unicode="nfc")):
        found, expected = (each.rewrite(frame[TEXT], steps) for each in (engine, cpu_fallback))
        assert found[0].tolist() == expected[0].tolist(), steps
        assert found[1].tolist() == expected[1].tolist(), steps


@pytest.mark.parametrize("compare", COMPARISONS)
def test_keys_of_units(monkeypatch, compare):
    """Rows over the bytes of texts, with a null between two of them, which has bytes."""
    engine, _ = install_engine(monkeypatch, 3)
    texts = [*made_texts(3), *(text for text in NASTY if len(text) < 100), None]
    column = pa.array(["before", *texts], pa.large_string()).slice(1)
    for unit in UNITS if compare == "exact" else UNITS[:1]:
        found, expected = (
            unit_keys(each, column, UnitSettings(unit, 2, compare, 3)) for each in (engine, cpu_fallback)
        )
        assert np.count_nonzero(expected[0]) > 9
        for actual, wanted in zip(found, expected, strict=True):
            np.testing.assert_array_equal(actual, wanted, strict=True)
