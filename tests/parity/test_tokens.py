# SPDX-License-Identifier: Apache-2.0
"""Every engine gives the ids of the tokenizer's library, with the special ids of the spec."""

import numpy as np
import pytest

from curation.base.contract import TEXT
from curation.kernels.expressions import CL100K, GPT2, LLAMA3, O200K
from curation.tokens.tokenization import TokenizerSpec, load_tokenizer
from tests.conftest import frame_of, hidden_nulls
from tests.corpus import NASTY
from tests.tokens.byte_pairs import adversarial_texts, encoding_of, long_texts, tokenizer_of


def expected_ids(texts, tokenizer, encoding):
    before, after = tokenizer.special_ids
    documents = [[*before, *ids, *after] if ids else [] for ids in encoding.encode_ordinary_batch(texts, num_threads=1)]
    lengths = np.array([len(ids) for ids in documents], np.int32)
    return np.array([number for ids in documents for number in ids], tokenizer.dtype), lengths


def assert_tokens(engine, texts, tokenizer, encoding):
    found = engine.tokenize(frame_of(engine, texts)[TEXT], tokenizer)
    expected = expected_ids([text or "" for text in texts], tokenizer, encoding)
    for actual, wanted in zip(found, expected, strict=True):
        np.testing.assert_array_equal(actual, wanted, strict=True)


@pytest.mark.parametrize(("append_eod", "prepend_bos"), [(True, False), (False, True), (False, False)], ids=str)
def test_special_ids(engine, append_eod, prepend_bos):
    texts = [*adversarial_texts(40, seed=1), "", "", "x" * 600, ""]
    assert_tokens(engine, texts, tokenizer_of(GPT2, append_eod=append_eod, prepend_bos=prepend_bos), encoding_of(GPT2))


@pytest.mark.parametrize("pattern", [GPT2, CL100K, LLAMA3, O200K], ids=["gpt2", "cl100k", "llama3", "o200k"])
def test_ids_and_lengths(engine, pattern):
    texts = [*adversarial_texts(300, seed=1), "", *long_texts(), "", "", *(text for text in NASTY if len(text) < 3000)]
    assert_tokens(engine, texts, tokenizer_of(pattern, append_eod=True, prepend_bos=True), encoding_of(pattern))


@pytest.mark.parametrize("texts", [[], [""], ["", ""], [None], ["a"], [None, "a b", None, "c", ""]], ids=repr)
def test_few_texts_and_nulls(engine, texts):
    assert_tokens(engine, texts, tokenizer_of(GPT2), encoding_of(GPT2))


def test_bytes_under_nulls_are_not_read(engine):
    frame = engine.from_arrow(hidden_nulls())
    tokenizer = load_tokenizer("gpt2")
    texts = [text or "" for text in hidden_nulls().column(TEXT).to_pylist()]
    ids, lengths = engine.tokenize(frame[TEXT], tokenizer)
    expected, expected_lengths = expected_ids(texts, tokenizer, encoding_of(GPT2))
    assert (ids.tolist(), lengths.tolist()) == (expected.tolist(), expected_lengths.tolist())


def test_a_slice_of_a_column(engine):
    texts = [*adversarial_texts(40, seed=2), "x" * 600, "end"]
    part = frame_of(engine, texts)[TEXT].iloc[7:41]
    ids, lengths = engine.tokenize(part, tokenizer_of(CL100K))
    expected, expected_lengths = expected_ids(texts[7:41], tokenizer_of(CL100K), encoding_of(CL100K))
    assert (ids.tolist(), lengths.tolist()) == (expected.tolist(), expected_lengths.tolist())


def test_int32_ids(engine):
    """A vocabulary above 65,500 has ids of four bytes."""
    tokenizer = tokenizer_of(GPT2)
    large = type(tokenizer)(TokenizerSpec(name="large"), tokenizer._source._replace(size=100_000))
    assert_tokens(engine, ["Ids of four bytes.", ""], large, encoding_of(GPT2))
