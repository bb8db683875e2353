# SPDX-License-Identifier: Apache-2.0
"""Commands that train on your own documents."""

from __future__ import annotations

import argparse

from curation.cli.execution import prepare_memory
from curation.cli.options import LOGGING, add_inputs, inputs_of, share, split_names
from curation.cli.parsing import Command, Parser, whole_number
from curation.system import interrupts
from curation.system.steps import shown_by


def _add_train_tokenizer(parser: Parser) -> None:
    add_inputs(parser)
    share(parser, "output", metavar="FILE", help="write a tokenizer.json to FILE, for tokenizer.name of a recipe")
    parser.add_argument(
        "--vocabulary",
        type=whole_number,
        default=32_000,
        metavar="N",
        help="limit the vocabulary to N tokens (default: 32000)",
    )
    parser.add_argument(
        "--kind", default="bpe", metavar="KIND", help="train this kind: bpe (of bytes; default), unigram or wordpiece"
    )
    parser.add_argument(
        "--special",
        default="",
        metavar="A,B",
        help="use these special tokens (default: `<bos>,<eos>,<pad>,<unk>,<mask>`)",
    )
    share(parser, "force", help="replace FILE and the tokenizer_config.json in its folder")
    share(parser, *LOGGING)


def train_tokenizer(options: argparse.Namespace) -> int:
    inputs, console = inputs_of(options), options.console
    prepare_memory()
    from curation.errors import counted
    from curation.packing import tokenizer_training
    from curation.running.report import tokenizer_warning

    interrupts.begin_writing()
    with shown_by(console.progress()):
        trained = tokenizer_training.train_tokenizer(
            inputs,
            options.output,
            vocabulary=options.vocabulary,
            kind=options.kind,
            special=split_names(options.special) if options.special else tokenizer_training.SPECIAL,
            force=options.force,
        )
    tokenizer, size = trained.tokenizer, f"{trained.bytes / 1e6:,.2f} MB"
    console.info(
        f"{trained.path}: {counted(tokenizer.vocabulary, 'token')} from {counted(trained.texts, 'text')}, {size}"
    )
    console.info(f"{trained.tokens_per_byte:.3f} tokens per byte on a sample of the texts")
    if trained.rejected:
        console.warn(f"skipped {counted(trained.rejected, 'record')} that cannot be read as documents")
    if tokenizer.note:
        console.warn(tokenizer_warning(tokenizer))
    counts = {name: getattr(trained, name) for name in ("texts", "bytes", "rejected", "tokens_per_byte")}
    return int(console.result("train tokenizer", output=str(trained.path), vocabulary=tokenizer.vocabulary, **counts))


TRAIN_TOKENIZER = Command(
    "train tokenizer",
    "train a tokenizer on your documents",
    _add_train_tokenizer,
    train_tokenizer,
    ("train-tokenizer",),
)
