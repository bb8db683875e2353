# SPDX-License-Identifier: Apache-2.0
"""Trains SentencePiece models with the package's own trainer, on one thread, so equal texts give equal files."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from typing import Any

from curation.tokens.vocabularies import BOS_TEXTS, EOD_TEXTS

MODEL = ".model"
MODEL_KINDS = ("bpe", "unigram")
PIECES = {"bos": BOS_TEXTS, "eos": EOD_TEXTS, "pad": ("<pad>", "[PAD]"), "unk": ("<unk>", "[UNK]")}
COVERAGE = 0.9995  # share of the characters that become pieces; others are encoded as bytes
MAX_SENTENCE_BYTES = 1 << 30
QUIET = 2  # errors only


def train_model(kind: str, vocabulary: int, special: Sequence[str], batches: Iterator[list[str]]) -> bytes:
    """Return a SentencePiece model trained on the lines of texts.

    kind        `bpe` or `unigram`
    vocabulary  maximum number of pieces
    special     special tokens, numbered from 0
    batches     texts

    Texts are not normalised, and no space is put before them, so that every text decodes to itself. A line end has no
    piece; it is encoded as the byte `<0x0A>`. RuntimeError: `vocabulary` is too small for the characters of the texts.
    """
    from sentencepiece import SentencePieceTrainer

    roles = {role: next((text for text in special if text in usual), "") for role, usual in PIECES.items()}
    settings: dict[str, Any] = {f"{role}_id": list(special).index(text) if text else -1 for role, text in roles.items()}
    settings |= {f"{role}_piece": text for role, text in roles.items() if text}
    model = io.BytesIO()
    failures: list[BaseException] = []
    try:
        SentencePieceTrainer.train(
            sentence_iterator=_lines(batches, failures),
            model_writer=model,
            model_type=kind,
            vocab_size=vocabulary,
            hard_vocab_limit=False,
            control_symbols=[text for text in special if text not in roles.values()],
            byte_fallback=True,
            character_coverage=COVERAGE,
            normalization_rule_name="identity",
            remove_extra_whitespaces=False,
            add_dummy_prefix=False,
            max_sentence_length=MAX_SENTENCE_BYTES,
            num_threads=1,
            minloglevel=QUIET,
            **settings,
        )
    except (RuntimeError, OSError):
        if failures:  # the trainer would hide an error of the iterator
            raise failures[0] from None
        raise
    if failures:
        raise failures[0]
    return model.getvalue()


def _lines(batches: Iterator[list[str]], failures: list[BaseException]) -> Iterator[str]:
    """Yield the lines of texts. An error ends the lines, and is appended to `failures`."""
    try:
        for texts in batches:
            for text in texts:
                yield from (line for line in text.replace("\0", "").split("\n") if line)
    except BaseException as error:
        failures.append(error)
