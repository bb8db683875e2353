# SPDX-License-Identifier: Apache-2.0
"""Commands that train something of one's own documents."""

from __future__ import annotations

import argparse

from curation import interrupts
from curation.cli.options import SPEAKING, add_inputs, inputs_of, listed, share
from curation.cli.parsing import Command, Parser, whole_number
from curation.cli.running import load_within_limits


def _add_train_tokenizer(parser: Parser) -> None:
    add_inputs(parser)
    share(parser, "output", metavar="FILE", help="tokenizer.json, for tokenizer.name of a recipe")
    parser.add_argument(
        "--vocabulary", type=whole_number, default=32_000, metavar="N", help="tokens at most (default: 32000)"
    )
    parser.add_argument("--kind", default="bpe", metavar="KIND", help="bpe (default; of bytes), unigram or wordpiece")
    parser.add_argument(
        "--special", default="", metavar="A,B", help="special tokens (default: `<bos>,<eos>,<pad>,<unk>,<mask>`)"
    )
    share(parser, "force", help="replace FILE and the tokenizer_config.json beside it")
    share(parser, *SPEAKING)


def train_tokenizer(options: argparse.Namespace) -> int:
    inputs, voice = inputs_of(options), options.voice
    load_within_limits()
    from curation.errors import counted
    from curation.packing import tokenizer_training
    from curation.running.report import tokenizer_warning

    interrupts.begin_writing()
    trained = tokenizer_training.train_tokenizer(
        inputs,
        options.output,
        vocabulary=options.vocabulary,
        kind=options.kind,
        special=listed(options.special) if options.special else tokenizer_training.SPECIAL,
        force=options.force,
        progress=voice.draws,
    )
    tokenizer, size = trained.tokenizer, f"{trained.bytes / 1e6:,.2f} MB"
    voice.tell(f"{trained.path}: {counted(tokenizer.vocabulary, 'token')}, of {counted(trained.texts, 'text')}, {size}")
    voice.tell(f"{trained.tokens_per_byte:.3f} tokens per byte of a sample of them")
    if trained.rejected:
        voice.warn(f"passed over {counted(trained.rejected, 'record')}, which cannot be read as documents")
    if tokenizer.note:
        voice.warn(tokenizer_warning(tokenizer))
    counts = {name: getattr(trained, name) for name in ("texts", "bytes", "rejected", "tokens_per_byte")}
    return int(voice.result("train tokenizer", output=str(trained.path), vocabulary=tokenizer.vocabulary, **counts))


TRAIN_TOKENIZER = Command(
    "train tokenizer", "a tokenizer of your own documents", _add_train_tokenizer, train_tokenizer, ("train-tokenizer",)
)
