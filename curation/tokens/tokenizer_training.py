# SPDX-License-Identifier: Apache-2.0
"""Trains tokenizers on documents with the package `tokenizers`, and writes files that `load_tokenizer` reads."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from curation.base.errors import InputError, OutputError, TokenizerError, counted, nearest
from curation.base.system.files import (
    as_json,
    check_new_or_same,
    commit_all,
    local_output,
    prepare_output,
    sweep_dead,
)
from curation.base.system.steps import Count, watching
from curation.reading.inputs import AnyInput
from curation.reading.texts import InputTexts, list_whole_inputs
from curation.tokens.sentencepiece_training import MODEL, MODEL_KINDS, train_model
from curation.tokens.tokenization import Tokenizer, load_tokenizer
from curation.tokens.vocabularies import BOS_TEXTS, CONFIG_FILE, EOD_TEXTS

SPECIAL = ("<bos>", "<eos>", "<pad>", "<unk>", "<mask>")
UNKNOWN_TEXTS = ("<unk>", "[UNK]")
ROLES = {  # key of tokenizer_config.json -> usual texts of the special token
    "bos_token": BOS_TEXTS,
    "eos_token": EOD_TEXTS,
    "pad_token": ("<pad>", "[PAD]"),
    "unk_token": UNKNOWN_TEXTS,
    "mask_token": ("<mask>", "[MASK]"),
}
ASCII = [chr(code) for code in range(33, 127)]
BYTE_TOKENS = [f"<0x{byte:02X}>" for byte in range(256)]  # as SentencePiece spells them
BYTE_SCORE = -1000.0  # so low that a text with the characters `<0x0A>` is encoded as these
WORDPIECE_CHARACTERS = 1000  # BERT's
ALPHABETS = {"bpe": 256, "unigram": len(BYTE_TOKENS) + len(ASCII), "wordpiece": 2 * len(ASCII)}
KINDS = tuple(ALPHABETS)
MAX_VOCABULARY = 1_000_000  # the library allocates all of it at the start
SAMPLED_OF_BATCH, MAX_SAMPLED = 20, 1000  # texts for `tokens_per_byte`


class Trained(NamedTuple):
    """A trained tokenizer, and the size of its training data.

    path             the tokenizer's file
    tokenizer        the tokenizer, loaded from `path`
    texts, bytes     documents read, and UTF-8 bytes of their text
    rejected         records that are not documents
    tokens_per_byte  tokens per UTF-8 byte, over a sample of at most about 1,000 texts
    """

    path: Path
    tokenizer: Tokenizer
    texts: int
    bytes: int
    rejected: int
    tokens_per_byte: float

    def __repr__(self) -> str:
        return (
            f"<trained tokenizer {str(self.path)!r}: {self.tokenizer.vocabulary:,} tokens from "
            f"{counted(self.texts, 'document')}, {self.tokens_per_byte:.3g} tokens per byte>"
        )


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
    """Train a tokenizer on documents and write it as a file for `tokenizer.name` of a recipe.

    inputs      paths, or inputs as in a recipe; all of them are read. The folder `documents/` of a run holds the
                documents that the run kept
    output      path of a `.json` file. `tokenizer_config.json` next to it names the special tokens. Both files are
                written, or neither. Or path of a `.model` file: `bpe` or `unigram` by SentencePiece's own trainer, with
                bytes for rare characters; both give the same bytes each time, and every text decodes to itself
    vocabulary  maximum number of tokens, with special tokens. Few texts give fewer. Default: 32,000
    kind        `bpe` (default): byte-level, split by GPT-2's rule; every text decodes to itself. `unigram`: characters,
                spaces as U+2581, bytes for characters that the texts do not have. `wordpiece`: words and signs without
                the spaces between them, over the 1,000 most frequent characters; a word with another character is
                unknown
    special     special tokens, numbered from 0. One of `<eos>`, `</s>`, `<|endoftext|>`, `<|end_of_text|>`, `[EOS]`
                ends documents. `unigram` and `wordpiece` need `<unk>` or `[UNK]`
    force       replace existing files. Default: False
    progress    show the library's progress bar. Default: False

    `bpe` gives the same bytes each time, on any number of threads. `unigram` and `wordpiece` do not: the library's
    trainers iterate over hash tables in random order, so two trainings differ in some tokens. Memory grows with the
    number of different words in the texts.

        >>> import curation
        >>> curation.train_tokenizer("data/*.jsonl", "mine.json", vocabulary=270).tokenizer.vocabulary
        270

    TokenizerError: wrong settings, before anything is read, or a vocabulary too small for the texts. InputError:
    inputs that cannot be read or have no text. OutputError: an `output` that is neither a `.json` nor a `.model` file,
    or that exists (either file) without `force`.
    """
    path = local_output(output).expanduser()
    _check_settings(kind, vocabulary, special, path.suffix == MODEL)
    if path.suffix == MODEL:
        return _train_sentencepiece(path, list_whole_inputs(inputs), kind, vocabulary, special, force)
    config = path.with_name(CONFIG_FILE)
    content = as_json(_config(special), indent=True)
    _check_output(path, config, content, force)
    texts = _Texts(list_whole_inputs(inputs))
    with commit_all(config, path) as (written_config, written):
        written_config.write_bytes(content)
        written.write_text(_train(kind, vocabulary, list(special), texts, progress), "utf-8")
    return _trained(path, texts)


def _train_sentencepiece(
    path: Path, inputs: list[AnyInput], kind: str, vocabulary: int, special: Sequence[str], force: bool
) -> Trained:
    prepare_output(path, force)
    texts = _Texts(inputs)
    with commit_all(path) as (written,):
        with _shown_phases(vocabulary, texts):
            try:
                model = train_model(kind, vocabulary, special, iter(texts))
            except RuntimeError as error:
                raise _refuse_vocabulary(kind, vocabulary, " ".join(str(error).split())[-300:]) from None
        written.write_bytes(model)
    return _trained(path, texts)


def _trained(path: Path, texts: _Texts) -> Trained:
    tokenizer, read = load_tokenizer(str(path)), texts.read
    ids, _ = tokenizer.encode(pa.array(texts.sample, pa.large_string()))
    sampled = sum(len(text.encode()) for text in texts.sample)
    return Trained(path, tokenizer, read.texts, read.bytes, read.rejected, len(ids) / sampled)


def _check_settings(kind: str, vocabulary: int, special: Sequence[str], is_model: bool) -> None:
    if kind not in ALPHABETS:
        raise TokenizerError(f"no kind of tokenizer {kind!r}{nearest(kind, ALPHABETS)}")
    if is_model and kind not in MODEL_KINDS:
        raise TokenizerError(f"a SentencePiece model ({MODEL}) is {' or '.join(MODEL_KINDS)}, not {kind}")
    if len({*special, ""}) <= len(special):
        raise TokenizerError(f"special tokens must be different, non-empty texts, got {list(special)}")
    _check_special(special, EOD_TEXTS, "that ends documents")
    if kind != "bpe" or is_model:
        _check_special(special, UNKNOWN_TEXTS, "for unknown text")
    minimum = ALPHABETS[kind] + len(special)
    if not minimum <= vocabulary <= MAX_VOCABULARY:
        raise TokenizerError(
            f"vocabulary must be from {minimum} ({ALPHABETS[kind]} for the alphabet of {kind} and "
            f"{counted(len(special), 'special token')}) to {MAX_VOCABULARY:,}, not {vocabulary:,}"
        )


def _check_special(special: Sequence[str], usual: Sequence[str], purpose: str) -> None:
    if not {*special} & {*usual}:
        raise TokenizerError(f"special tokens must have one {purpose}: one of {', '.join(usual)}; got {list(special)}")


def _check_output(path: Path, config: Path, content: bytes, force: bool) -> None:
    if path.suffix != ".json" or path == config:
        raise OutputError(
            f"the output is {path}, expected a .json file other than {CONFIG_FILE}, or a .model of SentencePiece. Call "
            "it tokenizer.json or tokenizer.model"
        )
    prepare_output(path, force)
    check_new_or_same(config, content, force)
    sweep_dead(config)


class _Texts:
    """Batches of the texts of inputs. A sample of the texts is kept for `tokens_per_byte`."""

    def __init__(self, inputs: list[AnyInput]) -> None:
        self.read = InputTexts(inputs)
        self.sample: list[str] = []
        self.when_read: Callable[[], Any] = lambda: None

    def __iter__(self) -> Iterator[list[str]]:
        for batch in self.read:
            texts = [text or "" for text in batch]
            if len(self.sample) < MAX_SAMPLED:
                self.sample += [text for text in texts if text][:SAMPLED_OF_BATCH]
            yield texts
        if not self.read.bytes:
            raise InputError(
                f"no text to train a tokenizer on: {counted(self.read.texts, 'document')}, 0 bytes. Give files with "
                "text"
            )
        self.when_read()


def _config(special: Sequence[str]) -> dict[str, Any]:
    """Return tokenizer_config.json, for `load_tokenizer` and `transformers`: facts that tokenizer.json lacks."""
    candidates = {role: [text for text in usual if text in special] for role, usual in ROLES.items()}
    roles = {role: texts[0] for role, texts in candidates.items() if texts}
    return {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False, **roles}


def _train(kind: str, vocabulary: int, special: list[str], texts: _Texts, progress: bool) -> str:
    """Train and return the content of tokenizer.json."""
    tokenizer, trainer = BUILDERS[kind](vocabulary, special)
    trainer.show_progress = progress
    try:
        with _shown_phases(vocabulary, texts):
            tokenizer.train_from_iterator(iter(texts), trainer)
    except Exception as error:
        if type(error) is not Exception:  # `tokenizers` raises plain Exception
            raise
        raise _refuse_vocabulary(kind, vocabulary, str(error)) from None
    content: str = tokenizer.to_str(pretty=True)
    if kind != "unigram":
        return content
    size = tokenizer.get_vocab_size() + len(BYTE_TOKENS)
    if size > vocabulary:
        raise _refuse_vocabulary(kind, vocabulary, f"the different characters of the texts alone make {size:,}")
    return _insert_byte_tokens(content, len(special))


@contextmanager
def _shown_phases(vocabulary: int, texts: _Texts) -> Iterator[None]:
    """Show the progress of reading, then of training. The library calls the iterator of the texts in threads without a
    display."""
    reading = watching("reading texts", len(texts.read.slices), texts.read.count, "slice")
    training = watching(f"training {vocabulary:,} tokens", 0, lambda: Count(0, texts.read.texts, texts.read.bytes), "")
    with ExitStack() as shown:
        shown.enter_context(reading)

        def begin_training() -> None:
            shown.close()
            shown.enter_context(training)

        texts.when_read = begin_training
        yield


def _refuse_vocabulary(kind: str, vocabulary: int, reason: str) -> TokenizerError:
    return TokenizerError(f"{kind} with {vocabulary:,} tokens is not possible: {reason}. Raise vocabulary, or use bpe")


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
    characters = min(
        WORDPIECE_CHARACTERS, (vocabulary - len(special)) // 2
    )  # each character at the start of words and inside words
    return tokenizer, trainers.WordPieceTrainer(
        vocab_size=vocabulary, special_tokens=special, limit_alphabet=characters, min_frequency=2
    )


BUILDERS: dict[str, Callable[[int, list[str]], tuple[Any, Any]]] = {
    "bpe": _bpe, "unigram": _unigram, "wordpiece": _wordpiece,
}  # fmt: skip


def _unknown(special: list[str]) -> str:
    return next(text for text in UNKNOWN_TEXTS if text in special)


def _insert_byte_tokens(content: str, num_special: int) -> str:
    """Insert a token per byte after the special tokens of a trained Unigram model: the trainer of Unigram cannot make
    them."""
    tokenizer = json.loads(content)
    model = tokenizer["model"]
    entries = [[token, BYTE_SCORE] for token in BYTE_TOKENS]
    model["vocab"] = [*model["vocab"][:num_special], *entries, *model["vocab"][num_special:]]
    model["byte_fallback"] = True
    return json.dumps(tokenizer, ensure_ascii=False, indent=2)
