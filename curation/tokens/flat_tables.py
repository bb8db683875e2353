# SPDX-License-Identifier: Apache-2.0
"""Tables of a byte-pair vocabulary for engines that divide work by bytes, not by documents.

The classes of characters come from the regular expressions of the tokenizer's own library, since each library has its
own version of Unicode: tiktoken 0.14 and `tokenizers` 0.23 have 141,028 letters, Python's `regex` 158,172.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from curation.kernels import case_classes as cases
from curation.kernels.bpe import MAX_IDS, NO_ENTRY, TokenTable, fill_pairs, fill_tokens, find_merged
from curation.kernels.expressions import BLANK, BREAK, CL100K, GPT2, LETTER, LLAMA3, NUMBER, O200K, QUOTE, SPACE
from curation.tokens.byte_pairs import GPT2_EXPRESSION, BytePairs

PATTERNS = {
    r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s": GPT2,
    GPT2_EXPRESSION: GPT2,
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]"
    r"|\s+(?!\S)|\s": CL100K,
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+": LLAMA3,
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+": O200K,
}  # fmt: skip
# Regular expressions and characters of each class; a character in no class is OTHER.
CLASSES = (
    (r"\p{L}", LETTER), (r"\p{N}", NUMBER), (r"\s", SPACE), (" ", BLANK), (r"[\r\n]", BREAK), ("'", QUOTE),
)  # fmt: skip
CASE_CLASSES = (
    (r"[\p{Lu}\p{Lt}]", cases.UPPER), (r"\p{Ll}", cases.LOWER), (r"[\p{Lm}\p{Lo}]", cases.LETTER),
    (r"\p{M}", cases.MARK), (r"\p{N}", cases.NUMBER), (r"\s", cases.SPACE), (r"[\r\n]", cases.BREAK),
)  # fmt: skip
CODE_POINTS = 0x110000
SURROGATES = slice(0xD800, 0xE000)
PAGE = 256
BYTES = 256
PROBED = 1024  # characters
ON_HOST = "its pre-tokens run on the host"


class FlatTables(NamedTuple):
    """The tables of a vocabulary that a device needs.

    pattern       GPT2, CL100K, LLAMA3 or O200K of `curation.kernels.expressions`
    pages         uint16, one per 256 code points: where their classes are
    classes       uint8, 256 per page; the first page is that of ASCII
    tokens        the tokens by their bytes
    byte_ids      int32: the id of each byte
    pairs         uint64: a hash table of pairs of ids
    encode_piece  ids of one pre-token, of any length
    """

    pattern: int
    pages: np.ndarray
    classes: np.ndarray
    tokens: TokenTable
    byte_ids: np.ndarray
    pairs: np.ndarray
    encode_piece: Callable[[str], np.ndarray]


def flat_obstacle(vocabulary: BytePairs | None) -> str:
    """Return the reason why a device cannot encode with a vocabulary, "" if it can."""
    if vocabulary is None:
        return f"it is no byte-level BPE in the order of its ids: {ON_HOST}"
    if vocabulary.pattern not in PATTERNS:
        return f"its regular expression is none of GPT-2, cl100k, Llama-3 and o200k: {ON_HOST}"
    missing = [byte for byte in range(BYTES) if bytes([byte]) not in vocabulary.ranks]
    if missing or max(vocabulary.ranks.values()) >= MAX_IDS:
        return f"it lacks a token for some byte, or has ids of {MAX_IDS} or more: {ON_HOST}"
    return ""


def make_flat_tables(vocabulary: BytePairs) -> FlatTables:
    """Return the tables of a vocabulary for which `flat_obstacle` is "". Takes a second and about 10 MB."""
    pattern = PATTERNS[vocabulary.pattern]
    pages, classes = make_pages(character_classes(pattern, vocabulary.library))
    ranks = vocabulary.ranks
    byte_ids = np.array([ranks[bytes([byte])] for byte in range(BYTES)], np.int32)
    pairs = _pair_table(_merges_of(ranks) if vocabulary.merges is None else vocabulary.merges)
    data, offsets = _by_id(ranks)
    if not vocabulary.keeps_tokens:
        merged = find_merged(data, offsets, byte_ids, pairs)
        data, offsets = _by_id({token: number for token, number in ranks.items() if merged[number]})
    tables = pages, classes, _token_table(data, offsets), byte_ids, pairs
    return FlatTables(pattern, *tables, _as_array(vocabulary.encode_piece))


def _as_array(encode_piece: Callable[[str], Iterable[int]]) -> Callable[[str], np.ndarray]:
    return lambda piece: np.fromiter(encode_piece(piece), np.int32)


# Classes of characters


def _in_class_of_tiktoken(expression: str, text: str) -> list[int]:
    """Return the code points of `text` that tiktoken's regular expressions put into a class. tiktoken encodes the
    characters that match and skips the others."""
    import tiktoken

    bytes_only = {bytes([byte]): byte for byte in range(BYTES)}
    encoding = tiktoken.Encoding("class", pat_str=expression, mergeable_ranks=bytes_only, special_tokens={})
    return [ord(character) for character in bytes(encoding.encode_ordinary(text)).decode()]


def _in_class_of_tokenizers(expression: str, text: str) -> list[int]:
    """Return the code points of `text` that the regular expressions of `tokenizers` put into a class. A normaliser
    deletes the characters that match."""
    from tokenizers import Regex, normalizers

    delete = normalizers.Replace(Regex(expression), "")
    parts = (text[first : first + PROBED] for first in range(0, len(text), PROBED))
    return [ord(character) for part in parts for character in {*part}.difference(delete.normalize_str(part))]


@cache
def character_classes(pattern: int, library: str = "tiktoken") -> np.ndarray:
    """Return the class of every code point in a library's regular expressions (uint8).

    Takes 0.2 s with tiktoken and 1.5 s with `tokenizers`, once per process."""
    text = "".join(map(chr, (*range(SURROGATES.start), *range(SURROGATES.stop, CODE_POINTS))))
    find = _in_class_of_tiktoken if library == "tiktoken" else _in_class_of_tokenizers
    return classes_of(lambda expression: find(expression, text), pattern)


def classes_of(find: Callable[[str], Any], pattern: int) -> np.ndarray:
    """Return the class of every code point (uint8); `find` returns the code points of a regular expression.

    pattern   as in `FlatTables`; o200k has different classes
    """
    classes = np.zeros(CODE_POINTS, np.uint8)
    for expression, number in CASE_CLASSES if pattern == O200K else CLASSES:
        classes[find(expression)] = number
    return classes


def make_pages(classes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the page number of each 256 code points, and the classes of the distinct pages. The page of ASCII is the
    first."""
    different, pages = np.unique(classes.reshape(-1, PAGE), axis=0, return_inverse=True)
    order = np.arange(len(different))
    order[[0, pages[0]]] = pages[0], 0  # swap
    return order[pages].astype(np.uint16), np.ascontiguousarray(different[order]).reshape(-1)


# Tokens and pairs


def _slots(entries: int) -> int:
    """Return a power of two that is at least twice the number of entries."""
    return 1 << (2 * entries).bit_length()


def _by_id(ranks: dict[bytes, int]) -> tuple[np.ndarray, np.ndarray]:
    """Return the bytes of all tokens by id, and their offsets (int32). An id without a token has no bytes."""
    tokens = [b""] * (max(ranks.values()) + 1)
    for token, rank in ranks.items():
        tokens[rank] = token
    return np.frombuffer(b"".join(tokens), np.uint8), np.cumsum([0, *map(len, tokens)], dtype=np.int32)


def _token_table(data: np.ndarray, offsets: np.ndarray) -> TokenTable:
    lengths = np.diff(offsets)
    slots = _slots(int(np.count_nonzero(lengths)))
    keys, ids = np.zeros(2 * slots, np.uint64), np.zeros(slots, np.int32)
    table = TokenTable(keys, ids, data, offsets, int(lengths.max()))
    fill_tokens(data[: len(data) // 8 * 8].view(np.uint64), table)
    return table


def _merges_of(ranks: dict[bytes, int]) -> list[tuple[int, int, int]]:
    """Return all pairs of tokens whose joined bytes are a token."""
    return [
        (ranks[token[:cut]], ranks[token[cut:]], rank)
        for token, rank in ranks.items()
        for cut in range(1, len(token))
        if token[:cut] in ranks and token[cut:] in ranks
    ]


def _pair_table(merges: list[tuple[int, int, int]]) -> np.ndarray:
    """Return a hash table from two ids to their merged id, with open addressing."""
    columns = np.array(merges, np.int64).reshape(-1, 3).T
    pairs = np.full(_slots(len(merges)), NO_ENTRY, np.uint64)
    fill_pairs(*map(np.ascontiguousarray, columns), pairs)
    return pairs
