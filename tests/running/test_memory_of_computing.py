"""Shapes of data whose computation took far more memory than a run announces (docs/scale.md)."""

import json
import random
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import curation
from curation.rules import tallies
from curation.rules.grammar import Rule
from curation.rules.tallies import Tallies
from tests.running.memory_shapes import Shape, assert_bounded

LONG = 16_000_000
WORDS = "".join(random.Random(1).choices("abcdefghijklmnop ", k=4000)).split()


def written(folder: Path, texts: Any, stages: Any = (), **settings: Any) -> dict[str, Any]:
    path = folder / "in.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return {"input": [{"path": str(path)}], "stages": list(stages), **settings}


def with_own_tokenizer(folder: Path, *, kind: str, name: str) -> dict[str, Any]:
    """A recipe for one document of a million words that the tokenizer has no tokens for."""
    words = [" ".join(random.Random(seed).choices(WORDS, k=60)) for seed in range(200)]
    training = folder / "training.jsonl"
    training.write_text("".join(json.dumps({"text": text}) + "\n" for text in words))
    output = folder / "tok" / name
    curation.train_tokenizer(str(training), output, vocabulary=600, kind=kind)
    text = " ".join(f"w{number}" for number in range(LONG // 8))
    return written(folder, [text], tokenizer={"name": str(output)}, output={"formats": ["megatron"]})


def with_rules(folder: Path) -> dict[str, Any]:
    rules = [{"measure": "words", "max": 1_000_000 + number, "reason": f"r{number}"} for number in range(300)]
    texts = (f"a{number % 9}" for number in range(400_000))
    return written(folder, texts, [{"kind": "filter", "rules": rules}])


SHAPES = {
    "own bpe": Shape(partial(with_own_tokenizer, kind="bpe", name="tokenizer.json"), 1, LONG),
    "own unigram": Shape(partial(with_own_tokenizer, kind="unigram", name="tokenizer.json"), 1, LONG),
    "own model": Shape(partial(with_own_tokenizer, kind="bpe", name="tokenizer.model"), 1, LONG),
    "own model, whole": Shape(partial(with_own_tokenizer, kind="unigram", name="tokenizer.model"), 1, LONG, 100),
    "300 rules": Shape(with_rules, 400_000, 2),
}


@pytest.mark.slow("computing each of these shapes takes the memory that a run announces")
@pytest.mark.parametrize("name", SHAPES)
def test_memory_holds(name, tmp_path):
    found = assert_bounded(tmp_path, SHAPES[name])
    assert ("encodes each document whole" in found.printed) == name.endswith("whole")


def test_rules_are_tallied_in_blocks(monkeypatch):
    rules = [Rule(measure="words", max=number, reason=f"r{number}") for number in range(1, 40)]
    measures = {"words": np.arange(500) % 45}
    whole = Tallies(rules)
    whole.add(measures)
    sizes: list[int] = []
    bins_of = tallies.bins_of
    monkeypatch.setattr(
        tallies, "bins_of", lambda values, *rest: (sizes.append(values.size), bins_of(values, *rest))[1]
    )
    monkeypatch.setattr(tallies, "CELLS", 100)
    blocks = Tallies(rules)
    blocks.add(measures)
    assert blocks.result() == whole.result()
    assert max(sizes) <= 100
