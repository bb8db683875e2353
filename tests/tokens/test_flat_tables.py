# SPDX-License-Identifier: Apache-2.0
"""Pre-tokens and ids cut by bytes are tiktoken's. The loops run here; `tests/ptx` runs the kernels on the same
functions."""

import json
import os
from itertools import accumulate

import numpy as np
import pytest
import regex
import tiktoken

from curation.kernels import case_classes as cases
from curation.kernels.bpe import MAX_IDS
from curation.kernels.expressions import BLANK, BREAK, CL100K, LETTER, LLAMA3, NUMBER, O200K, OTHER, QUOTE, SPACE
from curation.tokens.byte_pairs import huggingface_pairs, tiktoken_pairs
from curation.tokens.flat_tables import character_classes, classes_of, flat_obstacle, make_flat_tables, make_pages
from curation.tokens.tokenization import TokenizerSpec, load_tokenizer
from tests.corpus import NASTY, real_documents
from tests.tokens.byte_pairs import (
    EXPRESSIONS,
    NAMES,
    adversarial_texts,
    encoding_of,
    gpt2_files,
    gpt2_ranks,
    long_texts,
    pairs_of,
    tokenizer_json,
)
from tests.tokens.token_loops import encoded, places_of

STRINGS = int(os.environ.get("TOKEN_STRINGS", "800"))  # `make tokens` sets a million


@pytest.fixture(scope="module", params=NAMES, ids=NAMES.values())
def pattern(request):
    return request.param


@pytest.fixture(scope="module")
def tables(pattern):
    return make_flat_tables(pairs_of(pattern))


def first_difference(texts, tables, encoding):
    """The first text whose ids differ from tiktoken's, with both lists of ids."""
    expected = encoding.encode_ordinary_batch(texts, num_threads=1)
    found = zip(texts, encoded(texts, tables), expected, strict=True)
    return next(((ascii(text), ids, wanted) for text, ids, wanted in found if ids != wanted), None)


def test_adversarial_strings(pattern, tables):
    encoding = encoding_of(pattern)
    for first in range(0, STRINGS, 20_000):
        texts = adversarial_texts(min(20_000, STRINGS - first), seed=first)
        assert first_difference(texts, tables, encoding) is None


def test_a_wrong_boundary_is_noticed(tables):
    other = next(number for number in NAMES if number != tables.pattern)
    assert first_difference(adversarial_texts(200, 1), tables._replace(pattern=other), encoding_of(tables.pattern))


def test_long_runs_and_the_nasty_corpus(pattern, tables):
    texts = [*long_texts(), *(text for text in NASTY if len(text) < 20_000)]
    assert first_difference(texts, tables, encoding_of(pattern)) is None


@pytest.mark.parametrize("pattern", [LLAMA3, O200K], ids=["llama3", "o200k"])
def test_boundaries_equal_the_module_regex(pattern):
    """Both with the classes of `regex`, which has more letters than tiktoken."""
    text = "".join(map(chr, (*range(0xD800), *range(0xE000, 0x110000))))
    pages, classes = make_pages(
        classes_of(lambda found: [ord(character) for character in regex.findall(found, text)], pattern)
    )
    expression = regex.compile(EXPRESSIONS[pattern])
    for first in range(0, STRINGS, 20_000):
        texts = adversarial_texts(min(20_000, STRINGS - first), seed=~first)
        pieces = [match for text in texts for match in expression.findall(text)]
        expected = [0, *accumulate(len(piece.encode()) for piece in pieces)]
        assert places_of(texts, pattern, pages, classes).tolist() == expected


def real_texts():
    if "TOKEN_CORPUS" not in os.environ:
        return real_documents()
    with open(os.environ["TOKEN_CORPUS"], encoding="utf-8") as lines:
        return [json.loads(line)["text"] for line in lines]


def test_real_documents(pattern, tables):
    assert first_difference(real_texts(), tables, encoding_of(pattern)) is None


@pytest.mark.parametrize(
    "name",
    [
        "p50k_base",
        "o200k_base",
        *(
            pytest.param(name, marks=pytest.mark.slow("the flat tables give the ids of each encoding of tiktoken"))
            for name in ("gpt2", "cl100k_base")
        ),
    ],
)
def test_encodings_of_tiktoken(made_encodings, name):
    """Their own expressions, gaps in their ranks and special tokens, over GPT-2's tokens."""
    assert load_tokenizer(name).device_note == ""
    assert first_difference(real_texts()[:60], load_tokenizer(name).flat_tables, tiktoken.get_encoding(name)) is None


# Hugging Face


BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
LLAMA3_STEPS, O200K_STEPS = (
    [{"type": "Split", "pattern": {"Regex": EXPRESSIONS[each]}, "behavior": "Isolated", "invert": False}, BYTE_LEVEL]
    for each in (LLAMA3, O200K)
)
GPT2_STEP = BYTE_LEVEL | {"use_regex": True}


@pytest.mark.slow("the flat tables give the ids of Hugging Face's byte-level tokenizers")
@pytest.mark.parametrize("ignore_merges", [False, True], ids=["", "ignore_merges"])
@pytest.mark.parametrize(
    "steps",
    [GPT2_STEP, *({"type": "Sequence", "pretokenizers": steps} for steps in (LLAMA3_STEPS, O200K_STEPS))],
    ids=["gpt2", "llama3", "o200k"],
)
def test_byte_level_tokenizers_of_hugging_face(tmp_path, steps, ignore_merges):
    """Equal to the package `tokenizers`; a document of 600 equal letters is encoded as one pre-token."""
    path = tmp_path / "tokenizer.json"
    vocabulary, merges = gpt2_files()
    model = {"type": "BPE", "vocab": vocabulary | {"qzx": len(vocabulary)}, "merges": merges}  # "qzx" has no merge
    model["ignore_merges"] = ignore_merges
    path.write_text(tokenizer_json(pre_tokenizer=steps, model=model), "utf-8")
    tokenizer = load_tokenizer(TokenizerSpec(name=str(path), append_eod=False))
    assert tokenizer.device_note == ""
    texts = [*adversarial_texts(1000, 7), "qzx qzx", *long_texts()]
    reference = tokenizer._source.encode(texts)
    found = encoded(texts, tokenizer.flat_tables)
    assert [text for text, ids, wanted in zip(texts, found, reference, strict=True) if ids != list(wanted)] == []
    whole = tokenizer.flat_tables.encode_piece("ab" * 300)
    assert whole.tolist() == tokenizer._source.encode(["ab" * 300])[0]


@pytest.mark.parametrize(
    "change",
    [
        {"normalizer": {"type": "NFC"}},
        {"added_tokens": [{"id": 9, "content": "x", "special": False}]},
        {"pre_tokenizer": None},
        {"pre_tokenizer": {"type": "Whitespace"}},
        {"pre_tokenizer": GPT2_STEP | {"add_prefix_space": True}},
        {"pre_tokenizer": LLAMA3_STEPS[1]},
        {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [LLAMA3_STEPS[0] | {"invert": True}, LLAMA3_STEPS[1]]}},
        {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [LLAMA3_STEPS[0], GPT2_STEP]}},
        {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [*LLAMA3_STEPS[:1], *LLAMA3_STEPS]}},
        {"model": {"type": "WordPiece", "vocab": {}}},
        {"model": {"type": "BPE", "dropout": 0.1, "vocab": {}, "merges": []}},
        {"model": {"type": "BPE", "vocab": {"a": 0, "aa": 2, "aaa": 1}, "merges": ["a a", "aa a"]}},
    ],
    ids=str,
)
def test_other_settings_of_hugging_face_run_on_the_host(change):
    small = {"type": "BPE", "vocab": {"a": 0, "aa": 1, "aaa": 2}, "merges": ["a a", ["aa", "a"]]}
    plain = {"pre_tokenizer": GPT2_STEP, "model": small}
    assert huggingface_pairs(tokenizer_json(**plain)).merges == [(0, 0, 1), (1, 0, 2)]
    assert huggingface_pairs(tokenizer_json(**plain | change)) is None


# Tables


@pytest.mark.slow("characters have the classes that tiktoken gives them")
def test_classes_are_those_of_tiktoken():
    classes = character_classes(CL100K)
    texts = dict.fromkeys("aé", LETTER) | dict.fromkeys("1²", NUMBER) | dict.fromkeys("\u3000\t", SPACE)
    texts |= dict.fromkeys("!\x1c\u0301", OTHER) | dict.fromkeys("\n\r", BREAK) | {" ": BLANK, "'": QUOTE}
    assert {text: int(classes[ord(text)]) for text in texts} == texts
    pages, parts = make_pages(classes)
    assert pages[0] == 0 and len(parts) < 40_000
    numbers = np.arange(0x110000)
    np.testing.assert_array_equal(parts[pages[numbers >> 8].astype(int) << 8 | numbers & 255], classes)


def test_classes_of_case_are_those_of_tiktoken():
    classes = character_classes(O200K)
    texts = dict.fromkeys("AÉ\u01c5", cases.UPPER) | dict.fromkeys("aé\u017f", cases.LOWER)
    texts |= dict.fromkeys("\u02b0中", cases.LETTER) | dict.fromkeys("\u0301\u20dd", cases.MARK)
    texts |= dict.fromkeys("1²", cases.NUMBER) | dict.fromkeys(" \u3000", cases.SPACE)
    texts |= dict.fromkeys("\n\r", cases.BREAK) | dict.fromkeys("!'/\x1c", cases.OTHER)
    assert {text: int(classes[ord(text)]) for text in texts} == texts
    letters, in_words = character_classes(CL100K) == LETTER, classes >= cases.UPPER
    np.testing.assert_array_equal(in_words & (classes != cases.MARK), letters)


def test_tokens_above_15_bytes_are_compared():
    """The longest tokens are found by hash; a text that differs in its last byte is not."""
    long = sorted((token for token in gpt2_ranks() if len(token) > 15), key=len)[-40:]
    texts = [token.decode("utf-8", "ignore") for token in long]
    tables = make_flat_tables(pairs_of(0))
    assert first_difference([*texts, *(text[:-1] for text in texts)], tables, encoding_of(0)) is None


def test_what_has_no_flat_form_runs_on_the_host(made_encodings):
    ranks = {bytes([byte]): byte for byte in range(256)}
    known = EXPRESSIONS[0]
    assert flat_obstacle(tiktoken_pairs(known, ranks)) == ""
    assert "is no byte-level BPE" in flat_obstacle(None)
    assert "none of GPT-2, cl100k, Llama-3 and o200k" in flat_obstacle(tiktoken_pairs(known + " ", ranks))
    assert "lacks a token for some byte" in flat_obstacle(tiktoken_pairs(known, {**ranks, b"ab": MAX_IDS}))
    del ranks[b"\x07"]
    assert "lacks a token for some byte" in flat_obstacle(tiktoken_pairs(known, ranks))
    assert load_tokenizer("gpt2").device_note == ""
    for name in ("o200k_base", "o200k_harmony"):
        assert load_tokenizer(name).device_note == ""
