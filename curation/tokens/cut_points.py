# SPDX-License-Identifier: Apache-2.0
"""Points at which a text can be cut so that the ids of the pieces, joined, are the ids of the whole text.

A library needs up to 250 bytes of memory per byte of a text that it encodes at once. A cut point is between two
characters that are never in the same pre-token. The steps listed here read no characters before a pre-token, and
characters after it only within white space. So the pre-tokens of both pieces are those of the text:

- GPT-2's expression, and those of newer models, end a series of letters at any other character except an apostrophe,
and end every pre-token at a space. - `Metaspace`, and the splitters on white space, begin a pre-token at each space
that follows a character other than a space. - A BPE model without pre-tokens merges no tokens across a space if in no
token a space follows another character.

If a tokenizer has a step that is not listed, its texts stay whole. The same is true for the Unigram models of
SentencePiece: they add 32-bit scores from the start of a text, and in a piece the sums may round differently.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from importlib.util import find_spec
from typing import Any, NamedTuple

from curation.tokens.added_tokens import SPACE, steps_of
from curation.tokens.byte_pairs import GPT2_EXPRESSION

PIECE_CHARACTERS = 1 << 16  # the shortest piece of a text that is cut

# Letters of all Unicode versions that no normaliser decomposes into more than letters
LETTERS = "A-Za-z\u0391-\u03a1\u03b1-\u03c9\u0410-\u0418\u041a-\u0438\u043a-\u044f\u05d0-\u05ea\u0628-\u063a"
LETTERS += "\u0915-\u0928\u0e01-\u0e2e\u3042\u3044\u3046\u3048\u304a\u306a-\u306e\u307e-\u3082\u30a2\u30a4\u30a6\u30a8"
LETTERS += "\u30aa\u30ca-\u30ce\u30de-\u30e2\u4e00-\u9fa5\uac00-\ud7a3"
SIGNS = r"\t\n\r !\"#$%&()*+,./:;<=>?@\[\]{}\u3001\u3002\uff01\uff0c\uff1a\uff1f"

# The expressions of GPT-4, Llama 3, Qwen 2 and later models, gpt-4o, and their variants in `tokenizers`
CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
BEFORE = r"[^\r\n\p{L}\p{N}]?"
EXPRESSIONS = {
    GPT2_EXPRESSION,
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    *(
        rf"{CONTRACTIONS}|{BEFORE}\p{{L}}+|{numbers}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{SPACES}"
        for numbers in (r"\p{N}{1,3}", r"\p{N}")
    ),
    rf"{BEFORE}{UPPER}*{LOWER}+{CONTRACTIONS}?|{BEFORE}{UPPER}+{LOWER}*{CONTRACTIONS}?"
    rf"|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{SPACES}",
}
NORMALIZERS = {"NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "BertNormalizer"}
WORDS = {"Whitespace", "BertPreTokenizer"}  # letters end at signs, too
PREFIX = {"type": "Prepend", "prepend": "▁"}
# Fields of sentencepiece_model.proto, and the type of BPE models
TRAINER, MODEL_TYPE, BPE, SPACE_AS_SUFFIX = 2, 3, 2, 24
NORMALIZER, CHARACTERS, DUMMY_PREFIX, EXTRA_SPACES, ESCAPES = 3, 2, 3, 4, 5
PLAIN = {"continuing_subword_prefix": None, "end_of_word_suffix": None, "ignore_merges": False, "dropout": None}
INNER_SPACE = re.compile("[^▁ ][▁ ]")


class CutPoints(NamedTuple):
    """Where texts can be cut.

    pattern   regular expression that matches the character before a point
    skipped   characters after a point that belong to no piece: 1 for a space that the library puts before each text
    """

    pattern: str
    skipped: int = 0

    def pieces(self, text: str) -> Iterator[str]:
        """Yield the pieces of a text: all but the last have at least PIECE_CHARACTERS characters."""
        start = 0
        while len(text) - start > PIECE_CHARACTERS:
            match = re.compile(self.pattern).search(text, start + PIECE_CHARACTERS - 1)
            if match is None:
                break
            yield text[start : match.end()]
            start = match.end() + self.skipped
        yield text[start:] if start else text


SHOWN = rf"[!-~{LETTERS}]"
AFTER_LETTERS = CutPoints(rf"[{LETTERS}](?=[{SIGNS}0-9])|[!-~](?= )")
BEFORE_SIGNS = CutPoints(rf"[{LETTERS}](?=[{SIGNS}])|[!-~](?= )")
BEFORE_SPACES = CutPoints(rf"{SHOWN}(?= )")
INSTEAD_OF_SPACES = CutPoints(rf"{SHOWN}(?= {SHOWN})", skipped=1)


def points_of_json(content: Mapping[str, Any]) -> CutPoints | None:
    """Return the cut points of a tokenizer.json, None if its texts stay whole."""
    steps = [*steps_of(content.get("normalizer"))]
    has_prefix = steps[:1] == [PREFIX]
    others = [step for step in steps[has_prefix:] if step["type"] not in NORMALIZERS]
    pre_tokenizer = content.get("pre_tokenizer")
    if any(step != SPACE for step in others) or bool(others) == bool(pre_tokenizer):
        return None
    points = _of_pre_tokenizer(pre_tokenizer) if pre_tokenizer else _of_whole_texts(content["model"], has_prefix)
    if all(token.get("special") for token in content.get("added_tokens") or []):  # none is found in a text
        return points if points and bool(points.skipped) == has_prefix else None
    return BEFORE_SPACES if points and not has_prefix and all(map(_leaves_spaces, content["added_tokens"])) else None


def _leaves_spaces(token: Mapping[str, Any]) -> bool:
    """Whether an added token contains no white space and strips none around it."""
    rules = ("single_word", "lstrip", "rstrip")
    return not re.search(r"[\s▁]", token["content"]) and bool(token.get("special") or not any(map(token.get, rules)))


def _of_pre_tokenizer(step: Mapping[str, Any]) -> CutPoints | None:
    kind = step["type"]
    if kind == "Sequence" and len(step["pretokenizers"]) == 2:
        split, last = step["pretokenizers"]
        known = split["type"] == "Split" and split["pattern"].get("Regex") in EXPRESSIONS
        isolates = split.get("behavior") == "Isolated" and not split.get("invert")
        is_plain = last["type"] == "ByteLevel" and not last.get("add_prefix_space") and not last.get("use_regex", True)
        return AFTER_LETTERS if known and isolates and is_plain else None
    if kind == "ByteLevel" and step.get("use_regex", True):
        return BEFORE_SPACES if step.get("add_prefix_space", True) else AFTER_LETTERS
    if kind == "Metaspace" and step.get("split", True) and step.get("replacement") == "▁":
        return BEFORE_SPACES
    if kind == "WhitespaceSplit":
        return BEFORE_SPACES
    return BEFORE_SIGNS if kind in WORDS else None


def _of_whole_texts(model: Mapping[str, Any], has_prefix: bool) -> CutPoints | None:
    """Return the cut points of a BPE model that merges the characters of a whole text; "▁" in its tokens is a space."""
    plain = all((model.get(key) or None) == (value or None) for key, value in PLAIN.items())
    if model.get("type") != "BPE" or not plain or "▁" not in model["vocab"]:
        return None
    return _of_pieces(model["vocab"], has_prefix)


def points_of_sentencepiece(data: bytes, pieces: Iterable[str]) -> CutPoints | None:
    """Return the points of a SentencePiece model with these pieces, None if its texts stay whole."""
    if find_spec("gigatoken") is None:  # its reader of the format
        return None
    from gigatoken._load.sentencepiece import _fields, _scalars

    specs: dict[int, Any] = {field: value for field, value in _fields(data) if field in (TRAINER, NORMALIZER)}
    trainer, normalizer = (_scalars(specs.get(field, b"")) for field in (TRAINER, NORMALIZER))
    has_prefix, takes_spaces = (bool(normalizer.get(field, 1)) for field in (DUMMY_PREFIX, EXTRA_SPACES))
    is_known = trainer.get(MODEL_TYPE) == BPE and not trainer.get(SPACE_AS_SUFFIX) and normalizer.get(ESCAPES, 1)
    if not is_known or normalizer.get(CHARACTERS) or (takes_spaces and not has_prefix):
        return None
    return _of_pieces(pieces, has_prefix)


def _of_pieces(pieces: Iterable[str], has_prefix: bool) -> CutPoints | None:
    if any(map(INNER_SPACE.search, pieces)):
        return None
    return INSTEAD_OF_SPACES if has_prefix else BEFORE_SPACES
