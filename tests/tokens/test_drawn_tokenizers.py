# SPDX-License-Identifier: Apache-2.0
"""Ids equal those of the tokenizer's library, for tokenizers drawn at random and texts that are hard for them."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from curation.base.errors import CurationError, TokenizerError
from curation.tokens.tokenization import Tokenizer, TokenizerSpec, load_tokenizer
from tests.tokens.drawn_tokenizers import Drawn, draw, hard_texts

TEXTS, DRAWN, QUICKLY_DRAWN = 400, range(300), range(160, 200)
# The tokenizers that gigatoken must encode. The reference needs 10 to 20 times as long.
FAST = [
    7, 8, 11, 15, 19, 23, 26, 31, 39, 42, 47, 50, 55, 63, 64, 66, 67, 71, 79, 83, 87, 95, 96, 98, 99, 103, 111,
    115, 119, 123, 127, 130, 135, 139, 143, 146, 151, 155, 159, 162, 163, 167, 175, 183, 187, 191, 194, 195, 199,
    207, 208, 210, 215, 218, 219, 223, 224, 226, 231, 232, 239, 242, 247, 255, 259, 263, 271, 279, 280, 287, 295,
    296, 298,
]  # fmt: skip
# What `tokenizers` itself cannot encode: an added token that it cuts out of a text at a wrong place
REFUSALS = ("is not a char boundary",)


def loaded(drawn: Drawn, folder: Path) -> Tokenizer:
    if drawn.build is not None:
        return Tokenizer(TokenizerSpec(name="drawn", append_eod=False), drawn.build())
    folder.mkdir()
    (folder / drawn.file).write_bytes(drawn.content)
    return load_tokenizer(TokenizerSpec(name=str(folder / drawn.file), append_eod=False))


def first_difference(drawn: Drawn, tokenizer: Tokenizer, texts: list[str]) -> str:
    """Return "" if all ids are those of the library, else the first text, its ids and the expected ones."""
    try:
        ids, counts = tokenizer.encode(pa.array(texts, pa.large_string()))
    except CurationError as error:
        return str(error)
    for text, found in zip(texts, np.split(ids, np.cumsum(counts)[:-1]), strict=True):
        expected = list(drawn.encode(text))
        if found.tolist() != expected:
            return f"{text!r}: {found.tolist()}, expected {expected}"
        if drawn.specials.intersection(expected):
            return f"{text!r}: the library gives a special token: {expected}"
    return ""


def check(numbers: Iterable[int], folder: Path) -> None:
    different, refused, slow = {}, [], []
    for number in numbers:
        drawn = draw(number)
        try:
            tokenizer = loaded(drawn, folder / str(number))
        except TokenizerError as error:
            refused.append(str(error))
            continue
        if difference := first_difference(drawn, tokenizer, hard_texts(drawn, TEXTS, number)):
            different[f"{number}: {drawn.name} ({tokenizer.note or 'fast'})"] = difference
        if number in FAST and not tokenizer.fast:
            slow.append(f"{number}: {tokenizer.note}")
    assert different == {} and slow == []
    assert [told for told in refused if not any(reason in told for reason in REFUSALS)] == []
    assert len(refused) <= len(DRAWN) * 5 // 100


def test_ids_of_some_drawn_tokenizers_are_those_of_their_libraries(tmp_path):
    check(QUICKLY_DRAWN, tmp_path)


@pytest.mark.slow("ids of 300 tokenizers drawn at random are those of their libraries")
def test_ids_of_all_drawn_tokenizers_are_those_of_their_libraries(tmp_path):
    check(DRAWN, tmp_path)
