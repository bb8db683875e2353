# SPDX-License-Identifier: Apache-2.0
"""Kernels that cut checks and rewriting by bytes: the same results wherever a document or a character begins."""

import random

import numpy as np
import pytest

from curation.kernels import tables
from curation.kernels.rewrite import FORM_FLAGS, needs_normalising
from tests.gpu.stand_ins import eight_byte_blocks, text_kernels
from tests.ptx.engine import install_engine
from tests.ptx.test_kernels import SEEDS

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
def test_quick_check_of_normal_forms(monkeypatch, form, seed):
    install_engine(monkeypatch, seed)
    chance = random.Random(seed)
    texts = ["x" * chance.randrange(9) + "".join(chance.choices(MARKS, k=chance.choice((0, 1, 1, 2, 3))))
             for _ in range(600)]  # fmt: skip
    documents = [text.encode() for text in texts]
    nulls = chance.sample(range(len(documents)), 50)
    for number in nulls:
        documents[number] = chance.choice([b"\xcc", b"\xf4\xbf\xbf\xbf", b"\xff\x81", "\u0301".encode()])
    arrays = data, _, offsets, valid = arrays_of(documents, nulls, 3)
    unicode = tables.load_tables()
    properties = *unicode[:3], unicode.combining
    expected = [
        bool(valid[row]) and needs_normalising(data, offsets[row], offsets[row + 1], FORM_FLAGS[form], *properties)
        for row in range(len(valid))
    ]
    found = text_kernels.unnormalised_documents(*arrays, FORM_FLAGS[form], properties)
    assert found.tolist() == expected and 50 < sum(expected) < 550
