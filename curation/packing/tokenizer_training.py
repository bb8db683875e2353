# SPDX-License-Identifier: Apache-2.0
"""Trains tokenizers on documents, with the package `tokenizers`, and writes what `load_tokenizer` reads."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from curation.contract import TEXT
from curation.errors import InputError, OutputError, TokenizerError, counted, nearest
from curation.files import as_json, commit_all, local_output, sweep_dead
from curation.packing.tokenization import Tokenizer, load_tokenizer
from curation.packing.vocabularies import BOS_TEXTS, CONFIG_FILE, EOD_TEXTS
from curation.reading import probe, read_documents, shown
from curation.reading.changes import check_unchanged
from curation.reading.inputs import AnyInput, list_inputs, refuse_streamed
from curation.reading.paths import find_files
from curation.reading.slices import plan_slices

SPECIAL = ("<bos>", "<eos>", "<pad>", "<unk>", "<mask>")
UNKNOWN_TEXTS = ("<unk>", "[UNK]")
ROLES = {  # of special tokens, in tokenizer_config.json
    "bos_token": BOS_TEXTS,
    "eos_token": EOD_TEXTS,
    "pad_token": ("<pad>", "[PAD]"),
    "unk_token": UNKNOWN_TEXTS,
    "mask_token": ("<mask>", "[MASK]"),
}
ASCII = [chr(code) for code in range(33, 127)]
BYTE_TOKENS = [f"<0x{byte:02X}>" for byte in range(256)]  # as SentencePiece spells them
BYTE_SCORE = -1000.0  # below what the characters of `<0x0A>` in a text add up to, so that they stay characters
WORDPIECE_CHARACTERS = 1000  # BERT's
ALPHABETS = {"bpe": 256, "unigram": len(BYTE_TOKENS) + len(ASCII), "wordpiece": 2 * len(ASCII)}
KINDS = tuple(ALPHABETS)
MAX_VOCABULARY = 1_000_000  # the library makes room for all of it before it begins
SLICE_BYTES = BATCH_BYTES = 16 << 20
SAMPLED_OF_BATCH, MAX_SAMPLED = 20, 1000  # texts that show how well a tokenizer does


class Trained(NamedTuple):
    """A trained tokenizer, and what it was trained on."""

    path: Path
    tokenizer: Tokenizer
    texts: int
    bytes: int  # of the texts
    rejected: int  # records that are no documents
    tokens_per_byte: float  # of a sample of the texts


def train_tokenizer(
    inputs: str | os.PathLike[str] | AnyInput | Sequence[str | os.PathLike[str] | AnyInput | dict[str, Any]],
    output: str | os.PathLike[str],
    *,
    vocabulary: int = 32_000,
    kind: str = "bpe",
    special: Sequence[str] = SPECIAL,
    force: bool = False,
    progress: bool = False,
) -> Trained:
    """Trains a tokenizer on the documents of files and writes it, for `tokenizer.name` of a recipe.

    inputs      paths, or inputs as in a recipe, read whole; the folder `documents/` of a run is what it kept
    output      a `.json` file; `tokenizer_config.json` beside it names the special tokens. Both are written whole or
                not at all; OutputError where one of them exists, without `force`
    vocabulary  tokens at most, special ones too; few texts give fewer
    kind        `bpe`: bytes, split as GPT-2 splits, so that every text comes back as it was. `unigram`: characters,
                spaces as U+2581, and bytes for characters that the texts did not have. `wordpiece`: of words and signs
                without the spaces between, of the 1,000 commonest characters; a word with another one is unknown
    special     special tokens, numbered from 0. One of `<eos>`, `</s>`, `<|endoftext|>`, `<|end_of_text|>`, `[EOS]`
                ends documents; `unigram` and `wordpiece` need `<unk>` or `[UNK]`
    progress    whether the library shows how far it is

    `bpe` gives the same bytes each time, on any number of threads. The library's trainers of `unigram` and `wordpiece`
    do not: they go through hash tables in an order of chance, so that two trainings differ in some tokens. Memory grows
    with the number of different words in the texts.

    Raises TokenizerError for wrong settings, before anything is read; InputError for inputs that cannot be read or have
    no text.
    """
    _check(kind, vocabulary, special)
    path = local_output(output).expanduser()
    config = path.with_name(CONFIG_FILE)
    _check_output(path, config, force)
    texts = _Texts(_inputs(inputs))
    sweep_dead(path, config)
    with commit_all(path, config) as (written, written_config):
        written_config.write_bytes(as_json(_config(special), indent=True))  # first: whether the folder can be written
        written.write_text(_train(kind, vocabulary, list(special), texts, progress), "utf-8")
    tokenizer = load_tokenizer(str(path))
    ids, _ = tokenizer.encode(pa.array(texts.sample, pa.large_string()))
    sampled = sum(len(text.encode()) for text in texts.sample)
    return Trained(path, tokenizer, texts.texts, texts.bytes, texts.rejected, len(ids) / sampled)


def _check(kind: str, vocabulary: int, special: Sequence[str]) -> None:
    if kind not in ALPHABETS:
        raise TokenizerError(f"no kind of tokenizer {kind!r}{nearest(kind, ALPHABETS)}")
    if len({*special, ""}) <= len(special):
        raise TokenizerError(f"special tokens must be different texts, none of them empty, not {list(special)}")
    _check_special(special, EOD_TEXTS, "that ends documents")
    if kind != "bpe":
        _check_special(special, UNKNOWN_TEXTS, "for what is unknown")
    least = ALPHABETS[kind] + len(special)
    if not least <= vocabulary <= MAX_VOCABULARY:
        raise TokenizerError(
            f"vocabulary must be from {least} ({ALPHABETS[kind]} for the alphabet of {kind} and "
            f"{counted(len(special), 'special token')}) to {MAX_VOCABULARY:,}, not {vocabulary:,}"
        )


def _check_special(special: Sequence[str], usual: Sequence[str], words: str) -> None:
    if not {*special} & {*usual}:
        raise TokenizerError(f"special tokens must have one {words}: one of {', '.join(usual)}; got {list(special)}")


def _check_output(path: Path, config: Path, force: bool) -> None:
    if path.suffix != ".json" or path == config:
        raise OutputError(f"a tokenizer is a .json file, and not {CONFIG_FILE}, got {path}. Call it tokenizer.json")
    for found in (path, config):
        if found.is_dir() or (found.exists() and not force):
            raise OutputError(f"{found} exists already. Give another --output, or --force to replace it")


def _inputs(given: object) -> list[AnyInput]:
    """InputError for what cannot be read here."""
    try:
        inputs = list_inputs(given)
    except ValueError as error:
        raise InputError(str(error)) from None
    refuse_streamed(inputs)
    for entry in inputs:
        if entry.sample < 1:
            raise InputError(f"sample of {shown(entry.path)} is for runs: run a recipe, then read its documents/")
    if not inputs:
        raise InputError("nothing to read: inputs is empty")
    return inputs


class _Texts:
    """The texts of inputs, a batch at a time, and what is counted on the way."""

    def __init__(self, inputs: list[AnyInput]) -> None:
        self.files = [probe(file) for file in find_files(inputs)]
        self.texts = self.bytes = self.rejected = 0
        self.sample: list[str] = []

    def __iter__(self) -> Iterator[list[str]]:
        for piece in plan_slices(self.files, SLICE_BYTES):
            for documents in read_documents(piece, BATCH_BYTES):
                column = documents.table.column(TEXT)
                texts: list[str] = column.to_pylist()
                self.texts += len(texts)
                self.bytes += pc.sum(pc.binary_length(column)).as_py() or 0
                self.rejected += len(documents.rejected)
                if len(self.sample) < MAX_SAMPLED:
                    self.sample += [text for text in texts if text][:SAMPLED_OF_BATCH]
                yield texts
            check_unchanged(piece)
        if not self.bytes:
            raise InputError(f"no text to train a tokenizer on: {counted(self.texts, 'document')}, 0 bytes")


def _config(special: Sequence[str]) -> dict[str, Any]:
    """What tokenizer.json does not say, for our loader and for `transformers`."""
    found = {role: [text for text in usual if text in special] for role, usual in ROLES.items()}
    named = {role: texts[0] for role, texts in found.items() if texts}
    return {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False, **named}


def _train(kind: str, vocabulary: int, special: list[str], texts: _Texts, progress: bool) -> str:
    """The content of tokenizer.json."""
    tokenizer, trainer = BUILDERS[kind](vocabulary, special)
    trainer.show_progress = progress
    try:
        tokenizer.train_from_iterator(iter(texts), trainer)
    except Exception as error:
        if type(error) is not Exception:  # which `tokenizers` raises itself
            raise
        raise _too_few(kind, vocabulary, str(error)) from None
    content: str = tokenizer.to_str(pretty=True)
    if kind != "unigram":
        return content
    size = tokenizer.get_vocab_size() + len(BYTE_TOKENS)
    if size > vocabulary:
        raise _too_few(kind, vocabulary, f"the different characters of the texts alone make {size:,}")
    return _with_bytes(content, len(special))


def _too_few(kind: str, vocabulary: int, why: str) -> TokenizerError:
    return TokenizerError(f"{kind} with {vocabulary:,} tokens is not possible: {why}. Raise vocabulary, or take bpe")


def _bpe(vocabulary: int, special: list[str]) -> tuple[Any, Any]:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    return tokenizer, trainers.BpeTrainer(
        vocab_size=vocabulary, special_tokens=special, initial_alphabet=alphabet, min_frequency=2
    )


def _unigram(vocabulary: int, special: list[str]) -> tuple[Any, Any]:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="never")])
    return tokenizer, trainers.UnigramTrainer(
        vocab_size=vocabulary - len(BYTE_TOKENS),
        special_tokens=special,
        unk_token=_unknown(special),
        initial_alphabet=ASCII,
    )


def _wordpiece(vocabulary: int, special: list[str]) -> tuple[Any, Any]:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.WordPiece(unk_token=_unknown(special)))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.decoder = decoders.WordPiece(cleanup=False)
    characters = min(WORDPIECE_CHARACTERS, (vocabulary - len(special)) // 2)  # each at the start and inside of words
    return tokenizer, trainers.WordPieceTrainer(
        vocab_size=vocabulary, special_tokens=special, limit_alphabet=characters, min_frequency=2
    )


BUILDERS: dict[str, Callable[[int, list[str]], tuple[Any, Any]]] = {
    "bpe": _bpe, "unigram": _unigram, "wordpiece": _wordpiece,
}  # fmt: skip


def _unknown(special: list[str]) -> str:
    return next(text for text in UNKNOWN_TEXTS if text in special)


def _with_bytes(content: str, num_special: int) -> str:
    """A trained Unigram with a token per byte behind the special ones, which its trainer cannot make."""
    found = json.loads(content)
    model = found["model"]
    pieces = [[token, BYTE_SCORE] for token in BYTE_TOKENS]
    model["vocab"] = [*model["vocab"][:num_special], *pieces, *model["vocab"][num_special:]]
    model["byte_fallback"] = True
    return json.dumps(found, ensure_ascii=False, indent=2)


__all__ = ["SPECIAL", "Trained", "train_tokenizer"]
