# SPDX-License-Identifier: Apache-2.0
"""The stage `perplexity`: engines equal a plain back-off model, the column, and the files that it refuses."""

from __future__ import annotations

import gzip
import itertools
import math
import random
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import curation
from curation.base.contract import TEXT
from curation.models.ngrams import TINY, LanguageModel, load_language_model
from curation.recipes.recipe import parse_recipe
from curation.running.run import run
from tests.conftest import frame_of
from tests.needs import needs
from tests.oracle import language_model as oracle
from tests.runs import data_digests, kept_rows, recipe_of, records_of

TEXTS = [
    "the of the\nof x the",
    "",
    None,
    "of",
    " \n\n\tthe\r\n",
    "<s> </s> <unk>",
    "the\u00a0of the",
    "x" * 5000,
    "of\n" * 50,
]


def made_arpa(order: int, closed: bool, seed: int = 0) -> bytes:
    """A model of random weights: every context is there; an n-gram without its first word need not be, as pruning by
    SRILM leaves it."""
    chance = random.Random(seed)
    words = ["<s>", "</s>", "<unk>", "the", "of", "x", "ünï", "<s>x", "longer_than_eight_bytes"]
    levels = [[(word,) for word in words]]
    share = 0.7 if closed else 0.4
    for _ in range(order - 1):
        grams = [(*g, word) for g in levels[-1] for word in words[1:] if g[-1] != "</s>" and chance.random() < share]
        grams = [g for g in grams if not closed or g[1:] in {*levels[-1]}]
        levels.append(grams)
    lines = ["", "\\data\\", *(f"ngram {n}={len(level)}" for n, level in enumerate(levels, 1))]
    for n, level in enumerate(levels, 1):
        lines += ["", f"\\{n}-grams:"]
        for g in level:
            weight = f"\t{chance.uniform(-2, 0.3):.6f}" if n < order and chance.random() < 0.8 else ""
            lines.append(f"{-chance.uniform(0.01, 6):.7f}\t{' '.join(g)}{weight}")
    return "\n".join([*lines, "", "\\end\\", ""]).encode()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("perplexity")
    (folder / "tiny.arpa").write_bytes(TINY)
    return folder


@pytest.mark.parametrize(("order", "closed"), [*itertools.product((1, 2, 3, 5), (True, False))])
def test_engines_equal_a_plain_model(engine: Any, tmp_path: Path, order: int, closed: bool):
    data = made_arpa(order, closed)
    (tmp_path / "model.arpa").write_bytes(data)
    model = load_language_model(str(tmp_path / "model.arpa"))
    chance = random.Random(order)
    words = ["the", "of", "x", "ünï", "unknown", "longer_than_eight_bytes", "<s>x", "\n", "中文"]
    texts = [*TEXTS, *(" ".join(chance.choices(words, k=chance.randrange(60))) for _ in range(60))]
    assert isinstance(model, LanguageModel)
    found = engine.score_text(frame_of(engine, texts)[TEXT], model)
    expected = [oracle.score(oracle.read_arpa(data), text or "") for text in texts]
    np.testing.assert_allclose(found[:, 0] / 1e7, [total for total, *_ in expected], rtol=0, atol=1e-5)
    assert found[:, 1:].tolist() == [list(counts) for _, *counts in expected]


@pytest.mark.parametrize("name", ["model.arpa", "model.arpa.gz"])
def test_a_column_has_the_perplexity_per_unit(folder: Path, name: str):
    (folder / name).write_bytes(gzip.compress(TINY) if name.endswith(".gz") else TINY)
    frame = pd.DataFrame({"text": TEXTS})
    model = oracle.read_arpa(TINY)
    for per in ("token", "word", "byte"):
        found = curation.perplexity(frame, folder / name, per=per, column="p")["p"].tolist()
        for text, value in zip(TEXTS, found, strict=True):
            total, words, lines, _ = oracle.score(model, text or "")
            units = {"token": words + lines, "word": words, "byte": len((text or "").encode())}[per]
            assert (
                math.isnan(value)
                if not words
                else value == round(value, 4) == pytest.approx(10 ** (-total / units), rel=1e-8, abs=6e-5)
            )


def test_head_middle_and_tail_do_not_depend_on_slices_or_workers(folder: Path, tmp_path: Path):
    texts = [" ".join(random.Random(k).choices(["the", "of", "x"], k=30)) for k in range(300)]
    (tmp_path / "in.jsonl").write_bytes(records_of(texts))
    stages = [
        {"kind": "perplexity", "model": str(folder / "tiny.arpa")},
        {"kind": "select", "column": "perplexity", "drop_highest": 0.6667},
    ]
    recipe = recipe_of(tmp_path / "in.jsonl", stages=stages, output={"formats": []})
    shuffled = run(recipe, tmp_path / "a", engine="cpu", workers=2, slice_bytes=8000).report
    report = run(recipe, tmp_path / "b", engine="cpu", workers=1).report
    assert data_digests(tmp_path / "a") == data_digests(tmp_path / "b")
    assert report["documents"]["kept"] == 100 == shuffled["documents"]["kept"]
    scores = curation.perplexity(pd.DataFrame({"text": texts}), folder / "tiny.arpa")["perplexity"]
    head = np.argsort(scores.to_numpy(), kind="stable")[:100]
    assert [row[0] for row in kept_rows(tmp_path / "b")] == sorted(head.tolist())
    stage = report["stages"][0]
    decades = [int(((scores >= 10**k) & (scores < 10 ** (k + 1))).sum()) for k in range(2)]
    assert [stage["details"][f"decade_{k}"] for k in range(2)] == decades and min(decades) > 0
    unknown = sum(text.split().count("x") for text in texts)
    assert stage["details"]["unknown_words"] == unknown and stage["details"]["words"] == 9000
    assert f"{unknown / 9000:.2%} of the words unknown" in stage["lines"][0]


def test_a_binary_file_of_kenlm_has_the_scores_of_its_arpa_file(tmp_path: Path):
    needs("kenlm")
    program = shutil.which("build_binary")
    if not program:
        pytest.skip("build_binary of KenLM is not installed: build it from the source of KenLM")
    (tmp_path / "model.arpa").write_bytes(made_arpa(3, closed=True))
    frame = pd.DataFrame({"text": TEXTS[:6]})
    expected = curation.perplexity(frame, tmp_path / "model.arpa")["perplexity"]
    for kind in ("probing", "trie"):
        path = tmp_path / f"{kind}.binary"
        subprocess.run([program, kind, tmp_path / "model.arpa", path], check=True, capture_output=True)
        found = curation.perplexity(frame, path)["perplexity"]
        np.testing.assert_allclose(np.log10(found), np.log10(expected), rtol=0, atol=1e-5)


def test_the_package_kenlm_gives_the_scores_of_the_kernel(engine: Any, tmp_path: Path):
    kenlm = needs("kenlm")
    from curation.models.ngrams import KenlmModel

    path = tmp_path / "model.arpa"
    path.write_bytes(made_arpa(4, closed=True))
    found = KenlmModel(kenlm.Model(str(path))).score_texts(TEXTS)
    expected = engine.score_text(frame_of(engine, TEXTS)[TEXT], load_language_model(str(path)))
    tokens = np.maximum(expected[:, 1] + expected[:, 2], 1)
    assert (abs(found[:, 0] - expected[:, 0]) / 1e7 / tokens < 1e-5).all()
    assert (found[:, 1:] == expected[:, 1:]).all()


ONE = b"\\data\\\nngram 1=3\n\n\\1-grams:\n-1\t<unk>\n-99\t<s>\n-0.5\t</s>\n\n\\end\\\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot open"),
        (b"", "is not an ARPA language model: it is empty"),
        (b"PK\x03\x04 a zip", "is not an ARPA language model: it begins with 'PK"),
        (b"\x1f\x8b\x08\x00", "its gzip stream ends too early"),
        (b"\\data\\\n\\1-grams:\n", "it announces n-grams of 0 orders, expected 1 to 20"),
        (b"\\data\\\nngram 2=1\n", "expected the line ngram 1=NUMBER, not 'ngram 2=1'"),
        (ONE.replace(b"1=3", b"1=4"), "it announces 4 1-grams and has fewer"),
        (ONE.replace(b"1=3", b"1=2"), "expected \\end\\ after 2 1-grams, not '-0.5\\t</s>'"),
        (ONE.replace(b"1=3", b"1=999999999"), "it announces 999,999,999 n-grams in"),
        (ONE.replace(b"-0.5", b"nan"), "expected numbers before and after the words in the 1-gram 'nan\\t</s>'"),
        (ONE.replace(b"-0.5", b"-inf"), "expected numbers before and after the words in the 1-gram '-inf\\t</s>'"),
        (ONE.replace(b"-0.5", b"0.5"), "a log probability above 0 in the 1-gram '0.5\\t</s>'"),
        (ONE.replace(b"-0.5", b"-1e9"), "a number below -200 or above 200 in the 1-gram"),
        (ONE.replace(b"</s>", b"</s>\t-0.1 x"), "expected a number, 1 words and at most one number in the 1-gram"),
        (ONE.replace(b"</s>", b"<s>"), "these words are there twice in the 1-gram '-0.5\\t<s>'"),
        (ONE.replace(b"</s>", b"other"), "it has no </s>"),
        (ONE.replace(b"\\1-grams", b"\\2-grams"), "expected the line \\1-grams:, not '\\\\2-grams:'"),
        (ONE.replace(b"\\end\\\n", b""), "expected \\end\\ after 3 1-grams, not ''"),
    ],
)
def test_a_file_that_is_no_model_is_one_message(tmp_path: Path, content: bytes | None, message: str):
    path = tmp_path / "model.arpa"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(curation.CurationError) as caught:
        curation.perplexity(pd.DataFrame({"text": ["a"]}), path)
    assert message in str(caught.value) and str(caught.value).count("\n") == 0


def test_numbers_of_all_forms_are_read(tmp_path: Path):
    path = tmp_path / "model.arpa"
    data = ONE.replace(b"-0.5", b"-5.00000049e-1").replace(b"-1\t<unk>", b"-.12345675 <unk>")
    path.write_bytes(data.replace(b"-99", b"-0"))
    found = curation.perplexity(pd.DataFrame({"text": ["a b"]}), path, per="word")["perplexity"]
    assert found.tolist() == [round(10 ** ((0.5 + 2 * 0.1234568) / 2), 4)]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("model: tiny.arpa, per: words", "per: no unit 'words'; did you mean word?"),
        ("model: tiny.arpa, column: text", "column must be letters, digits and '_', and none of"),
        ("model: ''", "model is empty; give the path of an ARPA file"),
    ],
)
def test_wrong_settings_are_one_message(settings: str, message: str):
    with pytest.raises(curation.RecipeError) as caught:
        parse_recipe(f"input: [{{path: x.jsonl}}]\nstages: [{{kind: perplexity, {settings}}}]")
    assert message in str(caught.value) and str(caught.value).count("\n") == 0


def test_a_run_with_a_wrong_model_ends_before_it_reads(tmp_path: Path):
    (tmp_path / "in.jsonl").write_bytes(records_of(["a"]))
    (tmp_path / "model.arpa").write_bytes(b"mmap lm http://kheafield.com/code format version 5\n\x00")
    recipe = recipe_of(tmp_path / "in.jsonl", stages=[{"kind": "perplexity", "model": str(tmp_path / "model.arpa")}])
    with pytest.raises(curation.InputError, match=r"model\.arpa is (a binary file of KenLM|no model that KenLM can)"):
        run(recipe, tmp_path / "out", engine="cpu")
