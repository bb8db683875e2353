# SPDX-License-Identifier: Apache-2.0
"""`curation.train_lm`: equal to modified Kneser-Ney in plain Python and to KenLM's reading, for any buffers."""

from __future__ import annotations

import hashlib
import itertools
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import curation
from curation.reading import texts as reading_texts
from curation.tools import external_sort, lm_training
from tests.cli.test_cli import curate
from tests.corpus import real_documents
from tests.needs import needs
from tests.oracle import language_model as oracle
from tests.runs import records_of


def made_texts(seed: int = 3, count: int = 120) -> list[str]:
    """Texts of few words, so that n-grams repeat; some have special words, blank lines and other white space."""
    chance = random.Random(seed)
    words = [f"w{number}" for number in range(40)] + ["naïve", "中文", "x" * 30]
    weights = list(itertools.accumulate(1 / (rank + 1) for rank in range(len(words))))
    lines = [" ".join(chance.choices(words, cum_weights=weights, k=chance.randrange(1, 14))) for _ in range(3 * count)]
    texts = ["\n".join(lines[k : k + 3]) for k in range(0, len(lines), 3)]
    return [*texts, "<s> w1 </s>\n\n \t\r\nw2\tw3\x0bw1\r\n<unk> <s>", "", "w1\u00a0w2 w3"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lm") / "texts.jsonl"
    path.write_bytes(records_of(made_texts()))
    return path


@pytest.mark.parametrize(("order", "prune"), [(1, []), (2, []), (3, [0, 0, 1]), (5, []), (5, [0, 1])])
def test_the_model_is_modified_kneser_ney(corpus: Path, tmp_path: Path, order: int, prune: list[int]):
    trained = curation.train_lm(corpus, tmp_path / "model.arpa", order=order, prune=prune)
    limits = prune + prune[-1:] * (order - len(prune)) or [0] * order
    probability, back_off = oracle.train(made_texts(), order, limits)
    found, found_back_off = oracle.read_arpa(trained.path.read_bytes())
    assert found.pop(("<s>",)) == -99 and found.keys() == probability.keys()
    np.testing.assert_allclose([found[g] for g in probability], [*probability.values()], rtol=0, atol=1e-6)
    assert {g for g, weight in found_back_off.items() if weight} <= back_off.keys()
    for g, weight in back_off.items():
        assert found_back_off[g] == pytest.approx(weight, abs=1e-6)
    assert trained.ngrams == tuple(sum(len(g) == n + 1 for g in found) + (n == 0) for n in range(order))
    whole, _ = oracle.train(made_texts(), order, [0] * order)
    sizes = [sum(len(g) == n + 1 for g in whole) + (n == 0) for n in range(order)]
    assert trained.pruned == tuple(size - left for size, left in zip(sizes, trained.ngrams, strict=True))


def test_records_that_are_no_documents_are_counted(tmp_path: Path):
    (tmp_path / "texts.jsonl").write_bytes(records_of(["a b a b", "b a"]) + b"not json\n")
    with pytest.warns(curation.InputWarning, match=r"1 of 3 records are no documents \(.*/texts\.jsonl, line 3: "):
        trained = curation.train_lm(tmp_path / "texts.jsonl", tmp_path / "model.arpa", order=2)
    assert (trained.documents, trained.sentences, trained.words, trained.rejected) == (2, 2, 6, 1)


@pytest.mark.slow("a trained language model has the same bytes for any buffers and slices")
def test_the_bytes_do_not_depend_on_buffers_slices_or_the_time(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    settings: list[tuple[int, int, int]] = [
        (1 << 20, 1 << 17, 16 << 20),
        (64, 8, 900),
        (1, 1, 16 << 20),
    ]
    digests = set()
    for number, (buffer, batch, size) in enumerate(settings):
        monkeypatch.setattr(external_sort, "BUFFER_ROWS", buffer)
        monkeypatch.setattr(external_sort, "BATCH_ROWS", batch)
        monkeypatch.setattr(lm_training, "BATCH_ROWS", batch)
        monkeypatch.setattr(reading_texts, "SLICE_BYTES", size)
        inputs = corpus if buffer > 1 else [corpus]
        path = curation.train_lm(inputs, tmp_path / f"{number}.arpa", order=3, prune=(0, 0, 1)).path
        digests.add(hashlib.sha256(path.read_bytes()).hexdigest())
    assert len(digests) == 1 and [*tmp_path.glob(".curate*")] == []


def test_probabilities_after_each_context_sum_to_one(corpus: Path, tmp_path: Path):
    path = curation.train_lm(corpus, tmp_path / "model.arpa", order=3, prune=(0, 0, 1)).path
    model = oracle.read_arpa(path.read_bytes())
    words = [g[0] for g in model[0] if len(g) == 1 and g[0] != "<s>"]
    for context in ((), ("w0",), ("w1", "w0"), ("<s>", "w2"), ("中文", "naïve")):
        total = 0.0
        for word in words:
            rest, weight = context, 0.0
            while (*rest, word) not in model[0]:
                weight += model[1].get(rest, 0.0)
                rest = rest[1:]
            total += 10 ** (weight + model[0][(*rest, word)])
        assert total == pytest.approx(1, abs=1e-5)


def test_kenlm_reads_the_model_with_the_same_scores(corpus: Path, tmp_path: Path):
    kenlm = needs("kenlm")
    path = curation.train_lm(corpus, tmp_path / "model.arpa", order=4, prune=(0, 0, 1)).path
    model = kenlm.Model(str(path))
    lines = [" ".join(line) for line in oracle.sentences_of(made_texts(seed=9, count=20))] + ["unseen words w1 w2"]
    found = curation.perplexity(pd.DataFrame({"text": lines}), path)["perplexity"]
    for line, value in zip(lines, found, strict=True):
        tokens = len(line.encode().split()) + 1
        assert abs(np.log10(value) + model.score(line) / tokens) < 1e-5


@pytest.mark.slow("shuffled real texts have a higher perplexity under a trained model")
def test_shuffled_texts_have_a_higher_perplexity(tmp_path: Path):
    distinct = [text for text in dict.fromkeys(real_documents(language="en")) if len(text.split()) >= 20]
    (tmp_path / "train.jsonl").write_bytes(records_of(distinct[::2]))
    path = curation.train_lm(tmp_path / "train.jsonl", tmp_path / "model.arpa", order=3).path
    chance = random.Random(1)
    held_out = [" ".join(text.split()) for text in distinct[1::2]]
    shuffled = [" ".join(chance.sample(text.split(), len(text.split()))) for text in held_out]
    before, after = (
        curation.perplexity(pd.DataFrame({"text": each}), path)["perplexity"] for each in (held_out, shuffled)
    )
    assert len(held_out) > 100 and (after > before).mean() >= 0.99


def test_the_command_prints_the_model_and_its_stage(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    code, out, _ = curate(capsys, "train", "lm", corpus, "--order", 3, "--prune", "0,0,1", "-o", "model.arpa")
    assert code == 0 and "stage: {kind: perplexity, model: model.arpa}" in out and "2-grams" in out
    code, out, _ = curate(capsys, "train", "lm", corpus, "--order", 3, "-o", "model.arpa", "--force", "--log", "json")
    assert json.loads(out)["ngrams"][0] == 47 and json.loads(out)["sentences"] == 363


@pytest.mark.parametrize(
    ("texts", "settings", "message"),
    [
        (["a b"], {"order": 0}, "order must be from 1 to 8, not 0"),
        (["a b"], {"order": 2, "prune": (0, 0, 1)}, "prune has 3 numbers, expected at most 2, one per order: 0,0,1"),
        (["a b"], {"prune": (1,)}, "prune must begin with 0, since words are not left out: 1"),
        (["a b"], {"prune": (0, 2, 1)}, "prune must not fall from one order to the next: 0,2,1"),
        (["a b"], {"order": 5}, "have no n-grams of 5 words. Give a lower order"),
        (["a b c", "d e"], {"order": 2, "prune": (0, 9)}, "no n-grams of 2 words that occur more than 9 times"),
        ([" ", "\n"], {}, "the training texts have no words. Check the paths and --text-column"),
        (["a"], {"output": "model.bin"}, "the output is model.bin, expected a model with the suffix .arpa"),
        (["a"], {"output": "there.arpa"}, "there.arpa exists already. Give another --output, or --force"),
        (None, {}, "inputs is empty, expected at least one path"),
    ],
)
def test_wrong_use_is_one_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, texts: Any, settings: dict[str, Any], message: str
):
    monkeypatch.chdir(tmp_path)
    Path("texts.jsonl").write_bytes(records_of(texts or []))
    Path("there.arpa").touch()
    output = settings.pop("output", "model.arpa")
    with pytest.raises(curation.CurationError) as caught:
        curation.train_lm("texts.jsonl" if texts else [], output, **settings)
    assert message in str(caught.value) and "\n" not in str(caught.value)
    assert not Path("model.arpa").exists() and [*tmp_path.glob(".curate*")] == []
