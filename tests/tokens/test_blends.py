# SPDX-License-Identifier: Apache-2.0
"""What training draws from each input: the weights in `blend.txt` and `per_split.json`, worked out by hand."""

import json
from pathlib import Path
from typing import Any

import pytest

from curation.tokens.blends import Blend, Megatron, meta_files, weigh
from curation.tokens.megatron import PairInfo, TrainingPair

WEIGHTS = {"web": 0.7, "books": 0.3}
# Of 3,000,000 tokens in two pairs, and 1,000,000 in one; the weights are those of the three pairs.
EXPECTED: list[tuple[dict[str, Any], dict[str, float], list[str]]] = [
    ({}, {}, ["2e+06", "1e+06", "1e+06"]),
    ({}, WEIGHTS, ["0.466667", "0.233333", "0.3"]),  # 0.7 x 2/3, 0.7 x 1/3
    ({}, {"web": 70.0, "books": 30.0}, ["0.466667", "0.233333", "0.3"]),
    ({}, {"web": 1.0, "books": 1.0}, ["0.333333", "0.166667", "0.5"]),
    ({"by": "given"}, WEIGHTS, ["0.466667", "0.233333", "0.3"]),
    ({"by": "tokens"}, {}, ["2e+06", "1e+06", "1e+06"]),
    ({"by": "tokens"}, WEIGHTS, ["1.4e+06", "700000", "300000"]),
    ({"by": "tokens"}, {"web": 2.0}, ["4e+06", "2e+06", "1e+06"]),
    ({"by": "temperature", "temperature": 2.0}, {}, ["0.42265", "0.211325", "0.366025"]),  # 1.73205 : 1
    ({"by": "temperature", "temperature": 2.0}, WEIGHTS, ["0.53443", "0.267215", "0.198356"]),  # 1.212436 : 0.3
]


def pair(source: str, tokens: int, number: int = 0, split: str = "") -> TrainingPair:
    prefix = f"/out/tokens/{source}_{split or number}"
    info = PairInfo(
        prefix=prefix, documents=9, empty_documents=0, tokens=tokens, bytes=2 * tokens, dtype="uint16", sha256_bin="",
        sha256_idx="",
    )  # fmt: skip
    return TrainingPair(source, split, info)


@pytest.mark.parametrize(("blend", "weights", "expected"), EXPECTED)
def test_weights_of_pairs(blend: dict[str, Any], weights: dict[str, float], expected: list[str]):
    pairs = [pair("web", 2_000_000), pair("web", 1_000_000, 1), pair("books", 1_000_000)]
    assert [weighted.weight for weighted in weigh(pairs, weights, Blend(**blend))] == expected


def test_an_input_without_tokens_leaves_its_share_to_the_others():
    assert [weighted.weight for weighted in weigh([pair("books", 5)], WEIGHTS, Blend())] == ["1"]
    assert weigh([], WEIGHTS, Blend()) == []


def test_every_side_of_a_split_has_the_same_shares():
    sides = {"train": (900, 5000), "valid": (40, 3)}
    pairs = [
        pair(name, tokens, split=split)
        for split, sizes in sides.items()
        for name, tokens in zip(WEIGHTS, sizes, strict=True)
    ]
    files = meta_files(Path("/out"), {}, pairs, WEIGHTS, (Blend(), Megatron()))
    assert json.loads(files["per_split.json"]) == {
        "train": ["0.7", "/out/tokens/web_train", "0.3", "/out/tokens/books_train"],
        "valid": ["0.7", "/out/tokens/web_valid", "0.3", "/out/tokens/books_valid"],
        "test": None,
    }
    assert files["blend.txt"] == b"0.7 /out/tokens/web_train\n0.3 /out/tokens/books_train\n"
    assert b"NeMo have the pairs of valid twice: NeMo needs three splits, and there is no test." in files["README.txt"]
    files = meta_files(Path("/out"), {}, [*pairs, pair("web", 9, split="test")], {}, (Blend(), Megatron()))
    assert b"twice" not in files["README.txt"]
