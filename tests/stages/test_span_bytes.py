# SPDX-License-Identifier: Apache-2.0
"""`substring_dedup` with `verify: bytes` is right with hashes that are wrong."""

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import curation
from curation.base.contract import TEXT
from curation.base.errors import RecipeError
from curation.recipes.recipe import convert_recipe
from curation.stages import SubstringDedup
from curation.stages.base import StageSample
from curation.stages.exact import span_blocks, span_bytes, span_index
from tests.oracle.substring_dedup import substring_dedup
from tests.stages.divided import CPU, Order
from tests.stages.test_span_index import cut, divided, save
from tests.stages.test_substring_dedup import LENGTH, PAGES, SPANS, made_pages

BITS = np.uint64(3)  # of each of the hashes by which records are equal


def weakened(make: Callable[..., tuple[np.ndarray, ...]], first: int) -> Callable[..., tuple[np.ndarray, ...]]:
    """Records with a few bits of the hashes from the column `first` on."""

    def made(*arguments: object) -> tuple[np.ndarray, ...]:
        records, *rest = make(*arguments)
        records[:, first:] &= BITS
        return records, *rest

    return made


@pytest.fixture
def _weak(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, first in {"anchor_records": 1, "node_records": 1, "window_records": 0}.items():
        monkeypatch.setattr(CPU, name, weakened(getattr(CPU, name), first))
    monkeypatch.setattr(span_bytes, "BYTES_AT_ONCE", 500)
    for name, size in {"BLOCK_RECORDS": 60, "BLOCK_BYTES": 3000, "PIECE_BYTES": 700, "PASS_RECORDS": 50}.items():
        monkeypatch.setattr(span_blocks, name, size)


@pytest.mark.slow("spans with equal hashes are compared by their bytes")
@pytest.mark.usefixtures("_weak")
def test_bytes_decide_where_hashes_are_equal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    texts, order = PAGES[20:], Order(1, 3, 2)
    corpus = divided(tmp_path / "hash", texts, random.Random(2))
    expected = substring_dedup(texts, LENGTH)
    assert cut(SubstringDedup(length=LENGTH), corpus, texts, order, monkeypatch) != expected
    corpus = divided(tmp_path / "bytes", texts, random.Random(2))
    assert cut(SubstringDedup(length=LENGTH, verify="bytes"), corpus, texts, order, monkeypatch) == expected


@pytest.mark.slow("an index of spans that is saved by bytes is complete")
@pytest.mark.usefixtures("_weak")
def test_an_index_that_is_saved_by_bytes_has_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(span_index, "FEW", 1)
    chance, order = random.Random(1), Order(1, 2, 1)
    old, new = PAGES[:30], made_pages(20, 9)
    expected = substring_dedup(old + new, LENGTH)[len(old) :]
    found = {}
    for verify in ("hash", "bytes"):
        stage, folder = SubstringDedup(length=LENGTH, verify=verify), tmp_path / verify
        index = save(folder / "index", stage, divided(folder / "old", old, chance), order, monkeypatch)
        stage = SubstringDedup(length=LENGTH, verify="bytes", index=index)
        found[verify] = cut(stage, divided(folder / "new", new, chance), new, order, monkeypatch)
    assert found["bytes"] == expected != found["hash"]


def test_both_ways_give_the_same_of_other_text(tmp_path: Path):
    frame = pd.DataFrame({TEXT: pd.Series(PAGES, dtype="str")})
    found = curation.substring_dedup(frame, length=LENGTH, verify="bytes")[TEXT].tolist()
    assert found == substring_dedup(PAGES, LENGTH) == curation.substring_dedup(frame, length=LENGTH)[TEXT].tolist()


def test_the_plan_tells_how_texts_are_compared():
    stage = SubstringDedup(verify="bytes", index="old/index")
    assert stage.explain()[1:] == [
        "the documents of old/index precede those of this run", "compare bytes where hashes are equal"
    ]  # fmt: skip
    sample = StageSample(1, 1000)
    assert stage.forecast(sample).scratch_bytes > SubstringDedup().forecast(sample).scratch_bytes + 1000
    assert {*stage.kernels()} == {"span_records", "span_masks", "leaders", "file_ranges"}


def test_a_wrong_way_is_refused():
    with pytest.raises(RecipeError, match="verify must be one of hash, bytes, not 'byte'; did you mean bytes"):
        convert_recipe({"input": [{"path": "x.jsonl"}], "stages": [SPANS | {"verify": "byte"}]})
