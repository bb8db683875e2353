# SPDX-License-Identifier: Apache-2.0
"""Small vocabularies with the ids that peers' tests expect, without a network.

A byte-pair vocabulary has the tokens of the expected ids, and tokens between them, each one character longer, with ids
that no expected id has. Longer tokens come first, so that no shorter one cuts them.
"""

from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any

import tiktoken
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

from curation.tokens import vocabularies
from curation.tokens.tokenization import Tokenizer as Loaded
from curation.tokens.tokenization import TokenizerSpec, load_tokenizer
from tests.tokens.byte_pairs import EXPRESSIONS, NAMES, gpt2_ranks, tokenizer_of

END = "<|endoftext|>"
NUMBERS = {name: number for number, name in NAMES.items()}


def tokenizer(described: Any, folder: Path) -> Loaded:
    """The tokenizer that a case describes; see `file_of` and `tiktoken_of`."""
    if isinstance(described, str):
        return tokenizer_of(NUMBERS[described]) if described in NUMBERS else load_tokenizer(described)
    if "expression" in described:
        return tiktoken_of(described["expression"], described["tokens"])
    return load_tokenizer(str(file_of(described, folder)))


def file_of(described: Mapping[str, Any], folder: Path) -> Path:
    """A `tokenizer.json` of words, of pieces as in BERT, or of pairs as in GPT (`characters`), Llama (`metaspace`) or
    GPT-NeoX (`bytes`). `lowercase` and `prefix`, a space before the text, are options.
    """
    kinds = {"words": _words, "pieces": _pieces, "characters": _characters, "metaspace": _metaspace, "bytes": _bytes}
    made = kinds[described["kind"]](described["tokens"])
    if described.get("prefix"):
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    if described.get("lowercase"):
        made.normalizer = normalizers.Lowercase()
    made.add_special_tokens([END])
    path = folder / "tokenizer.json"
    made.save(str(path))
    return path


def _words(tokens: dict[str, int]) -> Tokenizer:
    made = Tokenizer(models.WordLevel(_filled(tokens), unk_token=min(tokens, key=tokens.__getitem__)))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return made


def _pieces(tokens: dict[str, int]) -> Tokenizer:
    made = Tokenizer(models.WordPiece(_filled(tokens), unk_token=min(tokens, key=tokens.__getitem__)))
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return made


def _characters(tokens: dict[str, int]) -> Tokenizer:
    """A token that ends a word ends in `</w>`; the token 0 is for unknown characters."""
    unknown = min(tokens, key=tokens.__getitem__)
    ids, merges = dict(tokens), []
    for token in tokens:
        parts = [*token.removesuffix("</w>")]
        parts[-1] += token[len(token.removesuffix("</w>")) :]
        if token != unknown:
            merges += [("".join(parts[:end]), parts[end]) for end in range(1, len(parts))]
    for part in [part for pair in merges for part in (*pair, "".join(pair))]:
        ids.setdefault(part, max(ids.values()) + 1)
    made = Tokenizer(
        models.BPE(_filled(ids), list(dict.fromkeys(merges)), unk_token=unknown, end_of_word_suffix="</w>")
    )
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.BPEDecoder(suffix="</w>")
    return made


def _metaspace(tokens: dict[str, int]) -> Tokenizer:
    made = Tokenizer(models.BPE(*_pairs(tokens)))
    made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    made.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    return made


def _bytes(tokens: dict[str, int]) -> Tokenizer:
    made = Tokenizer(models.BPE(*_pairs(tokens)))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    return made


def _pairs(tokens: Mapping[str, int]) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Ids and merges: each token is merged from the left, longer tokens first."""
    merges: list[tuple[str, str]] = []
    for token in sorted(tokens, key=lambda token: (-len(token), token)):
        merges += [(token[:end], token[end]) for end in range(1, len(token))]
    merges = list(dict.fromkeys(merges))
    ids, taken = dict(tokens), set(tokens.values())
    free = (number for number in count() if number not in taken)
    for token in [part for pair in merges for part in pair] + ["".join(pair) for pair in merges]:
        if token not in ids:
            ids[token] = next(free)
    return _filled(ids), merges


def _filled(ids: Mapping[str, int]) -> dict[str, int]:
    """The ids with a token for each number below the last, which a training program expects."""
    taken = set(ids.values())
    return {**ids, **{f"<unused {number}>": number for number in range(max(taken)) if number not in taken}}


def tiktoken_of(expression: str, tokens: Mapping[str, int]) -> Loaded:
    """An encoding of tiktoken: bytes have GPT-2's ids; a token is merged in steps of free ids. Latin-1 tokens."""
    wanted = {token.encode("latin-1"): rank for token, rank in tokens.items()}
    ranks = {token: rank for token, rank in gpt2_ranks().items() if len(token) == 1} | wanted
    free = (number for number in count() if number not in set(ranks.values()))
    for token in sorted(wanted, key=lambda token: (-len(token), token)):
        for start in range(len(token) - 2, 0, -1):
            if token[start:] not in ranks:
                ranks[token[start:]] = next(free)
    name = f"{expression}_{len(tokens)}"
    encoding = tiktoken.Encoding(
        name, pat_str=EXPRESSIONS[NUMBERS[expression]], mergeable_ranks=ranks, special_tokens={}
    )
    return Loaded(TokenizerSpec(name=name, append_eod=False), vocabularies.tiktoken_vocabulary(encoding, None))
