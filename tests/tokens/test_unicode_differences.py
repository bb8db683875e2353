# SPDX-License-Identifier: Apache-2.0
"""Characters on which gigatoken's Unicode version and the reference's differ: no id depends on who encodes.

The default tests try the edges of all stored ranges and a sample of the other code points. UNICODE_SWEEP=all tries all
code points (`make tokens`): 39 CPU seconds for each split of tiktoken.
"""

import io
import os
import random
import tempfile
from itertools import islice, product

import numpy as np
import pyarrow as pa
import pytest
import sentencepiece

from curation.base.errors import InputError
from curation.kernels.expressions import CL100K, GPT2, O200K
from curation.tokens import tokenization, unicode_differences, unicode_sweep, vocabularies
from curation.tokens.flat_tables import character_classes, make_flat_tables
from curation.tokens.tokenization import TokenizerSpec, load_tokenizer
from curation.tokens.unicode_differences import SweepOutcome, characters_of, documents_with, ranges_of, split_of
from curation.tokens.unicode_sweep import CODE_POINTS, CONTEXTS, cutting_tokens, differences, tiktoken_with
from tests.tokens.byte_pairs import EXPRESSIONS, NAMES
from tests.tokens.token_loops import encoded

ALL = os.environ.get("UNICODE_SWEEP") == "all"
SAMPLE = 100
NAMES_OF_SPLITS = ("gpt2", "cl100k", "o200k", "huggingface gpt2", "llama3", "qwen2", "huggingface o200k")


def code_points(entry):
    """The edges of all ranges with their neighbours, and a sample of all others."""
    if ALL:
        return CODE_POINTS
    edges = {number + step for ends in ranges_of(entry) for number in ends for step in (-1, 0, 1)}
    return sorted(edges | set(random.Random(1).sample(CODE_POINTS, SAMPLE)))


def strings(texts):
    return pa.array(texts, pa.large_string())


def documents_of(ids, counts):
    return [piece.tolist() for piece in np.split(ids, np.cumsum(counts)[:-1])]


@pytest.fixture(scope="module")
def listed():
    """One character of each stored range of GPT-2's split."""
    entry = load_tokenizer("gpt2")._sweep
    return [chr(number) for first, last in ranges_of(entry) for number in {first, last}]


def test_documents_with_a_listed_character_have_the_ids_of_the_reference(listed):
    tokenizer, reference = load_tokenizer("gpt2"), vocabularies.gpt2_encoding("gpt2")
    texts = [text for char in listed for text in (f"plain {len(char)}", f"{char}'s {char}(a {char}.com", "", "it's")]
    assert tokenizer.fast
    found = documents_of(*tokenizer.encode(strings(texts)))
    assert found == [reference.encode_ordinary(text) for text in texts]
    ids, counts = tokenizer._pool.encode(strings(texts))
    assert documents_of(ids, counts) != found  # gigatoken alone differs


@pytest.mark.parametrize(
    "number",
    [0, *(pytest.param(k, marks=pytest.mark.slow("the stored characters are those that differ")) for k in range(1, 7))],
    ids=NAMES_OF_SPLITS,
)
def test_stored_characters_are_those_that_differ(number):
    vocabulary = next(islice(unicode_sweep.shipped_vocabularies(), number, None))
    versions = [unicode_sweep.named(packages) for packages in (["gigatoken"], vocabulary.versions)]
    entry = unicode_differences.find_entry(*versions, vocabulary.split())
    if entry is None:
        pytest.skip(f"no stored sweep of {versions}; {unicode_differences.SWEEP} makes it")
    numbers = code_points(entry)
    expected = {number for first, last in ranges_of(entry) for number in range(first, last + 1)} & set(numbers)
    assert unicode_sweep.sweep(vocabulary, numbers) == expected


@pytest.mark.parametrize(
    "pattern",
    [GPT2, *(pytest.param(k, marks=pytest.mark.slow("the device cuts like the reference")) for k in (1, 2, 3))],
    ids=NAMES.values(),
)
def test_the_device_cuts_like_the_reference(pattern):
    """The loops over the functions of the GPU's kernels, at every character of the sample, in every context."""
    vocabulary = tiktoken_with(EXPRESSIONS[pattern], None)
    tables = make_flat_tables(vocabulary.byte_pairs())
    numbers = code_points(next(iter(unicode_differences.stored_entries())))
    for context in CONTEXTS:
        assert [*differences(context, vocabulary.encode, lambda text: encoded([text], tables)[0], numbers)] == []


@pytest.mark.slow("the device has the classes of characters of the tokenizer's own library")
@pytest.mark.parametrize("pattern", [CL100K, O200K], ids=["letters", "cases"])
def test_the_device_has_the_classes_of_tokenizers(pattern):
    """Equal to tiktoken's in these versions. Where they are not, each tokenizer has those of its own library."""
    np.testing.assert_array_equal(character_classes(pattern, "tokenizers"), character_classes(pattern))


def test_every_cut_shows():
    """No two ways to cut a context into pieces have the same tokens."""
    reference = tiktoken_with(r"(?s:.+)", None)
    for context, char in product(CONTEXTS, "é中\U00010940"):
        parts = [char if letter == "c" else letter for letter in context]
        seen = {}
        for cuts in product((False, True), repeat=len(parts) - 1):
            pieces = [parts[0]]
            for part, cut in zip(parts[1:], cuts, strict=True):
                if cut:
                    pieces.append(part)
                else:
                    pieces[-1] += part
            ids = tuple(int(number) for found in reference.encode(pieces) for number in found)
            assert seen.setdefault(ids, pieces) == pieces
    assert len(cutting_tokens()) == len(set(cutting_tokens()))


# Who encodes


def test_other_versions_leave_all_to_the_reference(monkeypatch):
    monkeypatch.setattr(
        unicode_differences, "stored_entries", lambda: (SweepOutcome("a 1", "b 2", EXPRESSIONS[0], ""),)
    )
    tokenizer = tokenization.Tokenizer(TokenizerSpec(name="gpt2"), vocabularies.load_vocabulary("gpt2"))
    assert not tokenizer.fast
    assert "gigatoken" not in tokenizer.versions
    assert tokenizer.note.endswith(
        "were never compared on all characters with this split, so only tiktoken encodes. Install compared versions "
        "(a 1 with b 2), or compare yours once: python -m curation.tokens.unicode_sweep gpt2"
    )
    assert tokenizer.encode(strings(["Hello world"]))[0].tolist() == [15496, 995]


def test_a_document_that_the_reference_cannot_encode_is_named(listed, monkeypatch):
    tokenizer = load_tokenizer("gpt2")
    fails = tokenizer._source._replace(encode=lambda texts: [None for _ in texts])
    monkeypatch.setattr(tokenizer, "_source", fails)
    with pytest.raises(InputError, match="document 2 of the batch: tiktoken fails on it with 'gpt2'"):
        tokenizer.encode(strings(["a", "b", f"{listed[0]}'s"]))


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({"normalizer": None, "pre_tokenizer": {"type": "ByteLevel"}}, "ByteLevel"),
        ({"normalizer": {"type": "NFC"}, "pre_tokenizer": {"type": "ByteLevel", "use_regex": False}}, "NFC"),
        ({"normalizer": {"type": "Prepend", "prepend": "▁"}, "pre_tokenizer": {"type": "Metaspace"}}, ""),
        ({"normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}}, ""),
        (
            {
                "normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Strip"}]},
                "pre_tokenizer": {
                    "type": "Sequence",
                    "pretokenizers": [{"type": "Split", "pattern": {"Regex": r"\p{N}"}}, {"type": "Digits"}],
                },
            },
            r"NFC Strip \p{N} Digits",
        ),
        ({}, ""),
    ],
)
def test_split_names_the_steps_that_depend_on_characters(content, expected):
    assert split_of(content) == expected


# Finding the characters


@pytest.mark.parametrize(
    "characters", ["88F A7CE-A7CF 10940-10959 323B0-33479", "E9", "2EF 7FD 88F C5C 1AEB A7CE", "10FFFF"]
)
def test_texts_with_the_characters_are_found(characters):
    chance = random.Random(2)
    entry = SweepOutcome("", "", "", characters)
    numbers = [number for ends in ranges_of(entry) for number in ends]
    others = [*"a é中\n👍", *(chr(number + step) for number in numbers for step in (-1, 1) if number + step < 0x110000)]
    plain = [char for char in others if not any(first <= ord(char) <= last for first, last in ranges_of(entry))]
    texts = ["".join(chance.choices(plain, k=chance.choice((0, 1, 5, 300, 700)))) for _ in range(300)]
    chosen = sorted(chance.sample(range(300), 60))
    for k in chosen:
        cut = chance.randint(0, len(texts[k]))
        texts[k] = texts[k][:cut] + chr(chance.choice(numbers)) + texts[k][cut:]
    found = characters_of(entry)
    assert documents_with(strings(texts), found).tolist() == chosen
    assert documents_with(strings(texts).slice(100, 150), found).tolist() == [k - 100 for k in chosen if 100 <= k < 250]
    assert documents_with(strings([]), found).tolist() == documents_with(strings([""]), found).tolist() == []


@pytest.mark.slow("SentencePiece without normalisation has no character that differs")
def test_sentencepiece_without_normalisation_has_no_such_character():
    """It needs no stored sweep: gigatoken gives its ids for every character, at the ends of a text too."""
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["plain words of a short text", "and some more"]), model_writer=written, vocab_size=300,
        model_type="bpe", byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False,
        minloglevel=2,
    )  # fmt: skip
    with tempfile.NamedTemporaryFile(suffix=".model") as file:
        file.write(written.getvalue())
        file.flush()
        vocabulary = vocabularies.load_vocabulary(file.name)
    assert vocabulary.split() == ""
    numbers = CODE_POINTS if ALL else [*range(0x300), *code_points(unicode_differences.stored_entries()[0])]
    assert unicode_sweep.sweep(vocabulary, sorted({*numbers} - {0x2581})) == set()
