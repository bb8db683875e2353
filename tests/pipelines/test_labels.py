# SPDX-License-Identifier: Apache-2.0
"""The example of docs/classifiers.md on toxicity, topics and listed words, with classifiers trained on made texts."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml

import curation
from curation.running.run import run
from curation.tools import classifier_training as training
from tests.runs import recipe_of, records_of

PAGE = Path(__file__).resolve().parents[2] / "docs" / "classifiers.md"
PARTS = {  # label -> words that its texts have besides common ones
    "toxic": "idiot moron stupid hate loser disgusting shut worthless",
    "civil": "thanks please kind welcome agree helpful friend glad",
    "law": "court appeal plaintiff statute contract judge clause verdict",
    "sport": "goal match league coach score team season player",
    "code": "function variable compiler loop return array string class",
}
COMMON = ["the", "a", "of", "and", "to", "in", "it", "you", "we", "they", "was", "is", "this", "that", "with", "for"]


def made(label: str, count: int, seed: int) -> list[str]:
    chance = random.Random(f"{label}{seed}")
    return [
        " ".join(chance.choices(PARTS[label].split(), k=6) + chance.choices(COMMON, k=14)) + f" {chance.random():.4f}"
        for _ in range(count)
    ]


def stages_of_page() -> list[dict[str, object]]:
    section = PAGE.read_text("utf-8").partition("## Toxicity, topics")[2]
    return list(yaml.safe_load(section.partition("```yaml\n")[2].partition("```")[0])["stages"])


def test_toxicity_topics_and_listed_words_as_on_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    try:
        training._check_trainer()
    except curation.RecipeError as error:
        pytest.skip(str(error))
    monkeypatch.chdir(tmp_path)
    for label in PARTS:
        Path(f"{label}.jsonl").write_bytes(records_of(made(label, 80, 0)))
    for model, labels in (("toxicity.bin", ("toxic", "civil")), ("topics.bin", ("law", "sport", "code"))):
        trained = curation.train_classifier({label: f"{label}.jsonl" for label in labels}, model)
        assert all(metrics.auc > 0.95 for metrics in trained.held_out.values())
    Path("words.txt").write_text("darn\n")
    texts = [*made("toxic", 20, 1), *made("civil", 20, 1), *made("law", 20, 1), "thanks friend darn glad welcome kind"]
    Path("in.jsonl").write_bytes(records_of(texts))
    run(
        recipe_of(tmp_path / "in.jsonl", stages=stages_of_page(), output={"formats": []}),
        tmp_path / "out",
        engine="cpu",
    )
    kept = pq.read_table(tmp_path / "out" / "documents").to_pydict()
    assert {*range(20, 40)} <= {*kept["doc"]} and not {*range(20), 60} & {*kept["doc"]}
    assert all(score > 0.5 for doc, score in zip(kept["doc"], kept["law"], strict=True) if doc >= 40)
