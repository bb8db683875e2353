# SPDX-License-Identifier: Apache-2.0
"""The device code that tokenises: the same ids in every order of threads, short threads, and the host's share.

`tests/parity/test_tokens.py` runs on the device code too.
"""

import random

import numpy as np
import pytest

import cpu_fallback
from curation.base.contract import TEXT
from curation.base.errors import EngineError, IntegrityError
from curation.kernels.expressions import CL100K, GPT2, LLAMA3, O200K
from curation.tokens.tokenization import Tokenizer
from tests.conftest import frame_of
from tests.ptx.engine import install_engine
from tests.ptx.test_kernels import ORDERS, SOME_DOCUMENTS, SOME_SEEDS
from tests.tokens.byte_pairs import CASE_RUNS, adversarial_texts, long_texts, tokenizer_of

LONGEST_THREAD = 100_000  # instructions


def tokens(engine, texts, tokenizer):
    return engine.tokenize(frame_of(engine, texts)[TEXT], tokenizer)


def assert_equal_tokens(engine, texts, tokenizer):
    for found, expected in zip(tokens(engine, texts, tokenizer), tokens(cpu_fallback, texts, tokenizer), strict=True):
        np.testing.assert_array_equal(found, expected, strict=True)


@pytest.mark.slow("tokens do not depend on the order of threads")
@pytest.mark.parametrize(("seed", "capability"), ORDERS, ids=str)
def test_ids_in_every_order_of_threads(monkeypatch, seed, capability):
    engine, _ = install_engine(monkeypatch, seed, capability)
    for pattern in (GPT2, CL100K, LLAMA3, O200K):
        assert_equal_tokens(engine, [*adversarial_texts(200, seed), *long_texts()], tokenizer_of(pattern))


# Texts that end in or after a contraction
CONTRACTIONS = ["it's", "it'", "I'LL", "we'v", "it'sx", "I'LLx'l", "y'", "it'\u017f", "\U00010400'r"]


@pytest.mark.slow("the device code finds contractions at the end of a text")
@pytest.mark.parametrize("pattern", [GPT2, CL100K, O200K], ids=["gpt2", "cl100k", "o200k"])
def test_contractions_at_the_end(monkeypatch, pattern):
    engine, _ = install_engine(monkeypatch, 1)
    for text in CONTRACTIONS:
        assert_equal_tokens(engine, [text], tokenizer_of(pattern))


@pytest.mark.parametrize("pattern", [CL100K, O200K], ids=["cl100k", "o200k"])
@pytest.mark.parametrize("seed", SOME_SEEDS)
def test_real_documents(monkeypatch, seed, pattern):
    engine, _ = install_engine(monkeypatch, seed)
    assert_equal_tokens(engine, SOME_DOCUMENTS, tokenizer_of(pattern))


def worst_texts():
    """Pre-tokens of each size that a thread or a warp merges, with many merges at the same lanes, and long runs."""
    chance = random.Random(1)
    for size in (32, 512):
        for letters in ("a", "ab", "e", "etaoinshrdlu", "0", "-=", "\u4e2d\u6587\u5b57"):
            width = len(letters[0].encode())
            yield "".join(chance.choices(letters, k=size // width))
            yield (letters * size)[: size // width]
    for run in (" ", "\n", " \n", "1", "!", "a"):
        yield run * 200_000
        yield f"{run * 100_000}\n{run * 100_000}x"
    for run in CASE_RUNS:
        yield f"a{run * (100_000 // len(run.encode()))}A中"


@pytest.mark.slow("no thread of a GPU tokenises more than its share of a document")
@pytest.mark.parametrize("pattern", [GPT2, CL100K, O200K], ids=["gpt2", "cl100k", "o200k"])
def test_no_thread_is_long(monkeypatch, pattern):
    engine, device = install_engine(monkeypatch, None)
    assert_equal_tokens(engine, list(worst_texts()), tokenizer_of(pattern))
    longest = {name: counts.longest for name, counts in device.counts.items()}
    assert longest["merge_long"] > 10_000
    assert max(longest.values()) < LONGEST_THREAD, longest


def observed(monkeypatch, engine, **settings):
    """Set constants of the engine's module; the sizes of all batches are appended to the list that is returned."""
    module, sizes = engine.tokenize.__wrapped__.__globals__, []
    encode = module["_tokenize_batch"]

    def observe(data, offsets, tokenizer):
        sizes.append(int(offsets[-1] - offsets[0]))
        if sizes[-1] > settings.get("limit", sizes[-1]):
            raise MemoryError
        return encode(data, offsets, tokenizer)

    for name in set(settings) - {"limit"}:
        monkeypatch.setitem(module, name, settings[name])
    monkeypatch.setitem(module, "_tokenize_batch", observe)
    return sizes


def test_batches_are_cut_between_documents(monkeypatch):
    """A document above MAX_BYTES runs on the host."""
    engine, _ = install_engine(monkeypatch, 1)
    sizes = observed(monkeypatch, engine, BATCH_BYTES=1000, MAX_BYTES=2000)
    texts = [*adversarial_texts(100, 5), "y" * 3000, "z" * 1500, "the end"]
    assert_equal_tokens(engine, texts, tokenizer_of(CL100K))
    assert len(sizes) > 3 and max(sizes) == 1500 and sum(sizes) == len("".join(texts).encode()) - 3000


def test_a_full_device(monkeypatch):
    """Batches are halved; below the smallest one the error gives advice."""
    engine, _ = install_engine(monkeypatch, 1)
    texts = ["some words " * 40] * 60
    sizes = observed(monkeypatch, engine, BATCH_BYTES=1 << 14, MIN_BATCH_BYTES=1 << 10, limit=5000)
    assert_equal_tokens(engine, texts, tokenizer_of(GPT2))
    assert sizes[0] > 5000 and sizes[-1] <= 5000
    observed(monkeypatch, engine, limit=100)
    with pytest.raises(EngineError, match="the GPU's memory is full"):
        tokens(engine, texts, tokenizer_of(GPT2))


def test_wrong_ids_are_an_error(monkeypatch):
    engine, _ = install_engine(monkeypatch, 1)
    right = tokenizer_of(GPT2)
    wrong = Tokenizer(right.spec, right._source._replace(byte_pairs=tokenizer_of(CL100K)._source.byte_pairs))
    assert tokens(engine, ["equal words"], wrong)[1].tolist() == [3]
    with pytest.raises(IntegrityError, match="document 0 of the batch: the GPU and the reference give different ids"):
        tokens(engine, ["It'S 12345 different"], wrong)


def test_other_tokenizers_run_on_the_host(monkeypatch):
    engine, device = install_engine(monkeypatch, None)
    right = tokenizer_of(GPT2)
    other = Tokenizer(right.spec, right._source._replace(byte_pairs=lambda: None))
    assert other.device_note.endswith("its pre-tokens run on the host")
    assert_equal_tokens(engine, ["one two", None, ""], other)
    assert device.counts == {}
