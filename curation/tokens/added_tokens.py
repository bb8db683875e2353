# SPDX-License-Identifier: Apache-2.0
"""Special and other added tokens of a tokenizer.json.

`tokenizers` can treat a special token in a text as plain text only if it is an added token. A model that has `<eos>` in
its own vocabulary still finds it. Unigram and WordLevel always do, WordPiece with a splitter on white space, BPE by
`ignore_merges` or by merges. So the token is renamed in these models, except in BPE, whose merges may need it for
longer tokens. For BPE, the ids of other pieces of the token's text replace its id.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

MARK = "\U0010fffe"  # a noncharacter, which no text in open interchange has
BYTES = frozenset(f"<0x{byte:02X}>" for byte in range(256))
SPACE = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}


def steps_of(normalizer: Any) -> Iterator[dict[str, Any]]:
    """Yield the steps of a normaliser of tokenizer.json, which may be a sequence of sequences."""
    if normalizer and normalizer.get("type") == "Sequence":
        for step in normalizer["normalizers"]:
            yield from steps_of(step)
    elif normalizer:
        yield normalizer


def special_texts(model: dict[str, Any], texts: Sequence[str]) -> list[str]:
    """Return the texts of added tokens that are special. Tokens of bytes do not count: a model spells unknown
    characters with them."""
    return [text for text in texts if not (model.get("byte_fallback") and text in BYTES)]


def unknown_token(model: dict[str, Any]) -> str:
    """Return the name of the token for unknown text, "" if the model has none."""
    number = model.get("unk_id")
    return str(model["vocab"][number][0] if number is not None else model.get("unk_token") or "")


def with_renamed_tokens(content: dict[str, Any], texts: Collection[str]) -> dict[str, Any]:
    """Return a tokenizer.json whose model has other names for these tokens, and no merges whose result or parts they
    are.

    The ids of all tokens stay the same. Added tokens keep their texts, so shorter added tokens are not found inside
    them.
    """
    model = content["model"]
    tokens = model.get("vocab") or {}
    known = {token for token, _ in tokens} if isinstance(tokens, list) else set(tokens)
    names = {text: f"{MARK}{number}{MARK}" for number, text in enumerate(sorted(known.intersection(texts)))}
    if not names:
        return content
    if isinstance(tokens, list):  # Unigram
        renamed: Any = [[names.get(token, token), score] for token, score in tokens]
    else:
        renamed = {names.get(token, token): number for token, number in tokens.items()}
    model = without_merges(model | {"vocab": renamed}, names)
    if model.get("unk_token") in names:
        model["unk_token"] = names[model["unk_token"]]
    added = content.get("added_tokens") or []
    # `tokenizers` numbers added tokens by the model or by their order. So those that keep their text come last.
    moved = [token | {"content": names.get(token["content"], token["content"])} for token in added]
    kept = [token for token in added if token["content"] in names]
    return content | {"model": model, "added_tokens": moved + kept}


def without_merges(model: dict[str, Any], texts: Collection[str]) -> dict[str, Any]:
    """Return a model without the merges that make or use these tokens."""
    if not model.get("merges"):
        return model
    prefix = model.get("continuing_subword_prefix") or ""
    unwanted = frozenset(texts)
    pairs = [merge.split(" ", 1) if isinstance(merge, str) else merge for merge in model["merges"]]
    kept = [
        [left, right] for left, right in pairs if unwanted.isdisjoint((left, right, left + right.removeprefix(prefix)))
    ]
    return model | {"merges": kept}


def texts_to_rename(model: dict[str, Any], specials: Collection[str]) -> list[str]:
    """Return the special tokens to rename. For BPE, that is only the unknown token, if merges make it: its id may also
    mean unknown text, so the id cannot be replaced later."""
    if "merges" not in model:
        return [*specials]
    unknown = unknown_token(model)
    if unknown not in specials:
        return []
    is_made = model.get("ignore_merges") or len(without_merges(model, [unknown])["merges"]) < len(model["merges"])
    return [unknown] if is_made else []


def plain_ids(content: dict[str, Any], specials: Collection[str]) -> Callable[[str], list[int]]:
    """Return a function that takes the text of a special token of BPE. The function returns the ids of other pieces
    with this text; [] if the model has no such pieces."""
    import tokenizers

    changed = with_renamed_tokens(content, specials)
    model = tokenizers.Tokenizer.from_str(json.dumps(changed)).model
    return lambda text: [token.id for token in model.tokenize(text)]


def plain_tokens(content: dict[str, Any], *, with_rules: bool) -> list[dict[str, Any]]:
    """Return the added tokens that are not special and have a rule that gigatoken does not know; without `with_rules`,
    those that have no such rule. gigatoken finds tokens with such rules inside words too, and does not strip the white
    space around them."""
    added = [token for token in content.get("added_tokens") or [] if not token.get("special")]
    rules = ("single_word", "lstrip", "rstrip")
    return [token for token in added if with_rules == any(token.get(rule) for rule in rules)]


def json_for_gigatoken(content: dict[str, Any], id_of: Callable[[str], int | None]) -> dict[str, Any]:
    """Return a tokenizer.json without special tokens, since gigatoken would parse them in a text.  `id_of` gives the
    ids of added tokens: `tokenizers` does not use the ids in the file. ValueError: many texts may become an added token
    when they are normalised.
    """
    plain = plain_tokens(content, with_rules=False)
    steps = [*steps_of(content.get("normalizer"))]
    for token in [*plain, *plain_tokens(content, with_rules=True)]:
        if token.get("normalized", True) and not all(_keeps_text(step, token["content"]) for step in steps):
            raise ValueError(f"the added token {token['content']!r} is found in normalised text")
    added = [token | {"id": id_of(token["content"])} for token in plain]
    return content | {"added_tokens": added, "post_processor": None, "truncation": None, "padding": None}


def _keeps_text(step: dict[str, Any], text: str) -> bool:
    """Whether `probes.pattern_of` finds a token in every text that a step of a normaliser turns into the token."""
    is_space = step == SPACE or (step["type"] == "Prepend" and step.get("prepend") == "▁")
    return is_space or (step["type"] == "NFC" and text.isascii())
