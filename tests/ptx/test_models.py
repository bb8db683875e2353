# SPDX-License-Identifier: Apache-2.0
"""Kernels that cut fastText models and language models by tokens: texts at which a cut can go wrong."""

import random

import numpy as np
import pyarrow as pa
import pytest

import cpu_fallback
from curation.base.contract import TEXT
from curation.models.fasttext import load_classifier
from curation.models.ngrams import load_language_model
from gpu_pipeline.kernels import model_kernels
from tests.conftest import frame_of
from tests.oracle.fasttext_reference import HIERARCHICAL, as_bytes, model_of
from tests.ptx.engine import install_engine, kernels
from tests.ptx.test_kernels import SOME_SEEDS
from tests.ptx.test_measures import LONGEST_THREAD, SIZE
from tests.ptx.workload import shifted_column
from tests.stages.test_perplexity import made_arpa
from tests.tools.test_byte_lm import made_byte_model

MODELS = {
    "words": model_of(buckets=300, word_ngrams=3, width=7),
    "characters": model_of(buckets=300, low=1, high=4, width=70, loss=HIERARCHICAL),
    "all": model_of(40, buckets=300, word_ngrams=2, low=2, high=3),
}
PIECES = [
    *("the", "of", "a", "é", "漢字", "w1", "-", "x</s>", "__label__word", "unknown", "<s>", "</s >", "<unk>", "ünï"),
    *(" ", " ", "\n", "\r\n", "\t", "\0", "\x0b", "\x85", "\u3000"),
]
RARE = [" </s> ", " __label__l1 ", " __label__x ", "x" * 5000, "é" * 700, " " * 700, "\n" * 700]


def texts_of(chance: random.Random, count: int) -> list[str | None]:
    texts: list[str | None] = [None, "", "</s>", "__label__x", " \n ", "the", "\n" * 70 + "the é of 漢字 " * 60]
    for _ in range(count):
        pieces = [*PIECES, *RARE] if chance.random() < 0.2 else PIECES
        texts.append("".join(chance.choices(pieces, k=chance.choice((3, 30, 300)))))
    return texts


@pytest.fixture(scope="module")
def load(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")

    def load(name, order=0):
        path = folder / f"{name}-{order}"
        if name == "bytes":
            return load_language_model(str(made_byte_model(folder, order)))
        path.write_bytes(made_arpa(order, order % 2 == 1) if order else as_bytes(MODELS[name]))
        return load_language_model(str(path)) if order else load_classifier(str(path))

    return load


def assert_same_labels(engine, text, model, max_characters=0):
    found, expected = (each.classify(text, model, max_characters) for each in (engine, cpu_fallback))
    np.testing.assert_array_equal(found, expected)


def assert_same_scores(engine, text, model):
    found, expected = engine.score_text(text, model), cpu_fallback.score_text(text, model)
    np.testing.assert_array_equal(found, expected, strict=True)


@pytest.mark.parametrize("seed", SOME_SEEDS)
def test_labels_and_scores(monkeypatch, load, seed):
    engine, _ = install_engine(monkeypatch, seed)
    text = frame_of(engine, texts_of(random.Random(seed), 40))[TEXT]
    for name in MODELS:
        for max_characters in (0, 17, 600):
            assert_same_labels(engine, text, load(name), max_characters)
    assert_same_labels(engine, text, load("all").scoring("l3"))
    for order in (1, 2, 3, 5):
        assert_same_scores(engine, text, load("model", order))
    for order in (1, 4):
        assert_same_scores(engine, text, load("bytes", order))


@pytest.mark.parametrize(("skipped", "shift"), [(0, 3), (3, 5), (5, 1)])
def test_labels_and_scores_of_any_column(monkeypatch, load, skipped, shift):
    """Buffers that start anywhere, slices, and bytes under nulls that are not UTF-8."""
    engine, _ = install_engine(monkeypatch, 7)
    pieces = ["the x" * 70 + " é\u2003of", "of", "", "漢字 of the\nall kinds", "w1\n", "\na\n" * 40, "a"]
    documents = [text.encode() for text in pieces]
    documents[2:2], documents[6:6] = [b"\xe2\x80 \x80\xf0"], [b"\xff\xfe\xc2 the"]
    documents.append(b"\xff\xf4\xbf\xe2")
    column = shifted_column(documents, (2, 6, len(documents) - 1), shift)[skipped:]
    text = cpu_fallback.from_arrow(pa.table({TEXT: column}))[TEXT]
    for max_characters in (0, 4):
        assert_same_labels(engine, text, load("all"), max_characters)
    assert_same_scores(engine, text, load("model", 3))
    assert_same_scores(engine, text, load("bytes", 3))


LONG = ["x", "é", "the ", "the\n", "\n", " ", "__label__x ", "__label__", ". </s> ", "漢字 of the w1 \n"]


@pytest.mark.slow("threads that classify and score do not grow with a document")
@pytest.mark.parametrize("unit", LONG)
def test_no_thread_grows_with_a_document(monkeypatch, load, unit):
    engine, device = install_engine(monkeypatch, None)
    monkeypatch.setattr(kernels, "MIN_BLOCKS", 1)  # a thread has as many items in both
    longest = []
    for size in (SIZE // 4, SIZE):
        device.counts = {}
        text = frame_of(engine, [unit * (size // len(unit.encode()) + 1)])[TEXT]
        assert_same_labels(engine, text, load("all"), SIZE // 8)
        assert_same_labels(engine, text, load("all"))
        assert_same_scores(engine, text, load("model", 5))
        longest.append({name: counts.longest for name, counts in device.counts.items()})
    small, large = longest
    assert max(large.values()) < LONGEST_THREAD, large
    # Some more items of a thread, and one step more of a binary search.
    grown = {name: (small[name], large[name]) for name in small if large[name] > 1.5 * small[name] + 100}
    assert not grown


LONGEST = "x" * model_kernels.HASHED_BYTES
WITHOUT_HASH = [f"{LONGEST}x", f"the {LONGEST}x", f"the {LONGEST}", "of a"]  # the first begins with a word of a mask


def test_tokens_without_a_hash_are_left_to_the_cpu_engine(monkeypatch, load):
    """The hash for n-grams of words is sequential."""
    engine, device = install_engine(monkeypatch, None)
    assert_same_labels(engine, frame_of(engine, WITHOUT_HASH)[TEXT], load("words"))
    hashed = device.counts.pop("look_up_tokens").longest
    assert_same_labels(engine, frame_of(engine, [LONGEST * 12])[TEXT], load("words"))
    assert device.counts["look_up_tokens"].longest < hashed / 10 < LONGEST_THREAD / 10  # it is not read to its end
