# SPDX-License-Identifier: Apache-2.0
"""Reads tokenizers from files of ranks or merges: rank files of tiktoken, Mistral's `tekken.json`, and `vocab.json`
with `merges.txt`.

Most of these files lack the regular expression that splits texts. A rank file is read only if its ranks are those of a
known model. `tekken.json` has an expression. For `vocab.json` and `merges.txt`, the class in tokenizer_config.json
decides, or ranks equal to GPT-2's. Every other file is refused: its expression is unknown, and a wrong one gives wrong
ids.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import unicodedata
from binascii import b2a_base64
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from curation.base.errors import TokenizerError
from curation.base.system.panics import PanicError, without_panics
from curation.tokens.byte_pairs import bytes_of_tokens

RANK_LINE = re.compile(rb"[A-Za-z0-9+/]+={0,2} \d+\r?\n")
VOCAB, MERGES, ADDED = "vocab.json", "merges.txt", "added_tokens.json"
# Both tokenizers are in Python packages of their makers: `llama-models` 0.3.0 and `dashscope` 2.0.2.
LLAMA3 = "82e9d31979e92ab929cd544440f129d9ecd797b69e327f80f17e1c50d5551b55"
QWEN = "b2b1b8dfb5cc5f024bafc373121c6aba3f66f9a5a0269e243470a1de16a33186"
GPT2 = "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930"  # `r50k_base` in tiktoken
WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3_EXPRESSION, QWEN_EXPRESSION = WORDS + r"\p{N}{1,3}" + REST, WORDS + r"\p{N}" + REST
LLAMA3_TOKENS = (
    "<|begin_of_text|>", "<|end_of_text|>", "<|reserved_special_token_0|>", "<|reserved_special_token_1|>",
    "<|finetune_right_pad_id|>", "<|step_id|>", "<|start_header_id|>", "<|end_header_id|>", "<|eom_id|>", "<|eot_id|>",
    "<|python_tag|>", "<|image|>", *(f"<|reserved_special_token_{number}|>" for number in range(2, 246)),
)  # fmt: skip
QWEN_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", *(f"<|extra_{number}|>" for number in range(205)))
# Files of Mistral up to version 7 do not name their first special tokens (`mistral-common` 1.13.1).
TEKKEN_TOKENS = (
    "<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]",
    "[/TOOL_RESULTS]", "[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]", "[IMG_END]", "[PREFIX]", "[MIDDLE]", "[SUFFIX]",
    "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[TOOL_CONTENT]",
)  # fmt: skip
# Classes of transformers that split bytes by GPT-2's rule, without a normaliser
GPT2_CLASSES = ("GPT2Tokenizer", "RobertaTokenizer", "BartTokenizer", "LEDTokenizer", "LongformerTokenizer")
QWEN_CLASSES = ("Qwen2Tokenizer",)


class Ranks(NamedTuple):
    """A tiktoken encoding, and the normalisation of texts before it (None: no normalisation)."""

    encoding: Any
    normalize: Callable[[str], str] | None = None


def is_rank_file(data: bytes) -> bool:
    """Return whether the first line is that of a rank file: base64, a space, a number."""
    return RANK_LINE.match(data) is not None


def read_ranks(path: Path, data: bytes) -> Ranks:
    """Return the encoding of a rank file of Llama 3 or Qwen. TokenizerError: the ranks of another model."""
    try:
        lines = [line.split() for line in data.splitlines() if line.strip()]
        ranks = {base64.b64decode(token, validate=True): int(rank) for token, rank in lines}
    except ValueError as error:
        raise TokenizerError(
            f"expected lines of base64 and a rank in the rank file {path}: {error}. Download the file again."
        ) from error
    digest = hashlib.sha256(rank_lines(ranks)).hexdigest()
    if digest == LLAMA3:
        return Ranks(_encoding(path, LLAMA3_EXPRESSION, ranks, LLAMA3_TOKENS, len(ranks)))
    if digest == QWEN:
        encoding = _encoding(path, QWEN_EXPRESSION, ranks, QWEN_TOKENS, len(ranks))
        return Ranks(encoding, lambda text: unicodedata.normalize("NFC", text))
    raise TokenizerError(
        f"{path} is a rank file of tiktoken. It does not say how texts are split, and its ranks are not those of Llama "
        "3 or Qwen. Set tokenizer.name to the tokenizer.json of the same model, or to the name of a tiktoken encoding."
    )


def rank_lines(ranks: dict[bytes, int]) -> bytes:
    """Return ranks in the form of a `.tiktoken` file, in their order."""
    tokens = sorted(ranks, key=ranks.__getitem__)
    return b"".join([b"%s %d\n" % (b2a_base64(token, newline=False), ranks[token]) for token in tokens])


def _encoding(path: Path, expression: str, ranks: dict[bytes, int], specials: tuple[str, ...], first: int) -> Any:
    import tiktoken

    try:
        with without_panics():
            return tiktoken.Encoding(
                path.name,
                pat_str=expression,
                mergeable_ranks=ranks,
                special_tokens={text: first + number for number, text in enumerate(specials)},
            )
    except (ValueError, KeyError, OverflowError, PanicError) as error:
        raise TokenizerError(
            f"tiktoken cannot load {path}: {error}. Use the tokenizer.json of the same model."
        ) from error


# ---- tekken.json


class _TekkenConfig(msgspec.Struct):
    pattern: str
    default_vocab_size: int
    default_num_special_tokens: int


class _TekkenToken(msgspec.Struct):
    rank: int
    token_bytes: bytes  # base64 in JSON


class _TekkenSpecial(msgspec.Struct):
    rank: int
    token_str: str


class _Tekken(msgspec.Struct):
    config: _TekkenConfig
    vocab: list[_TekkenToken]
    special_tokens: list[_TekkenSpecial] | None = None


class _Form(msgspec.Struct):
    config: msgspec.Raw = msgspec.Raw()
    vocab: msgspec.Raw = msgspec.Raw()
    model: msgspec.Raw = msgspec.Raw()


def is_tekken(data: bytes) -> bool:
    """Return whether a JSON file has the form of `tekken.json`, whatever its name."""
    try:
        form = msgspec.json.decode(data, type=_Form)
    except (ValueError, RecursionError):
        return False
    return bool(bytes(form.config) and bytes(form.vocab)) and not bytes(form.model)


def read_tekken(path: Path, data: bytes) -> Ranks:
    """Return the encoding of a `tekken.json`. Ids of special tokens come first, so ranks begin after them."""
    try:
        content = msgspec.json.decode(data, type=_Tekken)
        count = content.config.default_num_special_tokens
        tokens = content.vocab[: max(content.config.default_vocab_size - count, 0)]
        if count < 0 or len(tokens) != content.config.default_vocab_size - count:
            raise ValueError(f"{len(content.vocab)} tokens for a vocabulary of {content.config.default_vocab_size}")
        if any(token.rank != number for number, token in enumerate(tokens)):
            raise ValueError("tokens are not in the order of their ranks")
        ranks = {token.token_bytes: count + token.rank for token in tokens}
        if len(ranks) != len(tokens) or not ranks.keys() >= {bytes([byte]) for byte in range(256)}:
            raise ValueError("tokens are repeated, or a byte has no token")
        specials = _tekken_specials(content.special_tokens, count)
    except (ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors
        raise TokenizerError(
            f"expected Mistral's tekken format in {path}: {error}. Download the file again, or use the tokenizer.json "
            "of the same model."
        ) from error
    return Ranks(_encoding(path, content.config.pattern, ranks, specials, 0))


def _tekken_specials(given: list[_TekkenSpecial] | None, count: int) -> tuple[str, ...]:
    names = list(TEKKEN_TOKENS) if given is None else [token.token_str for token in given]
    if [token.rank for token in given or ()] != [*range(len(given or ()))] or not len(names) <= count <= 1 << 16:
        raise ValueError(f"{len(names)} special tokens, which are not ranks below {count:,} in order")
    return (*names, *(f"<SPECIAL_{number}>" for number in range(len(names), count)))


# ---- vocab.json and merges.txt


class _AddedToken(msgspec.Struct):
    content: str
    special: bool = False
    single_word: bool = False
    lstrip: bool = False
    rstrip: bool = False
    normalized: bool = False


class _Config(msgspec.Struct):
    tokenizer_class: str = ""
    add_prefix_space: bool | None = None
    added_tokens_decoder: dict[int, _AddedToken] = {}


def is_pair(path: Path, data: bytes) -> bool:
    """Return whether a file is a `vocab.json` or a `merges.txt`, also with a longer name such as `gpt2-vocab.json`."""
    if path.suffix == ".txt":
        return path.name.endswith(MERGES)
    try:
        return len(msgspec.json.decode(data, type=dict[str, int])) > 0
    except (ValueError, RecursionError):
        return path.name.endswith(VOCAB)


def pair_of(path: Path) -> tuple[Path, Path]:
    """Return the paths of the vocabulary and of its merges; `path` is one of the two."""
    prefix = path.name.removesuffix(VOCAB).removesuffix(MERGES)
    if prefix == path.name:
        return path, path.with_name(MERGES)
    return path.with_name(prefix + VOCAB), path.with_name(prefix + MERGES)


def tokenizer_json_of_pair(path: Path, config_path: Path) -> bytes:
    """Return the tokenizer.json that is equal to `vocab.json`, `merges.txt` and tokenizer_config.json.

    TokenizerError: a file that is missing or damaged, or a pair whose expression is not known."""
    vocab_path, merges_path = pair_of(path)
    try:
        vocab = msgspec.json.decode(vocab_path.read_bytes(), type=dict[str, int])
        merges = [line for line in merges_path.read_bytes().decode().split("\n") if line.strip()]
        config = msgspec.json.decode(config_path.read_bytes(), type=_Config) if config_path.is_file() else _Config()
        if path.with_name(ADDED).is_file() and not config.added_tokens_decoder:
            raise ValueError(f"{ADDED} does not say which tokens are special")
    except (FileNotFoundError, ValueError, RecursionError) as error:
        raise TokenizerError(
            f"expected vocab.json, merges.txt and, if there is one, tokenizer_config.json of one tokenizer at {path}: "
            f"{error}. Use the tokenizer.json of the same model."
        ) from error
    content: dict[str, Any] = {"version": "1.0", "truncation": None, "padding": None, "post_processor": None}
    content |= _steps(path, vocab, config)
    merges = merges[1:] if merges and merges[0].startswith("#version") else merges
    content |= {"decoder": _byte_level(use_regex=True), "added_tokens": _added_tokens(vocab, config)}
    model = {"type": "BPE", "vocab": vocab, "merges": [line.rstrip("\r") for line in merges]}
    return json.dumps(content | {"model": model}).encode()


def _steps(path: Path, vocab: dict[str, int], config: _Config) -> dict[str, Any]:
    """Return the normaliser and the pre-tokenizer, by the tokenizer's class or because the ranks are GPT-2's."""
    name, prefix = config.tokenizer_class.removesuffix("Fast"), bool(config.add_prefix_space)
    ranks = bytes_of_tokens({text: rank for text, rank in vocab.items() if text != "<|endoftext|>"})
    if name in GPT2_CLASSES or (not name and hashlib.sha256(rank_lines(ranks)).hexdigest() == GPT2):
        return {"normalizer": None, "pre_tokenizer": _byte_level(use_regex=True) | {"add_prefix_space": prefix}}
    if name in QWEN_CLASSES:
        split = {"type": "Split", "pattern": {"Regex": QWEN_EXPRESSION}, "behavior": "Isolated", "invert": False}
        steps = [split, _byte_level(use_regex=False) | {"add_prefix_space": prefix}]
        return {"normalizer": {"type": "NFC"}, "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps}}
    known = ", ".join((*GPT2_CLASSES, *QWEN_CLASSES))
    raise TokenizerError(
        f"{path} belongs to a vocabulary with merges (vocab.json and merges.txt). They do not say how texts are split. "
        f"Use the tokenizer.json of the same model, or name its class in tokenizer_config.json next to them: "
        f"tokenizer_class is one of {known}; got {config.tokenizer_class!r}."
    )


def _byte_level(use_regex: bool) -> dict[str, Any]:
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": use_regex}


def _added_tokens(vocab: dict[str, int], config: _Config) -> list[dict[str, Any]]:
    """Return the added tokens, in the order of their ids. The end-of-document token of GPT-2 and Qwen is always one of
    them."""
    tokens = {number: msgspec.structs.asdict(token) for number, token in config.added_tokens_decoder.items()}
    end = "<|endoftext|>"
    if end in vocab:
        tokens.setdefault(vocab[end], msgspec.structs.asdict(_AddedToken(end, special=True)))
    return [{"id": number} | tokens[number] for number in sorted(tokens)]
