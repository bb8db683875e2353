# SPDX-License-Identifier: Apache-2.0
"""`curation.train_lm` with `unit="byte"`, and `perplexity` by such a model: equal to plain Python and to KenLM."""

from __future__ import annotations

import gzip
import json
import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import cpu_fallback
import curation
from curation.base.contract import TEXT
from curation.models import ngrams
from curation.models.ngrams import LanguageModel, load_language_model
from curation.running.run import run
from tests.cli.test_cli import curate
from tests.conftest import frame_of
from tests.corpus import DATA, NASTY
from tests.needs import needs
from tests.oracle import language_model as oracle
from tests.runs import recipe_of, records_of

WORDS = frozenset(f"{byte:02x}" for byte in range(256))
TEXTS = [
    "the cat sat on the mat\n\nthe dog  sat on the cat\r\n",
    "中文沒有空格。\n文中有空格。",
    "ภาษาไทย\tไม่มีช่องว่าง",
    "a\0b <s> </s> <unk>",
    "",
    "\n \n",
]
SCORED = [*(text for text in NASTY if len(text) < 2000), *TEXTS, None, "the mat\n" * 30, "0a 0d\n61"]


def made_byte_model(folder: Path, order: int) -> Path:
    """A model of the bytes of TEXTS."""
    (folder / "texts.jsonl").write_bytes(records_of(TEXTS))
    path = folder / f"{order}.arpa"
    return curation.train_lm(folder / "texts.jsonl", path, unit="byte", order=order, force=True).path


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_byte_model(tmp_path_factory.mktemp("bytes"), 4)


@pytest.fixture(scope="module")
def corpus(model: Path) -> Path:
    return model.with_name("texts.jsonl")


@pytest.mark.parametrize(("order", "prune"), [(1, []), (2, []), (3, [0, 0, 1]), (5, [])])
def test_the_model_is_modified_kneser_ney_of_bytes(corpus: Path, tmp_path: Path, order: int, prune: list[int]):
    trained = curation.train_lm(corpus, tmp_path / "model.arpa", unit="byte", order=order, prune=prune)
    limits = prune + prune[-1:] * (order - len(prune)) or [0] * order
    probability, back_off = oracle.train([oracle.in_bytes(text) for text in TEXTS], order, limits, WORDS)
    found, found_back_off = oracle.read_arpa(trained.path.read_bytes())
    assert found.pop(("<s>",)) == found.pop(("<unk>",)) == -99 and found.keys() == probability.keys()
    np.testing.assert_allclose([found[g] for g in probability], [*probability.values()], rtol=0, atol=1e-6)
    assert {g for g, weight in found_back_off.items() if weight} <= back_off.keys()
    for g, weight in back_off.items():
        assert found_back_off[g] == pytest.approx(weight, abs=1e-6)
    lines = [line.encode() for text in TEXTS for line in text.split("\n") if line]
    assert (trained.unit, trained.sentences, trained.words) == ("byte", len(lines), sum(map(len, lines)))
    assert trained.ngrams[0] == 259


@pytest.mark.parametrize("context", ["", "<s>", "<s> 74", "68 65 20", "e6 96 87", "ff", "0a"])
def test_probabilities_of_all_bytes_and_the_end_sum_to_one(model: Path, context: str):
    probability, back_off = oracle.read_arpa(model.read_bytes())
    total = 0.0
    for word in [*WORDS, "</s>"]:
        rest, weight = tuple(context.split()), 0.0
        while (*rest, word) not in probability:
            weight += back_off.get(rest, 0.0)
            rest = rest[1:]
        total += 10 ** (weight + probability[(*rest, word)])
    assert total == pytest.approx(1, abs=1e-5)


def test_engines_equal_a_plain_model(engine: Any, model: Path):
    loaded = load_language_model(str(model))
    assert isinstance(loaded, LanguageModel) and loaded.unit == "byte"
    found = engine.score_text(frame_of(engine, SCORED)[TEXT], loaded)
    plain = oracle.read_arpa(model.read_bytes())
    expected = [oracle.score(plain, oracle.in_bytes(text or "")) for text in SCORED]
    np.testing.assert_allclose(found[:, 0] / 1e7, [total for total, *_ in expected], rtol=0, atol=1e-5)
    assert found[:, 1:].tolist() == [list(counts) for _, *counts in expected] and not found[:, 3].any()


def test_engines_give_the_same_for_any_batches(engine: Any, model: Path, monkeypatch: pytest.MonkeyPatch):
    loaded = load_language_model(str(model))
    text = frame_of(engine, SCORED)[TEXT]
    whole = engine.score_text(text, loaded)
    if engine.__name__ == "cpu_fallback":
        monkeypatch.setattr(engine.text, "SPELLED_AT_ONCE", 5)
    np.testing.assert_array_equal(engine.score_text(text[3:], loaded), whole[3:])


def test_kenlm_gives_the_same_scores(model: Path):
    kenlm = needs("kenlm")
    read = kenlm.Model(str(model))
    lines = [line for text in SCORED if text for line in text.split("\n") if line]
    found = curation.perplexity(pd.DataFrame({"text": lines}), model)["perplexity"]
    for line, value in zip(lines, found, strict=True):
        score, tokens = read.score(line.encode().hex(" ")), len(line.encode()) + 1
        assert abs(np.log10(value) + score / tokens) < 1e-5


def test_a_binary_file_of_kenlm_is_a_model_of_bytes(model: Path, tmp_path: Path):
    kenlm = needs("kenlm")
    loaded = ngrams._of_kenlm(kenlm.Model(str(model)))
    assert loaded.unit == "byte"
    exact = load_language_model(str(model))
    assert isinstance(exact, LanguageModel)
    expected = cpu_fallback.score_text(frame_of(cpu_fallback, SCORED)[TEXT], exact)
    found = loaded.score_texts(SCORED)
    tokens = np.maximum(expected[:, 1] + expected[:, 2], 1)
    assert (abs(found[:, 0] - expected[:, 0]) / 1e7 / tokens < 1e-5).all()
    assert (found[:, 1:] == expected[:, 1:]).all()


def test_a_unit_of_the_perplexity_is_defined_or_refused(model: Path):
    frame = pd.DataFrame({"text": SCORED})
    plain = oracle.read_arpa(model.read_bytes())
    for per in ("token", "byte"):
        found = curation.perplexity(frame, model, per=per)["perplexity"]
        for text, value in zip(SCORED, found, strict=True):
            total, spelled, lines, _ = oracle.score(plain, oracle.in_bytes(text or ""))
            units = spelled + lines if per == "token" else len((text or "").encode())
            assert (
                math.isnan(value) if not spelled else value == pytest.approx(10 ** (-total / units), rel=1e-5, abs=6e-5)
            )
    with pytest.raises(curation.InputError, match=r"per: word needs a model of words, and \S+ is a model of bytes\. W"):
        curation.perplexity(frame, model, per="word")


def dump_model(folder: Path, texts: list[str]) -> Path:
    """A model of the words of texts."""
    (folder / "dump.jsonl").write_bytes(records_of(texts))
    return curation.train_lm(folder / "dump.jsonl", folder / "dump.arpa", order=2).path


def test_a_model_of_words_is_none_of_bytes(model: Path, tmp_path: Path):
    every = " ".join(sorted(WORDS))
    assert load_language_model(str(dump_model(tmp_path, [every]))).unit == "word"  # a dump of a binary file
    changed = {
        "unknown": (b"-99\t<unk>", b"-9\t<unk>"),
        "other": (b"\t7f\t", b"\t7g\t"),
    }
    data = model.read_bytes()
    for name, (before, after) in changed.items():
        assert data.count(before) == 1
        (tmp_path / f"{name}.arpa").write_bytes(data.replace(before, after))
        assert load_language_model(str(tmp_path / f"{name}.arpa")).unit == "word"
    more = data.replace(b"ngram 1=259", b"ngram 1=260").replace(b"\\1-grams:\n", b"\\1-grams:\n-3\tword\n")
    (tmp_path / "more.arpa").write_bytes(more)
    assert load_language_model(str(tmp_path / "more.arpa")).unit == "word"
    (tmp_path / "model.gz").write_bytes(gzip.compress(data))
    assert load_language_model(str(tmp_path / "model.gz")).unit == "byte"


def test_the_command_prints_the_model_and_its_stage(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    code, out, _ = curate(capsys, "train", "lm", corpus, "--unit", "byte", "--order", 3, "-o", "model.arpa")
    size = sum(len(line.encode()) for text in TEXTS for line in text.split("\n"))
    assert code == 0 and "stage: {kind: perplexity, model: model.arpa, per: byte}" in out
    assert f"model.arpa: {size} bytes in 7 lines of 6 documents" in out
    arguments = "--unit", "byte", "-o", "model.arpa", "--force", "--log", "json"
    code, out, _ = curate(capsys, "train", "lm", corpus, *arguments)
    assert json.loads(out)["unit"] == "byte" and json.loads(out)["words"] == size


@pytest.mark.slow("swapped characters of texts without spaces raise the perplexity by a model of bytes")
@pytest.mark.parametrize("language", ["ja", "zh-Hans"])
def test_swapped_characters_have_a_higher_perplexity(tmp_path: Path, language: str):
    records = map(json.loads, gzip.decompress((DATA / "languages.jsonl.gz").read_bytes()).splitlines())
    texts = list(dict.fromkeys(each["text"] for each in records if each["language"] == language))
    (tmp_path / "train.jsonl").write_bytes(records_of(texts[::2]))
    path = curation.train_lm(tmp_path / "train.jsonl", tmp_path / "model.arpa", unit="byte").path
    chance, swapped = random.Random(5), []
    for text in texts[1::2]:
        characters = list(text)
        for k in chance.sample(range(len(text) - 1), len(text) // 10):
            characters[k : k + 2] = characters[k : k + 2][::-1]
        swapped.append("".join(characters))
    before, after = (
        curation.perplexity(pd.DataFrame({"text": each}), path, per="byte")["perplexity"]
        for each in (texts[1::2], swapped)
    )
    assert len(swapped) >= 30 and (after > before).all()


@pytest.mark.parametrize(("unit", "warned"), [("word", [1, 2]), ("byte", [2])])
def test_discounts_of_single_bytes_are_no_reason_to_warn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], unit: str, warned: list[int]
):
    monkeypatch.chdir(tmp_path)
    Path("texts.jsonl").write_bytes(records_of(["a b a b"]))
    code, _, errors = curate(capsys, "train", "lm", "texts.jsonl", "--unit", unit, "--order", 2, "-o", "m.arpa")
    found = [order for order in (1, 2) if f"too few texts to estimate the discounts of {order}-grams" in errors]
    assert code == 0 and found == warned


@pytest.mark.parametrize(
    ("texts", "settings", "message"),
    [
        (["a b"], {"unit": "bytes"}, "unit: no unit 'bytes'; did you mean byte?"),
        (["a b"], {"unit": "byte", "order": 9}, "order must be from 1 to 8, not 9"),
        (["ab"], {"unit": "byte", "order": 5}, "have no n-grams of 5 bytes. Give a lower order"),
        (["\n", ""], {"unit": "byte"}, "the training texts have no bytes. Check the paths and --text-column"),
        (["a b", "c"], {"unit": "byte", "order": 2, "prune": (1,)}, "prune must begin with 0, since bytes are not"),
    ],
)
def test_wrong_use_is_one_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, texts: list[str], settings: dict[str, Any], message: str
):
    monkeypatch.chdir(tmp_path)
    Path("texts.jsonl").write_bytes(records_of(texts))
    with pytest.raises(curation.CurationError) as caught:
        curation.train_lm("texts.jsonl", "model.arpa", **settings)
    assert message in str(caught.value) and "\n" not in str(caught.value)
    assert not Path("model.arpa").exists() and [*tmp_path.glob(".curate*")] == []


def test_a_run_by_word_ends_before_it_reads(model: Path, tmp_path: Path):
    (tmp_path / "in.jsonl").write_bytes(records_of(TEXTS))
    stages = [{"kind": "perplexity", "model": str(model), "per": "word"}]
    recipe = recipe_of(tmp_path / "in.jsonl", stages=stages)
    with pytest.raises(curation.InputError, match="per: word needs a model of words"):
        run(recipe, tmp_path / "out", engine="cpu")
    assert not (tmp_path / "out" / "documents").exists()
