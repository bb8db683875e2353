# SPDX-License-Identifier: Apache-2.0
"""Compares a fast library with the reference on every code point, and stores the characters on which they differ.

    python -m curation.tokens.unicode_sweep [TOKENIZER...]

TOKENIZER is a value of `tokenizer.name`; without one, the splits of `shipped_vocabularies` are compared. A split with a
stored sweep of the installed versions is skipped. A character alone shows no difference, since its class decides where
the text around it is cut. So each character is put into CONTEXTS. The comparison uses a vocabulary in which every token
of several characters is a merge across a possible cut. All code points in one context take tiktoken 2 to 6 s,
`tokenizers` 10 to 40 s (two shared cores).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import product
from typing import Any

import msgspec
import numpy as np

from curation.base.system.packages import package_version
from curation.base.system.system_folders import system_folder
from curation.kernels.expressions import CL100K, GPT2, LLAMA3, O200K
from curation.tokens import unicode_differences
from curation.tokens.byte_pairs import spelling_of_bytes
from curation.tokens.flat_tables import PATTERNS
from curation.tokens.unicode_differences import SweepOutcome, find_entry, stored_entries
from curation.tokens.vocabularies import (
    GIGATOKEN_SCHEMES,
    Vocabulary,
    load_vocabulary,
    read_tokenizer_json,
    tiktoken_vocabulary,
    vocabulary_files,
)

CODE_POINTS = [*range(0xD800), *range(0xE000, 0x110000)]  # surrogates are no characters
# "c" is the character. Each context tests an alternative of a regular expression, which the comment quotes.
CONTEXTS = (
    "c's",  # '(?:[sdmt]|ll|ve|re): a contraction after a letter or number; after another one, the quote belongs to it
    "ac",  # \p{L}+: c continues a word. o200k: an upper-case letter ends it
    "ca",  # [^\r\n\p{L}\p{N}]?\p{L}+: one other character belongs to the word, a number does not
    "c1",  # \p{N}+: c starts a number
    "12c3",  # \p{N}{1,3}: c counts as a digit
    "c(",  # [^\s\p{L}\p{N}]+: c starts a series of others
    "((c",  # c continues the series; of letters and marks, only a mark does. One "(" would belong to a word
    "  c",  # ` ?` and \s+(?!\S): the last space belongs to c, unless c is white space
    "c\n/",  # [^\s\p{L}\p{N}]+[\r\n/]* and \s*[\r\n]+: line breaks and slashes belong to others or to white space
    "cA",  # o200k, [\p{Lu}..]*[\p{Ll}..]+: an upper-case letter starts a word after a lower-case one
    "acA",  # the same: letters without case, and marks, take the case of the character before
    "Aca",  # the same: c between cases
    "a'cb",  # (?i:'s|'t|'m|'d): c equals such a letter when case is ignored, as U+017F does
    "a'lcb",  # (?i:'ll), and first letters below
    "a'clb",
    "a'ceb",  # (?i:'ve|'re)
    "a'vcb",
)
# Contexts that distinguish all classes. With `tokenizers`, only these are tried for code points without a class in
# Unicode 17. If both libraries take such a code point for no letter, number, mark or white space, it is cut like any
# other symbol.
CLASS_CONTEXTS = ("c's", "12c3", "((c", "acA")
# A normaliser composes and orders marks by Unicode's tables: U+0323 has class 220, U+0334 class 1, U+0301 class 230.
NORMALIZER_CONTEXTS = ("ac", "ac\u0323", "ac\u0334", "a\u0323c\u0301", "a\u0301c")
NORMALIZERS = ("NFC", "NFD", "NFKC", "NFKD")
EDGES = ("c", "ca", "ac", " c ", "a c a")  # where white space at the ends of a text is cut off
GROUP = 64  # code points in one text: an encoder's call costs as much as 50 tokens
CALL = 256  # texts in one call
CONTINUATIONS, LEADS, BYTES = range(0x80, 0xC0), range(0xC2, 0xF5), range(256)
_CONTINUED = {spelling_of_bytes()[byte] for byte in CONTINUATIONS}

Reference = Callable[[list[str]], Iterable[Any]]
Fast = Callable[[str], np.ndarray]


def sweep(vocabulary: Vocabulary, code_points: list[int] = CODE_POINTS) -> set[int]:
    """Return the code points for which gigatoken and the reference give different ids in some context."""
    engine = vocabulary.build_fast()
    fast: Fast = lambda text: engine.encode(text.encode())  # noqa: E731
    differing = {
        number
        for context, numbers, group in _tasks(vocabulary, code_points)
        for number in differences(context, vocabulary.encode, fast, numbers, group)
    }
    if not _normalises(vocabulary):
        return differing
    known = set(code_points)
    texts = [text for text in _compositions() if ord(text[0]) in known]
    expected = zip(texts, vocabulary.encode(texts), strict=True)
    return differing | {ord(text[0]) for text, wanted in expected if not np.array_equal(fast(text), wanted)}


def _normalises(vocabulary: Vocabulary) -> bool:
    return vocabulary.kind == "sentencepiece" or any(name in vocabulary.split().split() for name in NORMALIZERS)


def _tasks(vocabulary: Vocabulary, code_points: list[int]) -> Iterator[tuple[str, list[int], int]]:
    """Yield (context, code points, number of code points per text)."""
    import unicodedata2

    if vocabulary.kind == "sentencepiece":  # no class affects its cuts, but text ends do change
        yield from ((context, code_points, 1) for context in (*EDGES, *NORMALIZER_CONTEXTS))
        return
    assigned = code_points
    if vocabulary.kind == "huggingface":
        assigned = [number for number in code_points if unicodedata2.category(chr(number)) not in ("Cn", "Co")]
    for context in CONTEXTS:
        yield context, code_points if context in CLASS_CONTEXTS else assigned, GROUP
    if _normalises(vocabulary):
        yield from ((context, code_points, GROUP) for context in NORMALIZER_CONTEXTS)


def differences(
    context: str, reference: Reference, fast: Fast, code_points: list[int], group: int = GROUP
) -> Iterator[int]:
    """Yield the code points that two encoders tokenise differently in a context.

    A text has `group` code points. Line breaks separate them, so one cannot change the next. A text with a difference
    is divided to find the code points."""
    numbers = [code_points[first : first + group] for first in range(0, len(code_points), group)]
    for first in range(0, len(numbers), CALL):
        part = numbers[first : first + CALL]
        texts = ["\n".join(context.replace("c", chr(number)) for number in each) for each in part]
        for each, text, expected in zip(part, texts, reference(texts), strict=True):
            if not np.array_equal(fast(text), expected):
                yield from (k for k in each if not _same(context.replace("c", chr(k)), reference, fast))


def _same(text: str, reference: Reference, fast: Fast) -> bool:
    return np.array_equal(fast(text), next(iter(reference([text]))))


@cache
def _compositions() -> list[str]:
    """Return the canonical decompositions of more than one character: a normaliser of an older Unicode version may not
    compose them."""
    import unicodedata2

    forms = {unicodedata2.normalize("NFD", chr(number)) for number in CODE_POINTS}
    return sorted(form for form in forms if len(form) > 1)


# Vocabularies whose ids show where the pre-tokenizer cuts a text


@cache
def cutting_tokens() -> list[bytes]:
    """Return all bytes, then the merges: first those of a byte of the tested character with text next to it, then those
    of text alone.

    So two ways to cut a context into pieces never give the same tokens."""
    before, after, inside = set(), set(), {bytes(pair) for pair in product(range(128), repeat=2)}
    for context in CONTEXTS:
        left, _, right = context.encode().partition(b"c")
        after |= {bytes([last]) + right[:end] for last in CONTINUATIONS for end in range(1, len(right) + 1)}
        before |= {left[start:] + bytes([lead]) for lead in LEADS for start in range(len(left))}
        inside |= {text[:end][start:] for text in (left, right) for end in range(3, 6) for start in range(end - 2)}
    singles = [bytes([byte]) for byte in BYTES]
    early, late = (sorted(tokens, key=lambda token: (len(token), token)) for tokens in (after | before, inside))
    return [*singles, *early, *(token for token in late if len(token) > 1)]


def tiktoken_with(expression: str, scheme: str | None) -> Vocabulary:
    """Return the vocabulary of `cutting_tokens` with a regular expression, which gigatoken calls `scheme`."""
    import tiktoken

    ranks = {token: number for number, token in enumerate(cutting_tokens())}
    return tiktoken_vocabulary(
        tiktoken.Encoding("sweep", pat_str=expression, mergeable_ranks=ranks, special_tokens={}), scheme
    )


def huggingface_with(normalizer: Any, pre_tokenizer: Any) -> Vocabulary:
    """Return the vocabulary of `cutting_tokens` with the steps of a byte-level tokenizer.json."""
    spell = spelling_of_bytes()
    tokens = ["".join(spell[byte] for byte in token) for token in cutting_tokens()]
    merges = [_halves(token) for token in tokens[len(BYTES) :]]
    model = {"type": "BPE", "vocab": {token: number for number, token in enumerate(tokens)}, "merges": merges}
    content: dict[str, Any] = {
        "version": "1.0",
        "added_tokens": [],
        "truncation": None,
        "padding": None,
        "post_processor": None,
    }
    content |= {"normalizer": normalizer, "pre_tokenizer": pre_tokenizer, "decoder": None, "model": model}
    with system_folder() as folder:
        path = folder / "tokenizer.json"
        path.write_text(json.dumps(content), "utf-8")
        return load_vocabulary(str(path))


def _halves(token: str) -> list[str]:
    """Return the two tokens whose merge is `token`. A token that begins with a continuation byte is cut before its last
    byte, every other token after its first byte."""
    cut = len(token) - 1 if token[0] in _CONTINUED else 1
    return [token[:cut], token[cut:]]


def shipped_vocabularies() -> Iterator[Vocabulary]:
    """Yield the vocabularies that are compared by default: the splits of tiktoken's encodings, and of byte-level
    tokenizers like those of GPT-2, Llama 3, gpt-oss (o200k) and Qwen 2."""
    expressions = {number: expression for expression, number in reversed(PATTERNS.items())}
    for number, scheme in ((GPT2, "gpt2"), (CL100K, "gpt4"), (O200K, "o200k")):
        yield tiktoken_with(expressions[number], scheme)
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    yield huggingface_with(None, byte_level | {"use_regex": True})
    qwen2 = expressions[LLAMA3].replace("{1,3}", "")
    for expression, normalizer in ((expressions[LLAMA3], None), (qwen2, {"type": "NFC"}), (expressions[O200K], None)):
        split = {"type": "Split", "pattern": {"Regex": expression}, "behavior": "Isolated", "invert": False}
        yield huggingface_with(normalizer, {"type": "Sequence", "pretokenizers": [split, byte_level]})


def vocabulary_like(name: str) -> Vocabulary:
    """Return the vocabulary of `cutting_tokens` with the pre-tokenizer of the tokenizer `name`, if it can have another
    vocabulary. The ids then show where a text is cut."""
    vocabulary = load_vocabulary(name)
    if vocabulary.kind == "tiktoken":
        return tiktoken_with(vocabulary.split(), GIGATOKEN_SCHEMES.get(name))
    if vocabulary.kind == "huggingface":
        content = json.loads(read_tokenizer_json(vocabulary_files(name)[0]))
        if not content["model"].get("byte_fallback"):
            return huggingface_with(content.get("normalizer"), content.get("pre_tokenizer"))
    return vocabulary


def named(packages: Iterable[str]) -> str:
    """Return packages with their versions, for a message or a record of a comparison."""
    return ", ".join(f"{name} {package_version(name)}" for name in packages)


def _as_ranges(numbers: set[int]) -> str:
    ordered = sorted(numbers)
    firsts = [k for k in ordered if k - 1 not in numbers]
    lasts = [k for k in ordered if k + 1 not in numbers]
    return " ".join(
        f"{first:X}" if first == last else f"{first:X}-{last:X}" for first, last in zip(firsts, lasts, strict=True)
    )


def main(names: list[str]) -> None:
    """Compare the installed versions on the splits of some tokenizers, or of the shipped ones, and store the
    results."""
    for vocabulary in map(vocabulary_like, names) if names else shipped_vocabularies():
        key = named(["gigatoken"]), named(vocabulary.versions), vocabulary.split()
        if find_entry(*key) or not vocabulary.split():
            sys.stdout.write(f"{key[0]} and {key[1]}: nothing to compare for this split\n")
            continue
        entry = SweepOutcome(*key, _as_ranges(sweep(vocabulary)))
        entries = sorted((*stored_entries(), entry), key=msgspec.structs.astuple)
        unicode_differences.STORED.write_bytes(msgspec.json.format(msgspec.json.encode(entries), indent=1) + b"\n")
        stored_entries.cache_clear()
        sys.stdout.write(f"{entry.fast} and {entry.reference}: {entry.characters or 'no difference'}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
