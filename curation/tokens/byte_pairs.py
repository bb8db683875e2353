# SPDX-License-Identifier: Apache-2.0
"""Byte-pair vocabularies, as tables of merges: tiktoken's, and byte-level ones of Hugging Face."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any, Literal, NamedTuple

GPT2_EXPRESSION = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
PLAIN = {"dropout": None, "continuing_subword_prefix": None, "end_of_word_suffix": None, "byte_fallback": False}


class BytePairs(NamedTuple):
    """A vocabulary in which the pair with the smallest merged id is merged first.

    pattern       the regular expression of pre-tokens
    ranks         token -> id
    merges        (left id, right id, merged id); None: every two tokens merge whose joined bytes are a token
    keeps_tokens  whether a pre-token that is a token gets its id without merges
    encode_piece  ids of one pre-token, of any length
    library       "tiktoken" or "tokenizers", whose regular expressions decide which characters are letters
    """

    pattern: str
    ranks: dict[bytes, int]
    merges: list[tuple[int, int, int]] | None
    keeps_tokens: bool
    encode_piece: Callable[[str], Iterable[int]]
    library: Literal["tiktoken", "tokenizers"] = "tiktoken"


def tiktoken_pairs(pattern: str, ranks: dict[bytes, int]) -> BytePairs:
    """Return the vocabulary of a tiktoken encoding."""
    whole_texts: list[Any] = []

    def encode_piece(piece: str) -> Iterable[int]:
        import tiktoken

        if not whole_texts:
            whole_texts.append(
                tiktoken.Encoding("pieces", pat_str=r"(?s:.+)", mergeable_ranks=ranks, special_tokens={})
            )
        return whole_texts[0].encode_ordinary(piece)

    return BytePairs(pattern, ranks, None, True, encode_piece)


def huggingface_pairs(data: bytes | str) -> BytePairs | None:
    """Return the vocabulary of a tokenizer.json; None if it is no byte-level BPE whose merges are in the order of ids.

    The result is also None if the file has a normaliser, an added token that is not special, or a setting that changes
    merges or pre-tokens.
    """
    content = json.loads(data)
    model, pattern = content["model"], _pattern(content.get("pre_tokenizer") or {})
    plain = all((model.get(key) or None) == (value or None) for key, value in PLAIN.items())
    added = [token for token in content.get("added_tokens") or [] if not token.get("special")]
    if model.get("type") != "BPE" or not plain or not pattern or content.get("normalizer") or added:
        return None
    vocabulary: dict[str, int] = model["vocab"]
    pairs = [merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"]]
    merges = [(vocabulary[left], vocabulary[right], vocabulary[left + right]) for left, right in pairs]
    if any(first[2] >= second[2] for first, second in pairwise(merges)):
        return None
    keeps_tokens = bool(model.get("ignore_merges"))
    ranks = bytes_of_tokens(vocabulary)
    return BytePairs(pattern, ranks, merges, keeps_tokens, _piece_encoder(content), "tokenizers")


def spelling_of_bytes() -> dict[int, str]:
    """Return the character of each byte in byte-level vocabularies: 188 bytes spell themselves, the other 68 are
    U+0100 and up in order."""
    spelled = {byte: chr(byte) for byte in range(256) if chr(byte).isprintable() and chr(byte) != " "}
    return spelled | {b: chr(256 + i) for i, b in enumerate(b for b in range(256) if b not in spelled)}


def bytes_of_tokens(tokens: dict[str, int]) -> dict[bytes, int]:
    """Return ids by bytes. A token with a character that spells no byte is left out, since no text can contain it."""
    byte_of = {ord(character): byte for byte, character in spelling_of_bytes().items()}
    spelled = set(map(chr, byte_of))
    return {
        text.translate(byte_of).encode("latin-1"): rank for text, rank in tokens.items() if spelled.issuperset(text)
    }


def _pattern(pre_tokenizer: dict[str, Any]) -> str:
    """Return the regular expression of a byte-level pre-tokenizer, "" if there is none."""
    steps = pre_tokenizer["pretokenizers"] if pre_tokenizer.get("type") == "Sequence" else [pre_tokenizer]
    byte_level = steps[-1] if steps else {}
    if byte_level.get("type") != "ByteLevel" or byte_level.get("add_prefix_space"):
        return ""
    if len(steps) == 1:
        return GPT2_EXPRESSION if byte_level.get("use_regex", True) else ""
    split = steps[0]
    isolates = split.get("type") == "Split" and split.get("behavior") == "Isolated" and not split.get("invert")
    if len(steps) > 2 or not isolates or byte_level.get("use_regex", True):
        return ""
    return str(split["pattern"].get("Regex", ""))


def _piece_encoder(content: dict[str, Any]) -> Callable[[str], Iterable[int]]:
    """Return a function that encodes a text as one pre-token."""
    whole_texts: list[Any] = []
    bytes_alone = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}

    def encode_piece(piece: str) -> Iterable[int]:
        import tokenizers

        if not whole_texts:
            changed = content | {"pre_tokenizer": bytes_alone, "added_tokens": [], "post_processor": None}
            whole_texts.append(tokenizers.Tokenizer.from_str(json.dumps(changed)))
        ids: list[int] = whole_texts[0].encode(piece, add_special_tokens=False).ids
        return ids

    return encode_piece
